package ucs2

import (
	"testing"
	"unicode/utf8"
)

// Wanted bytes are those of the Unicode standard's UTF-8 table, worked out by hand.
func TestBytes(t *testing.T) {
	for _, c := range []struct {
		name  string
		units []uint16
		want  string
		text  bool
	}{
		{"ascii", []uint16{'a', '/'}, "a/", true},
		{"two and three bytes", []uint16{0xfc, 0x2603}, "\xc3\xbc\xe2\x98\x83", true},
		{"a pair", []uint16{0xd83d, 0xde00}, "\xf0\x9f\x98\x80", true},
		{"half a pair at the end", []uint16{'x', 0xd83d}, "x\xed\xa0\xbd", false},
		{"the wrong half first", []uint16{0xde00, 0xd83d}, "\xed\xb8\x80\xed\xa0\xbd", false},
	} {
		if got := string(Bytes(c.units)); got != c.want || utf8.ValidString(got) != c.text {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	if got := string(Bytes(BigEndian([]byte{0, 'a', 0x26, 3, 9}))); got != "a\u2603" {
		t.Errorf("big-endian: %q", got)
	}
	if got := string(Bytes(LittleEndian([]byte{'a', 0, 3, 0x26}))); got != "a\u2603" {
		t.Errorf("little-endian: %q", got)
	}
}
