// Package rpm finds the parts of an RPM package (format version 3 and 4): lead, signature header, header and payload,
// and reads the few tags that say what the payload is and what digests are declared.
//
// No structure is allocated from a count that the package claims before it is held against the file, and only the tags
// that are asked for are read. Package rpm must not verify a digest or decode the payload.
package rpm

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
)

const (
	leadMagic   = "\xed\xab\xee\xdb"
	leadSize    = 96
	headerMagic = "\x8e\xad\xe8\x01"
	introSize   = 16 // mark, reserved bytes, number of index entries, size of the store
	entrySize   = 16

	// maxEntries and maxStore bound one header: rpm's own limits.
	maxEntries = 1<<16 - 1
	maxStore   = 256 << 20
	// maxString bounds a tag's text that is read.
	maxString = 256
)

// Tags of the signature header and of the header.
const (
	tagHeaderSHA256      = 273
	tagPayloadFormat     = 1124
	tagPayloadCompressor = 1125
	tagPayloadSHA256     = 5092
	tagPayloadAlgorithm  = 5093

	algorithmSHA256 = 8

	typeInt32       = 4
	typeString      = 6
	typeStringArray = 8
)

// ErrFormat says that a file is not an RPM package, or that one of its headers is broken.
var ErrFormat = errors.New("not an RPM package")

// Part is a byte range of the file.
type Part struct{ Start, Size int64 }

// End is the first byte behind the part.
func (p Part) End() int64 { return p.Start + p.Size }

// Package is a package whose parts were found.
type Package struct {
	Lead, Signature, Header, Payload Part

	Format        string    // of the payload, "cpio" if it is not said
	Compressor    string    // of the payload, "gzip" if it is not said
	HeaderSHA256  *[32]byte // declared for Header, nil for none
	PayloadSHA256 *[32]byte // declared for Payload, nil for none
}

// Open finds the parts of a file of the given size.
func Open(r io.ReaderAt, size int64) (*Package, error) {
	p := &Package{Format: "cpio", Compressor: "gzip"}
	var lead [leadSize]byte
	if n, err := r.ReadAt(lead[:], 0); n < leadSize {
		return nil, noEOF(err)
	}
	if string(lead[:4]) != leadMagic {
		return nil, ErrFormat
	}
	p.Lead = Part{0, leadSize}
	signature, err := open(r, size, leadSize, "signature")
	if err != nil {
		return nil, err
	}
	p.Signature = signature.part
	header, err := open(r, size, (p.Signature.End()+7)&^7, "header")
	if err != nil {
		return nil, err
	}
	p.Header = header.part
	p.Payload = Part{p.Header.End(), size - p.Header.End()}
	if s := header.text(tagPayloadFormat); s != "" {
		p.Format = s
	}
	if s := header.text(tagPayloadCompressor); s != "" {
		p.Compressor = s
	}
	p.HeaderSHA256 = digest(signature.text(tagHeaderSHA256))
	if header.number(tagPayloadAlgorithm) == algorithmSHA256 {
		p.PayloadSHA256 = digest(header.text(tagPayloadSHA256))
	}
	return p, nil
}

// Suffix is what the payload's compressor puts behind a file's name, "" where that is not known.
func (p *Package) Suffix() string {
	return map[string]string{"gzip": ".gz", "bzip2": ".bz2", "xz": ".xz", "lzma": ".lzma", "zstd": ".zst"}[p.Compressor]
}

// digest decodes a SHA-256 in hex.
func digest(text string) *[32]byte {
	var sum [32]byte
	if len(text) != hex.EncodedLen(len(sum)) {
		return nil
	}
	if _, err := hex.Decode(sum[:], []byte(strings.ToLower(text))); err != nil {
		return nil
	}
	return &sum
}

// header is one header structure: its index is in memory, its store is not.
type header struct {
	r         io.ReaderAt
	part      Part
	index     []byte
	store     int64
	storeSize int64
}

// open reads the index of the header at an offset.
func open(r io.ReaderAt, size, at int64, what string) (*header, error) {
	var intro [introSize]byte
	if n, err := r.ReadAt(intro[:], at); n < introSize {
		return nil, fmt.Errorf("%s: %w", what, noEOF(err))
	}
	be := binary.BigEndian
	entries, store := int64(be.Uint32(intro[8:])), int64(be.Uint32(intro[12:]))
	switch {
	case string(intro[:4]) != headerMagic:
		return nil, fmt.Errorf("%w: no %s at byte %d", ErrFormat, what, at)
	case entries > maxEntries || store > maxStore:
		return nil, fmt.Errorf("%w: %s of %d entries and %d bytes", ErrFormat, what, entries, store)
	}
	h := &header{r: r, store: at + introSize + entries*entrySize, storeSize: store}
	h.part = Part{at, introSize + entries*entrySize + store}
	if h.part.End() > size {
		return nil, fmt.Errorf("%s of %d bytes at byte %d: %w", what, h.part.Size, at, io.ErrUnexpectedEOF)
	}
	h.index = make([]byte, entries*entrySize)
	if n, err := r.ReadAt(h.index, at+introSize); n < len(h.index) {
		return nil, noEOF(err)
	}
	return h, nil
}

// find gives where the first value of a tag of one of the types lies, -1 for none.
func (h *header) find(tag uint32, types ...uint32) int64 {
	be := binary.BigEndian
	for e := h.index; len(e) > 0; e = e[entrySize:] {
		offset := int64(be.Uint32(e[8:]))
		if be.Uint32(e) != tag || offset >= h.storeSize || be.Uint32(e[12:]) == 0 {
			continue
		}
		for _, t := range types {
			if be.Uint32(e[4:]) == t {
				return offset
			}
		}
	}
	return -1
}

// text is the (first) string of a tag, "" for none or one that is longer than maxString.
func (h *header) text(tag uint32) string {
	at := h.find(tag, typeString, typeStringArray)
	if at < 0 {
		return ""
	}
	b := make([]byte, min(maxString, h.storeSize-at))
	if n, _ := h.r.ReadAt(b, h.store+at); n < len(b) {
		return ""
	}
	text, _, ok := bytes.Cut(b, []byte{0})
	if !ok {
		return ""
	}
	return string(text)
}

// number is the (first) integer of a tag, 0 for none.
func (h *header) number(tag uint32) uint32 {
	at := h.find(tag, typeInt32)
	var b [4]byte
	if at < 0 || at+4 > h.storeSize {
		return 0
	}
	if n, _ := h.r.ReadAt(b[:], h.store+at); n < len(b) {
		return 0
	}
	return binary.BigEndian.Uint32(b[:])
}

func noEOF(err error) error {
	if err == nil || err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
