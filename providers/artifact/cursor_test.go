package artifact

import (
	"testing"

	"rea/evidence"
)

// TestUnquote reads back what package evidence writes, lone surrogates in their three-byte form included.
func TestUnquote(t *testing.T) {
	for _, s := range []string{"", "plain", "q\"\\/", "\x00\x1f\b\f\n\r\t", "ü\U0001F600\u2028", "a\xed\xa0\x80b", "\xed\xbf\xbf"} {
		quoted := evidence.AppendString(nil, s)
		if got := string(unquote(nil, quoted)); got != s {
			t.Errorf("%s: %q, want %q", quoted, got, s)
		}
	}
}

// TestCursor has values that stand where another must stand.
func TestCursor(t *testing.T) {
	zeros := "0000000000000000000000000000000000000000000000000000000000000000"
	for _, tt := range []struct {
		raw  string
		read func(*cursor)
		ok   bool
	}{
		{`"art_` + zeros + `"`, func(c *cursor) { c.id(prefixArtifact) }, true},
		{`"occ_` + zeros + `"`, func(c *cursor) { c.id(prefixArtifact) }, false},
		{`"art_` + zeros[1:] + `A"`, func(c *cursor) { c.id(prefixArtifact) }, false},
		{`"art_` + zeros[1:] + `"`, func(c *cursor) { c.id(prefixArtifact) }, false},
		{`"art_` + zeros + `0"`, func(c *cursor) { c.id(prefixArtifact) }, false},
		{`null`, func(c *cursor) { c.id(prefixArtifact) }, false},
		{`null`, func(c *cursor) { c.idOr(prefixArtifact) }, true},
		{`9007199254740991`, func(c *cursor) { c.int() }, true},
		{`9007199254740992`, func(c *cursor) { c.int() }, false},
		{`99999999999999999999999`, func(c *cursor) { c.int() }, false},
		{`01`, func(c *cursor) { c.int() }, false},
		{`-1`, func(c *cursor) { c.int() }, false},
		{`1.0`, func(c *cursor) { c.int() }, false},
		{``, func(c *cursor) { c.int() }, false},
		{`true`, func(c *cursor) { c.bool() }, true},
		{`1`, func(c *cursor) { c.bool() }, false},
		{`["a","b\"]"]`, func(c *cursor) { c.strings() }, true},
		{`["a" "b"]`, func(c *cursor) { c.strings() }, false},
		{`[1]`, func(c *cursor) { c.strings() }, false},
		{`"a`, func(c *cursor) { c.string() }, false},
		{`"a\`, func(c *cursor) { c.string() }, false},
		{`"zip"`, func(c *cursor) { oneOf(c, formats) }, true},
		{`"zap"`, func(c *cursor) { oneOf(c, formats) }, false},
		{`nullx`, func(c *cursor) { c.null() }, false},
	} {
		var c cursor
		c.reset([]byte(tt.raw))
		tt.read(&c)
		if err := c.end(); (err == nil) != tt.ok {
			t.Errorf("%s: %v", tt.raw, err)
		}
	}
}
