// Package tar reads tar archives as an observer: ustar, old, GNU and PAX headers as POSIX.1-2017 pax and the GNU
// manual describe them, members in archive order.
//
// It exists beside archive/tar because that package ends an archive at the first field that it dislikes, expands
// sparse members, and does not say where members lie. Here names are bytes, odd values of fields that do not matter are
// ignored, and a broken header ends the archive with its offset. Package tar must not decide what a member means.
package tar

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

const (
	blockSize = 512
	// maxSpecial bounds the headers that carry another header's fields (PAX records, GNU long names): far above any
	// path, far below what would hurt. A larger one is skipped.
	maxSpecial = 1 << 20
)

// Member types (the typeflag field).
const (
	TypeRegular    = '0'
	TypeRegularOld = 0
	TypeHardLink   = '1'
	TypeSymlink    = '2'
	TypeChar       = '3'
	TypeBlock      = '4'
	TypeDirectory  = '5'
	TypeFIFO       = '6'
	TypeContiguous = '7'
	TypeSparse     = 'S' // old GNU form

	typePAX      = 'x'
	typeGlobal   = 'g'
	typeLongName = 'L'
	typeLongLink = 'K'
)

// ErrFormat says that a header is broken. What was read before it stands.
var ErrFormat = errors.New("not a tar header")

// Member is one member of the archive.
type Member struct {
	Name   []byte
	Link   []byte // target of a link
	Type   byte
	Mode   int64 // permission bits; 0 where the field is broken
	Size   int64 // bytes that follow
	Start  int64 // offset of the first of them
	Sparse *Map  // of a sparse file, nil for every other: the bytes are its pieces
	Notes  []string
}

// IsDir reports whether the member is a directory; the oldest archives mark it by a final slash alone.
func (m *Member) IsDir() bool {
	return m.Type == TypeDirectory || (m.Type == TypeRegularOld || m.Type == TypeRegular) && bytes.HasSuffix(m.Name, []byte("/"))
}

// IsRegular reports whether the member's bytes are a file.
func (m *Member) IsRegular() bool {
	return !m.IsDir() && (m.Type == TypeRegular || m.Type == TypeRegularOld || m.Type == TypeContiguous)
}

// Reader reads members in order. After Next the member's bytes are read from the Reader.
type Reader struct {
	r       io.Reader
	section *io.SectionReader // r, where it can skip
	off     int64             // bytes taken from r
	left    int64             // unread bytes of the member
	pad     int64             // padding behind them
	block   [blockSize]byte
	done    bool
	// Ended is set when the archive's end mark (two blocks of zeros, or one and the end of the stream) was met.
	Ended bool
}

// NewReader reads the archive that begins at r's position.
func NewReader(r io.Reader) *Reader { return &Reader{r: r} }

// NewSection reads the headers of an archive that can be read at random, and skips over members' bytes.
func NewSection(r *io.SectionReader) *Reader { return &Reader{r: r, section: r} }

