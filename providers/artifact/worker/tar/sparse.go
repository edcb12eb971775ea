package tar

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
)

// Piece is a run of bytes of a sparse file that the archive holds; between pieces the file is zero.
type Piece struct{ Offset, Length int64 }

// Map says what a sparse file is made of.
type Map struct {
	Size   int64 // of the file
	Pieces []Piece
	// Problem is set where the map is broken or of no known form; the bytes that follow the header are then no file.
	Problem string
}

// maxPieces bounds the pieces of one file: they are held while the file is read.
const maxPieces = 1 << 16

// Expand reads a sparse file, whose pieces r gives one after another.
func (m *Map) Expand(r io.Reader) io.Reader { return &expander{r: r, pieces: m.Pieces, size: m.Size} }

type expander struct {
	r      io.Reader
	pieces []Piece
	at     int64
	size   int64
}

// Read implements io.Reader.
func (e *expander) Read(p []byte) (int, error) {
	for len(e.pieces) > 0 && e.at == e.pieces[0].Offset+e.pieces[0].Length {
		e.pieces = e.pieces[1:]
	}
	hole := e.size - e.at // up to the next piece, or the end
	if len(e.pieces) > 0 {
		hole = e.pieces[0].Offset - e.at
	}
	if hole > 0 {
		n := int(min(hole, int64(len(p))))
		clear(p[:n])
		e.at += int64(n)
		return n, nil
	}
	if len(e.pieces) == 0 {
		return 0, io.EOF
	}
	n, err := e.r.Read(p[:min(e.pieces[0].Offset+e.pieces[0].Length-e.at, int64(len(p)))])
	e.at += int64(n)
	if err == io.EOF {
		err = nil
		if n == 0 {
			err = io.ErrUnexpectedEOF
		}
	}
	return n, err
}

// check holds a map against itself and against the bytes that are stored.
func (m *Map) check(stored int64) {
	at, sum := int64(0), int64(0)
	for i, p := range m.Pieces {
		if p.Offset < at || p.Length < 0 || p.Length > m.Size-p.Offset {
			m.Problem = fmt.Sprintf("piece %d, %d bytes at %d, overlaps another or leaves the file of %d bytes", i, p.Length, p.Offset, m.Size)
			return
		}
		at = p.Offset + p.Length
		sum += p.Length
	}
	if sum != stored {
		m.Problem = fmt.Sprintf("its pieces have %d bytes, and %d are stored", sum, stored)
	}
}

func (m *Map) add(offset, length int64) {
	if len(m.Pieces) == maxPieces {
		m.Problem = fmt.Sprintf("it has more than %d pieces", maxPieces)
		return
	}
	m.Pieces = append(m.Pieces, Piece{offset, length})
}

// fields adds pieces from a header's own map: rows of an offset and a length, up to an empty one.
func (m *Map) fields(b []byte) {
	const row = 24
	for ; len(b) >= row; b = b[row:] {
		if len(bytes.Trim(b[:row], "\x00 ")) == 0 {
			return
		}
		offset, ok1 := number(b[:12])
		length, ok2 := number(b[12:row])
		if !ok1 || !ok2 {
			m.Problem = "its map holds something that is no number"
			return
		}
		m.add(offset, length)
	}
}

// oldMap reads the map of the old GNU form: some rows in the header, more in blocks behind it.
func (t *Reader) oldMap() (*Map, error) {
	size, ok := number(t.block[483:495])
	m := &Map{Size: size}
	if !ok {
		m.Problem = "its size is no number"
	}
	m.fields(t.block[386:482])
	for more := t.block[482] != 0; more; more = t.block[504] != 0 {
		n, err := io.ReadFull(t.r, t.block[:])
		t.off += int64(n)
		if err != nil {
			return nil, io.ErrUnexpectedEOF
		}
		m.fields(t.block[:504])
	}
	return m, nil
}

