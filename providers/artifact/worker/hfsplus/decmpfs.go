package hfsplus

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zlib"

	"rea/providers/artifact/worker/lzfse"
	"rea/providers/artifact/worker/ucs2"
)

// Files that the file system stores compressed have their bytes in the attribute com.apple.decmpfs, or in pieces of
// 64 KiB in the resource fork; the attribute's head says how (xnu's bsd/sys/decmpfs.h). Odd methods stand in the
// attribute, even ones in the fork.
const (
	zlibInline = 3 + iota
	zlibFork
	_
	_
	lzvnInline
	lzvnFork
	plainInline
	plainFork
	lzfseInline
	lzfseFork
)

const (
	attributeHead = 16
	pieceSize     = 64 << 10
	// maxPiece bounds a compressed piece: one that grew by being compressed is stored as it is.
	maxPiece = pieceSize + 1<<10
)

// decmpfs reads the attribute of a compressed file.
func (v *Volume) decmpfs(e *Entry, file uint32) error {
	b, err := v.attribute(file, "com.apple.decmpfs")
	if err != nil {
		return fmt.Errorf("it is stored compressed, and the attribute that says how cannot be read: %w", err)
	}
	le := binary.LittleEndian
	if len(b) < attributeHead || string(b[:4]) != "fpmc" {
		return fmt.Errorf("%w: the attribute of a compressed file", ErrFormat)
	}
	size := le.Uint64(b[8:])
	e.Compressed, e.attribute = le.Uint32(b[4:]), b[attributeHead:]
	if size > 1<<62 {
		return fmt.Errorf("%w: a compressed file of %d bytes", ErrFormat, size)
	}
	e.Size = int64(size)
	if e.Compressed < zlibInline || e.Compressed > lzfseFork || e.Compressed == 5 || e.Compressed == 6 {
		return fmt.Errorf("it is stored compressed by method %d, which is not read", e.Compressed)
	}
	if e.Compressed%2 == 0 && e.Resource == nil {
		return fmt.Errorf("%w: a compressed file has no resource fork", ErrFormat)
	}
	return nil
}

// attribute finds an attribute that is stored in its record.
func (v *Volume) attribute(file uint32, name string) ([]byte, error) {
	if v.attributes == nil {
		return nil, errors.New("the volume has no attributes")
	}
	const keySize = 12
	be := binary.BigEndian
	c, err := v.attributes.find(func(key []byte) int {
		if len(key) < keySize {
			return -1
		}
		return cmpAll(be.Uint32(key[2:]), file)
	})
	if err != nil {
		return nil, err
	}
	for {
		key, data, err := c.next()
		if err != nil || len(key) < keySize || be.Uint32(key[2:]) != file {
			return nil, errors.New("it is not there")
		}
		units := ucs2.BigEndian(key[keySize:])
		if n := int(be.Uint16(key[10:])); n > len(units) || string(ucs2.Bytes(units[:n])) != name {
			continue
		}
		const inline, head = 0x10, 16
		if len(data) < head || be.Uint32(data) != inline {
			return nil, errors.New("it is not stored in its record")
		}
		if n := int64(be.Uint32(data[12:])); n <= int64(len(data)-head) {
			return data[head : head+n], nil
		}
		return nil, fmt.Errorf("%w: an attribute leaves its record", ErrFormat)
	}
}

// Open reads a file's bytes, decoded where the file system stores them compressed.
func (e *Entry) Open() io.Reader {
	switch {
	case e.Compressed == 0:
		return io.NewSectionReader(e.Data, 0, e.Size)
	case e.Compressed%2 == 1:
		return &pieces{method: e.Compressed, left: e.Size, next: func() ([]byte, error) { return e.attribute, nil }}
	}
	return &pieces{method: e.Compressed - 1, left: e.Size, next: e.piecesOfFork()}
}

// pieces decodes a compressed file piece by piece.
type pieces struct {
	method uint32
	left   int64
	next   func() ([]byte, error)
	rest   []byte
}

// Read implements io.Reader.
func (p *pieces) Read(b []byte) (int, error) {
	if len(p.rest) == 0 {
		if p.left == 0 {
			return 0, io.EOF
		}
		want := int(min(p.left, pieceSize))
		raw, err := p.next()
		if err != nil {
			return 0, noEOF(err)
		}
		if p.rest, err = decodePiece(p.method, raw, want); err != nil {
			return 0, noEOF(err)
		}
		if len(p.rest) != want {
			return 0, fmt.Errorf("%w: a compressed piece has %d bytes where %d belong", ErrFormat, len(p.rest), want)
		}
		p.left -= int64(want)
	}
	n := copy(b, p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

// decodePiece decodes one piece of at most limit bytes. A mark in its first byte says that it is stored as it is.
func decodePiece(method uint32, raw []byte, limit int) ([]byte, error) {
	if len(raw) == 0 {
		return nil, io.ErrUnexpectedEOF
	}
	switch method {
	case zlibInline:
		if raw[0]&0xf == 0xf {
			return raw[1:], nil
		}
		z, err := zlib.NewReader(bytes.NewReader(raw))
		if err != nil {
			return nil, err
		}
		var b bytes.Buffer
		_, err = b.ReadFrom(io.LimitReader(z, int64(limit)+1))
		return b.Bytes(), err
	case lzvnInline:
		if raw[0] == 6 {
			return raw[1:], nil
		}
		return lzfse.DecodeLZVN(raw, limit)
	case lzfseInline:
		if raw[0] == 0xff {
			return raw[1:], nil
		}
		return lzfse.Decode(raw, limit)
	}
	return raw[1:], nil // plain, behind a byte of no meaning
}

// piecesOfFork gives the pieces that a resource fork holds, one after another.
func (e *Entry) piecesOfFork() func() ([]byte, error) {
	at := func(i int64) (start, end int64, err error) { return e.offsets(i) }
	if e.Compressed == zlibFork {
		at = e.zlibOffsets
	}
	i := int64(0)
	return func() ([]byte, error) {
		start, end, err := at(i)
		if err != nil {
			return nil, err
		}
		if i++; start < 0 || end < start || end-start > maxPiece {
			return nil, fmt.Errorf("%w: a compressed piece from %d to %d", ErrFormat, start, end)
		}
		return readRange(e.Resource, start, end-start)
	}
}

// offsets reads the table of the newer methods: it begins the fork, and holds where each piece begins and the last ends.
func (e *Entry) offsets(i int64) (start, end int64, err error) {
	b, err := readRange(e.Resource, 4*i, 8)
	if err != nil {
		return 0, 0, err
	}
	return int64(binary.LittleEndian.Uint32(b)), int64(binary.LittleEndian.Uint32(b[4:])), nil
}

// zlibOffsets reads the table of zlib pieces: an item of a resource fork, with offsets from the table's own start.
func (e *Entry) zlibOffsets(i int64) (start, end int64, err error) {
	b, err := readRange(e.Resource, 0, 4)
	if err != nil {
		return 0, 0, err
	}
	base := int64(binary.BigEndian.Uint32(b)) + 4
	if b, err = readRange(e.Resource, base+4+8*i, 8); err != nil {
		return 0, 0, err
	}
	start = base + int64(binary.LittleEndian.Uint32(b))
	return start, start + int64(binary.LittleEndian.Uint32(b[4:])), nil
}

func readRange(f *Fork, start, length int64) ([]byte, error) {
	b := make([]byte, length)
	if n, err := f.ReadAt(b, start); int64(n) < length {
		return nil, noEOF(err)
	}
	return b, nil
}

// noEOF keeps the end of some bytes from passing for the end of what is read.
func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
