package artifact

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"rea/evidence"
	"rea/evidence/fault"
)

// Identity of the comparison's producer, as Evidence carries it.
const (
	ComparisonProviderID      = "rea-artifact-comparison"
	ComparisonProviderName    = "REA artifact comparison"
	ComparisonProviderVersion = "1"
)

// Verdict is the status of a comparison.
type Verdict string

// The verdicts. A comparison never chooses added or removed; they are legal in records of others.
const (
	VerdictUnchanged     Verdict = "unchanged"
	VerdictChanged       Verdict = "changed"
	VerdictAdded         Verdict = "added"
	VerdictRemoved       Verdict = "removed"
	VerdictUnknown       Verdict = "unknown"
	VerdictContradiction Verdict = "contradiction"
	VerdictTruncated     Verdict = "truncated"
)

var verdicts = []Verdict{
	VerdictUnchanged, VerdictChanged, VerdictAdded, VerdictRemoved, VerdictUnknown, VerdictContradiction, VerdictTruncated,
}

// Classification is what became of one path.
type Classification string

// The classifications.
const (
	Added        Classification = "added"
	Removed      Classification = "removed"
	Changed      Classification = "changed"
	Unknown      Classification = "unknown"
	Contradicted Classification = "contradiction"
)

var classifications = []Classification{Added, Removed, Changed, Unknown, Contradicted}

// Dimension is in which respect a path differs.
type Dimension string

// The dimensions, in the order in which they are named.
const (
	DimensionContent      Dimension = "content"
	DimensionKind         Dimension = "kind"
	DimensionFormat       Dimension = "format"
	DimensionSize         Dimension = "size"
	DimensionExecutable   Dimension = "executable"
	DimensionRelations    Dimension = "relations"
	DimensionMetadata     Dimension = "metadata"
	DimensionAvailability Dimension = "availability"
	DimensionIntegrity    Dimension = "integrity"
)

var dimensions = []Dimension{
	DimensionContent, DimensionKind, DimensionFormat, DimensionSize, DimensionExecutable, DimensionRelations,
	DimensionMetadata, DimensionAvailability, DimensionIntegrity,
}

// Sentences of every comparison.
const (
	twoSubjects   = "The record compares two artifacts and has no single subject."
	limitStatic   = "Static artifact equality or difference says nothing about behaviour at run time."
	limitMembers  = "graph members of the inventory are missing; what they would show is unknown."
	limitCoverage = "the inventory did not see everything in its scope."
	limitScopes   = "The inventories have different scopes."
)

// side is one of the two inventories.
type side struct {
	name      string           // Left or Right
	source    *evidence.Record // as it was given
	inventory *evidence.Record
	rule      rule
	reader    io.ReadCloser
	scan      *scan
	now       *occurrence // the current one, nil after the last
}

// comparison is one attempt to compare.
type comparison struct {
	ctx         context.Context
	left, right *side
	covered     bool
	changes     *encoder
	begun       bool
	summary     Summary
	containers  []byte // elements of container_differences
	single      chunks[lone]
	held        held
	names       []Dimension
}

// Summary counts the paths of a comparison.
type Summary struct {
	Added         int64 `json:"added"`
	Changed       int64 `json:"changed"`
	Contradiction int64 `json:"contradiction"`
	Removed       int64 `json:"removed"`
	Unchanged     int64 `json:"unchanged"`
	Unknown       int64 `json:"unknown"`
}

