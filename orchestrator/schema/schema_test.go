package schema

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// The contract (6.4) publishes the id of one schema.
func TestOutputID(t *testing.T) {
	const want = "urn:rea:tool-output:sha256:859cbfd20ebb1d1b25748a950c483a2c7bdebd9cb51b112877bc7ac7efb79008"
	if got := OutputID(map[string]any{"type": "object"}); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

// A schema whose references a client would have to expand more than maxReferences times is advertised inline.
func TestReferenceBudget(t *testing.T) {
	def := Shared("leaf", Text("A leaf."))
	build := func(n int) map[string]any {
		s := Object("Many.")
		for i := range n {
			s.Properties = append(s.Properties, Need(strings.Repeat("p", i+1), def))
		}
		return render(s)
	}
	if _, ok := build(maxReferences)["$defs"]; !ok {
		t.Error("shared shapes within the budget are not shared")
	}
	if _, ok := build(maxReferences + 1)["$defs"]; ok {
		t.Error("the budget does not hold")
	}
}

func decoded(t *testing.T, raw []byte) map[string]any {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// admits asks a validator that is not ours.
func admits(t *testing.T, schema []byte, value string) bool {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("mem:schema", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("mem:schema")
	if err != nil {
		t.Fatalf("%v in %s", err, schema)
	}
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(value))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(v) == nil
}

// captures is the union of the contract's example (13.7): either two inspections or two scenarios.
func captures() *Shape {
	return Either("Two captures.",
		Object("Passive.", Need("before", OpenObject("Old.")), Need("after", OpenObject("New."))),
		Object("Scenario.", Need("before_scenario", OpenObject("Old.")), Need("after_scenario", OpenObject("New.")), May("normalization", OpenObject("Rules."))))
}

// The rules of the contract (6.2), applied by hand to that union.
func TestRootUnion(t *testing.T) {
	raw := Input(captures(), nil, Full)
	got := decoded(t, raw)
	want := map[string]any{
		"type": "object", "additionalProperties": false, "minProperties": 2.0,
		"dependentRequired": map[string]any{"before": []any{"after"}, "after": []any{"before"},
			"before_scenario": []any{"after_scenario"}, "after_scenario": []any{"before_scenario"}, "normalization": []any{"before_scenario", "after_scenario"}},
	}
	for key, w := range want {
		if diff := cmp.Diff(w, got[key]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", key, diff)
		}
	}
	if d := got["description"].(string); !strings.Contains(d, "before + after; before_scenario + after_scenario + [normalization]") {
		t.Errorf("description %q", d)
	}
	for _, key := range []string{"anyOf", "oneOf", "allOf", "not", "required"} {
		if _, ok := got[key]; ok {
			t.Errorf("%s stands at the root", key)
		}
	}
	for _, c := range []struct {
		in              string
		shown, enforced bool
	}{
		{`{"before":{},"after":{}}`, true, true},
		{`{"before_scenario":{},"after_scenario":{},"normalization":{}}`, true, true},
		{`{"before":{}}`, false, false},
		{`{}`, false, false},
		{`{"before":{},"after":{},"before_scenario":{},"after_scenario":{}}`, true, false}, // a mixture: the projection cannot say it
		{`{"before":{},"after":{},"x":1}`, false, false},
	} {
		if shown, enforced := admits(t, raw, c.in), len(captures().Validate(jsontext.Value(c.in))) == 0; shown != c.shown || enforced != c.enforced {
			t.Errorf("%s: advertised %v, enforced %v", c.in, shown, enforced)
		}
	}
}

func TestMergedMembers(t *testing.T) {
	s := Tagged("Act.", "action",
		Object("List.", Need("action", Constant("What.", "list")), May("note", Text("Note."))),
		Object("Render.", Need("action", Constant("What.", "render")), Need("id", Name("Id.")), May("note", Count("Number."))))
	got := decoded(t, Input(s, nil, Full))
	properties := got["properties"].(map[string]any)
	if diff := cmp.Diff([]any{"list", "render"}, properties["action"].(map[string]any)["enum"]); diff != "" {
		t.Errorf("constants (-want +got):\n%s", diff)
	}
	if n := len(properties["note"].(map[string]any)["anyOf"].([]any)); n != 2 {
		t.Errorf("%d alternatives of note", n)
	}
	if diff := cmp.Diff([]any{"action"}, got["required"]); diff != "" {
		t.Errorf("required (-want +got):\n%s", diff)
	}
	if _, ok := got["dependentRequired"]; ok {
		t.Errorf("dependentRequired %v: id needs nothing but the shared action", got["dependentRequired"])
	}
}

// No input has a list of types; null stays exact.
func TestNullIsAnAlternative(t *testing.T) {
	s := Object("One.", Need("a", OrNull(OneOf("Letter.", "x", "y"))), Need("b", OrNull(Object("Inner.", May("c", Text("C."))))))
	raw := Input(s, nil, Full)
	if bytes.Contains(raw, []byte(`"type":[`)) {
		t.Errorf("a list of types in %s", raw)
	}
	for in, want := range map[string]bool{`{"a":null,"b":null}`: true, `{"a":"x","b":{}}`: true, `{"a":"z","b":null}`: false, `{"a":1,"b":null}`: false, `{"a":"x","b":[]}`: false} {
		if shown, enforced := admits(t, raw, in), len(s.Validate(jsontext.Value(in))) == 0; shown != want || enforced != want {
			t.Errorf("%s: advertised %v, enforced %v", in, shown, enforced)
		}
	}
}

func TestExamplesHoldNoEvidence(t *testing.T) {
	record := `{"evidence_id":"ev_` + strings.Repeat("0", 64) + `","normalized_result":{},"operation":"x"}`
	s := Object("In.", Need("source", Tagged("Source.", "kind", EvidenceReference(),
		Object("Record.", Need("evidence_id", Formatted(EvidenceID, "Id.")), Need("normalized_result", AnyValue("Any.")), Need("operation", Name("Op."))))))
	inlineOnly := Object("In.", Need("source", Object("Record.", Need("evidence_id", Formatted(EvidenceID, "Id.")), Need("normalized_result", AnyValue("Any.")), Need("operation", Name("Op.")))))
	inline := jsontext.Value(`{"source":` + record + `}`)
	reference := `{"source":{"evidence_id":"ev_` + strings.Repeat("0", 64) + `","kind":"retained-evidence"}}`
	if got := advertised(s, []jsontext.Value{inline, jsontext.Value(reference), inline}); len(got) != 1 || string(got[0]) != reference {
		t.Errorf("got %s, want the reference once", got)
	}
	if got := advertised(inlineOnly, []jsontext.Value{inline}); len(got) != 0 {
		t.Errorf("a complete record is advertised: %s", got)
	}
}

func TestCompact(t *testing.T) {
	leaf := Shared("leaf", Object("Leaf.", Need("description", Text("A member that is called like a keyword.")), May("any", AnyValue("Anything."))))
	s := Object("Root.", Need("left", leaf), May("right", WithDefault("x", leaf)))
	raw := Input(s, []jsontext.Value{jsontext.Value(`{"left":{"description":"d"}}`)}, Compact)
	leafWant := `{"additionalProperties":false,"properties":{"any":{"type":["null","boolean","object","array","number","string"]},"description":{"type":"string"}},"required":["description"],"type":"object"}`
	want := `{"$schema":"` + Dialect + `","additionalProperties":false,"description":"Root.","properties":{"left":` + leafWant + `,"right":` + leafWant + `},"required":["left"],"type":"object"}`
	if diff := cmp.Diff(decoded(t, []byte(want)), decoded(t, raw)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if Reduced(decoded(t, raw)) {
		t.Error("a schema that fits is reduced")
	}
}

// A schema whose structure alone exceeds the budget is shown in its first level, and still admits what is valid.
func TestCompactReduces(t *testing.T) {
	inner := Object("Inner.")
	for i := range 400 {
		inner.Properties = append(inner.Properties, May("member_with_a_long_name_"+strings.Repeat("x", i%7)+string(rune('a'+i%26))+strings.Repeat("y", i/26), Count("Number.")))
	}
	big := Shared("big", inner)
	s := Object("Root.", Need("left", big), May("mode", OrNull(OneOf("Mode.", "a", "b"))))
	raw := Input(s, nil, Compact)
	got := decoded(t, raw)
	if len(raw) > CompactBytes || !Reduced(got) {
		t.Fatalf("%d bytes, reduced %v", len(raw), Reduced(got))
	}
	properties := got["properties"].(map[string]any)
	want := map[string]any{"left": map[string]any{"type": "object", "description": "Inner."}, "mode": map[string]any{"type": []any{"string", "null"}, "description": "Mode."}}
	if diff := cmp.Diff(want, properties); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !admits(t, raw, `{"left":{},"mode":null}`) || admits(t, raw, `{"mode":"a"}`) || admits(t, raw, `{"left":{},"x":1}`) {
		t.Error("the reduced schema admits what the root forbids, or refuses what is valid")
	}
}

// Untagged alternatives report the nearest one.
func TestNearestAlternative(t *testing.T) {
	issues := captures().Validate(jsontext.Value(`{"before":{},"after":{},"x":1}`))
	if len(issues) != 1 || !slices.Equal(issues[0].Path, []any{"x"}) || issues[0].Reason != UnknownArgument {
		t.Errorf("got %+v", issues)
	}
	issues = Map("Texts.", Text("Value.")).Validate(jsontext.Value(`{"a":"x","b":7,"a":"y"}`))
	want := []Issue{{Path: []any{"b"}, Reason: InvalidType, Expected: "string"}, {Path: []any{"a"}, Reason: InvalidValue, Expected: "a member that is not repeated"}}
	if diff := cmp.Diff(want, issues); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
