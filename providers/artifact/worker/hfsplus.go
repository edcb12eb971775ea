package worker

import (
	"fmt"
	"io"
	"iter"
	"slices"

	"rea/evidence/target"
	"rea/providers/artifact"
	"rea/providers/artifact/worker/hfsplus"
)

// resourceSuffix names a file's resource fork below the file, as Darwin does.
var resourceSuffix = [][]byte{[]byte("..namedfork"), []byte("rsrc")}

// readHFSPlus reads an HFS Plus volume.
func readHFSPlus(c *container) error {
	v, err := hfsplus.Open(c.src, c.src.size)
	if err != nil {
		return err
	}
	h := &hfsReader{c: c, v: v}
	if err := c.each(h.members()); err != nil {
		return err
	}
	h.trouble.tell(c)
	if v.Dirty {
		c.note("It was not unmounted: changes that stand in its journal only are not told.")
	}
	if v.Used > c.src.size {
		c.partial(fmt.Sprintf("It says that it has %d bytes, and %d are there.", v.Used, c.src.size))
	}
	return nil
}

type hfsReader struct {
	c       *container
	v       *hfsplus.Volume
	trouble troubles
}

func (h *hfsReader) members() iter.Seq2[*member, error] {
	return func(yield func(*member, error) bool) {
		err := h.v.Walk(func(e *hfsplus.Entry) bool {
			if !yield(h.member(e), nil) {
				return false
			}
			if e.Resource == nil || e.Compressed != 0 || e.Resource.Size == 0 {
				return true
			}
			m := &member{declared: e.Resource.Size, compressed: e.Resource.Size, method: "resource-fork"}
			h.c.add(m, slices.Concat(e.Names, resourceSuffix))
			h.fork(m, e.Resource)
			return yield(m, nil)
		}, h.trouble.add)
		if err != nil {
			yield(nil, err)
		}
	}
}

func (h *hfsReader) member(e *hfsplus.Entry) *member {
	m := &member{declared: -1, compressed: -1, method: "stored"}
	h.c.add(m, e.Names)
	switch e.Kind {
	case hfsplus.Directory:
		m.kind, m.method = artifact.EntryDirectory, string(artifact.EntryDirectory)
	case hfsplus.Symlink:
		m.method = string(artifact.EntrySymlink)
		h.link(m, e)
	case hfsplus.Block:
		m.special(target.Block)
	case hfsplus.Char:
		m.special(target.Char)
	case hfsplus.FIFO:
		m.special(target.FIFO)
	case hfsplus.Socket:
		m.special(target.Socket)
	case hfsplus.File:
		m.executable = e.Mode&0o111 != 0
		h.file(m, e)
	}
	return m
}

// link reads a symbolic link's target, which is its data.
func (h *hfsReader) link(m *member, e *hfsplus.Entry) {
	to := []byte(nil)
	if e.Problem == "" {
		to = make([]byte, min(e.Size, maxLink))
		if n, err := e.Data.ReadAt(to, 0); n < len(to) {
			m.notes = append(m.notes, "Its recorded target cannot be read: "+reason(err)+".")
			m.incomplete = true
			to = to[:n]
		}
	}
	m.symlink(to)
}

func (h *hfsReader) file(m *member, e *hfsplus.Entry) {
	if e.HardLink {
		m.method = "hard-link"
		m.notes = append(m.notes, "It is a hard link: other names of the volume stand for the same file.")
	}
	if e.Problem != "" {
		m.problem = "It cannot be read: " + e.Problem + "."
		return
	}
	m.declared = exact(uint64(e.Size))
	if e.Compressed == 0 {
		h.fork(m, e.Data)
		return
	}
	m.method = fmt.Sprintf("decmpfs-%d", e.Compressed)
	if e.Resource != nil {
		m.compressed = e.Resource.Size
	}
	own := *e
	own.Names = nil
	m.from(func() io.Reader { return own.Open() })
}

// fork says where the bytes of a fork are.
func (h *hfsReader) fork(m *member, f *hfsplus.Fork) {
	if len(f.Extents) == 1 {
		h.c.stored(m, f.Extents[0].Start, f.Extents[0].Length)
		return
	}
	m.compressed, m.section = f.Size, f
	m.from(func() io.Reader { return io.NewSectionReader(f, 0, f.Size) })
}
