package evidence

import (
	"bytes"
	"cmp"
	"unicode/utf16"
	"unicode/utf8"
)

// Strings in memory are WTF-8: UTF-8 in which a surrogate that is not one half of a pair has its three-byte form.
// It is the only form in which every string of JSON survives in a Go string.

const lowerHex = "0123456789abcdef"

// plain marks the bytes that stand for themselves in a JSON string and need no look at their neighbours.
var plain = func() (t [256]bool) {
	for b := 0x20; b < utf8.RuneSelf; b++ {
		t[b] = b != '"' && b != '\\'
	}
	return t
}()

// plainPrefix is the number of leading bytes of p that stand for themselves.
func plainPrefix(p []byte) int {
	i := 0
	for i < len(p) && plain[p[i]] {
		i++
	}
	return i
}

// short is the letter of the two-character escape of b, 0 if there is none.
func short(b byte) byte {
	switch b {
	case '"', '\\':
		return b
	case '\b':
		return 'b'
	case '\t':
		return 't'
	case '\n':
		return 'n'
	case '\f':
		return 'f'
	case '\r':
		return 'r'
	}
	return 0
}

// appendRune appends the canonical form of one code point or lone surrogate inside a string.
func appendRune(dst []byte, r rune) (_ []byte, escaped bool) {
	switch {
	case r < utf8.RuneSelf && plain[r]:
		return append(dst, byte(r)), false
	case r < utf8.RuneSelf && short(byte(r)) != 0:
		return append(dst, '\\', short(byte(r))), true
	case r < 0x20 || utf16.IsSurrogate(r):
		return append(dst, '\\', 'u', lowerHex[r>>12&15], lowerHex[r>>8&15], lowerHex[r>>4&15], lowerHex[r&15]), true
	}
	return utf8.AppendRune(dst, r), false
}

// appendWTF8 appends one code point, a lone surrogate in its three-byte form.
func appendWTF8(dst []byte, r rune) []byte {
	if utf16.IsSurrogate(r) {
		return append(dst, 0xE0|byte(r>>12), 0x80|byte(r>>6)&0x3F, 0x80|byte(r)&0x3F)
	}
	return utf8.AppendRune(dst, r)
}

// decodeWTF8 is utf8.DecodeRune that also knows lone surrogates; (RuneError, 1) is an invalid byte.
func decodeWTF8[S []byte | string](s S) (rune, int) {
	if len(s) >= 3 && s[0] == 0xED && s[1]&0xE0 == 0xA0 && s[2]&0xC0 == 0x80 {
		return 0xD000 | rune(s[1]&0x3F)<<6 | rune(s[2]&0x3F), 3
	}
	return utf8.DecodeRuneInString(string(s[:min(len(s), utf8.UTFMax)]))
}

// ValidString reports whether s is UTF-8 apart from lone surrogates in their three-byte form, that is whether
// AppendString writes it without loss.
func ValidString(s string) bool {
	for len(s) > 0 {
		r, n := decodeWTF8(s)
		if r == utf8.RuneError && n == 1 {
			return false
		}
		s = s[n:]
	}
	return true
}

// AppendString appends s as a canonical JSON string, with its quotes. A surrogate in its three-byte form is written
// as an escape, or as the character if its other half follows. Any other byte that is not UTF-8 becomes U+FFFD:
// check with ValidString where that would be a loss.
func AppendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for len(s) > 0 {
		r, n := decodeWTF8(s)
		if utf16.IsSurrogate(r) {
			low, m := decodeWTF8(s[n:])
			if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
				r, n = pair, n+m
			}
		}
		dst, _ = appendRune(dst, r)
		s = s[n:]
	}
	return append(dst, '"')
}

