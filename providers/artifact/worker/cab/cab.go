// Package cab reads Microsoft cabinets as an observer, as [MS-CAB] describes them: which files they name, in which
// folders these stand, and the blocks of a folder, plain or by MSZIP or LZX.
//
// Its memory does not depend on what a cabinet claims: one block, one window, and the names of at most 65535 files.
// Package cab must not decide what a contradiction means, nor join cabinets of a set.
package cab

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/flate"

	"rea/providers/artifact/worker/lzx"
)

const (
	magic      = "MSCF"
	headSize   = 36
	folderSize = 8
	fileSize   = 16
	blockSize  = 8
	// maxName bounds a string of the directory; names have up to 256 bytes.
	maxName = 1 << 10
	// maxBlock is how much a block unpacks to at most.
	maxBlock = 32 << 10
)

// Flags of the cabinet.
const (
	hasPrevious = 1 << iota
	hasNext
	hasReserve
)

// Compression is the method of a folder.
type Compression uint16

// The methods; the upper bits of a folder's type are parameters.
const (
	Stored Compression = iota
	MSZIP
	Quantum
	LZX
)

// String is the method's name.
func (c Compression) String() string {
	switch c {
	case Stored:
		return "stored"
	case MSZIP:
		return "mszip"
	case Quantum:
		return "quantum"
	case LZX:
		return "lzx"
	}
	return fmt.Sprintf("method-%d", uint16(c))
}

// Read reports whether folders of the method can be opened.
func (c Compression) Read() bool { return c == Stored || c == MSZIP || c == LZX }

// ErrFormat says that a file is no cabinet or that its directory is broken.
var ErrFormat = errors.New("not a cabinet")

// Folder is one unit of compression: blocks that unpack to one stream.
type Folder struct {
	Compression Compression
	window      int // of LZX: its size is two to this power
	start       int64
	blocks      int
}

// File is one file of the cabinet.
type File struct {
	Name       []byte
	Size       int64
	Offset     int64 // in the unpacked folder
	Folder     int   // -1 where the file begins or ends in another cabinet of a set
	Executable bool
	UTF8       bool // the name is said to be UTF-8
}

// Cabinet is a cabinet whose directory was read.
type Cabinet struct {
	Folders  []Folder
	Files    []File
	Size     int64  // as declared
	Listed   int64  // first byte behind the directory
	Data     int64  // first byte of the first block
	Previous []byte // name of the cabinet before this one in a set, nil for none
	Next     []byte
	// Broken says why the list of files ends early, nil where it does not.
	Broken error

	r       io.ReaderAt
	reserve int // bytes behind each block's header
}

// Open reads the directory of a file of the given size.
func Open(r io.ReaderAt, size int64) (*Cabinet, error) {
	var h [headSize]byte
	if n, err := r.ReadAt(h[:], 0); n < headSize {
		return nil, noEOF(err)
	}
	le := binary.LittleEndian
	if string(h[:4]) != magic {
		return nil, ErrFormat
	}
	c := &Cabinet{r: r, Size: int64(le.Uint32(h[8:])), Data: size}
	in := &input{Reader: bufio.NewReader(io.NewSectionReader(r, headSize, size-headSize)), at: headSize}
	reserve, err := c.rest(in, le.Uint16(h[30:]))
	if err != nil {
		return nil, err
	}
	for range le.Uint16(h[26:]) {
		b, err := in.take(folderSize + reserve)
		if err != nil {
			return nil, err
		}
		kind := le.Uint16(b[6:])
		f := Folder{
			Compression: Compression(kind & 0xf), window: int(kind >> 8 & 0x1f),
			start: int64(le.Uint32(b)), blocks: int(le.Uint16(b[4:])),
		}
		c.Data = min(c.Data, f.start)
		c.Folders = append(c.Folders, f)
	}
	files := int64(le.Uint32(h[16:]))
	if files < in.at || files > size {
		return nil, fmt.Errorf("%w: its list of files is said to be at byte %d", ErrFormat, files)
	}
	in = &input{Reader: bufio.NewReader(io.NewSectionReader(r, files, size-files)), at: files}
	for i := range le.Uint16(h[28:]) {
		f, err := c.file(in)
		if err != nil {
			c.Broken = fmt.Errorf("file %d at byte %d: %w", i, in.at, err)
			break
		}
		c.Files = append(c.Files, f)
	}
	c.Listed = in.at
	return c, nil
}

// rest reads the optional parts of the header, and returns the bytes behind each folder.
func (c *Cabinet) rest(in *input, flags uint16) (folders int, err error) {
	if flags&hasReserve != 0 {
		b, err := in.take(4)
		if err != nil {
			return 0, err
		}
		folders, c.reserve = int(b[2]), int(b[3])
		if _, err := in.take(int(binary.LittleEndian.Uint16(b))); err != nil {
			return 0, err
		}
	}
	if flags&hasPrevious != 0 {
		if c.Previous, err = in.names(); err != nil {
			return 0, err
		}
	}
	if flags&hasNext != 0 {
		if c.Next, err = in.names(); err != nil {
			return 0, err
		}
	}
	return folders, nil
}

