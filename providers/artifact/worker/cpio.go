package worker

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"

	"rea/evidence/target"
	"rea/providers/artifact"
	"rea/providers/artifact/worker/cpio"
)

// readCpio reads a plain cpio archive: the members' bytes can be read at random.
func readCpio(c *container) error {
	t := &cpioReader{c: c, r: cpio.NewSection(c.src.reader()), known: map[cpio.Inode]hardLink{}}
	t.peek = func(n int) []byte {
		b := make([]byte, n)
		got, _ := c.src.ReadAt(b, min(t.r.Offset(), c.src.size))
		return b[:got]
	}
	if err := c.each(t.sections()); err != nil {
		return err
	}
	return t.end(func(at int64) error {
		zero, err := c.isZero(at, c.src.size)
		if err != nil || zero {
			return err
		}
		c.note(fmt.Sprintf("%d bytes that are not all zero follow its end mark, from %d.", c.src.size-at, at))
		return c.region(artifact.RegionTail, at, c.src.size)
	})
}

// cpioStream reads a cpio archive inside a compressed stream.
func (c *container) cpioStream(br *bufio.Reader) error {
	in := bufio.NewReaderSize(endAtTail{br}, copyBuffer)
	t := &cpioReader{c: c, r: cpio.NewReader(in), known: map[cpio.Inode]hardLink{}}
	t.peek = func(n int) []byte { b, _ := in.Peek(n); return b }
	buf := make([]byte, copyBuffer)
	for m := range t.members(t.streamed) {
		if err := c.one(m, buf); err != nil {
			return err
		}
	}
	return t.end(func(int64) error {
		other, err := io.Copy(io.Discard, in)
		if other > 0 && err == nil {
			c.note(fmt.Sprintf("Bytes follow the end mark of its cpio archive: %d.", other))
		}
		return nil // the stream's own end says why
	})
}

// cpioReader turns members of a cpio archive into members of the graph.
type cpioReader struct {
	c     *container
	r     *cpio.Reader
	peek  func(n int) []byte // what follows the reader's position
	known map[cpio.Inode]hardLink
	seen  int
	ended error // why there are no more members

	// links are hard links whose bytes stand with a later member, if any has them; data are the members that had them.
	links map[cpio.Inode][]*cpio.Member
	data  map[cpio.Inode]*cpio.Member
	held  int
}

// sections gives the members of a plain archive.
func (t *cpioReader) sections() iter.Seq2[*member, error] {
	return func(yield func(*member, error) bool) {
		for m := range t.members(t.bytes) {
			if !yield(m, nil) {
				return
			}
		}
	}
}

// members gives every member once its bytes, if it has some, are known to be here; open attaches them.
func (t *cpioReader) members(open func(m *member, h *cpio.Member)) iter.Seq[*member] {
	return func(yield func(*member) bool) {
		for {
			h, err := t.r.Next()
			if err == io.EOF && t.again() {
				continue
			}
			if err != nil {
				t.ended = err
				break
			}
			t.seen++
			if t.hold(h) {
				continue
			}
			m := t.member(h)
			if m == nil {
				continue
			}
			if m.hasBytes() || m.linkData {
				open(m, h)
			}
			if !yield(m) || !t.let(h, yield) {
				return
			}
		}
		for _, h := range t.left() {
			if !yield(t.empty(h)) {
				return
			}
		}
	}
}

// left gives the links that still wait at the end, in archive order: files without bytes, or whose bytes are missing.
func (t *cpioReader) left() []*cpio.Member {
	var all []*cpio.Member
	for _, links := range t.links {
		all = append(all, links...)
	}
	slices.SortFunc(all, func(a, b *cpio.Member) int { return cmp.Compare(a.Start, b.Start) })
	return all
}

// again goes on with an archive behind the one that ended.
func (t *cpioReader) again() bool {
	more, err := t.r.Again(t.peek)
	return more && err == nil
}

// hold keeps a hard link back whose bytes stand with a later one.
func (t *cpioReader) hold(h *cpio.Member) bool {
	if !h.LateData() || h.Type() != cpio.TypeRegular || h.Links < 2 || h.Size > 0 || t.held == maxHardLinks || t.data[h.Inode] != nil {
		return false
	}
	if t.links == nil {
		t.links, t.data = map[cpio.Inode][]*cpio.Member{}, map[cpio.Inode]*cpio.Member{}
	}
	t.links[h.Inode] = append(t.links[h.Inode], h)
	t.held++
	return true
}

// let gives the links that waited for the bytes of h.
func (t *cpioReader) let(h *cpio.Member, yield func(*member) bool) bool {
	waiting := t.links[h.Inode]
	if len(waiting) == 0 || h.Type() != cpio.TypeRegular {
		return true
	}
	delete(t.links, h.Inode)
	t.data[h.Inode] = h
	for _, w := range waiting {
		if !yield(t.c.add(t.linked(w, h), split(trimDot(w.Name)))) {
			return false
		}
	}
	return true
}

// linked is the hard link w to the file whose bytes stand with h.
func (t *cpioReader) linked(w, h *cpio.Member) *member {
	m := t.described(w)
	m.method, m.declared = "hard-link", -1
	m.resolve = func(m *member) { t.follow(m, h) }
	return m
}

