package evidence

import (
	"bytes"
	"errors"
	"io"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	// maxHeldKeys bounds the keys that a Checker remembers: one for each open object. Contract results stay far
	// below it; a text of long keys, each in a deeper object, does not get to spend memory.
	maxHeldKeys = 16 << 20

	// maxAtom is longer than any canonical number: a sign, 17 digits, a point and an exponent, or 21 digits.
	maxAtom = 32
)

// Checker verifies that what is written to it is one JSON value in the form of Canonicalize: order and uniqueness of
// keys, numbers, strings, depth, no white space. It holds one key for each open object and nothing else, so that a
// stream can be checked while it is hashed or copied (io.MultiWriter). Make one with NewChecker.
type Checker struct {
	state  checkState
	offset int64
	err    error
	base   int // level of the root
	stack  []frame

	atom []byte // the number or literal being read
	part []byte // an escape or a UTF-8 sequence that is not complete yet
	high bool   // the string's last code unit is a lone high surrogate

	inKey  bool   // the string being read is a key
	key    []byte // its content so far, as written
	keyEsc bool   // which has an escape
	held   int    // bytes of the keys in stack
}

// frame is one open array or object.
type frame struct {
	object bool
	some   bool   // a member has been read
	last   []byte // its key, decoded
}

type checkState int

const (
	wantValue      checkState = iota
	wantValueOrEnd            // after [
	wantKey                   // after , in an object
	wantKeyOrEnd              // after {
	wantColon
	wantMore // after a value in an array or object
	wantNothing
	inString
	inAtom
)

// NewChecker returns a Checker for one value.
func NewChecker() *Checker { return &Checker{} }

// NewPayloadChecker returns a Checker for a value that becomes a payload: as a member of a record its depth counts
// from level 1.
func NewPayloadChecker() *Checker { return &Checker{base: 1} }

// CheckCanonical reads r to its end and verifies its form. The error is a *SyntaxError, or the reader's.
func CheckCanonical(r io.Reader) error {
	c := NewChecker()
	if _, err := io.Copy(c, r); err != nil {
		return err
	}
	return c.Close()
}

// Write checks the next bytes. Its error is a *SyntaxError and stays.
func (c *Checker) Write(p []byte) (int, error) {
	total := len(p)
	for len(p) > 0 && c.err == nil {
		n := c.step(p)
		c.offset += int64(n)
		p = p[n:]
	}
	return total - len(p), c.err
}

// Close reports whether exactly one value was written.
func (c *Checker) Close() error {
	if c.err == nil && c.state == inAtom {
		c.endAtom()
	}
	if c.err == nil && c.state != wantNothing {
		c.syntax("unexpected end of JSON")
	}
	return c.err
}

func (c *Checker) syntax(reason string) {
	c.err = &SyntaxError{Offset: c.offset, Reason: reason}
}

func (c *Checker) form(reason string) {
	c.err = &SyntaxError{Offset: c.offset, Reason: reason, form: true}
}

// step consumes at least one byte of p, or sets err, or leaves an atom without consuming its successor.
func (c *Checker) step(p []byte) int {
	switch c.state {
	case inString:
		return c.text(p)
	case inAtom:
		return c.atomBytes(p)
	}
	b := p[0]
	if isSpace(b) {
		c.form("white space")
		return 0
	}
	switch c.state {
	case wantValueOrEnd:
		if b == ']' {
			c.pop()
			return 1
		}
		fallthrough
	case wantValue:
		return c.begin(b)
	case wantKeyOrEnd:
		if b == '}' {
			c.pop()
			return 1
		}
		fallthrough
	case wantKey:
		c.want(b, '"', "key expected", inString)
		c.inKey, c.key, c.keyEsc = true, c.key[:0], false
	case wantColon:
		c.want(b, ':', "key without :", wantValue)
	case wantMore:
		c.more(b)
	default:
		c.syntax("data after the value")
	}
	return 1
}

func (c *Checker) want(got, b byte, reason string, next checkState) {
	if got != b {
		c.syntax(reason)
		return
	}
	c.state = next
}

// more takes what may follow a value inside an array or object.
func (c *Checker) more(b byte) {
	object := c.stack[len(c.stack)-1].object
	switch {
	case b == ',' && object:
		c.state = wantKey
	case b == ',':
		c.state = wantValue
	case b == '}' && object, b == ']' && !object:
		c.pop()
	default:
		c.syntax("array or object continues with neither , nor its end")
	}
}

// begin takes the first byte of a value.
func (c *Checker) begin(b byte) int {
	if c.base+len(c.stack) > MaxDepth {
		c.syntax("nesting over the limit")
		return 0
	}
	switch b {
	case '{':
		c.push(true, wantKeyOrEnd)
	case '[':
		c.push(false, wantValueOrEnd)
	case '"':
		c.inKey, c.state = false, inString
	default:
		c.atom, c.state = append(c.atom[:0], b), inAtom
	}
	return 1
}

func (c *Checker) push(object bool, next checkState) {
	if n := len(c.stack); n < cap(c.stack) {
		c.stack = c.stack[:n+1] // keeps the room of a closed object's key
		f := &c.stack[n]
		f.object, f.some, f.last = object, false, f.last[:0]
	} else {
		c.stack = append(c.stack, frame{object: object})
	}
	c.state = next
}

