package wire

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// frame is the wire form of a message, put together by hand from the package comment's definition.
func frame(body string) string {
	return string(binary.BigEndian.AppendUint32(nil, uint32(len(body)))) + body
}

const (
	greeting = `{"hello":{"version":1,"worker":"w","pid":1,"uid":10001,"gid":10001,"nonce":"n",` +
		`"evidence":{"type":"tmpfs","bytes":4096,"inodes":5,"nosuid":true,"nodev":true,"noexec":true},"landlock":7}}`
	doneOne = `{"done":{"seq":1,"manifest_sha256":"` + digestA + `","manifest_bytes":9}}`
	digestA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	stepOne = `{"progress":{"seq":1,"phase":"read","text":"a","entries":1,"bytes":2}}`
)

// socketPair is the channel as the oci driver makes it.
func socketPair(t *testing.T) (core, worker *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	core, worker = os.NewFile(uintptr(fds[0]), "core"), os.NewFile(uintptr(fds[1]), "worker")
	t.Cleanup(func() { core.Close(); worker.Close() })
	return core, worker
}

func call(seq uint64) FromCore {
	return FromCore{Call: &Call{Seq: seq, Provider: "p", Operation: "o", Params: jsontext.Value(`{}`)}}
}

// TestConversation has both sides speak over a real socket pair, and compares what arrived with what was said.
func TestConversation(t *testing.T) {
	coreEnd, workerEnd := socketPair(t)
	core := NewCore(coreEnd)
	defer core.Close()
	worker := NewWorker(workerEnd, workerEnd)
	// A lone surrogate and a non-canonical number must arrive as they were sent: the digest covers the bytes.
	params := jsontext.Value(`{"a":"\ud800","b":[1.0,"é\u001f"]}`)
	said := []FromWorker{
		{Hello: &Hello{Version: Version, Worker: "v1", PID: 1, UID: 10001, GID: 10001, Nonce: digestA, Evidence: Volume{"tmpfs", 8 << 20, 500, true, true, true}, Landlock: 7}},
		{Progress: &Progress{Seq: 7, Phase: "read", Text: "né", Entries: 3, Bytes: 4}},
		{Done: &Done{Seq: 7, ManifestSHA256: digestA, ManifestBytes: 12}},
		{Fatal: &Fatal{Reason: "end"}},
	}
	asked := []FromCore{
		{Call: &Call{Seq: 7, Provider: "artifact", Operation: "inventory", Params: params, DeadlineMS: 5}},
		{Cancel: &Cancel{Seq: 7}},
		{Release: &Release{Seq: 7}},
	}
	for _, m := range asked {
		if err := core.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	var heard []FromCore
	for range asked {
		m, err := worker.Next()
		if err != nil {
			t.Fatal(err)
		}
		heard = append(heard, m)
	}
	if diff := cmp.Diff(asked, heard); diff != "" {
		t.Errorf("worker heard (-sent +received):\n%s", diff)
	}
	var got []FromWorker
	for _, m := range said {
		if err := worker.Send(m); err != nil {
			t.Fatal(err)
		}
		m, err := core.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, m)
	}
	if diff := cmp.Diff(said, got); diff != "" {
		t.Errorf("core heard (-sent +received):\n%s", diff)
	}
	workerEnd.Close()
	if _, err := core.Next(t.Context()); !errors.Is(err, io.EOF) {
		t.Errorf("after the worker's end: %v, want EOF", err)
	}
}

func TestLeash(t *testing.T) {
	coreEnd, workerEnd := socketPair(t)
	core := NewCore(coreEnd)
	if err := core.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := NewWorker(workerEnd, workerEnd).Next(); !errors.Is(err, io.EOF) {
		t.Errorf("worker sees %v when the core closes, want EOF", err)
	}
	if err := core.Send(call(1)); !errors.Is(err, ErrClosed) {
		t.Errorf("send after close: %v", err)
	}
	if _, err := core.Next(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("next after close: %v", err)
	}
}

