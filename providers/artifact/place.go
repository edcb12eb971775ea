package artifact

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// foreignEdge is an edge of a record that does not follow the contract's rule, kept until its occurrence comes.
type foreignEdge struct {
	id, parent, child sum
	repeated          bool // child and path stand in the edge
	path              string
	relation          Relation
	producer          string // as it is written
}

// readEdges folds the edges, or keeps them. It does not know yet what they are about.
func (s *scan) readEdges() error {
	var last sum
	n := int64(0)
	err := s.list("edges", `{"edges":[`, func(i int64, _ []byte, c *cursor) error {
		e, occurrence := s.readEdge(c, i)
		if !c.ok() {
			return nil
		}
		if i > 0 && bytes.Compare(last[:], e.id[:]) >= 0 {
			return wrong("edges are not in the order of their identities")
		}
		last, n = e.id, i+1
		if e.repeated && s.rule.own {
			return wrong("an edge repeats what stands in its occurrence")
		}
		if s.rule.foreign {
			s.edges[occurrence] = append(s.edges[occurrence], e)
			s.unplaced++
			return nil
		}
		if e.producer != "null" || e.repeated {
			return s.foreign()
		}
		s.seen = s.fold(s.seen, e.id, e.parent, occurrence, e.relation)
		return nil
	})
	s.edgeCount = n
	return err
}

// foreign says that the edges do not follow the rule: an error of our own result, an assumption to give up for others.
func (s *scan) foreign() error {
	if s.rule.own {
		return &flaw{at: "edges", reason: errForeign.Error()}
	}
	return errForeign
}

func (s *scan) readEdge(c *cursor, ordinal int64) (e foreignEdge, occurrence sum) {
	c.text(`{`)
	if c.try(`"child_artifact_id":`) {
		e.child, e.repeated = c.id(prefixArtifact), true
		c.text(`,`)
	}
	e.id = c.text(`"edge_id":`).id(prefixEdge)
	if e.repeated {
		e.path = string(c.text(`,"logical_path":`).string())
	}
	occurrence = c.text(`,"occurrence_id":`).id(prefixOccurrence)
	if c.text(`,"ordinal":`); c.int() != ordinal {
		c.fail("the edge's place in the list as its ordinal")
	}
	e.parent = c.text(`,"parent_artifact_id":`).id(prefixArtifact)
	c.text(`,"producer":`)
	e.producer = "null"
	if !c.null() {
		e.producer = string(c.string())
	}
	e.relation = oneOf(c.text(`,"relation":`), relations)
	c.text(`}`)
	return e, occurrence
}

// fold adds one edge to a sum that does not depend on the order of the edges. The key is secret and random, so two
// different sets have equal sums with a probability of 2^-256. (A set hash in the manner of MSet-XOR-Hash.)
func (s *scan) fold(to, id, parent, occurrence sum, relation Relation) sum {
	var b [4*len(id) + 1]byte
	copy(b[:], s.key[:])
	copy(b[32:], id[:])
	copy(b[64:], parent[:])
	copy(b[96:], occurrence[:])
	b[128] = byte(index(relations, relation))
	h := sha256.Sum256(b[:])
	for i := range to {
		to[i] ^= h[i]
	}
	return to
}

func (s *scan) readContradictions() error {
	var lastID, lastOcc sum
	return s.list("integrity_contradictions", `,"integrity_contradictions":[`, func(i int64, _ []byte, c *cursor) error {
		k, row, occurrence := s.readContradiction(c)
		if !c.ok() {
			return nil
		}
		if s.rule.own && i > 0 && cmp.Or(bytes.Compare(lastID[:], row.id[:]), bytes.Compare(lastOcc[:], occurrence[:])) >= 0 {
			return wrong("contradictions are not in the order of their identities")
		}
		lastID, lastOcc = row.id, occurrence
		if _, ok := s.contradicted[occurrence]; ok {
			return wrong("an occurrence is contradicted twice")
		}
		s.contradicted[occurrence] = row
		s.inv.ContradictionCount++
		if i < MaxKept {
			s.inv.Contradictions = append(s.inv.Contradictions, k)
		}
		return nil
	})
}

