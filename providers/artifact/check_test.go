package artifact

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"rea/evidence"
	"rea/evidence/fault"
	"rea/providers"
)

// canonical gives the canonical form of any JSON text.
func canonical(t testing.TB, raw string) []byte {
	t.Helper()
	c, err := evidence.Canonicalize([]byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestCheckVector checks the contract's sample, brought into canonical form by package evidence.
func TestCheckVector(t *testing.T) {
	raw := canonical(t, vectorInventory)
	got, err := CheckInventory(t.Context(), iotest.OneByteReader(bytes.NewReader(raw)))
	if err != nil {
		t.Fatal(err)
	}
	var want struct{ Manifest Manifest }
	if err := json.Unmarshal([]byte(vectorInventory), &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.Manifest, got.Manifest); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(Coverage{ScopeEntries, CoverageComplete}, got.Coverage); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[EntryKind]int64{EntryFile: 2, EntryDirectory: 1}, got.Entries); diff != "" {
		t.Error(diff)
	}
}

// randomGraph makes a graph with every kind of entry: nested containers, repeated names, source maps, frameworks,
// slices, links, unread and contradicted members, names with quotes, controls and characters outside the BMP.
// With unique set no path stands twice.
func randomGraph(t testing.TB, seed uint64, directory, unique bool) *Builder {
	r := rand.New(rand.NewPCG(seed, 1))
	calm := seed%4 < 2 // everything is read and as declared
	root := Root{Format: FormatZip, Limitations: []string{"said of the root"}}
	if directory {
		root = Root{Format: FormatDirectory}
	}
	b := NewBuilder(root)
	b.SetScope(ScopeEntries)
	if !directory {
		b.SetContent(0, *content(fmt.Sprint("root", seed)))
	}
	names := []string{"a", "a-b", "a.txt", "lib.so", "x.js", "x.js.map", "Foo.framework", "\"q\"\n", "ünï", "\U0001F600", "!first", "z.node", "-x"}
	containers := []Ref{0}
	paths := map[Ref]string{0: ""}
	taken := map[string]EntryKind{}
	for range 40 + r.IntN(60) {
		in := containers[r.IntN(len(containers))]
		parts := make([]string, 1+r.IntN(3))
		for i := range parts {
			parts[i] = names[r.IntN(len(names))]
		}
		path := paths[in] + strings.Join(parts, "/")
		if unique && !free(taken, paths[in], path) {
			continue
		}
		e := Entry{Path: path, Container: in, EntryKind: entryKinds[r.IntN(len(entryKinds))], Format: FormatFile,
			DeclaredSize: SizeOf(int64(r.IntN(100))), Executable: r.IntN(4) == 0}
		switch n := r.IntN(10); {
		case e.EntryKind == EntryDirectory:
		case e.EntryKind == EntrySymlink:
			e.Format, e.Limitations = "", []string{LinkTarget(fmt.Sprintf(`"elsewhere %d"`, r.IntN(2)))}
			if !calm && r.IntN(2) == 0 {
				e.Limitations = []string{LinkUnknown}
			}
		case n == 0 && !calm:
			e.HashStatus, e.Encrypted, e.Format = HashUnavailable, true, ""
		case n == 1 && !calm:
			e.Content = content(fmt.Sprint("bad", r.IntN(9)))
			e.Declared = &Declared{SHA256: sha256.Sum256([]byte("declared")), Unpacked: r.IntN(2) == 0}
		case n == 2 && e.EntryKind == EntryFile:
			e.Content, e.Format = content(fmt.Sprint("zip", r.IntN(9))), FormatZip
		default:
			e.Content = content(fmt.Sprint("text", r.IntN(20)))
			e.Declared = &Declared{SHA256: e.Content.SHA256}
			e.Source = &Range{Offset: int64(r.IntN(1000)), Length: 5}
			if r.IntN(8) == 0 {
				e.NodeLimitations = []string{"said of the content"}
			}
		}
		ref := mustAdd(t, b, e)
		taken[path] = e.EntryKind
		if e.Format == FormatZip && len(containers) < 6 {
			containers = append(containers, ref)
			paths[ref] = path + "/"
			a := NewArrangement()
			a.Add("one", "stored")
			b.AddContainer(ref, a.Container(nil, []Region{{Role: RegionPrefix, Length: 3, SHA256: strings.Repeat("0", 64)}}))
		}
	}
	b.Limit("said of the whole")
	version := "1"
	b.AddProvenance(Provenance{Arguments: []string{"a"}, Effects: []string{EffectRead}, Tool: "rea-worker", ToolVersion: &version})
	return b
}

// free reports whether path can be added below its container without standing twice, and takes its ancestors.
func free(taken map[string]EntryKind, container, path string) bool {
	if _, ok := taken[path]; ok {
		return false
	}
	var above []string
	for dir := parentDir(path); dir != rootPath && len(dir) >= len(container); dir = parentDir(dir) {
		if kind, ok := taken[dir]; ok && kind != EntryDirectory {
			return false
		}
		above = append(above, dir)
	}
	for _, dir := range above {
		taken[dir] = EntryDirectory
	}
	return true
}

// TestCheckRandom checks what the builder writes; the canonical form is checked by package evidence in the same pass.
func TestCheckRandom(t *testing.T) {
	for seed := range uint64(100) {
		raw := finish(t, randomGraph(t, seed, seed%2 == 0, seed%3 == 0))
		inv, err := CheckInventory(t.Context(), bytes.NewReader(raw))
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, raw)
		}
		if again := finish(t, randomGraph(t, seed, seed%2 == 0, seed%3 == 0)); !bytes.Equal(raw, again) {
			t.Fatalf("seed %d: two builds of one graph differ", seed)
		}
		if inv.Manifest.OccurrenceCount == 0 || inv.ContradictionCount != int64(len(inv.Contradictions)) {
			t.Fatalf("seed %d: %+v", seed, inv)
		}
	}
}

