package schema

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"rea/evidence"
)

const (
	// Dialect is the JSON Schema dialect of everything that is advertised.
	Dialect = "https://json-schema.org/draft/2020-12/schema"
	// maxReferences is the largest number of reference expansions in one input schema. A client is known that renders
	// later references as an unknown type; beyond it the schema is advertised with everything inline.
	maxReferences = 32
	outputURN     = "urn:rea:tool-output:sha256:"
	outputTarget  = "draft-2020-12"
)

// Profile is how input schemas are advertised. What is enforced does not depend on it.
type Profile string

// The profiles.
const (
	Full    Profile = "full"    // everything, with descriptions and examples
	Compact Profile = "compact" // at most CompactBytes for each tool
)

// Input is the advertised schema of a tool's input, canonical JSON. A union at the root is shown as one object that
// admits every group of members, and says which groups there are. Examples are inputs; an example with a complete
// Evidence record in it is shown with the record's reference, or, where the shape takes no reference, not at all.
func Input(s *Shape, examples []jsontext.Value, profile Profile) jsontext.Value {
	schema := render(project(s))
	if profile == Compact {
		return canonical(compact(schema))
	}
	if shown := advertised(s, examples); len(shown) > 0 {
		schema["examples"] = shown
	}
	return canonical(schema)
}

// Output is the advertised schema of successful structured content, canonical JSON, with an $id that follows from its
// content, so that equal schemas have equal ids.
func Output(s *Shape) jsontext.Value {
	schema := render(s)
	schema["$id"] = OutputID(schema)
	return canonical(schema)
}

// OutputID is the $id of a self-contained output schema.
func OutputID(schema map[string]any) string {
	sum := sha256.Sum256(canonical(map[string]any{"schema": schema, "target": outputTarget}))
	return outputURN + hex.EncodeToString(sum[:])
}

// canonical encodes what this program made itself; it cannot fail.
func canonical(v any) jsontext.Value {
	raw, err := evidence.Canonical(v)
	if err != nil {
		panic("schema: " + err.Error())
	}
	return raw
}

// renderer turns a Shape into a JSON Schema.
type renderer struct {
	inline     bool           // no $defs
	defs       map[string]any // rendered shared shapes
	references int            // expansions that a client makes: nested ones count again for each
	nested     map[string]int // expansions inside a shared shape
}

// render gives the schema of a root object.
func render(s *Shape) map[string]any {
	r := &renderer{defs: map[string]any{}, nested: map[string]int{}}
	schema := r.body(s)
	if r.references > maxReferences {
		r = &renderer{inline: true}
		schema = r.body(s)
	}
	if len(r.defs) > 0 {
		schema["$defs"] = r.defs
	}
	schema["$schema"] = Dialect
	return schema
}

// schema renders s, as a reference where it is shared.
func (r *renderer) schema(s *Shape) map[string]any {
	if s.Def == "" || r.inline {
		return r.body(s)
	}
	if _, ok := r.defs[s.Def]; !ok {
		before := r.references
		r.defs[s.Def] = r.body(s)
		r.nested[s.Def], r.references = r.references-before, before
	}
	r.references += 1 + r.nested[s.Def]
	return map[string]any{"$ref": "#/$defs/" + s.Def, "description": s.Description}
}

func (r *renderer) body(s *Shape) map[string]any {
	m := map[string]any{}
	if s.Description != "" {
		m["description"] = s.Description
	}
	if s.Default != nil {
		m["default"] = s.Default
	}
	switch {
	case s.Union != nil:
		m["anyOf"] = r.alternatives(s.Union.Shapes)
	case len(s.Types) > 1:
		m["anyOf"] = r.alternatives(s.perType())
	default:
		r.single(s, m)
	}
	return m
}

func (r *renderer) alternatives(shapes []*Shape) []any {
	var out []any
	for _, a := range shapes {
		out = append(out, r.schema(a))
	}
	return out
}

