package artifact

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"

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
// with NewArrangement and add the members in the container's own order.
type Arrangement struct {
	order, methods hashWriter
	buf            []byte
	some           bool
}

// NewArrangement begins the digests of one container.
func NewArrangement() *Arrangement {
	a := &Arrangement{order: newHashWriter(), methods: newHashWriter()}
	a.order.text("[")
	a.methods.text("[")
	return a
}

// Add takes the next member: its path inside the container, escaped as logical paths are, and the name of its storage
// method.
func (a *Arrangement) Add(path, method string) {
	a.buf = a.buf[:0]
	if a.some {
		a.buf = append(a.buf, ',')
	}
	a.some = true
	comma := len(a.buf)
	a.buf = evidence.AppendString(a.buf, path)
	a.order.write(a.buf)
	path = string(a.buf[comma:])
	a.buf = append(append(append(a.buf[:comma], '['), path...), ',')
	a.buf = append(evidence.AppendString(a.buf, method), ']')
	a.methods.write(a.buf)
}

// Container ends the digests. comment is nil where the container has none; regions are sorted by offset.
func (a *Arrangement) Container(comment *[32]byte, regions []Region) Container {
	a.order.text("]")
	a.methods.text("]")
	order, methods := a.order.sum(), a.methods.sum()
	c := Container{MemberOrderSHA256: hex.EncodeToString(order[:]), MethodsSHA256: hex.EncodeToString(methods[:]), Regions: regions}
	if comment != nil {
		s := hex.EncodeToString(comment[:])
		c.CommentSHA256 = &s
	}
	return c
}
