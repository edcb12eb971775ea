package artifact

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"rea/evidence"
	"rea/evidence/fault"
)

// inspected makes inspection Evidence of a result.
func inspected(t testing.TB, raw []byte) (inspection, inventory *evidence.Record) {
	t.Helper()
	inv, err := CheckInventory(t.Context(), bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	inventory = inventoryRecord(t, raw)
	inspection, err = Inspect(t.Context(), inventory, inv)
	if err != nil {
		t.Fatal(err)
	}
	return inspection, inventory
}

// decoded gives a record's result as decoded JSON, after package evidence has parsed the record as an import would.
func decoded(t testing.TB, rec *evidence.Record) map[string]any {
	t.Helper()
	var out bytes.Buffer
	if _, err := rec.WriteTo(&out); err != nil {
		t.Fatal(err)
	}
	parsed, err := evidence.Parse(out.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if parsed.ID != rec.ID {
		t.Fatalf("%s became %s", rec.ID, parsed.ID)
	}
	raw, err := parsed.NormalizedResult.Bytes(1 << 30)
	if err != nil {
		t.Fatal(err)
	}
	return meaning(t, raw).(map[string]any)
}

// identityOf computes prefix{everything else in o}.
func identityOf(t testing.TB, prefix, key string, o map[string]any, only ...string) string {
	t.Helper()
	rest := map[string]any{}
	for k, v := range o {
		if k != key && (only == nil || slices.Contains(only, k)) {
			rest[k] = v
		}
	}
	d, err := evidence.Digest(rest)
	if err != nil {
		t.Fatal(err)
	}
	return prefix + d
}

// TestInspect reads an inspection back and recomputes every identity from the contract's definitions.
func TestInspect(t *testing.T) {
	raw := finish(t, smallGraph(t))
	inspection, inventory := inspected(t, raw)
	v := decoded(t, inspection)
	if got, want := v["inspection_id"], identityOf(t, "ai_", "inspection_id", v); got != want {
		t.Errorf("%v, want %s", got, want)
	}
	sub := v["substeps"].([]any)[0].(map[string]any)
	if got, want := sub["substep_id"], identityOf(t, "ais_", "", sub, "operation", "evidence_id"); got != want {
		t.Errorf("%v, want %s", got, want)
	}
	if diff := cmp.Diff(decoded(t, inventory), sub["evidence"].(map[string]any)["normalized_result"]); diff != "" || sub["evidence_id"] != inventory.ID {
		t.Error(diff)
	}
	for list, id := range map[string][2]string{
		"observations": {"aio_", "observation_id"}, "contradictions": {"aic_", "contradiction_id"},
	} {
		for i, e := range v[list].([]any) {
			o := e.(map[string]any)
			if got, want := o[id[1]], identityOf(t, id[0], id[1], o); got != want {
				t.Errorf("%s[%d]: %v, want %s", list, i, got, want)
			}
		}
	}
	observations := v["observations"].([]any)
	if len(observations) != 2 || len(v["contradictions"].([]any)) != 1 || observations[1].(map[string]any)["kind"] != "integrity" {
		t.Errorf("%v", observations)
	}
	manifest := v["substeps"].([]any)[0].(map[string]any)["evidence"].(map[string]any)["normalized_result"].(map[string]any)["manifest"]
	if diff := cmp.Diff(manifest, observations[0].(map[string]any)["value"]); diff != "" {
		t.Error(diff)
	}
	want := map[string]any{
		"status": "complete-within-substeps", "substeps_completed": 1.0, "observations_retained": 2.0, "observations_omitted": 0.0,
		"hypotheses_retained": 0.0, "hypotheses_omitted": 0.0, "unexplored_branches_retained": 0.0, "unexplored_branches_omitted": 0.0,
		"next_probes_retained": 0.0, "next_probes_omitted": 0.0,
	}
	if diff := cmp.Diff(want, v["coverage"]); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]any{"said of the whole", limitReport}, v["limitations"]); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{inventory.ID}, inspection.Links); diff != "" {
		t.Error(diff)
	}
}

