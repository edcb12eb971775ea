package catalog

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"rea/evidence/fault"
	"rea/orchestrator/schema"
)

// compile gives the advertised schema to a validator that is not ours.
func compile(t *testing.T, schema []byte) *jsonschema.Schema {
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
		t.Fatal(err)
	}
	return s
}

func admits(t *testing.T, s *jsonschema.Schema, value string) bool {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(value))
	if err != nil {
		t.Fatalf("%s: %v", value, err)
	}
	return s.Validate(v) == nil
}

func TestSchemasAreValid(t *testing.T) {
	meta := jsonschema.NewCompiler()
	draft, err := meta.Compile(schema.Dialect)
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range Builtin().Tools() {
		for part, advertised := range map[string]jsontext.Value{"input": tool.InputSchema(), "output": tool.OutputSchema()} {
			var v any
			if err := json.Unmarshal(advertised, &v); err != nil {
				t.Fatal(err)
			}
			if err := draft.Validate(v); err != nil {
				t.Errorf("%s %s: not a schema: %v", tool.Name, part, err)
			}
			compile(t, advertised)
			root := v.(map[string]any)
			if root["type"] != "object" || root["$schema"] != schema.Dialect {
				t.Errorf("%s %s: root type %v, dialect %v", tool.Name, part, root["type"], root["$schema"])
			}
			for _, key := range []string{"anyOf", "oneOf", "allOf", "not"} {
				if _, ok := root[key]; ok && part == "input" {
					t.Errorf("%s: %s at the root of the input, which model interfaces refuse", tool.Name, key)
				}
			}
			if strings.Contains(string(advertised), `"description":""`) {
				t.Errorf("%s %s: empty description", tool.Name, part)
			}
		}
	}
}

// Every property that is advertised to a caller says what it is.
func TestInputPropertiesAreDescribed(t *testing.T) {
	var walk func(path string, v any)
	walk = func(path string, v any) {
		m, ok := v.(map[string]any)
		if !ok {
			return
		}
		if ps, ok := m["properties"].(map[string]any); ok {
			for name, p := range ps {
				if d, _ := p.(map[string]any)["description"].(string); d == "" {
					t.Errorf("%s.%s has no description", path, name)
				}
			}
		}
		for key, child := range m {
			walk(path+"."+key, child)
			if list, ok := child.([]any); ok {
				for _, c := range list {
					walk(path+"."+key, c)
				}
			}
		}
	}
	for _, tool := range Builtin().Tools() {
		var v any
		if err := json.Unmarshal(tool.InputSchema(), &v); err != nil {
			t.Fatal(err)
		}
		walk(tool.Name, v)
	}
}

func TestExamples(t *testing.T) {
	for _, tool := range Builtin().Tools() {
		s := compile(t, tool.InputSchema())
		seen := map[string]bool{}
		for _, e := range tool.Examples {
			if seen[string(e)] {
				t.Errorf("%s: example %s stands twice", tool.Name, e)
			}
			seen[string(e)] = true
			if err := tool.Validate(e); err != nil {
				t.Errorf("%s: example %s: %v", tool.Name, e, err)
			}
			if !admits(t, s, string(e)) {
				t.Errorf("%s: the advertised schema refuses the example %s", tool.Name, e)
			}
		}
	}
}

