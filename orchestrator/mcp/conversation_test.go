package mcp

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"rea/orchestrator/session/sessiontest"
)

// Each file of testdata/conversations is one connection: what is sent, then what must be received, in any order.
func TestConversations(t *testing.T) {
	files, err := filepath.Glob("testdata/conversations/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no conversations", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			c := start(t, options(&sessiontest.Analyzer{}))
			for _, part := range archive.Files {
				lines := strings.Split(strings.TrimSpace(string(part.Data)), "\n")
				switch part.Name {
				case "send":
					for _, l := range lines {
						c.send("%s", l)
					}
				case "receive":
					c.expect(lines)
				default:
					t.Fatalf("unknown part %q", part.Name)
				}
			}
			_ = c.in.Close()
			if line, ok := <-c.lines; ok {
				t.Errorf("not expected: %s", line)
			}
		})
	}
}

// expect receives as many lines as are wanted and matches each with one of them.
func (c *client) expect(want []string) {
	c.t.Helper()
	open := map[string]any{}
	for _, w := range want {
		open[w] = decodeExact(c.t, w)
	}
	for range want {
		got := c.receive()
		found := ""
		for text, w := range open {
			if matches(w, decodeExact(c.t, got)) {
				found = text
			}
		}
		if found == "" {
			c.t.Errorf("not expected: %s", got)
		}
		delete(open, found)
	}
	for text := range open {
		c.t.Errorf("not received: %s", text)
	}
}

// decodeExact keeps numbers as they are written.
func decodeExact(t *testing.T, text string) any {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return v
}

// matches compares decoded JSON; "*" stands for anything, and an object where a text is found for the JSON in it.
func matches(want, got any) bool {
	if want == "*" {
		return true
	}
	switch w := want.(type) {
	case map[string]any:
		if text, ok := got.(string); ok {
			var inner any
			d := json.NewDecoder(strings.NewReader(text))
			d.UseNumber()
			return d.Decode(&inner) == nil && matches(want, inner)
		}
		g, ok := got.(map[string]any)
		if !ok || len(g) != len(w) {
			return false
		}
		for key, value := range w {
			if other, ok := g[key]; !ok || !matches(value, other) {
				return false
			}
		}
		return true
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			return false
		}
		for i := range w {
			if !matches(w[i], g[i]) {
				return false
			}
		}
		return true
	}
	return want == got
}

// The comparison above can fail.
func TestMatches(t *testing.T) {
	for _, c := range []struct {
		want, got string
		is        bool
	}{
		{`{"a":"*"}`, `{"a":[1]}`, true}, {`{"a":1}`, `{"a":1,"b":2}`, false}, {`{"a":1,"b":2}`, `{"a":1}`, false}, {`{"a":"1"}`, `{"a":1}`, false},
		{`[1,2]`, `[1]`, false}, {`{"id":7}`, `{"id":7.0}`, false}, {`{"t":{"x":1}}`, `{"t":"{\"x\":1}"}`, true}, {`{"t":{"x":1}}`, `{"t":"{\"x\":2}"}`, false},
	} {
		if got := matches(decodeExact(t, c.want), decodeExact(t, c.got)); got != c.is {
			t.Errorf("%s against %s: %v", c.want, c.got, got)
		}
	}
}
