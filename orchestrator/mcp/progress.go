package mcp

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"rea/orchestrator/run"
)

// progressInterval is the least time between two intermediate notifications of one call.
const progressInterval = 100 * time.Millisecond

// waitingInterval is how often a call that still waits, or whose container starts, is heard of when nothing new is
// observed. Clients take a call that they hear nothing of for dead.
const waitingInterval = 10 * time.Second

// waitingPhases are the phases before a run does its work.
var waitingPhases = []string{"queued", "prepare", "start"}

// reporter turns observations of one call into notifications: counted, at most one in an interval with the latest
// winning, a first one and a last one always, and a notice of how long the wait lasts. Its own goroutine sends, so that a client that does not read cannot hold
// up the run. A nil reporter, of a call without a token, reports nothing.
type reporter struct {
	send    func(number int, text string)
	began   time.Time
	stopped chan struct{}
	fresh   chan struct{} // has one element when latest was not sent yet
	stop    chan struct{}
	number  int // only the goroutine, and finish after it

	mu      sync.Mutex
	latest  string
	working bool // the run has come past the phases of waiting
}

// accepted is what is told first: nothing was observed yet.
const accepted = "start: accepted"

// newReporter starts a reporter and sends the first notification.
func newReporter(send func(number int, text string)) *reporter {
	r := &reporter{send: send, began: time.Now(), latest: accepted,
		stopped: make(chan struct{}), fresh: make(chan struct{}, 1), stop: make(chan struct{})}
	go r.run()
	return r
}

func (r *reporter) run() {
	defer close(r.stopped)
	notices := time.NewTicker(waitingInterval)
	defer notices.Stop()
	pause := time.NewTimer(progressInterval)
	defer pause.Stop()
	for text, ok := accepted, true; ok; text, ok = r.next(notices) {
		r.emit(text)
		pause.Reset(progressInterval)
		select {
		case <-r.stop:
			return
		case <-pause.C:
		}
	}
}

// next waits for something to tell. ok is false at the end.
func (r *reporter) next(notices *time.Ticker) (text string, ok bool) {
	for {
		select {
		case <-r.stop:
			return "", false
		case <-r.fresh:
			text, _ := r.told()
			return text, true
		case <-notices.C:
			text, working := r.told()
			if !working {
				return fmt.Sprintf("%s, %d s elapsed", text, int(time.Since(r.began).Seconds())), true
			}
			notices.Stop()
		}
	}
}

// told is the latest observation, and whether the wait is over.
func (r *reporter) told() (text string, working bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.latest, r.working
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
	r.working = r.working || !slices.Contains(waitingPhases, p.Phase)
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
