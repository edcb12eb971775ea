package artifact

import (
	"encoding/binary"
	"errors"
	"io"
	"slices"

	"rea/evidence"
)

// lone is content that stands on one side of a path only, a candidate for a move: the first bits of its identity, and
// below them two flags. Contents that share those bits count as copies of one, so no move is made of them; that a move's
// two ends have the same content is looked at in full.
type lone uint64

const (
	loneRight lone = 1 << iota // it stands on the right
	loneOther                  // it is no file
	loneFlags = loneRight | loneOther
)

func newLone(artifact sum, right, file bool) lone {
	l := lone(binary.BigEndian.Uint64(artifact[:])) &^ loneFlags
	if right {
		l |= loneRight
	}
	if !file {
		l |= loneOther
	}
	return l
}

func (l lone) content() lone { return l &^ loneFlags }

// moved gives the contents that one side lost at one path and the other got at one path, both as files, sorted.
func (c *comparison) moved() []lone {
	list := make([]lone, 0, c.single.len())
	for i := range c.single.len() {
		list = append(list, *c.single.at(i))
	}
	c.single = chunks[lone]{}
	slices.Sort(list)
	moved := list[:0]
	for len(list) > 0 {
		n := 1
		for n < len(list) && list[n].content() == list[0].content() {
			n++
		}
		if n == 2 && list[0]^list[1] == loneRight && list[0]&loneOther == 0 {
			moved = append(moved, list[0].content())
		}
		list = list[n:]
	}
	return moved
}

// movesAtOnce is how many moves are put together in one reading of the changes. It bounds the memory; a comparison with
// more reads its changes again. Only tests change it.
var movesAtOnce = 1 << 17

// leg is a move while its ends are looked for.
type leg struct {
	artifact, from, to sum
	fromPath, toPath   string
	found              bool // to is set
}

// moves makes the list of moves from the list of changes.
func (c *comparison) moves(changes evidence.Payload, sp evidence.Spooler) (evidence.Payload, error) {
	moved := c.moved()
	if len(moved) == 0 {
		return evidence.CanonicalPayload([]byte("[]")), nil
	}
	return sp.Spool(c.ctx, func(w io.Writer) error {
		e := newEncoder(c.ctx, w)
		e.text("[")
		begun := false
		for done := 0; done < len(moved); done += movesAtOnce {
			legs, err := c.legs(changes, moved, done)
			if err != nil {
				return err
			}
			for i := range legs {
				if l := &legs[i]; l.found {
					if begun {
						e.text(",")
					}
					begun = true
					l.write(e)
				}
			}
		}
		return e.text("]").flush()
	})
}

// legs gives the moves from number first on, at most movesAtOnce, in the order of their paths on the left.
func (c *comparison) legs(changes evidence.Payload, moved []lone, first int) ([]leg, error) {
	legs := make([]leg, 0, min(len(moved)-first, movesAtOnce))
	at := make(map[sum]int, cap(legs))
	err := eachChange(c.ctx, changes, func(ch *change) error {
		if ch.class != Removed || !isMoved(moved, ch.leftArtifact) {
			return nil
		}
		if first > 0 {
			first--
			return nil
		}
		if len(legs) == movesAtOnce {
			return errStop
		}
		at[ch.leftArtifact] = len(legs)
		legs = append(legs, leg{artifact: ch.leftArtifact, from: ch.left, fromPath: string(ch.path)})
		return nil
	})
	if err != nil && !errors.Is(err, errStop) {
		return nil, err
	}
	return legs, eachChange(c.ctx, changes, func(ch *change) error {
		if ch.class != Added || !isMoved(moved, ch.rightArtifact) {
			return nil
		}
		if i, ok := at[ch.rightArtifact]; ok {
			legs[i].to, legs[i].toPath, legs[i].found = ch.right, string(ch.path), true
		}
		return nil
	})
}

func isMoved(moved []lone, artifact sum) bool {
	_, ok := slices.BinarySearch(moved, newLone(artifact, false, true))
	return ok
}

func (l *leg) write(e *encoder) {
	e.text(`{"artifact_id":`).id(prefixArtifact, l.artifact).text(`,"left_logical_path":`).string(l.fromPath)
	e.text(`,"left_occurrence_id":`).id(prefixOccurrence, l.from).text(`,"right_logical_path":`).string(l.toPath)
	e.text(`,"right_occurrence_id":`).id(prefixOccurrence, l.to).text(`}`)
	e.next()
}