// TestInspectProbes reads the contract's table of follow-ups.
func TestInspectProbes(t *testing.T) {
	for _, tt := range []struct {
		format     Format
		media      string
		probes     []string
		hypotheses int
		branches   int
	}{
		{FormatASAR, "", []string{"analyze_javascript_application"}, 1, 1},
		{FormatJavaScriptBundle, "", []string{"analyze_javascript_application"}, 1, 1},
		{FormatPE, "", []string{"inspect_managed_artifact", "open_binary", "inspect_binary_layout"}, 1, 3},
		{FormatELF, "", []string{"open_binary", "inspect_binary_layout"}, 0, 2},
		{FormatMachOUniversal, "", []string{"open_binary"}, 0, 1},
		{FormatPlist, "", []string{"inspect_plist"}, 0, 1},
		{FormatFile, "application/wasm", []string{"inspect_wasm_artifact"}, 0, 1},
		{FormatUnknown, "", []string{}, 0, 1},
		{FormatZip, "", []string{}, 0, 0},
	} {
		b := NewBuilder(Root{Format: tt.format, MediaType: tt.media})
		b.SetContent(0, *content("bytes"))
		b.Incomplete()
		inspection, _ := inspected(t, finish(t, b))
		v := decoded(t, inspection)
		names := []string{}
		for _, p := range v["next_probes"].([]any) {
			names = append(names, p.(map[string]any)["operation"].(string))
		}
		if diff := cmp.Diff(tt.probes, names); diff != "" {
			t.Errorf("%s: %s", tt.format, diff)
		}
		if n := len(v["hypotheses"].([]any)); n != tt.hypotheses {
			t.Errorf("%s: %d hypotheses", tt.format, n)
		}
		if n := len(v["unexplored_branches"].([]any)); n != tt.branches {
			t.Errorf("%s: %d branches", tt.format, n)
		}
		if got := v["coverage"].(map[string]any)["status"]; got != "partial" {
			t.Errorf("%s: coverage %v", tt.format, got)
		}
	}
}

// TestInspectManyContradictions repeats no more of them than it may, and says so.
func TestInspectManyContradictions(t *testing.T) {
	b := archive(t, "root")
	for i := range MaxKept + 3 {
		mustAdd(t, b, with(file(fmt.Sprint("m", i), "bytes"), func(e *Entry) { e.Declared = &Declared{} }))
	}
	inspection, _ := inspected(t, finish(t, b))
	c := decoded(t, inspection)["coverage"].(map[string]any)
	if c["status"] != "truncated" || c["observations_omitted"] != 3.0 || c["observations_retained"] != float64(MaxKept+1) {
		t.Errorf("%v", c)
	}
}

