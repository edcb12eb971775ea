package cfb

import (
	"encoding/binary"
	"errors"
	"fmt"

	"rea/providers/artifact/worker/ucs2"
)

// Entry is one name of the file.
type Entry struct {
	Names   [][]byte // components of its path; valid until the next entry
	Storage bool     // it holds other entries
	Size    int64
	Stream  *Stream // the bytes, where they stand in sectors of their own
	Small   []byte  // the bytes, where they stand in the mini stream
	Problem string  // why there are no bytes, "" for none
}

// entry is a directory entry.
type entry struct {
	units              []uint16
	kind               byte
	left, right, child uint32
	class              [16]byte
	start              uint32
	size               int64
}

const (
	storage = 1
	stream  = 2
)

// count is the number of directory entries that there is room for.
func (f *File) count() int64 { return f.entries.Size / entrySize }

func (f *File) entry(i uint32) (*entry, error) {
	if int64(i) >= f.count() {
		return nil, fmt.Errorf("%w: directory entry %d of %d", ErrFormat, i, f.count())
	}
	var b [entrySize]byte
	if _, err := f.entries.ReadAt(b[:], int64(i)*entrySize); err != nil {
		return nil, noEOF(err)
	}
	le := binary.LittleEndian
	e := &entry{
		units: ucs2.LittleEndian(b[:max(0, min(64, int(le.Uint16(b[64:]))-2))]), kind: b[66], class: [16]byte(b[80:96]),
		left: le.Uint32(b[68:]), right: le.Uint32(b[72:]), child: le.Uint32(b[76:]), start: le.Uint32(b[116:]),
	}
	size := le.Uint64(b[120:])
	if f.major < 4 {
		size &= 1<<32 - 1 // writers of this version leave anything in the upper half
	}
	if size > uint64(f.size) {
		size = uint64(f.size) + 1 // is refused as too large
	}
	e.size = int64(size)
	return e, nil
}

var errStop = errors.New("ended")

// Walk gives every entry to yield, a storage before what is in it, until yield returns false. Storages that are not read
// to their end are given to broken, after what was read of them.
func (f *File) Walk(yield func(*Entry) bool, broken func(names [][]byte, err error)) {
	w := &walker{f: f, yield: yield, broken: broken, msi: f.Installer()}
	f.mark(0)
	w.stack = append(w.stack, &siblings{next: f.rootLeaf})
	for len(w.stack) > 0 {
		if w.step() == errStop {
			return
		}
	}
}

// Installer reports whether the root storage is of the class of a Windows Installer database, patch or transform, whose
// stream names are packed.
func (f *File) Installer() bool {
	kind := f.class[0]
	rest := "\x10\x0c\x00\x00\x00\x00\x00\xc0\x00\x00\x00\x00\x00\x00\x46"
	return (kind == 0x84 || kind == 0x86 || kind == 0x82) && string(f.class[1:]) == rest
}

// Orphans counts the directory entries with a stream or storage that Walk has not met: no storage holds them.
func (f *File) Orphans() (n int64) {
	for i := range f.count() {
		if f.seen[i/64]>>(i%64)&1 == 0 {
			if e, err := f.entry(uint32(i)); err == nil && (e.kind == storage || e.kind == stream) {
				n++
			}
		}
	}
	return n
}

// mark notes that an entry was met; false where it was met before or does not exist.
func (f *File) mark(i uint32) bool {
	if int64(i) >= f.count() {
		return false
	}
	word, bit := &f.seen[i/64], uint64(1)<<(i%64)
	if *word&bit != 0 {
		return false
	}
	*word |= bit
	return true
}

type walker struct {
	f      *File
	yield  func(*Entry) bool
	broken func(names [][]byte, err error)
	stack  []*siblings
	names  [][]byte
	msi    bool
}

// siblings are a storage's entries: a binary tree, gone through in order.
type siblings struct {
	next   uint32   // the root of what is still to be gone into, noStream for none
	open   []*entry // entries whose left side is done
	length int      // of the storage's path
}

// take gives the next entry in order, nil at the end.
func (s *siblings) take(f *File) (*entry, error) {
	for s.next != noStream {
		if !f.mark(s.next) {
			err := fmt.Errorf("%w: directory entry %d stands twice or does not exist", ErrFormat, s.next)
			s.next = noStream
			return nil, err
		}
		e, err := f.entry(s.next)
		if err != nil {
			return nil, err
		}
		s.open = append(s.open, e)
		s.next = e.left
	}
	if len(s.open) == 0 {
		return nil, nil
	}
	e := s.open[len(s.open)-1]
	s.open = s.open[:len(s.open)-1]
	s.next = e.right
	return e, nil
}

func (w *walker) step() error {
	top := w.stack[len(w.stack)-1]
	e, err := top.take(w.f)
	if err != nil {
		w.broken(w.names, err)
		return nil // the other entries go on
	}
	if e == nil {
		w.stack = w.stack[:len(w.stack)-1]
		if len(w.names) > 0 {
			w.names = w.names[:len(w.names)-1]
		}
		return nil
	}
	name := ucs2.Bytes(e.units)
	if w.msi {
		name = ucs2.Bytes(unpacked(e.units))
	}
	w.names = append(w.names, name)
	if !w.yield(w.describe(e)) {
		return errStop
	}
	if length := top.length + 1 + len(name); e.kind == storage && length <= maxPath {
		if len(w.stack) < maxDepth {
			w.stack = append(w.stack, &siblings{next: e.child, length: length})
			return nil
		}
		w.broken(w.names, fmt.Errorf("storages are nested more than %d deep", maxDepth))
	}
	w.names = w.names[:len(w.names)-1]
	return nil
}

func (w *walker) describe(e *entry) *Entry {
	out := &Entry{Names: w.names, Storage: e.kind == storage, Size: e.size}
	var err error
	switch {
	case out.Storage:
	case e.kind != stream:
		out.Problem = fmt.Sprintf("it is an entry of type %d", e.kind)
	case e.size < w.f.cutoff:
		out.Small, err = w.f.miniStream(e.start, e.size)
	default:
		out.Stream, err = w.f.chain(e.start, e.size)
	}
	if err != nil {
		out.Problem = err.Error()
	}
	return out
}

// unpacked gives a stream's name as Windows Installer means it: two characters of a 64-letter alphabet in each unit of
// one range, one in each of another, and an exclamation mark before the name of a table.
func unpacked(units []uint16) []uint16 {
	const (
		letters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz._"
		pairs   = 0x3800
		singles = 0x4800
		table   = 0x4840
	)
	out := make([]uint16, 0, 2*len(units))
	for _, u := range units {
		switch {
		case pairs <= u && u < singles:
			u -= pairs
			out = append(out, uint16(letters[u&63]), uint16(letters[u>>6]))
		case singles <= u && u < table:
			out = append(out, uint16(letters[u-singles]))
		case u == table:
			out = append(out, '!')
		default:
			out = append(out, u)
		}
	}
	return out
}
