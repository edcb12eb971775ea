package evidence

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"
)

// MaxDepth is the deepest level at which a value may stand; the root is level 0. The runtime contract sets it, so
// that no reader of ours or of others runs out of stack.
const MaxDepth = 1000

// SyntaxError says where a text stops being JSON, or stops being canonical.
type SyntaxError struct {
	Offset int64  // bytes before the place
	Reason string // what is wrong there
	form   bool
}

// Error gives place and reason. It repeats nothing of the text.
func (e *SyntaxError) Error() string { return fmt.Sprintf("%s at byte %d", e.Reason, e.Offset) }

// Form reports whether the text may still be JSON and only its form is not the canonical one.
func (e *SyntaxError) Form() bool { return e.form }

// Canonicalize returns the RFC 8785 form of one JSON text, lone surrogates kept as lower-case escapes. The rules are
// those for payloads: a repeated key takes its last value, a number becomes the nearest double. Invalid UTF-8, a
// number beyond the doubles and nesting over MaxDepth are a *SyntaxError.
func Canonicalize(raw []byte) ([]byte, error) {
	return canonicalize(canonicalizer{src: raw})
}

// Canonical encodes a Go value (as encoding/json/v2 does: a nil slice is [], a nil map is {}) in canonical form. A
// string that is not valid UTF-8 is an error, and so is an integer that a double cannot hold: write those as decimal
// strings.
func Canonical(v any) ([]byte, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", v, err)
	}
	return canonicalize(canonicalizer{src: raw, exact: true})
}

// Digest is the SHA-256 of the value's canonical form, in lower-case hex.
func Digest(v any) (string, error) {
	raw, err := Canonical(v)
	if err != nil {
		return "", err
	}
	return DigestBytes(raw), nil
}

