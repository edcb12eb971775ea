package mcp

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What a line means follows from JSON-RPC 2.0, sections 4 and 5.
func TestParseMessage(t *testing.T) {
	for _, c := range []struct {
		line string
		want message
		code int64
	}{
		{`{"jsonrpc":"2.0","id":0,"method":"ping"}`, message{ID: []byte("0"), Method: "ping"}, 0},
		{` {"jsonrpc":"2.0","id":"7","method":"ping","params":null} ` + "\r", message{ID: []byte(`"7"`), Method: "ping"}, 0},
		{`{"jsonrpc":"2.0","method":"x","params":{"a":[1]}}`, message{Method: "x", Params: []byte(`{"a":[1]}`)}, 0},
		{`{"jsonrpc":"2.0","id":9007199254740993,"method":"ping"}`, message{ID: []byte("9007199254740993"), Method: "ping"}, 0},
		{`{"jsonrpc":"2.0","id":1,"result":{}}`, message{ID: []byte("1"), Reply: true}, 0},
		{`{"jsonrpc":"2.0","method":"x","params":"\ud800"}`, message{Method: "x", Params: []byte(`"\ud800"`)}, 0},
		{`{"jsonrpc":"2.0","id":45,"method":`, message{}, codeParse},
		{`{"jsonrpc":"2.0","id":45,"method":"x"} {}`, message{}, codeParse},
		{"{\"jsonrpc\":\"2.0\",\"method\":\"\xff\"}", message{}, codeParse},
		{strings.Repeat("[", 100_000), message{}, codeParse},
		{`[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, message{}, codeInvalidRequest},
		{`7`, message{}, codeInvalidRequest},
		{`{}`, message{}, codeInvalidRequest},
		{`{"id":3,"method":"ping"}`, message{ID: []byte("3")}, codeInvalidRequest},
		{`{"jsonrpc":"2.0","id":3}`, message{ID: []byte("3")}, codeInvalidRequest},
		{`{"jsonrpc":"2.0","id":3,"method":7}`, message{ID: []byte("3")}, codeInvalidRequest},
		{`{"jsonrpc":"2.0","id":null,"method":"ping"}`, message{}, codeInvalidRequest},
		{`{"jsonrpc":"2.0","id":[1],"method":"ping"}`, message{}, codeInvalidRequest},
	} {
		got, werr := parseMessage([]byte(c.line))
		var code int64
		if werr != nil {
			code = werr.Code
		}
		if code != c.code {
			t.Errorf("%.60s: code %d, want %d", c.line, code, c.code)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%.60s (-want +got):\n%s", c.line, diff)
		}
	}
}

func FuzzParseMessage(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":"7","method":"ping","params":{"a":[1,"\ud800"]}}`))
	f.Add([]byte(`[{"jsonrpc":"2.0"}]`))
	f.Fuzz(func(t *testing.T, line []byte) {
		m, werr := parseMessage(line)
		if werr == nil && !json.Valid(line) {
			t.Errorf("accepted what is not JSON")
		}
		if m.ID != nil {
			_ = idKey(m.ID)
		}
		_ = checkParams(m)
		_ = (&call{}).strip(m.Params)
	})
}

func TestIDKey(t *testing.T) {
	same := [][2]string{{`7`, `7.0`}, {`7`, `70e-1`}, {`"a"`, `"\u0061"`}, {`0`, `0`}}
	for _, p := range same {
		if idKey([]byte(p[0])) != idKey([]byte(p[1])) {
			t.Errorf("%s and %s are one id", p[0], p[1])
		}
	}
	different := [][2]string{{`7`, `"7"`}, {`7`, `-7`}, {`9007199254740993`, `9007199254740992`}, {`1.5`, `1`}}
	for _, p := range different {
		if idKey([]byte(p[0])) == idKey([]byte(p[1])) {
			t.Errorf("%s and %s are two ids", p[0], p[1])
		}
	}
}

func TestReadLine(t *testing.T) {
	const limit = 10
	r := bufio.NewReaderSize(strings.NewReader("short\n"+strings.Repeat("x", 11)+"\n"+strings.Repeat("y", 9)+"\nlast"), 16)
	var got []string
	for {
		line, err := readLine(r, limit)
		if errors.Is(err, errLineTooLong) {
			got = append(got, "too long")
			continue
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			break
		}
		got = append(got, strings.TrimSpace(string(line)))
	}
	if diff := cmp.Diff([]string{"short", "too long", "yyyyyyyyy", "last"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := readLine(bufio.NewReaderSize(strings.NewReader(strings.Repeat("z", 100)), 16), limit); !errors.Is(err, errLineTooLong) {
		t.Errorf("a last line that is too long: %v", err)
	}
}
