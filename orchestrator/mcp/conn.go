package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"rea/orchestrator/budget"
)

// Methods and notifications that the transport itself looks at.
const (
	methodInitialize  = "initialize"
	methodPing        = "ping"
	methodDiscover    = "server/discover"
	methodListTools   = "tools/list"
	methodListPrompts = "prompts/list"
	methodGetPrompt   = "prompts/get"
	methodCallTool    = "tools/call"
	methodComplete    = "completion/complete"
	methodCancelled   = "notifications/cancelled"
	methodProgress    = "notifications/progress"
)

// Pieces of frames.
const (
	headOfFrame    = `{"jsonrpc":"2.0","id":`
	headOfResult   = `,"result":`
	headOfError    = `,"error":`
	headOfProgress = `{"jsonrpc":"2.0","method":"` + methodProgress + `","params":{"progressToken":`
	nullID         = "null"
	endOfFrame     = "}\n"
)

// bufferBytes is what is read or written at once: a pipe of Linux holds as much.
const bufferBytes = 64 << 10

// call is one request of the client, from the moment it was read until its answer is written or dropped.
type call struct {
	seq       int64          // the id that the library sees
	id        jsontext.Value // the id that the client sent
	method    string
	params    jsontext.Value // of prompts/get and completion/complete
	arguments jsontext.Value // of tools/call, nil for none
	token     jsontext.Value // progress token, nil for none

	answer *budget.Answer // of tools/call: set by the handler before it returns, in place of the library's result
	result []byte         // the same of prompts/get and completion/complete, JSON

	cancelled bool // by the client: no answer. Guarded by conn.mu
	done      bool // answered or dropped: no progress any more. Guarded by conn.out
}

// conn is the transport and the connection in one: it is made for one input and one output.
type conn struct {
	listing func(method string) []byte // the result of a list, nil for a method that is none
	lines   chan line
	closed  chan struct{} // Read returns io.EOF from here on
	ended   chan struct{} // the input ended: nothing new comes
	broken  chan struct{} // the output is gone

	closeOnce, endOnce sync.Once

	mu          sync.Mutex
	calls       map[int64]*call
	byID        map[string]*call
	next        int64
	idle        chan struct{} // not nil: closed when the last call is done
	initialized bool
	peer        peer

	out    sync.Mutex // held while one frame is written
	writer *bufio.Writer
}

type line struct {
	bytes []byte
	err   error
}

// peer is what the handshake told about the other side.
type peer struct {
	protocol string
	client   jsontext.Value // clientInfo
	features jsontext.Value // capabilities
}

func newConn(in io.Reader, out io.Writer, listing func(method string) []byte) *conn {
	c := &conn{
		listing: listing,
		lines:   make(chan line), closed: make(chan struct{}), ended: make(chan struct{}), broken: make(chan struct{}),
		calls: map[int64]*call{}, byID: map[string]*call{}, next: 1,
		writer: bufio.NewWriterSize(out, bufferBytes),
	}
	go c.read(bufio.NewReaderSize(in, bufferBytes))
	return c
}

// read hands over lines until the input ends or the connection is closed. A read of standard input cannot be
// interrupted on every system: this goroutine then ends with the process, which does not wait for it.
func (c *conn) read(r *bufio.Reader) {
	for {
		b, err := readLine(r, maxLine)
		select {
		case c.lines <- line{b, err}:
		case <-c.closed:
			return
		}
		if err != nil && !errors.Is(err, errLineTooLong) {
			return
		}
	}
}

// Connect implements mcp.Transport.
func (c *conn) Connect(context.Context) (sdk.Connection, error) { return c, nil }

// SessionID implements mcp.Connection; a pipe has none.
func (c *conn) SessionID() string { return "" }

// Close ends Read. What is being written is finished by its writer.
func (c *conn) Close() error {
	c.closeOnce.Do(func() { close(c.closed) })
	return nil
}

// Read returns the next message that the library has to see. What it need not see (broken lines, requests that are
// malformed, repeated ids) is answered here. After the end of the input it blocks until Close, because the library
// drops the answers of running calls as soon as Read fails.
func (c *conn) Read(ctx context.Context) (jsonrpc.Message, error) {
	for {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-c.closed:
			return nil, io.EOF
		case l := <-c.lines:
			if l.err != nil && !errors.Is(l.err, errLineTooLong) {
				c.endOnce.Do(func() { close(c.ended) })
				continue
			}
			if m := c.accept(l); m != nil {
				return m, nil
			}
		}
	}
}

// accept turns a line into a message for the library, or deals with it and returns nil.
func (c *conn) accept(l line) *jsonrpc.Request {
	if l.err != nil {
		c.refuse(nil, invalidRequest(l.err.Error()))
		return nil
	}
	if len(bytes.TrimSpace(l.bytes)) == 0 {
		return nil
	}
	m, werr := parseMessage(l.bytes)
	switch {
	case werr != nil:
		c.refuse(m.ID, werr)
	case m.Reply: // an answer to a request that this server never makes
	case m.ID == nil:
		return c.notification(m)
	default:
		return c.request(m)
	}
	return nil
}