func (s *scan) readContradiction(c *cursor) (k Contradiction, row contradictionRow, occurrence sum) {
	row.id = c.text(`{"contradiction_id":`).id(prefixContradiction)
	row.declared = c.text(`,"declared_sha256":`).id("")
	row.kind = oneOf(c.text(`,"entry_kind":`), []EntryKind{EntryFile, EntrySlice})
	limits, n := c.text(`,"limitations":`).strings()
	if n == 0 {
		c.fail("at least one limitation")
	}
	path := c.text(`,"logical_path":`).string()
	row.observed = c.text(`,"observed_sha256":`).id("")
	occurrence = c.text(`,"occurrence_id":`).id(prefixOccurrence)
	row.parent = c.text(`,"parent_artifact_id":`).id(prefixArtifact)
	c.text(`,"provenance":"` + ContradictionProvenance + `","trust":"` + ContradictionTrust + `"`)
	unpacked := c.text(`,"unpacked":`).bool()
	c.text(`}`)
	if !c.ok() {
		return k, row, occurrence
	}
	row.path = short(path)
	if s.keepPaths {
		row.quoted = bytes.Clone(path)
	}
	return Contradiction{
		ContradictionID: id(prefixContradiction, row.id), DeclaredSHA256: id("", row.declared), EntryKind: row.kind,
		Limitations: decodeStrings(limits), LogicalPath: string(unquote(nil, path)), ObservedSHA256: id("", row.observed),
		OccurrenceID: id(prefixOccurrence, occurrence), ParentArtifactID: id(prefixArtifact, row.parent),
		Provenance: ContradictionProvenance, Trust: ContradictionTrust, Unpacked: unpacked,
	}, row, occurrence
}

// decodeStrings decodes a list that cursor.strings returned.
func decodeStrings(raw []byte) []string {
	list := []string{}
	var c cursor
	c.reset(raw)
	for c.text("["); c.ok() && !c.try("]"); {
		if len(list) > 0 {
			c.text(",")
		}
		list = append(list, string(unquote(nil, c.string())))
	}
	return list
}

// frame is a path that is a prefix of the current one, as a string, and the occurrences at it that others can stand
// in. In the order of paths everything that has a prefix stands together, so frames are a stack.
type frame struct {
	length int // of the path
	places []place
	sorted bool
	file   sum  // artifact of the first file here
	mapped bool // which it has, so that a source map beside it can describe it
	seen   bool // a file was here
}

// place is an occurrence that others can stand in, and the artifact that their edges start from: its own or, where
// its bytes are unknown, the one from further out.
type place struct {
	occurrence, artifact sum
	known                bool
}

// next gives the following occurrence, nil after the last. It is valid until the next call. With the last one, what
// stands behind the list was read and everything was verified.
func (s *scan) next() (*occurrence, error) {
	if s.done {
		return nil, nil
	}
	more, err := s.element("occurrences", s.count, true, func(_ int64, _ []byte, c *cursor) error { return s.readOccurrence(c) })
	if err != nil {
		return nil, err
	}
	if !more {
		s.done = true
		return nil, s.tail()
	}
	s.count++
	return &s.occ, nil
}