// member gives the byte range of a member of the result.
func member(t testing.TB, raw []byte, key string) (from, to int) {
	t.Helper()
	var v map[string]json.RawMessage
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	from = bytes.Index(raw, slices.Concat([]byte(`"`+key+`":`), v[key]))
	return from, from + len(key) + 3 + len(v[key])
}

// smallGraph has one of everything.
func smallGraph(t testing.TB) *Builder {
	b := archive(t, "root", file("x.js", "s"), file("x.js.map", "m"), file("a", "1"), file("a", "2"),
		with(file("d/bad", "bytes"), func(e *Entry) { e.Declared = &Declared{Unpacked: true} }),
		Entry{Path: "d/link", EntryKind: EntrySymlink, Limitations: []string{`The link's target is "\u00fc".`}})
	b.AddContainer(0, NewArrangement().Container(nil, []Region{{Role: RegionTail, Length: 3, SHA256: strings.Repeat("0", 64)}}))
	b.Limit("said of the whole")
	b.AddProvenance(Provenance{Arguments: []string{}, Effects: []string{EffectRead}, Tool: "rea-worker"})
	return b
}

// TestCheckTamperedBytes changes every byte of a result. What stands outside the graph's digest and is free text or an
// independent statement (limitations, provenance, containers) can change and stay well formed; the manifest of the
// evidence volume covers those. Everything else must be refused.
func TestCheckTamperedBytes(t *testing.T) {
	raw := finish(t, smallGraph(t))
	free := make([]bool, len(raw))
	for _, key := range []string{"limitations", "provenance", "containers"} {
		from, to := member(t, raw, key)
		for i := from; i < to; i++ {
			free[i] = true
		}
	}
	for i := range raw {
		if free[i] {
			continue
		}
		bad := bytes.Clone(raw)
		bad[i] = raw[i] ^ []byte{1, 2, 0x10}[i%3]
		_, err := CheckInventory(t.Context(), bytes.NewReader(bad))
		if !isCode(err, fault.UnreadableOutput) {
			t.Fatalf("byte %d, %q for %q in %q: %v", i, bad[i], raw[i], raw[max(0, i-60):min(len(raw), i+20)], err)
		}
	}
	for i := 0; i < len(raw); i += 1 + len(raw)/500 {
		if _, err := CheckInventory(t.Context(), bytes.NewReader(raw[:i])); !isCode(err, fault.UnreadableOutput) {
			t.Fatalf("cut at %d: %v", i, err)
		}
	}
}

// otherValue changes a leaf.
func otherValue(v any) any {
	switch v := v.(type) {
	case string:
		if len(v) > 0 && v[len(v)-1] == '0' {
			return v[:len(v)-1] + "1"
		}
		return v[:max(len(v)-1, 0)] + "0"
	case float64:
		return v + 1
	case bool:
		return !v
	}
	return "x"
}

