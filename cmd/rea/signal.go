package main

import (
	"context"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"

	"rea/evidence/fault"
)

// interrupt is the watch over signals that end the work.
type interrupt struct {
	first  atomic.Int32 // number of the first signal, 0 before one
	ended  chan struct{}
	cancel context.CancelCauseFunc
	told   chan os.Signal
	pipe   chan os.Signal
}

// watchSignals returns a context that the first of SIGINT, SIGTERM and SIGHUP cancels, with the cause. Later ones change nothing:
// what was begun is still cleaned up. A broken pipe is not a signal any more but an error of the write.
func watchSignals(parent context.Context) (*interrupt, context.Context) {
	ctx, cancel := context.WithCancelCause(parent)
	i := &interrupt{ended: make(chan struct{}), cancel: cancel, told: make(chan os.Signal, 1), pipe: make(chan os.Signal, 1)}
	signal.Notify(i.told, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	signal.Notify(i.pipe, syscall.SIGPIPE) // not ignored: what is ignored here would be ignored by every child
	go i.watch()
	return i, ctx
}

func (i *interrupt) watch() {
	defer close(i.ended)
	for s := range i.told {
		number, ok := s.(syscall.Signal)
		if !ok || !i.first.CompareAndSwap(0, int32(number)) {
			continue
		}
		i.cancel(fault.New(fault.Cancelled, "The work was ended by a signal ("+number.String()+").", "Repeat the command if the result is still wanted."))
	}
}

// stop ends the watch.
func (i *interrupt) stop() {
	signal.Stop(i.told)
	signal.Stop(i.pipe)
	close(i.told)
	<-i.ended
	i.cancel(nil)
}

// exitCode is 128 and the number of the signal that came first; false where none came.
func (i *interrupt) exitCode() (int, bool) {
	n := i.first.Load()
	return 128 + int(n), n != 0
}
