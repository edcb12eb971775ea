package mcp

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"rea/orchestrator/run"
)

// progressInterval is the least time between two intermediate notifications of one call.
const progressInterval = 100 * time.Millisecond

// reporter turns observations of one call into notifications: counted, at most one in an interval with the latest
// winning, a first one and a last one always. Its own goroutine sends, so that a client that does not read cannot hold
// up the run. A nil reporter, of a call without a token, reports nothing.
type reporter struct {
	send    func(number int, text string)
	stopped chan struct{}

	mu     sync.Mutex
	latest string
	fresh  chan struct{} // has one element when latest was not sent yet
	stop   chan struct{}
	number int // only the goroutine, and finish after it
}

// newReporter starts a reporter and sends the first notification.
func newReporter(send func(number int, text string)) *reporter {
	r := &reporter{send: send, stopped: make(chan struct{}), fresh: make(chan struct{}, 1), stop: make(chan struct{})}
	go r.run()
	return r
}

func (r *reporter) run() {
	defer close(r.stopped)
	r.emit("start: accepted")
	pause := time.NewTimer(progressInterval)
	defer pause.Stop()
	for {
		select {
		case <-r.stop:
			return
		case <-pause.C:
		}
		select {
		case <-r.stop:
			return
		case <-r.fresh:
			r.mu.Lock()
			text := r.latest
			r.mu.Unlock()
			r.emit(text)
			pause.Reset(progressInterval)
		}
	}
}

func (r *reporter) emit(text string) {
	r.number++
	r.send(r.number, text)
}

// observe takes an observation. It does not block.
func (r *reporter) observe(p run.Progress) {
	if r == nil {
		return
	}
	r.mu.Lock()
	r.latest = describe(p)
	r.mu.Unlock()
	select {
	case r.fresh <- struct{}{}:
	default: // one that was not sent yet is overtaken
	}
}

// finish stops the reporter and sends the last notification.
func (r *reporter) finish(text string) {
	if r == nil {
		return
	}
	close(r.stop)
	<-r.stopped
	r.emit(text)
}

// describe says in our own words what was observed. The observation's text stays out: it is text of the target, and a
// notification carries no marker that would say so.
func describe(p run.Progress) string {
	var facts []string
	switch {
	case p.Position > 0:
		facts = append(facts, fmt.Sprintf("place %d in the queue", p.Position))
	case p.Phase == "queued":
		facts = append(facts, "waiting for room on this host")
	}
	if p.Entries > 0 {
		facts = append(facts, fmt.Sprintf("%d entries", p.Entries))
	}
	if p.Bytes > 0 {
		facts = append(facts, fmt.Sprintf("%d bytes", p.Bytes))
	}
	if len(facts) == 0 {
		facts = append(facts, "under way")
	}
	return p.Phase + ": " + strings.Join(facts, ", ")
}