// TestHostileFrames feeds raw bytes. The call with seq 1 is under way; want is what Next must end with: nil for a
// frame that passes, io.EOF and the like by identity, a ProtocolError by part of its reason.
func TestHostileFrames(t *testing.T) {
	text := func(n int) string {
		return `{"progress":{"seq":1,"phase":"read","text":"` + strings.Repeat("t", n) + `","entries":0,"bytes":0}}`
	}
	for _, tt := range []struct {
		name, bytes string
		pass        int // frames before the error
		want        error
		reason      string
	}{
		{name: "whole run", bytes: frame(greeting) + frame(stepOne) + frame(doneOne), pass: 3, want: io.EOF},
		{name: "nothing", want: io.EOF},
		{name: "cut in the prefix", bytes: "\x00\x00", want: io.ErrUnexpectedEOF},
		{name: "cut in the body", bytes: frame(greeting)[:20], want: io.ErrUnexpectedEOF},
		{name: "empty frame", bytes: "\x00\x00\x00\x00", reason: "frame of 0 bytes"},
		{name: "one byte too long", bytes: "\x00\x01\x00\x01", reason: "frame of 65537 bytes"},
		{name: "four gigabytes", bytes: "\xff\xff\xff\xff", reason: "frame of 4294967295 bytes"},
		{name: "not JSON", bytes: frame("hello"), reason: "parse"},
		{name: "two values", bytes: frame(greeting + "{}"), reason: "parse"},
		{name: "no member", bytes: frame("{}"), reason: "exactly one"},
		{name: "two members", bytes: frame(`{"fatal":{"reason":""},` + greeting[1:]), reason: "exactly one"},
		{name: "unknown member", bytes: frame(`{"fatal":{"reason":"","x":1}}`), reason: "parse"},
		{name: "member in other case", bytes: frame(`{"Fatal":{"reason":""}}`), reason: "parse"},
		{name: "duplicate member", bytes: frame(`{"fatal":{"reason":"a","reason":"b"}}`), reason: "parse"},
		{name: "invalid UTF-8", bytes: frame("{\"fatal\":{\"reason\":\"\xff\"}}"), reason: "parse"},
		{name: "lone surrogate", bytes: frame(`{"fatal":{"reason":"\ud800"}}`), reason: "parse"},
		{name: "number too large", bytes: frame(greeting) + frame(`{"progress":{"seq":18446744073709551616,"phase":"","text":"","entries":0,"bytes":0}}`), pass: 1, reason: "parse"},
		{name: "deep nesting", bytes: frame(`{"hello":` + strings.Repeat("[", 20000)), reason: "parse"},
		{name: "other version", bytes: frame(strings.Replace(greeting, `"version":1`, `"version":2`, 1)), reason: "out of bounds"},
		{name: "long version", bytes: frame(strings.Replace(greeting, `"w"`, `"`+strings.Repeat("w", 129)+`"`, 1)), reason: "out of bounds"},
		{name: "long reason", bytes: frame(`{"fatal":{"reason":"` + strings.Repeat("r", 1025) + `"}}`), reason: "out of bounds"},
		{name: "second hello", bytes: frame(greeting) + frame(greeting), pass: 1, reason: "second hello"},
		{name: "done before hello", bytes: frame(doneOne), reason: "no hello"},
		{name: "done twice", bytes: frame(greeting) + frame(doneOne) + frame(doneOne), pass: 2, reason: "no call under way"},
		{name: "done of another call", bytes: frame(greeting) + frame(strings.Replace(doneOne, `"seq":1`, `"seq":2`, 1)), pass: 1, reason: "no call under way"},
		{name: "digest in upper case", bytes: frame(greeting) + frame(strings.Replace(doneOne, digestA, strings.ToUpper(digestA), 1)), pass: 1, reason: "out of bounds"},
		{name: "no manifest bytes", bytes: frame(greeting) + frame(strings.Replace(doneOne, ":9", ":0", 1)), pass: 1, reason: "out of bounds"},
		{name: "longest text", bytes: frame(greeting) + frame(text(512)), pass: 2, want: io.EOF},
		{name: "text too long", bytes: frame(greeting) + frame(text(513)), pass: 1, reason: "out of bounds"},
		{name: "phase with control characters", bytes: frame(greeting) + frame(strings.Replace(stepOne, "read", `\u001b[2J`, 1)), pass: 1, reason: "out of bounds"},
		{name: "negative count", bytes: frame(greeting) + frame(strings.Replace(stepOne, `"bytes":2`, `"bytes":-2`, 1)), pass: 1, reason: "out of bounds"},
		{name: "progress of another call is dropped", bytes: frame(greeting) + frame(strings.Replace(stepOne, `"seq":1`, `"seq":9`, 1)) + frame(doneOne), pass: 2, want: io.EOF},
	} {
		t.Run(tt.name, func(t *testing.T) {
			coreEnd, workerEnd := socketPair(t)
			core := NewCore(coreEnd)
			defer core.Close()
			if err := core.Send(call(1)); err != nil {
				t.Fatal(err)
			}
			if _, err := NewWorker(workerEnd, workerEnd).Next(); err != nil {
				t.Fatal(err)
			}
			if _, err := workerEnd.WriteString(tt.bytes); err != nil {
				t.Fatal(err)
			}
			if err := unix.Shutdown(int(workerEnd.Fd()), unix.SHUT_WR); err != nil {
				t.Fatal(err)
			}
			passed := 0
			_, err := core.Next(t.Context())
			for ; err == nil; _, err = core.Next(t.Context()) {
				passed++
			}
			if passed != tt.pass {
				t.Errorf("%d frames passed before %v, want %d", passed, err, tt.pass)
			}
			var violation *ProtocolError
			switch {
			case tt.want != nil && !errors.Is(err, tt.want):
				t.Errorf("got %v, want %v", err, tt.want)
			case tt.reason != "" && !errors.As(err, &violation):
				t.Errorf("got %v, want a protocol error", err)
			case tt.reason != "" && !strings.Contains(violation.Error(), tt.reason):
				t.Errorf("got %q, want a reason with %q", violation, tt.reason)
			}
		})
	}
}

