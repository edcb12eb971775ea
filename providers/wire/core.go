package wire

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// Limits of a worker's conduct on the channel. The bursts are far above what an honest worker sends in a day's
// session (it limits itself to ten progress frames a second); the refill lets a session go on for ever.
const (
	// FrameTimeout bounds the time from the first byte of a frame to its last, and the writing of a frame. Pauses of
	// an honest worker on a loaded machine were measured at up to 140 ms.
	FrameTimeout = 10 * time.Second
	// ProgressRate is how many progress frames a second are passed on; more are dropped and counted.
	ProgressRate = 20
	// FloodFrames and FloodBytes are what a worker may send at once before it floods; the allowance is refilled at
	// FloodFrameRate and FloodByteRate a second.
	FloodFrames    = 20_000
	FloodBytes     = 16 << 20
	FloodFrameRate = 2 * ProgressRate
	FloodByteRate  = 64 << 10
	// sendQueue is how many frames may wait for a worker to read them. The core has a call, a digest, a cancel and a
	// release under way at most.
	sendQueue = 16
)

// Errors of a channel besides *ProtocolError, io.EOF (the worker is gone) and io.ErrUnexpectedEOF (it went in the
// middle of a frame).
var (
	// ErrFlood says that the worker sent more than FloodFrames or FloodBytes: outcome output-limit.
	ErrFlood = errors.New("control channel: the worker sent more than its allowance")
	// ErrStalled says that the worker did not read what was sent to it, or began a frame and did not end it.
	ErrStalled = errors.New("control channel: the worker stopped in the middle of a frame")
	// ErrClosed says that this side closed the channel.
	ErrClosed = errors.New("control channel: closed")
)

// Counters is what a channel carried.
type Counters struct {
	Frames  int64 // from the worker
	Bytes   int64 // from the worker, prefixes included
	Dropped int64 // progress frames that were not passed on
}

// Conn is the core's side of a control channel. It reads and writes in two goroutines of its own, which Close ends.
// Its methods may be called from several goroutines.
type Conn struct {
	rwc    io.ReadWriteCloser
	in     chan FromWorker
	out    chan []byte
	closed chan struct{} // closed by fail
	wg     sync.WaitGroup

	mu       sync.Mutex
	err      error // why the channel is closed; set once
	sendErr  error // why nothing more can be sent; what the worker said before is still read
	counters Counters
	calls    map[uint64]bool // sent and not done
}

// NewCore takes over rwc, whose Close must end a Read or Write that blocks.
func NewCore(rwc io.ReadWriteCloser) *Conn {
	c := &Conn{
		rwc:    rwc,
		in:     make(chan FromWorker),
		out:    make(chan []byte, sendQueue),
		closed: make(chan struct{}),
		calls:  map[uint64]bool{},
	}
	c.wg.Add(2)
	go c.read()
	go c.write()
	return c
}

// Send queues a frame and does not wait for the worker. It fails when the channel is closed, when the frame is too
// large, and with ErrStalled when the worker has not read what was sent before.
func (c *Conn) Send(m FromCore) error {
	if !m.single() {
		return errors.New("control channel: a frame needs exactly one member")
	}
	frame, err := appendFrame(nil, m, MaxCoreFrame)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := cmp.Or(c.err, c.sendErr); err != nil {
		return err
	}
	if len(c.out) == cap(c.out) {
		return ErrStalled
	}
	if m.Call != nil {
		c.calls[m.Call.Seq] = true
	}
	c.out <- frame // only Send fills the queue, and it holds the lock
	return nil
}

// Next returns the next frame. The first one is a Hello or a Fatal, every Done answers a call under way, and progress
// belongs to one. After an error every call returns the same error; the end of ctx alone leaves the channel usable.
func (c *Conn) Next(ctx context.Context) (FromWorker, error) {
	select {
	case m := <-c.in:
		return m, nil
	case <-c.closed:
		return FromWorker{}, c.Err()
	case <-ctx.Done():
		return FromWorker{}, context.Cause(ctx)
	}
}

// Counters says what the channel carried so far.
func (c *Conn) Counters() Counters {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counters
}

// Err says why the channel is closed; nil while it is open.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close closes the channel, which cuts the worker's leash, and waits for the channel's goroutines.
func (c *Conn) Close() error {
	err := c.fail(ErrClosed)
	c.wg.Wait()
	return err
}

