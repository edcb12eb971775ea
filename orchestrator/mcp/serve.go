package mcp

import (
	"context"
	"io"
	"log/slog"
	"time"

	"rea/evidence/fault"
	"rea/orchestrator/catalog"
	"rea/orchestrator/session"
)

// Times of the end of a connection. They are the contract's: a process ends within 5 s of the end of its input when
// nothing of ours runs, within 10 s when a container does.
const (
	// answerGrace is how long requests that were read before the input ended may take to be answered.
	answerGrace = 4 * time.Second
	// stopGrace is how long a cancelled call may take to end, its container's teardown included.
	stopGrace = 5 * time.Second
	// closeGrace is how long the session may take to let go of its records after its calls have ended.
	closeGrace = 500 * time.Millisecond
)

// Options configure a server. Session and Catalog are required; the session is closed by Serve.
type Options struct {
	Name, Version string // serverInfo
	Session       *session.Session
	Catalog       *catalog.Catalog
	// ReceiveBuffer is the client's receive buffer in bytes; below budget.DefaultReceiveBuffer that is meant.
	ReceiveBuffer int64
	Log           *slog.Logger // for diagnostics, never the output; nil for none
}

// Serve answers one client until its input ends, its output breaks or ctx ends, and then closes the session.
//
// When the input ends, requests that were read get a grace to be answered; when ctx ends (a signal) or the output
// breaks, running calls are cancelled at once, with the cause. Serve returns within the times of the contract even if
// something of a call hangs. It returns nil after the end of the input and ctx's cause after a signal. The goroutine
// that reads in ends when in does; where in is standard input that may be only with the process.
func Serve(ctx context.Context, o Options, in io.Reader, out io.Writer) error {
	s := newServer(o, in, out)
	// The library must not see ctx: it would drop answers that are still to be written.
	connection, err := s.library().Connect(context.WithoutCancel(ctx), s.conn, nil)
	if err != nil {
		return fault.From(err)
	}
	s.stop(s.wait(ctx))
	ended := within(stopGrace, s.conn.whenIdle())
	_ = s.conn.Close()
	if ended {
		_ = connection.Wait() // nothing is running: it returns when the library has seen the end
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeGrace)
	defer cancel()
	err = o.Session.Close(closing)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case !ended:
		return fault.New(fault.CleanupIncomplete, "A call did not end in time after it was cancelled.", "Run rea sandbox sweep to remove what it may have left.")
	}
	return err
}

// wait blocks until running calls are to be cancelled, or none is left after the end of the input. It returns what
// they are told.
func (s *server) wait(ctx context.Context) error {
	const ending, broken = "The server was told to end.", "The client's end of the output is gone."
	select {
	case <-ctx.Done():
		return stopped(ending)
	case <-s.conn.broken:
		return stopped(broken)
	case <-s.conn.ended:
	}
	grace := time.NewTimer(answerGrace)
	defer grace.Stop()
	select {
	case <-ctx.Done():
		return stopped(ending)
	case <-s.conn.broken:
		return stopped(broken)
	case <-grace.C:
	case <-s.conn.whenIdle():
	}
	return stopped("The input ended before the call did.")
}

func stopped(message string) error {
	return fault.New(fault.Cancelled, message, "Repeat the call on a new connection if the result is still wanted.")
}

// within reports whether done was closed in time.
func within(limit time.Duration, done <-chan struct{}) bool {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
		return false
	}
}