// What is advertised is what is enforced: a validator of JSON Schema and ours agree on every one of these inputs.
// The schema says less in one place only: an alternative that a tag selects is any alternative for it.
func TestAdvertisedAndEnforcedAgree(t *testing.T) {
	hex := strings.Repeat("a", 64)
	inputs := []string{`{}`, `[]`, `null`, `"x"`, `7`, `true`, `{"path":"/a"}`, `{"path":"a"}`, `{"path":""}`, `{"path":null}`, `{"path":7}`,
		`{"path":"/a","extra":1}`, `{"path":"/a","provider_id":"ghidra"}`, `{"path":"/a","provider_id":"Ghidra"}`, `{"path":"/a\u0000"}`,
		`{"path":"/a","provider_id":"` + strings.Repeat("a", 65) + `"}`, `{"path":"/a","architecture":"arm64"}`, `{"path":"/a","architecture":"z80"}`,
		`{"detail":"summary"}`, `{"detail":"some"}`, `{"detail":"summary","filters":{}}`, `{"detail":"summary","filters":{"operation":""}}`,
		`{"detail":"summary","filters":{"operation":"x","more":1}}`, `{"filters":{"target_sha256":"` + hex + `"}}`, `{"filters":{"target_sha256":"` + hex + `A"}}`,
		`{"expected_catalog_digest":"` + hex + `"}`, `{"expected_catalog_digest":"x"}`, `{"expected_package_version":""}`,
		`{"integrity_policy":"fail"}`, `{"integrity_policy":"FAIL"}`, `{"logical_paths":[]}`, `{"logical_paths":["a"]}`, `{"logical_paths":["a","a"]}`,
		`{"logical_paths":["a",7]}`, `{"logical_paths":"a"}`, `{"occurrence_ids":["occ_` + hex + `"]}`, `{"occurrence_ids":["occ_"]}`,
		`{"left":{"kind":"retained-evidence","evidence_id":"ev_` + hex + `"},"right":{"kind":"retained-evidence","evidence_id":"ev_` + hex + `"}}`,
		`{"left":{"kind":"retained-evidence","evidence_id":"ev_` + hex + `"}}`, `{"left":{"kind":"retained"},"right":{}}`, `{"left":7,"right":[]}`,
		`{"left":` + inline(hex) + `,"right":` + inline(hex) + `}`,
		`{"left":` + strings.Replace(inline(hex), `"observed"`, `"guessed"`, 1) + `,"right":` + inline(hex) + `}`,
		`{"left":` + strings.Replace(inline(hex), `"analysis_profile":null,`, ``, 1) + `,"right":` + inline(hex) + `}`,
		`{"left":` + strings.Replace(inline(hex), `"locations":[]`, `"locations":[{"kind":"file-offset","offset":-1}]`, 1) + `,"right":` + inline(hex) + `}`,
		`{"left":` + strings.Replace(inline(hex), `"locations":[]`, `"locations":[{"kind":"file-offset","offset":7}]`, 1) + `,"right":` + inline(hex) + `}`,
		`{"left":` + strings.Replace(inline(hex), `"locations":[]`, `"locations":[{"kind":"file-offset","offset":1.5}]`, 1) + `,"right":` + inline(hex) + `}`,
		`{"left":` + strings.Replace(inline(hex), `"locations":[]`, `"locations":[{"kind":"moon"}]`, 1) + `,"right":` + inline(hex) + `}`,
	}
	accepted := 0
	for _, tool := range Builtin().Tools() {
		s := compile(t, tool.InputSchema())
		for _, in := range inputs {
			ours := len(tool.Input.Validate(jsontext.Value(in))) == 0
			if ours {
				accepted++
			}
			if theirs := admits(t, s, in); ours != theirs {
				t.Errorf("%s: %s: enforced %v, advertised %v", tool.Name, in, ours, theirs)
			}
		}
	}
	if accepted < 20 {
		t.Errorf("only %d inputs were accepted: the table tests too little", accepted)
	}
}

func inline(hex string) string {
	return `{"evidence_id":"ev_` + hex + `","subject":{"name":"x","digest":{"sha256":"` + hex + `"},"format":"zip","architecture":null,"local_path":""},` +
		`"provider":{"id":"p","name":"P","version":null},"analysis_profile":null,"predicate_type":"rea.analysis","operation":"inspect_artifact","parameters":{"any":{"thing":[1]}},` +
		`"raw_result":null,"normalized_result":{"a":1},"confidence":"observed","authority":"shipped-artifact","environment":null,"limitations":[],"locations":[],"evidence_links":[]}`
}

