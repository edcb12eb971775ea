package report

import (
	"strings"
	"testing"
)

// Expected values follow from the escapes of Go's specification, written by hand.
func TestPrintable(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"plain", "resources/app.asar", "resources/app.asar"},
		{"letters of all kinds", "Grüße/日本語/файл", "Grüße/日本語/файл"},
		{"title", "\x1b]0;owned\atitle.txt", `\x1b]0;owned\atitle.txt`},
		{"clear", "\x1b[2J\x1b[Hclean.txt", `\x1b[2J\x1b[Hclean.txt`},
		{"lines", "two\nlines\r\n.txt", `two\nlines\r\n.txt`},
		{"tab", "tab\there", `tab\there`},
		{"delete", "a\x7fb", `a\x7fb`},
		{"C1", "\u009b31mred", `\u009b31mred`},
		{"C1 as a bare byte", "\x9b31mred", `\x9b31mred`},
		{"direction", "doc\u202egnp.exe", `doc\u202egnp.exe`},
		{"isolates", "\u2066a\u2069", `\u2066a\u2069`},
		{"marks", "\u200ea\u200f\u061c", `\u200ea\u200f\u061c`},
		{"line separator", "a\u2028b\u2029", `a\u2028b\u2029`},
		{"zero width and byte order", "a\u200bb\ufeff", `a\u200bb\ufeff`},
		{"tag characters", "a\U000e0041", `a\U000e0041`},
		{"not UTF-8", "a\xff\xfeb", `a\xff\xfeb`},
		{"surrogate in three bytes", "a\xed\xa0\x80b", `a\xed\xa0\x80b`},
		{"replacement character", "a\ufffdb", "a\ufffdb"},
		{"NUL", "a\x00b", `a\x00b`},
		{"backslash stays", `a\b`, `a\b`},
		{"empty", "", ""},
	} {
		if got := Printable(c.in); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// FuzzPrintable holds what a terminal obeys against the result: none of it is there, and the result is stable.
func FuzzPrintable(f *testing.F) {
	f.Add("\x1b[2J\u202e\u009b\xff")
	f.Fuzz(func(t *testing.T, s string) {
		got := Printable(s)
		for _, r := range got {
			if r < 0x20 || r >= 0x7f && r < 0xa0 || r == '\u2028' || r == '\u2029' || r >= '\u202a' && r <= '\u202e' || r >= '\u2066' && r <= '\u2069' {
				t.Fatalf("%q became %q with %U", s, got, r)
			}
		}
		if again := Printable(got); again != got {
			t.Fatalf("%q became %q and then %q", s, got, again)
		}
	})
}

// Arithmetic by hand: 1 KiB is 1024 bytes.
func TestSize(t *testing.T) {
	for n, want := range map[int64]string{
		-1: "size unknown", 0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1536: "1.5 KiB", 1 << 20: "1.0 MiB", 1<<20 - 1: "1.0 MiB",
		5 << 30: "5.0 GiB", 1 << 40: "1.0 TiB", 1<<63 - 1: "8.0 EiB",
	} {
		if got := Size(n); got != want {
			t.Errorf("Size(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestCount(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 12345: "12,345", 1234567: "1,234,567", -1234: "-1,234", -123: "-123"} {
		if got := Count(n); got != want {
			t.Errorf("Count(%d) = %q, want %q", n, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0 entries", 1: "1 entry", 2: "2 entries"} {
		if got := plural(n, "entry"); got != want {
			t.Errorf("plural(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestNotesAreBoundedAndEscaped(t *testing.T) {
	var b strings.Builder
	p := &page{w: &b}
	notes := make([]string, 50)
	for i := range notes {
		notes[i] = "note\x1b[2J"
	}
	p.notes("Notes", notes)
	if got := b.String(); strings.Count(got, "  - note") != 20 || !strings.Contains(got, "… and 30 more") || strings.Contains(got, "\x1b") {
		t.Errorf("%q", got)
	}
}

func TestStyle(t *testing.T) {
	if got := (Style{}).Bad("x"); got != "x" {
		t.Errorf("plain text has colours: %q", got)
	}
	if got := (Style{Color: true}).Bad("x"); got != "\x1b[31mx\x1b[0m" {
		t.Errorf("red is %q", got)
	}
}
