package catalog

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"rea/evidence"
	"rea/evidence/fault"
	"rea/orchestrator/schema"
)

// Tool is the contract of one tool.
type Tool struct {
	Name        string
	Description string
	Surface     Surface
	Effects     Effects
	Needs       Needs
	StateOnly   bool // results and errors hold nothing but session state or the caller's own input: no marker
	Input       *Shape
	Output      *Shape           // of successful structured content
	Examples    []jsontext.Value // valid inputs; of those with a complete Evidence record a reference is advertised

	profile    schema.Profile
	render     sync.Once
	inputJSON  jsontext.Value
	outputJSON jsontext.Value
}

// Needs say what must be there before a tool can do its work.
type Needs struct {
	Target  bool // an open target, whatever the arguments are
	Sandbox bool // a contained run
}

// Effects say what a tool may do, in the worst case over every input that it accepts.
type Effects struct {
	MutatesTarget       bool
	MutatesSession      bool // also by adding Evidence
	WritesFilesystem    bool
	LaunchesProcess     bool // programs that are not ours: an engine, a platform tool, a target
	AccessesNetwork     bool
	ChangesUIState      bool
	MayDiscardData      bool
	ExecutesForeignCode bool
	MutatesDevice       bool
	Idempotent          bool
}

// List names the effects that are true, in the order of the vocabulary.
func (e Effects) List() []string { return names(e.flags()...) }

// Flags gives every effect of the vocabulary with whether it is true.
func (e Effects) Flags() map[string]bool {
	out := map[string]bool{}
	for _, f := range e.flags() {
		out[f.name] = f.set
	}
	return out
}

func (e Effects) flags() []flagged {
	return []flagged{
		{"mutatesTarget", e.MutatesTarget}, {"mutatesSession", e.MutatesSession},
		{"writesFilesystem", e.WritesFilesystem}, {"launchesProcess", e.LaunchesProcess},
		{"accessesNetwork", e.AccessesNetwork}, {"changesUiState", e.ChangesUIState},
		{"mayDiscardData", e.MayDiscardData}, {"executesForeignCode", e.ExecutesForeignCode},
		{"mutatesDevice", e.MutatesDevice}, {"idempotent", e.Idempotent},
	}
}

// Annotations are the hints of MCP's ToolAnnotations.
type Annotations struct {
	ReadOnly    bool `json:"readOnlyHint"`
	Destructive bool `json:"destructiveHint"`
	Idempotent  bool `json:"idempotentHint"`
	OpenWorld   bool `json:"openWorldHint"`
}

// Annotations derives the hints from the effects.
func (e Effects) Annotations() Annotations {
	effects := e
	effects.Idempotent = false
	return Annotations{
		ReadOnly:    effects == Effects{},
		Destructive: e.MayDiscardData || e.ExecutesForeignCode || e.MutatesDevice,
		Idempotent:  e.Idempotent,
		OpenWorld:   e.LaunchesProcess || e.AccessesNetwork,
	}
}

// List names the hints that are true.
func (a Annotations) List() []string {
	return names(flagged{"read_only", a.ReadOnly}, flagged{"destructive", a.Destructive},
		flagged{"idempotent", a.Idempotent}, flagged{"open_world", a.OpenWorld})
}

type flagged struct {
	name string
	set  bool
}

func names(flags ...flagged) []string {
	out := []string{}
	for _, f := range flags {
		if f.set {
			out = append(out, f.name)
		}
	}
	return out
}

// Title is the name for people: its words, each with a capital.
func (t *Tool) Title() string {
	words := strings.Split(t.Name, "_")
	for i, w := range words {
		if w != "" {
			words[i] = strings.ToUpper(w[:1]) + w[1:]
		}
	}
	return strings.Join(words, " ")
}

// InputSchema is the advertised input in the catalog's profile, canonical JSON.
func (t *Tool) InputSchema() jsontext.Value { t.schemas(); return t.inputJSON }

