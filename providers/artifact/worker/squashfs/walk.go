package squashfs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
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

// Entry is one name of the image.
type Entry struct {
	Names   [][]byte // components of its path; valid until the next entry
	Kind    Kind
	Mode    uint16 // permission bits
	Size    int64  // of a file, as its inode says
	Link    []byte // target of a symbolic link
	Problem string // why nothing more is known of it, "" for none
	data    data
}

// data is where a file's bytes are.
type data struct {
	start    int64
	list     cursor // at the first block's size
	fragment uint32
	offset   uint32
}

// entry types, as directories and inodes have them; the extended inodes follow in the same order
const (
	typeDirectory = 1 + iota
	typeFile
	typeSymlink
	typeBlock
	typeChar
	typeFIFO
	typeSocket
	extended = 7
)

// errStop ends a walk that its caller has ended.
var errStop = errors.New("ended")

// Walk gives every entry to yield, a directory before what is in it, until yield returns false. What cannot be read of
// a directory is given as that directory's problem after its entries; an error means that there is no root directory.
func (f *FS) Walk(yield func(*Entry) bool, broken func(names [][]byte, err error)) error {
	in, err := f.inode(f.root>>16, uint16(f.root))
	if err != nil {
		return err
	}
	if in.kind != Directory {
		return fmt.Errorf("%w: its root is no directory", ErrFormat)
	}
	w := &walker{f: f, yield: yield, broken: broken, open: map[uint64]bool{f.root: true}}
	if err := w.enter(f.root, in, 0); err != nil {
		return err
	}
	for len(w.stack) > 0 {
		if err := w.step(); errors.Is(err, errStop) {
			return nil
		}
	}
	return nil
}

type walker struct {
	f      *FS
	yield  func(*Entry) bool
	broken func(names [][]byte, err error)
	stack  []*listing
	names  [][]byte
	open   map[uint64]bool // inodes of the directories on the stack
}

// listing is a directory being read.
type listing struct {
	inode  uint64
	c      *cursor
	left   int64 // bytes
	count  uint32
	block  uint32
	length int // of its path
}

func (w *walker) enter(ref uint64, in *inode, length int) error {
	l := &listing{inode: ref, left: in.size, length: length}
	if l.left > 0 {
		c, err := w.f.at(w.f.directories, uint64(in.block), in.offset)
		if err != nil {
			return err
		}
		l.c = c
	}
	w.open[ref] = true
	w.stack = append(w.stack, l)
	return nil
}

func (w *walker) leave() {
	top := w.stack[len(w.stack)-1]
	delete(w.open, top.inode)
	w.stack = w.stack[:len(w.stack)-1]
	if len(w.names) > 0 {
		w.names = w.names[:len(w.names)-1]
	}
}

// step reads the next entry of the directory on top.
func (w *walker) step() error {
	top := w.stack[len(w.stack)-1]
	name, ref, err := top.next()
	switch {
	case err == io.EOF:
		w.leave()
		return nil
	case err != nil:
		w.broken(w.names, err)
		w.leave()
		return nil
	}
	w.names = append(w.names, name)
	in, err := w.f.inode(ref>>16, uint16(ref))
	e := &Entry{Names: w.names}
	if err != nil {
		e.Problem = "its inode cannot be read: " + err.Error()
	} else {
		e.Kind, e.Mode, e.Link, e.data = in.kind, in.mode, in.link, in.data
		if in.kind == File {
			e.Size = in.size
		}
	}
	if !w.yield(e) {
		return errStop
	}
	length := top.length + 1 + len(name)
	if err == nil && in.kind == Directory && length <= maxPath {
		if err = w.descend(ref, in, length); err == nil {
			return nil
		}
		w.broken(w.names, err)
	}
	w.names = w.names[:len(w.names)-1]
	return nil
}

func (w *walker) descend(ref uint64, in *inode, length int) error {
	switch {
	case w.open[ref]:
		return fmt.Errorf("%w: the directory contains itself", ErrFormat)
	case len(w.stack) == maxDepth:
		return fmt.Errorf("directories are nested more than %d deep", maxDepth)
	}
	return w.enter(ref, in, length)
}

// next reads an entry: its name, and where its inode is.
func (l *listing) next() (name []byte, ref uint64, err error) {
	const head, row, maxCount = 12, 8, 256
	le := binary.LittleEndian
	if l.count == 0 {
		if l.left < head {
			return nil, 0, io.EOF
		}
		b, err := l.c.bytes(head)
		if err != nil {
			return nil, 0, err
		}
		if l.count, l.block = le.Uint32(b), le.Uint32(b[4:]); l.count >= maxCount {
			return nil, 0, fmt.Errorf("%w: %d entries of a directory under one head", ErrFormat, uint64(l.count)+1)
		}
		l.count++
		l.left -= head
	}
	b, err := l.c.bytes(row)
	if err != nil {
		return nil, 0, err
	}
	offset, size := le.Uint16(b), int(le.Uint16(b[6:]))+1
	if l.left -= int64(row + size); l.left < 0 || size > maxPath {
		return nil, 0, fmt.Errorf("%w: a directory entry of %d bytes leaves its directory", ErrFormat, size)
	}
	if name, err = l.c.bytes(size); err != nil {
		return nil, 0, err
	}
	l.count--
	return name, uint64(l.block)<<16 | uint64(offset), nil
}

// inode is what is used of an inode.
type inode struct {
	kind   Kind
	mode   uint16
	size   int64
	link   []byte
	block  uint32 // of a directory's list
	offset uint16
	data   data
}

