package doctor

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// maxFrame bounds one line of a server: above every response budget that makes sense, below what would hurt.
const maxFrame = 64 << 20

// conversation is the client's side of MCP over a pair of pipes, as little of it as an examination needs. It is no
// library's, so that a fault of the server's library does not meet its twin here.
type conversation struct {
	in   io.WriteCloser
	out  *bufio.Reader
	last int
}

func newConversation(in io.WriteCloser, out io.Reader) *conversation {
	return &conversation{in: in, out: bufio.NewReaderSize(out, 64<<10)}
}

// call makes a request and returns its result. Notifications that come before the answer are passed over; anything else
// on the server's output is an error.
func (c *conversation) call(method string, params any) (jsontext.Value, error) {
	c.last++
	if err := c.send(map[string]any{"jsonrpc": "2.0", "id": c.last, "method": method, "params": params}); err != nil {
		return nil, err
	}
	for {
		line, err := c.line()
		if err != nil {
			return nil, fmt.Errorf("no answer to %s: %w", method, err)
		}
		var m struct {
			JSONRPC string         `json:"jsonrpc"`
			ID      jsontext.Value `json:"id"`
			Method  string         `json:"method"`
			Result  jsontext.Value `json:"result"`
			Error   *struct {
				Code    int    `json:"code"`
				Message string `json:"message"`
			} `json:"error"`
		}
		if err := json.Unmarshal(line, &m); err != nil || m.JSONRPC != "2.0" {
			return nil, errors.New("something other than a frame of the protocol is on the server's standard output")
		}
		switch {
		case m.ID == nil && m.Method != "":
		case string(m.ID) != fmt.Sprint(c.last):
			return nil, fmt.Errorf("an answer to another request than %s came", method)
		case m.Error != nil:
			return nil, fmt.Errorf("%s was answered with error %d: %.500s", method, m.Error.Code, m.Error.Message)
		default:
			return m.Result, nil
		}
	}
}

func (c *conversation) notify(method string) error {
	return c.send(map[string]any{"jsonrpc": "2.0", "method": method})
}

func (c *conversation) send(message any) error {
	raw, err := json.Marshal(message)
	if err != nil {
		return err
	}
	if _, err := c.in.Write(append(raw, '\n')); err != nil {
		return errors.New("the server does not read its input")
	}
	return nil
}

// line is one line of bounded length.
func (c *conversation) line() ([]byte, error) {
	var line []byte
	for {
		part, err := c.out.ReadSlice('\n')
		if len(line)+len(part) > maxFrame {
			return nil, fmt.Errorf("a line is longer than %d bytes", maxFrame)
		}
		line = append(line, part...)
		switch {
		case err == nil:
			return line, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, errors.New("the server's output ended")
		}
	}
}

// close ends the server's input and reads to the end of its output, which must hold nothing more.
func (c *conversation) close() error {
	if err := c.in.Close(); err != nil {
		return errors.New("the server's input could not be closed")
	}
	if n, _ := io.Copy(io.Discard, io.LimitReader(c.out, maxFrame)); n > 0 {
		return deviation("Something follows the last answer on its standard output.")
	}
	return nil
}

// maxTail bounds what is kept of a server's standard error.
const maxTail = 16 << 10

// tail keeps the last bytes that are written to it.
type tail struct{ kept []byte }

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p[max(0, len(p)-maxTail):]...)
	t.kept = t.kept[max(0, len(t.kept)-maxTail):]
	return len(p), nil
}

func (t *tail) text() string { return strings.ToValidUTF8(string(t.kept), "\uFFFD") }
