package run

import (
	"context"
	"sync"
)

// gate lets a fixed number of runs through at once, first come, first served, and tells those who wait their place.
type gate struct {
	mu      sync.Mutex
	free    int
	waiting []*ticket
}

type ticket struct {
	ready    chan struct{}
	position func(int) // called under the gate's lock; must not block
}

func newGate(places int) *gate { return &gate{free: places} }

// enter waits for a place. position hears 1, 2, … while the caller waits, 1 being next; it may be nil. The returned
// function gives the place back and must be called once.
func (g *gate) enter(ctx context.Context, position func(int)) (leave func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	if position == nil {
		position = func(int) {}
	}
	g.mu.Lock()
	if g.free > 0 {
		g.free--
		g.mu.Unlock()
		return g.leave, nil
	}
	t := &ticket{ready: make(chan struct{}), position: position}
	g.waiting = append(g.waiting, t)
	t.position(len(g.waiting))
	g.mu.Unlock()

	select {
	case <-t.ready:
		return g.leave, nil
	case <-ctx.Done():
	}
	if g.withdraw(t) {
		return nil, context.Cause(ctx)
	}
	g.leave() // the place came with the cancellation: pass it on
	return nil, context.Cause(ctx)
}

// withdraw takes t out of the queue; false says that it had its place already.
func (g *gate) withdraw(t *ticket) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, w := range g.waiting {
		if w == t {
			g.waiting = append(g.waiting[:i:i], g.waiting[i+1:]...)
			g.announce()
			return true
		}
	}
	return false
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waiting) == 0 {
		g.free++
		return
	}
	next := g.waiting[0]
	g.waiting = g.waiting[1:]
	close(next.ready)
	g.announce()
}

// announce tells everyone who waits their place. Called under the lock.
func (g *gate) announce() {
	for i, w := range g.waiting {
		w.position(i + 1)
	}
}
