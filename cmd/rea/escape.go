package main

import (
	"io"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// escaper writes JSON to a terminal: characters that a terminal could obey become JSON escapes, which mean the same.
// Outside strings JSON holds none of them.
type escaper struct {
	w    io.Writer
	rest []byte // the beginning of a character whose end is still to come
}

// Write implements io.Writer.
func (e *escaper) Write(p []byte) (int, error) {
	in := append(e.rest, p...)
	out := make([]byte, 0, len(in)+len(in)/8)
	for len(in) > 0 && utf8.FullRune(in) {
		r, n := utf8.DecodeRune(in)
		out = appendShown(out, in[:n], r)
		in = in[n:]
	}
	e.rest = append([]byte(nil), in...)
	if _, err := e.w.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

func appendShown(dst, raw []byte, r rune) []byte {
	if r == '\n' || strconv.IsPrint(r) {
		return append(dst, raw...)
	}
	for _, unit := range utf16.AppendRune(nil, r) {
		dst = append(dst, '\\', 'u')
		for shift := 12; shift >= 0; shift -= 4 {
			dst = append(dst, "0123456789abcdef"[unit>>shift&15])
		}
	}
	return dst
}
