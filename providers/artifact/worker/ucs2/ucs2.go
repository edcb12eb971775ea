// Package ucs2 turns names that a format stores as 16-bit units into bytes. It must not normalise or refuse a name.
package ucs2

import (
	"unicode/utf16"
	"unicode/utf8"
)

// Bytes gives UTF-16 units as UTF-8. A surrogate without its other half becomes the three bytes that UTF-8 would have
// for it, which are not valid UTF-8: the name stays distinguishable from every other and is recognised as no text.
func Bytes(units []uint16) []byte {
	b := make([]byte, 0, len(units))
	for i := 0; i < len(units); i++ {
		u := rune(units[i])
		if !utf16.IsSurrogate(u) {
			b = utf8.AppendRune(b, u)
			continue
		}
		if i+1 < len(units) {
			if r := utf16.DecodeRune(u, rune(units[i+1])); r != utf8.RuneError {
				b = utf8.AppendRune(b, r)
				i++
				continue
			}
		}
		b = append(b, 0xe0|byte(u>>12), 0x80|byte(u>>6)&0x3f, 0x80|byte(u)&0x3f)
	}
	return b
}

// BigEndian gives the units of b; an odd last byte is left out.
func BigEndian(b []byte) []uint16 {
	units := make([]uint16, len(b)/2)
	for i := range units {
		units[i] = uint16(b[2*i])<<8 | uint16(b[2*i+1])
	}
	return units
}

// LittleEndian gives the units of b; an odd last byte is left out.
func LittleEndian(b []byte) []uint16 {
	units := make([]uint16, len(b)/2)
	for i := range units {
		units[i] = uint16(b[2*i+1])<<8 | uint16(b[2*i])
	}
	return units
}
