// Package budget decides whether an answer fits what a client receives, and writes the envelope of one that does.
//
// The size is counted while the document is streamed, so an answer that does not fit is refused before it exists as a
// whole. Package budget must not know what a document means, and never cuts one.
package budget

import (
	"bufio"
	"io"
)

// The pieces of a tools/call result around its document, in the order in which they are written. Everything that the
// budget adds up follows from them.
const (
	openText   = `{"content":[{"type":"text","text":"`
	closeText  = `"}]`
	structured = `,"structuredContent":`
	isError    = `,"isError":true`
	marker     = `,"_meta":{"provenance":{"untrusted_content":true,"source":"analysis_target"}}`
	closeAll   = `}`
)

// Sizes of the envelope in bytes.
const (
	successBytes = len(openText) + len(closeText) + len(structured) + len(closeAll)
	failureBytes = len(openText) + len(closeText) + len(closeAll)
	isErrorBytes = len(isError)
	markerBytes  = len(marker)
)

// Answer is what a tool call ended with: one JSON document, compact and in canonical form.
type Answer struct {
	Document []byte
	Failed   bool // an error: the document stands in the text form only
	Marked   bool // it may hold text of a target
}

// WriteTo writes the result object of the answer. It is the one place that knows the envelope.
func (a Answer) WriteTo(w io.Writer) (int64, error) {
	e := encoder{w: bufio.NewWriterSize(w, 64<<10)}
	e.string(openText)
	e.escaped(a.Document)
	e.string(closeText)
	if a.Failed {
		e.string(isError)
	} else {
		e.string(structured)
		e.bytes(a.Document)
	}
	if a.Marked {
		e.string(marker)
	}
	e.string(closeAll)
	if e.err == nil {
		e.err = e.w.Flush()
	}
	return e.n, e.err
}

type encoder struct {
	w   *bufio.Writer
	n   int64
	err error
}

func (e *encoder) string(s string) {
	if e.err == nil {
		var n int
		n, e.err = e.w.WriteString(s)
		e.n += int64(n)
	}
}

func (e *encoder) bytes(b []byte) {
	if e.err == nil {
		var n int
		n, e.err = e.w.Write(b)
		e.n += int64(n)
	}
}

// escaped writes JSON text as the inside of a JSON string. Canonical JSON holds no raw control character, so only
// quotation marks and backslashes grow.
func (e *encoder) escaped(b []byte) {
	start := 0
	for i, c := range b {
		if c == '"' || c == '\\' {
			e.bytes(b[start:i])
			e.string(`\`)
			start = i
		}
	}
	e.bytes(b[start:])
}
