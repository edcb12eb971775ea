// Package guidance is what this program tells an agent about its own use: six guided investigations, written out for a
// question, and the skill, a set of Markdown files that can be searched and installed where clients look.
//
// Everything here is our own text and follows from the catalog that a server serves, so that no advice names a tool
// that cannot be called. Package guidance looks at no target and changes nothing.
package guidance

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"rea/evidence"
	"rea/orchestrator/catalog"
	"rea/orchestrator/schema"
)

// Completion names where suggestions for an argument come from.
type Completion string

// The families of completion. Arguments without one have no suggestions.
const (
	CompleteDocument   Completion = "document"
	CompleteProcedure  Completion = "procedure"
	CompleteProvider   Completion = "provider"
	CompleteEvidence   Completion = "evidence"
	CompleteCapture    Completion = "capture"
	CompleteManifest   Completion = "manifest"
	CompleteOccurrence Completion = "occurrence"
	CompleteUnknown    Completion = "unknown"
)

// Prompt is one guided investigation, with what is left of its starting points in a catalog.
type Prompt struct {
	Name        string
	Title       string
	Description string // purpose, one sentence
	Objective   string
	Arguments   []Argument
	Steps       []Step
}

// Argument is a text that a prompt takes.
type Argument struct {
	Name        string     `json:"name"`
	Description string     `json:"description"`
	Required    bool       `json:"required"`
	Completion  Completion `json:"-"`
}

// Step is one starting point: an instruction and the tools that serve it.
type Step struct {
	Text  string   `json:"text"`
	Tools []string `json:"tools"`
}

// row is a starting point before it is held against a catalog.
type row struct {
	optional bool // whether the prompt is complete without it
	whole    bool // whether it goes when any of its tools is missing, and not only with the last of them
	parts    []part
}

// part is a sentence or two about some tools; it goes with the last of them.
type part struct {
	tools []string
	text  string
}

// Guide is the guidance that belongs to one catalog.
type Guide struct {
	prompts []Prompt
}

// For returns the guidance of a server that serves c, a scope of the built-in catalog. A tool that this program does
// not have yet is left out of every prompt; a prompt whose tools are there but out of scope is left out whole, except
// that optional starting points go alone.
func For(c *catalog.Catalog) *Guide {
	g := &Guide{}
	build := catalog.Builtin()
	for _, d := range definitions {
		if p, ok := d.within(build, c); ok {
			g.prompts = append(g.prompts, p)
		}
	}
	return g
}

// within reduces a definition to the tools of the build, and then to those in scope.
func (d definition) within(build, scope *catalog.Catalog) (Prompt, bool) {
	p := d.Prompt
	p.Arguments = slices.Clone(d.Arguments)
	for _, r := range d.rows {
		step, ok := r.within(build)
		switch {
		case !ok:
		case scope.Has(step.Tools...):
			p.Steps = append(p.Steps, step)
		case !r.optional:
			return Prompt{}, false
		}
	}
	return p, true
}

// within is what is left of a row in a catalog.
func (r row) within(c *catalog.Catalog) (Step, bool) {
	var texts, tools []string
	for _, p := range r.parts {
		if r.whole && !c.Has(p.tools...) {
			return Step{}, false
		}
		left := slices.DeleteFunc(slices.Clone(p.tools), func(name string) bool { return !c.Has(name) })
		if len(left) > 0 {
			texts, tools = append(texts, p.text), append(tools, left...)
		}
	}
	return Step{Text: strings.Join(texts, " "), Tools: distinct(tools)}, len(tools) > 0
}

func distinct(list []string) []string {
	var out []string
	for _, s := range list {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// Prompts lists the prompts that are served. The caller does not change them.
func (g *Guide) Prompts() []Prompt { return g.prompts }

// Prompt finds one by name.
func (g *Guide) Prompt(name string) (Prompt, bool) {
	for _, p := range g.prompts {
		if p.Name == name {
			return p, true
		}
	}
	return Prompt{}, false
}

// Argument finds an argument of the prompt.
func (p Prompt) Argument(name string) (Argument, bool) {
	for _, a := range p.Arguments {
		if a.Name == name {
			return a, true
		}
	}
	return Argument{}, false
}

// Identity is what prompts_sha256 covers.
func (g *Guide) Identity() any {
	out := []any{}
	for _, p := range g.prompts {
		out = append(out, map[string]any{"name": p.Name, "title": p.Title, "description": p.Description, "arguments": p.Arguments, "steps": p.Steps})
	}
	return out
}

// Check lists what is wrong with arguments for the prompt, with paths below "arguments". Unknown names are refused
// only where the caller is strict; MCP's prompts/get ignores them.
func (p Prompt) Check(arguments map[string]string, strict bool) []schema.Issue {
	var issues []schema.Issue
	for _, a := range p.Arguments {
		value, given := arguments[a.Name]
		switch {
		case !a.Required || strings.TrimSpace(value) != "":
		case !given:
			issues = append(issues, schema.Issue{Path: []any{"arguments", a.Name}, Reason: schema.MissingArgument, Expected: "string"})
		default:
			issues = append(issues, schema.Issue{Path: []any{"arguments", a.Name}, Reason: schema.InvalidValue, Expected: "a text that is not only white space"})
		}
	}
	if !strict {
		return issues
	}
	for _, name := range sortedKeys(arguments) {
		if _, ok := p.Argument(name); !ok {
			issues = append(issues, schema.Issue{Path: []any{"arguments", name}, Reason: schema.UnknownArgument, Expected: "one of: " + strings.Join(p.names(), ", ")})
		}
	}
	return issues
}

func (p Prompt) names() []string {
	var out []string
	for _, a := range p.Arguments {
		out = append(out, a.Name)
	}
	return out
}

func sortedKeys(m map[string]string) []string {
	var out []string
	for key := range m {
		out = append(out, key)
	}
	slices.Sort(out)
	return out
}

// Render writes the prompt out for arguments that Check accepts, as Markdown. Values appear in one place only, as JSON
// data, exactly as they were given.
func (p Prompt) Render(arguments map[string]string) (string, error) {
	given, err := p.context(arguments)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n%s\n\n%s\n\n%s\n\n%s\n\n## Starting points\n\n", p.Title, p.Objective, contextLine, given, howToUse)
	for _, s := range p.Steps {
		fmt.Fprintf(&b, "- %s Tools: `%s`.\n", s.Text, strings.Join(s.Tools, "`, `"))
	}
	b.WriteString("\n## Evidence rules\n\n")
	for _, rule := range evidenceRules {
		fmt.Fprintf(&b, "- %s\n", rule)
	}
	return b.String(), nil
}

// context is the compact JSON object of the prompt's non-empty arguments, keys in code-point order.
func (p Prompt) context(arguments map[string]string) (jsontext.Value, error) {
	given := map[string]string{}
	for _, a := range p.Arguments {
		if v := arguments[a.Name]; v != "" {
			given[a.Name] = v
		}
	}
	return evidence.Canonical(given)
}
