package evidence

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
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

// maxMerged is the size up to which Concat joins neighbouring segments in memory, so that a value made of many small
// parts does not become a long list.
const maxMerged = 4 << 10

// NewPayload brings one JSON text into canonical form, with the rules of Canonicalize. The error is a *SyntaxError.
// A payload is a member of a record, so its depth counts from level 1.
func NewPayload(raw []byte) (Payload, error) {
	c, err := canonicalize(canonicalizer{src: raw, level: 1})
	if err != nil {
		return Payload{}, err
	}
	return CanonicalPayload(c), nil
}

// PayloadOf encodes a Go value, with the rules of Canonical.
func PayloadOf(v any) (Payload, error) {
	raw, err := Canonical(v)
	if err != nil {
		return Payload{}, err
	}
	return CanonicalPayload(raw), nil
}

// StringPayload is one string value; s is WTF-8 (AppendString).
func StringPayload(s string) Payload { return CanonicalPayload(AppendString(nil, s)) }

// CanonicalPayload wraps bytes that are already canonical JSON, a whole value or (for Concat) a part of one. The
// caller vouches for the form and leaves the bytes alone; use NewPayload for anything else.
func CanonicalPayload(raw []byte) Payload {
	return Payload{segments: []segment{{inline: raw}}, size: int64(len(raw))}
}

// BlobPayload wraps a blob whose content is canonical JSON.
func BlobPayload(b Blob) Payload {
	return Payload{segments: []segment{{blob: b}}, size: b.Size()}
}

// Concat joins parts of one canonical JSON value. Small neighbours in memory become one.
func Concat(parts ...Payload) Payload {
	var p Payload
	var own bool // the last segment is a copy of ours, with room
	for _, part := range parts {
		for _, s := range part.all() {
			n := len(p.segments)
			if n == 0 || s.blob != nil || p.segments[n-1].blob != nil || len(p.segments[n-1].inline)+len(s.inline) > maxMerged {
				p.segments, own = append(p.segments, s), false
				continue
			}
			last := &p.segments[n-1]
			if !own {
				last.inline, own = slices.Clone(last.inline), true
			}
			last.inline = append(last.inline, s.inline...)
		}
		p.size += part.Size()
	}
	return p
}

// Member is one member of an object.
type Member struct {
	Key   string
	Value Payload
}

// ObjectPayload is an object of these members, put into canonical order. No value is copied. Keys must differ.
func ObjectPayload(members ...Member) Payload {
	members = slices.Clone(members)
	slices.SortFunc(members, func(a, b Member) int { return compareUTF16([]byte(a.Key), []byte(b.Key)) })
	parts := make([]Payload, 0, 2*len(members)+1)
	sep := byte('{')
	for _, m := range members {
		parts = append(parts, CanonicalPayload(append(AppendString([]byte{sep}, m.Key), ':')), m.Value)
		sep = ','
	}
	if len(members) == 0 {
		return CanonicalPayload([]byte("{}"))
	}
	return Concat(append(parts, CanonicalPayload([]byte{'}'}))...)
}

// ArrayPayload is an array of these values in their order. No value is copied.
func ArrayPayload(elements ...Payload) Payload {
	parts := make([]Payload, 0, 2*len(elements)+1)
	sep := []byte{'['}
	for _, e := range elements {
		parts = append(parts, CanonicalPayload(sep), e)
		sep = []byte{','}
	}
	if len(elements) == 0 {
		return CanonicalPayload([]byte("[]"))
	}
	return Concat(append(parts, CanonicalPayload([]byte{']'}))...)
}

var null = []byte("null")

func (p Payload) all() []segment {
	if len(p.segments) == 0 {
		return []segment{{inline: null}}
	}
	return p.segments
}

// IsNull reports whether the value is null.
func (p Payload) IsNull() bool {
	s := p.all()
	return len(s) == 1 && s[0].blob == nil && bytes.Equal(s[0].inline, null)
}

// Size is the length of the canonical form in bytes.
func (p Payload) Size() int64 {
	if len(p.segments) == 0 {
		return int64(len(null))
	}
	return p.size
}

// Segments visits the parts of the canonical form in order: blob is nil for a part in memory, which the callee must
// not change. A store walks over them to keep each blob once.
func (p Payload) Segments(yield func(inline []byte, blob Blob) bool) {
	for _, s := range p.all() {
		if !yield(s.inline, s.blob) {
			return
		}
	}
}

// WriteTo writes the canonical form.
func (p Payload) WriteTo(w io.Writer) (int64, error) {
	var total int64
	for _, s := range p.all() {
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
		err = s.shortened(n)
	}
	return n, err
}

func (s segment) shortened(n int64) error {
	return fmt.Errorf("blob %s: %d bytes read, %d expected: %w", s.blob.SHA256(), n, s.blob.Size(), io.ErrUnexpectedEOF)
}

// SHA256 is the digest of the canonical form in lower-case hex.
func (p Payload) SHA256() (string, error) {
	h := sha256.New()
	if _, err := p.WriteTo(h); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// Reader reads the canonical form. Close releases what it holds; it opens one blob at a time.
func (p Payload) Reader() io.ReadCloser { return &payloadReader{rest: p.all()} }

type payloadReader struct {
	rest []segment
	cur  io.ReadCloser // nil between two segments
	n    int64         // bytes read of cur
}

func (r *payloadReader) Read(p []byte) (int, error) {
	for len(p) > 0 {
		if r.cur == nil {
			if err := r.advance(); err != nil {
				return 0, err
			}
		}
		n, err := r.cur.Read(p)
		r.n += int64(n)
		if err == io.EOF {
			err = r.finish()
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
	return 0, nil
}

// advance opens the next segment.
func (r *payloadReader) advance() error {
	if len(r.rest) == 0 {
		return io.EOF
	}
	r.n = 0
	s := r.rest[0]
	if s.blob == nil {
		r.cur = io.NopCloser(bytes.NewReader(s.inline))
		return nil
	}
	cur, err := s.blob.Open()
	if err != nil {
		return fmt.Errorf("open blob %s: %w", s.blob.SHA256(), err)
	}
	r.cur = cur
	return nil
}

// finish closes the segment that was read to its end.
func (r *payloadReader) finish() error {
	s := r.rest[0]
	r.rest = r.rest[1:]
	err := r.cur.Close()
	r.cur = nil
	if s.blob != nil && r.n != s.blob.Size() {
		return s.shortened(r.n)
	}
	return err
}

// Close implements io.Closer.
func (r *payloadReader) Close() error {
	r.rest = nil
	if r.cur == nil {
		return nil
	}
	err := r.cur.Close()
	r.cur = nil
	return err
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

// first is the first byte of the canonical form: what kind of value it is.
func (p Payload) first() (byte, error) {
	r := p.Reader()
	defer r.Close()
	var b [1]byte
	_, err := io.ReadFull(r, b[:])
	return b[0], err
}