// inode reads the inode at a place of the inode table.
func (f *FS) inode(block uint64, offset uint16) (*inode, error) {
	const head = 16
	c, err := f.at(f.inodes, block, offset)
	if err != nil {
		return nil, err
	}
	b, err := c.bytes(head)
	if err != nil {
		return nil, err
	}
	le := binary.LittleEndian
	kind := le.Uint16(b)
	in := &inode{mode: le.Uint16(b[2:]) & 0o7777}
	long := kind > extended
	if long {
		kind -= extended
	}
	switch kind {
	case typeDirectory:
		return in, in.directory(c, long)
	case typeFile:
		return in, in.file(c, long)
	case typeSymlink:
		in.kind = Symlink
		if b, err = c.bytes(8); err != nil {
			return nil, err
		}
		n := le.Uint32(b[4:])
		if n > maxTarget {
			return nil, fmt.Errorf("%w: a link target of %d bytes", ErrFormat, n)
		}
		in.link, err = c.bytes(int(n))
		return in, err
	case typeBlock, typeChar, typeFIFO, typeSocket:
		in.kind = Kind(kind-typeBlock) + Block
		return in, nil
	}
	return nil, fmt.Errorf("%w: an inode of type %d", ErrFormat, le.Uint16(b))
}

func (in *inode) directory(c *cursor, long bool) error {
	in.kind = Directory
	le := binary.LittleEndian
	if long {
		b, err := c.bytes(24)
		if err != nil {
			return err
		}
		in.size, in.block, in.offset = int64(le.Uint32(b[4:])), le.Uint32(b[8:]), le.Uint16(b[18:])
	} else {
		b, err := c.bytes(16)
		if err != nil {
			return err
		}
		in.block, in.size, in.offset = le.Uint32(b), int64(le.Uint16(b[8:])), le.Uint16(b[10:])
	}
	const dots = 3 // counted in the size for "." and "..", which are not stored
	in.size = max(0, in.size-dots)
	return nil
}

func (in *inode) file(c *cursor, long bool) error {
	le := binary.LittleEndian
	var start, size uint64
	if long {
		b, err := c.bytes(40)
		if err != nil {
			return err
		}
		start, size = le.Uint64(b), le.Uint64(b[8:])
		in.data.fragment, in.data.offset = le.Uint32(b[28:]), le.Uint32(b[32:])
	} else {
		b, err := c.bytes(16)
		if err != nil {
			return err
		}
		start, size = uint64(le.Uint32(b)), uint64(le.Uint32(b[12:]))
		in.data.fragment, in.data.offset = le.Uint32(b[4:]), le.Uint32(b[8:])
	}
	if start > math.MaxInt64 || size > math.MaxInt64 {
		return fmt.Errorf("%w: a file of %d bytes at %d", ErrFormat, size, start)
	}
	in.size, in.data.start, in.data.list = int64(size), int64(start), *c
	return nil
}

// blocks is how many data blocks a file has beside its fragment.
func (f *FS) blocks(e *Entry) int64 {
	n := e.Size / f.blockSize
	if e.data.fragment == noFragment && e.Size%f.blockSize != 0 {
		n++
	}
	return n
}

// Stored adds up the bytes that a file of at most limit bytes takes in the image, the whole block of its fragment
// included; -1 for a file with holes, whose size says nothing about its bytes, and where that is not known.
func (f *FS) Stored(e *Entry, limit int64) int64 {
	if e.Size > limit {
		return -1
	}
	list, sum := e.data.list, int64(0)
	for range f.blocks(e) {
		b, err := list.bytes(4)
		if err != nil {
			return -1
		}
		size, _, err := f.blockLength(binary.LittleEndian.Uint32(b))
		if err != nil || size == 0 {
			return -1
		}
		sum += size
	}
	if e.data.fragment != noFragment {
		_, size, _, err := f.fragment(e.data.fragment)
		if err != nil {
			return -1
		}
		sum += size
	}
	return sum
}

// Open reads a file's bytes.
func (f *FS) Open(e *Entry) io.Reader {
	return &reader{f: f, left: e.Size, blocks: f.blocks(e), at: e.data.start, list: e.data.list, data: e.data}
}

type reader struct {
	f      *FS
	left   int64 // bytes not yet in rest
	blocks int64
	at     int64
	list   cursor
	data   data
	rest   []byte
	zeros  int64
}

// Read implements io.Reader.
func (r *reader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 && r.zeros == 0 {
		if r.left == 0 {
			return 0, io.EOF
		}
		if err := r.fill(); err != nil {
			return 0, err
		}
	}
	if r.zeros > 0 {
		n := int(min(int64(len(p)), r.zeros))
		clear(p[:n])
		r.zeros -= int64(n)
		return n, nil
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// fill decodes the next block, or the fragment.
func (r *reader) fill() error {
	want := min(r.left, r.f.blockSize)
	r.left -= want
	if r.blocks == 0 {
		return r.fragment(want)
	}
	r.blocks--
	b, err := r.list.bytes(4)
	if err != nil {
		return err
	}
	size, plain, err := r.f.blockLength(binary.LittleEndian.Uint32(b))
	if err != nil {
		return err
	}
	if size == 0 {
		r.zeros = want
		return nil
	}
	if r.rest, err = r.f.decode(r.at, size, plain, int(r.f.blockSize)); err != nil {
		return err
	}
	r.at += size
	if int64(len(r.rest)) != want {
		return fmt.Errorf("%w: a block has %d bytes where %d belong", ErrFormat, len(r.rest), want)
	}
	return nil
}

func (r *reader) fragment(want int64) error {
	b, _, err := r.f.tail(r.data.fragment)
	if err != nil {
		return err
	}
	if int64(r.data.offset) > int64(len(b))-want {
		return fmt.Errorf("%w: a fragment of %d bytes at %d of %d", ErrFormat, want, r.data.offset, len(b))
	}
	r.rest = b[r.data.offset:][:want]
	return nil
}
