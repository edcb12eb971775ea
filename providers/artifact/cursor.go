package artifact

import (
	"fmt"
	"unicode/utf16"
	"unicode/utf8"
)

// cursor reads one element of a result in its only legal spelling: canonical JSON of a strict object has fixed keys in
// a fixed order, so the text between values is constant. After the first thing that is not as it must be, every method
// does nothing and gives zero values; ok tells. It copies nothing: what it returns lies in the element's bytes.
type cursor struct {
	b    []byte
	pos  int
	want string // what should have stood at pos, "" while all is well
	// forged says that what stood there is well formed and is not the identity of what it stands beside.
	forged bool
}

// reset starts an element. The bytes are one syntactically valid JSON value.
func (c *cursor) reset(b []byte) { *c = cursor{b: b} }

// end reports whether the element was read to its end without a fault.
func (c *cursor) end() error {
	if c.want == "" && c.pos != len(c.b) {
		c.fail("its end")
	}
	if c.want == "" {
		return nil
	}
	return fmt.Errorf("byte %d: expected %s", c.pos, c.want)
}

func (c *cursor) ok() bool { return c.want == "" }

func (c *cursor) fail(want string) {
	if c.want == "" {
		c.want = want
	}
}

// forge fails because of an identity that does not recompute.
func (c *cursor) forge(want string) {
	if c.want == "" {
		c.want, c.forged = want, true
	}
}

// text reads fixed text.
func (c *cursor) text(s string) *cursor {
	if !c.try(s) {
		c.fail(s)
	}
	return c
}

// try reads fixed text if it is there.
func (c *cursor) try(s string) bool {
	if c.want != "" || len(c.b)-c.pos < len(s) || string(c.b[c.pos:c.pos+len(s)]) != s {
		return false
	}
	c.pos += len(s)
	return true
}

// null reads a null if it is there.
func (c *cursor) null() bool { return c.try("null") }

// string reads a string with its quotes, as it is written.
func (c *cursor) string() []byte {
	start := c.pos
	if !c.try(`"`) {
		c.fail("a string")
		return nil
	}
	for c.pos < len(c.b) {
		switch c.b[c.pos] {
		case '"':
			c.pos++
			return c.b[start:c.pos]
		case '\\':
			c.pos++
		}
		c.pos++
	}
	c.pos = start
	c.fail("a string")
	return nil
}

// id reads a quoted identity or digest.
func (c *cursor) id(prefix string) (s sum) {
	const digits = 2 * len(s)
	start := c.pos
	if c.try(`"`) && c.try(prefix) && len(c.b)-c.pos > digits && decodeHex(&s, c.b[c.pos:c.pos+digits]) {
		c.pos += digits
		if c.try(`"`) {
			return s
		}
	}
	if c.want == "" {
		c.pos = start
	}
	c.fail("an identity " + prefix + "<hex64>")
	return sum{}
}

// nibbles gives the value of a lower-case hex digit, 0xFF for any other byte.
var nibbles = func() (t [256]byte) {
	for i := range t {
		t[i] = 0xFF
	}
	for i, d := range []byte("0123456789abcdef") {
		t[d] = byte(i)
	}
	return t
}()

// decodeHex decodes lower-case digits; encoding/hex would take upper-case ones too, in half the speed of a table.
func decodeHex(s *sum, digits []byte) bool {
	var bad byte
	for i := range s {
		high, low := nibbles[digits[2*i]], nibbles[digits[2*i+1]]
		bad |= high | low
		s[i] = high<<4 | low
	}
	return bad&0xF0 == 0
}

// idOr reads a quoted identity or null.
func (c *cursor) idOr(prefix string) (s sum, known bool) {
	if c.null() {
		return s, false
	}
	return c.id(prefix), true
}

// int reads an integer from 0 to MaxInteger.
func (c *cursor) int() int64 {
	start, n := c.pos, int64(0)
	for c.pos < len(c.b) && '0' <= c.b[c.pos] && c.b[c.pos] <= '9' && n <= MaxInteger {
		n = n*10 + int64(c.b[c.pos]-'0')
		c.pos++
	}
	digits := c.pos - start
	if digits == 0 || n > MaxInteger || digits > 1 && c.b[start] == '0' {
		c.pos = start
		c.fail("an integer from 0 to 2^53-1")
		return 0
	}
	return n
}

// intOr reads an integer, -1 for null.
func (c *cursor) intOr() int64 {
	if c.null() {
		return -1
	}
	return c.int()
}

// bool reads true or false.
func (c *cursor) bool() bool {
	if c.try("true") {
		return true
	}
	if !c.try("false") {
		c.fail("true or false")
	}
	return false
}

// stringOr reads a string, nil for null.
func (c *cursor) stringOr() []byte {
	if c.null() {
		return nil
	}
	return c.string()
}

// strings reads a list of strings as it is written, and counts it.
func (c *cursor) strings() (raw []byte, n int) {
	start := c.pos
	c.text("[")
	for c.ok() && !c.try("]") {
		if n > 0 {
			c.text(",")
		}
		c.string()
		n++
	}
	return c.b[start:c.pos], n
}

// oneOf reads a quoted member of a closed set.
func oneOf[T ~string](c *cursor, set []T) T {
	start := c.pos
	if raw := c.string(); c.ok() {
		for _, v := range set {
			if string(raw[1:len(raw)-1]) == string(v) {
				return v
			}
		}
		c.pos = start
	}
	c.fail(fmt.Sprintf("one of %q", set))
	return ""
}

// unquote decodes a string that cursor.string returned. dst is reused. A lone surrogate becomes its three-byte form,
// which keeps order and identity.
func unquote(dst, quoted []byte) []byte {
	s := quoted[1 : len(quoted)-1]
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			dst = append(dst, s[i])
			continue
		}
		i++
		switch s[i] {
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			dst = appendUnit(dst, s[i+1:i+5])
			i += 4
		default:
			dst = append(dst, s[i])
		}
	}
	return dst
}

// appendUnit appends the UTF-16 unit of four hex digits. Canonical text escapes only controls and lone surrogates.
func appendUnit(dst, digits []byte) []byte {
	var r rune
	for _, d := range digits {
		r = r<<4 | rune(nibbles[d]&0x0F)
	}
	if utf16.IsSurrogate(r) {
		return append(dst, 0xE0|byte(r>>12), 0x80|byte(r>>6)&0x3F, 0x80|byte(r)&0x3F)
	}
	return utf8.AppendRune(dst, r)
}
