package clients

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// jsonText is a JSON document that is edited in place. Plain is the text with comments and trailing commas blanked,
// where the client reads them: byte for byte as long as the text, so that positions in one are positions in the other.
type jsonText struct {
	text, plain []byte
	root        object
}

// span is a part of a text.
type span struct{ start, end int }

// object is a JSON object in a text, its braces included.
type object struct {
	span
	members []jsonMember
}

// jsonMember is a member of an object: from its name to the end of its value.
type jsonMember struct {
	name string
	span
	value span
}

var errNoObject = errors.New("the document is not a JSON object")

// parseJSON reads a document. An empty one, as editors leave it, has no root: root.end is 0.
func parseJSON(text []byte, comments bool) (*jsonText, error) {
	d := &jsonText{text: text, plain: text}
	if comments {
		d.plain = blank(text)
	}
	if len(bytes.TrimSpace(d.plain)) == 0 {
		return d, nil
	}
	dec := jsontext.NewDecoder(bytes.NewReader(d.plain))
	raw, err := dec.ReadValue()
	if err != nil {
		return nil, err
	}
	if raw.Kind() != jsontext.KindBeginObject {
		return nil, errNoObject
	}
	end := int(dec.InputOffset())
	start := end - len(raw)
	if _, err := dec.ReadToken(); err != io.EOF {
		return nil, errors.New("something follows the document")
	}
	d.root, err = d.object(span{start, end})
	return d, err
}

// blank replaces what JSON with comments has beyond JSON by spaces: a byte order mark, comments and trailing commas.
// Line ends stay.
func blank(text []byte) []byte {
	out := bytes.Clone(text)
	if bytes.HasPrefix(out, []byte("\uFEFF")) {
		spaces(out[:3])
	}
	comma := -1 // the last comma after which nothing came but space
	for i := 0; i < len(out); i++ {
		switch c := out[i]; {
		case c == '"':
			i = stringEnd(out, i) - 1
			comma = -1
		case c == '/':
			if n := commentLen(out[i:]); n > 0 {
				spaces(out[i : i+n])
				i += n - 1
			}
		case c == ',':
			comma = i
		case (c == '}' || c == ']') && comma >= 0:
			out[comma] = ' '
			comma = -1
		case c != ' ' && c != '\t' && c != '\r' && c != '\n':
			comma = -1
		}
	}
	return out
}

// stringEnd is the end of the string that begins at i.
func stringEnd(text []byte, i int) int {
	for i++; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"', '\n':
			return i + 1
		}
	}
	return len(text)
}

// commentLen is the length of the comment at the start of text, its line end excluded; 0 for none, or for one that does
// not end.
func commentLen(text []byte) int {
	switch {
	case bytes.HasPrefix(text, []byte("//")):
		if n := bytes.IndexByte(text, '\n'); n >= 0 {
			return n
		}
		return len(text)
	case bytes.HasPrefix(text, []byte("/*")):
		if n := bytes.Index(text[2:], []byte("*/")); n >= 0 {
			return n + 4
		}
	}
	return 0
}

func spaces(b []byte) {
	for i, c := range b {
		if c != '\n' && c != '\r' {
			b[i] = ' '
		}
	}
}

// object finds the members of the object at a place.
func (d *jsonText) object(at span) (object, error) {
	o := object{span: at}
	dec := jsontext.NewDecoder(bytes.NewReader(d.plain[at.start:at.end]))
	if t, err := dec.ReadToken(); err != nil || t.Kind() != jsontext.KindBeginObject {
		return o, errNoObject
	}
	for dec.PeekKind() == jsontext.KindString {
		name, err := dec.ReadValue()
		if err != nil {
			return o, err
		}
		m := jsonMember{span: span{start: at.start + int(dec.InputOffset()) - len(name)}}
		unquoted, err := jsontext.AppendUnquote(nil, name)
		if err != nil {
			return o, err
		}
		m.name = string(unquoted)
		value, err := dec.ReadValue()
		if err != nil {
			return o, err
		}
		m.end = at.start + int(dec.InputOffset())
		m.value = span{m.end - len(value), m.end}
		o.members = append(o.members, m)
	}
	_, err := dec.ReadToken()
	return o, err
}

func (o object) member(name string) (jsonMember, bool) {
	for _, m := range o.members {
		if m.name == name {
			return m, true
		}
	}
	return jsonMember{}, false
}

func (d *jsonText) raw(s span) jsontext.Value { return jsontext.Value(d.plain[s.start:s.end]) }

// child is the object of a member. ok is false where there is no such member.
func (d *jsonText) child(o object, name string) (child object, ok bool, err error) {
	m, ok := o.member(name)
	if !ok {
		return object{}, false, nil
	}
	child, err = d.object(m.value)
	return child, true, err
}

// edit replaces a part of a text.
type edit struct {
	span
	with string
}

// apply carries out edits, which must be in order and apart.
func apply(text []byte, edits ...edit) []byte {
	var out []byte
	from := 0
	for _, e := range edits {
		out = append(append(out, text[from:e.start]...), e.with...)
		from = e.end
	}
	return append(out, text[from:]...)
}

// newline is the line end that the document uses.
func (d *jsonText) newline() string {
	if bytes.Contains(d.text, []byte("\r\n")) {
		return "\r\n"
	}
	return "\n"
}