// Looks reports whether the first bytes of a file are a tar header: its checksum verifies.
func Looks(b []byte) bool {
	return len(b) >= blockSize && b[0] != 0 && checksum(b[:blockSize])
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
// member; an error that wraps ErrFormat names the offset of a block that is no header.
func (t *Reader) Next() (*Member, error) {
	if t.done {
		return nil, io.EOF
	}
	m, err := t.next()
	t.done = err != nil
	return m, err
}

func (t *Reader) next() (*Member, error) {
	var over overrides
	for {
		if err := t.skip(t.left + t.pad); err != nil {
			return nil, err
		}
		t.left, t.pad = 0, 0
		if err := t.header(); err != nil {
			return nil, err
		}
		m, err := t.parse()
		if err != nil {
			return nil, err
		}
		switch m.Type {
		case typePAX, typeLongName, typeLongLink:
			if err := t.special(m, &over); err != nil {
				return nil, err
			}
			continue
		case typeGlobal: // defaults for all members; names and sizes in it have no sensible use
			continue
		}
		if err := over.apply(m); err != nil {
			return nil, fmt.Errorf("%w at byte %d: %w", ErrFormat, t.off-blockSize, err)
		}
		switch {
		case m.Type == TypeSparse:
			m.Sparse, err = t.oldMap()
		case over.sparse.some:
			m.Sparse, err = t.paxMap(&over.sparse, m)
		}
		if err != nil {
			return nil, err
		}
		t.expect(m)
		return m, nil
	}
}

// expect sets what follows the header of m.
func (t *Reader) expect(m *Member) {
	switch m.Type {
	case TypeHardLink, TypeSymlink, TypeChar, TypeBlock, TypeDirectory, TypeFIFO:
		m.Size = 0 // whatever the field says, no bytes follow
	}
	if m.Sparse != nil && m.Sparse.Problem == "" {
		m.Sparse.check(m.Size)
	}
	m.Start = t.off
	t.left, t.pad = m.Size, -m.Size&(blockSize-1)
}

// header reads the next block that is not zero into t.block.
func (t *Reader) header() error {
	zeros := 0
	for {
		n, err := io.ReadFull(t.r, t.block[:])
		t.off += int64(n)
		switch {
		case err == io.EOF:
			t.Ended = zeros > 0
			return io.EOF
		case err != nil:
			return err
		}
		if t.block != ([blockSize]byte{}) {
			if zeros > 0 {
				return fmt.Errorf("%w at byte %d: a single block of zeros stands before it", ErrFormat, t.off-blockSize)
			}
			return nil
		}
		if zeros++; zeros == 2 {
			t.Ended = true
			return io.EOF
		}
	}
}

// skip discards n bytes.
func (t *Reader) skip(n int64) error {
	if t.section != nil {
		if n > t.section.Size()-t.off {
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

// parse reads the fields of t.block.
func (t *Reader) parse() (*Member, error) {
	b := t.block[:]
	if !checksum(b) {
		return nil, fmt.Errorf("%w at byte %d: its checksum does not verify", ErrFormat, t.off-blockSize)
	}
	size, ok := number(b[124:136])
	if !ok {
		return nil, fmt.Errorf("%w at byte %d: its size field %q is no number", ErrFormat, t.off-blockSize, b[124:136])
	}
	m := &Member{Type: b[156], Size: size, Name: bytes.Clone(cString(b[:100])), Link: bytes.Clone(cString(b[157:257]))}
	if mode, ok := number(b[100:108]); ok {
		m.Mode = mode & 0o7777
	}
	// The GNU form has other fields where POSIX has the prefix.
	if prefix := cString(b[345:500]); string(b[257:263]) == "ustar\x00" && len(prefix) > 0 {
		m.Name = slash(prefix, m.Name)
	}
	return m, nil
}

func slash(a, b []byte) []byte { return append(append(bytes.Clone(a), '/'), b...) }

// special reads the content of a header that carries fields of the next one.
func (t *Reader) special(m *Member, over *overrides) error {
	t.left, t.pad = m.Size, -m.Size&(blockSize-1)
	if m.Size > maxSpecial {
		over.notes = append(over.notes, fmt.Sprintf("a header of %d bytes before this member was skipped: the limit is %d", m.Size, maxSpecial))
		return nil
	}
	var b bytes.Buffer // grows as bytes come, never by the claim
	if _, err := io.Copy(&b, t); err != nil {
		return err
	}
	switch m.Type {
	case typeLongName:
		over.name = bytes.Clone(cString(b.Bytes()))
	case typeLongLink:
		over.link = bytes.Clone(cString(b.Bytes()))
	default:
		over.records(b.Bytes())
	}
	return nil
}

// overrides are fields that come in headers of their own.
type overrides struct {
	name, link []byte
	size       *string
	sparse     sparseRecords
	notes      []string
}

// records reads PAX records, "LENGTH KEY=VALUE\n", as far as they are well formed.
func (o *overrides) records(b []byte) {
	for len(b) > 0 {
		sp := bytes.IndexByte(b, ' ')
		if sp <= 0 {
			return
		}
		n, err := strconv.Atoi(string(b[:sp]))
		if err != nil || n <= sp+1 || n > len(b) || b[n-1] != '\n' {
			o.notes = append(o.notes, "its PAX header is malformed and was read in part")
			return
		}
		key, value, _ := bytes.Cut(b[sp+1:n-1], []byte("="))
		b = b[n:]
		switch k := string(key); {
		case k == "path":
			o.name = bytes.Clone(value)
		case k == "linkpath":
			o.link = bytes.Clone(value)
		case k == "size":
			s := string(value)
			o.size = &s
		case strings.HasPrefix(k, "GNU.sparse."):
			o.sparse.record(k[len("GNU.sparse."):], value)
		}
	}
}

func (o *overrides) apply(m *Member) error {
	if o.name != nil {
		m.Name = o.name
	}
	if o.sparse.name != nil {
		m.Name = o.sparse.name
	}
	if o.link != nil {
		m.Link = o.link
	}
	if o.size != nil {
		n, err := strconv.ParseInt(*o.size, 10, 64)
		if err != nil || n < 0 || n > math.MaxInt64-blockSize {
			return fmt.Errorf("its PAX size %q is no size", *o.size)
		}
		m.Size = n
	}
	m.Notes = o.notes
	return nil
}

// checksum verifies a header's checksum field, computed over unsigned or (old programs) signed bytes.
func checksum(b []byte) bool {
	want, ok := number(b[148:156])
	if !ok {
		return false
	}
	var unsigned, signed int64
	for i, c := range b {
		if 148 <= i && i < 156 {
			c = ' '
		}
		unsigned += int64(c)
		signed += int64(int8(c))
	}
	return want == unsigned || want == signed
}

// number reads a numeric field: octal text, or base 256 where the first bit is set. A negative or too large number is
// none; an empty field is zero.
func number(b []byte) (int64, bool) {
	if b[0]&0x80 != 0 {
		if b[0] != 0x80 { // negative, or wider than 63 bits
			return 0, false
		}
		var n int64
		for _, c := range b[1:] {
			if n > math.MaxInt64>>8 {
				return 0, false
			}
			n = n<<8 | int64(c)
		}
		return n, n <= math.MaxInt64-blockSize
	}
	s := strings.Trim(string(b), " \x00")
	if s == "" {
		return 0, true
	}
	n, err := strconv.ParseInt(s, 8, 64)
	return n, err == nil && n >= 0
}

// cString is the field up to its first NUL.
func cString(b []byte) []byte {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		return b[:i]
	}
	return b
}
