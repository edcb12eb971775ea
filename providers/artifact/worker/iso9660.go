package worker

import (
	"fmt"
	"io"
	"iter"
	"slices"

	"rea/evidence/target"
	"rea/providers/artifact"
	"rea/providers/artifact/worker/iso9660"
)

// readISO reads an ISO 9660 image.
func readISO(c *container) error {
	im, err := iso9660.Open(c.src, c.src.size)
	if err != nil {
		return err
	}
	i := &isoReader{c: c, im: im}
	if err := c.each(i.members()); err != nil {
		return err
	}
	i.trouble.tell(c)
	if c.w.graph == nil {
		return nil
	}
	return i.describe()
}

type isoReader struct {
	c       *container
	im      *iso9660.Image
	trouble troubles
}

// describe says what else the image has: other trees over the same bytes, a program in front, bytes behind.
func (i *isoReader) describe() error {
	c, im := i.c, i.im
	if same, read, other := im.Same(); !same {
		c.note(fmt.Sprintf("Its %s tree, which was read, names %d pieces of data and its %s tree %d, not all of them the same: other programs may see other members.",
			im.Tree, read, im.Other, other))
	}
	if im.UDF {
		c.note("It also holds a UDF file system, which is not read: other programs may see other members.")
	}
	if im.Boot {
		c.note("It has a boot record; what that starts is a member only where a directory names it.")
	}
	zero, err := c.isZero(0, min(iso9660.System, c.src.size))
	if err != nil {
		return err
	}
	if !zero {
		if err := c.region(artifact.RegionPrefix, 0, iso9660.System); err != nil {
			return err
		}
	}
	if im.Used > c.src.size {
		c.partial(fmt.Sprintf("It says that it has %d bytes, and %d are there.", im.Used, c.src.size))
		return nil
	}
	return c.behind(im.Used)
}

func (i *isoReader) members() iter.Seq2[*member, error] {
	return func(yield func(*member, error) bool) {
		i.im.Walk(func(e *iso9660.Entry) bool { return yield(i.member(e), nil) }, i.trouble.add)
	}
}

func (i *isoReader) member(e *iso9660.Entry) *member {
	m := &member{declared: -1, compressed: -1, method: "stored"}
	i.c.add(m, e.Names)
	switch e.Kind {
	case iso9660.Directory:
		m.kind, m.method = artifact.EntryDirectory, string(artifact.EntryDirectory)
	case iso9660.Symlink:
		m.symlink(e.Link)
		m.method = string(artifact.EntrySymlink)
	case iso9660.Block:
		m.special(target.Block)
	case iso9660.Char:
		m.special(target.Char)
	case iso9660.FIFO:
		m.special(target.FIFO)
	case iso9660.Socket:
		m.special(target.Socket)
	case iso9660.File:
		m.executable = e.Mode&0o111 != 0
		i.file(m, e)
	}
	return m
}

func (i *isoReader) file(m *member, e *iso9660.Entry) {
	m.declared = e.Size
	if e.Zisofs {
		m.method = "zisofs"
		m.notes = append(m.notes, "The file system stores it compressed (zisofs); these are the bytes as they are stored.")
		m.incomplete = true
	}
	switch {
	case e.Problem != "":
		m.problem = "It cannot be read: " + e.Problem + "."
	case len(e.Extents) == 0:
		i.c.stored(m, 0, 0)
		m.source = nil
	case len(e.Extents) == 1:
		i.c.stored(m, e.Extents[0].Start, e.Extents[0].Length)
	default:
		src, extents := i.c.src, slices.Clone(e.Extents)
		m.compressed = e.Size
		m.from(func() io.Reader {
			parts := make([]io.Reader, len(extents))
			for n, x := range extents {
				parts[n] = io.NewSectionReader(src, x.Start, x.Length)
			}
			return io.MultiReader(parts...)
		})
	}
}
