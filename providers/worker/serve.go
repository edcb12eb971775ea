package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"rea/evidence/fault"
	"rea/evidence/volume"
	"rea/providers/wire"
)

// Causes of a call's cancellation.
var (
	errCancelled = errors.New("the core cancelled the call")
	errCut       = errors.New("the core is gone")
)

// Serve answers calls until the core lets go and returns the exit code. It returns at once when the channel ends,
// whatever a handler is doing: the caller must then exit, which ends every process of the container.
func (w *Process) Serve(p Providers) int {
	s := server{
		process: w, providers: p, running: map[uint64]underway{},
		frames: make(chan wire.FromCore), ended: make(chan ending), stopped: make(chan struct{}),
	}
	defer close(s.stopped)
	go s.receive()
	for {
		select {
		case m, open := <-s.frames:
			if !open {
				return s.cut()
			}
			if code, exit := s.handle(m); exit {
				return code
			}
		case e := <-s.ended:
			delete(s.running, e.seq)
			if e.err != nil {
				w.fatal(e.err)
				return exitRefused
			}
		}
	}
}

// receive passes frames on and closes the channel when the core is gone. It ends with the control channel.
func (s *server) receive() {
	defer close(s.frames)
	for {
		m, err := s.process.conn.Next()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				fmt.Fprintln(os.Stderr, "rea-worker:", err)
			}
			return
		}
		select {
		case s.frames <- m:
		case <-s.stopped:
			return
		}
	}
}

// server is the state of the serving loop.
type server struct {
	process   *Process
	providers Providers
	frames    chan wire.FromCore  // closed when the core is gone
	ended     chan ending         // one for each call
	stopped   chan struct{}       // closed when the loop has ended
	running   map[uint64]underway // touched by the loop only
}

// underway is what the loop may tell a call that was not answered yet.
type underway struct {
	cancel context.CancelCauseFunc
	digest chan string // takes one
}

// ending is a call that was answered, or with err could not be.
type ending struct {
	seq uint64
	err error
}

func (s *server) handle(m wire.FromCore) (code int, exit bool) {
	switch {
	case m.Call != nil:
		s.start(m.Call)
	case m.Cancel != nil:
		if u, ok := s.running[m.Cancel.Seq]; ok {
			u.cancel(errCancelled)
		}
	case m.Digest != nil:
		if u, ok := s.running[m.Digest.Seq]; ok {
			select {
			case u.digest <- m.Digest.SHA256:
			default: // a second one says nothing
			}
		}
	case m.Release != nil:
		if s.process.settings.once {
			return exitReleased, true
		}
		// Best effort: what cannot be freed counts against the volume's quota, and nothing else.
		os.RemoveAll(filepath.Join(s.process.options.Evidence, volume.Folder(m.Release.Seq)))
	}
	return 0, false
}

func (s *server) start(req *wire.Call) {
	ctx, cancel := context.WithCancelCause(context.Background())
	u := underway{cancel: cancel, digest: make(chan string, 1)}
	s.running[req.Seq] = u
	go func() {
		defer cancel(nil)
		err := s.process.answer(ctx, req, u.digest, s.providers[req.Provider][req.Operation])
		select {
		case s.ended <- ending{req.Seq, err}:
		case <-s.stopped:
		}
	}()
}

// cut ends what runs; the process is about to exit.
func (s *server) cut() int {
	if len(s.running) == 0 {
		return exitReleased
	}
	for _, u := range s.running {
		u.cancel(errCut)
	}
	return exitCut
}

// answer runs one call, after those before it, and commits to what it left. An error means that nothing could be
// committed to.
func (w *Process) answer(ctx context.Context, req *wire.Call, digest <-chan string, h Handler) error {
	if req.DeadlineMS > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, time.Duration(req.DeadlineMS)*time.Millisecond)
		defer stop()
	}
	select {
	case w.turn <- struct{}{}:
		defer func() { <-w.turn }()
	case <-ctx.Done(): // the handler will not run
	}
	c, err := w.newCall(req)
	if err != nil {
		return err
	}
	c.digest = digest
	done, err := c.seal(ctx, c.run(ctx, h))
	if err != nil {
		return err
	}
	return w.conn.Send(wire.FromWorker{Done: done})
}

// run calls the handler and survives its panic.
func (c *Call) run(ctx context.Context, h Handler) (err error) {
	defer c.dropScratch()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if h == nil {
		return fault.New(fault.CapabilityUnavailable,
			fmt.Sprintf("This worker has no operation %s of provider %s.", volume.Escape(c.Operation), volume.Escape(c.Provider)),
			"Use a core and a worker of the same build.").
			WithAll(fault.Details{"provider_id": volume.Escape(c.Provider), "operation": volume.Escape(c.Operation), "reason": "unknown operation"})
	}
	defer func() {
		if r := recover(); r != nil {
			fmt.Fprintf(os.Stderr, "rea-worker: panic in %s: %v\n%s", c.Operation, r, debug.Stack())
			err = fault.New(fault.ExecutionFailure, "The analysis met an internal error in its container.",
				"Report it with the target, if it may be shared, and the output of rea doctor.")
		}
	}()
	return h(ctx, c)
}
