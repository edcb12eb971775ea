package hfsplus

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

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

// Entry is one name of the volume.
type Entry struct {
	Names    [][]byte // components of its path; valid until the next entry
	Kind     Kind
	Mode     uint16 // permission bits
	Data     *Fork  // of a file or a link; nil where Problem is set
	Resource *Fork  // nil for none
	HardLink bool   // the bytes are those of a file that other names have too
	// Compressed is the method of a file whose bytes the file system stores compressed in an attribute or in the
	// resource fork ("decmpfs"), 0 for every other. Open decodes it; Size is that of the decoded bytes.
	Compressed uint32
	Size       int64
	Problem    string // why there are no bytes, "" for none
	attribute  []byte // what the attribute holds behind its head
}

// record is a file or folder record of the catalog, without its type.
type record []byte

const (
	folderRecord = 1
	fileRecord   = 2
	folderSize   = 88
	fileSize     = 248
)

func (r record) id() uint32      { return binary.BigEndian.Uint32(r[8:]) }
func (r record) mode() uint16    { return binary.BigEndian.Uint16(r[42:]) }
func (r record) special() uint32 { return binary.BigEndian.Uint32(r[44:]) }
func (r record) finder() string  { return string(r[48:56]) } // type and creator

// compressed reports the flag that says so; it is the owner's flag UF_COMPRESSED.
func (r record) compressed() bool { return r[41]&0x20 != 0 }

var errStop = errors.New("ended")

// children gives a cursor at a folder's first entry.
func (v *Volume) children(folder uint32) (*cursor, error) {
	return v.catalog.find(func(key []byte) int {
		const keySize = 6
		if len(key) < keySize {
			return -1
		}
		return cmpAll(binary.BigEndian.Uint32(key), folder)
	})
}

// child reads the next entry of a folder; io.EOF is their end. Threads, which lead from a number to a name, are left out.
func (c *cursor) child(folder uint32) (name []uint16, r record, err error) {
	be := binary.BigEndian
	for {
		key, data, err := c.next()
		if err != nil {
			return nil, nil, err
		}
		const keySize = 6
		if len(key) < keySize || be.Uint32(key) < folder {
			return nil, nil, fmt.Errorf("%w: the catalog is out of order", ErrFormat)
		}
		if be.Uint32(key) > folder {
			return nil, nil, io.EOF
		}
		units := ucs2.BigEndian(key[keySize:])
		if n := int(be.Uint16(key[4:])); n <= len(units) {
			units = units[:n]
		} else {
			return nil, nil, fmt.Errorf("%w: a name of %d units leaves its key", ErrFormat, n)
		}
		switch {
		case len(data) >= folderSize && be.Uint16(data) == folderRecord, len(data) >= fileSize && be.Uint16(data) == fileRecord:
			return units, data, nil
		case len(data) >= 2 && be.Uint16(data) > fileRecord: // a thread
			continue
		}
		return nil, nil, fmt.Errorf("%w: a catalog record of %d bytes", ErrFormat, len(data))
	}
}

// posix gives a name as POSIX programs see it: a slash in it is shown as a colon.
func posix(units []uint16) []byte {
	for i, u := range units {
		if u == '/' {
			units[i] = ':'
		}
	}
	return ucs2.Bytes(units)
}

// Walk gives every entry to yield, a folder before what is in it, until yield returns false. Folders that are not read to
// their end are given to broken, after what was read of them.
func (v *Volume) Walk(yield func(*Entry) bool, broken func(names [][]byte, err error)) error {
	w := &walker{v: v, yield: yield, broken: broken, open: map[uint32]bool{}}
	if err := w.enter(idRoot, 0); err != nil {
		return err
	}
	for len(w.stack) > 0 {
		if w.step() == errStop {
			return nil
		}
	}
	return nil
}

type walker struct {
	v      *Volume
	yield  func(*Entry) bool
	broken func(names [][]byte, err error)
	stack  []*folder
	names  [][]byte
	open   map[uint32]bool // folders on the stack
}

type folder struct {
	id     uint32
	c      *cursor
	length int // of its path
}

