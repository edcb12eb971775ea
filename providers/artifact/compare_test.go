package artifact

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"rea/evidence"
	"rea/evidence/fault"
)

// inventoryRecord makes inventory Evidence of a result.
func inventoryRecord(t testing.TB, raw []byte) *evidence.Record {
	t.Helper()
	inv, err := CheckInventory(t.Context(), bytes.NewReader(raw))
	if err != nil {
		t.Fatalf("%v\n%.2000s", err, raw)
	}
	r, err := InventoryRecord(inv.Subject("sample", "/samples/sample"), PolicyRecord, inv, evidence.CanonicalPayload(raw))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// recordOf makes inventory Evidence of any text that claims to be a result, unchecked.
func recordOf(t testing.TB, raw string) *evidence.Record {
	t.Helper()
	c := canonical(t, raw)
	var v struct{ Manifest Manifest }
	if err := json.Unmarshal(c, &v); err != nil {
		t.Fatal(err)
	}
	r, err := newRecord(OpInventory, map[string]any{}, evidence.CanonicalPayload(c))
	if err != nil {
		t.Fatal(err)
	}
	r.Subject = &evidence.Subject{Name: "x", SHA256: v.Manifest.RootSHA256, Format: string(v.Manifest.RootFormat)}
	if err := r.Seal(); err != nil {
		t.Fatal(err)
	}
	return r
}

// result is a comparison's result as the contract spells it.
type result struct {
	Status               Verdict
	Summary              Summary
	Changes              []changeRow
	Moves                []moveRow
	ContainerDifferences []ContainerDifference `json:"container_differences"`
	Limitations          []string
	LeftManifestID       string `json:"left_manifest_id"`
	RightManifestID      string `json:"right_manifest_id"`
}

type changeRow struct {
	Classification Classification
	Dimensions     []Dimension
	LogicalPath    string   `json:"logical_path"`
	EvidenceLinks  []string `json:"evidence_links"`
	LeftOcc        *string  `json:"left_occurrence_id"`
	RightOcc       *string  `json:"right_occurrence_id"`
	LeftArt        *string  `json:"left_artifact_id"`
	RightArt       *string  `json:"right_artifact_id"`
}

type moveRow struct {
	ArtifactID string `json:"artifact_id"`
	LeftPath   string `json:"left_logical_path"`
	RightPath  string `json:"right_logical_path"`
	LeftOcc    string `json:"left_occurrence_id"`
	RightOcc   string `json:"right_occurrence_id"`
}

// rows gives the changes as "classification path: dimensions".
func (r result) rows() []string {
	list := []string{}
	for _, c := range r.Changes {
		list = append(list, fmt.Sprintf("%s %s: %v", c.Classification, c.LogicalPath, c.Dimensions))
	}
	return list
}

func compared(t testing.TB, left, right *evidence.Record) result {
	t.Helper()
	rec, err := Compare(t.Context(), left, right, evidence.Memory{})
	if err != nil {
		t.Fatal(err)
	}
	return resultOf(t, rec)
}

func resultOf(t testing.TB, rec *evidence.Record) result {
	t.Helper()
	raw, err := rec.NormalizedResult.Bytes(1 << 30)
	if err != nil {
		t.Fatal(err)
	}
	if err := evidence.CheckCanonical(bytes.NewReader(raw)); err != nil {
		t.Fatalf("%v in %s", err, raw)
	}
	var v result
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// archive builds a complete zip inventory from its entries.
func archive(t testing.TB, root string, entries ...Entry) *Builder {
	t.Helper()
	b := NewBuilder(Root{Format: FormatZip})
	b.SetScope(ScopeEntries)
	b.SetContent(0, *content(root))
	for _, e := range entries {
		mustAdd(t, b, e)
	}
	return b
}

// file is a plain entry.
func file(path, text string) Entry {
	return Entry{Path: path, EntryKind: EntryFile, Format: FormatFile, Content: content(text),
		DeclaredSize: SizeOf(int64(len(text))), CompressedSize: SizeOf(int64(len(text)))}
}

func with(e Entry, change func(*Entry)) Entry { change(&e); return e }

// TestCompareSample is the contract's sample: docs/a.txt changed, docs/b.txt is new.
func TestCompareSample(t *testing.T) {
	left := inventoryRecord(t, finish(t, vectorBuilder(t)))
	right := inventoryRecord(t, finish(t, archive(t, "another container", file("docs/a.txt", "hello world\n"), file("docs/b.txt", "new\n"))))
	got := compared(t, left, right)
	if diff := cmp.Diff([]string{
		"changed .: [content size]",
		"changed docs: [content relations]",
		"changed docs/a.txt: [content size relations]",
		"added docs/b.txt: [content]",
	}, got.rows()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(Summary{Added: 1, Changed: 3}, got.Summary); diff != "" {
		t.Error(diff)
	}
	if got.Status != VerdictChanged || got.LeftManifestID != "agm_779bf4c174bd9175eff08a0c2efcd78eafdccabec0cb677b949f7676155d5487" {
		t.Error(got.Status, got.LeftManifestID)
	}
	if diff := cmp.Diff([]string{"Static artifact equality or difference says nothing about behaviour at run time."}, got.Limitations); diff != "" {
		t.Error(diff)
	}
	first := got.Changes[0]
	if *first.LeftOcc != "occ_b5753a6a188e26907c1d2d74f45e88d05a87821d531284632d2791285d74a3d5" ||
		*first.LeftArt != "art_60537124e36732c04faf6a95a6337a5c4dc72bf761df36ec39328dfe400ad69f" {
		t.Errorf("%+v", first)
	}
	if diff := cmp.Diff([]string{left.ID, right.ID}, first.EvidenceLinks); diff != "" {
		t.Error(diff)
	}
}

// TestCompareRules has a case for each row of the classification table, each dimension and each rule of the verdict.
// The expected values are read off the contract.
func TestCompareRules(t *testing.T) {
	plain := func(b *Builder) *Builder { return b }
	scope := func(s Scope) func(*Builder) *Builder { return func(b *Builder) *Builder { b.SetScope(s); return b } }
	unknown := func(b *Builder) *Builder { b.Incomplete(); b.Limit("pipe: fifo, not opened"); return b }
	bad := with(file("m", "bytes"), func(e *Entry) { e.Declared = &Declared{SHA256: [32]byte{}} })
	unread := Entry{Path: "u", EntryKind: EntryFile, Encrypted: true}
	link := func(target string) Entry {
		return Entry{Path: "l", EntryKind: EntrySymlink, HashStatus: HashNotHashed, Limitations: []string{LinkTarget(`"` + target + `"`)}}
	}
	blind := Entry{Path: "l", EntryKind: EntrySymlink, HashStatus: HashNotHashed, Limitations: []string{LinkUnknown}}
	long := link(strings.Repeat("x", maxNoteBytes)) // its limitation is clipped
	for _, tt := range []struct {
		name        string
		left, right []Entry
		lmod, rmod  func(*Builder) *Builder
		status      Verdict
		rows        []string
		summary     Summary
		wantLimit   string
		moves       []string
	}{
		{name: "equal", left: []Entry{file("a", "1")}, right: []Entry{file("a", "1")}, status: VerdictUnchanged, summary: Summary{Unchanged: 2}},
		{name: "no children", status: VerdictUnchanged, lmod: scope(ScopeRoot), rmod: func(b *Builder) *Builder {
			b.SetScope(ScopeRoot)
			b.Limit("The selected root has no child entries.")
			return b
		}, summary: Summary{Unchanged: 1}, wantLimit: "Right: The selected root has no child entries."},
		{name: "added", left: nil, right: []Entry{file("a", "1")}, status: VerdictChanged, rows: []string{"added a: [content]"}, summary: Summary{Added: 1, Unchanged: 1}},
		{name: "removed", left: []Entry{file("a", "1")}, status: VerdictChanged, rows: []string{"removed a: [content]"}, summary: Summary{Removed: 1, Unchanged: 1}},
		{name: "one side while coverage is unknown", right: []Entry{file("a", "1")}, rmod: unknown, status: VerdictUnknown,
			rows: []string{"unknown a: [availability]"}, summary: Summary{Unknown: 2}, wantLimit: "Right: the inventory did not see everything in its scope."},
		{name: "identical and both incomplete", left: []Entry{file("a", "1")}, right: []Entry{file("a", "1")}, lmod: unknown, rmod: unknown,
			status: VerdictUnknown, summary: Summary{Unknown: 2}, wantLimit: "Left: pipe: fifo, not opened"},
		{name: "different scopes", lmod: scope(ScopeRoot), rmod: scope(ScopeEntries), status: VerdictUnknown, summary: Summary{Unknown: 1},
			wantLimit: "The inventories have different scopes."},
		{name: "a change while coverage is unknown", left: []Entry{file("a", "1")}, right: []Entry{file("a", "2")}, lmod: unknown,
			status: VerdictUnknown, rows: []string{"changed a: [content relations]"}, summary: Summary{Changed: 1, Unknown: 1}},
		{name: "mismatch on both sides with equal bytes", left: []Entry{bad}, right: []Entry{bad}, status: VerdictContradiction,
			rows: []string{"contradiction m: [integrity]"}, summary: Summary{Contradiction: 1, Unchanged: 1}},
		{name: "mismatch on one side", left: []Entry{bad}, right: []Entry{file("m", "bytes")}, status: VerdictContradiction,
			rows: []string{"contradiction m: [integrity]"}, summary: Summary{Contradiction: 1, Unchanged: 1}},
		{name: "contradiction before unknown", left: []Entry{bad, unread}, right: []Entry{bad, unread}, lmod: unknown, status: VerdictContradiction,
			rows: []string{"contradiction m: [integrity]", "unknown u: [availability]"}, summary: Summary{Contradiction: 1, Unknown: 2}},
		{name: "not hashed", left: []Entry{unread}, right: []Entry{unread}, status: VerdictUnknown, rows: []string{"unknown u: [availability]"},
			summary: Summary{Unknown: 1, Unchanged: 1}},
		{name: "unread on one side", left: []Entry{unread}, right: []Entry{file("u", "1")}, status: VerdictUnknown,
			rows: []string{"unknown u: [availability]"}, summary: Summary{Unknown: 1, Unchanged: 1}},
		{name: "links to the same", left: []Entry{link("a")}, right: []Entry{link("a")}, status: VerdictUnchanged, summary: Summary{Unchanged: 2}},
		{name: "a link leads elsewhere", left: []Entry{link("a")}, right: []Entry{link("b")}, status: VerdictChanged,
			rows: []string{"changed l: [metadata]"}, summary: Summary{Changed: 1, Unchanged: 1}},
		{name: "a link's target ends in the sentence of another", left: []Entry{link(`a".`)}, right: []Entry{link("a")}, status: VerdictChanged,
			rows: []string{"changed l: [metadata]"}, summary: Summary{Changed: 1, Unchanged: 1}},
		{name: "a link becomes executable", left: []Entry{link("a")}, right: []Entry{with(link("a"), func(e *Entry) { e.Executable = true })}, status: VerdictChanged,
			rows: []string{"changed l: [executable]"}, summary: Summary{Changed: 1, Unchanged: 1}},
		{name: "links without a target", left: []Entry{blind}, right: []Entry{blind}, status: VerdictUnknown,
			rows: []string{"unknown l: [availability]"}, summary: Summary{Unknown: 1, Unchanged: 1}},
		{name: "a target on one side", left: []Entry{link("a")}, right: []Entry{blind}, status: VerdictUnknown,
			rows: []string{"unknown l: [availability]"}, summary: Summary{Unknown: 1, Unchanged: 1}},
		{name: "targets that were not kept whole", left: []Entry{long}, right: []Entry{long}, status: VerdictUnknown,
			rows: []string{"unknown l: [availability]"}, summary: Summary{Unknown: 1, Unchanged: 1}},
		{name: "a link takes a file's place", left: []Entry{file("l", "1")}, right: []Entry{link("a")}, status: VerdictUnknown,
			rows: []string{"unknown l: [availability]"}, summary: Summary{Unknown: 1, Unchanged: 1}},
		{name: "a link comes", right: []Entry{link("a")}, status: VerdictChanged, rows: []string{"added l: [content]"}, summary: Summary{Added: 1, Unchanged: 1}},
		{name: "a link goes", left: []Entry{link("a")}, status: VerdictChanged, rows: []string{"removed l: [content]"}, summary: Summary{Removed: 1, Unchanged: 1}},
		{name: "executable bit", left: []Entry{file("run.sh", "1")}, right: []Entry{with(file("run.sh", "1"), func(e *Entry) { e.Executable = true })},
			status: VerdictChanged, rows: []string{"changed run.sh: [executable]"}, summary: Summary{Changed: 1, Unchanged: 1}},
		{name: "role", left: []Entry{file("a", "1")}, right: []Entry{with(file("a", "1"), func(e *Entry) { e.Kind = KindUnknown })},
			status: VerdictChanged, rows: []string{"changed a: [kind]"}, summary: Summary{Changed: 1, Unchanged: 1}},
		{name: "format of the place", left: []Entry{file("a", "1")}, right: []Entry{with(file("a", "1"), func(e *Entry) { e.OccurrenceFormat = FormatPlist })},
			status: VerdictChanged, rows: []string{"changed a: [format]"}, summary: Summary{Changed: 1, Unchanged: 1}},
		{name: "format of the content", left: []Entry{file("a", "1")}, right: []Entry{with(file("a", "1"), func(e *Entry) { e.Format, e.OccurrenceFormat = FormatUnknown, FormatFile })},
			status: VerdictChanged, rows: []string{"changed a: [format]"}, summary: Summary{Changed: 1, Unchanged: 1}},
		{name: "media type", left: []Entry{file("a", "1")}, right: []Entry{with(file("a", "1"), func(e *Entry) { e.MediaType = "text/plain" })},
			status: VerdictChanged, rows: []string{"changed a: [metadata]"}, summary: Summary{Changed: 1, Unchanged: 1}},
		{name: "architecture", left: []Entry{file("a", "1")}, right: []Entry{with(file("a", "1"), func(e *Entry) { e.Architecture = "arm64" })},
			status: VerdictChanged, rows: []string{"changed a: [metadata]"}, summary: Summary{Changed: 1, Unchanged: 1}},
		{name: "encrypted flag", left: []Entry{file("a", "1")}, right: []Entry{with(file("a", "1"), func(e *Entry) { e.Encrypted = true })},
			status: VerdictChanged, rows: []string{"changed a: [metadata]"}, summary: Summary{Changed: 1, Unchanged: 1}},
		{name: "limitation of the place", left: []Entry{file("a", "1")}, right: []Entry{with(file("a", "1"), func(e *Entry) { e.Limitations = []string{"x"} })},
			status: VerdictChanged, rows: []string{"changed a: [metadata]"}, summary: Summary{Changed: 1, Unchanged: 1}},
		{name: "limitation of the content", left: []Entry{file("a", "1")}, right: []Entry{with(file("a", "1"), func(e *Entry) { e.NodeLimitations = []string{"x"} })},
			status: VerdictChanged, rows: []string{"changed a: [metadata]"}, summary: Summary{Changed: 1, Unchanged: 1}},
		{name: "a source map gets its script", left: []Entry{file("x.js.map", "m")}, right: []Entry{file("x.js", "s"), file("x.js.map", "m")},
			status: VerdictChanged, rows: []string{"added x.js: [content]", "changed x.js.map: [relations]"}, summary: Summary{Added: 1, Changed: 1, Unchanged: 1}},
		{name: "compressed size, place and declared size are not compared", left: []Entry{file("a", "1")},
			right:  []Entry{with(file("a", "1"), func(e *Entry) { e.CompressedSize, e.DeclaredSize, e.Source = SizeOf(9), Size{}, &Range{1, 2} })},
			status: VerdictUnchanged, summary: Summary{Unchanged: 2}},
		{name: "a file becomes a directory", left: []Entry{file("a", "1")}, right: []Entry{file("a/b", "2")}, status: VerdictChanged,
			rows: []string{"changed a: [content kind format size relations metadata]", "added a/b: [content]"}, summary: Summary{Changed: 1, Added: 1, Unchanged: 1}},
		{name: "a file stays and a directory of its name comes", left: []Entry{file("a", "1")}, right: []Entry{file("a", "1"), file("a/b", "2")}, status: VerdictChanged,
			rows: []string{"added a: [content]", "added a/b: [content]"}, summary: Summary{Added: 2, Unchanged: 2}},
		{name: "repeated names match by ordinal", left: []Entry{file("a", "1"), file("a", "2"), file("a", "3")}, right: []Entry{file("a", "3"), file("a", "2")},
			status: VerdictChanged, rows: []string{"changed a: [content relations]", "removed a: [content]"}, summary: Summary{Changed: 1, Removed: 1, Unchanged: 2}},
		{name: "names that differ by case do not match", left: []Entry{file("Sink", "1"), file("sink", "2")}, right: []Entry{file("Sink", "2"), file("sink", "1")},
			status: VerdictChanged, rows: []string{"changed Sink: [content relations]", "changed sink: [content relations]"}, summary: Summary{Changed: 2, Unchanged: 1}},
		{name: "move", left: []Entry{file("a", "1")}, right: []Entry{file("b", "1")}, status: VerdictChanged,
			rows: []string{"removed a: [content]", "added b: [content]"}, summary: Summary{Added: 1, Removed: 1, Unchanged: 1}, moves: []string{"a > b"}},
		{name: "no move when a copy comes", left: []Entry{file("a", "1")}, right: []Entry{file("b", "1"), file("c", "1")}, status: VerdictChanged,
			rows: []string{"removed a: [content]", "added b: [content]", "added c: [content]"}, summary: Summary{Added: 2, Removed: 1, Unchanged: 1}},
		{name: "a directory does not move", left: []Entry{{Path: "a", EntryKind: EntryDirectory}}, right: []Entry{{Path: "b", EntryKind: EntryDirectory}}, status: VerdictChanged,
			rows: []string{"removed a: [content]", "added b: [content]"}, summary: Summary{Added: 1, Removed: 1, Unchanged: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.lmod == nil {
				tt.lmod = plain
			}
			if tt.rmod == nil {
				tt.rmod = plain
			}
			left := inventoryRecord(t, finish(t, tt.lmod(archive(t, "root", tt.left...))))
			right := inventoryRecord(t, finish(t, tt.rmod(archive(t, "root", tt.right...))))
			got := compared(t, left, right)
			if got.Status != tt.status {
				t.Errorf("status %s, want %s", got.Status, tt.status)
			}
			if diff := cmp.Diff(append([]string{}, tt.rows...), got.rows()); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(tt.summary, got.Summary); diff != "" {
				t.Error(diff)
			}
			if tt.wantLimit != "" && !slices.Contains(got.Limitations, tt.wantLimit) {
				t.Errorf("%q is not among %q", tt.wantLimit, got.Limitations)
			}
			var moves []string
			for _, m := range got.Moves {
				moves = append(moves, m.LeftPath+" > "+m.RightPath)
			}
			if diff := cmp.Diff(tt.moves, moves); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestCompareRootExecutable: equal content with another executable bit gives one entry, the root's.
func TestCompareRootExecutable(t *testing.T) {
	build := func(executable bool) *evidence.Record {
		b := NewBuilder(Root{Format: FormatFile, Executable: executable})
		b.SetContent(0, *content("text"))
		return inventoryRecord(t, finish(t, b))
	}
	got := compared(t, build(false), build(true))
	if diff := cmp.Diff([]string{"changed .: [executable]"}, got.rows()); diff != "" || got.Status != VerdictChanged {
		t.Error(got.Status, diff)
	}
}

// oracle is the contract's table and arithmetic in the plainest form, over decoded JSON: maps, no order, no streams.
// It knows inventories whose paths do not repeat.
func oracle(t testing.TB, left, right []byte) (Verdict, Summary, []string) {
	type inventory struct {
		Manifest    Manifest
		Coverage    Coverage
		Nodes       []Node
		Occurrences []Occurrence
		Edges       []Edge
	}
	var sides [2]inventory
	places, nodes := [2]map[string]Occurrence{}, [2]map[string]Node{}
	related := [2]map[string][]string{}
	for i, raw := range [][]byte{left, right} {
		if err := json.Unmarshal(raw, &sides[i]); err != nil {
			t.Fatal(err)
		}
		places[i], nodes[i], related[i] = map[string]Occurrence{}, map[string]Node{}, map[string][]string{}
		byID, byArtifact := map[string]Occurrence{}, map[string]string{}
		for _, n := range sides[i].Nodes {
			nodes[i][n.ArtifactID] = n
		}
		for _, o := range sides[i].Occurrences {
			places[i][o.LogicalPath], byID[o.OccurrenceID] = o, o
			if o.ArtifactID != nil {
				byArtifact[o.LogicalPath] = *o.ArtifactID
			}
		}
		for _, e := range sides[i].Edges {
			o := byID[e.OccurrenceID]
			from := byID[*o.ParentOccurrenceID].LogicalPath
			if e.Relation == RelationMapsSource {
				if sibling := o.LogicalPath[:len(o.LogicalPath)-4]; byArtifact[sibling] == e.ParentArtifactID && places[i][sibling].EntryKind == EntryFile {
					from = sibling
				}
			}
			related[i][o.LogicalPath] = append(related[i][o.LogicalPath], fmt.Sprint(from, *o.ArtifactID, e.Relation, o.LogicalPath, e.Producer))
		}
	}
	covered := sides[0].Coverage == sides[1].Coverage && sides[0].Coverage.Status == CoverageComplete
	union := map[string]bool{}
	for i := range places {
		for p := range places[i] {
			union[p] = true
		}
	}
	var s Summary
	var rows []string
	paths := make([]string, 0, len(union))
	for p := range union {
		paths = append(paths, p)
	}
	slices.Sort(paths)
	for _, p := range paths {
		l, inLeft := places[0][p]
		r, inRight := places[1][p]
		say := func(class Classification, count *int64, dims ...Dimension) {
			*count++
			rows = append(rows, fmt.Sprintf("%s %s: %v", class, p, dims))
		}
		switch {
		case !inLeft && covered:
			say(Added, &s.Added, DimensionContent)
			continue
		case !inRight && covered:
			say(Removed, &s.Removed, DimensionContent)
			continue
		case !inLeft || !inRight:
			say(Unknown, &s.Unknown, DimensionAvailability)
			continue
		case l.HashStatus == HashMismatched || r.HashStatus == HashMismatched:
			say(Contradicted, &s.Contradiction, DimensionIntegrity)
			continue
		case l.EntryKind == EntrySymlink && r.EntryKind == EntrySymlink && leads(l) && leads(r):
		case l.HashStatus != HashVerified || r.HashStatus != HashVerified:
			say(Unknown, &s.Unknown, DimensionAvailability)
			continue
		}
		ln, rn := nodes[0][contentOf(l)], nodes[1][contentOf(r)]
		var dims []Dimension
		differ := func(d Dimension, a, b any) {
			if !cmp.Equal(a, b) {
				dims = append(dims, d)
			}
		}
		differ(DimensionContent, ln.SHA256, rn.SHA256)
		differ(DimensionKind, l.ArtifactKind, r.ArtifactKind)
		differ(DimensionFormat, []Format{ln.Format, l.ArtifactFormat}, []Format{rn.Format, r.ArtifactFormat})
		differ(DimensionSize, ln.Size, rn.Size)
		differ(DimensionExecutable, l.Executable, r.Executable)
		slices.Sort(related[0][p])
		slices.Sort(related[1][p])
		differ(DimensionRelations, related[0][p], related[1][p])
		differ(DimensionMetadata,
			[]any{ln.MediaType, ln.Architecture, ln.ContentState, ln.Limitations, l.EntryKind, l.Encrypted, l.Limitations},
			[]any{rn.MediaType, rn.Architecture, rn.ContentState, rn.Limitations, r.EntryKind, r.Encrypted, r.Limitations})
		if dims != nil {
			say(Changed, &s.Changed, dims...)
		}
	}
	counted := s.Unknown
	if covered {
		s.Unchanged = int64(len(places[0])) - s.Removed - s.Changed - s.Contradiction - s.Unknown
	} else {
		s.Unknown = max(s.Unknown, max(sides[0].Manifest.OccurrenceCount, sides[1].Manifest.OccurrenceCount)-s.Changed-s.Contradiction)
	}
	switch {
	case s.Contradiction > 0:
		return VerdictContradiction, s, rows
	case !covered || counted > 0:
		return VerdictUnknown, s, rows
	case len(rows) == 0:
		return VerdictUnchanged, s, rows
	}
	return VerdictChanged, s, rows
}

// leads reports whether a link's target was recorded, by the sentence that readers write.
func leads(o Occurrence) bool {
	return slices.ContainsFunc(o.Limitations, func(l string) bool {
		return strings.HasPrefix(l, "It is a symbolic link, not followed; its recorded target is ") && strings.HasSuffix(l, ".")
	})
}

func contentOf(o Occurrence) string {
	if o.ArtifactID == nil {
		return ""
	}
	return *o.ArtifactID
}

// swapped is what a result must be with its sides exchanged.
func swapped(r result) result {
	s := r
	s.LeftManifestID, s.RightManifestID = r.RightManifestID, r.LeftManifestID
	s.Summary.Added, s.Summary.Removed = r.Summary.Removed, r.Summary.Added
	s.Changes = []changeRow{}
	for _, c := range r.Changes {
		c.LeftOcc, c.RightOcc, c.LeftArt, c.RightArt = c.RightOcc, c.LeftOcc, c.RightArt, c.LeftArt
		c.EvidenceLinks = []string{c.EvidenceLinks[1], c.EvidenceLinks[0]}
		switch c.Classification {
		case Added:
			c.Classification = Removed
		case Removed:
			c.Classification = Added
		}
		s.Changes = append(s.Changes, c)
	}
	s.Moves = []moveRow{}
	for _, m := range r.Moves {
		s.Moves = append(s.Moves, moveRow{m.ArtifactID, m.RightPath, m.LeftPath, m.RightOcc, m.LeftOcc})
	}
	return s
}

// sortMoves puts moves between repeated names, whose order among themselves means nothing, into a fixed order.
func sortMoves(list []moveRow) {
	slices.SortFunc(list, func(a, b moveRow) int {
		return strings.Compare(a.LeftPath+"\x00"+a.LeftOcc, b.LeftPath+"\x00"+b.LeftOcc)
	})
}

// TestCompareRandom holds comparisons of random graphs against the oracle, and each against itself turned round.
func TestCompareRandom(t *testing.T) {
	seen := map[Verdict]int{}
	for seed := range uint64(40) {
		directory, unique := seed%3 == 0, seed%2 == 0
		a, b := finish(t, randomGraph(t, seed, directory, unique)), finish(t, randomGraph(t, seed+1, directory, unique))
		left, right := inventoryRecord(t, a), inventoryRecord(t, b)
		got, back := compared(t, left, right), compared(t, right, left)
		if unique {
			status, summary, rows := oracle(t, a, b)
			if diff := cmp.Diff([]any{status, summary, rows}, []any{got.Status, got.Summary, got.rows()}); diff != "" {
				t.Fatalf("seed %d: %s", seed, diff)
			}
			seen[status]++
		}
		if !slices.IsSortedFunc(got.Moves, func(a, b moveRow) int { return strings.Compare(a.LeftPath, b.LeftPath) }) {
			t.Fatalf("seed %d: moves are not in the order of their paths", seed)
		}
		want := swapped(got)
		sortMoves(want.Moves)
		sortMoves(back.Moves)
		got.Limitations, want.Limitations, back.Limitations = nil, nil, nil
		if diff := cmp.Diff(want, back); diff != "" {
			t.Fatalf("seed %d: %s", seed, diff)
		}
	}
	t.Log(seen)
}

// TestCompareSelf compares graphs of readable entries with themselves.
func TestCompareSelf(t *testing.T) {
	for seed := range uint64(20) {
		var entries []Entry
		for i := range 50 {
			entries = append(entries, file(fmt.Sprintf("d%d/%d", i%int(seed+2), i), fmt.Sprint(i%7)))
		}
		r := inventoryRecord(t, finish(t, archive(t, fmt.Sprint(seed), entries...)))
		got := compared(t, r, r)
		if got.Status != VerdictUnchanged || len(got.Changes) > 0 || got.Summary.Changed > 0 {
			t.Fatalf("%+v", got)
		}
	}
}

// TestCompareContainers has containers of equal members that are arranged differently.
func TestCompareContainers(t *testing.T) {
	build := func(order []string, method string, comment *[32]byte, regions ...Region) *evidence.Record {
		b := archive(t, "root", file("a", "1"), file("b", "2"))
		a := NewArrangement()
		for _, p := range order {
			a.Add(p, method)
		}
		b.AddContainer(0, a.Container(comment, regions))
		return inventoryRecord(t, finish(t, b))
	}
	zeros, ones := strings.Repeat("0", 64), strings.Repeat("1", 64)
	base := build([]string{"a", "b"}, "stored", nil)
	for _, tt := range []struct {
		name string
		with *evidence.Record
		want []string
	}{
		{"equal", build([]string{"a", "b"}, "stored", nil), nil},
		{"order", build([]string{"b", "a"}, "stored", nil), []string{"order"}},
		{"order and method", build([]string{"b", "a"}, "deflated", nil), []string{"order", "method"}},
		{"method", build([]string{"a", "b"}, "deflated", nil), []string{"method"}},
		{"comment", build([]string{"a", "b"}, "stored", &[32]byte{1}), []string{"comment"}},
		{"prefix and tail", build([]string{"a", "b"}, "stored", nil, Region{Role: RegionPrefix, Length: 53, SHA256: zeros},
			Region{Role: RegionTail, Offset: 100, Length: 3, SHA256: ones}), []string{"prefix", "tail"}},
		{"gap", build([]string{"a", "b"}, "stored", nil, Region{Role: RegionGap, Offset: 3, Length: 53, SHA256: zeros}), []string{"gap"}},
	} {
		got := compared(t, base, tt.with)
		var aspects []string
		for _, d := range got.ContainerDifferences {
			if d.LogicalPath != "." {
				t.Errorf("%s: %s", tt.name, d.LogicalPath)
			}
			aspects = append(aspects, d.Aspects...)
		}
		if diff := cmp.Diff(tt.want, aspects); diff != "" || got.Status != VerdictUnchanged {
			t.Errorf("%s: %s %s", tt.name, got.Status, diff)
		}
	}
}

// TestComparePartial compares a record that lacks members, as pages of older producers could be.
func TestComparePartial(t *testing.T) {
	full := inventoryRecord(t, canonical(t, vectorInventory))
	var v map[string]json.RawMessage
	if err := json.Unmarshal([]byte(vectorInventory), &v); err != nil {
		t.Fatal(err)
	}
	cut := func(key string, keep ...int) string {
		var list []json.RawMessage
		if err := json.Unmarshal(v[key], &list); err != nil {
			t.Fatal(err)
		}
		var kept []json.RawMessage
		for _, i := range keep {
			kept = append(kept, list[i])
		}
		w := map[string]any{}
		for k, raw := range v {
			w[k] = raw
		}
		w[key] = kept
		raw, err := json.Marshal(w)
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	for _, tt := range []struct {
		name, raw string
		rows      []string
		summary   Summary
	}{
		{"an occurrence", cut("occurrences", 0, 1), []string{"unknown docs/a.txt: [availability]"}, Summary{Unknown: 3}},
		{"a node", cut("nodes", 0, 2), []string{"unknown docs/a.txt: [availability]"}, Summary{Unknown: 3}},
		{"an edge", cut("edges", 0), []string{"changed docs/a.txt: [relations]"}, Summary{Changed: 1, Unknown: 2}},
	} {
		got := compared(t, full, recordOf(t, tt.raw))
		if diff := cmp.Diff([]any{VerdictTruncated, tt.rows, tt.summary}, []any{got.Status, got.rows(), got.Summary}); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
		if !slices.Contains(got.Limitations, "Right: "+limitMembers) {
			t.Errorf("%s: %q", tt.name, got.Limitations)
		}
	}
}

// TestCompareOlder compares records without coverage and with edges as older producers wrote them.
func TestCompareOlder(t *testing.T) {
	full := inventoryRecord(t, canonical(t, vectorInventory))
	older := strings.Replace(vectorInventory, `,"coverage":{"scope":"container-entries","status":"complete"},"coverage_status":"complete"`, "", 1)
	legacy := strings.Replace(vectorInventory, `"coverage":{"scope":"container-entries","status":"complete"},`, "", 1)
	repeated := strings.Replace(vectorInventory, `"relation":"contains","occurrence_id":"occ_e0e`,
		`"relation":"contains","child_artifact_id":"art_a950389b19d54f4300ed4f346db72de986c74f54d8e3830a685addcbc99f9f2f","logical_path":"docs/a.txt","occurrence_id":"occ_e0e`, 1)
	for _, tt := range []struct {
		name, raw string
		want      Verdict
	}{
		{"no coverage and nothing said", older, VerdictUnchanged},
		{"coverage_status alone", legacy, VerdictUnchanged},
		{"coverage_status partial", strings.Replace(legacy, `"coverage_status":"complete"`, `"coverage_status":"partial"`, 1), VerdictUnknown},
		{"a known notice", strings.Replace(older, `"integrity_contradictions":[],"limitations":[]`, `"integrity_contradictions":[],"limitations":["Only central-directory members of a ZIP are occurrences."]`, 1), VerdictUnchanged},
		{"an unknown limitation", strings.Replace(older, `"integrity_contradictions":[],"limitations":[]`, `"integrity_contradictions":[],"limitations":["Something else."]`, 1), VerdictUnknown},
		{"typed coverage does not care for text", strings.Replace(vectorInventory, `"integrity_contradictions":[],"limitations":[]`, `"integrity_contradictions":[],"limitations":["Something else."]`, 1), VerdictUnchanged},
	} {
		got := compared(t, full, recordOf(t, tt.raw))
		if got.Status != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got.Status, tt.want)
		}
	}
	// An edge that repeats its child changes the graph's digest, so the record is honest only with another manifest.
	_, err := Compare(t.Context(), full, recordOf(t, repeated), evidence.Memory{})
	if !isCode(err, fault.EvidenceIntegrityMismatch) {
		t.Errorf("%v", err)
	}
	if got := compared(t, full, recordOf(t, remanifest(t, repeated))); got.Status != VerdictUnchanged {
		t.Errorf("repeated child: %s %v", got.Status, got.rows())
	}
	loads := rerelate(t, vectorInventory, 1, RelationLoads)
	if got := compared(t, full, recordOf(t, loads)); !slices.Equal(got.rows(), []string{"changed docs/a.txt: [relations]"}) {
		t.Errorf("foreign relation: %s %v", got.Status, got.rows())
	}
}

// remanifest recomputes graph_sha256 and manifest_id of a changed result, with the generic encoder.
func remanifest(t testing.TB, raw string) string {
	t.Helper()
	v := meaning(t, []byte(raw)).(map[string]any)
	graph, err := evidence.Digest(map[string]any{"nodes": v["nodes"], "occurrences": v["occurrences"], "edges": v["edges"],
		"integrity_contradictions": v["integrity_contradictions"]})
	if err != nil {
		t.Fatal(err)
	}
	m := v["manifest"].(map[string]any)
	m["graph_sha256"] = graph
	manifest, err := evidence.Digest(map[string]any{"root_artifact_id": m["root_artifact_id"], "graph_sha256": graph})
	if err != nil {
		t.Fatal(err)
	}
	m["manifest_id"] = "agm_" + manifest
	for _, key := range []string{"node", "occurrence", "edge"} {
		m[key+"_count"] = len(v[key+"s"].([]any))
	}
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// rerelate gives an edge another relation, with the identities and the order that follow.
func rerelate(t testing.TB, raw string, i int, r Relation) string {
	t.Helper()
	v := meaning(t, []byte(raw)).(map[string]any)
	edges := v["edges"].([]any)
	e := edges[i].(map[string]any)
	e["relation"] = string(r)
	for _, o := range v["occurrences"].([]any) {
		o := o.(map[string]any)
		if o["occurrence_id"] != e["occurrence_id"] {
			continue
		}
		d, err := evidence.Digest(map[string]any{"parent_artifact_id": e["parent_artifact_id"], "child_artifact_id": o["artifact_id"],
			"relation": e["relation"], "occurrence_id": e["occurrence_id"], "logical_path": o["logical_path"]})
		if err != nil {
			t.Fatal(err)
		}
		e["edge_id"] = "edge_" + d
	}
	slices.SortFunc(edges, func(a, b any) int {
		return strings.Compare(a.(map[string]any)["edge_id"].(string), b.(map[string]any)["edge_id"].(string))
	})
	for n, e := range edges {
		e.(map[string]any)["ordinal"] = n
	}
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return remanifest(t, string(out))
}

// TestCompareRefuses has sides that must never lead to a verdict.
func TestCompareRefuses(t *testing.T) {
	full := inventoryRecord(t, canonical(t, vectorInventory))
	replace := func(old, new string) *evidence.Record {
		return recordOf(t, strings.Replace(vectorInventory, old, new, 1))
	}
	other := recordOf(t, vectorInventory)
	other.Operation, other.ID = "inspect_plist", ""
	if err := other.Seal(); err != nil {
		t.Fatal(err)
	}
	subject := recordOf(t, vectorInventory)
	subject.Subject.SHA256, subject.ID = strings.Repeat("0", 64), ""
	if err := subject.Seal(); err != nil {
		t.Fatal(err)
	}
	format := recordOf(t, vectorInventory)
	format.Subject.Format, format.ID = "apk", ""
	if err := format.Seal(); err != nil {
		t.Fatal(err)
	}
	damaged := recordOf(t, vectorInventory)
	damaged.Limitations = append(damaged.Limitations, "added after sealing")
	for _, tt := range []struct {
		name string
		rec  *evidence.Record
		code fault.Code
	}{
		{"another operation", other, fault.InvalidRequest},
		{"a subject that is not the root", subject, fault.EvidenceIntegrityMismatch},
		{"a subject of another format", format, fault.EvidenceIntegrityMismatch},
		{"a record changed after sealing", damaged, fault.EvidenceIntegrityMismatch},
		{"an artifact_id", replace(`"sha256":"5891b5b5`, `"sha256":"5891b5b6`), fault.EvidenceIntegrityMismatch},
		{"a path", replace(`"logical_path":"docs/a.txt"`, `"logical_path":"docs/b.txt"`), fault.EvidenceIntegrityMismatch},
		{"a graph fact", replace(`"declared_size":6`, `"declared_size":7`), fault.EvidenceIntegrityMismatch},
		{"a count that is too low", replace(`"node_count":3`, `"node_count":2`), fault.InvalidRequest},
		{"contradictory coverage", replace(`"coverage_status":"complete"`, `"coverage_status":"partial"`), fault.InvalidRequest},
		{"an unknown member", replace(`"provenance":[]`, `"provenance":[],"zzz":1`), fault.InvalidRequest},
	} {
		for _, pair := range [][2]*evidence.Record{{full, tt.rec}, {tt.rec, full}} {
			_, err := Compare(t.Context(), pair[0], pair[1], evidence.Memory{})
			if !isCode(err, tt.code) {
				t.Errorf("%s: %v, want %s", tt.name, err, tt.code)
			}
		}
	}
}

// TestCompareManyMoves: the list of moves is the same, in the order of the paths on the left, however many are put
// together at once. A directory was renamed, so its files are moved to where the order of their old names says.
func TestCompareManyMoves(t *testing.T) {
	var before, after []Entry
	var want []string
	for i := range 9 {
		before = append(before, file(fmt.Sprintf("old/%d", i), fmt.Sprint("content ", i)))
		after = append(after, file(fmt.Sprintf("new/%d", 8-i), fmt.Sprint("content ", i)))
		want = append(want, fmt.Sprintf("old/%d > new/%d", i, 8-i))
	}
	left, right := inventoryRecord(t, finish(t, archive(t, "root", before...))), inventoryRecord(t, finish(t, archive(t, "root", after...)))
	defer func(n int) { movesAtOnce = n }(movesAtOnce)
	for _, n := range []int{1, 2, 4, 8, 9, 10} {
		movesAtOnce = n
		var got []string
		for _, m := range compared(t, left, right).Moves {
			got = append(got, m.LeftPath+" > "+m.RightPath)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%d at once: %s", n, diff)
		}
	}
}
