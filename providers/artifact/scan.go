package artifact

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// scan reads an inventory result once, in canonical form, and verifies everything that can be recomputed: shape,
// order, every identity, the graph's digest, the manifest's counts, the links between the lists. It gives the
// occurrences one by one and holds none of the lists as such. What it holds, for each entry: 32 bytes for a node;
// for each contradiction about 250 bytes, for each container 128, and 80 for each occurrence whose path is a prefix of
// the current one.
//
// Edges come before the occurrences that they are about. They are not kept: for an occurrence there is exactly one
// legal edge, so the edges that are there and the edges that must be there are folded into two sums under a random
// key, which are equal only if the sets are. Records of other producers may have other edges; a scan with foreign set
// keeps them instead.
type scan struct {
	ctx  context.Context
	rule rule
	win  *window
	dec  *jsontext.Decoder
	cur  cursor
	ids  identifier
	inv  Inventory

	graph        hashWriter // over the canonical projection of the graph
	root         sum        // identity of the root artifact
	nodes        chunks[nodeRow]
	contradicted map[sum]contradictionRow // by occurrence
	containers   chunks[containerRow]     // by occurrence identity, in its order

	meta      []byte                        // of the current node
	tap       func(list string, raw []byte) // sees every element that passed, nil for nobody
	keepPaths bool                          // of contradictions, whose occurrences do not come

	key         [32]byte // of the sums below
	seen, legal sum
	edgeCount   int64
	edges       map[sum][]foreignEdge // by occurrence; nil unless rule.foreign
	unplaced    int                   // foreign edges whose occurrence has not come yet

	path       []byte // scratch for decoding
	last       string // path of the previous occurrence
	lastRank   int    // of the previous occurrence's entry kind, -1 before the first
	lastOrd    int64  // of the previous occurrence, -1 for none
	frames     []frame
	above      string // the path that the frames are prefixes of
	rootDigest *rootDigest
	count      int64
	rootSeen   bool
	occ        occurrence
	relations  []byte
	done       bool
}

// rule says how much a scan asks for.
type rule struct {
	own     bool // our own producer's result: no form of older records
	foreign bool // edges need not follow the rule of the contract
	partial bool // graph members may be missing
}

// node is a node as it is read: 48 bytes.
type node struct {
	id     sum
	size   int64
	format uint8
}

// nodeRow is what is kept of a node: 32 bytes. A million of them on each side of a comparison decide what the core
// needs.
type nodeRow struct {
	id    [16]byte // the identity's first half: nobody finds two contents that share it
	meta  uint64   // of what else is compared, see metaOf
	facts uint64   // size, above format, above nodeUsed; sizes have 53 bits
}

// nodeUsed marks a node that an occurrence has.
const nodeUsed = 1

func newRow(n node, meta uint64) nodeRow {
	return nodeRow{[16]byte(n.id[:16]), meta, uint64(n.size)<<9 | uint64(n.format)<<1}
}

func (r *nodeRow) size() int64   { return int64(r.facts >> 9) }
func (r *nodeRow) format() uint8 { return uint8(r.facts >> 1) }

// metaOf condenses architecture, content state, limitations and media type of a node, for comparison within this
// process: its key is the process's own, so that no text can be made to look like another.
func metaOf(raw []byte) uint64 { return maphash.Bytes(metaKey, raw) }

var metaKey = maphash.MakeSeed()

// contradictionRow is what is kept of a contradiction until its occurrence comes.
type contradictionRow struct {
	id, declared, observed, parent sum
	path                           [16]byte // of the quoted path
	quoted                         []byte   // the path itself, if the scan keeps it
	kind                           EntryKind
}

// containerRow is what is kept of a container: digests of its aspects.
type containerRow struct {
	occurrence sum
	aspects    [len(aspects)][16]byte
	seen       bool // its occurrence came
}

// aspects are the ways in which two containers of equal members differ, in the order in which they are named.
var aspects = [...]string{"order", "method", "comment", RegionPrefix, RegionGap, RegionTail}

