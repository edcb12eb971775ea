package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"rea/orchestrator/report"
	"rea/orchestrator/run"
	"rea/orchestrator/session"
)

// redrawEvery bounds how often the display is redrawn: faster than that nobody reads.
const redrawEvery = 100 * time.Millisecond

// display shows how work goes on, a line for each thing that runs, redrawn in place. It is for terminals: where
// standard error is none, it shows nothing. It is safe for concurrent use.
type display struct {
	w     io.Writer // nil: shows nothing
	width int

	mu    sync.Mutex
	names []string
	state []run.Progress
	drawn bool
	last  time.Time
}

// display makes a display of these lines.
func (a *app) display(names ...string) *display {
	d := &display{names: names, state: make([]run.Progress, len(names))}
	if isTerminal(a.err) && os.Getenv("TERM") != "dumb" {
		d.w, d.width = a.err, 80
		if width, _, err := term.GetSize(int(a.err.Fd())); err == nil && width > 0 {
			d.width = width
		}
	}
	return d
}

// only takes the progress of the one thing that runs.
func (d *display) only(p run.Progress) { d.set(0, p) }

// side takes the progress of one side of a comparison.
func (d *display) side(side session.Side, p run.Progress) {
	if side == session.OldSide {
		d.set(0, p)
	} else {
		d.set(1, p)
	}
}

func (d *display) set(i int, p run.Progress) {
	if d.w == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	changed := d.state[i].Phase != p.Phase
	d.state[i] = p
	if now := time.Now(); changed || now.Sub(d.last) >= redrawEvery {
		d.last = now
		d.draw()
	}
}

func (d *display) draw() {
	var b strings.Builder
	if d.drawn {
		fmt.Fprintf(&b, "\x1b[%dA", len(d.names))
	}
	for i, p := range d.state {
		b.WriteString("\r\x1b[K" + progressLine(d.names[i], p, d.width) + "\n")
	}
	d.drawn = true
	_, _ = io.WriteString(d.w, b.String()) // a display that fails is not worth a failure
}

// clear takes the display away.
func (d *display) clear() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.drawn {
		return
	}
	d.drawn = false
	n := len(d.names)
	_, _ = io.WriteString(d.w, fmt.Sprintf("\x1b[%dA", n)+strings.Repeat("\r\x1b[K\n", n)+fmt.Sprintf("\x1b[%dA", n))
}

// progressLine is one line of the display, no wider than the terminal.
func progressLine(name string, p run.Progress, width int) string {
	parts := []string{fmt.Sprintf("%-4s %s", name, report.Printable(p.Phase))}
	if p.Position > 0 {
		parts = append(parts, fmt.Sprintf("place %d in the queue", p.Position))
	}
	if p.Entries > 0 {
		parts = append(parts, report.Count(p.Entries)+" entries")
	}
	if p.Bytes > 0 {
		parts = append(parts, report.Size(p.Bytes))
	}
	if p.Text != "" {
		parts = append(parts, report.Printable(p.Text))
	}
	line := []rune(strings.Join(parts, "  "))
	if len(line) >= width && width > 1 {
		line = append(line[:width-2], '…')
	}
	return string(line)
}
