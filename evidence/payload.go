package evidence

import (
	"bytes"
	"fmt"
	"io"
)

// Payload is one JSON value in canonical form, as a concatenation of segments that lie in memory or in a
// content-addressed blob. A result of a million entries is a Payload that is never in memory as a whole. The zero
// value is null. Payloads are immutable.
type Payload struct {
	segments []segment
	size     int64
}

type segment struct {
	inline []byte
	blob   Blob
}

// Blob is immutable content that can be read again and again; a file of the store is one.
type Blob interface {
	// SHA256 is the hex digest of the content.
	SHA256() string
	// Size is its length in bytes.
	Size() int64
	// Open reads it from the start.
	Open() (io.ReadCloser, error)
}

// CanonicalPayload wraps bytes that are already canonical JSON, a whole value or (for Concat) a part of one. The
// caller vouches for the form; use NewPayload for anything else.
func CanonicalPayload(raw []byte) Payload {
	return Payload{segments: []segment{{inline: raw}}, size: int64(len(raw))}
}

// BlobPayload wraps a blob whose content is canonical JSON.
func BlobPayload(b Blob) Payload {
	return Payload{segments: []segment{{blob: b}}, size: b.Size()}
}

// Concat joins parts of one canonical JSON value.
func Concat(parts ...Payload) Payload {
	var p Payload
	for _, part := range parts {
		p.segments = append(p.segments, part.segments...)
		p.size += part.size
	}
	return p
}

var null = []byte("null")

// IsNull reports whether the value is null.
func (p Payload) IsNull() bool {
	return len(p.segments) == 0 || len(p.segments) == 1 && p.segments[0].blob == nil && bytes.Equal(p.segments[0].inline, null)
}

// Size is the length of the canonical form in bytes.
func (p Payload) Size() int64 {
	if len(p.segments) == 0 {
		return int64(len(null))
	}
	return p.size
}

// WriteTo writes the canonical form.
func (p Payload) WriteTo(w io.Writer) (int64, error) {
	if len(p.segments) == 0 {
		n, err := w.Write(null)
		return int64(n), err
	}
	var total int64
	for _, s := range p.segments {
		n, err := s.writeTo(w)
		total += n
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

func (s segment) writeTo(w io.Writer) (int64, error) {
	if s.blob == nil {
		n, err := w.Write(s.inline)
		return int64(n), err
	}
	r, err := s.blob.Open()
	if err != nil {
		return 0, fmt.Errorf("open blob %s: %w", s.blob.SHA256(), err)
	}
	defer r.Close()
	n, err := io.Copy(w, r)
	if err == nil && n != s.blob.Size() {
		err = fmt.Errorf("blob %s: %d bytes read, %d expected: %w", s.blob.SHA256(), n, s.blob.Size(), io.ErrUnexpectedEOF)
	}
	return n, err
}

// Reader reads the canonical form. Close releases what it holds.
func (p Payload) Reader() io.ReadCloser {
	pr, pw := io.Pipe()
	go func() {
		_, err := p.WriteTo(pw)
		pw.CloseWithError(err)
	}()
	return pr
}

// Bytes returns the canonical form if it is at most limit bytes long.
func (p Payload) Bytes(limit int64) ([]byte, error) {
	if p.Size() > limit {
		return nil, fmt.Errorf("value of %d bytes exceeds the limit of %d", p.Size(), limit)
	}
	var b bytes.Buffer
	b.Grow(int(p.Size()))
	_, err := p.WriteTo(&b)
	return b.Bytes(), err
}