func (c *Checker) pop() {
	n := len(c.stack) - 1
	c.held -= len(c.stack[n].last)
	if cap(c.stack[n].last) > maxKeptKey {
		c.stack[n].last = nil
	}
	c.stack = c.stack[:n]
	c.ended()
}

// maxKeptKey is the longest key whose room is kept for the next object at the same level.
const maxKeptKey = 4 << 10

func (c *Checker) ended() {
	c.state = wantMore
	if len(c.stack) == 0 {
		c.state = wantNothing
	}
}

// atomBytes collects a number or literal up to the byte that ends it.
func (c *Checker) atomBytes(p []byte) int {
	n := 0
	for n < len(p) && !isSpace(p[n]) && p[n] != ',' && p[n] != ']' && p[n] != '}' {
		if len(c.atom) == maxAtom {
			c.form("number or literal longer than any canonical one")
			return n
		}
		c.atom = append(c.atom, p[n])
		n++
	}
	if n < len(p) {
		c.endAtom()
	}
	return n
}

func (c *Checker) endAtom() {
	switch string(c.atom) {
	case "true", "false", "null":
		c.ended()
		return
	}
	if scanNumber(c.atom) != len(c.atom) {
		c.syntax("invalid value")
		return
	}
	var room [maxAtom]byte
	want, ok := appendNumber(room[:0], c.atom)
	switch {
	case !ok:
		c.syntax("number beyond the range of a double")
	case !bytes.Equal(want, c.atom):
		c.form("number not in canonical form")
	default:
		c.ended()
	}
}

// text takes bytes of a string.
func (c *Checker) text(p []byte) int {
	if len(c.part) > 0 {
		return c.completePart(p)
	}
	n := 0
	for c.err == nil && n < len(p) {
		run := plainPrefix(p[n:])
		rest := p[n+run:]
		for len(rest) > 0 && rest[0] >= utf8.RuneSelf {
			r, size := utf8.DecodeRune(rest)
			if r == utf8.RuneError && size == 1 {
				break // invalid, or cut by the end of p: completePart finds out
			}
			run, rest = run+size, rest[size:]
		}
		if run == 0 {
			return n + c.special(p[n])
		}
		c.high = false
		c.keep(p[n : n+run])
		n += run
	}
	return n
}

// special takes a byte of a string that does not stand for itself.
func (c *Checker) special(b byte) int {
	switch {
	case b == '"':
		c.high = false
		c.endString()
	case b < 0x20:
		c.syntax("control character in a string")
		return 0
	default:
		c.part = append(c.part[:0], b)
	}
	return 1
}

// completePart adds bytes to an unfinished escape or UTF-8 sequence until it is complete.
func (c *Checker) completePart(p []byte) int {
	n := 0
	for n < len(p) && !partComplete(c.part) {
		c.part = append(c.part, p[n])
		n++
	}
	if !partComplete(c.part) {
		return n
	}
	if c.part[0] == '\\' {
		c.checkEscape()
	} else if r, size := utf8.DecodeRune(c.part); r == utf8.RuneError && size == 1 {
		c.syntax("invalid UTF-8")
	} else {
		c.high = false
	}
	if c.err == nil {
		c.keep(c.part)
		c.part = c.part[:0]
	}
	return n
}

// partComplete reports whether part, which has a byte, is a whole escape or UTF-8 sequence, valid or not.
func partComplete(part []byte) bool {
	switch {
	case part[0] != '\\':
		return utf8.FullRune(part)
	case len(part) == 1:
		return false
	}
	return part[1] != 'u' || len(part) == 6
}

func (c *Checker) checkEscape() {
	r, n := decodeEscape(c.part)
	if n == 0 {
		c.syntax("invalid escape")
		return
	}
	want, _ := appendRune(make([]byte, 0, 6), r)
	switch {
	case !bytes.Equal(want, c.part):
		c.form("escape not in canonical form")
	case c.high && r >= 0xDC00 && utf16.IsSurrogate(r):
		c.form("pair of surrogates as escapes")
	}
	c.high = utf16.IsSurrogate(r) && r < 0xDC00
	c.keyEsc = true
}

// keep remembers bytes of a key.
func (c *Checker) keep(p []byte) {
	if !c.inKey {
		return
	}
	if c.held+len(c.key)+len(p) > maxHeldKeys {
		c.form("keys over the limit of what is held in memory")
		return
	}
	c.key = append(c.key, p...)
}

func (c *Checker) endString() {
	if !c.inKey {
		c.ended()
		return
	}
	c.inKey, c.state = false, wantColon
	key := c.key
	if c.keyEsc {
		key = appendDecoded(make([]byte, 0, len(key)), key)
	}
	f := &c.stack[len(c.stack)-1]
	if f.some && compareUTF16(f.last, key) >= 0 {
		c.form("key repeated or out of order")
		return
	}
	c.held += len(key) - len(f.last)
	f.some, f.last = true, append(f.last[:0], key...)
}

// notCanonical reports whether err says that a text is not in canonical form but may be JSON.
func notCanonical(err error) bool {
	var s *SyntaxError
	return errors.As(err, &s) && s.form
}
