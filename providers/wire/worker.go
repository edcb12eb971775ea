package wire

import (
	"bufio"
	"fmt"
	"io"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Worker is the worker's side of a control channel. It has no goroutine: the worker's own loop reads, and several
// goroutines may send.
type Worker struct {
	br  *bufio.Reader
	buf []byte

	mu sync.Mutex // one frame at a time
	w  io.Writer
}

// NewWorker speaks over r and w, which may be the same socket.
func NewWorker(r io.Reader, w io.Writer) *Worker {
	return &Worker{br: bufio.NewReader(r), w: w}
}

// Next waits for the next frame from the core. Any error, io.EOF above all, means that the core is gone and that the
// worker must end. It must not be called from two goroutines at once.
func (w *Worker) Next() (FromCore, error) {
	var err error
	if w.buf, err = readFrame(w.br, w.buf, MaxCoreFrame); err != nil {
		return FromCore{}, err
	}
	var m FromCore
	if err := json.Unmarshal(w.buf, &m, json.RejectUnknownMembers(true), jsontext.AllowInvalidUTF8(true)); err != nil {
		return FromCore{}, broken("a frame does not parse", err)
	}
	if !m.single() {
		return FromCore{}, broken("a frame needs exactly one member", nil)
	}
	return m, nil
}

// Send writes one frame.
func (w *Worker) Send(m FromWorker) error {
	frame, err := encodeFromWorker(m)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.write(frame)
}

// TrySend writes one frame unless another one is being written; it says whether it did. It is for progress, which may
// be lost but must not hold up the work.
func (w *Worker) TrySend(m FromWorker) (bool, error) {
	frame, err := encodeFromWorker(m)
	if err != nil {
		return false, err
	}
	if !w.mu.TryLock() {
		return false, nil
	}
	defer w.mu.Unlock()
	return true, w.write(frame)
}

func (w *Worker) write(frame []byte) error {
	if _, err := w.w.Write(frame); err != nil {
		return fmt.Errorf("control channel: send: %w", err)
	}
	return nil
}

func encodeFromWorker(m FromWorker) ([]byte, error) {
	if !m.single() {
		return nil, broken("a frame needs exactly one member", nil)
	}
	if err := m.check(); err != nil {
		return nil, broken("a frame holds a value out of bounds", err)
	}
	return appendFrame(nil, m, MaxWorkerFrame)
}