func TestIssues(t *testing.T) {
	one := int64(1)
	for _, c := range []struct {
		tool, in string
		want     []schema.Issue
	}{
		{OpenBinary, `{}`, []schema.Issue{{Path: []any{"path"}, Reason: schema.MissingArgument, Expected: "string"}}},
		{OpenBinary, `{"path":"rel","extra":1}`, []schema.Issue{
			{Path: []any{"path"}, Reason: schema.InvalidFormat, Expected: "absolute path"},
			{Path: []any{"extra"}, Reason: schema.UnknownArgument, Expected: "one of: path, provider_id, architecture, snapshot_path, format"}}},
		{OpenBinary, `"x"`, []schema.Issue{{Path: []any{}, Reason: schema.InvalidType, Expected: "object"}}},
		{OpenBinary, `{"path":"/a","path":"/b"}`, []schema.Issue{{Path: []any{"path"}, Reason: schema.InvalidValue, Expected: "a member that is not repeated"}}},
		{CloseBinary, `{"overwrite":1}`, []schema.Issue{{Path: []any{"overwrite"}, Reason: schema.InvalidType, Expected: "boolean"}}},
		{ExtractArtifact, `{"logical_paths":[]}`, []schema.Issue{{Path: []any{"logical_paths"}, Reason: schema.OutOfRange, Expected: "more items", Minimum: &one}}},
		{ExtractArtifact, `{"logical_paths":["a",7]}`, []schema.Issue{{Path: []any{"logical_paths", 1}, Reason: schema.InvalidType, Expected: "string"}}},
		{InspectArtifact, `{"detail":"short"}`, []schema.Issue{{Path: []any{"detail"}, Reason: schema.InvalidValue, Expected: "one of: complete, summary"}}},
		{BinarySession, `{"expected_package_version":""}`, []schema.Issue{{Path: []any{"expected_package_version"}, Reason: schema.OutOfRange, Expected: "a longer text", Minimum: &one}}},
		{CompareArtifacts, `{"left":{"kind":"inline"},"right":null}`, []schema.Issue{
			{Path: []any{"left", "kind"}, Reason: schema.InvalidValue, Expected: "one of: retained-evidence"},
			{Path: []any{"right"}, Reason: schema.InvalidType, Expected: "object"}}},
	} {
		tool, ok := Builtin().Lookup(c.tool)
		if !ok {
			t.Fatal(c.tool)
		}
		if diff := cmp.Diff(c.want, tool.Input.Validate(jsontext.Value(c.in))); diff != "" {
			t.Errorf("%s %s (-want +got):\n%s", c.tool, c.in, diff)
		}
		f := fault.From(tool.Validate(jsontext.Value(c.in)))
		if f.Code != fault.InvalidRequest || f.Details["operation"] != c.tool {
			t.Errorf("%s: %v %v", c.tool, f, f.Details)
		}
	}
}

// A hostile input gets a bounded answer.
func TestIssuesAreBounded(t *testing.T) {
	in := `{` + strings.Repeat(`"x":1,`, 100_000) + `"path":"/a"}`
	if n := len(openBinary().Input.Validate(jsontext.Value(in))); n != 32 {
		t.Errorf("%d issues", n)
	}
}

func FuzzValidate(f *testing.F) {
	for _, tool := range Builtin().Tools() {
		for _, e := range tool.Examples {
			f.Add([]byte(e))
		}
	}
	f.Add([]byte(`{"left":` + inline(strings.Repeat("0", 64)) + `}`))
	tools := Builtin().Tools()
	f.Fuzz(func(t *testing.T, raw []byte) {
		if !jsontext.Value(raw).IsValid() {
			return
		}
		for _, tool := range tools {
			if n := len(tool.Input.Validate(jsontext.Value(raw))); n > 32 {
				t.Errorf("%d issues", n)
			}
		}
	})
}

