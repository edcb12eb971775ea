package report

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Printable returns s with everything escaped that a terminal could obey or that could pretend to be another line:
// control characters (C0, DEL, C1), line and paragraph separators, bidirectional overrides and other characters
// without a shape of their own, and bytes that are not UTF-8. Escapes are those of Go's quoted strings. The result is
// one line; what is exact is the JSON form.
func Printable(s string) string {
	if clean(s) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case strconv.IsPrint(r):
			b.WriteString(s[:n])
		default:
			quoted := strconv.QuoteRune(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		s = s[n:]
	}
	return b.String()
}

// clean reports whether s is printable as it stands, which nearly every string is.
func clean(s string) bool {
	for i, r := range s {
		if r == utf8.RuneError {
			if _, n := utf8.DecodeRuneInString(s[i:]); n == 1 {
				return false
			}
		}
		if !strconv.IsPrint(r) {
			return false
		}
	}
	return true
}

// Style says how text looks. The zero value is plain.
type Style struct {
	Color bool // ANSI colours; for terminals
}

// Colours of ECMA-48 "select graphic rendition".
const (
	bold   = "1"
	red    = "31"
	green  = "32"
	yellow = "33"
	cyan   = "36"
)

func (s Style) paint(code, text string) string {
	if !s.Color {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// Bold marks text as a heading.
func (s Style) Bold(text string) string { return s.paint(bold, text) }

// Good marks text as good news.
func (s Style) Good(text string) string { return s.paint(green, text) }

// Warn marks text that deserves a look.
func (s Style) Warn(text string) string { return s.paint(yellow, text) }

// Bad marks text as bad news.
func (s Style) Bad(text string) string { return s.paint(red, text) }

// Size gives a number of bytes for people; a negative one is unknown.
func Size(n int64) string {
	switch {
	case n < 0:
		return "size unknown"
	case n < 1024:
		return strconv.FormatInt(n, 10) + " B"
	}
	value, unit := float64(n), ""
	for _, unit = range []string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"} {
		if value /= 1024; value < 1023.95 {
			break
		}
	}
	return strconv.FormatFloat(value, 'f', 1, 64) + " " + unit
}

// Count gives a number for people, with separators.
func Count(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// plural is a count with its noun.
func plural(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if strings.HasSuffix(noun, "y") {
		return Count(n) + " " + strings.TrimSuffix(noun, "y") + "ies"
	}
	return Count(n) + " " + noun + "s"
}

// page writes lines until one fails, so that a report need not look at every write.
type page struct {
	w     io.Writer
	style Style
	err   error
}

func (p *page) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}

// more says how much a bounded list leaves out.
func (p *page) more(left int64) {
	if left > 0 {
		p.line("  … and %s more (see --format json)", Count(left))
	}
}

// shownNotes bounds the notes of a report: they repeat in their kind.
const shownNotes = 20

// notes lists texts under a heading, bounded.
func (p *page) notes(heading string, texts []string) {
	if len(texts) == 0 {
		return
	}
	p.line("")
	p.line("%s", p.style.Bold(heading))
	for _, t := range texts[:min(len(texts), shownNotes)] {
		p.line("  - %s", Printable(t))
	}
	p.more(int64(len(texts) - shownNotes))
}