// readOccurrence reads one and puts it in its place.
func (s *scan) readOccurrence(c *cursor) error {
	o := &s.occ
	*o = occurrence{ordinal: -1}
	o.format = oneOf(c.text(`{"artifact_format":`), formats)
	o.artifact, o.known = c.text(`,"artifact_id":`).idOr(prefixArtifact)
	o.role = oneOf(c.text(`,"artifact_kind":`), kinds)
	c.text(`,"compressed_size":`).intOr()
	c.text(`,"declared_size":`).intOr()
	o.encrypted = c.text(`,"encrypted":`).bool()
	o.entry = oneOf(c.text(`,"entry_kind":`), entryKinds)
	o.executable = c.text(`,"executable":`).bool()
	o.status = oneOf(c.text(`,"hash_status":`), hashStatuses)
	o.limitations, _ = c.text(`,"limitations":`).strings()
	quoted := c.text(`,"logical_path":`).string()
	o.id = c.text(`,"occurrence_id":`).id(prefixOccurrence)
	if c.try(`,"ordinal":`) {
		o.ordinal = c.int()
	}
	parent, inside := c.text(`,"parent_occurrence_id":`).idOr(prefixOccurrence)
	c.text(`,"source_location":`)
	if !c.null() {
		c.text(`{"length":`).int()
		c.text(`,"offset":`).int()
		c.text(`}`)
	}
	c.text(`}`)
	if !c.ok() {
		return nil
	}
	s.path = unquote(s.path[:0], quoted)
	o.path, o.rank = string(s.path), index(entryKinds, o.entry)
	return s.place(o, quoted, parent, inside)
}

// place verifies an occurrence against everything before it.
func (s *scan) place(o *occurrence, quoted []byte, parent sum, inside bool) error {
	s.inv.count(o)
	o.container = s.container(o.id)
	if err := s.checkOrder(o); err != nil {
		return err
	}
	if err := s.checkContent(o); err != nil {
		return err
	}
	if o.path == rootPath {
		return s.checkRoot(o, inside)
	}
	if s.rule.own && !plainPath(o.path) {
		return wrong("the logical path is not plain")
	}
	if s.ids.occurrence(s.root, quoted, o.entry, o.ordinal) != o.id {
		return forged("occurrence_id does not recompute")
	}
	s.rootDigest.add(quoted, o.artifact, o.known)
	s.descend(o)
	at, ok := s.parent(o.path, parent, inside)
	if !ok && !s.rule.partial {
		if s.rule.own {
			return wrong("parent_occurrence_id names nothing that it stands in")
		}
		return errPartial
	}
	err := s.checkEdges(o, quoted, at)
	if err == nil {
		err = s.checkContradiction(o, quoted, at)
	}
	s.stand(o, at)
	return err
}

// checkOrder holds path, entry kind and ordinal against the previous occurrence.
func (s *scan) checkOrder(o *occurrence) error {
	order := -1
	if s.lastRank >= 0 {
		order = cmp.Or(strings.Compare(s.last, o.path), cmp.Compare(s.lastRank, o.rank))
	}
	before := s.lastOrd
	s.last, s.lastRank, s.lastOrd = o.path, o.rank, o.ordinal
	switch {
	case order > 0:
		return wrong("occurrences are not in the order of their paths")
	case order == 0 && s.rule.partial && before >= 0 && o.ordinal > before:
		return nil
	case order == 0 && (before < 0 || o.ordinal != before+1):
		return wrong("occurrences of one path and kind have no ordinals 0, 1, …")
	case order < 0 && before == 0:
		return s.ordinals("an ordinal stands at a path that is there once")
	case order < 0 && o.ordinal > 0:
		return s.ordinals("ordinals do not begin at 0")
	}
	return nil
}

// ordinals says that an ordinal is out of place; a record with missing members may have such.
func (s *scan) ordinals(reason string) error {
	if s.rule.partial {
		return nil
	}
	return wrong("%s", reason)
}

// checkContent finds the node and holds hash status and content against each other.
func (s *scan) checkContent(o *occurrence) error {
	read := o.status == HashVerified || o.status == HashMismatched
	if s.rule.own && read != o.known {
		return wrong("hash_status %s does not go with its artifact_id", o.status)
	}
	if !o.known {
		return nil
	}
	o.node = s.node(o.artifact)
	if o.node == nil {
		if s.rule.partial {
			return nil
		}
		return s.missing("the node of an occurrence")
	}
	o.node.facts |= nodeUsed
	return nil
}