// occurrence is the current one of a scan; everything in it is valid until the next.
type occurrence struct {
	path        string
	entry       EntryKind
	rank        int // of entry
	ordinal     int64
	id          sum
	artifact    sum
	known       bool // artifact is set
	role        Kind
	format      Format
	executable  bool
	encrypted   bool
	status      HashStatus
	limitations []byte // canonical JSON
	node        *nodeRow
	container   *containerRow
	relations   []byte // what its edges say, apart from the child
}

// flaw is what is wrong with a result.
type flaw struct {
	at       string // where: a member or an element of a list
	reason   string
	identity bool // a digest or identity does not recompute, rather than the shape being wrong
}

func (f *flaw) Error() string { return f.at + ": " + f.reason }

// Assumptions that a scan makes and that, where they do not hold, a caller may give up.
var (
	errForeign = errors.New("the edges are not those of the contract's rule")
	errPartial = errors.New("graph members are missing")
)

// window keeps the decoder from buffering more than one element.
type window struct {
	r         io.Reader
	fed, mark int64
	err       error // the reader's, or the window's own; the decoder does not always pass it on
}

// windowSlack is what the decoder may read ahead of an element's end.
const windowSlack = 128 << 10

func (w *window) Read(p []byte) (int, error) {
	if w.fed-w.mark > MaxElement+windowSlack {
		w.err = &flaw{at: fmt.Sprintf("byte %d", w.mark), reason: fmt.Sprintf("an element is longer than %d bytes", MaxElement)}
		return 0, w.err
	}
	n, err := w.r.Read(p)
	w.fed += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		w.err = err
	}
	return n, err
}

// resultKeys are the members of an inventory result, in canonical order.
var resultKeys = []string{
	"containers", "coverage", "coverage_status", "edges", "integrity_contradictions", "limitations", "manifest", "nodes",
	"occurrences", "provenance",
}

// readBuffer is how much is read at once; the decoder alone would ask for 4 kB.
const readBuffer = 64 << 10

