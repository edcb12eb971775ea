package worker

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"

	"rea/evidence/target"
	"rea/providers/artifact"
	"rea/providers/artifact/worker/tar"
)

// readTar reads a plain tar archive: the members' bytes can be read at random.
func readTar(c *container) error {
	t := &tarReader{c: c, r: tar.NewSection(c.src.reader()), known: map[string]hardLink{}}
	err := c.each(t.sections())
	if err != nil {
		return err
	}
	return t.end(func(at int64) error { return t.tail(at) })
}

// tarReader turns members of a tar archive into members of the graph.
type tarReader struct {
	c     *container
	r     *tar.Reader
	known map[string]hardLink
	seen  int
	ended error // why there are no more members
}

// hardLink is what a hard link to an earlier member stands for.
type hardLink struct {
	content artifact.Content
	format  artifact.Format
}

// sections gives the members of a plain archive.
func (t *tarReader) sections() iter.Seq2[*member, error] {
	return func(yield func(*member, error) bool) {
		for {
			h, err := t.r.Next()
			if err != nil {
				t.ended = err
				return
			}
			m := t.member(h)
			if m == nil {
				continue
			}
			if m.hasBytes() {
				t.bytes(m, h)
			}
			if !yield(m, nil) {
				return
			}
		}
	}
}

// bytes says where a regular member's bytes lie.
func (t *tarReader) bytes(m *member, h *tar.Member) {
	src := t.c.src
	if h.Size > src.size-h.Start {
		m.problem = fmt.Sprintf("Its data is cut: %d bytes declared, %d present.", h.Size, src.size-h.Start)
		return
	}
	if h.Sparse == nil {
		t.c.stored(m, h.Start, h.Size)
		return
	}
	m.from(func() io.Reader { return h.Sparse.Expand(io.NewSectionReader(src, h.Start, h.Size)) })
}

// stream gives the members of an archive inside a compressed stream.
func (t *tarReader) stream() error {
	buf := make([]byte, copyBuffer)
	for {
		h, err := t.r.Next()
		if err != nil {
			t.ended = err
			return nil
		}
		m := t.member(h)
		if m == nil {
			continue
		}
		if m.hasBytes() {
			m.from(func() io.Reader {
				if h.Sparse != nil {
					return h.Sparse.Expand(t.r)
				}
				return t.r
			})
		}
		if err := t.c.one(m, buf); err != nil {
			return err
		}
	}
}

// member makes a member without its bytes; nil for what is no occurrence.
func (t *tarReader) member(h *tar.Member) *member {
	t.seen++
	name := trimDot(h.Name)
	if h.IsDir() {
		name = bytes.TrimSuffix(name, []byte("/"))
		if len(name) == 0 {
			return nil // the archive's own root
		}
	}
	m := &member{declared: h.Size, compressed: -1, executable: h.Mode&0o111 != 0, method: "regular", notes: h.Notes}
	switch {
	case h.IsDir():
		m.kind, m.executable, m.method = artifact.EntryDirectory, false, "directory"
	case h.Type == tar.TypeSymlink:
		m.kind, m.executable, m.method = artifact.EntrySymlink, false, "symlink"
		m.link, m.declared = h.Link, -1
	case h.Type == tar.TypeChar, h.Type == tar.TypeBlock, h.Type == tar.TypeFIFO:
		m.omitted = map[byte]target.Kind{tar.TypeChar: target.Char, tar.TypeBlock: target.Block, tar.TypeFIFO: target.FIFO}[h.Type]
	case h.Type == tar.TypeHardLink:
		m.method, m.declared = "hard-link", -1
		m.resolve = func(m *member) { t.follow(m, h.Link) }
	case h.Sparse != nil && h.Sparse.Problem != "":
		m.method = "sparse"
		m.problem = "It is a sparse member that is not read: " + h.Sparse.Problem + "."
	case h.Sparse == nil && !h.IsRegular() && 'A' <= h.Type && h.Type <= 'Z':
		m.method = "type-" + string(rune(h.Type))
		m.problem = fmt.Sprintf("It is a member of type %q, which is not read.", h.Type)
	default:
		m.finish = func() error { t.remember(name, m); return nil }
		if h.Sparse != nil {
			m.method, m.declared = "sparse", h.Sparse.Size
		}
	}
	t.image(m, name)
	return t.c.add(m, split(name))
}

// trimDot takes the leading "./" away that archives of a whole directory have before each name.
func trimDot(name []byte) []byte {
	for bytes.HasPrefix(name, []byte("./")) {
		name = bytes.TrimLeft(name[2:], "/")
	}
	if string(name) == "." {
		return nil
	}
	return name
}

// remember keeps what a member's bytes are, for hard links to it.
func (t *tarReader) remember(name []byte, m *member) {
	if m.read && len(t.known) < maxHardLinks {
		t.known[string(name)] = hardLink{m.content, m.format}
	}
}

// follow gives a hard link the content of the member that it names.
func (t *tarReader) follow(m *member, link []byte) {
	m.notes = append(m.notes, "It is a hard link to "+quote(link)+".")
	known, ok := t.known[string(trimDot(link))]
	if !ok {
		m.problem, m.missing = "No readable member of that name stands before it.", true
		return
	}
	m.known, m.format = &known.content, known.format
}

// end says how the archive ended. tail is called with the offset behind its end mark.
func (t *tarReader) end(tail func(at int64) error) error {
	c := t.c
	switch {
	case t.ended == nil: // the traversal stopped
		return nil
	case errors.Is(t.ended, io.EOF) && t.r.Ended:
		return tail(t.r.Offset())
	case errors.Is(t.ended, io.EOF):
		c.partial("It has no end mark: members may be missing.")
	case errors.Is(t.ended, io.ErrUnexpectedEOF):
		c.partial("It ends inside a member or header, at byte " + fmt.Sprint(t.r.Offset()) + ".")
	case errors.Is(t.ended, tar.ErrFormat) && t.seen == 0:
		return t.ended
	case errors.Is(t.ended, tar.ErrFormat):
		c.partial("It breaks off, and the members before that point were read: " + reason(t.ended) + ".")
	default:
		return t.ended
	}
	return nil
}

// tail looks at what stands behind the end mark of a plain archive: zeros fill its last record.
func (t *tarReader) tail(at int64) error {
	zero, err := t.c.isZero(at, t.c.src.size)
	if err != nil || zero {
		return err
	}
	t.c.note(fmt.Sprintf("%d bytes that are not all zero follow its end mark, from %d.", t.c.src.size-at, at))
	return t.c.region(artifact.RegionTail, at, t.c.src.size)
}

// isZero reports whether a byte range holds zeros only.
func (c *container) isZero(start, end int64) (bool, error) {
	r := io.NewSectionReader(c.src, start, end-start)
	buf := make([]byte, min(copyBuffer, max(end-start, 1)))
	for {
		n, err := r.Read(buf)
		if len(bytes.Trim(buf[:n], "\x00")) > 0 {
			return false, nil
		}
		if err == io.EOF {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		if err := c.w.ctx.Err(); err != nil {
			return false, err
		}
	}
}