func (s *scan) checkRoot(o *occurrence, inside bool) error {
	switch {
	case s.rootSeen || inside || o.ordinal >= 0:
		return wrong("the root stands once, in nothing")
	case !o.known || o.artifact != s.root || s.ids.root(s.root) != o.id:
		return forged("the root occurrence is not that of root_artifact_id")
	case s.rule.own && (o.entry == EntryDirectory) != (s.inv.Manifest.RootFormat == FormatDirectory):
		return wrong("the root's entry kind does not go with its format")
	case s.rule.own && o.format != s.inv.Manifest.RootFormat:
		return wrong("the root's format is not root_format")
	}
	s.rootSeen = true
	s.inv.RootExecutable = o.executable
	if o.status == HashMismatched {
		return wrong("the root is declared by nothing")
	}
	return nil
}

// descend drops the frames whose path is not a prefix of this one's.
func (s *scan) descend(o *occurrence) {
	for n := len(s.frames); n > 0; n-- {
		if f := &s.frames[n-1]; strings.HasPrefix(o.path, s.above[:f.length]) {
			break
		}
		s.frames = s.frames[:n-1]
	}
	s.above = o.path
}

// at finds the frame of a prefix of the current path.
func (s *scan) at(length int) *frame {
	i, ok := slices.BinarySearchFunc(s.frames, length, func(f frame, n int) int { return cmp.Compare(f.length, n) })
	if !ok {
		return nil
	}
	return &s.frames[i]
}

// parent finds what an occurrence stands in. Our own results name every directory, so it is what stands at the path
// up to the last slash; in others it may be further out.
func (s *scan) parent(path string, id sum, inside bool) (place, bool) {
	if !inside {
		return place{}, false
	}
	for end := strings.LastIndexByte(path, '/'); end > 0; end = strings.LastIndexByte(path[:end], '/') {
		if f := s.at(end); f != nil {
			if p, ok := f.find(id); ok {
				return p, true
			}
		}
		if s.rule.own {
			return place{}, false
		}
	}
	if s.rule.own && strings.IndexByte(path, '/') >= 0 {
		return place{}, false
	}
	return place{id, s.root, true}, s.ids.root(s.root) == id
}

// linearPlaces is up to how many places a search is not worth sorting for.
const linearPlaces = 8

// find looks a place up. An archive may hold one name a hundred thousand times, so a long list is sorted once.
func (f *frame) find(occurrence sum) (place, bool) {
	if len(f.places) > linearPlaces && !f.sorted {
		slices.SortFunc(f.places, func(x, y place) int { return bytes.Compare(x.occurrence[:], y.occurrence[:]) })
		f.sorted = true
	}
	if f.sorted {
		i, ok := slices.BinarySearchFunc(f.places, occurrence, func(p place, id sum) int { return bytes.Compare(p.occurrence[:], id[:]) })
		if !ok {
			return place{}, false
		}
		return f.places[i], true
	}
	for _, p := range f.places {
		if p.occurrence == occurrence {
			return p, true
		}
	}
	return place{}, false
}

// stand makes an occurrence one that others can stand in.
func (s *scan) stand(o *occurrence, in place) {
	if o.entry != EntryDirectory && o.entry != EntryFile {
		return
	}
	if n := len(s.frames); n == 0 || s.frames[n-1].length != len(o.path) {
		s.push(len(o.path))
	}
	f := &s.frames[len(s.frames)-1]
	p := place{o.id, in.artifact, in.known}
	if o.known {
		p.artifact, p.known = o.artifact, true
	}
	f.places, f.sorted = append(f.places, p), false
	if o.entry == EntryFile && !f.seen {
		f.seen, f.file, f.mapped = true, o.artifact, o.known
	}
}

// push opens a frame and reuses the places of one that was dropped.
func (s *scan) push(length int) {
	n := len(s.frames)
	if n < cap(s.frames) {
		s.frames = s.frames[:n+1]
		s.frames[n] = frame{length: length, places: s.frames[n].places[:0]}
		return
	}
	s.frames = append(s.frames, frame{length: length})
}

