package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"rea/evidence"
	"rea/evidence/fault"
	"rea/orchestrator/budget"
	"rea/orchestrator/catalog"
	"rea/orchestrator/run"
	"rea/orchestrator/session"
)

// deliveryProvider made the Evidence of a diagnostic that is too large to deliver.
var deliveryProvider = evidence.Provider{ID: "rea-mcp", Name: "REA MCP delivery", Version: "1"}

const operationToolError = "mcp_tool_error"

// server answers the calls of one connection.
type server struct {
	o     Options
	conn  *conn
	limit budget.Limit
	log   *slog.Logger

	stopping context.Context // ends when running calls are to be given up
	stop     context.CancelCauseFunc

	toolList, promptList func() []byte
}

func newServer(o Options, in io.Reader, out io.Writer) *server {
	s := &server{o: o, limit: budget.NewLimit(o.ReceiveBuffer), log: o.Log}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.stopping, s.stop = context.WithCancelCause(context.Background())
	s.toolList, s.promptList = sync.OnceValue(s.tools), sync.OnceValue(s.prompts)
	s.conn = newConn(in, out, s.listing)
	return s
}

// library makes the MCP library's server. Tools are registered with a schema that admits anything, and one prompt stands
// for all: the lists, the checks and the answers are ours.
func (s *server) library() *sdk.Server {
	lib := sdk.NewServer(&sdk.Implementation{Name: s.o.Name, Version: s.o.Version}, &sdk.ServerOptions{
		Instructions: instructions,
		Logger:       s.log,
		Capabilities: &sdk.ServerCapabilities{
			Tools:       &sdk.ToolCapabilities{}, // constant: no listChanged
			Prompts:     &sdk.PromptCapabilities{ListChanged: true},
			Completions: &sdk.CompletionCapabilities{},
		},
		CompletionHandler: s.complete,
		// The versions that begin with a handshake: a session belongs to a connection.
		SupportedProtocolVersions: []string{"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"},
	})
	lib.AddReceivingMiddleware(s.recovering)
	lib.AddPrompt(&sdk.Prompt{Name: placeholder}, s.prompt)
	for _, t := range s.o.Catalog.Tools() {
		h := handlers[t.Name]
		lib.AddTool(&sdk.Tool{Name: t.Name, InputSchema: json.RawMessage(`{"type":"object"}`)},
			func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
				s.serve(ctx, s.conn.running(string(req.Params.Arguments)), t, h)
				return &sdk.CallToolResult{}, nil
			})
	}
	return lib
}

// recovering turns a panic in the handling of a request into an error of the protocol. Tools recover by themselves.
func (s *server) recovering(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (_ sdk.Result, err error) {
		defer func() {
			if p := recover(); p != nil {
				s.log.Error("panic in a handler", "method", method, "panic", p, "stack", string(debug.Stack()))
				err = errors.New("panic")
			}
		}()
		return next(ctx, method, req)
	}
}

// listing is the result of a list: the whole catalog, always the same bytes.
func (s *server) listing(method string) []byte {
	switch method {
	case methodListTools:
		return s.toolList()
	case methodListPrompts:
		return s.promptList()
	}
	return nil
}

// tools is the result of tools/list.
func (s *server) tools() []byte {
	entries := []any{}
	for _, t := range s.o.Catalog.Tools() {
		entries = append(entries, map[string]any{
			"name": t.Name, "title": t.Title(), "description": t.Description, "annotations": t.Effects.Annotations(),
			"inputSchema": t.InputSchema(), "outputSchema": t.OutputSchema(),
		})
	}
	return ours(map[string]any{"tools": entries})
}

// ours encodes what this program made itself; it cannot fail.
func ours(v any) []byte {
	raw, err := evidence.Canonical(v)
	if err != nil {
		panic("mcp: " + err.Error()) // every test meets it
	}
	return raw
}

