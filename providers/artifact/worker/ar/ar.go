// Package ar reads Unix ar archives as an observer: the System V and GNU form (names in a table), the BSD form (names
// before the data), COFF libraries, and Debian packages, as ar(5) and deb(5) describe them; members in archive order.
//
// Names are bytes, nothing is allocated from a size that the archive claims, and a broken header ends the archive with
// its offset. Package ar must not decide what a member means.
package ar

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
)

const (
	magic      = "!<arch>\n"
	thinMagic  = "!<thin>\n"
	headerSize = 60
	// maxName bounds a name that stands outside its header.
	maxName = 8 << 10
)

// ErrFormat says that a header is broken, or that the file is no ar archive. What was read before it stands.
var ErrFormat = errors.New("not an ar archive")

// Kind is what a member is for.
type Kind uint8

// The kinds.
const (
	Regular Kind = iota
	Symbols      // the index of a library
	Names        // the table of long names
)

// Member is one member of the archive.
type Member struct {
	Name  []byte
	Kind  Kind
	Mode  int64 // Unix mode; 0 where the field is broken
	Start int64 // offset of its bytes
	Size  int64 // of its bytes; they may reach past the end of the file
	Notes []string
}

// Reader reads members in order.
type Reader struct {
	r         io.ReaderAt
	size      int64 // of the file
	off       int64
	names     int64 // where the table of long names begins
	namesSize int64
	Thin      bool // members' bytes lie in other files
}

// Open begins to read a file of the given size.
func Open(r io.ReaderAt, size int64) (*Reader, error) {
	var b [len(magic)]byte
	if n, err := r.ReadAt(b[:], 0); n < len(b) {
		return nil, noEOF(err)
	}
	if string(b[:]) != magic && string(b[:]) != thinMagic {
		return nil, ErrFormat
	}
	return &Reader{r: r, size: size, off: int64(len(magic)), Thin: string(b[:]) == thinMagic}, nil
}

// Offset is where the next header is looked for.
func (a *Reader) Offset() int64 { return a.off }

// Next reads the next header. io.EOF means that the archive has ended; io.ErrUnexpectedEOF that the file ends inside a
// header; an error that wraps ErrFormat names the offset of what is no header.
func (a *Reader) Next() (*Member, error) {
	if left := a.size - a.off; left <= 0 {
		return nil, io.EOF
	}
	var h [headerSize]byte
	n, err := a.r.ReadAt(h[:], a.off)
	if n == 1 && h[0] == '\n' {
		return nil, io.EOF // padding that nothing follows
	}
	if n < headerSize {
		return nil, noEOF(err)
	}
	size, ok := number(h[48:58], 10)
	if string(h[58:]) != "`\n" || !ok {
		return nil, fmt.Errorf("%w: no member header at byte %d", ErrFormat, a.off)
	}
	m := &Member{Start: a.off + headerSize, Size: size}
	m.Mode, _ = number(h[40:48], 8)
	if err := a.name(m, bytes.TrimRight(h[:16], " ")); err != nil {
		return nil, fmt.Errorf("%w at byte %d: %w", ErrFormat, a.off, err)
	}
	a.off += headerSize
	if !a.Thin || m.Kind != Regular {
		a.off = m.Start + m.Size + (m.Start+m.Size)&1
	}
	return m, nil
}

// name finds the name that a header's field stands for.
func (a *Reader) name(m *Member, field []byte) error {
	switch s := string(field); {
	case s == "/", s == "/SYM64/", len(s) > 1 && s[:2] == "/<":
		m.Kind, m.Name = Symbols, bytes.Clone(field)
	case s == "//":
		m.Kind, m.Name = Names, bytes.Clone(field)
		a.names, a.namesSize = m.Start, min(m.Size, max(0, a.size-m.Start))
	case len(s) > 1 && s[0] == '/' && '0' <= s[1] && s[1] <= '9':
		return a.longName(m, field[1:])
	case len(s) > 3 && s[:3] == "#1/":
		return a.ownName(m, field[3:])
	default:
		m.Name = bytes.Clone(bytes.TrimSuffix(field, []byte("/")))
	}
	if isIndex(m.Name) {
		m.Kind = Symbols
	}
	return nil
}

// isIndex knows the names that BSD tools give to a library's index.
func isIndex(name []byte) bool {
	switch string(name) {
	case "__.SYMDEF", "__.SYMDEF SORTED", "__.SYMDEF_64", "__.SYMDEF_64 SORTED":
		return true
	}
	return false
}

// longName takes a name from the table. Entries end with a newline, behind a slash, or in COFF libraries with a NUL.
func (a *Reader) longName(m *Member, field []byte) error {
	at, ok := number(field, 10)
	if !ok || at >= a.namesSize {
		return fmt.Errorf("name at %s of a table of %d bytes", field, a.namesSize)
	}
	b := make([]byte, min(maxName, a.namesSize-at))
	n, err := a.r.ReadAt(b, a.names+at)
	if n < len(b) {
		return noEOF(err)
	}
	end := bytes.IndexAny(b, "\n\x00")
	switch {
	case end < 0 && len(b) == maxName:
		m.Notes = append(m.Notes, fmt.Sprintf("Its recorded name is longer than the %d bytes that are read of it.", maxName))
	case end >= 0:
		b = b[:end]
	}
	m.Name = bytes.TrimSuffix(b, []byte("/"))
	return nil
}

// ownName takes a name that stands before the member's bytes.
func (a *Reader) ownName(m *Member, field []byte) error {
	n, ok := number(field, 10)
	if !ok || n > m.Size || n > maxName || n > a.size-m.Start {
		return fmt.Errorf("name of %s bytes in a member of %d", field, m.Size)
	}
	b := make([]byte, n)
	if got, err := a.r.ReadAt(b, m.Start); got < len(b) {
		return noEOF(err)
	}
	m.Name = bytes.TrimRight(b, "\x00")
	m.Start += n
	m.Size -= n
	if isIndex(m.Name) {
		m.Kind = Symbols
	}
	return nil
}

// number reads a field of digits that spaces fill up. An empty one is 0.
func number(field []byte, base int) (int64, bool) {
	text := bytes.TrimRight(field, " ")
	if len(text) == 0 {
		return 0, true
	}
	n, err := strconv.ParseUint(string(text), base, 62)
	return int64(n), err == nil
}

func noEOF(err error) error {
	if err == nil || err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