// TestTime proves the limits that are about time, in a bubble whose clock jumps.
func TestTime(t *testing.T) {
	for name, tt := range map[string]func(t *testing.T, core *Conn, worker net.Conn){
		"a frame that never ends": func(t *testing.T, core *Conn, worker net.Conn) {
			began := time.Now()
			write(t, worker, frame(greeting)[:10])
			if _, err := core.Next(t.Context()); !errors.Is(err, ErrStalled) {
				t.Errorf("got %v", err)
			}
			if d := time.Since(began); d != FrameTimeout {
				t.Errorf("after %v, want %v", d, FrameTimeout)
			}
		},
		"silence between frames is allowed": func(t *testing.T, core *Conn, worker net.Conn) {
			go func() {
				time.Sleep(24 * time.Hour)
				worker.Write([]byte(frame(greeting)))
			}()
			if m, err := core.Next(t.Context()); err != nil || m.Hello == nil {
				t.Errorf("got %v, %v", m, err)
			}
		},
		"a worker that does not read": func(t *testing.T, core *Conn, _ net.Conn) {
			if err := core.Send(call(1)); err != nil {
				t.Fatal(err)
			}
			if _, err := core.Next(t.Context()); !errors.Is(err, ErrStalled) {
				t.Errorf("got %v", err)
			}
		},
		"a full queue": func(t *testing.T, core *Conn, _ net.Conn) {
			var err error
			for i := uint64(0); err == nil && i < 100; i++ {
				err = core.Send(call(i))
			}
			if !errors.Is(err, ErrStalled) {
				t.Errorf("got %v", err)
			}
		},
		"progress is thinned": func(t *testing.T, core *Conn, worker net.Conn) {
			go read(worker)
			if err := core.Send(call(1)); err != nil {
				t.Fatal(err)
			}
			go func() {
				worker.Write([]byte(frame(greeting)))
				for range 10 * 100 { // ten seconds of a hundred a second
					worker.Write([]byte(frame(stepOne)))
					time.Sleep(10 * time.Millisecond)
				}
				worker.Write([]byte(frame(doneOne)))
			}()
			passed := 0
			for {
				m, err := core.Next(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if m.Done != nil {
					break
				}
				if m.Progress != nil {
					passed++
				}
			}
			// A burst of 20 at once, then 20 a second for ten seconds.
			if want := ProgressRate + 10*ProgressRate; passed < want-2 || passed > want+2 {
				t.Errorf("%d frames passed, want about %d", passed, want)
			}
			if c := core.Counters(); c.Dropped != int64(1000-passed) || c.Frames != 1002 {
				t.Errorf("counters %+v with %d passed", c, passed)
			}
		},
		"a flood": func(t *testing.T, core *Conn, worker net.Conn) {
			go read(worker)
			if err := core.Send(call(1)); err != nil {
				t.Fatal(err)
			}
			go func() {
				_, err := worker.Write([]byte(frame(greeting)))
				for err == nil {
					_, err = worker.Write([]byte(frame(stepOne)))
				}
			}()
			var err error
			for err == nil {
				_, err = core.Next(t.Context())
			}
			if !errors.Is(err, ErrFlood) || core.Counters().Frames != FloodFrames+1 {
				t.Errorf("got %v after %+v, want a flood at frame %d", err, core.Counters(), FloodFrames+1)
			}
		},
		"a session of many short calls is no flood": func(t *testing.T, core *Conn, end net.Conn) {
			worker := NewWorker(end, end)
			go func() {
				worker.Send(FromWorker{Hello: &Hello{Version: Version}})
				for {
					m, err := worker.Next()
					if err != nil {
						return
					}
					worker.Send(FromWorker{Done: &Done{Seq: m.Call.Seq, ManifestSHA256: digestA, ManifestBytes: 1}})
				}
			}()
			if _, err := core.Next(t.Context()); err != nil {
				t.Fatal(err)
			}
			for seq := range uint64(FloodFrames + 10) {
				if err := core.Send(call(seq)); err != nil {
					t.Fatal(err)
				}
				if _, err := core.Next(t.Context()); err != nil {
					t.Fatalf("call %d: %v", seq, err)
				}
			}
		},
		"a context that ends leaves the channel usable": func(t *testing.T, core *Conn, worker net.Conn) {
			cause := errors.New("enough")
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(cause)
			if _, err := core.Next(ctx); !errors.Is(err, cause) {
				t.Errorf("got %v", err)
			}
			go worker.Write([]byte(frame(greeting)))
			if _, err := core.Next(t.Context()); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				coreEnd, workerEnd := net.Pipe()
				core := NewCore(coreEnd)
				tt(t, core, workerEnd)
				core.Close()
				workerEnd.Close()
			})
		})
	}
}

