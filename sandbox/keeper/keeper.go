// Package keeper is the second leash of every run: one small process per core that outlives it and ends its runs.
//
// It is the same program in a hidden mode, in a session of its own, and waits for the end of a pipe whose only write
// end the core holds. When the core is gone, however it went, the pipe ends, and the keeper kills the control groups
// that the core's journal names. It needs no cooperation from inside a container. It removes nothing: that is the
// sweep's, under the owner's lock, which the keeper never takes. Package keeper must not know an engine.
package keeper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"rea/evidence/fault"
	"rea/sandbox"
	"rea/sandbox/cgroup"
	"rea/sandbox/journal"
)

// Options says how a keeper is started.
type Options struct {
	Args []string // arguments of its hidden mode, which calls Main, without the program's name
	Env  []string // its whole environment; nil is an empty one
	Exe  string   // program, "" is this one
}

// Keeper is a running keeper.
type Keeper struct {
	leash   *os.File // the pipe's only write end
	process *os.Process
	done    chan struct{} // closed when the process has ended
	ended   error         // how; read after done
}

// Start starts a keeper for this process. It returns when the program has been executed; from then on the end of this
// process is noticed, even if the keeper has not come to Main yet. Whatever file descriptors this process inherited
// are closed to its later children, so that neither the keeper nor a runtime can hold them.
func Start(ctx context.Context, o Options) (*Keeper, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	const firstBeyondStdio = 3
	// Before Linux 5.11 there is no such call; a stray descriptor then only lives as long as the keeper.
	if err := unix.CloseRange(firstBeyondStdio, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil && !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EINVAL) {
		return nil, unstarted(err)
	}
	end, leash, err := os.Pipe()
	if err != nil {
		return nil, unstarted(err)
	}
	defer end.Close()
	exe := o.Exe
	if exe == "" {
		exe = "/proc/self/exe"
	}
	cmd := &exec.Cmd{
		Path:        exe,
		Args:        append([]string{"rea"}, o.Args...),
		Env:         append([]string{}, o.Env...),
		Dir:         "/",
		Stdin:       end,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if err := cmd.Start(); err != nil {
		leash.Close()
		return nil, unstarted(err)
	}
	k := &Keeper{leash: leash, process: cmd.Process, done: make(chan struct{})}
	go func() {
		defer close(k.done)
		k.ended = cmd.Wait()
	}()
	return k, nil
}

func unstarted(err error) *fault.Error {
	return fault.New(fault.ExecutionFailure, "The keeper, which ends runs should rea die, could not be started.",
		"Check this host's process limit and that the program file of rea is still there.").Because(err)
}

// Done is closed when the keeper's process has ended. Before Close that means that the second leash is gone.
func (k *Keeper) Done() <-chan struct{} { return k.done }

// PID is the keeper's process, to explain what runs on this host.
func (k *Keeper) PID() int { return k.process.Pid }

// Close lets the keeper end and waits for it. Call it after the journal is closed: what is still live there is
// killed. When ctx ends first the keeper itself is killed.
func (k *Keeper) Close(ctx context.Context) error {
	k.leash.Close()
	select {
	case <-k.done:
	case <-ctx.Done():
		_ = k.process.Kill() // it has ended by itself where that fails
		<-k.done
	}
	if k.ended == nil {
		return nil
	}
	return fault.New(fault.CleanupIncomplete, "The keeper could not end all runs.", "Run rea sandbox sweep.").
		With("resources", []string{"process keeper"}).Because(errors.Join(k.ended, context.Cause(ctx)))
}

// Job is what the hidden mode does.
type Job struct {
	State, Owner string    // whose journal
	Leash        io.Reader // read until its end: standard input
	// Rest ends what has no control group of ours, by its journalled name; nil when there is no engine to ask. It
	// gets the live entries of the runs that have no journalled group.
	Rest func(ctx context.Context, entries []journal.Entry) error
}

// Main is the hidden mode: it waits for the end of the leash, kills every journalled group at once, then has the rest
// ended, and returns. A signal does not end it: a service manager that stops the core and its children together must
// not stop the keeper first.
func Main(ctx context.Context, j Job) error {
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGPIPE, syscall.SIGUSR1, syscall.SIGUSR2)
	// The core never writes; whatever does come is not looked at. A read error is an end as well.
	_, _ = io.Copy(io.Discard, j.Leash)
	entries, err := journal.Read(j.State, j.Owner)
	if err != nil {
		return err
	}
	grouped, rest := split(entries)
	err = killAll(ctx, grouped)
	if j.Rest != nil && len(rest) > 0 {
		err = errors.Join(err, j.Rest(ctx, rest))
	}
	return err
}

// split separates the journalled groups from the entries of runs without one.
func split(entries []journal.Entry) (groups []string, rest []journal.Entry) {
	runs := map[string]bool{}
	for _, e := range entries {
		if e.Kind == sandbox.KindCgroup {
			runs[e.Run] = true
			groups = append(groups, e.Name)
		}
	}
	for _, e := range entries {
		if !runs[e.Run] {
			rest = append(rest, e)
		}
	}
	return groups, rest
}

// killAll kills all groups side by side: a run that does not end must not keep another one alive.
func killAll(ctx context.Context, groups []string) error {
	errs := make([]error, len(groups))
	var all sync.WaitGroup
	for i, name := range groups {
		all.Go(func() {
			g, err := cgroup.Open(name)
			switch {
			case errors.Is(err, fs.ErrNotExist):
			case err != nil:
				errs[i] = fmt.Errorf("group %q: %w", name, err)
			default:
				errs[i] = g.Kill(ctx)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}
