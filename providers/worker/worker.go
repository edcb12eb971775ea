// Package worker is the frame of the program that is PID 1 in every container: it takes the control channel, closes
// itself in, proves the evidence volume, runs one handler for each call and seals what the handler leaves.
//
// It is the leash: when its channel ends it exits at once, and the kernel ends every process of the run with it. What
// it tells the core is a claim, checked there. Package worker must not interpret a target; handlers do, and what a
// handler finds goes to the evidence volume, never to the channel. It must not be imported by the core.
package worker

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"rea/providers/wire"
)

// Paths inside a container, the same as package sandbox gives to every driver (a test compares them): the worker does
// not link what makes containers.
const (
	targetPath   = "/target"
	evidencePath = "/evidence"
	scratchPath  = "/tmp"
)

// Exit codes of the process.
const (
	exitReleased = 0 // the core has all it wanted, or closed the channel between calls
	exitCut      = 1 // the channel ended, or broke, during a call
	exitRefused  = 2 // the process did not find what it needs to start, or could not seal an answer
)

// Handler does one operation: it reads c.Params and the target and writes its result through c. It returns when ctx
// ends, as soon as it can. A *fault.Error tells the core why the operation failed; another error becomes
// execution_failure, its text going to standard error only. What the handler closed before an error is kept as partial.
//
// A handler that starts goroutines waits for them and does not let them panic: a panic outside the handler's own
// goroutine ends the container.
type Handler func(ctx context.Context, c *Call) error

// Providers maps a provider's worker name to its handlers, by operation.
type Providers map[string]map[string]Handler

// Options configure a worker. The zero value is right for a container.
type Options struct {
	Version  string   // build version, for the hello
	Readable []string // directories that handlers and their children read and execute from, besides the target

	// Directories other than those of a container, for tests; "" is the container's own.
	Target, Evidence, Scratch string
}

// settings are what the command line of the worker can say. It has no configuration and reads no environment.
type settings struct {
	channel  string
	memory   int64
	once     bool
	unpinned bool
}

func parse(args []string) (settings, error) {
	var s settings
	f := flag.NewFlagSet("rea-worker", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&s.channel, "channel", "", "fd3 (a unix socket) or stdio")
	f.Int64Var(&s.memory, "memory", 0, "bytes of memory that the program may use, 0 for no limit of its own")
	f.BoolVar(&s.once, "once", false, "end when the first call is released")
	f.BoolVar(&s.unpinned, "allow-not-pid1", false, "run outside a container, for tests")
	if err := f.Parse(args); err != nil {
		return s, err
	}
	if f.NArg() > 0 {
		return s, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	return s, nil
}

// Main is a whole worker: it serves until the core lets go and returns the exit code. Arguments are
// --channel=fd3|stdio, --memory=BYTES, --once and, for tests, --allow-not-pid1.
func Main(args []string, o Options, p Providers) int {
	w, err := Start(args, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "rea-worker:", err)
		return exitRefused
	}
	return w.Serve(p)
}

// Process is a worker that has said hello.
type Process struct {
	conn     *wire.Worker
	settings settings
	options  Options
	nonce    string
	turn     chan struct{} // held by the call that runs: one at a time
}

// Start takes the channel, closes the process in, and says hello. Where it fails after it has the channel, the core is
// told why. It changes the process for good and is called once.
func Start(args []string, o Options) (*Process, error) {
	s, err := parse(args)
	if err != nil {
		return nil, err
	}
	conn, err := takeChannel(s.channel)
	if err != nil {
		return nil, err
	}
	o.Target, o.Evidence, o.Scratch = or(o.Target, targetPath), or(o.Evidence, evidencePath), or(o.Scratch, scratchPath)
	w := &Process{conn: conn, settings: s, options: o, turn: make(chan struct{}, 1)}
	if err := w.begin(); err != nil {
		w.fatal(err)
		return nil, err
	}
	return w, nil
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// collectAt lets the heap grow to five times what lives before it is collected: a run is short, and the memory limit
// bounds what that costs.
const collectAt = 400

func (w *Process) begin() error {
	if w.settings.memory > 0 {
		// An eighth is left for what the Go runtime does not count: stacks of the kernel, page tables, the program's
		// own pages.
		debug.SetMemoryLimit(w.settings.memory - w.settings.memory/8)
		debug.SetGCPercent(collectAt)
	}
	if err := pin(w.settings.unpinned); err != nil {
		return err
	}
	hello, err := w.greet()
	if err != nil {
		return err
	}
	hello.Landlock = confine(w.options)
	w.nonce = hello.Nonce
	return w.conn.Send(wire.FromWorker{Hello: hello})
}

// Channel is the control channel, for a worker that must misbehave in a test.
func (w *Process) Channel() *wire.Worker { return w.conn }

// fatal tells the core why the worker ends. The core may be gone; the exit code then says the same.
func (w *Process) fatal(err error) {
	reason := wire.Truncate(err.Error(), wire.MaxReason)
	if w.conn.Send(wire.FromWorker{Fatal: &wire.Fatal{Reason: reason}}) != nil {
		fmt.Fprintln(os.Stderr, "rea-worker:", reason)
	}
}
