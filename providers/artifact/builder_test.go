package artifact

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"rea/evidence"
)

// vectorInventory is the complete sample of the contract, as it stands there.
const vectorInventory = `{"manifest":{"manifest_id":"agm_779bf4c174bd9175eff08a0c2efcd78eafdccabec0cb677b949f7676155d5487","root_artifact_id":"art_60537124e36732c04faf6a95a6337a5c4dc72bf761df36ec39328dfe400ad69f","root_sha256":"626f2750747770d4e5eec44f0d13fcfa45b66a28f047f247b3d0198c6fe27b24","root_format":"zip","graph_sha256":"7ef73ab6be9cf3536fcf665c38767f0b3a46e9a95ad795686a37e90b0be40ad4","node_count":3,"occurrence_count":3,"edge_count":2},
"nodes":[
{"artifact_id":"art_60537124e36732c04faf6a95a6337a5c4dc72bf761df36ec39328dfe400ad69f","format":"zip","sha256":"626f2750747770d4e5eec44f0d13fcfa45b66a28f047f247b3d0198c6fe27b24","size":15,"media_type":null,"architecture":null,"content_state":"materialized","limitations":[]},
{"artifact_id":"art_a950389b19d54f4300ed4f346db72de986c74f54d8e3830a685addcbc99f9f2f","format":"file","sha256":"5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03","size":6,"media_type":null,"architecture":null,"content_state":"embedded","limitations":[]},
{"artifact_id":"art_c74cb5c2cd1324f13e8b57eae0c2e21926771429711f7c04f9f7979911f77945","format":"directory","sha256":"a2e39485159dea467fdf204ae6fd5b5c8a5840f3571df91530e617aa5db5d0b9","size":0,"media_type":null,"architecture":null,"content_state":"virtual","limitations":[]}],
"occurrences":[
{"occurrence_id":"occ_b5753a6a188e26907c1d2d74f45e88d05a87821d531284632d2791285d74a3d5","artifact_id":"art_60537124e36732c04faf6a95a6337a5c4dc72bf761df36ec39328dfe400ad69f","parent_occurrence_id":null,"logical_path":".","entry_kind":"file","artifact_kind":"container","artifact_format":"zip","declared_size":15,"compressed_size":null,"executable":false,"encrypted":false,"hash_status":"verified","source_location":null,"limitations":[]},
{"occurrence_id":"occ_9f58630f7fed1cf89d613f1965113530abadd397597bddadc4ed41dcefdc7878","artifact_id":"art_c74cb5c2cd1324f13e8b57eae0c2e21926771429711f7c04f9f7979911f77945","parent_occurrence_id":"occ_b5753a6a188e26907c1d2d74f45e88d05a87821d531284632d2791285d74a3d5","logical_path":"docs","entry_kind":"directory","artifact_kind":"container","artifact_format":"directory","declared_size":0,"compressed_size":0,"executable":false,"encrypted":false,"hash_status":"verified","source_location":null,"limitations":[]},
{"occurrence_id":"occ_e0e56020a85e367718af167847582cfb7efdb178bcb216ddf04da825276abf6c","artifact_id":"art_a950389b19d54f4300ed4f346db72de986c74f54d8e3830a685addcbc99f9f2f","parent_occurrence_id":"occ_9f58630f7fed1cf89d613f1965113530abadd397597bddadc4ed41dcefdc7878","logical_path":"docs/a.txt","entry_kind":"file","artifact_kind":"resource","artifact_format":"file","declared_size":6,"compressed_size":6,"executable":false,"encrypted":false,"hash_status":"verified","source_location":null,"limitations":[]}],
"edges":[
{"edge_id":"edge_8a1fe0460cc2ff0889bf156f08471d3d5b832b4482dec04472c1c18e991d8f8c","parent_artifact_id":"art_60537124e36732c04faf6a95a6337a5c4dc72bf761df36ec39328dfe400ad69f","relation":"contains","occurrence_id":"occ_9f58630f7fed1cf89d613f1965113530abadd397597bddadc4ed41dcefdc7878","producer":null,"ordinal":0},
{"edge_id":"edge_f3673a5a3bb88904f920e9cda73e892b4e05db98441575e0196e8c75802365fa","parent_artifact_id":"art_c74cb5c2cd1324f13e8b57eae0c2e21926771429711f7c04f9f7979911f77945","relation":"contains","occurrence_id":"occ_e0e56020a85e367718af167847582cfb7efdb178bcb216ddf04da825276abf6c","producer":null,"ordinal":1}],
"provenance":[],"integrity_contradictions":[],"limitations":[],"coverage":{"scope":"container-entries","status":"complete"},"coverage_status":"complete"}`