// notification translates a cancellation to the library's id and passes everything else on.
func (c *conn) notification(m message) *jsonrpc.Request {
	if m.Method != methodCancelled {
		return &jsonrpc.Request{Method: m.Method, Params: json.RawMessage(m.Params)}
	}
	id := member(m.Params, "requestId")
	if len(id) == 0 {
		return nil
	}
	key := idKey(id)
	c.mu.Lock()
	defer c.mu.Unlock()
	cl := c.byID[key]
	if cl == nil || cl.method == methodInitialize {
		return nil // answered already, unknown, or not cancellable: the protocol says to ignore it
	}
	cl.cancelled = true
	delete(c.byID, key) // nothing will be answered under this id, so the client may use it again
	return &jsonrpc.Request{Method: methodCancelled, Params: json.RawMessage(`{"requestId":` + strconv.FormatInt(cl.seq, 10) + `}`)}
}

// request registers a call and gives it an id of our own, so that the client's comes back byte for byte.
func (c *conn) request(m message) *jsonrpc.Request {
	if werr := checkParams(m); werr != nil {
		c.refuse(m.ID, werr)
		return nil
	}
	cl, werr := c.register(m)
	switch {
	case werr != nil && cl != nil:
		// With its id, the client would take this for the answer of the request that is still running.
		c.refuse(nil, werr)
		return nil
	case werr != nil:
		c.refuse(m.ID, werr)
		return nil
	}
	params := json.RawMessage(m.Params)
	switch m.Method {
	case methodCallTool:
		params = cl.strip(m.Params)
	case methodGetPrompt:
		cl.params, params = m.Params, cl.stub(promptStub)
	case methodComplete:
		cl.params, params = m.Params, cl.stub(completionStub)
	}
	return &jsonrpc.Request{ID: libraryID(cl.seq), Method: m.Method, Params: params}
}

// register enters a call. With an error it returns the running call that has the id, if that is the reason.
func (c *conn) register(m message) (*call, *wireError) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := idKey(m.ID)
	switch {
	case c.byID[key] != nil:
		return c.byID[key], invalidRequest("the id of a running request is used again")
	case !c.initialized && m.Method != methodInitialize && m.Method != methodPing && m.Method != methodDiscover:
		return nil, invalidRequest("initialize comes first")
	case c.initialized && m.Method == methodInitialize:
		return nil, invalidRequest("initialize came already")
	case m.Method == methodInitialize:
		c.initialized = true
		c.peer.client, c.peer.features = bytes.Clone(member(m.Params, "clientInfo")), bytes.Clone(member(m.Params, "capabilities"))
	}
	cl := &call{seq: c.next, id: bytes.Clone(m.ID), method: m.Method}
	c.next++
	c.calls[cl.seq], c.byID[key] = cl, cl
	return cl, nil
}

// strip keeps the arguments, which may be tens of MB and nested as deep as Evidence may be, away from the library. It
// sees the tool's name, and the number of the call in their place.
func (cl *call) strip(params jsontext.Value) json.RawMessage {
	members, _ := topLevel(params) // checkParams has read them
	if t := member(members["_meta"], "progressToken"); len(t) > 0 && (t.Kind() == jsontext.KindString || t.Kind() == jsontext.KindNumber) {
		cl.token = t
	}
	if a := members["arguments"]; len(a) > 0 && a.Kind() != jsontext.KindNull {
		cl.arguments = a
	}
	stub := append([]byte(`{"name":`), members["name"]...)
	stub = append(stub, `,"arguments":`...)
	stub = strconv.AppendInt(stub, cl.seq, 10)
	return append(stub, '}')
}

// What the library sees of requests that are carried out here: it checks their form and hands them on, with the number
// of the call in the place of %d.
const (
	placeholder    = "placeholder"
	promptStub     = `{"name":"` + placeholder + `","arguments":{"call":"%d"}}`
	completionStub = `{"ref":{"type":"ref/prompt","name":"` + placeholder + `"},"argument":{"name":"%d","value":""}}`
)

func (cl *call) stub(form string) json.RawMessage { return fmt.Appendf(nil, form, cl.seq) }

// running finds the call that the library's stub names.
func (c *conn) running(stub string) *call {
	seq, err := strconv.ParseInt(stub, 10, 64)
	if err != nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls[seq]
}

// Write sends what the library has to say. An answer to a call that the client cancelled is dropped; one that a
// handler prepared replaces the library's.
func (c *conn) Write(_ context.Context, m jsonrpc.Message) error {
	switch m := m.(type) {
	case *jsonrpc.Response:
		c.respond(m)
	default:
		raw, err := jsonrpc.EncodeMessage(m)
		if err != nil {
			return err
		}
		c.frame(func(w *bufio.Writer) error { return write(w, raw, []byte("\n")) })
	}
	return nil
}