// serve carries out one call and leaves its answer in the call.
func (s *server) serve(ctx context.Context, cl *call, t *catalog.Tool, h handler) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.stopping, func() { cancel(context.Cause(s.stopping)) })()
	var r *reporter
	if cl.token != nil {
		r = newReporter(func(number int, text string) { s.conn.progress(cl, number, text) })
	}
	answer := s.answer(ctx, cl, t, h, r.observe)
	if answer.Failed {
		r.finish("end: failed")
	} else {
		r.finish("end: complete")
	}
	cl.answer = &answer
}

// answer is what a call ends with; it always has one.
func (s *server) answer(ctx context.Context, cl *call, t *catalog.Tool, h handler, progress func(run.Progress)) budget.Answer {
	marked := !t.StateOnly
	out, err := s.carryOut(ctx, cl, t, h, progress)
	if err == nil {
		err = s.limit.Success(out.document, marked)
	}
	var document []byte
	if err == nil {
		document, err = collect(out.document)
	}
	if err == nil {
		return budget.Answer{Document: document, Marked: marked}
	}
	var excess *budget.Excess
	if errors.As(err, &excess) {
		err = s.overflow(t.Name, excess, out.evidenceID)
	}
	return budget.Answer{Document: s.diagnostic(ctx, t, err, marked), Failed: true, Marked: marked}
}

// carryOut validates and runs; a panic is a failure of this call alone.
func (s *server) carryOut(ctx context.Context, cl *call, t *catalog.Tool, h handler, progress func(run.Progress)) (out output, err error) {
	defer func() {
		if p := recover(); p != nil {
			s.log.Error("panic in a tool", "tool", t.Name, "panic", p, "stack", string(debug.Stack()))
			err = fault.New(fault.ExecutionFailure, t.Name+" failed unexpectedly.",
				"Repeat the call; if it fails again, report it with the output of rea doctor.").With("operation", t.Name)
		}
	}()
	arguments := cl.arguments
	if arguments == nil {
		arguments = jsontext.Value("{}")
	}
	if err := t.Validate(arguments); err != nil {
		return output{}, err
	}
	return h(ctx, input{session: s.o.Session, arguments: arguments, progress: progress, connection: s.connection()})
}