// checkEdges holds an occurrence against its edges.
func (s *scan) checkEdges(o *occurrence, quoted []byte, in place) error {
	s.relations = s.relations[:0]
	defer func() { o.relations = s.relations }()
	if s.rule.foreign {
		return s.checkForeign(o, quoted, in)
	}
	if !o.known || !in.known {
		return nil
	}
	relation, sibling := relate(o.path, o.entry)
	parent, from := in.artifact, parentDir(o.path)
	if sibling {
		from, parent = s.sibling(o.path, from, parent)
	}
	edge := s.ids.edge(parent, o.artifact, relation, o.id, quoted)
	s.legal = s.fold(s.legal, edge, parent, o.id, relation)
	s.relations = appendRelation(s.relations, relation, from, "null")
	return nil
}

// sibling is what a source map at path describes, where that is there.
func (s *scan) sibling(path string, from string, parent sum) (string, sum) {
	if f := s.at(len(path) - len(mapSuffix)); f != nil && f.mapped {
		return path[:f.length], f.file
	}
	return from, parent
}

// appendRelation adds what is compared of an edge: relation, path of the parent, producer. Paths hold no NUL.
func appendRelation(dst []byte, r Relation, from, producer string) []byte {
	dst = append(append(dst, r...), 0)
	dst = append(append(dst, from...), 0)
	return append(append(dst, producer...), 0)
}

// checkForeign recomputes the edges that were kept for an occurrence.
func (s *scan) checkForeign(o *occurrence, quoted []byte, in place) error {
	kept := s.edges[o.id]
	delete(s.edges, o.id)
	s.unplaced -= len(kept)
	var said []string
	for _, e := range kept {
		if !o.known {
			return wrong("an occurrence without content has an edge")
		}
		if e.repeated && (e.child != o.artifact || e.path != string(quoted)) {
			return wrong("an edge repeats another child or path than its occurrence has")
		}
		if s.ids.edge(e.parent, o.artifact, e.relation, o.id, quoted) != e.id {
			return forged("edge_id does not recompute")
		}
		if s.node(e.parent) == nil && !s.rule.partial {
			return errPartial
		}
		said = append(said, string(appendRelation(nil, e.relation, s.from(e, o, in), e.producer)))
	}
	slices.Sort(said)
	s.relations = append(s.relations, strings.Join(said, "")...)
	return nil
}

// from is the logical path of an edge's parent as far as it can be told: what the occurrence stands in, the file that
// it maps, or else the artifact itself.
func (s *scan) from(e foreignEdge, o *occurrence, in place) string {
	if in.known && e.parent == in.artifact {
		return parentDir(o.path)
	}
	if path, artifact := s.sibling(o.path, "", sum{}); len(o.path) > len(mapSuffix) && path != "" && artifact == e.parent {
		return path
	}
	return id(prefixArtifact, e.parent)
}

// checkContradiction holds a mismatched occurrence against the record of its contradiction.
func (s *scan) checkContradiction(o *occurrence, quoted []byte, in place) error {
	row, ok := s.contradicted[o.id]
	if ok != (o.status == HashMismatched) {
		return wrong("hash_status mismatched and a contradiction do not go together")
	}
	if !ok {
		return nil
	}
	delete(s.contradicted, o.id)
	switch {
	case row.path != short(quoted) || row.kind != o.entry:
		return wrong("its contradiction names another path or entry kind")
	case s.ids.contradiction(s.root, quoted, row.declared, row.observed) != row.id:
		return forged("contradiction_id does not recompute")
	case s.ids.artifact(row.observed) != o.artifact:
		return wrong("its contradiction observed other bytes")
	case in.known && row.parent != in.artifact:
		return wrong("its contradiction names another parent")
	}
	return nil
}

// tail reads what stands behind the occurrences and verifies what only the whole shows.
func (s *scan) tail() error {
	s.graph.text("}")
	key, err := s.name()
	if err != nil {
		return err
	}
	if key != "provenance" {
		return &flaw{at: "the result", reason: fmt.Sprintf("expected provenance, found %.64q", key)}
	}
	if err := s.readProvenance(); err != nil {
		return err
	}
	if err := s.ended(); err != nil {
		return err
	}
	return s.conclude()
}

func (s *scan) readProvenance() error {
	return s.list("provenance", "", func(_ int64, _ []byte, c *cursor) error { readTool(c); return nil })
}

