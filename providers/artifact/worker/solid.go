package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// solid is a compressed block that holds several members one behind another. They are read in their order, and the block
// is decoded once.
type solid struct {
	c      *container
	packed int64 // bytes of the container that the block reads
	open   func() (io.Reader, error)

	r    io.Reader
	at   int64 // bytes decoded
	back int   // times that it was begun again
	busy bool  // the decoder is at work, or panicked
	err  error // sticky
}

// maxBack bounds how often one block is decoded again for members that begin before the end of the one before them, which
// no ordinary writer makes.
const maxBack = 16

var errBefore = errors.New("it begins before the end of the member before it in its block, as too many others do")

// member reads size bytes at a place in the decoded block.
func (s *solid) member(start, size int64) (io.ReadCloser, error) {
	if start < s.at {
		if s.back++; s.back > maxBack {
			return nil, errBefore
		}
		s.r, s.at, s.busy, s.err = nil, 0, false, nil
	}
	if s.r == nil && s.err == nil {
		s.r, s.err = s.open()
	}
	if start-s.at > maxEntryBytes {
		return nil, &hit{"entry-bytes", maxEntryBytes, start - s.at, s.c.path}
	}
	if _, err := io.CopyN(io.Discard, s, start-s.at); err != nil {
		return nil, fmt.Errorf("the block that it lies in broke off %d bytes before it: %w", start-s.at, noEOF(err))
	}
	return io.NopCloser(exactly{&io.LimitedReader{R: s, N: size}}), nil
}

// Read implements io.Reader: it decodes on, and holds the ratio against the guard.
func (s *solid) Read(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	if s.busy {
		s.err = errors.New("its decoder failed")
		return 0, s.err
	}
	if s.err = context.Cause(s.c.w.ctx); s.err != nil {
		return 0, s.err
	}
	s.busy = true
	n, err := s.r.Read(p)
	s.busy = false
	s.at += int64(n)
	if s.at > ratioFrom && s.at/maxRatio > s.packed {
		err = &hit{"compression-ratio", maxRatio, s.at / max(s.packed, 1), s.c.path}
	}
	s.err = err
	return n, err
}
