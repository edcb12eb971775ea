package mcp

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"rea/evidence/store"
	"rea/orchestrator/catalog"
	"rea/orchestrator/session/sessiontest"
)

// asker is one client of a server in this process.
type asker struct {
	in    io.Writer
	lines *bufio.Reader
}

func ask(b *testing.B, o Options) asker {
	b.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- Serve(context.Background(), o, inR, outW)
		_ = outW.Close()
	}()
	a := asker{inW, bufio.NewReaderSize(outR, 1<<20)}
	b.Cleanup(func() {
		_ = inW.Close()
		_, _ = io.Copy(io.Discard, a.lines)
		<-ended
	})
	a.request(b, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}`)
	return a
}

func (a asker) request(b *testing.B, text string) int {
	b.Helper()
	if _, err := io.WriteString(a.in, text+"\n"); err != nil {
		b.Fatal(err)
	}
	line, err := a.lines.ReadBytes('\n')
	if err != nil || bytes.Contains(line, []byte(`"isError":true`)) || bytes.Contains(line, []byte(`"error":{`)) {
		b.Fatalf("%v %.300s", err, line)
	}
	return len(line)
}

func callText(tool, arguments string) string {
	return `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"` + tool + `","arguments":` + arguments + `}}`
}

// Calls that start no container; the contract's figure is 2 ms.
func BenchmarkSessionCalls(b *testing.B) {
	a := ask(b, options(&sessiontest.Analyzer{}))
	for _, c := range []struct{ tool, arguments string }{
		{"binary_session", `{}`}, {"list_unknowns", `{}`}, {"get_evidence_bundle", `{"detail":"summary"}`},
		{"guided_workflows", `{"action":"list"}`}, {"search_guidance", `{"query":"compare versions"}`},
	} {
		b.Run(c.tool, func(b *testing.B) {
			for b.Loop() {
				a.request(b, callText(c.tool, c.arguments))
			}
		})
	}
}

// The first tools/list of a server renders every schema; the contract's figure is 60 ms with the start of the process.
func BenchmarkFirstList(b *testing.B) {
	for b.Loop() {
		s := newServer(options(&sessiontest.Analyzer{}), strings.NewReader(""), io.Discard)
		b.ReportMetric(float64(len(s.listing(methodListTools))), "bytes")
		_ = s.conn.Close()
	}
}

// filled is a session that retains so many records of so many bytes in a store on disk.
func filled(b *testing.B, records, size int) (Options, *sessiontest.Analyzer) {
	b.Helper()
	st, err := store.Open(b.TempDir(), store.Options{})
	if err != nil {
		b.Fatal(err)
	}
	lease, err := st.Lease("bench")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = lease.Close() })
	a := &sessiontest.Analyzer{Keeper: lease}
	o := options(a)
	text := strings.Repeat("x", size)
	for i := range records {
		if _, err := o.Session.Retain(b.Context(), sessiontest.Record("sample_operation", map[string]any{"n": i, "text": text})); err != nil {
			b.Fatal(err)
		}
	}
	return o, a
}

// A summary of 10,000 records, from the call to the last byte of the frame; the contract's figure is 50 ms.
func BenchmarkSummary10000(b *testing.B) {
	o, _ := filled(b, 10_000, 10)
	s := newServer(o, strings.NewReader(""), io.Discard)
	defer func() { _ = s.conn.Close() }()
	tool, _ := o.Catalog.Lookup(catalog.GetEvidenceBundle)
	for b.Loop() {
		cl := &call{id: jsontext.Value("1"), method: methodCallTool, arguments: jsontext.Value(`{"detail":"summary"}`)}
		s.serve(b.Context(), cl, tool, getEvidenceBundle)
		if cl.answer.Failed {
			b.Fatalf("%.300s", cl.answer.Document)
		}
		n, err := cl.answer.WriteTo(io.Discard)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(n), "bytes")
	}
}

// What a server holds for 10,000 records of 100 kB; the contract's figure is 128 MiB for the process.
func BenchmarkMemory10000(b *testing.B) {
	for b.Loop() {
		o, _ := filled(b, 10_000, 100_000)
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		b.ReportMetric(float64(m.HeapAlloc)/(1<<20), "MiB-heap")
		b.ReportMetric(float64(m.Sys)/(1<<20), "MiB-sys")
		runtime.KeepAlive(o)
	}
}

// A bundle of 256 MiB out of one session and into another; what must not grow with it is the heap.
func BenchmarkBundle256MiB(b *testing.B) {
	for b.Loop() {
		benchmarkBundle(b, 256, 1<<20)
	}
}

func benchmarkBundle(b *testing.B, records, size int) {
	b.Helper()
	o, _ := filled(b, records, size)
	path := b.TempDir() + "/e.json"
	a := ask(b, o)
	peak := watchHeap(b)
	a.request(b, callText("export_evidence_bundle", fmt.Sprintf(`{"path":%q}`, path)))
	other, _ := filled(b, 0, 0)
	a = ask(b, other)
	a.request(b, callText("import_evidence_bundle", fmt.Sprintf(`{"path":%q}`, path)))
	b.ReportMetric(float64(peak())/(1<<20), "MiB-peak-heap")
}

// watchHeap returns a function that stops watching and says what the heap's peak was.
func watchHeap(b *testing.B) func() uint64 {
	b.Helper()
	stop, done := make(chan struct{}), make(chan uint64)
	go func() {
		var peak uint64
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			peak = max(peak, m.HeapInuse)
			select {
			case <-stop:
				done <- peak
				return
			default:
				runtime.Gosched()
			}
		}
	}()
	return func() uint64 { close(stop); return <-done }
}
