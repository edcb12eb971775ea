package worker

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"rea/evidence/target"
)

// split gives the components of a recorded name. A slash that separates nothing (at the start, doubled, at the end of a
// name that is no directory) stays in the component beside it, where it is escaped.
func split(name []byte) [][]byte {
	var parts [][]byte
	var pending []byte
	for part := range bytes.SplitSeq(name, []byte("/")) {
		if len(part) == 0 {
			pending = append(pending, '/')
			continue
		}
		parts = append(parts, append(pending, part...))
		pending = nil
	}
	switch n := len(parts); {
	case n == 0: // slashes alone, one fewer than empty parts
		parts = append(parts, pending[1:])
	case len(pending) > 0:
		parts[n-1] = slices.Concat(parts[n-1], pending)
	}
	return parts
}

// escapePath makes a logical path of the components of a recorded name. A name that is plain stays as it is. In any
// other name each offending byte and each percent sign is written %XX; plain is then false.
func escapePath(parts [][]byte) (path string, plain bool) {
	plain = true
	for i, part := range parts {
		if !plainComponent(part) || i == 0 && hasDrive(part) {
			plain = false
			break
		}
	}
	var b strings.Builder
	for i, part := range parts {
		if i > 0 {
			b.WriteByte('/')
		}
		if plain {
			b.Write(part)
			continue
		}
		escapeComponent(&b, part, i == 0)
	}
	return b.String(), plain
}

func plainComponent(part []byte) bool {
	s := string(part)
	return s != "" && s != "." && s != ".." && utf8.Valid(part) && !strings.ContainsAny(s, "\x00\\/")
}

// hasDrive reports whether a name begins like a Windows drive.
func hasDrive(part []byte) bool {
	return len(part) >= 2 && part[1] == ':' && ('a' <= part[0]|0x20 && part[0]|0x20 <= 'z')
}

func escapeComponent(b *strings.Builder, part []byte, first bool) {
	switch string(part) {
	case "": // no byte to write; no escaped name holds a lone percent sign
		b.WriteByte('%')
		return
	case ".":
		b.WriteString("%2E")
		return
	case "..":
		b.WriteString("%2E%2E")
		return
	}
	drive := first && hasDrive(part)
	for i := 0; i < len(part); {
		c := part[i]
		r, n := utf8.DecodeRune(part[i:])
		bad := r == utf8.RuneError && n == 1 || c == 0 || c == '\\' || c == '/' || c == '%' || drive && i == 1
		if bad {
			fmt.Fprintf(b, "%%%02X", c)
			i++
			continue
		}
		b.Write(part[i : i+n])
		i += n
	}
}

// quote writes target text for a limitation: a JSON string where it is valid UTF-8, else with its bytes escaped.
func quote(text []byte) string {
	if !utf8.Valid(text) {
		return `"` + target.Escape(text) + `" (bytes escaped)`
	}
	q, err := jsontext.AppendQuote(nil, string(text))
	if err != nil {
		return `"` + target.Escape(text) + `"`
	}
	return string(q)
}

// fold gives a path the form under which case-insensitive file systems compare it.
func fold(path string) string {
	for i := range len(path) {
		if path[i] >= utf8.RuneSelf {
			return strings.ToLower(strings.ToUpper(path))
		}
	}
	return strings.ToLower(path)
}