// leaves calls change with a setter for each leaf below v.
func leaves(v any, at string, change func(at string, value any, set func(any))) {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			if isLeaf(e) {
				change(at+"."+k, e, func(n any) { v[k] = n })
			}
			leaves(e, at+"."+k, change)
		}
	case []any:
		for i, e := range v {
			if isLeaf(e) {
				change(at+"[]", e, func(n any) { v[i] = n })
			}
			leaves(e, at+"[]", change)
		}
	}
}

func isLeaf(v any) bool {
	switch v.(type) {
	case map[string]any, []any:
		return false
	}
	return true
}

// TestCheckTamperedFields changes every leaf of a result, as it is and with a graph digest and a manifest that fit the
// change, as a worker that lies would send it. Then only facts that nothing else in the graph speaks of may differ.
func TestCheckTamperedFields(t *testing.T) {
	raw := finish(t, smallGraph(t))
	independent := []string{
		".limitations[]", ".provenance", ".containers[].comment", ".containers[].member_order", ".containers[].methods",
		".containers[].regions", ".nodes[].limitations[]", ".nodes[].size", ".occurrences[].compressed_size",
		".occurrences[].declared_size", ".occurrences[].encrypted", ".occurrences[].executable", ".occurrences[].limitations[]",
		".occurrences[].source_location.", ".integrity_contradictions[].limitations[]", ".integrity_contradictions[].unpacked",
		".nodes[].architecture", ".nodes[].media_type",
	}
	v := meaning(t, raw)
	accepted := map[string]bool{}
	leaves(v, "", func(at string, value any, set func(any)) {
		set(otherValue(value))
		defer set(value)
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		free := slices.ContainsFunc(independent, func(p string) bool { return strings.HasPrefix(at, p) })
		outside := strings.HasPrefix(at, ".limitations") || strings.HasPrefix(at, ".provenance") || strings.HasPrefix(at, ".containers")
		if _, err := CheckInventory(t.Context(), bytes.NewReader(canonical(t, string(text)))); err == nil && !(free && outside) {
			t.Errorf("%s: %v became %v and was accepted", at, value, otherValue(value))
		}
		if strings.HasPrefix(at, ".manifest") {
			return
		}
		_, err = CheckInventory(t.Context(), bytes.NewReader(canonical(t, remanifest(t, string(text)))))
		if err == nil && !free {
			t.Errorf("%s: %v became %v, and was accepted with a manifest that fits", at, value, otherValue(value))
		}
		if err == nil {
			accepted[at] = true
		}
	})
	if !accepted[".occurrences[].executable"] || !accepted[".limitations[]"] {
		t.Errorf("the changed results are refused for another reason: %v", accepted)
	}
}