// indent is the space before the first thing on the line of a place.
func (d *jsonText) indent(at int) string {
	line := d.text[bytes.LastIndexByte(d.text[:at], '\n')+1 : at]
	return string(line[:len(line)-len(bytes.TrimLeft(line, " \t"))])
}

// opensLine reports whether nothing but space stands before a place on its line.
func (d *jsonText) opensLine(at int) bool {
	return len(bytes.TrimLeft(d.text[bytes.LastIndexByte(d.text[:at], '\n')+1:at], " \t")) == 0 && at > 0
}

// step is one level of indentation, as the document has it.
func (d *jsonText) step() string {
	if len(d.root.members) > 0 && d.opensLine(d.root.members[0].start) {
		if step := d.indent(d.root.members[0].start); step != "" {
			return step
		}
	}
	return "  "
}

// set sets a member of an object to a value and leaves everything else as it is.
func (d *jsonText) set(o object, name string, value any) []byte {
	if m, ok := o.member(name); ok {
		return apply(d.text, edit{m.value, d.render(value, d.indent(m.start))})
	}
	return d.insert(o, name, value)
}

// insert appends a member to an object, in the style of what is there. Its place is behind the last thing inside the
// braces, comments included.
func (d *jsonText) insert(o object, name string, value any) []byte {
	inside := d.text[o.start+1 : o.end-1]
	at := o.start + 1 + len(bytes.TrimRight(inside, " \t\r\n"))
	outer, indent := d.indent(o.start), ""
	var edits []edit
	trailing := "" // a comma after the last member, where the document has one
	if n := len(o.members); n > 0 {
		last := o.members[n-1]
		indent = outer + d.step()
		if d.opensLine(last.start) {
			indent = d.indent(last.start)
		}
		if bytes.ContainsRune(blankComments(d.text[last.end:o.end-1]), ',') {
			trailing = ","
		} else {
			edits = append(edits, edit{span{last.end, last.end}, ","})
		}
		if !bytes.ContainsRune(d.text[o.start:o.end], '\n') { // all on one line
			return apply(d.text, append(edits, edit{span{at, at}, " " + quote(name) + ": " + d.render(value, "") + trailing})...)
		}
	} else {
		indent = outer + d.step()
	}
	with := d.newline() + indent + quote(name) + ": " + d.render(value, indent) + trailing
	if !bytes.ContainsRune(d.text[at:o.end], '\n') {
		with += d.newline() + outer
	}
	return apply(d.text, append(edits, edit{span{at, at}, with})...)
}

// blankComments blanks comments alone. The text begins outside a string and holds none.
func blankComments(text []byte) []byte {
	out := bytes.Clone(text)
	for i := 0; i < len(out); i++ {
		if n := commentLen(out[i:]); n > 0 {
			spaces(out[i : i+n])
			i += n - 1
		}
	}
	return out
}

// remove takes a member out of an object, and with it one comma and the space before it.
func (d *jsonText) remove(o object, name string) []byte {
	for i, m := range o.members {
		if m.name != name {
			continue
		}
		end := o.end - 1
		if i+1 < len(o.members) {
			end = o.members[i+1].start
		}
		after := blankComments(d.text[m.end:end])
		before := o.start + 1
		if i > 0 {
			before = o.members[i-1].end
		}
		start := before + len(bytes.TrimRight(d.text[before:m.start], " \t\r\n")) // comments and the comma before stay
		if comma := bytes.IndexByte(after, ','); comma >= 0 {
			return apply(d.text, edit{span{start, m.end + comma + 1}, ""})
		}
		edits := []edit{{span{start, m.end}, ""}}
		if comma := bytes.IndexByte(blankComments(d.text[before:m.start]), ','); i > 0 && comma >= 0 {
			at := before + comma
			if at+1 == start {
				edits[0].start = at
			} else {
				edits = append([]edit{{span{at, at + 1}, ""}}, edits...)
			}
		}
		return apply(d.text, edits...)
	}
	return d.text
}

// render writes a value over several lines, the first of which stands after indent.
func (d *jsonText) render(value any, indent string) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // a path is read by people
	enc.SetIndent(indent, d.step())
	if err := enc.Encode(value); err != nil {
		panic("clients: " + err.Error()) // strings, lists and objects of our own
	}
	return strings.ReplaceAll(strings.TrimSuffix(b.String(), "\n"), "\n", d.newline())
}

func quote(s string) string {
	raw, _ := jsontext.AppendQuote(nil, s) // it is valid text
	return string(raw)
}

// others is everything that a document says but one entry: members of the root but one, and the members of that one but
// one, each as it is written without space.
func (d *jsonText) others(key, name string) (map[string]string, error) {
	out := map[string]string{}
	if d.root.end == 0 {
		return out, nil
	}
	take := func(prefix string, o object, but string) error {
		for _, m := range o.members {
			if m.name == but {
				continue
			}
			v := d.raw(m.value).Clone()
			if err := v.Compact(); err != nil {
				return err
			}
			out[prefix+m.name] = string(v)
		}
		return nil
	}
	if err := take("", d.root, key); err != nil {
		return nil, err
	}
	servers, _, err := d.child(d.root, key)
	if err != nil {
		return nil, err
	}
	return out, take(key+"\x00", servers, name)
}

// sameOthers reports whether two documents say the same but for one entry.
func sameOthers(before, after *jsonText, key, name string) bool {
	a, err := before.others(key, name)
	b, err2 := after.others(key, name)
	return err == nil && err2 == nil && maps.Equal(a, b)
}