// collect holds a document that is known to fit.
func collect(document io.WriterTo) ([]byte, error) {
	var b bytes.Buffer
	if _, err := document.WriteTo(&b); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// diagnostic is the canonical text of a failure. One that does not fit is retained first, and a bounded one sent.
func (s *server) diagnostic(ctx context.Context, t *catalog.Tool, err error, marked bool) []byte {
	f := fault.From(err)
	s.log.Debug("tool failed", "tool", t.Name, "error", f)
	document := encodeFault(f)
	var excess *budget.Excess
	if errors.As(s.limit.Failure(text(document), marked), &excess) {
		return encodeFault(s.oversized(ctx, t.Name, f, document, excess))
	}
	return document
}

// encodeFault encodes {"error":…}. Details that do not encode are left out: the failure itself must be told.
func encodeFault(f *fault.Error) []byte {
	p := f.Project()
	raw, err := evidence.Canonical(map[string]any{"error": p})
	if err == nil {
		return raw
	}
	p.Details, p.Message, p.Remediation.Action = nil, strings.ToValidUTF8(p.Message, "\uFFFD"), strings.ToValidUTF8(p.Remediation.Action, "\uFFFD")
	raw, err = evidence.Canonical(map[string]any{"error": p})
	if err != nil {
		panic("mcp: " + err.Error()) // valid text in a fixed shape
	}
	return raw
}

// overflow is the failure of a success that does not fit.
func (s *server) overflow(operation string, excess *budget.Excess, evidenceID string) *fault.Error {
	limits := excess.Report()
	limits["default_receive_buffer_bytes"] = budget.DefaultReceiveBuffer
	limits["max_string_code_units"] = budget.MaxStringUnits
	if evidenceID != "" {
		limits["evidence_id"] = evidenceID
		limits["evidence_reference"] = reference(evidenceID)
	}
	return fault.New(fault.ResourceConstraint, "The complete result does not fit one MCP response.", s.wayOut(evidenceID != "")).WithAll(fault.Details{
		"operation": operation, "resource": "transport", "reason": "The result exceeds the configured response budget.",
		"reported_limits": limits,
	})
}

func reference(evidenceID string) map[string]any {
	return map[string]any{"kind": "retained-evidence", "evidence_id": evidenceID}
}

// wayOut says how to get at a result that does not fit, by tools that this build has.
func (s *server) wayOut(retained bool) string {
	var ways []string
	add := func(tool, way string) {
		if _, ok := s.o.Catalog.Lookup(tool); ok {
			ways = append(ways, way)
		}
	}
	if retained {
		add(catalog.InspectAnalysisView, "read it in parts with inspect_analysis_view and the reported reference")
	}
	add(catalog.GetEvidenceBundle, `list what is retained with get_evidence_bundle and detail "summary"`)
	add(catalog.ExportEvidenceBundle, "write everything to a file with export_evidence_bundle and a destination path")
	ways = append(ways, "restart the server with REA_MCP_MAX_RESPONSE_BYTES set to a larger receive buffer of the client")
	first := strings.ToUpper(ways[0][:1]) + ways[0][1:]
	return strings.Join(append([]string{first}, ways[1:]...), ", or ") + "."
}

// oversized retains a diagnostic that does not fit and returns a bounded one.
func (s *server) oversized(ctx context.Context, operation string, f *fault.Error, document []byte, excess *budget.Excess) *fault.Error {
	limits := excess.Report()
	delete(limits, "response_code_units_at_least")
	limits["original_error_code"] = f.Code
	id, err := s.retainDiagnostic(ctx, operation, document)
	if err != nil {
		limits["retention"], limits["retention_error"] = "failed", fault.From(err).Code
	} else {
		limits["evidence_reference"] = reference(id)
	}
	return fault.New(fault.ResourceConstraint, fmt.Sprintf("%s failed with %s, and the diagnostic does not fit one MCP response.", operation, f.Code),
		s.wayOut(err == nil)).WithAll(fault.Details{
		"operation": operation, "resource": "transport", "reason": "The diagnostic exceeds the configured response budget.",
		"reported_limits": limits,
	})
}

// retainDiagnostic records a diagnostic as Evidence. A cancelled call still records it: it is all that is left of it.
func (s *server) retainDiagnostic(ctx context.Context, operation string, document []byte) (string, error) {
	parameters, err := evidence.PayloadOf(map[string]any{"tool_name": operation})
	if err != nil {
		return "", err
	}
	r := &evidence.Record{
		Provider: deliveryProvider, Operation: operationToolError, Parameters: parameters,
		NormalizedResult: evidence.CanonicalPayload(document),
	}
	if err := r.Seal(); err != nil {
		return "", err
	}
	kept, err := s.o.Session.Retain(context.WithoutCancel(ctx), r)
	if err != nil {
		return "", err
	}
	return kept.ID, nil
}

// connection is what the handshake told, as binary_session reports it.
func (s *server) connection() session.Connection {
	p := s.conn.handshake()
	c := session.Connection{Protocol: p.protocol}
	if p.client != nil {
		c.Client = &session.ClientInfo{Name: textOf(member(p.client, "name")), Version: textOf(member(p.client, "version"))}
	}
	elicitation := member(p.features, "elicitation")
	form, url := member(elicitation, "form"), member(elicitation, "url")
	c.Features = session.Features{
		// An empty elicitation capability means forms: it is older than the distinction.
		ElicitationForm: elicitation != nil && (form != nil || url == nil),
		ElicitationURL:  url != nil,
		Roots:           member(p.features, "roots") != nil,
		Sampling:        member(p.features, "sampling") != nil,
	}
	return c
}

// textOf is a JSON string's value, "" for anything else.
func textOf(v jsontext.Value) string {
	if len(v) == 0 || v.Kind() != jsontext.KindString {
		return ""
	}
	b, _ := jsontext.AppendUnquote(nil, v)
	return string(b)
}