// fail closes the channel for the first reason given.
func (c *Conn) fail(reason error) error {
	c.mu.Lock()
	first := c.err == nil
	if first {
		c.err = reason
	}
	c.mu.Unlock()
	if !first {
		return nil
	}
	close(c.closed)
	return c.rwc.Close()
}

// watch fails the channel unless the returned function is called within FrameTimeout.
func (c *Conn) watch() (stop func() bool) {
	return time.AfterFunc(FrameTimeout, func() { _ = c.fail(ErrStalled) }).Stop
}

func (c *Conn) write() {
	defer c.wg.Done()
	for {
		select {
		case frame := <-c.out:
			stop := c.watch()
			_, err := c.rwc.Write(frame)
			stop()
			if err != nil {
				c.mu.Lock()
				c.sendErr = fmt.Errorf("control channel: send: %w", err)
				c.mu.Unlock()
				return
			}
		case <-c.closed:
			return
		}
	}
}

// read passes frames on until the channel fails.
func (c *Conn) read() {
	defer c.wg.Done()
	r := &reader{
		conn:     c,
		br:       bufio.NewReader(c.rwc),
		frames:   newBucket(FloodFrames, FloodFrameRate),
		bytes:    newBucket(FloodBytes, FloodByteRate),
		progress: newBucket(ProgressRate, ProgressRate),
	}
	for {
		m, pass, err := r.next()
		if err != nil {
			_ = c.fail(err) // the reason counts, not how the close of a broken channel went
			return
		}
		if !pass {
			continue
		}
		select {
		case c.in <- m:
		case <-c.closed:
			return
		}
	}
}

// reader is the state of the reading goroutine.
type reader struct {
	conn                    *Conn
	br                      *bufio.Reader
	buf                     []byte
	frames, bytes, progress *bucket
	greeted                 bool
}

// next reads one frame and says whether it is passed on.
func (r *reader) next() (m FromWorker, pass bool, err error) {
	if _, err := r.br.Peek(1); err != nil {
		return m, false, err
	}
	stop := r.conn.watch()
	r.buf, err = readFrame(r.br, r.buf, MaxWorkerFrame)
	stop()
	if err != nil {
		return m, false, err
	}
	if !r.allowed(len(r.buf) + headerSize) {
		return m, false, ErrFlood
	}
	if m, err = decodeFromWorker(r.buf); err != nil {
		return m, false, err
	}
	if pass, err = r.order(m); pass && m.Done != nil {
		// An answer to a call is bounded by the calls: a long session of short calls is no flood.
		r.frames.give(1)
		r.bytes.give(float64(len(r.buf) + headerSize))
	}
	return m, pass, err
}

func (r *reader) allowed(size int) bool {
	c := r.conn
	c.mu.Lock()
	c.counters.Frames++
	c.counters.Bytes += int64(size)
	c.mu.Unlock()
	now := time.Now()
	return r.frames.take(now, 1) && r.bytes.take(now, float64(size))
}

// order checks a frame against what was said before.
func (r *reader) order(m FromWorker) (pass bool, err error) {
	c := r.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case m.Fatal != nil:
		return true, nil
	case m.Hello != nil:
		if r.greeted {
			return false, broken("a second hello", nil)
		}
		r.greeted = true
		return true, nil
	case !r.greeted:
		return false, broken("no hello before another frame", nil)
	case m.Done != nil:
		if !c.calls[m.Done.Seq] {
			return false, broken("a done that answers no call under way", nil)
		}
		delete(c.calls, m.Done.Seq)
		return true, nil
	}
	if !c.calls[m.Progress.Seq] || !r.progress.take(time.Now(), 1) {
		c.counters.Dropped++
		return false, nil
	}
	return true, nil
}

// bucket is a token bucket: up to burst at once, refilled at rate a second.
type bucket struct {
	tokens, burst, rate float64
	last                time.Time
}

func newBucket(burst, rate float64) *bucket {
	return &bucket{tokens: burst, burst: burst, rate: rate, last: time.Now()}
}

func (b *bucket) take(now time.Time, n float64) bool {
	b.tokens = min(b.burst, b.tokens+now.Sub(b.last).Seconds()*b.rate)
	b.last = now
	if b.tokens < n {
		return false
	}
	b.tokens -= n
	return true
}

func (b *bucket) give(n float64) { b.tokens = min(b.burst, b.tokens+n) }
