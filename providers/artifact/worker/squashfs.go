package worker

import (
	"fmt"
	"io"
	"iter"

	"rea/evidence/target"
	"rea/providers/artifact"
	"rea/providers/artifact/worker/squashfs"
)

// readSquashFS reads a squashfs image; a snap is one.
func readSquashFS(c *container) error { return c.squashFS(0) }

// squashFS reads the image that begins at a byte of the container and goes to its end.
func (c *container) squashFS(start int64) error {
	size := c.src.size - start
	fs, err := squashfs.Open(io.NewSectionReader(c.src, start, size), size)
	if err != nil {
		return c.unread(err, squashfs.ErrUnsupported)
	}
	defer fs.Close()
	s := &squashReader{c: c, fs: fs}
	if err := c.each(s.members()); err != nil {
		return err
	}
	s.trouble.tell(c)
	switch {
	case fs.Used > size || fs.Used < 0:
		c.partial(fmt.Sprintf("It says that it has %d bytes, and %d are there.", fs.Used, size))
	case fs.Used < size:
		return c.behind(start + fs.Used)
	}
	return nil
}

// behind looks at the bytes behind an image: zeros fill its last block.
func (c *container) behind(at int64) error {
	zero, err := c.isZero(at, c.src.size)
	if err != nil || zero {
		return err
	}
	c.note(fmt.Sprintf("%d bytes that are not all zero follow it, from %d.", c.src.size-at, at))
	return c.region(artifact.RegionTail, at, c.src.size)
}

type squashReader struct {
	c       *container
	fs      *squashfs.FS
	trouble troubles
}

func (s *squashReader) members() iter.Seq2[*member, error] {
	return func(yield func(*member, error) bool) {
		err := s.fs.Walk(func(e *squashfs.Entry) bool { return yield(s.member(e), nil) }, s.trouble.add)
		if err != nil {
			yield(nil, err)
		}
	}
}

func (s *squashReader) member(e *squashfs.Entry) *member {
	m := &member{declared: -1, compressed: -1, method: s.fs.Compression()}
	s.c.add(m, e.Names)
	switch e.Kind {
	case squashfs.Directory:
		m.kind, m.method = artifact.EntryDirectory, string(artifact.EntryDirectory)
	case squashfs.Symlink:
		m.symlink(e.Link)
		m.method = string(artifact.EntrySymlink)
	case squashfs.Block:
		m.special(target.Block)
	case squashfs.Char:
		m.special(target.Char)
	case squashfs.FIFO:
		m.special(target.FIFO)
	case squashfs.Socket:
		m.special(target.Socket)
	case squashfs.File:
		m.executable = e.Mode&0o111 != 0
		s.file(m, e)
	}
	return m
}

func (s *squashReader) file(m *member, e *squashfs.Entry) {
	if e.Problem != "" {
		m.problem = "It cannot be read: " + e.Problem + "."
		return
	}
	m.declared, m.compressed = exact(uint64(e.Size)), s.fs.Stored(e, maxEntryBytes)
	own := *e
	own.Names = nil
	m.from(func() io.Reader { return s.fs.Open(&own) })
}
