package artifact

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"rea/evidence"
)

// sealed is what a graph's order and identities are, once nothing can be added.
type sealed struct {
	order       []Ref // occurrences by path, entry kind and order of adding
	artifacts   []sum // by Ref; zero without content
	occurrences []sum // by Ref
	nodes       []Ref // one entry for each distinct content, by artifact identity; the first of its places
	edges       []edge
	manifest    Manifest
}

type edge struct {
	id     sum
	parent sum
	ref    Ref
}

// Seal orders, links and identifies everything. Nothing can be added after it; a second call gives the same answer.
func (b *Builder) Seal(ctx context.Context) (Manifest, error) {
	if b.sealed != nil {
		return b.sealed.manifest, nil
	}
	n := b.rows.len()
	s := &sealed{artifacts: make([]sum, n), occurrences: make([]sum, n)}
	b.sealed = s
	steps := []func() error{
		b.settle, b.sort, b.number, b.digestDirectories, b.digestRoot, b.identify, b.collectNodes, b.relate, b.contradict,
		b.arrange, func() error { return b.conclude(ctx) },
	}
	for _, step := range steps {
		if err := context.Cause(ctx); err != nil {
			return Manifest{}, err
		}
		b.pulse()
		if err := step(); err != nil {
			return Manifest{}, err
		}
	}
	return s.manifest, nil
}

// settle decides each hash status from what was said.
func (b *Builder) settle() error {
	root := b.row(0)
	if root.kindOfEntry() != EntryDirectory && !root.has(flagContent) {
		return mistake("the root's content was never set")
	}
	for i := range b.rows.len() {
		b.rows.at(i).settle()
	}
	for _, d := range b.declared {
		if r := b.row(d.ref); r.has(flagContent) && r.content != d.SHA256 && !r.has(flagStatus) {
			r.status = uint8(index(hashStatuses, HashMismatched))
		}
	}
	return nil
}

func (r *row) settle() {
	status := HashUnavailable
	switch {
	case r.kindOfEntry() == EntryDirectory:
		status = HashVerified
		r.flags &^= flagStatus
	case r.has(flagContent):
		status = HashVerified
	case r.kindOfEntry() == EntrySymlink:
		status = HashNotHashed
	}
	if !r.has(flagStatus) {
		r.status = uint8(index(hashStatuses, status))
	}
	if s := hashStatuses[r.status]; s != HashVerified && s != HashMismatched {
		r.flags &^= flagContent
	}
}

// sort orders the occurrences.
func (b *Builder) sort() error {
	order := make([]Ref, b.rows.len())
	for i := range order {
		order[i] = Ref(i)
	}
	slices.SortFunc(order, func(x, y Ref) int {
		p, q := b.row(x), b.row(y)
		return cmp.Or(strings.Compare(p.path, q.path), cmp.Compare(p.entry, q.entry), cmp.Compare(x, y))
	})
	b.sealed.order = order
	return nil
}

// number gives ordinals to entries that share path and entry kind.
func (b *Builder) number() error {
	var last *row
	for _, ref := range b.sealed.order {
		r := b.row(ref)
		if last != nil && last.path == r.path && last.entry == r.entry {
			last.flags |= flagRepeats
			r.flags |= flagRepeats
			r.ordinal = last.ordinal + 1
		}
		last = r
	}
	return nil
}

// digestDirectories gives every directory below the root its digest, the deepest first: in the order of paths a
// directory comes before everything in it, so going backwards meets its children first.
func (b *Builder) digestDirectories() error {
	s := b.sealed
	first, next := make([]Ref, len(s.order)), make([]Ref, len(s.order)) // children as lists in order; 0 ends one
	var ids identifier
	var pre []byte
	for _, ref := range slices.Backward(s.order) {
		r := b.row(ref)
		if ref == 0 {
			continue
		}
		if r.kindOfEntry() == EntryDirectory {
			pre = b.directoryPreimage(pre[:0], first[ref], next)
			r.content, r.size = sha256.Sum256(pre), 0
			r.flags |= flagContent
		}
		if r.has(flagContent) {
			s.artifacts[ref] = ids.artifact(r.content)
		}
		next[ref], first[r.parent] = first[r.parent], ref
	}
	return nil
}

// directoryPreimage is the projection that a directory's digest is taken over: its children by name.
func (b *Builder) directoryPreimage(dst []byte, child Ref, next []Ref) []byte {
	dst = append(dst, `{"children":[`...)
	for begun := false; child != 0; child = next[child] {
		r := b.row(child)
		if begun {
			dst = append(dst, ',')
		}
		begun = true
		dst = append(dst, `{"artifact_id":`...)
		dst = appendArtifact(dst, b.sealed.artifacts[child], r.has(flagContent))
		dst = append(append(append(dst, `,"entry_kind":"`...), r.kindOfEntry()...), `","name":`...)
		dst = evidence.AppendString(dst, r.path[strings.LastIndexByte(r.path, '/')+1:])
		dst = append(dst, '}')
	}
	return append(dst, `],"kind":"directory"}`...)
}