func (c *Cabinet) file(in *input) (File, error) {
	const executable, utf8 = 0x40, 0x80
	b, err := in.take(fileSize)
	if err != nil {
		return File{}, err
	}
	le := binary.LittleEndian
	attributes := le.Uint16(b[14:])
	f := File{
		Size: int64(le.Uint32(b)), Offset: int64(le.Uint32(b[4:])), Folder: int(le.Uint16(b[8:])),
		Executable: attributes&executable != 0, UTF8: attributes&utf8 != 0,
	}
	if f.Folder >= len(c.Folders) {
		const continued = 0xfffd // and the two above: from the cabinet before, into the next one, both
		if f.Folder < continued {
			return File{}, fmt.Errorf("%w: folder %d of %d", ErrFormat, f.Folder, len(c.Folders))
		}
		f.Folder = -1
	}
	f.Name, err = in.name()
	return f, err
}

// input reads the directory.
type input struct {
	*bufio.Reader
	at int64
}

// take gives the next n bytes, which are few: no field of 16 bits is longer than the buffer that it makes.
func (in *input) take(n int) ([]byte, error) {
	b := make([]byte, n)
	got, err := io.ReadFull(in.Reader, b)
	in.at += int64(got)
	if err != nil {
		return nil, io.ErrUnexpectedEOF
	}
	return b, nil
}

// name reads a string that ends with NUL.
func (in *input) name() ([]byte, error) {
	var name []byte
	for {
		b, err := in.ReadByte()
		if err != nil {
			return nil, io.ErrUnexpectedEOF
		}
		in.at++
		if b == 0 {
			return name, nil
		}
		if len(name) == maxName {
			return nil, fmt.Errorf("%w: a name of more than %d bytes", ErrFormat, maxName)
		}
		name = append(name, b)
	}
}

// names reads the names of a cabinet and of its disk, and gives the first.
func (in *input) names() ([]byte, error) {
	name, err := in.name()
	if err == nil {
		_, err = in.name()
	}
	if name == nil {
		name = []byte{}
	}
	return name, err
}

// OpenFolder decodes the blocks of a folder.
func (c *Cabinet) OpenFolder(i int) (io.Reader, error) {
	f := c.Folders[i]
	r := &reader{c: c, at: f.start, left: f.blocks}
	switch f.Compression {
	case Stored:
		r.unpack = func(packed []byte, out []byte) error {
			if copy(out, packed) != len(out) {
				return io.ErrUnexpectedEOF
			}
			return nil
		}
	case MSZIP:
		r.unpack = mszip()
	case LZX:
		d, err := lzx.New(f.window)
		if err != nil {
			return nil, err
		}
		r.unpack = d.Block
	default:
		return nil, fmt.Errorf("compression %s is not read", f.Compression)
	}
	return r, nil
}

// mszip unpacks blocks that are a DEFLATE stream each, with the block before as its dictionary.
func mszip() func(packed, out []byte) error {
	in := bytes.NewReader(nil)
	z := flate.NewReader(in)
	var before []byte
	return func(packed, out []byte) error {
		if !bytes.HasPrefix(packed, []byte("CK")) {
			return errors.New("an MSZIP block without its mark")
		}
		in.Reset(packed[2:])
		if err := z.(flate.Resetter).Reset(in, before); err != nil {
			return err
		}
		if _, err := io.ReadFull(z, out); err != nil {
			return noEOF(err)
		}
		before = append(before[:0], out...)
		return nil
	}
}

// reader unpacks one block after another.
type reader struct {
	c      *Cabinet
	at     int64
	left   int // blocks
	unpack func(packed, out []byte) error
	packed []byte
	out    [maxBlock]byte
	ready  []byte
}

// Read implements io.Reader.
func (r *reader) Read(p []byte) (int, error) {
	for len(r.ready) == 0 {
		if r.left == 0 {
			return 0, io.EOF
		}
		if err := r.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.ready)
	r.ready = r.ready[n:]
	return n, nil
}

func (r *reader) next() error {
	var h [blockSize]byte
	if n, err := r.c.r.ReadAt(h[:], r.at); n < blockSize {
		return noEOF(err)
	}
	le := binary.LittleEndian
	size, unpacked := int(le.Uint16(h[4:])), int(le.Uint16(h[6:]))
	switch {
	case unpacked == 0:
		return errors.New("a block that goes on in the next cabinet")
	case unpacked > maxBlock:
		return fmt.Errorf("a block of %d bytes", unpacked)
	}
	r.packed = append(r.packed[:0], make([]byte, size)...)
	if n, err := r.c.r.ReadAt(r.packed, r.at+blockSize+int64(r.c.reserve)); n < size {
		return noEOF(err)
	}
	if sum := le.Uint32(h[:]); sum != 0 && r.c.reserve == 0 { // programs differ in whether it covers reserved bytes
		if got := checksum(h[4:], checksum(r.packed, 0)); got != sum {
			return fmt.Errorf("the block at byte %d has checksum %08x and declares %08x", r.at, got, sum)
		}
	}
	if err := r.unpack(r.packed, r.out[:unpacked]); err != nil {
		return fmt.Errorf("the block at byte %d: %w", r.at, err)
	}
	r.ready = r.out[:unpacked]
	r.at += blockSize + int64(r.c.reserve) + int64(size)
	r.left--
	return nil
}

// checksum is the exclusive or of little-endian words; what is left of a last one has its bytes the other way round.
func checksum(b []byte, sum uint32) uint32 {
	for ; len(b) >= 4; b = b[4:] {
		sum ^= binary.LittleEndian.Uint32(b)
	}
	var last uint32
	for _, c := range b {
		last = last<<8 | uint32(c)
	}
	return sum ^ last
}

func noEOF(err error) error {
	if err == nil || err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