// Compare compares two inventories, given as inventory or inspection Evidence, and makes the Evidence of what differs.
// Each side is verified first and while it is read; a side that fails is evidence_integrity_mismatch or
// invalid_request and never a verdict.
//
// Both sides are read as streams in the order of their paths. In memory stand 32 bytes for each node of both sides, 16
// for each path of one side only, 128 for each expanded container, 250 for each contradiction, and about 350 for each of
// movesAtOnce moves; for records of other producers whose edges do not follow the contract's rule, about 300 for each edge. The
// result goes through sp.
//
// A pair of symbolic links is compared by the recorded targets, and unknown only where one was not recorded. Exchanging
// the sides exchanges added and removed and changes nothing else.
func Compare(ctx context.Context, left, right *evidence.Record, sp evidence.Spooler) (*evidence.Record, error) {
	l, err := newSide(ctx, "Left", left, sp)
	if err != nil {
		return nil, err
	}
	r, err := newSide(ctx, "Right", right, sp)
	if err != nil {
		return nil, err
	}
	for {
		record, err := compareOnce(ctx, l, r, sp)
		var at *sideError
		switch {
		case err == nil:
			return record, nil
		case errors.As(err, &at) && at.side.concede(at.err):
		case at != nil:
			return nil, at.side.refuse(at.err)
		default:
			return nil, err
		}
	}
}

// sideError says which side an error comes from.
type sideError struct {
	side *side
	err  error
}

func (e *sideError) Error() string { return e.side.name + ": " + e.err.Error() }
func (e *sideError) Unwrap() error { return e.err }

// concede gives up an assumption that does not hold for this side. It reports false when there is none left.
func (s *side) concede(err error) bool {
	switch {
	case errors.Is(err, errForeign) && !s.rule.foreign:
		s.rule.foreign = true
	case errors.Is(err, errPartial) && !s.rule.partial:
		s.rule.foreign, s.rule.partial = true, true
	default:
		return false
	}
	return true
}

// refuse gives a flaw of a side its code; other errors keep theirs.
func (s *side) refuse(err error) error {
	var f *flaw
	switch {
	case !errors.As(err, &f):
		return err
	case f.identity:
		return fault.New(fault.EvidenceIntegrityMismatch, fmt.Sprintf("The %s inventory is not authentic: %s.", strings.ToLower(s.name), f),
			"Pass the Evidence as inspect_artifact returned it, or inspect the artifact again.").
			With("reason", f.Error()).With("evidence_id", s.source.ID).Because(err)
	}
	return s.invalid(f.Error())
}

// invalid refuses a side because of its shape.
func (s *side) invalid(reason string) error {
	return fault.New(fault.InvalidRequest, fmt.Sprintf("compare_artifacts cannot use its %s side: %s.", strings.ToLower(s.name), reason),
		"Pass Evidence of inspect_artifact or inventory_artifact as it was returned.").
		With("operation", OpCompare).
		With("issues", []map[string]any{{"path": []any{strings.ToLower(s.name)}, "reason": "invalid_value", "message": reason}})
}

// newSide verifies a record and finds its inventory.
func newSide(ctx context.Context, name string, source *evidence.Record, sp evidence.Spooler) (*side, error) {
	s := &side{name: name, source: source, inventory: source}
	if err := source.Verify(); err != nil {
		return nil, err
	}
	switch source.Operation {
	case OpInventory:
	case OpInspect:
		inventory, err := substep(ctx, source, sp)
		if err != nil {
			return nil, s.refuse(err)
		}
		s.inventory = inventory
	default:
		return nil, s.invalid(fmt.Sprintf("its operation is %.64q", source.Operation))
	}
	if s.inventory.Subject == nil {
		return nil, s.invalid("its Evidence has no subject")
	}
	return s, nil
}

// compareOnce makes one attempt.
func compareOnce(ctx context.Context, left, right *side, sp evidence.Spooler) (*evidence.Record, error) {
	c := &comparison{ctx: ctx, left: left, right: right}
	defer left.close()
	defer right.close()
	for _, s := range []*side{left, right} {
		if err := s.open(ctx); err != nil {
			return nil, &sideError{s, err}
		}
	}
	l, r := left.scan.inv.Coverage, right.scan.inv.Coverage
	c.covered = !left.rule.partial && !right.rule.partial && l.Status == CoverageComplete && l == r
	changes, err := sp.Spool(ctx, func(w io.Writer) error {
		c.changes = newEncoder(ctx, w)
		c.changes.text("[")
		if err := c.merge(); err != nil {
			return err
		}
		return c.changes.text("]").flush()
	})
	if err != nil {
		return nil, err
	}
	left.scan.nodes, right.scan.nodes = chunks[nodeRow]{}, chunks[nodeRow]{} // half of what a comparison holds
	return c.record(changes, sp)
}

