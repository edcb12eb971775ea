package worker

import (
	"bytes"
	"fmt"
	"io"
	"iter"

	"rea/providers/artifact"
	"rea/providers/artifact/worker/cfb"
)

// readOLE reads a compound file: streams are files, storages directories. The names of an installer's streams are shown
// as the installer means them.
func readOLE(c *container) error {
	f, err := cfb.Open(c.src, c.src.size)
	if err != nil {
		return err
	}
	o := &oleReader{c: c, f: f}
	if err := c.each(o.members()); err != nil {
		return err
	}
	o.trouble.tell(c)
	if c.w.stopped.Load() || c.w.graph == nil {
		return nil
	}
	if n := f.Orphans(); n > 0 {
		c.note(fmt.Sprintf("%d entries of its directory are in no storage; they are not members.", n))
	}
	return nil
}

type oleReader struct {
	c       *container
	f       *cfb.File
	trouble troubles
}

func (o *oleReader) members() iter.Seq2[*member, error] {
	return func(yield func(*member, error) bool) {
		o.f.Walk(func(e *cfb.Entry) bool { return yield(o.member(e), nil) }, o.trouble.add)
	}
}

func (o *oleReader) member(e *cfb.Entry) *member {
	m := &member{declared: exact(uint64(e.Size)), compressed: -1, method: "stream"}
	o.c.add(m, e.Names)
	switch {
	case e.Storage:
		m.kind, m.method, m.declared = artifact.EntryDirectory, "storage", -1
	case e.Problem != "":
		m.problem = "It cannot be read: " + e.Problem + "."
	case e.Stream == nil:
		m.method, m.compressed = "mini-stream", e.Size
		small := bytes.NewReader(e.Small)
		m.section = small
		m.from(func() io.Reader { return io.NewSectionReader(small, 0, small.Size()) })
	case len(e.Stream.Extents) == 1:
		o.c.stored(m, e.Stream.Extents[0].Start, e.Stream.Extents[0].Length)
	default:
		s := e.Stream
		m.compressed, m.section = s.Size, s
		m.from(func() io.Reader { return io.NewSectionReader(s, 0, s.Size) })
	}
	return m
}
