package worker

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"

	"golang.org/x/sys/unix"

	"rea/evidence/target"
	"rea/providers/artifact"
	"rea/providers/artifact/worker/asar"
)

// companionSuffix follows an ASAR's name in that of the directory of its unpacked files.
const companionSuffix = ".unpacked"

// companion is the file of an unpacked entry.
type companion struct {
	io.ReadCloser
	executable bool
	check      func(m *member) string // nil for none
}

// companions finds the file of an unpacked entry by the components of its path; unavailable where there is none.
type companions func(names [][]byte) (*companion, error)

const noCompanion = "It is unpacked, and its companion file is not there."

// below finds companions in a directory of the target. Nothing but plain components is looked up, and no link is
// followed.
func below(root *os.File, prefix []byte) companions {
	return func(names [][]byte) (*companion, error) {
		path := prefix
		for i, n := range names {
			if len(n) == 0 || string(n) == "." || string(n) == ".." || bytes.ContainsAny(n, "/\x00") {
				return nil, unavailable{"It is unpacked, and its name cannot be that of a companion file."}
			}
			if i > 0 || len(prefix) > 0 {
				path = append(path[:len(path):len(path)], '/')
			}
			path = append(path, n...)
		}
		f, err := target.OpenBeneath(root, path)
		switch {
		case err == nil:
			return &companion{ReadCloser: f, executable: f.Info.Exec, check: func(m *member) string {
				m.fatal = f.Check()
				return ""
			}}, nil
		case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
			return nil, unavailable{"It is unpacked, and its companion file is not readable."}
		case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ENAMETOOLONG):
			return nil, unavailable{noCompanion}
		case errors.Is(err, unix.ELOOP), errors.Is(err, unix.EXDEV), errors.Is(err, unix.ENXIO), errors.Is(err, target.ErrNotRegular):
			return nil, unavailable{"It is unpacked, and its companion is a link or no regular file; it was not opened."}
		}
		return nil, err
	}
}

// readASAR reads an ASAR archive: packed entries from its own bytes, unpacked ones from their companions.
func readASAR(c *container) error {
	h, err := asar.ReadHead(c.src, c.src.size)
	if err != nil {
		return err
	}
	if h.JSONLength > maxASARHeader {
		return &hit{"asar-header-bytes", maxASARHeader, int64(h.JSONLength), c.path}
	}
	a := &asarReader{c: c, data: h.DataOffset()}
	err = c.each(a.members(h))
	if errors.Is(err, asar.ErrFormat) {
		if a.seen == 0 {
			return err
		}
		c.partial("Its header is broken; the entries before that point were read: " + reason(err) + ".")
		return nil
	}
	return err
}

type asarReader struct {
	c    *container
	data int64 // where packed bytes begin
	seen int
}

func (a *asarReader) members(h asar.Head) iter.Seq2[*member, error] {
	return func(yield func(*member, error) bool) {
		err := asar.Walk(a.c.src, h, func(e *asar.Entry) error {
			a.seen++
			if !yield(a.member(e), nil) {
				return errStopped
			}
			return nil
		})
		if err != nil && !errors.Is(err, errStopped) {
			yield(nil, err)
		}
	}
}

func (a *asarReader) member(e *asar.Entry) *member {
	m := &member{declared: e.Size, compressed: -1, executable: e.Executable, method: "packed"}
	switch e.Kind {
	case asar.Directory:
		m.kind = artifact.EntryDirectory
	case asar.Link:
		m.kind, m.link, m.declared = artifact.EntrySymlink, bytes.Clone(e.Target), -1
	}
	a.c.add(m, e.Names)
	if e.Kind != asar.File {
		m.method = string(m.kind)
		return m
	}
	if in := e.Integrity; in != nil {
		m.digest = &artifact.Declared{SHA256: in.SHA256, Unpacked: e.Unpacked}
		m.blockSize, m.blocks = in.BlockSize, in.Blocks
	}
	if e.Unpacked {
		a.unpacked(m, e)
		return m
	}
	a.packed(m, e)
	return m
}

func (a *asarReader) packed(m *member, e *asar.Entry) {
	room := a.c.src.size - a.data
	offset := e.Offset
	if e.Size == 0 && offset < 0 {
		offset = 0 // an empty file needs no place
	}
	switch {
	case e.Size < 0:
		m.problem = "Its size is absent or is not a whole number."
		return
	case offset < 0:
		m.problem = "Its offset is absent or is not a whole number."
		return
	case offset > room || e.Size > room-offset:
		m.problem = fmt.Sprintf("Its range lies outside the file: %d bytes at %d, and %d bytes are packed.", e.Size, offset, room)
		return
	}
	a.c.stored(m, a.data+offset, e.Size)
}

// unpacked reads the companion. Its size is whatever the file has: packagers change companions after packing, and the
// declared digest, if there is one, says whether they did.
func (a *asarReader) unpacked(m *member, e *asar.Entry) {
	m.method = "unpacked"
	m.notes = append(m.notes, "It is unpacked: its bytes lie beside the archive.")
	if a.c.companions == nil {
		m.problem, m.missing = noCompanion, true
		return
	}
	names := make([][]byte, len(e.Names))
	for i, n := range e.Names {
		names[i] = bytes.Clone(n)
	}
	find := a.c.companions
	m.open = func() (io.ReadCloser, error) {
		f, err := find(names)
		if err != nil {
			return nil, err
		}
		m.executable = m.executable || f.executable
		m.check = func(m *member) string {
			if m.declared >= 0 && m.content.Size != m.declared {
				m.notes = append(m.notes, fmt.Sprintf("Its header declares %d bytes, and its companion has %d.", m.declared, m.content.Size))
			}
			if f.check != nil {
				return f.check(m)
			}
			return ""
		}
		return f, nil
	}
}