// TestCompareInspections: an inspection compares as its inventory does, with its own id as source.
func TestCompareInspections(t *testing.T) {
	left, leftInventory := inspected(t, canonical(t, vectorInventory))
	right, rightInventory := inspected(t, finish(t, archive(t, "another container", file("docs/a.txt", "2"))))
	a, b := compared(t, left, right), compared(t, leftInventory, rightInventory)
	if diff := cmp.Diff(b.rows(), a.rows()); diff != "" || a.Status != b.Status {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{left.ID, right.ID}, a.Changes[0].EvidenceLinks); diff != "" {
		t.Error(diff)
	}
	// A substep that was exchanged is not that inspection's.
	raw, err := left.NormalizedResult.Bytes(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	for name, replace := range map[string][2]string{
		"another id beside it": {`,"evidence_id":"` + leftInventory.ID + `","operation":"inventory_artifact","status"`, `,"evidence_id":"` + rightInventory.ID + `","operation":"inventory_artifact","status"`},
		"a changed inventory":  {`"declared_size":6`, `"declared_size":7`},
		"no substep":           {`"substeps":[`, `"substeps":[],"t":[`},
	} {
		changed := bytes.Replace(raw, []byte(replace[0]), []byte(replace[1]), 1)
		if bytes.Equal(changed, raw) {
			t.Fatal(name, "replaced nothing")
		}
		bad := *left
		bad.ID, bad.NormalizedResult = "", evidence.CanonicalPayload(canonical(t, string(changed)))
		if err := bad.Seal(); err != nil {
			t.Fatal(err)
		}
		_, err := Compare(t.Context(), &bad, right, evidence.Memory{})
		if !isCode(err, fault.EvidenceIntegrityMismatch) && !isCode(err, fault.InvalidRequest) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRows prints a comparison of everything that a report shows.
func TestRows(t *testing.T) {
	left := inventoryRecord(t, finish(t, archive(t, "root",
		file("changed", "1"), file("gone", "22"), file("old/place", "moved bytes"), file("same", "4"),
		Entry{Path: "unread", EntryKind: EntryFile, Encrypted: true})))
	right := inventoryRecord(t, finish(t, archive(t, "root 2",
		file("changed", "123"), file("came", "55555"), file("new/place", "moved bytes"), file("same", "4"),
		Entry{Path: "unread", EntryKind: EntryFile, Encrypted: true})))
	rec, err := Compare(t.Context(), left, right, evidence.Memory{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	if err := Rows(t.Context(), rec, left, right, func(r Row) bool {
		got = append(got, fmt.Sprintf("%s %s<%s %d>%d", r.Classification, r.Path, r.From, r.Left.Size, r.Right.Size))
		return true
	}); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"changed .< 4>6", "added came< -1>5", "changed changed< 1>3", "removed gone< 2>-1", "added new< -1>0", "removed old< 0>-1",
		"moved new/place<old/place 11>11", "unknown unread< -1>-1",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	f, err := ComparisonFacts(t.Context(), rec)
	if err != nil {
		t.Fatal(err)
	}
	wantFacts := Facts{Status: VerdictUnknown, Summary: Summary{Added: 3, Removed: 3, Changed: 2, Unknown: 1, Unchanged: 1}, Moved: 1,
		Limitations: []string{limitStatic}}
	if diff := cmp.Diff(wantFacts, f); diff != "" {
		t.Error(diff)
	}
	n := 0
	if err := Rows(t.Context(), rec, left, right, func(Row) bool { n++; return n < 3 }); err != nil || n != 3 {
		t.Errorf("stopped after %d: %v", n, err)
	}
	if _, err := ComparisonFacts(t.Context(), left); !isCode(err, fault.InvalidRequest) {
		t.Error(err)
	}
}

// extracted makes an extraction of some entries of a graph.
func extracted(t testing.TB, paths map[string]string) (raw []byte, b *Builder) {
	t.Helper()
	b = archive(t, "root")
	var files []ExtractedFile
	for path, text := range paths {
		ref := mustAdd(t, b, with(file(path, text), func(e *Entry) {
			e.Declared = &Declared{SHA256: content("declared").SHA256}
			e.Executable = path == "run"
		}))
		files = append(files, ExtractedFile{ref, fmt.Sprint(len(files)), path})
	}
	mustAdd(t, b, with(file("not selected", "x"), func(e *Entry) { e.Declared = &Declared{} }))
	b.Limit("said of the whole")
	var out bytes.Buffer
	if err := b.FinishExtraction(t.Context(), &out, files); err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), b
}

// TestExtraction takes an extraction from the worker's result to Evidence; identities are recomputed with the generic
// encoder.
func TestExtraction(t *testing.T) {
	raw, _ := extracted(t, map[string]string{"d/a": "declared", "run": "2", "d-b": "3"})
	x, err := CheckExtraction(t.Context(), bytes.NewReader(raw))
	if err != nil {
		t.Fatalf("%v\n%s", err, raw)
	}
	if x.Files != 3 || x.Bytes != 10 || x.ContradictionCount != 2 {
		t.Errorf("%+v", x)
	}
	var files []string
	payload := evidence.CanonicalPayload(raw)
	if err := ExtractedFiles(t.Context(), payload, func(f ExtractedEntry) error {
		files = append(files, fmt.Sprint(f.RelativePath, " ", f.Size, " ", f.Executable))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"d-b 1 false", "d/a 8 false", "run 1 true"}, files); diff != "" {
		t.Error(diff)
	}
	to := Destination{OutputRoot: "/tmp/out \"1\"", ContainmentVerified: true, Cleanup: Cleanup{Attempted: true, Verified: true}}
	rec, err := ExtractionRecord(t.Context(), x.Subject("root.zip", "/root.zip"), ExtractionRequest{Policy: PolicyRecord, LogicalPaths: []string{"run"}}, payload, x, to, evidence.Memory{})
	if err != nil {
		t.Fatal(err)
	}
	v := decoded(t, rec)
	list := []any{}
	for _, a := range v["artifacts"].([]any) {
		a := a.(map[string]any)
		if a["created"] != true || len(a) != 5 {
			t.Errorf("%v", a)
		}
		list = append(list, map[string]any{"artifact_id": a["artifact_id"], "relative_path": a["relative_path"], "sha256": a["sha256"], "bytes_written": a["bytes_written"]})
	}
	want, err := evidence.Digest(list)
	if err != nil {
		t.Fatal(err)
	}
	m := v["extraction_manifest"].(map[string]any)
	if m["files_sha256"] != want {
		t.Errorf("files_sha256 %v, want %s", m["files_sha256"], want)
	}
	if got, want := m["extraction_id"], identityOf(t, "aex_", "extraction_id", m); got != want {
		t.Errorf("%v, want %s", got, want)
	}
	keys := []string{}
	for k := range v {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	if diff := cmp.Diff([]string{"artifacts", "cleanup", "containment_verified", "extraction_manifest", "integrity_contradictions", "limitations",
		"manifest", "output_root", "provenance"}, keys); diff != "" {
		t.Error(diff)
	}
	if v["output_root"] != to.OutputRoot || len(v["integrity_contradictions"].([]any)) != 2 {
		t.Errorf("%v", v)
	}
}

// TestExtractionRefuses has results that must not be placed anywhere.
func TestExtractionRefuses(t *testing.T) {
	raw, _ := extracted(t, map[string]string{"a": "1", "b/c": "2"})
	for _, tt := range []struct{ name, old, new string }{
		{"outside", `"relative_path":"a"`, `"relative_path":"../a"`},
		{"absolute", `"relative_path":"a"`, `"relative_path":"/a"`},
		{"out of order", `"relative_path":"a"`, `"relative_path":"c"`},
		{"twice", `"relative_path":"a"`, `"relative_path":"b/c"`},
		{"below a file", `"relative_path":"a"`, `"relative_path":"b"`},
		{"a name that is none of ours", `"file":"0"`, `"file":"../manifest.json"`},
		{"another content", `"sha256":"` + hexDigest("1"), `"sha256":"` + hexDigest("3")},
		{"a contradiction of nothing", `"logical_path":"a"`, `"logical_path":"x"`},
		{"nothing", raw2artifacts(raw), `"artifacts":[]`},
	} {
		bad := strings.Replace(string(raw), tt.old, tt.new, 1)
		if bad == string(raw) {
			t.Fatalf("%s: nothing was replaced in %s", tt.name, raw)
		}
		if _, err := CheckExtraction(t.Context(), strings.NewReader(bad)); !isCode(err, fault.UnreadableOutput) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

func hexDigest(text string) string {
	s := content(text).SHA256
	return hex.EncodeToString(s[:])
}

func raw2artifacts(raw []byte) string {
	end := bytes.Index(raw, []byte(`,"integrity_contradictions"`))
	return string(raw[1:end])
}

// TestViews reads summary and pages of an inspection and of its inventory.
func TestViews(t *testing.T) {
	inspection, inventory := inspected(t, canonical(t, vectorInventory))
	for _, parent := range []*evidence.Record{inspection, inventory} {
		rec, err := ViewSummary(t.Context(), parent)
		if err != nil {
			t.Fatal(err)
		}
		v := decoded(t, rec)
		if got, want := v["view_digest"], identityOf(t, "", "view_digest", v); got != want {
			t.Errorf("%v, want %s", got, want)
		}
		want := map[string]any{
			"root_format": "zip", "manifest_id": "agm_779bf4c174bd9175eff08a0c2efcd78eafdccabec0cb677b949f7676155d5487",
			"expected":    map[string]any{"nodes": 3.0, "occurrences": 3.0, "edges": 2.0},
			"present":     map[string]any{"nodes": 3.0, "occurrences": 3.0, "edges": 2.0, "integrity_contradictions": 0.0},
			"entry_kinds": map[string]any{"file": 2.0, "directory": 1.0}, "inventory_evidence_ids": []any{inventory.ID},
			"coverage": map[string]any{"scope": "container-entries", "status": "complete"}, "source_complete": true,
		}
		if diff := cmp.Diff(want, v["summary"]); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]string{parent.ID}, rec.Links); diff != "" {
			t.Error(diff)
		}
	}
	// The contract's sample of a page; its parent is a placeholder, so what depends on that is put in here.
	rec, err := ViewPage(t.Context(), inventory, Page{Collection: CollectionOccurrences, Limit: 1}, evidence.Memory{})
	if err != nil {
		t.Fatal(err)
	}
	v := decoded(t, rec)
	sample := `{"kind":"artifact-inventory","view":{"kind":"inventory","collection":"occurrences","offset":0,"limit":1},"parent_evidence_id":"ID","parent_operation":"inventory_artifact","parent_digest":"DIGEST","view_digest":"VIEW","artifact":{"path":"/samples/sample","sha256":"626f2750747770d4e5eec44f0d13fcfa45b66a28f047f247b3d0198c6fe27b24"},"coverage":{"status":"page","examined":1,"total":3,"next_offset":1,"exhausted":false},"source_complete":true,"limitations":[],"unknowns":[],"items":[{"occurrence_id":"occ_b5753a6a188e26907c1d2d74f45e88d05a87821d531284632d2791285d74a3d5","artifact_id":"art_60537124e36732c04faf6a95a6337a5c4dc72bf761df36ec39328dfe400ad69f","parent_occurrence_id":null,"logical_path":".","entry_kind":"file","artifact_kind":"container","artifact_format":"zip","declared_size":15,"compressed_size":null,"executable":false,"encrypted":false,"hash_status":"verified","source_location":null,"limitations":[]}]}`
	sample = strings.NewReplacer("ID", inventory.ID, "DIGEST", inventory.ID[3:], "VIEW", v["view_digest"].(string)).Replace(sample)
	if diff := cmp.Diff(meaning(t, []byte(sample)), any(v)); diff != "" {
		t.Error(diff)
	}
}

// TestViewPages pages through a collection, and selects by path.
func TestViewPages(t *testing.T) {
	_, inventory := inspected(t, canonical(t, vectorInventory))
	for _, tt := range []struct {
		page            Page
		status          string
		examined, total float64
		next            any
		exhausted       bool
	}{
		{Page{Collection: CollectionNodes, Limit: 64}, "complete-within-view", 3, 3, nil, true},
		{Page{Collection: CollectionNodes, Offset: 1, Limit: 1}, "page", 1, 3, 2.0, false},
		{Page{Collection: CollectionEdges, Offset: 1, Limit: 5}, "page", 1, 2, nil, true},
		{Page{Collection: CollectionEdges, Offset: 2, Limit: 5}, "empty", 0, 2, nil, true},
		{Page{Collection: CollectionContradictions, Limit: 5}, "empty", 0, 0, nil, true},
		{Page{Collection: CollectionOccurrences, Limit: 5, LogicalPaths: []string{"docs", "nowhere"}}, "complete-within-view", 1, 1, nil, true},
		{Page{Collection: CollectionOccurrences, Limit: 5, LogicalPaths: []string{}}, "empty", 0, 0, nil, true},
	} {
		rec, err := ViewPage(t.Context(), inventory, tt.page, evidence.Memory{})
		if err != nil {
			t.Fatal(err)
		}
		v := decoded(t, rec)
		want := map[string]any{"status": tt.status, "examined": tt.examined, "total": tt.total, "next_offset": tt.next, "exhausted": tt.exhausted}
		if diff := cmp.Diff(want, v["coverage"]); diff != "" || float64(len(v["items"].([]any))) != tt.examined {
			t.Errorf("%+v: %s", tt.page, diff)
		}
	}
	for _, page := range []Page{{Collection: "manifest", Limit: 1}, {Collection: CollectionNodes}, {Collection: CollectionNodes, Limit: 1, Offset: -1},
		{Collection: CollectionNodes, Limit: 1, LogicalPaths: []string{}}} {
		if _, err := ViewPage(t.Context(), inventory, page, evidence.Memory{}); !isCode(err, fault.InvalidRequest) {
			t.Errorf("%+v: %v", page, err)
		}
	}
	partial := recordOf(t, strings.Replace(vectorInventory, `"edge_count":2`, `"edge_count":3`, 1))
	rec, err := ViewPage(t.Context(), partial, Page{Collection: CollectionEdges, Limit: 9}, evidence.Memory{})
	if err != nil {
		t.Fatal(err)
	}
	if v := decoded(t, rec); v["source_complete"] != false || len(v["unknowns"].([]any)) != 1 {
		t.Errorf("%v", v)
	}
}

// TestNotices has an example of each historical notice, and a text that is none.
func TestNotices(t *testing.T) {
	for _, tt := range []struct {
		legacy string
		text   []string
		n      int64
		want   Coverage
	}{
		{"", nil, 1, Coverage{ScopeRoot, CoverageComplete}},
		{"", nil, 2, Coverage{ScopeEntries, CoverageComplete}},
		{"", []string{"The selected root has no child entries."}, 1, Coverage{ScopeRoot, CoverageComplete}},
		{"", []string{"Child entries of this container cannot be read on this host: it is a DMG."}, 1, Coverage{ScopeRoot, CoverageComplete}},
		{"", []string{"Only central-directory members of a ZIP are occurrences."}, 1, Coverage{ScopeEntries, CoverageComplete}},
		{"", []string{"3 integrity contradictions were recorded."}, 5, Coverage{ScopeEntries, CoverageComplete}},
		{"", []string{"a/pipe is a fifo and was not opened."}, 5, Coverage{ScopeEntries, CoverageUnknown}},
		{"complete", []string{"a/pipe is a fifo and was not opened."}, 5, Coverage{ScopeEntries, CoverageComplete}},
		{"partial", nil, 5, Coverage{ScopeEntries, CoverageUnknown}},
	} {
		if got := historical(tt.legacy, tt.text, tt.n); got != tt.want {
			t.Errorf("%q %q: %+v, want %+v", tt.legacy, tt.text, got, tt.want)
		}
	}
}

// FuzzCheckExtraction: no input makes the check panic, and what it accepts can be listed.
func FuzzCheckExtraction(f *testing.F) {
	raw, _ := extracted(f, map[string]string{"d/a": "declared", "run": "2", "d-b": "3"})
	f.Add(raw)
	f.Fuzz(func(t *testing.T, raw []byte) {
		if _, err := CheckExtraction(t.Context(), bytes.NewReader(raw)); err != nil {
			return
		}
		err := ExtractedFiles(t.Context(), evidence.CanonicalPayload(raw), func(e ExtractedEntry) error {
			if !plainPath(e.RelativePath) {
				t.Errorf("%q", e.RelativePath)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}