func appendArtifact(dst []byte, s sum, known bool) []byte {
	if !known {
		return append(dst, "null"...)
	}
	dst = append(append(dst, '"'), prefixArtifact...)
	return append(hex.AppendEncode(dst, s[:]), '"')
}

// digestRoot gives a directory root its digest, over every other occurrence in order.
func (b *Builder) digestRoot() error {
	root := b.row(0)
	var ids identifier
	if root.kindOfEntry() == EntryDirectory {
		d := newRootDigest()
		var path []byte
		for _, ref := range b.sealed.order {
			if ref == 0 {
				continue
			}
			r := b.row(ref)
			path = evidence.AppendString(path[:0], r.path)
			d.add(path, b.sealed.artifacts[ref], r.has(flagContent))
		}
		root.content, root.size = d.sum(), 0
		root.declared, root.compressed = 0, 0
		root.flags |= flagContent
	}
	b.sealed.artifacts[0] = ids.artifact(root.content)
	return nil
}

// identify computes the identities of all occurrences.
func (b *Builder) identify() error {
	s := b.sealed
	var ids identifier
	var path []byte
	for i := range s.occurrences {
		r := b.rows.at(i)
		path = evidence.AppendString(path[:0], r.path)
		s.occurrences[i] = ids.occurrence(s.artifacts[0], path, r.kindOfEntry(), int64(r.ordinal))
	}
	s.occurrences[0] = ids.root(s.artifacts[0])
	return nil
}

// collectNodes picks one place for each distinct content. The root stands for its own; otherwise the first place in
// order does, which makes the node's facts independent of the order of adding.
func (b *Builder) collectNodes() error {
	s := b.sealed
	nodes := append(make([]Ref, 0, len(s.order)), 0)
	for _, ref := range s.order {
		if ref != 0 && b.row(ref).has(flagContent) {
			nodes = append(nodes, ref)
		}
	}
	slices.SortStableFunc(nodes, func(x, y Ref) int { return bytes.Compare(s.artifacts[x][:], s.artifacts[y][:]) })
	s.nodes = slices.CompactFunc(nodes, func(x, y Ref) bool {
		same := s.artifacts[x] == s.artifacts[y]
		if same && b.row(y).notes > 0 {
			b.mergeNotes(x, y)
		}
		return same
	})
	return nil
}

// mergeNotes adds what was said of a content at another of its places.
func (b *Builder) mergeNotes(kept, other Ref) {
	for _, text := range b.notesOf(other).content {
		n := b.noted(kept)
		n.content = appendNote(n.content, text)
	}
}

// above is the artifact that an occurrence stands in: that of its parent or, where the parent's bytes are unknown, of
// the nearest one above it that has some. The root has.
func (b *Builder) above(ref Ref) sum {
	at := b.row(ref).parent
	for !b.row(at).has(flagContent) {
		at = b.row(at).parent
	}
	return b.sealed.artifacts[at]
}

// relate makes the edge of every occurrence that has content.
func (b *Builder) relate() error {
	s := b.sealed
	s.edges = make([]edge, 0, len(s.order)-1)
	var ids identifier
	var quoted []byte
	for _, ref := range s.order {
		r := b.row(ref)
		if ref == 0 || !r.has(flagContent) {
			continue
		}
		relation, sibling := relate(r.path, r.kindOfEntry())
		parent := b.above(ref)
		if sibling {
			parent = b.mapped(r.path, parent)
		}
		quoted = evidence.AppendString(quoted[:0], r.path)
		s.edges = append(s.edges, edge{ids.edge(parent, s.artifacts[ref], relation, s.occurrences[ref], quoted), parent, ref})
	}
	slices.SortFunc(s.edges, func(x, y edge) int { return bytes.Compare(x.id[:], y.id[:]) })
	return nil
}

// mapped is the artifact that a source map describes: the first file at its path without .map, if it has content.
func (b *Builder) mapped(path string, otherwise sum) sum {
	path = path[:len(path)-len(mapSuffix)]
	i, ok := slices.BinarySearchFunc(b.sealed.order, path, func(ref Ref, path string) int {
		r := b.row(ref)
		return cmp.Or(strings.Compare(r.path, path), cmp.Compare(entryKinds[r.entry], EntryFile))
	})
	if !ok {
		return otherwise
	}
	if ref := b.sealed.order[i]; ref != 0 && b.row(ref).has(flagContent) {
		return b.sealed.artifacts[ref]
	}
	return otherwise
}