func (c *conn) respond(r *jsonrpc.Response) {
	seq, _ := r.ID.Raw().(int64)
	c.mu.Lock()
	cl := c.calls[seq]
	if cl == nil {
		c.mu.Unlock()
		return
	}
	dropped := cl.cancelled
	if !dropped { // the client may use the id again as soon as it has the answer
		delete(c.byID, idKey(cl.id))
	}
	if cl.method == methodInitialize && r.Error == nil {
		p, _ := jsontext.AppendUnquote(nil, member(jsontext.Value(r.Result), "protocolVersion"))
		c.peer.protocol = string(p)
	}
	c.mu.Unlock()
	defer c.finish(cl)
	c.frame(func(w *bufio.Writer) error {
		cl.done = true
		if dropped {
			return nil
		}
		return c.answer(w, cl, r)
	})
}

func (c *conn) answer(w *bufio.Writer, cl *call, r *jsonrpc.Response) error {
	if err := write(w, []byte(headOfFrame), cl.id); err != nil {
		return err
	}
	switch {
	case r.Error != nil:
		raw, err := encodeError(wireErrorOf(r.Error))
		if err != nil {
			return err
		}
		return write(w, []byte(headOfError), raw, []byte(endOfFrame))
	case cl.answer != nil:
		if err := write(w, []byte(headOfResult)); err != nil {
			return err
		}
		if _, err := cl.answer.WriteTo(w); err != nil {
			return err
		}
		return write(w, []byte(endOfFrame))
	case cl.result != nil:
		return write(w, []byte(headOfResult), cl.result, []byte(endOfFrame))
	}
	if list := c.listing(cl.method); list != nil {
		return write(w, []byte(headOfResult), list, []byte(endOfFrame))
	}
	return write(w, []byte(headOfResult), r.Result, []byte(endOfFrame))
}

// refuse answers a message that the library does not see. The id is nil where it is unknown.
func (c *conn) refuse(id jsontext.Value, werr *wireError) {
	if id == nil {
		id = jsontext.Value(nullID)
	}
	raw, err := encodeError(werr)
	if err != nil {
		return
	}
	c.frame(func(w *bufio.Writer) error {
		return write(w, []byte(headOfFrame), id, []byte(headOfError), raw, []byte(endOfFrame))
	})
}

// progress sends one notification for cl unless its answer is out, or it needs none.
func (c *conn) progress(cl *call, number int, text string) {
	raw, err := jsontext.AppendQuote(nil, text)
	if err != nil {
		return
	}
	c.mu.Lock()
	dropped := cl.cancelled
	c.mu.Unlock()
	if dropped {
		return
	}
	c.frame(func(w *bufio.Writer) error {
		if cl.done {
			return nil
		}
		return write(w, []byte(headOfProgress), cl.token, []byte(`,"progress":`), strconv.AppendInt(nil, int64(number), 10),
			[]byte(`,"message":`), raw, []byte("}"+endOfFrame))
	})
}

// frame writes one frame as a whole, and nothing after Close. The first failure breaks the output for good, since half
// a frame cannot be taken back. The library is not told: it would stop answering, and running calls would never be
// accounted for. Serve is, and cancels them.
func (c *conn) frame(put func(*bufio.Writer) error) {
	c.out.Lock()
	defer c.out.Unlock()
	select {
	case <-c.closed: // Serve has returned, or is about to: the output is no longer ours
		return
	case <-c.broken:
		return
	default:
	}
	err := put(c.writer)
	if err == nil {
		err = c.writer.Flush()
	}
	if err != nil {
		close(c.broken)
	}
}

func write(w *bufio.Writer, parts ...[]byte) error {
	for _, p := range parts {
		if _, err := w.Write(p); err != nil {
			return err
		}
	}
	return nil
}

// finish forgets a call.
func (c *conn) finish(cl *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.calls, cl.seq)
	if len(c.calls) == 0 && c.idle != nil {
		close(c.idle)
		c.idle = nil
	}
}

// whenIdle returns a channel that is closed when no call is running.
func (c *conn) whenIdle() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.calls) == 0 {
		done := make(chan struct{})
		close(done)
		return done
	}
	if c.idle == nil {
		c.idle = make(chan struct{})
	}
	return c.idle
}

// handshake returns what is known of the client.
func (c *conn) handshake() peer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.peer
}

// libraryID makes an id of the library's type.
func libraryID(seq int64) jsonrpc.ID {
	id, _ := jsonrpc.MakeID(float64(seq)) // exact: a connection does not see 2^53 calls
	return id
}

// member finds one member of an object; nil where there is none.
func member(object jsontext.Value, name string) jsontext.Value {
	if len(object) == 0 || object.Kind() != jsontext.KindBeginObject {
		return nil
	}
	members, err := topLevel(object)
	if err != nil {
		return nil
	}
	return members[name]
}

// wireErrorOf projects an error of the library. One without a code is a failure inside a handler: its text stays here.
func wireErrorOf(err error) *wireError {
	var e *jsonrpc.Error
	if errors.As(err, &e) && e.Code != 0 {
		return &wireError{Code: e.Code, Message: err.Error(), Data: jsontext.Value(e.Data)}
	}
	return &wireError{Code: codeInternal, Message: "Internal error."}
}