// empty is a held link for which no bytes came.
func (t *cpioReader) empty(h *cpio.Member) *member {
	m := t.described(h)
	m.open = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(nil)), nil }
	return t.c.add(m, split(trimDot(h.Name)))
}

func (t *cpioReader) described(h *cpio.Member) *member {
	return &member{declared: h.Size, compressed: -1, executable: h.Mode&0o111 != 0, method: h.Form}
}

// member makes a member without its bytes; nil for the archive's own root.
func (t *cpioReader) member(h *cpio.Member) *member {
	name := trimDot(h.Name)
	if first := t.data[h.Inode]; first != nil && h.Size == 0 && h.Type() == cpio.TypeRegular {
		return t.c.add(t.linked(h, first), split(name))
	}
	m := t.described(h)
	switch h.Type() {
	case cpio.TypeDirectory:
		name = bytes.TrimSuffix(name, []byte("/"))
		if len(name) == 0 {
			return nil
		}
		m.kind, m.executable, m.declared = artifact.EntryDirectory, false, 0
	case cpio.TypeSymlink:
		m.kind, m.executable, m.linkData = artifact.EntrySymlink, false, true
	case cpio.TypeChar, cpio.TypeBlock, cpio.TypeFIFO, cpio.TypeSocket:
		m.omitted = map[uint32]target.Kind{
			cpio.TypeChar: target.Char, cpio.TypeBlock: target.Block, cpio.TypeFIFO: target.FIFO, cpio.TypeSocket: target.Socket,
		}[h.Type()]
	case cpio.TypeRegular, 0: // some writers leave the type out
		m.finish = func() error { t.remember(h, m); return nil }
	default:
		m.problem = fmt.Sprintf("It is a member of type %o, which is not read.", h.Type())
	}
	return t.c.add(m, split(name))
}

// bytes says where a member's bytes lie.
func (t *cpioReader) bytes(m *member, h *cpio.Member) {
	src := t.c.src
	if left := src.size - h.Start; h.Size > left {
		m.problem = fmt.Sprintf("Its data is cut: %d bytes declared, %d present.", h.Size, left)
		return
	}
	t.c.stored(m, h.Start, h.Size)
	t.sum(m, h)
}

func (t *cpioReader) streamed(m *member, h *cpio.Member) {
	m.open = func() (io.ReadCloser, error) { return io.NopCloser(t.r), nil }
	t.sum(m, h)
}

// sum verifies the sum of bytes that form "crc" has, and settles a link whose target is data.
func (t *cpioReader) sum(m *member, h *cpio.Member) {
	if m.linkData {
		m.check = func(m *member) string { m.open, m.section = nil, nil; return "" }
		return
	}
	if h.Form != "crc" {
		return
	}
	s := &summed{}
	open := m.open
	m.open = func() (io.ReadCloser, error) {
		r, err := open()
		s.ReadCloser, s.sum = r, 0
		return s, err
	}
	m.check = func(*member) string {
		if s.sum != h.Sum {
			return fmt.Sprintf("Its declared sum of bytes is contradicted: %08x declared, %08x observed.", h.Sum, s.sum)
		}
		return ""
	}
}

// summed adds up the bytes that are read.
type summed struct {
	io.ReadCloser
	sum uint32
}

// Read implements io.Reader.
func (s *summed) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	for _, b := range p[:n] {
		s.sum += uint32(b)
	}
	return n, err
}

// remember keeps what a file's bytes are, for the hard links that waited for it.
func (t *cpioReader) remember(h *cpio.Member, m *member) {
	if m.read && h.Links > 1 && len(t.known) < maxHardLinks {
		t.known[h.Inode] = hardLink{m.content, m.format}
	}
}

// follow gives a hard link the content that came with another one.
func (t *cpioReader) follow(m *member, h *cpio.Member) {
	m.notes = append(m.notes, "It is a hard link to "+quote(trimDot(h.Name))+", with which its bytes stand.")
	known, ok := t.known[h.Inode]
	if !ok {
		m.problem, m.missing = "Those bytes could not be read.", true
		return
	}
	m.known, m.format = &known.content, known.format
}

// end says how the archive ended. tail is called with the offset behind its end mark.
func (t *cpioReader) end(tail func(at int64) error) error {
	c := t.c
	if t.r.Archives > 1 {
		c.note(fmt.Sprintf("It is %d archives, one behind another; members of all of them are listed.", t.r.Archives))
	}
	switch {
	case t.ended == nil: // the traversal stopped
		return nil
	case errors.Is(t.ended, io.EOF) && t.r.Ended:
		return tail(t.r.Offset())
	case errors.Is(t.ended, io.EOF):
		c.partial("It has no end mark: members may be missing.")
	case errors.Is(t.ended, io.ErrUnexpectedEOF):
		c.partial("It ends inside a member or header, at byte " + fmt.Sprint(t.r.Offset()) + ".")
	case errors.Is(t.ended, cpio.ErrFormat) && t.seen == 0:
		return t.ended
	case errors.Is(t.ended, cpio.ErrFormat):
		c.partial("It breaks off, and the members before that point were read: " + reason(t.ended) + ".")
	case !c.stream: // a stream's own end says why
		return t.ended
	}
	return nil
}
