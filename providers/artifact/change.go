package artifact

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"rea/evidence"
	"rea/evidence/fault"
)

// change is one entry of a comparison; everything in it is valid until the next.
type change struct {
	class                       Classification
	dimensions                  []Dimension
	path                        []byte // decoded
	left, right                 sum    // occurrences
	leftArtifact, rightArtifact sum
	onLeft, onRight             bool // left, right are set
	leftKnown, rightKnown       bool // leftArtifact, rightArtifact are set
}

// eachChange reads a list of changes.
func eachChange(ctx context.Context, changes evidence.Payload, yield func(*change) error) error {
	r := changes.Reader()
	defer r.Close()
	s := newScan(ctx, r, rule{})
	return s.readChanges(yield)
}

func (s *scan) readChanges(yield func(*change) error) error {
	var ch change
	return s.list("changes", "", func(_ int64, _ []byte, c *cursor) error {
		s.readChange(c, &ch)
		if !c.ok() {
			return nil
		}
		return yield(&ch)
	})
}

func (s *scan) readChange(c *cursor, ch *change) {
	*ch = change{dimensions: ch.dimensions[:0]}
	ch.class = oneOf(c.text(`{"classification":`), classifications)
	c.text(`,"dimensions":[`)
	for c.ok() && !c.try("]") {
		if len(ch.dimensions) > 0 {
			c.text(",")
		}
		ch.dimensions = append(ch.dimensions, oneOf(c, dimensions))
	}
	c.text(`,"evidence_links":`).strings()
	ch.leftArtifact, ch.leftKnown = c.text(`,"left_artifact_id":`).idOr(prefixArtifact)
	ch.left, ch.onLeft = c.text(`,"left_occurrence_id":`).idOr(prefixOccurrence)
	path := c.text(`,"logical_path":`).string()
	ch.rightArtifact, ch.rightKnown = c.text(`,"right_artifact_id":`).idOr(prefixArtifact)
	ch.right, ch.onRight = c.text(`,"right_occurrence_id":`).idOr(prefixOccurrence)
	c.text(`}`)
	if c.ok() {
		s.path = unquote(s.path[:0], path)
		ch.path = s.path
	}
}

// errStop ends a reading early.
var errStop = errors.New("stop")

// substep reads the inventory Evidence inside an inspection, strictly and with its identity.
func substep(ctx context.Context, inspection *evidence.Record, sp evidence.Spooler) (*evidence.Record, error) {
	at, err := locate(inspection.NormalizedResult)
	if err != nil {
		return nil, err
	}
	r, err := at.record.reader(inspection.NormalizedResult)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	inner, err := evidence.ParseReader(ctx, r, sp)
	switch {
	case err != nil:
		return nil, err
	case inner.Operation != OpInventory:
		return nil, &flaw{at: "substeps[0]", reason: "it is not the Evidence of an inventory"}
	case inner.ID != at.stated:
		return nil, &flaw{at: "substeps[0]", reason: "its evidence_id is not that of its evidence", identity: true}
	case inner.Subject == nil || inspection.Subject == nil || inner.Subject.SHA256 != inspection.Subject.SHA256:
		return nil, &flaw{at: "substeps[0]", reason: "its subject is not the inspection's", identity: true}
	}
	return inner, nil
}

// section is a part of a payload.
type section struct{ from, to int64 }