// ended reads the end of the result and makes sure that nothing follows.
func (s *scan) ended() error {
	if err := s.token('}', "the result"); err != nil {
		return err
	}
	if _, err := s.dec.ReadToken(); !errors.Is(err, io.EOF) {
		return &flaw{at: "the result", reason: "something stands behind it"}
	}
	return nil
}

func readTool(c *cursor) {
	c.text(`{"arguments":`).strings()
	c.text(`,"effects":[`)
	for n := 0; c.ok() && !c.try("]"); n++ {
		if n > 0 {
			c.text(",")
		}
		oneOf(c, []string{EffectRead, EffectWrite, EffectMount})
	}
	c.text(`,"executable_sha256":`).idOr("")
	c.text(`,"exit_code":`)
	if !c.null() {
		c.try("-")
		c.int()
	}
	c.text(`,"tool":`).string()
	c.text(`,"tool_version":`).stringOr()
	c.text(`}`)
}

// conclude compares the whole with what the manifest claims of it.
func (s *scan) conclude() error {
	m := s.inv.Manifest
	for _, err := range []error{
		s.counted("occurrence", m.OccurrenceCount, s.count), s.counted("edge", m.EdgeCount, s.edgeCount),
	} {
		if err != nil {
			return err
		}
	}
	if s.rule.partial {
		return s.concludePartial()
	}
	switch {
	case !s.rootSeen:
		return s.missing("the root occurrence")
	case s.lastOrd == 0:
		return &flaw{at: "occurrences", reason: "an ordinal stands at a path that is there once"}
	case len(s.contradicted) > 0:
		return &flaw{at: "integrity_contradictions", reason: "one names an occurrence that is not there"}
	case s.unplaced > 0:
		return s.missing("the occurrence of an edge")
	case !s.rule.foreign && s.seen != s.legal:
		return s.foreign()
	case id("", s.graph.sum()) != m.GraphSHA256:
		return &flaw{at: "manifest", reason: "graph_sha256 does not recompute", identity: true}
	}
	return s.concludeOwn()
}

// concludePartial makes sure that something is missing indeed: lists that are complete and do not fit together are no
// part of a graph.
func (s *scan) concludePartial() error {
	m := s.inv.Manifest
	if s.count == m.OccurrenceCount && s.edgeCount == m.EdgeCount && int64(s.nodes.len()) == m.NodeCount {
		return &flaw{at: "the result", reason: "its lists are complete and do not fit together"}
	}
	return nil
}

// concludeOwn verifies what our own results have beyond those of others.
func (s *scan) concludeOwn() error {
	m := s.inv.Manifest
	if !s.rule.own {
		return nil
	}
	if s.inv.Coverage.Scope == ScopeRoot && s.count > 1 {
		return &flaw{at: "coverage", reason: "the scope is the root and entries are there"}
	}
	for i := range s.nodes.len() {
		if s.nodes.at(i).facts&nodeUsed == 0 {
			return &flaw{at: fmt.Sprintf("nodes[%d]", i), reason: "no occurrence has it"}
		}
	}
	if m.RootFormat == FormatDirectory && id("", s.rootDigest.sum()) != m.RootSHA256 {
		return &flaw{at: "manifest", reason: "root_sha256 is not the digest of the directory", identity: true}
	}
	for i := range s.containers.len() {
		if !s.containers.at(i).seen {
			return &flaw{at: fmt.Sprintf("containers[%d]", i), reason: "it names an occurrence that is not there"}
		}
	}
	return nil
}

// container finds what was said of an expanded container.
func (s *scan) container(occurrence sum) *containerRow {
	low, high := 0, s.containers.len()
	for low < high {
		mid := (low + high) / 2
		if bytes.Compare(s.containers.at(mid).occurrence[:], occurrence[:]) < 0 {
			low = mid + 1
		} else {
			high = mid
		}
	}
	if low < s.containers.len() && s.containers.at(low).occurrence == occurrence {
		row := s.containers.at(low)
		row.seen = true
		return row
	}
	return nil
}
