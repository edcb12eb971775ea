// Package cpio reads cpio archives as an observer: the forms "newc" and "crc" (070701 and 070702), the portable ASCII
// form of POSIX ("odc", 070707) and the old binary one in both byte orders, as cpio(5) describes them; members in
// archive order, across archives that stand one behind another.
//
// Names are bytes, nothing is allocated from a size that the archive claims, and a broken header ends the archive with
// its offset. Package cpio must not decide what a member means.
package cpio

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
)

const (
	newSize    = 110 // header of newc and crc
	odcSize    = 76
	binarySize = 26
	magicSize  = 6 // enough to tell the forms apart

	// maxName bounds a member's name; the walk shows no longer one.
	maxName = 8 << 10
	trailer = "TRAILER!!!"
	// blockSize is what archives are filled up to.
	blockSize = 512

	binaryMagic = 0o070707
)

// ErrFormat says that a header is broken. What was read before it stands.
var ErrFormat = errors.New("not a cpio header")

// The file types in a Mode.
const (
	TypeMask      = 0o170000
	TypeSocket    = 0o140000
	TypeSymlink   = 0o120000
	TypeRegular   = 0o100000
	TypeBlock     = 0o060000
	TypeDirectory = 0o040000
	TypeChar      = 0o020000
	TypeFIFO      = 0o010000
)

// Inode identifies the file that hard links share, within one of the archives that stand one behind another.
type Inode struct {
	Archive              int
	Major, Minor, Number uint64
}

// Member is one member of the archive.
type Member struct {
	Name  []byte
	Form  string // newc, crc, odc or binary
	Mode  uint32 // Unix mode, with the file type
	Links uint32
	Inode Inode
	Start int64  // offset of its bytes
	Size  int64  // of its bytes
	Sum   uint32 // of its bytes in form crc: their sum
	align int64  // of the header and of the bytes
}

// Type is the file type of the member's mode.
func (m *Member) Type() uint32 { return m.Mode & TypeMask }

// LateData reports whether hard links of this form carry their bytes with the last of them only.
func (m *Member) LateData() bool { return m.Form == "newc" || m.Form == "crc" }

// Reader reads members in order. After Next the member's bytes are read from the Reader.
type Reader struct {
	r       io.Reader
	section *io.SectionReader // r, where it can skip
	off     int64             // bytes taken from r
	left    int64             // unread bytes of the member
	pad     int64             // padding behind them
	base    int64             // where the current archive begins
	done    bool
	// Ended is set when the archive's end mark was met.
	Ended bool
	// Archives counts archives that were begun.
	Archives int
}

// NewReader reads the archive that begins at r's position.
func NewReader(r io.Reader) *Reader { return &Reader{r: r, Archives: 1} }

// NewSection reads the headers of an archive that can be read at random, and skips over members' bytes.
func NewSection(r *io.SectionReader) *Reader { return &Reader{r: r, section: r, Archives: 1} }

// Looks reports whether the first bytes of a file are a cpio header with a name: all of its fields are numbers and the
// name ends where it should.
func Looks(b []byte) bool {
	n := headerLength(b)
	if n == 0 || len(b) < n {
		return false
	}
	m, name, err := parse(b[:n])
	if err != nil || name < 2 || name > maxName {
		return false
	}
	if m.Type() == 0 && m.Size > 0 {
		return false
	}
	if end := n + name; end <= len(b) {
		return b[end-1] == 0 && bytes.IndexByte(b[n:end], 0) == name-1
	}
	return m.Form != "binary"
}

// headerLength is the length of the header that b begins with, 0 where it begins none.
func headerLength(b []byte) int {
	switch {
	case len(b) < magicSize:
		return 0
	case string(b[:6]) == "070701", string(b[:6]) == "070702":
		return newSize
	case string(b[:6]) == "070707":
		return odcSize
	case binary.LittleEndian.Uint16(b) == binaryMagic, binary.BigEndian.Uint16(b) == binaryMagic:
		return binarySize
	}
	return 0
}

// Offset is the number of bytes taken from the stream.
func (t *Reader) Offset() int64 { return t.off }

// Read reads the current member's bytes; io.EOF is their end, io.ErrUnexpectedEOF that of the stream before it.
func (t *Reader) Read(p []byte) (int, error) {
	if t.left == 0 {
		return 0, io.EOF
	}
	n, err := t.r.Read(p[:min(int64(len(p)), t.left)])
	t.left -= int64(n)
	t.off += int64(n)
	if err == io.EOF && t.left > 0 {
		err = io.ErrUnexpectedEOF
	} else if err == io.EOF {
		err = nil
	}
	return n, err
}

// Next skips what is left of the current member and reads the next header. io.EOF means that the archive has ended,
// with its end mark (Ended) or where the stream ends; io.ErrUnexpectedEOF that the stream ends inside a header or
// member; an error that wraps ErrFormat names the offset of what is no header.
func (t *Reader) Next() (*Member, error) {
	if t.done {
		return nil, io.EOF
	}
	m, err := t.next()
	if err == nil && string(m.Name) == trailer {
		t.Ended = true
		m, err = nil, io.EOF
	}
	t.done = err != nil
	return m, err
}