// newScan prepares to read r.
func newScan(ctx context.Context, r io.Reader, rl rule) *scan {
	s := &scan{
		ctx: ctx, rule: rl, win: &window{r: bufio.NewReaderSize(r, readBuffer)}, graph: newHashWriter(), contradicted: map[sum]contradictionRow{},
		rootDigest: newRootDigest(), lastRank: -1, lastOrd: -1, inv: Inventory{Entries: map[EntryKind]int64{}},
	}
	if rl.foreign {
		s.edges = map[sum][]foreignEdge{}
	}
	rand.Read(s.key[:])
	s.dec = jsontext.NewDecoder(s.win, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	return s
}

// open begins an inventory result and reads everything before the occurrences.
func open(ctx context.Context, r io.Reader, rl rule) (*scan, error) {
	s := newScan(ctx, r, rl)
	return s, s.head()
}

// head reads members up to the list of occurrences and enters it.
func (s *scan) head() error {
	if err := s.token('{', "the result"); err != nil {
		return err
	}
	readers := map[string]func() error{
		"containers": s.readContainers, "coverage": s.readCoverage, "coverage_status": s.readStatus,
		"edges": s.readEdges, "integrity_contradictions": s.readContradictions, "limitations": s.readLimitations,
		"manifest": s.readManifest, "nodes": s.readNodes,
	}
	next := 0
	for {
		key, err := s.name()
		if err != nil {
			return err
		}
		at := slices.Index(resultKeys, key)
		if at < next || at > slices.Index(resultKeys, "occurrences") {
			return &flaw{at: "the result", reason: fmt.Sprintf("member %.64q is unknown or out of order", key)}
		}
		for _, missed := range resultKeys[next:at] {
			if !s.optional(missed) {
				return &flaw{at: "the result", reason: missed + " is missing"}
			}
		}
		next = at + 1
		if key == "occurrences" {
			s.graph.text(`,"occurrences":[`)
			return s.token('[', key)
		}
		if err := readers[key](); err != nil {
			return err
		}
	}
}

// optional reports whether a member may be absent: containers always, coverage in older records.
func (s *scan) optional(key string) bool {
	return key == "containers" || !s.rule.own && (key == "coverage" || key == "coverage_status")
}

// broken turns a decoder's error into a flaw, or gives the reader's own.
func (s *scan) broken(err error) error {
	var syntax *jsontext.SyntacticError
	switch {
	case s.win.err != nil:
		return s.win.err
	case errors.As(err, &syntax), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return &flaw{at: fmt.Sprintf("byte %d", s.dec.InputOffset()), reason: "the JSON is malformed or cut"}
	}
	return err
}

// token reads a delimiter.
func (s *scan) token(want jsontext.Kind, at string) error {
	if got := s.dec.PeekKind(); got != want && got != 0 {
		return &flaw{at: at, reason: fmt.Sprintf("expected %v, found %v", want, got)}
	}
	if _, err := s.dec.ReadToken(); err != nil {
		return s.broken(err)
	}
	s.win.mark = s.dec.InputOffset()
	return nil
}

// name reads a member's name.
func (s *scan) name() (string, error) {
	if s.dec.PeekKind() == '}' {
		return "", &flaw{at: "the result", reason: "members are missing"}
	}
	t, err := s.dec.ReadToken()
	if err != nil {
		return "", s.broken(err)
	}
	s.win.mark = s.dec.InputOffset()
	return t.String(), nil
}

// value reads one element into the cursor.
func (s *scan) value() ([]byte, error) {
	v, err := s.dec.ReadValue()
	if err != nil {
		return nil, s.broken(err)
	}
	if len(v) > MaxElement {
		return nil, &flaw{at: fmt.Sprintf("byte %d", s.win.mark), reason: fmt.Sprintf("an element is longer than %d bytes", MaxElement)}
	}
	s.win.mark = s.dec.InputOffset()
	s.cur.reset(v)
	return v, nil
}

// whole reads one member as one element.
func (s *scan) whole(at string, read func(c *cursor)) error {
	if _, err := s.value(); err != nil {
		return err
	}
	read(&s.cur)
	if err := s.cur.end(); err != nil {
		return &flaw{at: at, reason: err.Error()}
	}
	return nil
}

// list reads the elements of a member. graph is what comes before them in the graph's projection, "" for a list that
// is not part of it.
func (s *scan) list(name, graph string, element func(i int64, raw []byte, c *cursor) error) error {
	if err := s.token('[', name); err != nil {
		return err
	}
	if graph != "" {
		s.graph.text(graph)
	}
	for i := int64(0); ; i++ {
		more, err := s.element(name, i, graph != "", element)
		if err != nil || !more {
			return err
		}
	}
}

// element reads the next element of a list; more is false at its end.
func (s *scan) element(name string, i int64, graph bool, read func(i int64, raw []byte, c *cursor) error) (more bool, err error) {
	if i%elementsPerCheck == 0 {
		if err := context.Cause(s.ctx); err != nil {
			return false, err
		}
	}
	if s.dec.PeekKind() == ']' {
		if graph {
			s.graph.text("]")
		}
		return false, s.token(']', name)
	}
	raw, err := s.value()
	if err != nil {
		return false, err
	}
	if graph {
		if i >= MaxEntries {
			return false, &flaw{at: name, reason: fmt.Sprintf("there are more than %d", MaxEntries)}
		}
		if i > 0 {
			s.graph.text(",")
		}
		s.graph.write(raw)
	}
	err = read(i, raw, &s.cur)
	if err == nil {
		if e := s.cur.end(); e != nil {
			err = &flaw{reason: e.Error(), identity: s.cur.forged}
		}
	}
	if err != nil {
		return true, placed(err, name, i)
	}
	if s.tap != nil {
		s.tap(name, raw)
	}
	return true, nil
}

// placed says of a flaw in which element it was found.
func placed(err error, name string, i int64) error {
	var f *flaw
	if errors.As(err, &f) && f.at == "" {
		f.at = fmt.Sprintf("%s[%d]", name, i)
	}
	return err
}

// short is a 16-byte digest, for things that are only ever compared for equality.
func short(b ...[]byte) (d [16]byte) {
	h := sha256.New()
	for _, p := range b {
		h.Write(p)
	}
	copy(d[:], h.Sum(nil))
	return d
}

func wrong(reason string, args ...any) error { return &flaw{reason: fmt.Sprintf(reason, args...)} }

func forged(reason string, args ...any) error {
	return &flaw{reason: fmt.Sprintf(reason, args...), identity: true}
}

func (s *scan) readContainers() error {
	var last sum
	return s.list("containers", "", func(i int64, _ []byte, c *cursor) error {
		row := readContainer(c)
		if i > 0 && bytes.Compare(last[:], row.occurrence[:]) >= 0 {
			return wrong("containers are not in the order of their occurrences")
		}
		last = row.occurrence
		s.containers.add(row)
		s.inv.Containers++
		return nil
	})
}

// readContainer keeps a digest for each aspect, regions by their role.
func readContainer(c *cursor) (row containerRow) {
	raw := func(read func()) [16]byte {
		start := c.pos
		read()
		return short(c.b[start:c.pos])
	}
	c.text(`{"comment_sha256":`)
	row.aspects[2] = raw(func() { c.idOr("") })
	c.text(`,"member_order_sha256":`)
	row.aspects[0] = raw(func() { c.id("") })
	c.text(`,"methods_sha256":`)
	row.aspects[1] = raw(func() { c.id("") })
	row.occurrence = c.text(`,"occurrence_id":`).id(prefixOccurrence)
	c.text(`,"regions":[`)
	var regions [len(aspects) - 3][]byte
	for n := 0; c.ok() && !c.try("]"); n++ {
		if n > 0 {
			c.text(",")
		}
		start := c.pos
		c.text(`{"length":`).int()
		c.text(`,"offset":`).int()
		c.text(`,"role":`)
		role := index(aspects[3:], string(oneOf(c, regionRoles)))
		c.text(`,"sha256":`).id("")
		if c.text(`}`); c.ok() {
			regions[role] = append(regions[role], c.b[start:c.pos]...)
		}
	}
	c.text(`}`)
	for i := range regions {
		row.aspects[3+i] = short(regions[i])
	}
	return row
}

var regionRoles = []string{RegionPrefix, RegionGap, RegionTail}

func (s *scan) readCoverage() error {
	return s.whole("coverage", func(c *cursor) {
		s.inv.Coverage.Scope = oneOf(c.text(`{"scope":`), []Scope{ScopeRoot, ScopeEntries})
		s.inv.Coverage.Status = oneOf(c.text(`,"status":`), []Status{CoverageComplete, CoverageUnknown})
		c.text(`}`)
		s.inv.declared = true
	})
}

func (s *scan) readStatus() error {
	err := s.whole("coverage_status", func(c *cursor) { s.inv.legacy = oneOf(c, []string{"complete", "partial"}) })
	if err == nil && s.inv.declared && s.inv.legacy != s.inv.Coverage.Legacy() {
		return &flaw{at: "coverage_status", reason: "it contradicts coverage"}
	}
	return err
}

func (s *scan) readLimitations() error {
	total, most, bytes := 0, MaxLimitations, 2*MaxLimitationBytes // twice, for escapes
	if !s.rule.own {
		most, bytes = 2*most+16, 2*bytes+4096 // a comparison repeats those of both sides
	}
	return s.list("limitations", "", func(i int64, _ []byte, c *cursor) error {
		quoted := c.string()
		if !c.ok() {
			return nil
		}
		total += len(quoted)
		if i >= int64(most) || total > bytes {
			return wrong("there are more limitations than %d, or than %d bytes", most, bytes)
		}
		s.inv.Limitations = append(s.inv.Limitations, string(unquote(nil, quoted)))
		return nil
	})
}

func (s *scan) readManifest() error {
	m := &s.inv.Manifest
	var manifest, graph, content sum
	err := s.whole("manifest", func(c *cursor) {
		m.EdgeCount = c.text(`{"edge_count":`).int()
		graph = c.text(`,"graph_sha256":`).id("")
		manifest = c.text(`,"manifest_id":`).id(prefixManifest)
		m.NodeCount = c.text(`,"node_count":`).int()
		m.OccurrenceCount = c.text(`,"occurrence_count":`).int()
		s.root = c.text(`,"root_artifact_id":`).id(prefixArtifact)
		m.RootFormat = oneOf(c.text(`,"root_format":`), formats)
		content = c.text(`,"root_sha256":`).id("")
		c.text(`}`)
	})
	if err != nil {
		return err
	}
	m.GraphSHA256, m.ManifestID, m.RootArtifactID = id("", graph), id(prefixManifest, manifest), id(prefixArtifact, s.root)
	m.RootSHA256 = id("", content)
	if s.ids.artifact(content) != s.root {
		return &flaw{at: "manifest", reason: "root_artifact_id is not that of root_sha256", identity: true}
	}
	if s.ids.manifest(s.root, graph) != manifest {
		return &flaw{at: "manifest", reason: "manifest_id does not recompute", identity: true}
	}
	if !s.inv.declared {
		s.inv.Coverage = historical(s.inv.legacy, s.inv.Limitations, m.OccurrenceCount)
	}
	return nil
}

func (s *scan) readNodes() error {
	var last sum
	var lastMeta []byte
	meta := metaOf(nil)
	err := s.list("nodes", `,"nodes":[`, func(i int64, _ []byte, c *cursor) error {
		n, raw := s.readNode(c)
		if !c.ok() {
			return nil
		}
		if i > 0 && bytes.Compare(last[:], n.id[:]) >= 0 {
			return wrong("nodes are not in the order of their artifacts")
		}
		last = n.id
		if !bytes.Equal(raw, lastMeta) { // nearly always equal
			lastMeta, meta = append(lastMeta[:0], raw...), metaOf(raw)
		}
		s.nodes.add(newRow(n, meta))
		return nil
	})
	if err != nil {
		return err
	}
	if s.node(s.root) == nil && !s.rule.partial {
		return s.missing("the root's node")
	}
	return s.counted("node", s.inv.Manifest.NodeCount, int64(s.nodes.len()))
}

// counted holds a list's length against the manifest.
func (s *scan) counted(what string, claimed, found int64) error {
	switch {
	case found > claimed:
		return &flaw{at: "manifest", reason: fmt.Sprintf("%s_count is %d, %d are there", what, claimed, found)}
	case found < claimed && !s.rule.partial:
		return s.missing(fmt.Sprintf("%d of %d members of the %s list", claimed-found, claimed, what))
	}
	return nil
}

// missing says that a member is not there: an error of our own result, an assumption to give up for others.
func (s *scan) missing(what string) error {
	if s.rule.own {
		return &flaw{at: "manifest", reason: what + ": missing"}
	}
	return errPartial
}

// readNode reads a node; raw is what is compared beyond identity, size and format.
func (s *scan) readNode(c *cursor) (n node, raw []byte) {
	architecture := c.text(`{"architecture":`).stringOr()
	n.id = c.text(`,"artifact_id":`).id(prefixArtifact)
	state := oneOf(c.text(`,"content_state":`), contentStates)
	format := oneOf(c.text(`,"format":`), formats)
	limits := c.pos
	c.text(`,"limitations":`).strings()
	media := c.text(`,"media_type":`).stringOr()
	end := c.pos
	content := c.text(`,"sha256":`).id("")
	n.size = c.text(`,"size":`).int()
	c.text(`}`)
	if !c.ok() {
		return n, nil
	}
	n.format = uint8(index(formats, format))
	if s.ids.artifact(content) != n.id {
		c.forge("an artifact_id that is that of its sha256")
	}
	isRoot := n.id == s.root
	if s.rule.own && isRoot != (state == StateMaterialized) {
		c.fail("content_state materialized for the root and for nothing else")
	}
	if isRoot {
		s.inv.rootNode(format, n.size, architecture, media)
	}
	s.inv.architecture(architecture)
	s.meta = append(append(append(s.meta[:0], architecture...), state...), c.b[limits:end]...)
	return n, s.meta
}

// node finds a node by identity.
func (s *scan) node(artifact sum) *nodeRow {
	low, high := 0, s.nodes.len()
	for low < high {
		mid := (low + high) / 2
		if bytes.Compare(s.nodes.at(mid).id[:], artifact[:16]) < 0 {
			low = mid + 1
		} else {
			high = mid
		}
	}
	if low < s.nodes.len() && s.nodes.at(low).id == [16]byte(artifact[:16]) {
		return s.nodes.at(low)
	}
	return nil
}