// reader reads a section of p.
func (s section) reader(p evidence.Payload) (io.ReadCloser, error) {
	r := p.Reader()
	if _, err := io.CopyN(io.Discard, r, s.from); err != nil {
		r.Close()
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{io.LimitReader(r, s.to-s.from), r}, nil
}

// location is where an inspection's result holds its inventory.
type location struct {
	record section // the complete Evidence
	result section // its normalized_result
	stated string  // evidence_id beside the Evidence
	id     string  // evidence_id in it
}

// locate finds the inventory in an inspection's result. That is canonical, so names come in a known order and a value
// begins one byte behind its name.
func locate(result evidence.Payload) (l location, err error) {
	r := result.Reader()
	defer r.Close()
	d := jsontext.NewDecoder(r, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	ok := enter(d, '{') && seek(d, "substeps") && enter(d, '[') && enter(d, '{') && seek(d, "evidence")
	l.record.from = d.InputOffset() + 1
	ok = ok && enter(d, '{') && seek(d, "evidence_id") && text(d, &l.id) && seek(d, "normalized_result")
	l.result.from = d.InputOffset() + 1
	ok = ok && d.SkipValue() == nil
	l.result.to = d.InputOffset()
	ok = ok && !seek(d, "") && leave(d)
	l.record.to = d.InputOffset()
	if !ok || !seek(d, "evidence_id") || !text(d, &l.stated) {
		return l, &flaw{at: "substeps", reason: "an inspection has one substep with its Evidence"}
	}
	return l, nil
}

// text reads a string.
func text(d *jsontext.Decoder, to *string) bool {
	t, err := d.ReadToken()
	if err != nil || t.Kind() != '"' {
		return false
	}
	*to = t.String()
	return true
}

// leave reads the end of an object.
func leave(d *jsontext.Decoder) bool {
	t, err := d.ReadToken()
	return err == nil && t.Kind() == '}'
}

// enter reads an opening delimiter.
func enter(d *jsontext.Decoder, k jsontext.Kind) bool {
	if d.PeekKind() != k {
		return false
	}
	_, err := d.ReadToken()
	return err == nil
}

// seek skips members of an object up to the name that it is looking for, and reads that.
func seek(d *jsontext.Decoder, name string) bool {
	for d.PeekKind() == '"' {
		t, err := d.ReadToken()
		if err != nil {
			return false
		}
		if t.String() == name {
			return true
		}
		if d.SkipValue() != nil {
			return false
		}
	}
	return false
}

// Facts is what a policy or a report needs to know of a comparison, apart from its rows.
type Facts struct {
	Status               Verdict
	Summary              Summary
	Moved                int64 // pairs of a removed and an added row that are one file
	ContainerDifferences []ContainerDifference
	Limitations          []string
}

// ContainerDifference says how two containers at one path differ beside their members.
type ContainerDifference struct {
	Aspects     []string `json:"aspects"` // order, method, comment, prefix, gap, tail
	LogicalPath string   `json:"logical_path"`
}

// ComparisonFacts reads the facts of comparison Evidence.
func ComparisonFacts(ctx context.Context, rec *evidence.Record) (Facts, error) {
	var f Facts
	err := readComparison(ctx, rec, &f, nil, nil)
	return f, err
}

// readComparison reads a comparison's result, with its changes and moves where they are wanted.
func readComparison(ctx context.Context, rec *evidence.Record, f *Facts, changes func(*change) error, moves func(move) error) error {
	if rec.Operation != OpCompare {
		return fault.New(fault.InvalidRequest, fmt.Sprintf("The Evidence is of %.64q and not of a comparison.", rec.Operation),
			"Pass Evidence of compare_artifacts.")
	}
	r := rec.NormalizedResult.Reader()
	defer r.Close()
	s := newScan(ctx, r, rule{})
	err := s.comparison(f, changes, moves)
	var bad *flaw
	if errors.As(err, &bad) {
		return fault.New(fault.InvalidRequest, "The comparison's result does not have the shape of its contract: "+bad.Error()+".",
			"Pass the Evidence as compare_artifacts returned it.").Because(err)
	}
	return err
}

// move is one entry of moves.
type move struct {
	artifact, left, right sum
	leftPath, rightPath   string
}

func (s *scan) comparison(f *Facts, changes func(*change) error, moves func(move) error) error {
	if err := s.token('{', "the result"); err != nil {
		return err
	}
	for s.dec.PeekKind() == '"' {
		key, err := s.name()
		if err != nil {
			return err
		}
		switch {
		case key == "changes" && changes != nil:
			err = s.readChanges(changes)
		case key == "container_differences":
			err = s.readContainerDifferences(f)
		case key == "limitations":
			err = s.readLimitations()
			f.Limitations = s.inv.Limitations
		case key == "moves":
			err = s.readMoves(f, moves)
		case key == "status":
			err = s.whole(key, func(c *cursor) { f.Status = oneOf(c, verdicts) })
		case key == "summary":
			err = s.decode(key, &f.Summary)
		default:
			err = s.skip()
		}
		if err != nil {
			return err
		}
	}
	return s.ended()
}

// skip passes over a member of any length.
func (s *scan) skip() error {
	if s.dec.PeekKind() != '[' {
		_, err := s.value()
		return err
	}
	return s.list("the list", "", func(_ int64, raw []byte, c *cursor) error { c.pos = len(raw); return nil })
}

// decode reads a small member into a struct, strictly.
func (s *scan) decode(at string, to any) error {
	raw, err := s.value()
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, to, json.RejectUnknownMembers(true)); err != nil {
		return &flaw{at: at, reason: err.Error()}
	}
	return nil
}

func (s *scan) readContainerDifferences(f *Facts) error {
	return s.list("container_differences", "", func(_ int64, _ []byte, c *cursor) error {
		var d ContainerDifference
		raw, _ := c.text(`{"aspects":`).strings()
		path := c.text(`,"logical_path":`).string()
		if c.text(`}`); c.ok() {
			d.Aspects, d.LogicalPath = decodeStrings(raw), string(unquote(nil, path))
			f.ContainerDifferences = append(f.ContainerDifferences, d)
		}
		return nil
	})
}

func (s *scan) readMoves(f *Facts, yield func(move) error) error {
	return s.list("moves", "", func(_ int64, _ []byte, c *cursor) error {
		var m move
		m.artifact = c.text(`{"artifact_id":`).id(prefixArtifact)
		left := c.text(`,"left_logical_path":`).string()
		m.left = c.text(`,"left_occurrence_id":`).id(prefixOccurrence)
		right := c.text(`,"right_logical_path":`).string()
		m.right = c.text(`,"right_occurrence_id":`).id(prefixOccurrence)
		if c.text(`}`); !c.ok() {
			return nil
		}
		f.Moved++
		if yield == nil {
			return nil
		}
		m.leftPath, m.rightPath = string(unquote(nil, left)), string(unquote(nil, right))
		return yield(m)
	})
}
