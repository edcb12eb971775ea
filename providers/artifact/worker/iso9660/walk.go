package iso9660

import (
	"bytes"
	"errors"
	"fmt"
	"hash/maphash"
	"io"

	"rea/providers/artifact/worker/ucs2"
)

// Kind is what an entry is.
type Kind uint8

// The kinds.
const (
	File Kind = iota
	Directory
	Symlink
	Block
	Char
	FIFO
	Socket
)

// Extent is a run of bytes of the image.
type Extent struct{ Start, Length int64 }

// Entry is one name of the image.
type Entry struct {
	Names   [][]byte // components of its path; valid until the next entry
	Kind    Kind
	Mode    uint32 // permission bits, 0 where the tree has none
	Size    int64
	Extents []Extent // of a file, inside the image; neighbours are joined
	Link    []byte   // target of a symbolic link
	Zisofs  bool     // the bytes are compressed by the file system
	Problem string   // why the bytes cannot be read, "" for none
}

var errStop = errors.New("ended")

// Walk gives every entry of the chosen tree to yield, a directory before what is in it, until yield returns false.
// Directories that are not read to their end are given to broken, after what was read of them.
func (m *Image) Walk(yield func(*Entry) bool, broken func(names [][]byte, err error)) {
	m.walk(m.Tree, yield, broken)
}

func (m *Image) walk(tree Tree, yield func(*Entry) bool, broken func(names [][]byte, err error)) {
	root := &m.primary
	if tree == Joliet {
		root = &m.joliet
	}
	w := &walker{m: m, tree: tree, yield: yield, broken: broken, open: map[int64]bool{root.extent: true}, budget: m.size}
	w.stack = append(w.stack, m.list(root, 0))
	for len(w.stack) > 0 {
		if w.step() == errStop {
			return
		}
	}
}

// Same reports whether the tree that is not read names the same bytes as the one that is, and how many files with bytes
// each has. Without another tree they are the same.
func (m *Image) Same() (same bool, read, other int) {
	if m.Other == "" {
		return true, 0, 0
	}
	seed := maphash.MakeSeed()
	count := func(tree Tree) (files int, sum uint64) {
		m.walk(tree, func(e *Entry) bool {
			for _, x := range e.Extents {
				files++
				sum += maphash.Comparable(seed, x)
			}
			return true
		}, func([][]byte, error) {})
		return files, sum
	}
	read, readSum := count(m.Tree)
	other, otherSum := count(m.Other)
	return read == other && readSum == otherSum, read, other
}

type walker struct {
	m      *Image
	tree   Tree
	yield  func(*Entry) bool
	broken func(names [][]byte, err error)
	stack  []*listing
	names  [][]byte
	open   map[int64]bool // extents of the directories on the stack
	budget int64          // bytes of directories: sound ones do not overlap, so the image's size is enough
}

func (w *walker) leave() {
	top := w.stack[len(w.stack)-1]
	delete(w.open, top.extent)
	w.stack = w.stack[:len(w.stack)-1]
	if len(w.names) > 0 {
		w.names = w.names[:len(w.names)-1]
	}
}

func (w *walker) step() error {
	top := w.stack[len(w.stack)-1]
	r, err := top.next()
	if err == io.EOF {
		w.leave()
		return nil
	}
	if err != nil {
		w.broken(w.names, err)
		w.leave()
		return nil
	}
	if len(r.name) == 1 && r.name[0] <= 1 {
		return nil // the directory itself, and the one above
	}
	e := &Entry{Mode: 0, Kind: File}
	s := systemUse{m: w.m, child: -1}
	if w.tree == RockRidge {
		s.read(r.system[min(w.m.skip, len(r.system)):])
		if s.moved {
			return nil // shown where it belongs
		}
	}
	name := w.name(&r, &s)
	w.names = append(w.names, name)
	e.Names = w.names
	w.describe(e, &r, &s, top)
	if !w.yield(e) {
		return errStop
	}
	if e.Kind == Directory {
		if err := w.descend(&r, &s, top.length+1+len(name)); err == nil {
			return nil
		} else if err != errLong {
			w.broken(w.names, err)
		}
	}
	w.names = w.names[:len(w.names)-1]
	return nil
}

