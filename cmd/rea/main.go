// Command rea takes applications apart and compares versions: a command line, and an MCP server over the same tools.
//
// The command line decodes flags, environment and configuration file into options, makes one call into the
// orchestrator, and prints what came back. It must not parse a target, decide about Evidence, or start a container.
package main

import (
	"context"
	"math"
	"os"
	"runtime/debug"
	"time"

	"rea/sandbox/docker"
	"rea/sandbox/journal"
	"rea/sandbox/keeper"
)

// version is the build's, set by the linker.
var version = "development"

func main() {
	started := time.Now()
	if engine, state, owner, ok := keeperMode(os.Args); ok {
		os.Exit(keep(engine, state, owner))
	}
	limitMemory()
	os.Exit(execute(started, os.Args[1:], streams{os.Stdin, os.Stdout, os.Stderr}))
}

// memoryGoal is what the collector keeps the heap below where it can: with the program's own pages the core then stays
// below 128 MiB while it checks and compares inventories of a million entries. It is a goal, not a limit.
const memoryGoal = 96 << 20

// collectAt lets the heap grow to five times what lives before it is collected, while it is below the goal.
const collectAt = 400

// limitMemory sets both, unless GOMEMLIMIT has set a goal of its user's.
func limitMemory() {
	if debug.SetMemoryLimit(-1) == math.MaxInt64 {
		debug.SetMemoryLimit(memoryGoal)
		debug.SetGCPercent(collectAt)
	}
}

// keeperCommand is the hidden mode in which the program outlives its starter and ends what that one leaves running.
const keeperCommand = "keeper"

// keeperArgs are the arguments of the hidden mode; the orchestrator appends the state directory and the owner's id.
func keeperArgs(engineHost string) []string { return []string{keeperCommand, engineHost} }

// keeperMode recognises the hidden mode before anything else is looked at: a keeper must be there quickly.
func keeperMode(args []string) (engine, state, owner string, ok bool) {
	if len(args) != 5 || args[1] != keeperCommand {
		return "", "", "", false
	}
	return args[2], args[3], args[4], true
}

// keep is the hidden mode. Runs whose control group is the engine's own are ended through the engine.
func keep(engineHost, state, owner string) int {
	job := keeper.Job{State: state, Owner: owner, Leash: os.Stdin, Rest: func(ctx context.Context, entries []journal.Entry) error {
		d, err := docker.New(docker.Options{Host: engineHost})
		if err != nil {
			return err
		}
		defer d.Close()
		return d.End(ctx, owner, entries)
	}}
	if keeper.Main(context.Background(), job) != nil {
		return 1
	}
	return 0
}