func read(r io.Reader) { io.Copy(io.Discard, r) }

func write(t *testing.T, w io.Writer, s string) {
	t.Helper()
	if _, err := io.WriteString(w, s); err != nil {
		t.Fatal(err)
	}
}

// TestLastWords: what a worker said before it went is heard although nothing can be sent to it any more.
func TestLastWords(t *testing.T) {
	coreEnd, workerEnd := socketPair(t)
	core := NewCore(coreEnd)
	defer core.Close()
	if err := core.Send(call(1)); err != nil {
		t.Fatal(err)
	}
	if _, err := NewWorker(workerEnd, workerEnd).Next(); err != nil {
		t.Fatal(err)
	}
	write(t, workerEnd, frame(greeting)+frame(doneOne))
	workerEnd.Close()
	for core.Send(FromCore{Cancel: &Cancel{Seq: 1}}) == nil { // until the write has failed
	}
	for _, want := range []string{"hello", "done"} {
		m, err := core.Next(t.Context())
		if err != nil || (want == "done") != (m.Done != nil) {
			t.Fatalf("%s: got %+v, %v", want, m, err)
		}
	}
}

func TestWorkerRefusesItsOwnMistakes(t *testing.T) {
	w := NewWorker(strings.NewReader(""), io.Discard)
	for name, m := range map[string]FromWorker{
		"no member":     {},
		"two members":   {Fatal: &Fatal{}, Done: &Done{ManifestSHA256: digestA, ManifestBytes: 1}},
		"text too long": {Progress: &Progress{Text: strings.Repeat("x", MaxText+1)}},
	} {
		if err := w.Send(m); err == nil {
			t.Errorf("%s was sent", name)
		}
	}
	if sent, err := w.TrySend(FromWorker{Progress: &Progress{Phase: "read"}}); !sent || err != nil {
		t.Errorf("a good frame: %v, %v", sent, err)
	}
}