// OutputSchema is the advertised structured content, canonical JSON, with an $id that follows from its content.
func (t *Tool) OutputSchema() jsontext.Value { t.schemas(); return t.outputJSON }

// schemas renders both schemas once, when somebody first asks: a process that answers no tools/list does not pay.
func (t *Tool) schemas() {
	t.render.Do(func() {
		t.inputJSON = schema.Input(t.Input, t.Examples, t.profile)
		t.outputJSON = schema.Output(t.Output)
	})
}

// in returns a copy of the contract that is advertised in a profile.
func (t *Tool) in(p schema.Profile) *Tool {
	return &Tool{Name: t.Name, Description: t.Description, Surface: t.Surface, Effects: t.Effects, Needs: t.Needs,
		StateOnly: t.StateOnly, Input: t.Input, Output: t.Output, Examples: t.Examples, profile: p}
}

// Validate checks the arguments of a call. Absent arguments and null mean none.
func (t *Tool) Validate(arguments jsontext.Value) error {
	if issues := t.Input.Validate(arguments); len(issues) > 0 {
		return schema.Reject(t.Name, issues...)
	}
	return nil
}

// Catalog is a set of tools: constant, and complete for a server.
type Catalog struct {
	tools  []*Tool
	byName map[string]*Tool

	once    sync.Once
	entries jsontext.Value // what tools_sha256 covers
}

// New makes a catalog of tools, in this order.
func New(tools ...*Tool) *Catalog {
	c := &Catalog{tools: tools, byName: make(map[string]*Tool, len(tools))}
	for _, t := range tools {
		c.byName[t.Name] = t
	}
	return c
}

// Tools lists the contracts in catalog order. The caller does not change them.
func (c *Catalog) Tools() []*Tool { return c.tools }

// Lookup finds a contract.
func (c *Catalog) Lookup(name string) (*Tool, bool) {
	t, ok := c.byName[name]
	return t, ok
}

// Has reports whether the catalog has every one of these tools.
func (c *Catalog) Has(names ...string) bool {
	for _, name := range names {
		if c.byName[name] == nil {
			return false
		}
	}
	return true
}

// Digests identify a catalog: equal digests mean equal contracts.
type Digests struct {
	Tools    string `json:"tools_sha256"`
	Prompts  string `json:"prompts_sha256"`
	Combined string `json:"combined_sha256"`
}

// Digests computes the identity of the catalog together with the prompts that are served with it and the names of the
// command line's commands. It renders every schema: call it when somebody asks, not at start-up.
func (c *Catalog) Digests(commands []string, prompts any) (Digests, error) {
	c.once.Do(func() { c.entries = canonical(c.identity()) })
	served, err := evidence.Canonical(prompts)
	if err != nil {
		return Digests{}, fault.From(err)
	}
	combined, err := evidence.Canonical(map[string]any{
		"cli": slices.Sorted(slices.Values(commands)), "prompts": jsontext.Value(served), "tools": c.entries})
	if err != nil {
		return Digests{}, fault.From(err)
	}
	return Digests{digest(c.entries), digest(served), digest(combined)}, nil
}

func digest(raw []byte) string {
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// canonical encodes what this package made itself; it cannot fail.
func canonical(v any) jsontext.Value {
	raw, err := evidence.Canonical(v)
	if err != nil {
		panic("catalog: " + err.Error())
	}
	return raw
}

// identity is what tools_sha256 covers, sorted by name.
func (c *Catalog) identity() []any {
	sorted := slices.SortedFunc(slices.Values(c.tools), func(a, b *Tool) int { return strings.Compare(a.Name, b.Name) })
	out := []any{}
	for _, t := range sorted {
		out = append(out, map[string]any{
			"name": t.Name, "title": t.Title(), "surface": string(t.Surface), "description": t.Description,
			"effects": t.Effects.List(), "annotations": t.Effects.Annotations().List(),
			"input_schema": t.InputSchema(), "output_schema": t.OutputSchema(),
		})
	}
	return out
}
