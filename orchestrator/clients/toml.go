package clients

import (
	"bytes"
	"errors"
	"reflect"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// tomlText is a TOML document that is edited in place, expression by expression.
type tomlText struct {
	text        []byte
	values      map[string]any
	expressions []expression
}

// expression is a comment, a key with its value, or the head of a table.
type expression struct {
	line  int      // where its first line begins
	table bool     // the head of a table or of an element of a list of tables
	path  []string // keys from the root; nil for a comment
}

// maxNesting bounds what can nest in a document, lists, tables and parts of keys: the library reads it by recursion, at
// about 1 KiB of stack a level, and a program whose stack is exhausted cannot be saved.
const maxNesting = 1 << 14

// parseTOML reads a document.
func parseTOML(text []byte) (*tomlText, error) {
	if bytes.Count(text, []byte("["))+bytes.Count(text, []byte("{"))+bytes.Count(text, []byte(".")) > maxNesting {
		return nil, errors.New("the document may nest too deep")
	}
	d := &tomlText{text: text}
	if err := toml.Unmarshal(text, &d.values); err != nil {
		return nil, err
	}
	p := unstable.Parser{KeepComments: true}
	p.Reset(text)
	var table []string
	for p.NextExpression() {
		e := p.Expression()
		switch e.Kind {
		case unstable.Comment:
			d.add(int(e.Raw.Offset), false, nil)
		case unstable.Table, unstable.ArrayTable:
			var at int
			table, at = keys(e)
			d.add(at, true, table)
		case unstable.KeyValue:
			path, at := keys(e)
			d.add(at, false, append(append([]string{}, table...), path...))
		}
	}
	return d, p.Error()
}

// keys are the parts of an expression's key, and where the first of them stands.
func keys(e *unstable.Node) (path []string, at int) {
	for it := e.Key(); it.Next(); {
		if path == nil {
			at = int(it.Node().Raw.Offset)
		}
		path = append(path, string(it.Node().Data))
	}
	return path, at
}

func (d *tomlText) add(at int, table bool, path []string) {
	line := bytes.LastIndexByte(d.text[:at], '\n') + 1
	if n := len(d.expressions); path == nil && n > 0 && d.expressions[n-1].line == line {
		return // a comment behind something belongs to it
	}
	d.expressions = append(d.expressions, expression{line, table, path})
}

// end is where an expression ends: its value and the comment behind it are over, the space before what follows is not
// its own. Values may go over several lines.
func (d *tomlText) end(i int) int {
	end := len(d.text)
	if i+1 < len(d.expressions) {
		end = d.expressions[i+1].line
	}
	from := d.expressions[i].line
	body := bytes.TrimRight(d.text[from:end], " \t\r\n")
	if n := bytes.IndexByte(d.text[from+len(body):], '\n'); n >= 0 {
		return from + len(body) + n + 1
	}
	return len(d.text)
}

// within reports whether a path lies at or below another.
func within(path []string, of ...string) bool {
	return len(path) >= len(of) && reflect.DeepEqual(path[:len(of)], of)
}

// newline is the line end that the document uses.
func (d *tomlText) newline() string {
	if bytes.Contains(d.text, []byte("\r\n")) {
		return "\r\n"
	}
	return "\n"
}

// insert appends a table with an entry.
func (d *tomlText) insert(key, name string, command []string) []byte {
	nl := d.newline()
	with := "[" + key + "." + name + "]" + nl + tomlCommand(command) + nl + tomlArgs(command) + nl
	if len(d.text) > 0 {
		with = nl + with
		if d.text[len(d.text)-1] != '\n' {
			with = nl + with
		}
	}
	return apply(d.text, edit{span{len(d.text), len(d.text)}, with})
}

// update sets command and arguments of an entry that has a table of its own. ok is false where it has none: such an
// entry is left to its author.
func (d *tomlText) update(key, name string, command []string) (text []byte, ok bool) {
	lines := map[string]string{"command": tomlCommand(command), "args": tomlArgs(command)}
	head := -1
	var edits []edit
	for i, e := range d.expressions {
		switch {
		case e.table && len(e.path) == 2 && within(e.path, key, name):
			head = i
		case head >= 0 && len(e.path) == 3 && within(e.path, key, name) && lines[e.path[2]] != "":
			edits = append(edits, edit{span{e.line, d.end(i)}, lines[e.path[2]] + d.newline()})
			delete(lines, e.path[2])
		}
	}
	if head < 0 {
		return nil, false
	}
	var more string
	for _, field := range []string{"command", "args"} {
		if line := lines[field]; line != "" {
			more += line + d.newline()
		}
	}
	if more != "" { // directly below the head, before everything that is replaced
		at := d.end(head)
		if d.text[at-1] != '\n' {
			more = d.newline() + more
		}
		edits = append([]edit{{span{at, at}, more}}, edits...)
	}
	return apply(d.text, edits...), true
}

// remove takes an entry out in whatever form it is written: tables, keys of a table, dotted keys. A blank line before
// goes with what stood at the end.
func (d *tomlText) remove(key, name string) []byte {
	var edits []edit
	for i := 0; i < len(d.expressions); i++ {
		if !within(d.expressions[i].path, key, name) {
			continue
		}
		from, last := d.expressions[i].line, i
		for j := i + 1; j < len(d.expressions); j++ {
			if within(d.expressions[j].path, key, name) {
				last = j
			} else if d.expressions[j].path != nil {
				break
			}
		}
		end := d.end(last)
		if len(bytes.TrimSpace(d.text[end:])) == 0 {
			from, end = d.withoutBlank(from), len(d.text)
		}
		edits = append(edits, edit{span{from, end}, ""})
		i = last
	}
	return apply(d.text, edits...)
}

// withoutBlank is where the blank line before a place begins, or the place itself where there is none.
func (d *tomlText) withoutBlank(at int) int {
	for _, blank := range []string{"\n\r\n", "\n\n"} {
		if bytes.HasSuffix(d.text[:at], []byte(blank)) {
			return at - len(blank) + 1
		}
	}
	return at
}

// entry is what the document says of a server.
func (d *tomlText) entry(key, name string) (value any, ok bool) {
	servers, isTable := d.values[key].(map[string]any)
	if !isTable {
		return nil, false
	}
	value, ok = servers[name]
	return value, ok
}

// others is everything that a document says but one entry.
func (d *tomlText) others(key, name string) map[string]any {
	out := map[string]any{}
	for k, v := range d.values {
		out[k] = v
	}
	servers, ok := out[key].(map[string]any)
	if !ok {
		return out
	}
	rest := map[string]any{}
	for k, v := range servers {
		if k != name {
			rest[k] = v
		}
	}
	if out[key] = rest; len(rest) == 0 {
		delete(out, key)
	}
	return out
}

func tomlCommand(command []string) string { return "command = " + tomlString(command[0]) }

func tomlArgs(command []string) string {
	var items []string
	for _, a := range command[1:] {
		items = append(items, tomlString(a))
	}
	return "args = [" + strings.Join(items, ", ") + "]"
}

// tomlString is a basic string: one of JSON is one of TOML, but for the delete character, which TOML wants escaped.
func tomlString(s string) string {
	raw, _ := jsontext.AppendQuote(nil, s) // it is valid text
	return strings.ReplaceAll(string(raw), "\x7f", `\u007f`)
}