// content is the identity of some bytes.
func content(text string) *Content {
	return &Content{SHA256: sha256.Sum256([]byte(text)), Size: int64(len(text))}
}

// mustAdd adds an entry that must be taken.
func mustAdd(t testing.TB, b *Builder, e Entry) Ref {
	t.Helper()
	ref, err := b.Add(e)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// finish gives the finished inventory.
func finish(t testing.TB, b *Builder) []byte {
	t.Helper()
	var out bytes.Buffer
	if _, err := b.Finish(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// meaning decodes any JSON, for comparisons that do not depend on the order of keys.
func meaning(t testing.TB, raw []byte) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatalf("%v in %.300s", err, raw)
	}
	return v
}

// vectorBuilder feeds the contract's sample.
func vectorBuilder(t testing.TB) *Builder {
	b := NewBuilder(Root{Format: FormatZip})
	b.SetContent(0, *content("container bytes"))
	b.SetScope(ScopeEntries)
	mustAdd(t, b, Entry{Path: "docs/a.txt", EntryKind: EntryFile, Format: FormatFile, Content: content("hello\n"),
		DeclaredSize: SizeOf(6), CompressedSize: SizeOf(6)})
	return b
}

// TestVector builds the sample of the contract; the expected value is the contract's text, byte for byte.
func TestVector(t *testing.T) {
	got := finish(t, vectorBuilder(t))
	if diff := cmp.Diff(meaning(t, []byte(vectorInventory)), meaning(t, got)); diff != "" {
		t.Error(diff)
	}
}

// occurrences decodes the places of an inventory as "kind path #ordinal".
func occurrences(t testing.TB, raw []byte) []string {
	t.Helper()
	var v struct{ Occurrences []Occurrence }
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, o := range v.Occurrences {
		s := string(o.EntryKind) + " " + o.LogicalPath
		if o.Ordinal != nil {
			s += fmt.Sprint(" #", *o.Ordinal)
		}
		list = append(list, s)
	}
	return list
}

// TestBuilderOrder has names whose order, repetition and ancestors are not those in which they are added.
func TestBuilderOrder(t *testing.T) {
	b := archive(t, "root",
		file("d/e/f", "1"), file("d", "2"), file("d-b", "3"), file("d", "4"), file("!", "5"),
		Entry{Path: "d/e", EntryKind: EntryDirectory}, Entry{Path: "d/e", EntryKind: EntryDirectory},
		Entry{Path: "l", EntryKind: EntrySymlink})
	zip := mustAdd(t, b, with(file("n.zip", "zip"), func(e *Entry) { e.Format = FormatZip }))
	mustAdd(t, b, with(file("n.zip/x/y", "6"), func(e *Entry) { e.Container = zip }))
	raw := finish(t, b)
	want := []string{
		"file !", "file .", "directory d", "file d #0", "file d #1", "file d-b", "directory d/e #0", "directory d/e #1", "file d/e/f",
		"symlink l", "file n.zip", "directory n.zip/x", "file n.zip/x/y",
	}
	if diff := cmp.Diff(want, occurrences(t, raw)); diff != "" {
		t.Error(diff)
	}
	if _, err := CheckInventory(t.Context(), bytes.NewReader(raw)); err != nil {
		t.Error(err)
	}
}

// TestBuilderAddOrder: a graph without repeated names does not depend on the order of adding.
func TestBuilderAddOrder(t *testing.T) {
	entries := []Entry{file("a/b/c", "1"), file("a/d", "2"), file("x.js.map", "3"), file("x.js", "4"), {Path: "a", EntryKind: EntryDirectory},
		with(file("same", "1"), func(e *Entry) { e.NodeLimitations = []string{"said here"} })}
	want := finish(t, archive(t, "root", entries...))
	slices.Reverse(entries)
	if got := finish(t, archive(t, "root", entries...)); !bytes.Equal(want, got) {
		t.Errorf("%s\n%s", want, got)
	}
}

// TestBuilderDirectoryRoot computes the digest of a directory root from its definition, with the generic encoder.
func TestBuilderDirectoryRoot(t *testing.T) {
	b := NewBuilder(Root{Format: FormatDirectory})
	b.SetScope(ScopeEntries)
	mustAdd(t, b, file("d/a", "1"))
	mustAdd(t, b, Entry{Path: "-link", EntryKind: EntrySymlink})
	raw := finish(t, b)
	var v struct {
		Manifest    Manifest
		Occurrences []Occurrence
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	children := []any{}
	for _, o := range v.Occurrences {
		if o.LogicalPath != "." {
			children = append(children, map[string]any{"logical_path": o.LogicalPath, "artifact_id": o.ArtifactID})
		}
	}
	want, err := evidence.Digest(map[string]any{"kind": "directory-root", "children": children})
	if err != nil {
		t.Fatal(err)
	}
	if len(children) != 3 || v.Manifest.RootSHA256 != want || v.Manifest.RootFormat != FormatDirectory {
		t.Errorf("%d children, %+v, want %s", len(children), v.Manifest, want)
	}
	if _, err := CheckInventory(t.Context(), bytes.NewReader(raw)); err != nil {
		t.Error(err)
	}
}

// TestBuilderRefuses has paths that cannot stand in a graph; a refusal leaves the builder as it was.
func TestBuilderRefuses(t *testing.T) {
	b := archive(t, "root", file("a.zip", "zip"))
	before := b.Len()
	for _, path := range []string{"", ".", "..", "/a", "a//b", "a/", "a/../b", "a/./b", `a\b`, "a\x00", "\xff", strings.Repeat("x", MaxPath+1)} {
		if _, err := b.Add(Entry{Path: path, EntryKind: EntryFile}); !errors.Is(err, ErrPath) {
			t.Errorf("%.20q: %v", path, err)
		}
	}
	for _, path := range []string{"a.zip", "a.zipx/y", "b"} {
		if _, err := b.Add(Entry{Path: path, Container: 1, EntryKind: EntryFile}); !errors.Is(err, ErrPath) {
			t.Errorf("%q in a.zip: %v", path, err)
		}
	}
	if b.Len() != before {
		t.Errorf("%d entries became %d", before, b.Len())
	}
}

// TestBuilderFull fills a builder by one entry whose directories alone are too many, and by entries one by one.
func TestBuilderFull(t *testing.T) {
	if testing.Short() {
		t.Skip("fills a graph to its limit")
	}
	b := NewBuilder(Root{Format: FormatZip})
	deep := strings.Repeat("d/", MaxPath/2-8)
	var err error
	for i := 0; err == nil; i++ {
		_, err = b.Add(Entry{Path: fmt.Sprintf("%d/%sf", i, deep), EntryKind: EntryFile})
	}
	if !errors.Is(err, ErrFull) || b.pathBytes > MaxPathBytes || b.pathBytes < MaxPathBytes/2 {
		t.Errorf("%d path bytes, %v", b.pathBytes, err)
	}
	for err = nil; err == nil; {
		_, err = b.Add(Entry{Path: "f", EntryKind: EntryFile})
	}
	if !errors.Is(err, ErrFull) || b.Len() != MaxEntries {
		t.Errorf("%d entries, %v", b.Len(), err)
	}
}

// TestBuilderLimits bounds what a hostile target can make the builder say.
func TestBuilderLimits(t *testing.T) {
	b := archive(t, "root")
	for i := range MaxLimitations + 10 {
		b.Limit(fmt.Sprint("limitation ", i))
	}
	b.Limit("limitation 0")
	ref := mustAdd(t, b, file("a", "1"))
	for i := range 100 {
		b.AddLimitation(ref, fmt.Sprint(i, strings.Repeat("é", 5000), "\xff"))
	}
	raw := finish(t, b)
	inv, err := CheckInventory(t.Context(), bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(inv.Limitations); n != MaxLimitations || !strings.HasPrefix(inv.Limitations[n-1], "More ") {
		t.Errorf("%d limitations, the last is %q", n, inv.Limitations[n-1])
	}
}

// TestBuilderContradiction is the contract's vector of a contradiction, through the builder.
func TestBuilderContradiction(t *testing.T) {
	b := NewBuilder(Root{Format: FormatZip})
	b.SetScope(ScopeEntries)
	b.SetContent(0, *content("container bytes"))
	ref := mustAdd(t, b, with(file("docs/a.txt", "hello\n"), func(e *Entry) { e.Declared = &Declared{} }))
	inv, err := CheckInventory(t.Context(), bytes.NewReader(finish(t, b)))
	if err != nil {
		t.Fatal(err)
	}
	want := []Contradiction{{
		ContradictionID: "ic_dd23f0ca39d419fa9e790d6f5ce01252e67aadbfb132b0f6472a86a7f6adf8db", DeclaredSHA256: strings.Repeat("0", 64),
		EntryKind: EntryFile, Limitations: []string{limitMismatch}, LogicalPath: "docs/a.txt",
		ObservedSHA256:   "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03",
		OccurrenceID:     "occ_e0e56020a85e367718af167847582cfb7efdb178bcb216ddf04da825276abf6c",
		ParentArtifactID: "art_c74cb5c2cd1324f13e8b57eae0c2e21926771429711f7c04f9f7979911f77945",
		Provenance:       ContradictionProvenance, Trust: ContradictionTrust,
	}}
	if diff := cmp.Diff(want, inv.Contradictions); diff != "" || !b.Mismatched(ref) {
		t.Error(diff)
	}
}

// TestArrangement computes the digests of a container from their definition, with the generic encoder.
func TestArrangement(t *testing.T) {
	a := NewArrangement()
	members := [][2]string{{"z\"", "stored"}, {"a", "deflated"}, {"m", "stored"}, {"a", "stored"}}
	var order []string
	for _, m := range members {
		a.Add(m[0], m[1])
		order = append(order, m[0])
	}
	got := a.Container(nil, nil)
	wantOrder, err := evidence.Digest(order)
	if err != nil {
		t.Fatal(err)
	}
	wantMethods, err := evidence.Digest([][2]string{{"a", "deflated"}, {"a", "stored"}, {"m", "stored"}, {"z\"", "stored"}})
	if err != nil {
		t.Fatal(err)
	}
	if got.MemberOrderSHA256 != wantOrder || got.MethodsSHA256 != wantMethods {
		t.Errorf("%+v, want %s %s", got, wantOrder, wantMethods)
	}
	empty, err := evidence.Digest([]string{})
	if err != nil {
		t.Fatal(err)
	}
	if c := NewArrangement().Container(nil, nil); c.MemberOrderSHA256 != empty || c.MethodsSHA256 != empty {
		t.Errorf("%+v, want %s", c, empty)
	}
}

// TestPulse: a graph tells that the work goes on, in each step of sealing and all through a long list.
func TestPulse(t *testing.T) {
	b := archive(t, "root")
	for i := range 5 * elementsPerCheck {
		mustAdd(t, b, file(fmt.Sprint("f", i), fmt.Sprint(i)))
	}
	pulses := 0
	b.OnPulse(func() { pulses++ })
	if _, err := b.Seal(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := 11 + 3*5; pulses < want { // steps, and what is hashed of three lists
		t.Errorf("%d pulses while it was sealed, want %d or more", pulses, want)
	}
	sealed := pulses
	finish(t, b)
	if pulses < sealed+3*5 {
		t.Errorf("%d pulses while it was written", pulses-sealed)
	}
}
