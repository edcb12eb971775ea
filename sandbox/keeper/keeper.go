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
	"io"

	"rea/sandbox/journal"
)

// Options says how a keeper is started.
type Options struct {
	Args []string // arguments of its hidden mode, which calls Main, without the program's name
	Env  []string // its whole environment; nil is an empty one
	Exe  string   // program, "" is this one
}

// Keeper is a running keeper.
type Keeper struct{}

// Start starts a keeper for this process. It returns when the program runs; from then on the end of this process is
// noticed, even if the keeper has not come to Main yet.
func Start(ctx context.Context, o Options) (*Keeper, error) { return nil, errors.ErrUnsupported }

// Close lets the keeper end and waits for it. Call it after the journal is closed: what is still live is killed.
func (k *Keeper) Close(ctx context.Context) error { return errors.ErrUnsupported }

// Job is what the hidden mode does.
type Job struct {
	State, Owner string    // whose journal
	Leash        io.Reader // read until its end: standard input
	// Rest ends what has no control group of ours, by its journalled name; nil when there is no engine to ask. It
	// gets the live entries of the runs that have no journalled group.
	Rest func(ctx context.Context, entries []journal.Entry) error
}

// Main is the hidden mode: it waits for the end of the leash, kills, and returns.
func Main(ctx context.Context, j Job) error { return errors.ErrUnsupported }
