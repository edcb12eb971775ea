package artifact

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"rea/evidence"
	"rea/evidence/fault"
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
func randomGraph(t testing.TB, seed uint64, directory bool) *Builder {
	r := rand.New(rand.NewPCG(seed, 1))
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
	for range 40 + r.IntN(60) {
		in := containers[r.IntN(len(containers))]
		parts := make([]string, 1+r.IntN(3))
		for i := range parts {
			parts[i] = names[r.IntN(len(names))]
		}
		path := paths[in] + strings.Join(parts, "/")
		e := Entry{Path: path, Container: in, EntryKind: entryKinds[r.IntN(len(entryKinds))], Format: FormatFile,
			DeclaredSize: SizeOf(int64(r.IntN(100))), Executable: r.IntN(4) == 0}
		switch n := r.IntN(10); {
		case e.EntryKind == EntryDirectory:
		case e.EntryKind == EntrySymlink:
			e.Format, e.Limitations = "", []string{`The link's target is "elsewhere".`}
		case n == 0:
			e.HashStatus, e.Encrypted, e.Format = HashUnavailable, true, ""
		case n == 1:
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

// TestCheckRandom checks what the builder writes; the canonical form is checked by package evidence in the same pass.
func TestCheckRandom(t *testing.T) {
	for seed := range uint64(200) {
		raw := finish(t, randomGraph(t, seed, seed%2 == 0))
		inv, err := CheckInventory(t.Context(), bytes.NewReader(raw))
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, raw)
		}
		if again := finish(t, randomGraph(t, seed, seed%2 == 0)); !bytes.Equal(raw, again) {
			t.Fatalf("seed %d: two builds of one graph differ", seed)
		}
		if inv.Manifest.OccurrenceCount == 0 || inv.ContradictionCount != int64(len(inv.Contradictions)) {
			t.Fatalf("seed %d: %+v", seed, inv)
		}
	}
}

func isCode(err error, code fault.Code) bool {
	var f *fault.Error
	return errors.As(err, &f) && f.Code == code
}