// DigestBytes is the SHA-256 of bytes that are already canonical, in lower-case hex.
func DigestBytes(raw []byte) string {
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// canonicalizer rewrites src into dst. It recurses, at most MaxDepth deep.
type canonicalizer struct {
	src   []byte
	pos   int
	dst   []byte
	level int // of the value that comes next

	unique bool // a repeated key is an error: fixed metadata
	exact  bool // an integer that would change its digits is an error: our own producers

	members []member // of all open objects, innermost last
	scratch []byte
}

// member is one member of an open object as it stands in dst.
type member struct {
	start, keyEnd, end int    // the key with its quotes is dst[start:keyEnd]
	name               []byte // the decoded key, where it has an escape; otherwise nil
}

func canonicalize(c canonicalizer) ([]byte, error) {
	c.dst = make([]byte, 0, len(c.src))
	if err := c.value(); err != nil {
		return nil, err
	}
	c.space()
	if c.pos < len(c.src) {
		return nil, c.wrong("data after the value")
	}
	return c.dst, nil
}

func (c *canonicalizer) wrong(reason string) error {
	if c.pos >= len(c.src) {
		reason = "unexpected end of JSON"
	}
	return &SyntaxError{Offset: int64(c.pos), Reason: reason}
}

func (c *canonicalizer) space() {
	for c.pos < len(c.src) && isSpace(c.src[c.pos]) {
		c.pos++
	}
}

func isSpace(b byte) bool { return b == ' ' || b == '\n' || b == '\t' || b == '\r' }

// next skips white space and takes b if it stands there.
func (c *canonicalizer) next(b byte) bool {
	c.space()
	if c.pos < len(c.src) && c.src[c.pos] == b {
		c.pos++
		return true
	}
	return false
}

func (c *canonicalizer) value() error {
	c.space()
	switch {
	case c.level > MaxDepth:
		return c.wrong("nesting over the limit")
	case c.pos >= len(c.src):
		return c.wrong("")
	}
	switch c.src[c.pos] {
	case '{':
		return c.object()
	case '[':
		return c.array()
	case '"':
		_, err := c.text()
		return err
	case 't':
		return c.literal("true")
	case 'f':
		return c.literal("false")
	case 'n':
		return c.literal("null")
	}
	return c.number()
}

func (c *canonicalizer) literal(word string) error {
	if !bytes.HasPrefix(c.src[c.pos:], []byte(word)) {
		return c.wrong("invalid literal")
	}
	c.pos += len(word)
	c.dst = append(c.dst, word...)
	return nil
}

func (c *canonicalizer) number() error {
	n := scanNumber(c.src[c.pos:])
	if n == 0 {
		return c.wrong("invalid value")
	}
	text := c.src[c.pos : c.pos+n]
	start := len(c.dst)
	dst, ok := appendNumber(c.dst, text)
	if !ok {
		return c.wrong("number beyond the range of a double")
	}
	if c.exact && !bytes.ContainsAny(text, ".eE") && !bytes.Equal(text, dst[start:]) && string(text) != "-0" {
		return c.wrong("integer that a double cannot hold")
	}
	c.dst, c.pos = dst, c.pos+n
	return nil
}

func (c *canonicalizer) array() error {
	c.pos++
	c.dst = append(c.dst, '[')
	if c.next(']') {
		c.dst = append(c.dst, ']')
		return nil
	}
	c.level++
	for {
		if err := c.value(); err != nil {
			return err
		}
		if c.next(',') {
			c.dst = append(c.dst, ',')
			continue
		}
		if !c.next(']') {
			return c.wrong("array continues with neither , nor ]")
		}
		c.level--
		c.dst = append(c.dst, ']')
		return nil
	}
}

func (c *canonicalizer) object() error {
	c.pos++
	c.dst = append(c.dst, '{')
	if c.next('}') {
		c.dst = append(c.dst, '}')
		return nil
	}
	c.level++
	first, sorted := len(c.members), true
	for {
		m, err := c.member()
		if err != nil {
			return err
		}
		if n := len(c.members); sorted && n > first {
			sorted = compareUTF16(c.key(c.members[n-1]), c.key(m)) < 0
		}
		c.members = append(c.members, m)
		if c.next(',') {
			c.dst = append(c.dst, ',')
			continue
		}
		if !c.next('}') {
			return c.wrong("object continues with neither , nor }")
		}
		break
	}
	if !sorted {
		if err := c.arrange(c.members[first:]); err != nil {
			return err
		}
	}
	c.level--
	c.members = c.members[:first]
	c.dst = append(c.dst, '}')
	return nil
}

func (c *canonicalizer) member() (member, error) {
	c.space()
	if c.pos >= len(c.src) || c.src[c.pos] != '"' {
		return member{}, c.wrong("key expected")
	}
	m := member{start: len(c.dst)}
	escaped, err := c.text()
	if err != nil {
		return member{}, err
	}
	m.keyEnd = len(c.dst)
	if escaped {
		m.name = appendDecoded(nil, c.dst[m.start+1:m.keyEnd-1])
	}
	if !c.next(':') {
		return member{}, c.wrong("key without :")
	}
	c.dst = append(c.dst, ':')
	err = c.value()
	m.end = len(c.dst)
	return m, err
}

func (c *canonicalizer) key(m member) []byte {
	if m.name != nil {
		return m.name
	}
	return c.dst[m.start+1 : m.keyEnd-1]
}

// arrange puts the members of the innermost open object into order; of members with the same key the last remains.
func (c *canonicalizer) arrange(ms []member) error {
	begin := ms[0].start
	slices.SortStableFunc(ms, func(a, b member) int { return compareUTF16(c.key(a), c.key(b)) })
	c.scratch = c.scratch[:0]
	for i, m := range ms {
		if i+1 < len(ms) && bytes.Equal(c.key(m), c.key(ms[i+1])) {
			if c.unique {
				return c.wrong("object with a repeated key")
			}
			continue
		}
		c.scratch = append(append(c.scratch, c.dst[m.start:m.end]...), ',')
	}
	c.dst = append(c.dst[:begin], c.scratch[:len(c.scratch)-1]...)
	return nil
}