// name gives a record's name in the tree that is read.
func (w *walker) name(r *record, s *systemUse) []byte {
	switch {
	case s.named:
		return s.name
	case w.tree == Joliet:
		return version(ucs2.Bytes(ucs2.BigEndian(r.name)))
	}
	return bytes.TrimSuffix(version(r.name), []byte("."))
}

// version takes the version number away that follows a semicolon.
func version(name []byte) []byte {
	i := bytes.LastIndexByte(name, ';')
	if i <= 0 || i == len(name)-1 || len(bytes.Trim(name[i+1:], "0123456789")) > 0 {
		return name
	}
	return name[:i]
}

// describe fills in what a record says of its entry.
func (w *walker) describe(e *Entry, r *record, s *systemUse, from *listing) {
	e.Mode = s.mode & 0o7777
	e.Kind = kindOf(r, s)
	if e.Kind == Symlink {
		e.Link = s.link
		return
	}
	if e.Kind != File {
		return
	}
	e.Zisofs = s.zf
	for {
		w.extent(e, r)
		if r.flags&flagMore == 0 {
			return
		}
		next, err := from.next()
		if err != nil || !bytes.Equal(next.name, r.name) {
			e.Problem = "the record that continues it is not there"
			return
		}
		*r = next
	}
}

func kindOf(r *record, s *systemUse) Kind {
	const format = 0o170000
	if s.child >= 0 || r.flags&flagDirectory != 0 {
		return Directory
	}
	if s.posix {
		switch s.mode & format {
		case 0o120000:
			return Symlink
		case 0o060000:
			return Block
		case 0o020000:
			return Char
		case 0o010000:
			return FIFO
		case 0o140000:
			return Socket
		}
	}
	return File
}

// extent adds the bytes of one record to a file.
func (w *walker) extent(e *Entry, r *record) {
	const maxExtents = 1 << 16 // of 4 GiB each
	m := w.m
	x := Extent{(r.extent + r.attrLen) * m.block, r.size}
	e.Size += x.Length
	switch {
	case r.unit != 0 || r.gap != 0:
		e.Problem = "its bytes are interleaved with others'"
	case m.set > 1 && r.volume != m.number:
		e.Problem = fmt.Sprintf("its bytes are on volume %d of %d", r.volume, m.set)
	case x.Length > m.size || x.Start > m.size-x.Length:
		if x.Length > 0 {
			e.Problem = fmt.Sprintf("%d bytes are declared at %d, and the image ends at %d", x.Length, x.Start, m.size)
		}
	case x.Length == 0:
	case len(e.Extents) > 0 && e.Extents[len(e.Extents)-1].Start+e.Extents[len(e.Extents)-1].Length == x.Start:
		e.Extents[len(e.Extents)-1].Length += x.Length
	case len(e.Extents) == maxExtents:
		e.Problem = "it has too many pieces"
	default:
		e.Extents = append(e.Extents, x)
	}
}

// errLong says that a path is too long to go on.
var errLong = errors.New("the path is too long")

// descend opens the directory of a record, or the one that was moved away and belongs here.
func (w *walker) descend(r *record, s *systemUse, length int) error {
	if length > maxPath {
		return errLong
	}
	dir := *r
	if s.child >= 0 {
		l := w.m.list(&record{extent: s.child, size: sector}, 0)
		own, err := l.next()
		if err != nil {
			return noEOF(err)
		}
		dir = record{extent: s.child, size: own.size}
	}
	switch {
	case w.open[dir.extent]:
		return fmt.Errorf("%w: the directory contains itself", ErrFormat)
	case len(w.stack) == maxDepth:
		return fmt.Errorf("directories are nested more than %d deep", maxDepth)
	case dir.size > w.budget:
		return fmt.Errorf("%w: its directories overlap", ErrFormat)
	}
	w.budget -= dir.size
	w.open[dir.extent] = true
	w.stack = append(w.stack, w.m.list(&dir, length))
	return nil
}
