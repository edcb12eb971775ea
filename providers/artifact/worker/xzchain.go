package worker

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"io"

	"github.com/xi2/xz"
)

// The xz decoder knows LZMA2 and the filters for machine code and samples. A stream of 7z that goes through one of them
// is given to it behind a head that says so; no check and no index follow, and none is read.

// xzFilter is a filter of the xz format (The .xz File Format, 5.3).
type xzFilter struct {
	id         byte
	properties []byte
}

const (
	xzDelta = 0x03
	xzLZMA2 = 0x21
	// xzSmallest is the smallest dictionary, 4 KiB, as LZMA2 has it in its property.
	xzSmallest = 0
)

// openLZMA2 decodes raw LZMA2 data. property is the size of its dictionary, of which no more is made than limit, or than
// the content needs.
func openLZMA2(property byte, size, limit int64, r io.Reader) (io.Reader, error) {
	for property > xzSmallest && lzma2Dictionary(property-1) >= size {
		property--
	}
	return xz.NewReader(io.MultiReader(xzHead(xzFilter{xzLZMA2, []byte{property}}), r), uint32(limit))
}

// lzma2Dictionary is the size of the dictionary that a property stands for.
func lzma2Dictionary(property byte) int64 { return int64(2|property&1) << (property/2 + 11) }

// openFilter undoes a filter: plain bytes are LZMA2 data too, once they are in its frame.
func openFilter(f xzFilter, r io.Reader) (io.Reader, error) {
	return xz.NewReader(io.MultiReader(xzHead(f, xzFilter{xzLZMA2, []byte{xzSmallest}}), &lzma2Frame{r: r}), maxDictionary)
}

// xzHead is the head of an xz stream without a check, and of a block with filters.
func xzHead(filters ...xzFilter) io.Reader {
	le := binary.LittleEndian
	b := []byte("\xfd7zXZ\x00\x00\x00")
	b = le.AppendUint32(b, crc32.ChecksumIEEE(b[6:8]))
	block := []byte{0, byte(len(filters) - 1)}
	for _, f := range filters {
		block = append(append(block, f.id, byte(len(f.properties))), f.properties...)
	}
	block = append(block, make([]byte, -len(block)&3)...)
	block[0] = byte(len(block) / 4)
	b = append(b, block...)
	b = le.AppendUint32(b, crc32.ChecksumIEEE(block))
	return bytes.NewReader(b)
}

// lzma2Frame puts bytes into LZMA2 chunks that are not compressed.
type lzma2Frame struct {
	r     io.Reader
	buf   [3 + 32<<10]byte
	ready []byte
	some  bool
	ended bool
}

// Read implements io.Reader.
func (f *lzma2Frame) Read(p []byte) (int, error) {
	const first, further, end = 1, 2, 0
	for len(f.ready) == 0 {
		if f.ended {
			return 0, io.EOF
		}
		n, err := io.ReadAtLeast(f.r, f.buf[3:], 1)
		switch {
		case n > 0:
			f.buf[0] = further
			if !f.some {
				f.buf[0], f.some = first, true
			}
			binary.BigEndian.PutUint16(f.buf[1:], uint16(n-1))
			f.ready = f.buf[:3+n]
		case err == io.EOF:
			f.ended = true
			f.buf[0] = end
			f.ready = f.buf[:1]
		default:
			return 0, err
		}
	}
	n := copy(p, f.ready)
	f.ready = f.ready[n:]
	return n, nil
}
