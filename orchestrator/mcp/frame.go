package mcp

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// maxLine is the longest request line in bytes. A comparison takes two whole Evidence records inline, tens of MB each;
// beyond this the reference form is the way. It bounds what one mistaken client can make the server hold.
const maxLine = 256 << 20

// errLineTooLong is a line that was read to its end and thrown away.
var errLineTooLong = fmt.Errorf("the line exceeds %d bytes: pass Evidence by reference", maxLine)

// readLine reads one line of at most limit bytes, without its line break. A longer one is skipped and reported as
// errLineTooLong. A last line without a line break counts.
func readLine(r *bufio.Reader, limit int) ([]byte, error) {
	var line []byte
	tooLong := false
	for {
		part, err := r.ReadSlice('\n')
		if !tooLong && len(line)+len(part) > limit {
			tooLong, line = true, nil
		}
		if !tooLong {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case tooLong && (err == nil || errors.Is(err, io.EOF)):
			return nil, errLineTooLong
		case errors.Is(err, io.EOF) && len(line) > 0:
			return line, nil
		}
		return line, err
	}
}

// message is one JSON-RPC message as it stands on the wire: nothing of it is interpreted, so nothing of it is lost.
type message struct {
	ID     jsontext.Value // nil where absent
	Method string
	Params jsontext.Value // nil where absent or null
	Reply  bool           // a response
}

// wireError is an error of the protocol, not of a tool.
type wireError struct {
	Code    int64          `json:"code"`
	Message string         `json:"message"`
	Data    jsontext.Value `json:"data,omitzero"`
}

func (e *wireError) Error() string { return e.Message }

// Codes of JSON-RPC 2.0.
const (
	codeParse          = -32700
	codeInvalidRequest = -32600
	codeInvalidParams  = -32602
	codeInternal       = -32603
)

func invalidRequest(text string) *wireError {
	return &wireError{Code: codeInvalidRequest, Message: "Invalid request: " + text + "."}
}

// parseMessage reads one line. The error says what the line is not; the message then still holds the id where one
// could be read.
func parseMessage(line []byte) (message, *wireError) {
	members, err := topLevel(line)
	if err != nil {
		return message{}, &wireError{Code: codeParse, Message: "Parse error: the line is not one JSON object in UTF-8."}
	}
	if members == nil {
		return message{}, invalidRequest("a message is one object; batches are not part of this protocol")
	}
	var m message
	if id := members["id"]; len(id) > 0 {
		if k := id.Kind(); k != jsontext.KindString && k != jsontext.KindNumber {
			return m, invalidRequest("an id is a string or a number")
		}
		m.ID = id
	}
	if v, _ := jsontext.AppendUnquote(nil, members["jsonrpc"]); string(v) != "2.0" {
		return m, invalidRequest(`jsonrpc is "2.0"`)
	}
	method, named := members["method"]
	if !named {
		_, result := members["result"]
		_, failure := members["error"]
		if m.Reply = result || failure; !m.Reply {
			return m, invalidRequest("a message has a method, a result or an error")
		}
		return m, nil
	}
	name, err := jsontext.AppendUnquote(nil, method)
	if err != nil {
		return m, invalidRequest("method is a string")
	}
	m.Method = string(name)
	if p := members["params"]; len(p) > 0 && p.Kind() != jsontext.KindNull {
		m.Params = p
	}
	return m, nil
}

// topLevel returns the members of the object that line is, as parts of line; a repeated member takes its last value.
// It returns nil without an error for another JSON value.
func topLevel(line []byte) (map[string]jsontext.Value, error) {
	if !utf8.Valid(line) {
		return nil, errors.New("not UTF-8")
	}
	// Invalid UTF-8 is excluded above; what the option admits is the escape of a lone surrogate, which is valid JSON.
	d := jsontext.NewDecoder(bytes.NewBuffer(line), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if d.PeekKind() != jsontext.KindBeginObject {
		if err := d.SkipValue(); err != nil {
			return nil, err
		}
		return nil, trailing(d)
	}
	if _, err := d.ReadToken(); err != nil {
		return nil, err
	}
	members := map[string]jsontext.Value{}
	for d.PeekKind() != jsontext.KindEndObject {
		t, err := d.ReadToken()
		if err != nil {
			return nil, err
		}
		name := t.String()
		value, err := d.ReadValue()
		if err != nil {
			return nil, err
		}
		end := d.InputOffset()
		members[name] = line[end-int64(len(value)) : end : end]
	}
	if _, err := d.ReadToken(); err != nil {
		return nil, err
	}
	return members, trailing(d)
}

func trailing(d *jsontext.Decoder) error {
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return errors.New("more than one value")
	}
	return nil
}

// idKey is what two ids share exactly when they are the same id: the type and the value.
func idKey(id jsontext.Value) string {
	if id.Kind() == jsontext.KindString {
		s, _ := jsontext.AppendUnquote(nil, id)
		return "s" + string(s)
	}
	text := string(id)
	if _, err := strconv.ParseInt(text, 10, 64); err == nil {
		return "n" + text
	}
	if f, err := strconv.ParseFloat(text, 64); err == nil && f == math.Trunc(f) && math.Abs(f) < 1<<53 {
		return "n" + strconv.FormatInt(int64(f), 10)
	}
	return "n" + text
}
