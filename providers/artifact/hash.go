package artifact

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"slices"

	"rea/evidence"
)

// hashWriter is SHA-256 over a stream of small pieces, gathered so that a piece costs no call of its own.
type hashWriter struct {
	h   hash.Hash
	buf []byte
}

const hashBuffer = 8 << 10

func newHashWriter() hashWriter { return hashWriter{h: sha256.New(), buf: make([]byte, 0, hashBuffer)} }

func (w *hashWriter) write(p []byte) {
	if len(w.buf)+len(p) > hashBuffer {
		w.h.Write(w.buf)
		w.buf = w.buf[:0]
	}
	if len(p) > hashBuffer {
		w.h.Write(p)
		return
	}
	w.buf = append(w.buf, p...)
}

func (w *hashWriter) text(s string) {
	if len(w.buf)+len(s) > hashBuffer {
		w.h.Write(w.buf)
		w.buf = w.buf[:0]
	}
	w.buf = append(w.buf, s...)
}

func (w *hashWriter) sum() sum {
	w.h.Write(w.buf)
	w.buf = w.buf[:0]
	return sum(w.h.Sum(nil))
}

// Arrangement digests the order of a container's members and how each is stored, for its Container record. Make one
// with NewArrangement and add the members in the container's own order. The order has its own digest, so that of the
// methods does not depend on it: its pairs are sorted, and kept until then, about 110 bytes each.
type Arrangement struct {
	order   hashWriter
	pairs   []string // canonical [path,method]
	scratch []byte
}

// NewArrangement begins the digests of one container.
func NewArrangement() *Arrangement {
	a := &Arrangement{order: newHashWriter()}
	a.order.text("[")
	return a
}

// Add takes the next member: its path inside the container, escaped as logical paths are, and the name of its storage
// method.
func (a *Arrangement) Add(path, method string) {
	if len(a.pairs) > 0 {
		a.order.text(",")
	}
	pair := evidence.AppendString(append(a.scratch[:0], '['), path)
	a.order.write(pair[1:])
	pair = append(evidence.AppendString(append(pair, ','), method), ']')
	a.pairs, a.scratch = append(a.pairs, string(pair)), pair
}

// Container ends the digests. comment is nil where the container has none; regions are sorted by offset.
func (a *Arrangement) Container(comment *[32]byte, regions []Region) Container {
	a.order.text("]")
	c := Container{MemberOrderSHA256: id("", a.order.sum()), MethodsSHA256: id("", a.methods()), Regions: regions}
	if comment != nil {
		s := hex.EncodeToString(comment[:])
		c.CommentSHA256 = &s
	}
	return c
}

func (a *Arrangement) methods() sum {
	slices.Sort(a.pairs)
	h := newHashWriter()
	sep := "["
	for _, pair := range a.pairs {
		h.text(sep)
		h.text(pair)
		sep = ","
	}
	if len(a.pairs) == 0 {
		h.text(sep)
	}
	h.text("]")
	return h.sum()
}