// The effects table of the contract (5.4), row by row.
func TestEffects(t *testing.T) {
	want := map[string]struct{ effects, annotations string }{
		OpenBinary:              {"mutatesSession launchesProcess idempotent", "idempotent open_world"},
		CloseBinary:             {"mutatesSession writesFilesystem mayDiscardData", "destructive"},
		BinarySession:           {"idempotent", "read_only idempotent"},
		GetEvidenceBundle:       {"idempotent", "read_only idempotent"},
		ExportEvidenceBundle:    {"writesFilesystem mayDiscardData idempotent", "destructive idempotent"},
		ImportEvidenceBundle:    {"mutatesSession idempotent", "idempotent"},
		CompareBundles:          {"mutatesSession idempotent", "idempotent"},
		RecordUnknown:           {"mutatesSession", ""},
		UpdateUnknown:           {"mutatesSession", ""},
		ListUnknowns:            {"idempotent", "read_only idempotent"},
		VerifyUnknownResolution: {"idempotent", "read_only idempotent"},
		InspectArtifact:         {"mutatesSession writesFilesystem launchesProcess idempotent", "idempotent open_world"},
		ExtractArtifact:         {"mutatesSession writesFilesystem launchesProcess", "open_world"},
		CompareArtifacts:        {"mutatesSession idempotent", "idempotent"},
		InspectAnalysisView:     {"mutatesSession idempotent", "idempotent"},
		GuidedWorkflows:         {"idempotent", "read_only idempotent"},
		SearchGuidance:          {"idempotent", "read_only idempotent"},
		ReadGuidanceSection:     {"idempotent", "read_only idempotent"},
	}
	for _, tool := range Builtin().Tools() {
		w, ok := want[tool.Name]
		if !ok {
			t.Errorf("%s is not in the table", tool.Name)
			continue
		}
		if got := strings.Join(tool.Effects.List(), " "); got != w.effects {
			t.Errorf("%s: effects %q, want %q", tool.Name, got, w.effects)
		}
		if got := strings.Join(tool.Effects.Annotations().List(), " "); got != w.annotations {
			t.Errorf("%s: annotations %q, want %q", tool.Name, got, w.annotations)
		}
		if exempt := tool.Name == ExportEvidenceBundle || tool.Name == RecordUnknown; tool.StateOnly != exempt {
			t.Errorf("%s: exempt from the marker %v; the contract exempts exactly export_evidence_bundle and record_unknown", tool.Name, tool.StateOnly)
		}
	}
	if got := openBinary().Title(); got != "Open Binary" {
		t.Errorf("title %q", got)
	}
}

func TestDigests(t *testing.T) {
	c := Builtin()
	a, err := c.Digests([]string{"b", "a"}, []any{})
	if err != nil {
		t.Fatal(err)
	}
	b, _ := Builtin().Digests([]string{"a", "b"}, []any{})
	if a != b {
		t.Errorf("the digest depends on order: %v, %v", a, b)
	}
	if a.Prompts != "4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945" { // of [], runtime contract 1.2
		t.Errorf("prompts %s", a.Prompts)
	}
	tools := Builtin().Tools()
	tools[0].Description += "."
	changed, _ := New(tools...).Digests([]string{"a", "b"}, []any{})
	if changed.Tools == a.Tools || changed.Combined == a.Combined {
		t.Error("a changed description does not change the digest")
	}
	prompted, _ := Builtin().Digests([]string{"a", "b"}, []any{"p"})
	if prompted.Tools != a.Tools || prompted.Prompts == a.Prompts || prompted.Combined == a.Combined {
		t.Error("a prompt does not change exactly the digests that cover it")
	}
	if compact, _ := Builtin().Scoped(Scope{Profile: schema.Compact}).Digests([]string{"a", "b"}, []any{}); compact.Tools == a.Tools {
		t.Error("the profile does not change the digest")
	}
}

func BenchmarkListing(b *testing.B) {
	for b.Loop() {
		for _, tool := range Builtin().Tools() {
			_ = tool.OutputSchema()
		}
	}
}
