package catalog

import (
	"fmt"
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
	set := func(key string, value any, use bool) {
		if use {
			m[key] = value
		}
	}
	set("description", s.Description, s.Description != "")
	if s.Union != nil {
		var alternatives []any
		for _, a := range s.Union.Shapes {
			alternatives = append(alternatives, r.schema(a))
		}
		m["anyOf"] = alternatives
		return m
	}
	if len(s.Types) == 1 {
		m["type"] = s.Types[0]
	} else {
		set("type", s.Types, len(s.Types) > 1)
	}
	set("const", s.Const, s.Const != "")
	set("enum", s.values(), len(s.Enum) > 0)
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
	set("default", s.Default, s.Default != nil)
	if s.Items != nil {
		m["items"] = r.schema(s.Items)
	}
	if s.admits(Object) && (len(s.Properties) > 0 || !s.Open) {
		r.properties(s, m)
	}
	return m
}

// values is the enumeration as advertised: with null where null is a type of the shape, since a type does not widen
// an enumeration.
func (s *Shape) values() []any {
	var out []any
	for _, v := range s.Enum {
		out = append(out, v)
	}
	if s.admits(Null) {
		out = append(out, nil)
	}
	return out
}

func (r *renderer) properties(s *Shape, m map[string]any) {
	properties := map[string]any{}
	required := []string{}
	for _, p := range s.Properties {
		if _, twice := properties[p.Name]; twice {
			panic(fmt.Sprintf("catalog: property %s stands twice", p.Name)) // a mistake in tools.go; every test meets it
		}
		properties[p.Name] = r.schema(p.Shape)
		if !p.Optional {
			required = append(required, p.Name)
		}
	}
	m["properties"] = properties
	if !s.Open {
		m["additionalProperties"] = false
	}
	if len(required) > 0 {
		m["required"] = required
	}
}

func (s *Shape) admits(t string) bool {
	for _, have := range s.Types {
		if have == t {
			return true
		}
	}
	return false
}
