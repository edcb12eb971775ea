package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"rea/evidence"
	"rea/orchestrator/catalog"
	"rea/orchestrator/run"
	"rea/orchestrator/session"
	"rea/orchestrator/session/sessiontest"
)

// serverVariable makes the test binary a server on its standard input and output, so that clients that are not ours
// talk to a process.
const serverVariable = "REA_TEST_MCP_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(serverVariable) != "" {
		os.Exit(serveProcess())
	}
	goleak.VerifyTestMain(m,
		// Idle connections to the engine, kept by its driver for the next run.
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"))
}

// options is a server over a fake analyzer.
func options(a *sessiontest.Analyzer) Options {
	c := catalog.Builtin()
	return Options{
		Name: "rea", Version: "1.2.3", Catalog: c, Log: slog.New(slog.DiscardHandler),
		Session: session.New(session.Options{Analyzer: a, Catalog: c, Server: session.Server{
			Name: "rea", Version: "1.2.3", RootPath: "/opt/rea", CommandPath: "/opt/rea/rea", Commands: []string{"mcp"},
		}}),
	}
}

// client speaks raw lines with a server in this process.
type client struct {
	t     *testing.T
	in    *io.PipeWriter
	lines chan string // closed when the output ends
	ended chan error  // what Serve returned
	stop  context.CancelCauseFunc
}

func start(t *testing.T, o Options) *client {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	ctx, stop := context.WithCancelCause(context.Background())
	c := &client{t: t, in: inW, lines: make(chan string, 1000), ended: make(chan error, 1), stop: stop}
	go func() {
		c.ended <- Serve(ctx, o, inR, outW)
		_ = outW.Close()
		_ = inR.Close()
		stop(nil)
	}()
	go func() {
		defer close(c.lines)
		r := bufio.NewReader(outR)
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			c.lines <- strings.TrimSuffix(line, "\n")
		}
	}()
	t.Cleanup(func() {
		_ = inW.Close()
		for range c.lines { // until the output ends
		}
	})
	return c
}

func (c *client) send(format string, args ...any) {
	c.t.Helper()
	if _, err := fmt.Fprintf(c.in, format+"\n", args...); err != nil {
		c.t.Fatal(err)
	}
}

// receive returns the next line; the test fails where the output ended.
func (c *client) receive() string {
	c.t.Helper()
	line, ok := <-c.lines
	if !ok {
		c.t.Fatal("the output ended")
	}
	return line
}

// initialize does the handshake.
func (c *client) initialize() string {
	c.t.Helper()
	c.send(`{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{"roots":{},"elicitation":{}},"clientInfo":{"name":"raw","version":"9"}}}`)
	answer := c.receive()
	c.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return answer
}

// reply is a response as a test looks at it.
type reply struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Result  *struct {
		Content []struct {
			Type string `json:"type"`
			Text string `json:"text"`
		} `json:"content"`
		Structured json.RawMessage `json:"structuredContent"`
		IsError    bool            `json:"isError"`
		Meta       json.RawMessage `json:"_meta"`
	} `json:"result"`
	Error *struct {
		Code    int             `json:"code"`
		Message string          `json:"message"`
		Data    json.RawMessage `json:"data"`
	} `json:"error"`
}

func parse(t *testing.T, line string) reply {
	t.Helper()
	var r reply
	d := json.NewDecoder(strings.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		t.Fatalf("%v in %.300s", err, line)
	}
	return r
}

// call does one tools/call and returns its result.
func (c *client) call(tool, arguments string) reply {
	c.t.Helper()
	c.send(`{"jsonrpc":"2.0","id":"call","method":"tools/call","params":{"name":%q,"arguments":%s}}`, tool, arguments)
	r := parse(c.t, c.receive())
	if string(r.ID) != `"call"` || r.Result == nil {
		c.t.Fatalf("%s: no result: %+v", tool, r)
	}
	return r
}