// What every contradiction says.
const (
	limitMismatch = "The bytes do not have the digest that the container declares for them; they are kept apart and nothing was derived from their content."
	limitUnpacked = "Packagers often sign or strip unpacked companions after the header was written, and Electron does not check them when it runs."
)

// contradict writes one record for each entry whose bytes are not those that were declared.
func (b *Builder) contradict() error {
	said := 0
	for _, d := range b.declared {
		if hashStatuses[b.row(d.ref).status] != HashMismatched {
			continue
		}
		said++
		b.contradictions = append(b.contradictions, b.contradiction(d))
	}
	mismatched := 0
	for i := range b.rows.len() {
		if hashStatuses[b.rows.at(i).status] == HashMismatched {
			mismatched++
		}
	}
	if said != mismatched {
		return mistake("%d entries are mismatched and %d have a declared digest", mismatched, said)
	}
	slices.SortFunc(b.contradictions, func(x, y Contradiction) int {
		return cmp.Or(strings.Compare(x.ContradictionID, y.ContradictionID), strings.Compare(x.OccurrenceID, y.OccurrenceID))
	})
	return nil
}

func (b *Builder) contradiction(d declared) Contradiction {
	r := b.row(d.ref)
	var ids identifier
	limitations := []string{limitMismatch}
	if d.Unpacked {
		limitations = append(limitations, limitUnpacked)
	}
	if d.Limitation != "" {
		limitations = append(limitations, clip(d.Limitation, maxNoteBytes))
	}
	path := evidence.AppendString(nil, r.path)
	return Contradiction{
		ContradictionID: id(prefixContradiction, ids.contradiction(b.sealed.artifacts[0], path, d.SHA256, r.content)),
		DeclaredSHA256:  hex.EncodeToString(d.SHA256[:]), EntryKind: r.kindOfEntry(), Limitations: limitations,
		LogicalPath: r.path, ObservedSHA256: hex.EncodeToString(r.content[:]), OccurrenceID: b.OccurrenceID(d.ref),
		ParentArtifactID: id(prefixArtifact, b.above(d.ref)), Provenance: ContradictionProvenance,
		Trust: ContradictionTrust, Unpacked: d.Unpacked,
	}
}

// arrange gives the containers their identities and order.
func (b *Builder) arrange() error {
	for i, ref := range b.arranged {
		b.containers[i].OccurrenceID = b.OccurrenceID(ref)
	}
	slices.SortStableFunc(b.containers, func(x, y Container) int { return strings.Compare(x.OccurrenceID, y.OccurrenceID) })
	b.containers = slices.CompactFunc(b.containers, func(x, y Container) bool { return x.OccurrenceID == y.OccurrenceID })
	return nil
}

// conclude hashes the graph and names it.
func (b *Builder) conclude(ctx context.Context) error {
	s := b.sealed
	h := sha256.New()
	e := b.encoder(ctx, h)
	e.text(`{"edges":`)
	b.writeEdges(e)
	e.text(`,"integrity_contradictions":`)
	b.writeContradictions(e, b.contradictions)
	e.text(`,"nodes":`)
	b.writeNodes(e)
	e.text(`,"occurrences":`)
	b.writeOccurrences(e)
	if err := e.text(`}`).flush(); err != nil {
		return err
	}
	var ids identifier
	graph := sum(h.Sum(nil))
	s.manifest = Manifest{
		EdgeCount: int64(len(s.edges)), GraphSHA256: hex.EncodeToString(graph[:]),
		ManifestID: id(prefixManifest, ids.manifest(s.artifacts[0], graph)),
		NodeCount:  int64(len(s.nodes)), OccurrenceCount: int64(len(s.order)), RootArtifactID: b.ArtifactID(0),
		RootFormat: formats[b.row(0).place], RootSHA256: hex.EncodeToString(b.row(0).content[:]),
	}
	return nil
}

// rootDigest is the digest of a directory root as a stream over its other occurrences.
type rootDigest struct {
	h    hashWriter
	buf  []byte
	some bool
}

func newRootDigest() *rootDigest {
	d := &rootDigest{h: newHashWriter()}
	d.h.text(`{"children":[`)
	return d
}

// add takes the next occurrence; path is a JSON string.
func (d *rootDigest) add(path []byte, artifact sum, known bool) {
	d.buf = d.buf[:0]
	if d.some {
		d.buf = append(d.buf, ',')
	}
	d.some = true
	d.buf = append(d.buf, `{"artifact_id":`...)
	d.buf = appendArtifact(d.buf, artifact, known)
	d.buf = append(append(append(d.buf, `,"logical_path":`...), path...), '}')
	d.h.write(d.buf)
}

func (d *rootDigest) sum() sum {
	d.h.text(`],"kind":"directory-root"}`)
	return d.h.sum()
}
