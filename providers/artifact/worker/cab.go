package worker

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"

	"rea/providers/artifact/worker/cab"
)

// readCab reads Microsoft cabinets. A cabinet of a set gives what it holds whole.
func readCab(c *container) error {
	a, err := cab.Open(c.src, c.src.size)
	if err != nil {
		return err
	}
	if a.Broken != nil {
		c.partial("Its list of files breaks off, and the files before that point were read: " + reason(a.Broken) + ".")
	}
	if a.Size > c.src.size {
		c.partial(fmt.Sprintf("It is cut: %d bytes declared, %d present.", a.Size, c.src.size))
	}
	for _, other := range []struct {
		where string
		name  []byte
	}{{"before", a.Previous}, {"behind", a.Next}} {
		if other.name != nil {
			c.note("It is one of a set of cabinets; the one " + other.where + " it is called " + quote(other.name) + ".")
		}
	}
	// As every ordinary cabinet has them. Another order would decode folders again and again.
	slices.SortStableFunc(a.Files, func(x, y cab.File) int {
		return cmp.Or(cmp.Compare(uint(x.Folder), uint(y.Folder)), cmp.Compare(x.Offset, y.Offset))
	})
	c.stream = true
	z := &cabReader{c: c, a: a, folder: -1}
	buf := make([]byte, copyBuffer)
	for i := range a.Files {
		if err := c.one(z.member(&a.Files[i]), buf); err != nil {
			return err
		}
	}
	end := min(a.Size, c.src.size)
	_, err = c.outside([]extent{{0, min(a.Listed, c.src.size)}, {min(a.Data, end), end}})
	return err
}

// cabReader turns files of a cabinet into members of the graph.
type cabReader struct {
	c      *container
	a      *cab.Cabinet
	folder int // that block decodes, -1 for none
	block  *solid
}

func (z *cabReader) member(f *cab.File) *member {
	m := &member{declared: f.Size, compressed: -1, executable: f.Executable, method: "continued"}
	// Names are paths of Windows.
	z.c.add(m, split(bytes.ReplaceAll(f.Name, []byte(`\`), []byte("/"))))
	if f.Folder < 0 {
		m.problem = "It begins or ends in another cabinet of its set, which is not read."
		return m
	}
	kind := z.a.Folders[f.Folder].Compression
	m.method = kind.String()
	if !kind.Read() {
		m.problem = fmt.Sprintf("Compression method %s is not read.", kind)
		return m
	}
	m.open = func() (io.ReadCloser, error) {
		if z.folder != f.Folder {
			z.folder = f.Folder
			z.block = &solid{c: z.c, packed: z.c.src.size, open: func() (io.Reader, error) { return z.a.OpenFolder(f.Folder) }}
		}
		return z.block.member(f.Offset, f.Size)
	}
	return m
}