func (s *side) open(ctx context.Context) error {
	s.reader = s.inventory.NormalizedResult.Reader()
	scan, err := open(ctx, s.reader, s.rule)
	if err != nil {
		return err
	}
	s.scan = scan
	m := scan.inv.Manifest
	switch subject := s.inventory.Subject; {
	case subject.SHA256 != m.RootSHA256:
		return &flaw{at: "subject", reason: "its digest is not root_sha256", identity: true}
	case subject.Format != string(m.RootFormat):
		return &flaw{at: "subject", reason: "its format is not root_format", identity: true}
	}
	return nil
}

func (s *side) close() {
	if s.reader != nil {
		s.reader.Close()
		s.reader = nil
	}
}

// next advances a side.
func (s *side) next() error {
	o, err := s.scan.next()
	if err != nil {
		return &sideError{s, err}
	}
	s.now = o
	return nil
}

// merge walks both sides in the order of path, entry kind and ordinal.
func (c *comparison) merge() error {
	if err := cmp.Or(c.left.next(), c.right.next()); err != nil {
		return err
	}
	for (c.left.now != nil || c.right.now != nil) && c.changes.err == nil {
		if err := c.step(); err != nil {
			return err
		}
	}
	c.release()
	return c.changes.err
}

// step handles the lower of the two current occurrences, or both if they match.
func (c *comparison) step() error {
	l, r := c.left.now, c.right.now
	switch order := compareOccurrences(l, r); {
	case order < 0:
		c.hold(l, false)
		return c.left.next()
	case order > 0:
		c.hold(r, true)
		return c.right.next()
	}
	c.at(l.path)
	c.held.several = true
	c.pair(l, r)
	if err := c.left.next(); err != nil {
		return err
	}
	return c.right.next()
}

// compareOccurrences orders two places; nil is behind everything.
func compareOccurrences(l, r *occurrence) int {
	switch {
	case l == nil:
		return 1
	case r == nil:
		return -1
	}
	return cmp.Or(strings.Compare(l.path, r.path), cmp.Compare(l.rank, r.rank), cmp.Compare(max(l.ordinal, 0), max(r.ordinal, 0)))
}

// held keeps an occurrence that has no counterpart of its entry kind and ordinal until it is clear that it is the only
// one at its path, as a counterpart on the other side may be: a file that became a directory is one changed path.
type held struct {
	path        string
	left, right *occurrence
	several     bool // a side has more than one occurrence at the path, or some matched
}

// at moves on to a path and lets go of what was held at another.
func (c *comparison) at(path string) {
	if c.held.path == path {
		return
	}
	c.release()
	c.held.path = path
}

// release classifies what is held.
func (c *comparison) release() {
	l, r := c.held.left, c.held.right
	switch {
	case l != nil && r != nil && !c.held.several:
		c.pair(l, r)
	case l != nil && r != nil && compareOccurrences(l, r) > 0:
		c.alone(r, true)
		c.alone(l, false)
	default:
		if l != nil {
			c.alone(l, false)
		}
		if r != nil {
			c.alone(r, true)
		}
	}
	c.held = held{}
}

// hold keeps an occurrence without counterpart.
func (c *comparison) hold(o *occurrence, right bool) {
	c.at(o.path)
	slot := &c.held.left
	if right {
		slot = &c.held.right
	}
	if *slot != nil {
		c.held.several = true
		c.release()
		c.held.path, c.held.several = o.path, true
	}
	if c.held.several {
		c.alone(o, right)
		return
	}
	kept := *o
	kept.relations, kept.limitations = bytes.Clone(o.relations), bytes.Clone(o.limitations)
	*slot = &kept
}