// TestCheckShapes has results that fit together and still are not what the contract allows.
func TestCheckShapes(t *testing.T) {
	for _, tt := range []struct{ name, old, new string }{
		{"a member is missing", `"provenance":[],`, ``},
		{"an unknown member", `"provenance":[]`, `"provenance":[],"zebra":1`},
		{"a member in a node", `"media_type":null`, `"media_type":null,"kind":"file"`},
		{"no coverage", `"coverage":{"scope":"container-entries","status":"complete"},`, ``},
		{"scope root with entries", `"scope":"container-entries"`, `"scope":"root"`},
		{"coverage and its older form differ", `"coverage_status":"complete"`, `"coverage_status":"partial"`},
		{"a number above 2^53-1", `"declared_size":6`, `"declared_size":9007199254740992`},
		{"a fraction", `"declared_size":6`, `"declared_size":6.5`},
		{"a negative size", `"declared_size":6`, `"declared_size":-6`},
		{"a hash status without content", `"artifact_id":"art_a950389b19d54f4300ed4f346db72de986c74f54d8e3830a685addcbc99f9f2f","parent_occ`, `"artifact_id":null,"parent_occ`},
		{"a status that does not go with content", `"hash_status":"verified","source_location":null,"limitations":[]}],`, `"hash_status":"unavailable","source_location":null,"limitations":[]}],`},
		{"a mismatch without its contradiction", `"hash_status":"verified","source_location":null,"limitations":[]}],`, `"hash_status":"mismatched","source_location":null,"limitations":[]}],`},
		{"an ordinal where nothing repeats", `"logical_path":"docs/a.txt","entry_kind"`, `"ordinal":0,"logical_path":"docs/a.txt","entry_kind"`},
		{"a format that is none", `"format":"file"`, `"format":"word"`},
		{"a node that nothing has", `"nodes":[`, `"nodes":[{"artifact_id":"art_4c94485e0c21ae6c41ce1dfe7b6bfaceea5ab68e40a2476f50208e526f506080","format":"file","sha256":"","size":0,"media_type":null,"architecture":null,"content_state":"embedded","limitations":[]},`},
		{"an edge that repeats its child", `"producer":null,"ordinal":0`, `"producer":null,"child_artifact_id":"art_c74cb5c2cd1324f13e8b57eae0c2e21926771429711f7c04f9f7979911f77945","logical_path":"docs","ordinal":0`},
	} {
		bad := strings.Replace(vectorInventory, tt.old, tt.new, 1)
		if bad == vectorInventory {
			t.Fatalf("%s: nothing was replaced", tt.name)
		}
		_, err := CheckInventory(t.Context(), bytes.NewReader(canonical(t, remanifest(t, bad))))
		if !isCode(err, fault.UnreadableOutput) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	if _, err := CheckInventory(t.Context(), strings.NewReader(vectorInventory)); !isCode(err, fault.UnreadableOutput) {
		t.Errorf("not canonical: %v", err)
	}
	if _, err := CheckInventory(t.Context(), bytes.NewReader(append(canonical(t, vectorInventory), "{}"...))); !isCode(err, fault.UnreadableOutput) {
		t.Errorf("something behind it: %v", err)
	}
}

// endless is a result whose first limitation never ends.
type endless struct{ head io.Reader }

func (e endless) Read(p []byte) (int, error) {
	if n, err := e.head.Read(p); err == nil {
		return n, nil
	}
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// TestCheckEndlessElement makes sure that one element cannot take the core's memory: the check ends although the
// result does not.
func TestCheckEndlessElement(t *testing.T) {
	head := `{"coverage":{"scope":"root","status":"complete"},"coverage_status":"complete","edges":[],"integrity_contradictions":[],"limitations":["`
	_, err := CheckInventory(t.Context(), endless{strings.NewReader(head)})
	if !isCode(err, fault.UnreadableOutput) || !strings.Contains(err.Error(), "longer than") {
		t.Error(err)
	}
}

// TestCheckReaderError passes a reader's own error on.
func TestCheckReaderError(t *testing.T) {
	raw := canonical(t, vectorInventory)
	broken := errors.New("the disk is gone")
	_, err := CheckInventory(t.Context(), io.MultiReader(bytes.NewReader(raw[:700]), iotest.ErrReader(broken)))
	if !errors.Is(err, broken) || isCode(err, fault.UnreadableOutput) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(broken)
	if _, err := CheckInventory(ctx, bytes.NewReader(raw)); !errors.Is(err, broken) {
		t.Error(err)
	}
}

// TestCheckPolicy refuses contradictions where the policy was to fail.
func TestCheckPolicy(t *testing.T) {
	raw := finish(t, archive(t, "root", with(file("m", "bytes"), func(e *Entry) { e.Declared = &Declared{} })))
	op, _ := providers.Find(Provider(), OpInventory)
	for policy, want := range map[Policy]bool{PolicyFail: false, PolicyRecord: true} {
		params, err := evidence.Canonical(Params{IntegrityPolicy: policy, Name: "x.zip"})
		if err != nil {
			t.Fatal(err)
		}
		s, err := op.Check(t.Context(), bytes.NewReader(raw), params)
		if (err == nil) != want {
			t.Errorf("%s: %v", policy, err)
		}
		if want && (s.Format != "zip" || s.Detail.(Inventory).ContradictionCount != 1) {
			t.Errorf("%+v", s)
		}
	}
}

// FuzzCheckInventory: no input makes the check panic, and what it accepts is canonical and compares as unchanged or
// better with itself.
func FuzzCheckInventory(f *testing.F) {
	f.Add(canonical(f, vectorInventory))
	f.Add(finish(f, smallGraph(f)))
	f.Fuzz(func(t *testing.T, raw []byte) {
		_, err := CheckInventory(t.Context(), bytes.NewReader(raw))
		if err == nil && evidence.CheckCanonical(bytes.NewReader(raw)) != nil {
			t.Fatal("accepted and not canonical")
		}
		lenient(t, raw)
	})
}

// lenient reads anything canonical under every rule of a comparison.
func lenient(t *testing.T, raw []byte) {
	c, err := evidence.Canonicalize(raw)
	if err != nil {
		return
	}
	for _, r := range []rule{{}, {foreign: true}, {foreign: true, partial: true}} {
		s, err := open(t.Context(), bytes.NewReader(c), r)
		for err == nil && !s.done {
			_, err = s.next()
		}
	}
}

func isCode(err error, code fault.Code) bool {
	var f *fault.Error
	return errors.As(err, &f) && f.Code == code
}