// text copies one string and reports whether its canonical form has an escape.
func (c *canonicalizer) text() (escaped bool, err error) {
	c.pos++
	c.dst = append(c.dst, '"')
	for {
		n := plainPrefix(c.src[c.pos:])
		c.dst = append(c.dst, c.src[c.pos:c.pos+n]...)
		c.pos += n
		if c.pos >= len(c.src) {
			return false, c.wrong("")
		}
		switch b := c.src[c.pos]; {
		case b == '"':
			c.pos++
			c.dst = append(c.dst, '"')
			return escaped, nil
		case b == '\\':
			r, err := c.escape()
			if err != nil {
				return false, err
			}
			var esc bool
			c.dst, esc = appendRune(c.dst, r)
			escaped = escaped || esc
		case b < 0x20:
			return false, c.wrong("control character in a string")
		default:
			r, n := utf8.DecodeRune(c.src[c.pos:])
			if r == utf8.RuneError && n == 1 {
				return false, c.wrong("invalid UTF-8")
			}
			c.dst = append(c.dst, c.src[c.pos:c.pos+n]...)
			c.pos += n
		}
	}
}

// escape reads one escape, or two that are the halves of a pair.
func (c *canonicalizer) escape() (rune, error) {
	r, n := decodeEscape(c.src[c.pos:])
	if n == 0 {
		return 0, c.wrong("invalid escape")
	}
	c.pos += n
	return r, nil
}

// decodeEscape reads the escape at the start of p, or the two that are the halves of a surrogate pair. It returns
// 0, 0 for anything that is not an escape.
func decodeEscape(p []byte) (rune, int) {
	if len(p) < 2 {
		return 0, 0
	}
	switch p[1] {
	case '"', '\\', '/':
		return rune(p[1]), 2
	case 'b':
		return '\b', 2
	case 't':
		return '\t', 2
	case 'n':
		return '\n', 2
	case 'f':
		return '\f', 2
	case 'r':
		return '\r', 2
	}
	r := decodeUnit(p)
	if r < 0 {
		return 0, 0
	}
	if utf16.IsSurrogate(r) {
		if pair := utf16.DecodeRune(r, decodeUnit(p[6:])); pair != utf8.RuneError {
			return pair, 12
		}
	}
	return r, 6
}

// decodeUnit reads \uXXXX at the start of p; -1 if it is not there.
func decodeUnit(p []byte) rune {
	if len(p) < 6 || p[0] != '\\' || p[1] != 'u' {
		return -1
	}
	var r rune
	for _, b := range p[2:6] {
		switch {
		case b >= '0' && b <= '9':
			b -= '0'
		case b >= 'a' && b <= 'f':
			b -= 'a' - 10
		case b >= 'A' && b <= 'F':
			b -= 'A' - 10
		default:
			return -1
		}
		r = r<<4 | rune(b)
	}
	return r
}

// appendDecoded appends the WTF-8 form of the content of a valid JSON string, without its quotes.
func appendDecoded(dst, content []byte) []byte {
	for {
		i := bytes.IndexByte(content, '\\')
		if i < 0 {
			return append(dst, content...)
		}
		dst = append(dst, content[:i]...)
		r, n := decodeEscape(content[i:])
		dst = appendWTF8(dst, r)
		content = content[i+max(n, 1):]
	}
}

// compareUTF16 orders two WTF-8 strings by their UTF-16 code units. It differs from the order of bytes only where a
// code point above U+FFFF, whose first unit is D800 to DBFF, meets one from U+D800 to U+FFFF.
func compareUTF16(a, b []byte) int {
	i, n := 0, min(len(a), len(b))
	for i < n && a[i] == b[i] {
		i++
	}
	switch {
	case i == n:
		return cmp.Compare(len(a), len(b))
	case a[i] < 0xED && b[i] < 0xED:
		return cmp.Compare(a[i], b[i])
	}
	// Both are at the start of a code point. Two units decide: a lone surrogate that equals the first half of a pair
	// is not followed by a second half.
	return cmp.Compare(twoUnits(a[i:]), twoUnits(b[i:]))
}

// twoUnits packs the first two UTF-16 code units of s, each plus one so that the end comes first.
func twoUnits(s []byte) uint64 {
	var packed uint64
	for count := 0; count < 2; {
		if len(s) == 0 {
			packed, count = packed<<17, count+1
			continue
		}
		r, n := decodeWTF8(s)
		s = s[n:]
		if hi, lo := utf16.EncodeRune(r); hi != utf8.RuneError {
			packed, count = packed<<17|uint64(hi+1), count+1
			if count == 2 {
				break
			}
			r = lo
		}
		packed, count = packed<<17|uint64(r+1), count+1
	}
	return packed
}