// sparseRecords are the PAX records that describe a sparse file: of the form 0.0 pairs of records, of 0.1 one list, of
// 1.0 a map that stands before the bytes.
type sparseRecords struct {
	name          []byte
	size          *string
	numbers       []string // offsets and lengths
	major         string
	some          bool
	unknownRecord string
}

func (s *sparseRecords) record(key string, value []byte) {
	s.some = true
	v := string(value)
	switch key {
	case "name":
		s.name = bytes.Clone(value)
	case "size", "realsize":
		s.size = &v
	case "offset", "numbytes":
		if len(s.numbers) <= 2*maxPieces {
			s.numbers = append(s.numbers, v)
		}
	case "map":
		s.numbers = nil
		for part := range bytes.SplitSeq(value, []byte(",")) {
			if len(s.numbers) > 2*maxPieces {
				break
			}
			s.numbers = append(s.numbers, string(part))
		}
	case "major":
		s.major = v
	case "minor", "numblocks":
	default:
		s.unknownRecord = key
	}
}

// paxMap makes the map that the records describe. That of the form 1.0 is read from the archive.
func (t *Reader) paxMap(s *sparseRecords, h *Member) (*Map, error) {
	m := &Map{}
	var err error
	if s.size == nil {
		m.Problem = "its size is not recorded"
	} else if m.Size, err = strconv.ParseInt(*s.size, 10, 64); err != nil || m.Size < 0 {
		m.Problem = "its size is no number"
	}
	if s.unknownRecord != "" {
		m.Problem = fmt.Sprintf("it is of a form with records %q, which is not read", "GNU.sparse."+s.unknownRecord)
	}
	switch s.major {
	case "1":
		return m, t.dataMap(m, h)
	case "", "0":
	default:
		m.Problem = "its form is not read"
	}
	for i := 0; i+1 < len(s.numbers); i += 2 {
		offset, err1 := strconv.ParseInt(s.numbers[i], 10, 64)
		length, err2 := strconv.ParseInt(s.numbers[i+1], 10, 64)
		if err1 != nil || err2 != nil {
			m.Problem = "its map holds something that is no number"
			break
		}
		m.add(offset, length)
	}
	return m, nil
}

// dataMap reads a map that stands in front of the member's bytes: decimal lines, a count and then pairs, in whole
// blocks.
func (t *Reader) dataMap(m *Map, h *Member) error {
	l := lines{t: t, left: h.Size}
	count, err := l.next()
	if err == nil && count > maxPieces {
		m.Problem = fmt.Sprintf("it has %d pieces; the most that are read are %d", count, maxPieces)
		return nil
	}
	for range count {
		if err != nil {
			break
		}
		var offset, length int64
		if offset, err = l.next(); err == nil {
			length, err = l.next()
		}
		m.add(offset, length)
	}
	h.Size = l.left
	if err == errNoNumber {
		m.Problem, err = "its map holds something that is no number", nil
	}
	return err
}

var errNoNumber = fmt.Errorf("%w: no number", ErrFormat)

// lines reads decimal lines out of a member's blocks.
type lines struct {
	t    *Reader
	rest []byte
	left int64 // bytes of the member that were not taken
}

func (l *lines) next() (int64, error) {
	var digits []byte
	for len(digits) < 20 {
		if len(l.rest) == 0 {
			if l.left < blockSize {
				return 0, errNoNumber
			}
			n, err := io.ReadFull(l.t.r, l.t.block[:])
			l.t.off += int64(n)
			l.left -= int64(n)
			if err != nil {
				return 0, io.ErrUnexpectedEOF
			}
			l.rest = l.t.block[:]
		}
		c := l.rest[0]
		l.rest = l.rest[1:]
		if c == '\n' {
			n, err := strconv.ParseInt(string(digits), 10, 64)
			if err != nil {
				return 0, errNoNumber
			}
			return n, nil
		}
		digits = append(digits, c)
	}
	return 0, errNoNumber
}
