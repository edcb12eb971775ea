package artifact

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"rea/evidence"
)

// Moved is the classification of a row that stands for a removed and an added entry of one file. It occurs in rows
// only; the comparison's changes have both entries.
const Moved Classification = "moved"

// Row is one line of a report about a comparison.
type Row struct {
	Classification Classification
	Path           string // on the right where the row is moved
	From           string // where a moved file was; "" otherwise
	Dimensions     []Dimension
	Left, Right    RowSide
}

// RowSide is one side of a row.
type RowSide struct {
	Present    bool
	ArtifactID string // "" where content is unavailable
	Format     Format // of the content, "" where it is not known
	Size       int64  // of the content in bytes, -1 where it is not known
}

// size is what is kept of a node that a row may need: 48 bytes.
type size struct {
	id     sum
	size   int64
	format uint8
}

// Rows gives the rows of a comparison in the order of their paths, moves in place of the entries of which they
// consist, until yield returns false. left and right are the inventories, from which the sizes come. It holds 80 bytes
// for each content that differs and about 100 for each move.
func Rows(ctx context.Context, rec, left, right *evidence.Record, yield func(Row) bool) error {
	t := table{moves: map[sum]move{}, arrived: map[sum]bool{}}
	if err := readComparison(ctx, rec, &Facts{}, t.want, t.move); err != nil {
		return err
	}
	for i, r := range []*evidence.Record{left, right} {
		if err := t.measure(ctx, r, i); err != nil {
			return err
		}
	}
	err := readComparison(ctx, rec, &Facts{}, func(ch *change) error {
		row, ok := t.row(ch)
		if ok && !yield(row) {
			return errStop
		}
		return nil
	}, nil)
	if errors.Is(err, errStop) {
		return nil
	}
	return err
}

// table is what rows need besides the changes.
type table struct {
	wanted  [2][]sum
	sizes   [2][]size
	moves   map[sum]move // by occurrence on the left
	arrived map[sum]bool // occurrences on the right that moves end at
}

func (t *table) want(ch *change) error {
	if ch.leftKnown {
		t.wanted[0] = append(t.wanted[0], ch.leftArtifact)
	}
	if ch.rightKnown {
		t.wanted[1] = append(t.wanted[1], ch.rightArtifact)
	}
	return nil
}

func (t *table) move(m move) error {
	t.moves[m.left], t.arrived[m.right] = m, true
	return nil
}

// measure reads the sizes that one side's rows need.
func (t *table) measure(ctx context.Context, inventory *evidence.Record, i int) error {
	wanted := t.wanted[i]
	slices.SortFunc(wanted, func(a, b sum) int { return bytes.Compare(a[:], b[:]) })
	r := inventory.NormalizedResult.Reader()
	defer r.Close()
	return newScan(ctx, r, rule{}).eachNode(func(n node) {
		if _, ok := slices.BinarySearchFunc(wanted, n.id, func(a, b sum) int { return bytes.Compare(a[:], b[:]) }); ok {
			t.sizes[i] = append(t.sizes[i], size(n))
		}
	})
}

// eachNode gives the nodes of an inventory that was verified before, in their order.
func (s *scan) eachNode(yield func(node)) error {
	if err := s.token('{', "the result"); err != nil {
		return err
	}
	for {
		key, err := s.name()
		if err != nil {
			return err
		}
		if key == "nodes" {
			return s.list(key, "", func(_ int64, _ []byte, c *cursor) error {
				if n, _ := s.readNode(c); c.ok() {
					yield(n)
				}
				return nil
			})
		}
		if err := s.skip(); err != nil {
			return err
		}
	}
}

// row makes the row of a change; ok is false for the second entry of a move.
func (t *table) row(ch *change) (row Row, ok bool) {
	if t.arrived[ch.right] && ch.class == Added {
		return Row{}, false
	}
	row = Row{
		Classification: ch.class, Path: string(ch.path), Dimensions: slices.Clone(ch.dimensions),
		Left:  t.side(0, ch.onLeft, ch.leftArtifact, ch.leftKnown),
		Right: t.side(1, ch.onRight, ch.rightArtifact, ch.rightKnown),
	}
	if m, moved := t.moves[ch.left]; moved && ch.class == Removed {
		row.Classification, row.From, row.Path, row.Dimensions = Moved, m.leftPath, m.rightPath, nil
		row.Right = t.side(1, true, m.artifact, true)
	}
	return row, true
}

func (t *table) side(i int, present bool, artifact sum, known bool) RowSide {
	s := RowSide{Present: present, Size: -1}
	if !known {
		return s
	}
	s.ArtifactID = id(prefixArtifact, artifact)
	n, ok := slices.BinarySearchFunc(t.sizes[i], artifact, func(a size, b sum) int { return bytes.Compare(a.id[:], b[:]) })
	if ok {
		s.Size, s.Format = t.sizes[i][n].size, formats[t.sizes[i][n].format]
	}
	return s
}