func (w *walker) enter(id uint32, length int) error {
	switch {
	case w.open[id]:
		return fmt.Errorf("%w: the folder contains itself", ErrFormat)
	case len(w.stack) == maxDepth:
		return fmt.Errorf("folders are nested more than %d deep", maxDepth)
	}
	c, err := w.v.children(id)
	if err != nil {
		return err
	}
	w.open[id] = true
	w.stack = append(w.stack, &folder{id, c, length})
	return nil
}

func (w *walker) step() error {
	top := w.stack[len(w.stack)-1]
	units, r, err := top.c.child(top.id)
	if err != nil {
		if err != io.EOF {
			w.broken(w.names, err)
		}
		delete(w.open, top.id)
		w.stack = w.stack[:len(w.stack)-1]
		if len(w.names) > 0 {
			w.names = w.names[:len(w.names)-1]
		}
		return nil
	}
	name := posix(units)
	w.names = append(w.names, name)
	e := w.v.entry(r)
	e.Names = w.names
	if !w.yield(e) {
		return errStop
	}
	if length := top.length + 1 + len(name); e.Kind == Directory && length <= maxPath {
		err := w.enter(r.id(), length)
		if err == nil {
			return nil
		}
		w.broken(w.names, err)
	}
	w.names = w.names[:len(w.names)-1]
	return nil
}

// entry makes what is known of a catalog record.
func (v *Volume) entry(r record) *Entry {
	const format = 0o170000
	e := &Entry{Mode: r.mode() & 0o7777}
	if binary.BigEndian.Uint16(r) == folderRecord {
		e.Kind = Directory
		return e
	}
	if r.finder() == "hlnkhfs+" {
		e.HardLink = true
		target, err := v.target(r.special())
		if err != nil {
			e.Problem = err.Error()
			return e
		}
		r = target
		e.Mode = r.mode() & 0o7777
	}
	switch r.mode() & format {
	case 0o120000:
		e.Kind = Symlink
	case 0o060000:
		e.Kind = Block
	case 0o020000:
		e.Kind = Char
	case 0o010000:
		e.Kind = FIFO
	case 0o140000:
		e.Kind = Socket
	}
	if e.Kind == File || e.Kind == Symlink {
		v.forks(e, r)
	}
	return e
}

func (v *Volume) forks(e *Entry, r record) {
	be := binary.BigEndian
	var err error
	if e.Data, err = v.fork(r[88:88+forkSize], r.id(), dataFork); err != nil {
		e.Problem = err.Error()
		return
	}
	e.Size = e.Data.Size
	if be.Uint64(r[168:]) > 0 {
		if e.Resource, err = v.fork(r[168:168+forkSize], r.id(), resourceFork); err != nil {
			e.Problem = "its resource fork cannot be found: " + err.Error()
			return
		}
	}
	if r.compressed() && e.Kind == File && e.Data.Size == 0 {
		if err := v.decmpfs(e, r.id()); err != nil {
			e.Problem = err.Error()
		}
	}
}

// target finds the file that hard links with a number stand for.
func (v *Volume) target(number uint32) (record, error) {
	if v.linked == nil {
		if err := v.index(); err != nil {
			return nil, err
		}
	}
	if r, ok := v.linked[number]; ok {
		return r, nil
	}
	return nil, fmt.Errorf("it is a hard link, and file %d that it stands for is not there", number)
}

// index reads the private folder that holds the files of hard links.
func (v *Volume) index() error {
	const private = "\x00\x00\x00\x00HFS+ Private Data"
	v.linked = map[uint32]record{}
	c, err := v.children(idRoot)
	if err != nil {
		return err
	}
	for {
		name, r, err := c.child(idRoot)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if string(ucs2.Bytes(name)) != private || binary.BigEndian.Uint16(r) != folderRecord {
			continue
		}
		return v.indexFolder(r.id())
	}
}

func (v *Volume) indexFolder(id uint32) error {
	c, err := v.children(id)
	if err != nil {
		return err
	}
	for len(v.linked) < maxLinked {
		name, r, err := c.child(id)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		number, ok := strings.CutPrefix(string(ucs2.Bytes(name)), "iNode")
		n, err := strconv.ParseUint(number, 10, 32)
		if ok && err == nil && binary.BigEndian.Uint16(r) == fileRecord && r.finder() != "hlnkhfs+" {
			v.linked[uint32(n)] = append(record(nil), r...)
		}
	}
	return nil
}