func (t *Reader) next() (*Member, error) {
	if err := t.skip(t.left + t.pad); err != nil {
		return nil, err
	}
	t.left, t.pad = 0, 0
	start := t.off
	var h [newSize]byte
	n, err := io.ReadFull(t.r, h[:magicSize])
	t.off += int64(n)
	if err != nil {
		return nil, err
	}
	length := headerLength(h[:magicSize])
	if length == 0 {
		return nil, fmt.Errorf("%w at byte %d", ErrFormat, start)
	}
	if err := t.full(h[magicSize:length]); err != nil {
		return nil, err
	}
	m, name, err := parse(h[:length])
	if err != nil {
		return nil, fmt.Errorf("%w at byte %d: %w", ErrFormat, start, err)
	}
	m.Inode.Archive = t.Archives
	return m, t.name(m, name, start)
}

// name reads the name behind a header of the given start, and sets what follows it.
func (t *Reader) name(m *Member, length int, start int64) error {
	if length < 1 || length > maxName {
		return fmt.Errorf("%w at byte %d: a name of %d bytes", ErrFormat, start, length)
	}
	m.Name = make([]byte, length)
	if err := t.full(m.Name); err != nil {
		return err
	}
	if i := bytes.IndexByte(m.Name, 0); i >= 0 {
		m.Name = m.Name[:i]
	}
	if string(m.Name) == trailer {
		return nil // what follows it is the archive's end
	}
	if err := t.skip(padding(t.off-t.base, m.align)); err != nil {
		return err
	}
	m.Start = t.off
	t.left, t.pad = m.Size, padding(m.Size, m.align)
	return nil
}

func padding(n, align int64) int64 { return -n & (align - 1) }

func (t *Reader) full(b []byte) error {
	n, err := io.ReadFull(t.r, b)
	t.off += int64(n)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// skip discards n bytes.
func (t *Reader) skip(n int64) error {
	if t.section != nil {
		if t.off+n > t.section.Size() {
			return io.ErrUnexpectedEOF
		}
		t.off += n
		_, err := t.section.Seek(t.off, io.SeekStart)
		return err
	}
	got, err := io.CopyN(io.Discard, t.r, n)
	t.off += got
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// Again goes on behind an end mark: it passes the zeros that fill up the archive's last block, and reports whether
// another archive begins there. It does not take the first byte that is neither.
func (t *Reader) Again(peek func(n int) []byte) (bool, error) {
	if !t.Ended {
		return false, nil
	}
	for {
		b := peek(blockSize)
		zeros := len(b) - len(bytes.TrimLeft(b, "\x00"))
		if err := t.skip(int64(zeros)); err != nil {
			return false, err
		}
		if zeros == len(b) && zeros > 0 {
			continue
		}
		if b = peek(magicSize); headerLength(b) == 0 {
			return false, nil
		}
		t.base, t.Ended, t.done = t.off, false, false
		t.Archives++
		return true, nil
	}
}

// parse reads the fixed part of a header, and the length of the name behind it with its final NUL.
func parse(h []byte) (*Member, int, error) {
	switch len(h) {
	case newSize:
		return parseNew(h)
	case odcSize:
		return parseOld(h)
	}
	return parseBinary(h)
}

func parseNew(h []byte) (*Member, int, error) {
	var f [13]uint64
	for i := range f {
		n, err := strconv.ParseUint(string(h[6+8*i:14+8*i]), 16, 32)
		if err != nil {
			return nil, 0, fmt.Errorf("field %d is no number", i)
		}
		f[i] = n
	}
	m := &Member{
		Form: "newc", Inode: Inode{0, f[7], f[8], f[0]}, Mode: uint32(f[1]), Links: uint32(f[4]), Size: int64(f[6]),
		Sum: uint32(f[12]), align: 4,
	}
	if h[5] == '2' {
		m.Form = "crc"
	}
	return m, int(f[11]), nil
}

func parseOld(h []byte) (*Member, int, error) {
	var f [10]uint64
	at := 6
	for i, width := range []int{6, 6, 6, 6, 6, 6, 6, 11, 6, 11} {
		n, err := strconv.ParseUint(string(h[at:at+width]), 8, 62)
		if err != nil {
			return nil, 0, fmt.Errorf("field %d is no number", i)
		}
		f[i] = n
		at += width
	}
	m := &Member{
		Form: "odc", Inode: Inode{0, 0, f[0], f[1]}, Mode: uint32(f[2]), Links: uint32(f[5]), Size: int64(f[9]), align: 1,
	}
	return m, int(f[8]), nil
}

func parseBinary(h []byte) (*Member, int, error) {
	var order binary.ByteOrder = binary.LittleEndian
	if order.Uint16(h) != binaryMagic {
		order = binary.BigEndian
	}
	word := func(i int) uint64 { return uint64(order.Uint16(h[2*i:])) }
	m := &Member{
		Form: "binary", Inode: Inode{0, 0, word(1), word(2)}, Mode: uint32(word(3)), Links: uint32(word(6)),
		Size: int64(word(11)<<16 | word(12)), align: 2,
	}
	return m, int(word(10)), nil
}