// perType splits a shape of several types: some interfaces of models refuse a list of types.
func (s *Shape) perType() []*Shape {
	var out []*Shape
	for _, t := range s.Types {
		one := &Shape{Types: []string{t}}
		if t != NullType {
			c := *s
			c.Types, c.Description, c.Default, c.Def = one.Types, "", nil, ""
			one = &c
		}
		out = append(out, one)
	}
	return out
}

// single adds what a shape of at most one type says.
func (r *renderer) single(s *Shape, m map[string]any) {
	set := func(key string, value any, use bool) {
		if use {
			m[key] = value
		}
	}
	if len(s.Types) == 1 {
		m["type"] = s.Types[0]
	}
	set("const", s.Const, s.Const != "")
	set("enum", s.Enum, len(s.Enum) > 0)
	if s.Format != nil {
		m["pattern"] = s.Format.Expr
	}
	set("minLength", s.MinLength, s.MinLength > 0)
	set("maxLength", s.MaxLength, s.MaxLength > 0)
	if s.Min != nil {
		m["minimum"] = *s.Min
	}
	if s.Max != nil {
		m["maximum"] = *s.Max
	}
	set("minItems", s.MinItems, s.MinItems > 0)
	set("uniqueItems", true, s.Unique)
	if s.Items != nil {
		m["items"] = r.schema(s.Items)
	}
	if s.admits(ObjectType) && (len(s.Properties) > 0 || !s.Open || s.Values != nil || s.group != nil) {
		r.properties(s, m)
	}
}

func (r *renderer) properties(s *Shape, m map[string]any) {
	properties := map[string]any{}
	required := []string{}
	for _, p := range s.Properties {
		if _, twice := properties[p.Name]; twice {
			panic(fmt.Sprintf("schema: property %s stands twice", p.Name)) // a mistake in a contract; every test meets it
		}
		properties[p.Name] = r.schema(p.Shape)
		if !p.Optional {
			required = append(required, p.Name)
		}
	}
	m["properties"] = properties
	switch {
	case !s.Open:
		m["additionalProperties"] = false
	case s.Values != nil:
		m["additionalProperties"] = r.schema(s.Values)
	}
	if len(required) > 0 {
		m["required"] = required
	}
	if s.group != nil {
		s.group.add(m)
	}
}

func (s *Shape) admits(t string) bool { return slices.Contains(s.Types, t) }

// advertised are the examples as they are shown, each once.
func advertised(s *Shape, examples []jsontext.Value) []jsontext.Value {
	var out []jsontext.Value
	seen := map[string]bool{}
	for _, e := range examples {
		shown, err := withoutEvidence(e)
		if err != nil || seen[string(shown)] || len(s.Validate(shown)) > 0 {
			continue
		}
		seen[string(shown)] = true
		out = append(out, shown)
	}
	return out
}

// withoutEvidence puts the reference of a record in the place of each complete record.
func withoutEvidence(example jsontext.Value) (jsontext.Value, error) {
	var v any
	if err := json.Unmarshal(example, &v); err != nil {
		return nil, err
	}
	return canonical(referring(v)), nil
}

func referring(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = referring(v[i])
		}
	case map[string]any:
		_, operation := v["normalized_result"]
		if id, ok := v["evidence_id"].(string); ok && operation {
			return map[string]any{"kind": "retained-evidence", "evidence_id": id}
		}
		for key := range v {
			v[key] = referring(v[key])
		}
	}
	return v
}

// group is what the projection of a root union adds to one object.
type group struct {
	dependent map[string][]string
	least     int
}

func (g *group) add(m map[string]any) {
	if len(g.dependent) > 0 {
		m["dependentRequired"] = g.dependent
	}
	if g.least > 0 {
		m["minProperties"] = g.least
	}
}

