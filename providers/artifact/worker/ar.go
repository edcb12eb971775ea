package worker

import (
	"errors"
	"fmt"
	"io"
	"iter"

	"rea/providers/artifact"
	"rea/providers/artifact/worker/ar"
)

// readAr reads Unix ar archives, libraries and Debian packages among them.
func readAr(c *container) error {
	r, err := ar.Open(c.src, c.src.size)
	if err != nil {
		return err
	}
	a := &arReader{c: c, r: r}
	if err := c.each(a.members()); err != nil {
		return err
	}
	return a.end()
}

// arReader turns members of an ar archive into members of the graph.
type arReader struct {
	c      *container
	r      *ar.Reader
	tables []extent // symbol tables and tables of names, which are no members
	seen   int
	ended  error
}

func (a *arReader) members() iter.Seq2[*member, error] {
	return func(yield func(*member, error) bool) {
		for {
			h, err := a.r.Next()
			if err != nil {
				a.ended = err
				return
			}
			if h.Kind != ar.Regular {
				a.tables = append(a.tables, extent{h.Start, min(h.Start+h.Size, a.c.src.size)})
				continue
			}
			a.seen++
			if !yield(a.member(h), nil) {
				return
			}
		}
	}
}

func (a *arReader) member(h *ar.Member) *member {
	m := &member{declared: h.Size, compressed: -1, executable: h.Mode&0o111 != 0, method: "stored", notes: h.Notes}
	a.c.add(m, split(h.Name))
	left := max(0, a.c.src.size-h.Start)
	switch {
	case a.r.Thin:
		m.method = "external"
		m.problem, m.missing = "It stands in a thin archive: its bytes lie in a file beside the archive, which is not read.", true
	case h.Size > left:
		m.problem = fmt.Sprintf("Its data is cut: %d bytes declared, %d present.", h.Size, left)
	default:
		a.c.stored(m, h.Start, h.Size)
	}
	return m
}

// end says how the archive ended, and where the tables lie.
func (a *arReader) end() error {
	for _, t := range a.tables {
		if err := a.c.region(artifact.RegionGap, t.start, t.end); err != nil {
			return err
		}
	}
	if len(a.tables) > 0 {
		a.c.note("Its tables of symbols and names are no members; their bytes are listed as gaps.")
	}
	switch err := a.ended; {
	case err == nil || errors.Is(err, io.EOF):
		return nil
	case errors.Is(err, io.ErrUnexpectedEOF):
		a.c.partial(fmt.Sprintf("It ends inside a header, at byte %d.", a.r.Offset()))
	case errors.Is(err, ar.ErrFormat):
		a.c.partial("It breaks off, and the members before that point were read: " + reason(err) + ".")
		return a.c.region(artifact.RegionTail, a.r.Offset(), a.c.src.size)
	default:
		return err
	}
	return nil
}