// alone classifies a place of one side.
func (c *comparison) alone(o *occurrence, right bool) {
	class, dimension := Removed, DimensionContent
	count := &c.summary.Removed
	if right {
		class, count = Added, &c.summary.Added
	}
	if !c.covered {
		class, dimension, count = Unknown, DimensionAvailability, &c.summary.Unknown
	} else if o.known {
		c.single.add(newLone(o.artifact, right, o.entry == EntryFile))
	}
	*count++
	c.names = append(c.names[:0], dimension)
	if right {
		c.write(class, nil, o)
	} else {
		c.write(class, o, nil)
	}
}

// pair classifies a place of both sides.
func (c *comparison) pair(l, r *occurrence) {
	c.arrangement(l, r)
	c.names = c.names[:0]
	switch {
	case l.status == HashMismatched || r.status == HashMismatched:
		c.summary.Contradiction++
		c.names = append(c.names, DimensionIntegrity)
		c.write(Contradicted, l, r)
	case !known(l, r):
		c.summary.Unknown++
		c.names = append(c.names, DimensionAvailability)
		c.write(Unknown, l, r)
	default:
		c.differ(l, r)
		if len(c.names) > 0 {
			c.summary.Changed++
			c.write(Changed, l, r)
		}
	}
}

// known reports whether what stands at a place is known on both sides: the bytes or, of a symbolic link, which has
// none, the target.
func known(l, r *occurrence) bool {
	if l.entry == EntrySymlink && r.entry == EntrySymlink {
		return recordsLink(l.limitations) && recordsLink(r.limitations)
	}
	return l.status == HashVerified && r.status == HashVerified && l.node != nil && r.node != nil
}

// facts are those of the content. A symbolic link has none, which is the same for all.
func (o *occurrence) facts() nodeRow {
	if o.node == nil {
		return nodeRow{}
	}
	return *o.node
}

// differ names the dimensions in which two places that were seen differ.
func (c *comparison) differ(l, r *occurrence) {
	left, right := l.facts(), r.facts()
	for _, d := range []struct {
		name    Dimension
		differs bool
	}{
		{DimensionContent, l.artifact != r.artifact},
		{DimensionKind, l.role != r.role},
		{DimensionFormat, l.format != r.format || left.format() != right.format()},
		{DimensionSize, left.size() != right.size()},
		{DimensionExecutable, l.executable != r.executable},
		{DimensionRelations, !bytes.Equal(l.relations, r.relations) || len(l.relations) > 0 && l.artifact != r.artifact},
		{DimensionMetadata, l.entry != r.entry || l.encrypted != r.encrypted || left.meta != right.meta ||
			!bytes.Equal(l.limitations, r.limitations)},
	} {
		if d.differs {
			c.names = append(c.names, d.name)
		}
	}
}

// write writes one entry of changes.
func (c *comparison) write(class Classification, l, r *occurrence) {
	e := c.changes
	if c.begun {
		e.text(",")
	}
	c.begun = true
	path := l
	if l == nil {
		path = r
	}
	e.text(`{"classification":"`).text(string(class)).text(`","dimensions":["`)
	for i, d := range c.names {
		if i > 0 {
			e.text(`","`)
		}
		e.text(string(d))
	}
	e.text(`"],"evidence_links":["`).text(c.left.source.ID).text(`","`).text(c.right.source.ID).text(`"],"left_artifact_id":`)
	e.idOr(prefixArtifact, l.content(), l != nil && l.known).text(`,"left_occurrence_id":`)
	e.idOr(prefixOccurrence, l.identity(), l != nil).text(`,"logical_path":`).string(path.path)
	e.text(`,"right_artifact_id":`).idOr(prefixArtifact, r.content(), r != nil && r.known).text(`,"right_occurrence_id":`)
	e.idOr(prefixOccurrence, r.identity(), r != nil).text(`}`)
	e.next()
}

func (o *occurrence) content() sum {
	if o == nil {
		return sum{}
	}
	return o.artifact
}

func (o *occurrence) identity() sum {
	if o == nil {
		return sum{}
	}
	return o.id
}

