package docker

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/pkg/stdcopy"
)

// channel is the control channel over an attached container: writes go to its standard input, reads come from its
// standard output, and its standard error goes to a capture. Closing it closes standard input, which is the leash.
type channel struct {
	engine  types.HijackedResponse
	in      net.Conn // what Read reads
	pumped  chan struct{}
	closing sync.Once
	ending  sync.Once
}

// newChannel starts the goroutine that takes the engine's stream apart; end stops it and waits for it.
func newChannel(engine types.HijackedResponse, diagnostics io.Writer) *channel {
	in, out := net.Pipe()
	c := &channel{engine: engine, in: in, pumped: make(chan struct{})}
	go c.pump(out, diagnostics)
	return c
}

// pump runs until the container's streams end. What nobody reads any more is discarded, so that the container's
// diagnostics are still captured after Close.
func (c *channel) pump(out net.Conn, diagnostics io.Writer) {
	defer close(c.pumped)
	defer out.Close()
	// How a stream ends says nothing: that the container ended is known from the engine and from the cgroup.
	_, _ = stdcopy.StdCopy(lenient{out}, diagnostics, c.engine.Reader)
}

// lenient discards what its reader does not want any more.
type lenient struct{ net.Conn }

func (l lenient) Write(p []byte) (int, error) {
	n, err := l.Conn.Write(p)
	if errors.Is(err, io.ErrClosedPipe) {
		return len(p), nil
	}
	return n, err
}

// Read reads what the container writes to its standard output; io.EOF when it has ended.
func (c *channel) Read(p []byte) (int, error) { return c.in.Read(p) }

// Write writes to the container's standard input.
func (c *channel) Write(p []byte) (int, error) { return c.engine.Conn.Write(p) }

// SetReadDeadline bounds the reads to come.
func (c *channel) SetReadDeadline(t time.Time) error { return c.in.SetReadDeadline(t) }

// SetWriteDeadline bounds the writes to come.
func (c *channel) SetWriteDeadline(t time.Time) error { return c.engine.Conn.SetWriteDeadline(t) }

// Close closes the container's standard input and stops reading. A well-behaved first process ends at that.
func (c *channel) Close() error {
	var err error
	c.closing.Do(func() { err = errors.Join(c.engine.CloseWrite(), c.in.Close()) })
	return err
}

// end gives up the connection and waits for the pump.
func (c *channel) end() {
	c.ending.Do(func() {
		_ = c.Close() // the connection is closed next, whatever became of its half
		c.engine.Close()
		<-c.pumped
	})
}
