package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"rea/orchestrator/run"
)

// What the escaper writes means the same as what it got, in whatever pieces, and holds nothing that a terminal obeys.
func TestEscaper(t *testing.T) {
	for _, want := range append(terminalNames, "Grüße 日本語", "a\U000e0041b", "plain") {
		in, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		for size := 1; size <= 4; size++ {
			var out bytes.Buffer
			e := &escaper{w: &out}
			for rest := in; len(rest) > 0; rest = rest[min(size, len(rest)):] {
				if _, err := e.Write(rest[:min(size, len(rest))]); err != nil {
					t.Fatal(err)
				}
			}
			var got string
			if err := json.Unmarshal(out.Bytes(), &got); err != nil || got != want {
				t.Errorf("%q in pieces of %d became %q: %v", want, size, got, err)
			}
			if strings.ContainsFunc(out.String(), func(r rune) bool { return r < 0x20 || r >= 0x7f && r < 0xa0 || r == '\u202e' }) {
				t.Errorf("%q is written as %q", want, out.String())
			}
		}
	}
}

func TestProgressLine(t *testing.T) {
	for _, c := range []struct {
		progress run.Progress
		width    int
		want     string
	}{
		{run.Progress{Phase: "analyze", Entries: 1234, Bytes: 2048, Text: "a\x1b[2Jb"}, 80, `old  analyze  1,234 entries  2.0 KiB  a\x1b[2Jb`},
		{run.Progress{Phase: "queued", Position: 3}, 80, "old  queued  place 3 in the queue"},
		{run.Progress{Phase: "analyze", Text: strings.Repeat("ü", 100)}, 20, "old  analyze  üüüü…"},
		{run.Progress{}, 80, "old  "},
	} {
		got := progressLine("old", c.progress, c.width)
		if got != c.want || utf8.RuneCountInString(got) >= c.width {
			t.Errorf("%+v: %q, want %q", c.progress, got, c.want)
		}
	}
}

// A display without a terminal shows nothing, and one with it takes itself away.
func TestDisplay(t *testing.T) {
	var out bytes.Buffer
	d := &display{names: []string{"old", "new"}, state: make([]run.Progress, 2)}
	d.only(run.Progress{Phase: "analyze"})
	d.clear()
	d.w, d.width = &out, 80
	d.side(0, run.Progress{Phase: "analyze"})
	d.side(1, run.Progress{Phase: "start"})
	d.clear()
	want := "\r\x1b[Kold  analyze\n\r\x1b[Knew  \n" + // drawn
		"\x1b[2A\r\x1b[Kold  analyze\n\r\x1b[Knew  start\n" + // redrawn in place
		"\x1b[2A\r\x1b[K\n\r\x1b[K\n\x1b[2A" // taken away
	if out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}