// failure is the diagnostic of a failed call; the wire form of the contract (4.1) is checked on the way.
func failure(t *testing.T, r reply) map[string]any {
	t.Helper()
	if !r.Result.IsError || r.Result.Structured != nil || len(r.Result.Content) != 1 || string(r.Result.Meta) != markerText {
		t.Fatalf("not the wire form of a failure: %+v", r.Result)
	}
	var d struct{ Error map[string]any }
	decoder := json.NewDecoder(strings.NewReader(r.Result.Content[0].Text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&d); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"code", "category", "message", "retryable", "remediation"} {
		if _, ok := d.Error[key]; !ok {
			t.Errorf("%s is missing in %v", key, d.Error)
		}
	}
	return d.Error
}

// markerText is the published marker of the contract (5.3).
const markerText = `{"provenance":{"untrusted_content":true,"source":"analysis_target"}}`

// success is the document of a successful call: the same bytes in both forms, marked.
func success(t *testing.T, r reply) []byte {
	t.Helper()
	if r.Result.IsError || len(r.Result.Content) != 1 || r.Result.Content[0].Type != "text" || string(r.Result.Meta) != markerText {
		t.Fatalf("not the wire form of a success: %.500s", r.Result.Content[0].Text)
	}
	if r.Result.Content[0].Text != string(r.Result.Structured) {
		t.Errorf("text and structure differ")
	}
	return r.Result.Structured
}

// identify gives every path the same bytes.
func identify(_ context.Context, path string, _ func(run.Progress)) (session.Identity, error) {
	return session.Identity{Path: path, SHA256: strings.Repeat("ab", 32), Format: "zip", Kind: session.Archive}, nil
}

// extraction is a record that satisfies the schema of extract_artifact.
func extraction(note string) *evidence.Record {
	hex := strings.Repeat("1", 64)
	return sessiontest.Record(catalog.ExtractArtifact, map[string]any{
		"manifest": map[string]any{"manifest_id": "agm_" + hex, "root_artifact_id": "art_" + hex, "root_sha256": hex, "root_format": "zip",
			"graph_sha256": hex, "node_count": 1, "occurrence_count": 1, "edge_count": 0},
		"extraction_manifest": map[string]any{"extraction_id": "aex_" + hex, "source_manifest_id": "agm_" + hex,
			"selected_occurrence_ids": []string{"occ_" + hex}, "files_sha256": hex, "output_root_alias": "$OUTPUT_ROOT"},
		"output_root": "/tmp/out", "artifacts": []any{map[string]any{"artifact_id": "art_" + hex, "relative_path": note, "sha256": hex, "bytes_written": 1, "created": true}},
		"containment_verified": true, "cleanup": map[string]any{"attempted": false, "verified": true, "residual_paths": []string{}},
		"provenance": []any{}, "limitations": []string{}, "integrity_contradictions": []any{},
	})
}

// serveProcess is the server of the process tests. Its extraction blocks until it is cancelled where the path says so.
func serveProcess() int {
	a := &sessiontest.Analyzer{OnIdentify: identify, OnExtract: func(ctx context.Context, path string, _ session.ExtractOptions, p func(run.Progress)) (*evidence.Record, error) {
		p(run.Progress{Phase: "analyze", Entries: 1})
		if os.Getenv(serverVariable) == "block" {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}
		return extraction("a <b> \u2028 \"c\" é😀"), nil
	}}
	ctx, stop := signalContext()
	defer stop()
	if err := Serve(ctx, options(a), os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 143
	}
	return 0
}

// eventually ends a test that hangs with the goroutines that hang; it asserts no time.
func eventually[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(time.Minute):
		panic("nothing came within a minute")
	}
}

func mustJSON(t *testing.T, raw []byte, into any) {
	t.Helper()
	if err := json.NewDecoder(bytes.NewReader(raw)).Decode(into); err != nil {
		t.Fatal(err)
	}
}