// project shows a union at the root as one object: interfaces of models refuse a root anyOf. It admits mixtures of the
// groups that the union refuses; what is enforced is the union.
func project(s *Shape) *Shape {
	if s.Union == nil {
		return s
	}
	branches := flatten(s)
	out := &Shape{Types: []string{ObjectType}, Description: s.Description + " Accepted groups of members: " + groups(branches) + ".", Def: s.Def,
		group: &group{dependent: map[string][]string{}, least: len(branches[0].required())}}
	shared := branches[0].required()
	for _, b := range branches {
		required := b.required()
		out.Open = out.Open || b.Open
		out.group.least = min(out.group.least, len(required))
		shared = slices.DeleteFunc(shared, func(name string) bool { return !slices.Contains(required, name) })
	}
	for _, name := range memberNames(branches) {
		out.Properties = append(out.Properties, Property{Name: name, Shape: merge(name, branches), Optional: !slices.Contains(shared, name)})
		if others := dependents(name, branches, shared); len(others) > 0 {
			out.group.dependent[name] = others
		}
	}
	return out
}

// flatten lists the objects of a union and of the unions in it.
func flatten(s *Shape) []*Shape {
	if s.Union == nil {
		return []*Shape{s}
	}
	var out []*Shape
	for _, a := range s.Union.Shapes {
		out = append(out, flatten(a)...)
	}
	return out
}

func (s *Shape) required() []string {
	var out []string
	for _, p := range s.Properties {
		if !p.Optional {
			out = append(out, p.Name)
		}
	}
	return out
}

func memberNames(branches []*Shape) []string {
	var out []string
	for _, b := range branches {
		for _, p := range b.Properties {
			if !slices.Contains(out, p.Name) {
				out = append(out, p.Name)
			}
		}
	}
	return out
}

// merge is what the member is in any branch: constants and enumerations become one enumeration, other differences
// alternatives.
func merge(name string, branches []*Shape) *Shape {
	var distinct []*Shape
	var values []string
	for _, b := range branches {
		p := b.property(name)
		if p == nil {
			continue
		}
		if p.Shape.Const != "" {
			values = append(values, p.Shape.Const)
		}
		values = append(values, p.Shape.Enum...)
		same := func(have *Shape) bool { return string(canonical(render(have))) == string(canonical(render(p.Shape))) }
		if !slices.ContainsFunc(distinct, same) {
			distinct = append(distinct, p.Shape)
		}
	}
	closed := func(s *Shape) bool { return s.Const != "" || len(s.Enum) > 0 }
	switch {
	case len(distinct) == 1:
		return distinct[0]
	case !slices.ContainsFunc(distinct, func(s *Shape) bool { return !closed(s) }):
		slices.Sort(values)
		return OneOf(distinct[0].Description, slices.Compact(values)...)
	}
	return Either(distinct[0].Description, distinct...)
}

// dependents are the members that every branch with this one requires besides the shared ones. A member that every
// branch has depends on nothing.
func dependents(name string, branches []*Shape, shared []string) []string {
	var out []string
	with := 0
	for _, b := range branches {
		if b.property(name) == nil {
			continue
		}
		required := b.required()
		if with++; with == 1 {
			out = slices.Clone(required)
		}
		out = slices.DeleteFunc(out, func(other string) bool { return !slices.Contains(required, other) })
	}
	if with == len(branches) {
		return nil
	}
	return slices.DeleteFunc(out, func(other string) bool { return other == name || slices.Contains(shared, other) })
}

// groups lists what the branches take: required members joined by +, optional ones in brackets.
func groups(branches []*Shape) string {
	var out []string
	for _, b := range branches {
		var parts []string
		for _, p := range b.Properties {
			switch {
			case p.Optional:
				parts = append(parts, "["+p.Name+"]")
			case p.Shape.Const != "":
				parts = append(parts, p.Name+"="+p.Shape.Const)
			default:
				parts = append(parts, p.Name)
			}
		}
		out = append(out, strings.Join(parts, " + "))
	}
	return strings.Join(out, "; ")
}
