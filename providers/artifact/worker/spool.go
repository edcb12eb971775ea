package worker

import (
	"bytes"
	"io"
	"os"
)

// source is a container's bytes, read at random.
type source struct {
	io.ReaderAt
	size  int64
	close func()
}

func (s *source) release() {
	if s != nil && s.close != nil {
		s.close()
	}
}

// section reads the whole source from the start.
func (s *source) reader() *io.SectionReader { return io.NewSectionReader(s, 0, s.size) }

// spool keeps a stream's bytes: a small one in memory, a larger one in a file of the scratch space that has no name.
type spool struct {
	scratch func() (string, error)
	buf     []byte
	f       *os.File
	size    int64
}

// Write implements io.Writer.
func (s *spool) Write(p []byte) (int, error) {
	if s.f == nil && len(s.buf)+len(p) <= memorySpool {
		s.buf = append(s.buf, p...)
		s.size += int64(len(p))
		return len(p), nil
	}
	if s.f == nil {
		if err := s.toFile(); err != nil {
			return 0, err
		}
	}
	n, err := s.f.Write(p)
	s.size += int64(n)
	return n, err
}

func (s *spool) toFile() error {
	dir, err := s.scratch()
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, "spool-")
	if err != nil {
		return err
	}
	os.Remove(f.Name()) // where that fails, the scratch space goes with the run anyway
	if _, err := f.Write(s.buf); err != nil {
		f.Close()
		return err
	}
	s.f, s.buf = f, nil
	return nil
}

// source hands over what was written.
func (s *spool) source() *source {
	if s.f == nil {
		return &source{ReaderAt: bytes.NewReader(s.buf), size: s.size}
	}
	f := s.f
	return &source{ReaderAt: f, size: s.size, close: func() { f.Close() }}
}

func (s *spool) drop() {
	if s.f != nil {
		s.f.Close()
	}
	s.buf, s.f = nil, nil
}

// output is where a member's bytes go besides their digest: into a file of the answer, and, where a stream gives a
// container that must be read at random, into a spool.
type output struct {
	c     *container
	file  io.WriteCloser
	spool *spool
	tried bool // it is decided whether the member is spooled
	done  bool
}

// recogniseFrom is how many first bytes decide whether a member of a stream is spooled: as far as the mark of an ISO
// 9660 image, the last one of a format that has a reader.
const recogniseFrom = 0x8001 + 5

func (c *container) output(m *member) (*output, error) {
	o := &output{c: c, tried: !c.stream || m.opaque}
	if m.write {
		f, err := c.w.extract.create(m)
		if err != nil {
			return nil, err
		}
		o.file = f
	}
	return o, nil
}

func (o *output) write(m *member, p []byte) error {
	if o.file != nil {
		if _, err := o.file.Write(p); err != nil {
			return err
		}
	}
	if !o.tried && m.content.Size >= recogniseFrom {
		o.start(m, m.head[:min(int64(len(m.head)), m.content.Size-int64(len(p)))])
	}
	return o.keep(m, p)
}

// start decides about the spool; before is what was read already.
func (o *output) start(m *member, before []byte) {
	o.tried = true
	if !hasReader(m.path, contentFormat(m.head, m.content.Size), m.head) && !hasSuffix(m.path, ".dmg") {
		return // what a disk image is shows at its end only, so its name is enough here
	}
	o.spool = &spool{scratch: o.c.w.scratch}
	_, _ = o.spool.Write(before) // fits into memory: cannot fail
}

func (o *output) keep(m *member, p []byte) error {
	if o.spool == nil {
		return nil
	}
	if _, err := o.spool.Write(p); err != nil {
		o.spool.drop()
		o.spool = nil
		m.opaque = true
		m.notes = append(m.notes, noRoom)
		m.incomplete = true
	}
	return nil
}

// noRoom is said of a container that does not fit into scratch space.
const noRoom = "It is a container and was not opened: the run's scratch space cannot hold it."

func (o *output) close(m *member) error {
	o.done = true
	if !o.tried {
		o.start(m, m.head)
	}
	if o.spool != nil {
		m.spooled = o.spool.source()
	}
	if o.file != nil {
		return o.file.Close()
	}
	return nil
}

// abort ends an output whose member was not read to the end. A file so left is part of no answer: the operation that
// writes files fails with it.
func (o *output) abort() {
	if o.done {
		return
	}
	if o.spool != nil {
		o.spool.drop()
	}
	if o.file != nil {
		o.file.Close()
	}
}