// arrangement notes how two containers of one place differ beside their members.
func (c *comparison) arrangement(l, r *occurrence) {
	if l.container == nil || r.container == nil || l.container.aspects == r.container.aspects {
		return
	}
	var differing []string
	for i, a := range aspects {
		if l.container.aspects[i] != r.container.aspects[i] {
			differing = append(differing, a)
		}
	}
	if len(c.containers) > 0 {
		c.containers = append(c.containers, ',')
	}
	c.containers = fmt.Appendf(c.containers, `{"aspects":["%s"],"logical_path":`, strings.Join(differing, `","`))
	c.containers = append(evidence.AppendString(c.containers, l.path), '}')
}

// record assembles the Evidence.
func (c *comparison) record(changes evidence.Payload, sp evidence.Spooler) (*evidence.Record, error) {
	moves, err := c.moves(changes, sp)
	if err != nil {
		return nil, err
	}
	status := c.conclude()
	limitations := c.limitations()
	lists, err := evidence.PayloadOf(limitations)
	if err != nil {
		return nil, err
	}
	summary, err := evidence.PayloadOf(c.summary)
	if err != nil {
		return nil, err
	}
	result := evidence.ObjectPayload(
		evidence.Member{Key: "status", Value: evidence.StringPayload(string(status))},
		evidence.Member{Key: "left_manifest_id", Value: evidence.StringPayload(c.left.scan.inv.Manifest.ManifestID)},
		evidence.Member{Key: "right_manifest_id", Value: evidence.StringPayload(c.right.scan.inv.Manifest.ManifestID)},
		evidence.Member{Key: "summary", Value: summary},
		evidence.Member{Key: "changes", Value: changes},
		evidence.Member{Key: "moves", Value: moves},
		evidence.Member{Key: "container_differences", Value: evidence.CanonicalPayload(slices.Concat([]byte("["), c.containers, []byte("]")))},
		evidence.Member{Key: "limitations", Value: lists},
	)
	parameters, err := evidence.PayloadOf(map[string]string{"left_evidence_id": c.left.source.ID, "right_evidence_id": c.right.source.ID})
	if err != nil {
		return nil, err
	}
	r := &evidence.Record{
		Provider:  evidence.Provider{ID: ComparisonProviderID, Name: ComparisonProviderName, Version: ComparisonProviderVersion},
		Operation: OpCompare, Parameters: parameters, NormalizedResult: result, Confidence: evidence.Derived,
		Authority: evidence.ShippedArtifact, NoSubject: twoSubjects, Limitations: limitations,
		Links: []string{c.left.source.ID, c.right.source.ID},
	}
	return r, seal(r)
}

// conclude finishes the summary and gives the verdict: the first rule that applies.
func (c *comparison) conclude() Verdict {
	s := &c.summary
	l, r := &c.left.scan.inv, &c.right.scan.inv
	counted := s.Unknown
	if c.covered {
		s.Unchanged = c.left.scan.count - s.Removed - s.Changed - s.Contradiction - s.Unknown
	} else {
		most := max(l.Manifest.OccurrenceCount, r.Manifest.OccurrenceCount)
		s.Unknown = max(s.Unknown, most-s.Added-s.Removed-s.Changed-s.Contradiction)
	}
	switch {
	case c.left.rule.partial || c.right.rule.partial:
		return VerdictTruncated
	case s.Contradiction > 0:
		return VerdictContradiction
	case !c.covered, counted > 0:
		return VerdictUnknown
	case s.Added+s.Removed+s.Changed == 0:
		return VerdictUnchanged
	}
	return VerdictChanged
}

// limitations are those of both sides, a note for each that is incomplete, and what static comparison cannot say.
func (c *comparison) limitations() []string {
	var own, notes []string
	for _, s := range []*side{c.left, c.right} {
		for _, text := range s.scan.inv.Limitations {
			own = append(own, s.name+": "+text)
		}
		switch {
		case s.rule.partial:
			notes = append(notes, s.name+": "+limitMembers)
		case s.scan.inv.Coverage.Status != CoverageComplete:
			notes = append(notes, s.name+": "+limitCoverage)
		}
	}
	if c.left.scan.inv.Coverage.Scope != c.right.scan.inv.Coverage.Scope {
		notes = append(notes, limitScopes)
	}
	return append(append(own, notes...), limitStatic)
}
