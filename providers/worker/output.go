package worker

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"sync"

	"rea/evidence/volume"
)

// outputBuffer makes writes of a result's many small tokens large; it is also the unit of hashing.
const outputBuffer = 256 << 10

// buffers are shared by all outputs: an extraction opens one file after the other.
var buffers = sync.Pool{New: func() any { return bufio.NewWriterSize(io.Discard, outputBuffer) }}

// output is one file of the answer, hashed while it is written. Nothing is synced: the core reads the same pages.
type output struct {
	call *Call
	path string

	mu     sync.Mutex
	file   *os.File
	buf    *bufio.Writer
	sum    hash.Hash
	size   int64
	err    error // sticky: what the file cannot be whole for
	closed bool
}

func (o *output) create() error {
	name := filepath.Join(o.call.folder, filepath.FromSlash(o.path))
	file, err := createFile(name)
	if errors.Is(err, os.ErrNotExist) { // the first file of its directory
		if err = os.MkdirAll(filepath.Dir(name), 0o700); err == nil {
			file, err = createFile(name)
		}
	}
	if err != nil {
		return fmt.Errorf("create %s: %w", o.path, err)
	}
	o.file = file
	o.buf = buffers.Get().(*bufio.Writer)
	o.buf.Reset((*hashed)(o))
	return nil
}

func createFile(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
}

// hashed is the output behind its buffer.
type hashed output

func (h *hashed) Write(p []byte) (int, error) {
	n, err := h.file.Write(p)
	h.sum.Write(p[:n])
	h.size += int64(n)
	return n, err
}

// Write appends to the file.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.closed:
		return 0, os.ErrClosed
	case o.err != nil:
		return 0, o.err
	}
	n, err := o.buf.Write(p)
	if err != nil {
		o.err = o.call.filled(err)
	}
	return n, o.err
}

// Close makes the file part of the answer, if all of it was written.
func (o *output) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return o.err
	}
	o.closed = true
	if o.err == nil {
		if err := o.buf.Flush(); err != nil {
			o.err = o.call.filled(err)
		}
	}
	if err := o.release(); err != nil && o.err == nil {
		o.err = err
	}
	o.call.finished(o, o.err == nil)
	return o.err
}

// discard takes the file out of the answer.
func (o *output) discard() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed {
		o.closed = true
		_ = o.release() // the file is dropped with its folder
		o.call.finished(o, false)
	}
}

// release gives back the buffer and closes the file.
func (o *output) release() error {
	if o.file == nil {
		return nil
	}
	o.buf.Reset(io.Discard)
	buffers.Put(o.buf)
	o.buf = nil
	return o.file.Close()
}

// finished moves an output from the open ones to the files of the answer, or removes it. On a full volume it stays,
// unlisted: the core believes that the volume is full when it sees that, and not when it is told.
func (c *Call) finished(o *output, whole bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.outputs, o.path)
	if whole {
		c.files = append(c.files, volume.File{Path: o.path, Size: o.size, SHA256: hex.EncodeToString(o.sum.Sum(nil))})
		return
	}
	if c.full == volume.ExhaustedBytes {
		return
	}
	os.Remove(filepath.Join(c.folder, filepath.FromSlash(o.path)))
}
