package schema

import (
	"errors"
	"strings"
)

// CompactBytes is the most that a compact input schema takes as compact JSON. A provider of models refuses every
// request while one schema exceeds a size a little above it.
const CompactBytes = 13_312

// anyType stands for an unconstrained value: a client that meets none at all is known to assume a string.
var anyType = map[string]any{"type": []string{"null", "boolean", "object", "array", "number", "string"}}

// elided is added to the description of a schema that is shown in reduced form.
const elided = " Nested detail is left out here; the server checks all of it."

var errTooLarge = errors.New("the schema exceeds its budget")

// Reduced reports whether a compact schema shows less than the structure that is enforced.
func Reduced(schema map[string]any) bool {
	d, _ := schema["description"].(string)
	return strings.HasSuffix(d, elided)
}

// compact is a full schema without prose below its root and without references; where that still exceeds the budget,
// the first level of it.
func compact(schema map[string]any) map[string]any {
	c := &compactor{}
	c.defs, _ = schema["$defs"].(map[string]any)
	out, err := c.object(schema)
	if err == nil {
		out["$schema"] = Dialect
		if d, ok := schema["description"]; ok {
			out["description"] = d
		}
		if len(canonical(out)) <= CompactBytes {
			return out
		}
	}
	return c.reduce(schema)
}

// compactor copies a schema and counts what the copy takes, so that it stops before the copy grows large.
type compactor struct {
	defs map[string]any
	size int
}

// dropped are the keywords that are prose, or that inlining makes empty.
var dropped = map[string]bool{"description": true, "examples": true, "default": true, "title": true, "$defs": true, "$schema": true}

func (c *compactor) spend(n int) error {
	if c.size += n; c.size > CompactBytes {
		return errTooLarge
	}
	return nil
}

// schema copies a schema below the root.
func (c *compactor) schema(v any) (any, error) {
	m, ok := v.(map[string]any)
	if !ok {
		return v, c.spend(len(canonical(v)))
	}
	if ref, ok := m["$ref"].(string); ok {
		return c.reference(m, ref)
	}
	out, err := c.object(m)
	if err != nil {
		return nil, err
	}
	if len(out) == 0 {
		return anyType, c.spend(len(canonical(anyType)))
	}
	return out, nil
}

// reference puts the definition in the place of a reference. One with other keywords beside it that constrain becomes
// an allOf.
func (c *compactor) reference(m map[string]any, ref string) (any, error) {
	target, err := c.schema(c.defs[strings.TrimPrefix(ref, "#/$defs/")])
	if err != nil {
		return nil, err
	}
	beside, err := c.object(without(m, "$ref"))
	if err != nil || len(beside) == 0 {
		return target, err
	}
	beside["allOf"] = []any{target}
	return beside, nil
}

func without(m map[string]any, key string) map[string]any {
	out := map[string]any{}
	for k, v := range m {
		if k != key {
			out[k] = v
		}
	}
	return out
}

// object copies the keywords of one schema.
func (c *compactor) object(m map[string]any) (map[string]any, error) {
	out := map[string]any{}
	for key, v := range m {
		if dropped[key] {
			continue
		}
		if err := c.spend(len(key) + len(`"":,`)); err != nil {
			return nil, err
		}
		var err error
		switch key {
		case "properties":
			out[key], err = c.properties(v.(map[string]any))
		case "items", "additionalProperties":
			out[key], err = c.schema(v)
		case "anyOf":
			out[key], err = c.list(v.([]any))
		default:
			out[key], err = v, c.spend(len(canonical(v)))
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (c *compactor) properties(m map[string]any) (map[string]any, error) {
	out := map[string]any{}
	for name, v := range m {
		err := c.spend(len(name) + len(`"":,`))
		if err == nil {
			out[name], err = c.schema(v)
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (c *compactor) list(l []any) ([]any, error) {
	out := make([]any, len(l))
	for i, v := range l {
		var err error
		if out[i], err = c.schema(v); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// reduce shows names, types and descriptions of the first level and the root's own rules.
func (c *compactor) reduce(schema map[string]any) map[string]any {
	out := map[string]any{"$schema": Dialect, "type": ObjectType}
	d, _ := schema["description"].(string)
	out["description"] = d + elided
	properties := map[string]any{}
	all, _ := schema["properties"].(map[string]any)
	for name, v := range all {
		p := v.(map[string]any)
		one := map[string]any{}
		if types := c.types(p); len(types) == 1 {
			one["type"] = types[0]
		} else {
			one["type"] = types
		}
		if d, ok := p["description"]; ok {
			one["description"] = d
		}
		properties[name] = one
	}
	out["properties"] = properties
	for _, key := range []string{"required", "minProperties", "dependentRequired", "additionalProperties"} {
		if v, ok := schema[key]; ok {
			out[key] = v
		}
	}
	return out
}

// types are the types that a schema admits, references and alternatives resolved.
func (c *compactor) types(m map[string]any) []string {
	if ref, ok := m["$ref"].(string); ok {
		target, _ := c.defs[strings.TrimPrefix(ref, "#/$defs/")].(map[string]any)
		return c.types(target)
	}
	if t, ok := m["type"].(string); ok {
		return []string{t}
	}
	alternatives, ok := m["anyOf"].([]any)
	if !ok {
		return anyType["type"].([]string)
	}
	var out []string
	for _, a := range alternatives {
		for _, t := range c.types(a.(map[string]any)) {
			if !contains(out, t) {
				out = append(out, t)
			}
		}
	}
	return out
}