func TestTooLargeToSend(t *testing.T) {
	core := NewCore(struct {
		io.ReadWriter
		io.Closer
	}{&bytes.Buffer{}, io.NopCloser(nil)})
	defer core.Close()
	big := call(1)
	big.Call.Params = jsontext.Value(`"` + strings.Repeat("p", MaxCoreFrame) + `"`)
	if err := core.Send(big); err == nil {
		t.Error("a frame above the limit was sent")
	}
	if err := core.Send(FromCore{}); err == nil {
		t.Error("a frame without a member was sent")
	}
}

func TestTruncate(t *testing.T) {
	for _, tt := range []struct {
		in    string
		limit int
		want  string
	}{
		{"abc", 3, "abc"},
		{"abcd", 3, "abc"},
		{"aé", 2, "a"}, // é is two bytes
		{"aé", 3, "aé"},
		{"\xff", 3, "\uFFFD"},
		{"\xff", 2, ""}, // its replacement is three bytes
		{"a\xff\xfeb", 9, "a\uFFFDb"},
		{"\x80\x80\x80", 1, ""},
		{"", 0, ""},
	} {
		if got := Truncate(tt.in, tt.limit); got != tt.want {
			t.Errorf("Truncate(%q, %d) = %q, want %q", tt.in, tt.limit, got, tt.want)
		}
	}
}

// FuzzFromWorker: whatever arrives, decoding neither panics nor passes a frame that the encoder would refuse.
func FuzzFromWorker(f *testing.F) {
	for _, s := range []string{greeting, doneOne, stepOne, `{"fatal":{"reason":"r"}}`, `{}`} {
		f.Add([]byte(frame(s)))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		body, err := readFrame(bytes.NewReader(raw), nil, MaxWorkerFrame)
		if err != nil {
			return
		}
		m, err := decodeFromWorker(body)
		if err != nil {
			return
		}
		again, err := encodeFromWorker(m)
		if err != nil {
			t.Fatalf("accepted, but cannot be sent: %v", err)
		}
		back, err := decodeFromWorker(again[headerSize:])
		if diff := cmp.Diff(m, back); err != nil || diff != "" {
			t.Fatalf("does not survive a round trip: %v\n%s", err, diff)
		}
	})
}

// BenchmarkRoundTrip is one call and its done over a socket pair, both sides in this process.
func BenchmarkRoundTrip(b *testing.B) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		b.Fatal(err)
	}
	coreEnd, workerEnd := os.NewFile(uintptr(fds[0]), "core"), os.NewFile(uintptr(fds[1]), "worker")
	core, worker := NewCore(coreEnd), NewWorker(workerEnd, workerEnd)
	go func() {
		worker.Send(FromWorker{Hello: &Hello{Version: Version}})
		for {
			m, err := worker.Next()
			if err != nil {
				return
			}
			worker.Send(FromWorker{Done: &Done{Seq: m.Call.Seq, ManifestSHA256: digestA, ManifestBytes: 1}})
		}
	}()
	core.Next(b.Context())
	seq := uint64(0)
	for b.Loop() {
		seq++
		if err := core.Send(call(seq)); err != nil {
			b.Fatal(err)
		}
		if _, err := core.Next(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	core.Close()
	workerEnd.Close()
}
