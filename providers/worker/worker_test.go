package worker

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"rea/evidence/fault"
	"rea/evidence/volume"
	"rea/providers/wire"
	"rea/sandbox"
)

func TestPathsAreThoseOfTheSandbox(t *testing.T) {
	got := []string{targetPath, evidencePath, scratchPath}
	if diff := cmp.Diff([]string{sandbox.TargetDir, sandbox.EvidencePath, sandbox.ScratchPath}, got); diff != "" {
		t.Error(diff)
	}
}

// landlockABI asks the kernel itself.
func landlockABI() int {
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(abi)
}

// TestHello compares what the worker sees with what the test gave to mount(2).
func TestHello(t *testing.T) {
	for _, stdio := range []bool{false, true} {
		r := start(t, setup{stdio: stdio})
		want := &wire.Hello{
			Version: wire.Version, Worker: "test", PID: 1, UID: runUID, GID: runUID, Nonce: nonce, Landlock: landlockABI(),
			Evidence: wire.Volume{Type: "tmpfs", Bytes: 8 << 20, Inodes: 500, NoSUID: true, NoDev: true, NoExec: true},
		}
		if diff := cmp.Diff(want, r.hello()); diff != "" {
			t.Errorf("stdio %v (-want +got):\n%s", stdio, diff)
		}
	}
}

func TestRefusesToStart(t *testing.T) {
	for want, setup := range map[string]setup{
		"not PID 1":    {notFirst: true},
		"no_new_privs": {privileged: true},
	} {
		r := start(t, setup)
		m := r.next()
		if m.Fatal == nil || !strings.Contains(m.Fatal.Reason, want) {
			t.Errorf("got %+v, want a fatal with %q", m.Fatal, want)
		}
		if code := r.end(); code != exitRefused {
			t.Errorf("%s: exit code %d", want, code)
		}
	}
}

func TestAnswers(t *testing.T) {
	empty := map[string]string{}
	whole := map[string]string{"files/whole": "whole"}
	for _, tt := range []struct {
		operation string
		params    string
		outcome   volume.Outcome
		code      fault.Code
		exhausted volume.Quota
		files     map[string]string
		quota     string
	}{
		{operation: "echo", params: `{"a":"\ud800"}`, outcome: volume.Completed, files: map[string]string{"result.json": `{"a":"\ud800"}`}},
		{operation: "duplicate", outcome: volume.Completed, files: map[string]string{"files/a": "first"}},
		{operation: "fault", outcome: volume.Failed, code: fault.UnsupportedTarget, files: whole},
		{operation: "panic", outcome: volume.Failed, code: fault.ExecutionFailure, files: whole},
		{operation: "plain", outcome: volume.Failed, code: fault.ExecutionFailure, files: empty},
		{operation: "unencodable", outcome: volume.Failed, code: fault.UnsupportedTarget, files: empty},
		{operation: "none of ours", outcome: volume.Failed, code: fault.CapabilityUnavailable, files: empty},
		{operation: "bytes", quota: "size=1m,nr_inodes=500", outcome: volume.Failed, code: fault.ResourceConstraint, exhausted: volume.ExhaustedBytes, files: empty},
		{operation: "deaf", quota: "size=1m,nr_inodes=500", outcome: volume.Failed, code: fault.ResourceConstraint, exhausted: volume.ExhaustedBytes, files: empty},
		{operation: "inodes", quota: "size=8m,nr_inodes=20", outcome: volume.Failed, code: fault.ResourceConstraint, exhausted: volume.ExhaustedInodes,
			// 20 inodes: the root, the nonce, the folder, the manifest, files/, and 15 files. Checked below by count.
			files: nil},
	} {
		t.Run(tt.operation, func(t *testing.T) {
			r := start(t, setup{quota: tt.quota})
			r.hello()
			m, files := r.answer(1, tt.operation, or(tt.params, "{}"))
			var code fault.Code
			if m.Error != nil {
				code = m.Error.Code
			}
			if m.Outcome != tt.outcome || code != tt.code || m.Exhausted != tt.exhausted {
				t.Errorf("got %s, %q, exhausted %q, want %s, %q, %q", m.Outcome, code, m.Exhausted, tt.outcome, tt.code, tt.exhausted)
			}
			if tt.files == nil && len(files) != 15 {
				t.Errorf("%d files", len(files))
			} else if diff := cmp.Diff(tt.files, files); tt.files != nil && diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
			if m.Error != nil && (strings.Contains(m.Error.Message, "secret") || strings.Contains(m.Error.Message, "stays inside")) {
				t.Errorf("the message shows what must not leave: %q", m.Error.Message)
			}
		})
	}
}

// The core's digest reaches the call that it is for, the first one alone, and no other.
func TestDigest(t *testing.T) {
	r := start(t, setup{})
	r.hello()
	r.send(wire.FromCore{Call: &wire.Call{Seq: 1, Provider: "test", Operation: "digest", Params: jsontext.Value(`{}`), Mark: "a mark"}})
	for seq, sum := range map[uint64]string{2: "another call's", 9: "nobody's"} {
		r.send(wire.FromCore{Digest: &wire.Digest{Seq: seq, SHA256: sum}})
	}
	for _, sum := range []string{"first", "second"} {
		r.send(wire.FromCore{Digest: &wire.Digest{Seq: 1, SHA256: sum}})
	}
	d, _ := r.done()
	if _, files := r.read(d, "{}"); files["result.json"] != `["a mark","first"]` {
		t.Errorf("the call saw %s", files["result.json"])
	}
}

func TestFilesAndTarget(t *testing.T) {
	r := start(t, setup{})
	r.hello()
	m, files := r.answer(1, "files", "{}")
	want := map[string]string{"result.json": `{"a":1}`, "raw/out.txt": "raw, left open"}
	for i := range 20 {
		want[fmt.Sprintf("files/%d/%d", i%3, i)] = strings.Repeat("f", i)
	}
	if diff := cmp.Diff(want, files); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(&volume.TargetSeen{SHA256: strings.Repeat("ab", 32), Unreadable: []string{"x"}}, m.Target); diff != "" {
		t.Errorf("target (-want +got):\n%s", diff)
	}
}

// TestCrowdedVolume fills a volume with so many whole files that their manifest does not fit into what was kept for
// it: the worker must still commit to something true. r.answer checks that the folder holds what the manifest says.
func TestCrowdedVolume(t *testing.T) {
	r := start(t, setup{quota: "size=8m,nr_inodes=5000"})
	r.hello()
	m, files := r.answer(1, "crowded", "{}")
	if m.Outcome != volume.Failed || m.Exhausted != volume.ExhaustedBytes {
		t.Errorf("got %s, exhausted %q", m.Outcome, m.Exhausted)
	}
	// 8 MiB are 2048 pages, 17 of them kept for the manifest and used by the nonce. A file costs at least 110 bytes of
	// manifest, so 64 KiB hold less than 600 of some 2030; half of what there was has to go.
	if len(files) < 500 || len(files) > 1200 {
		t.Errorf("%d files are left", len(files))
	}
}

// TestReserve fills the volume with what the frame cannot give up: the room that was kept is all there is.
func TestReserve(t *testing.T) {
	r := start(t, setup{quota: "size=1m,nr_inodes=500"})
	r.hello()
	if m, _ := r.answer(1, "litter", "{}"); m.Outcome != volume.Completed {
		t.Errorf("got %s", m.Outcome)
	}
}

func TestManyUnreadable(t *testing.T) {
	r := start(t, setup{})
	r.hello()
	m, _ := r.answer(1, "unreadable", "{}")
	if listed := int64(len(m.Target.Unreadable)); listed == 0 || listed+m.Target.Omitted != 100_005 {
		t.Errorf("%d listed, %d omitted of 100,005", listed, m.Target.Omitted)
	}
}

func TestScratch(t *testing.T) {
	r := start(t, setup{})
	r.hello()
	_, files := r.answer(1, "scratch", "{}")
	dir := strings.Trim(files["result.json"], `"`)
	if filepath.Dir(dir) != filepath.Join(r.dir, "scratch") {
		t.Errorf("scratch at %s", dir)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("scratch after the call: %v", err)
	}
}

func TestProgressIsBounded(t *testing.T) {
	r := start(t, setup{})
	r.hello()
	r.call(1, "progress", "{}")
	_, progress := r.done()
	if c := r.core.Counters(); c.Dropped > 0 {
		t.Errorf("the core had to drop %d frames", c.Dropped)
	}
	first, last := progress[0], progress[len(progress)-1]
	if diff := cmp.Diff(wire.Progress{Seq: 1, Phase: "count", Text: strings.Repeat("t", wire.MaxText)}, first); diff != "" {
		t.Errorf("first (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(wire.Progress{Seq: 1, Phase: "last", Entries: 1, Bytes: 2}, last); diff != "" {
		t.Errorf("last (-want +got):\n%s", diff)
	}
}

func TestCancelAndDeadline(t *testing.T) {
	for _, tt := range []struct {
		operation string
		deadline  int64 // milliseconds; 0 cancels instead
		outcome   volume.Outcome
		code      fault.Code
		files     map[string]string
	}{
		{operation: "wait", outcome: volume.Cancelled, code: fault.Cancelled, files: map[string]string{}},
		{operation: "partial", outcome: volume.Cancelled, code: fault.Cancelled, files: map[string]string{"result.json": `{"partial":true}`}},
		{operation: "stubborn", outcome: volume.Completed, files: map[string]string{"result.json": `{"whole":true}`}},
		{operation: "wait", deadline: 1, outcome: volume.Failed, code: fault.ProviderTimeout, files: map[string]string{}},
	} {
		r := start(t, setup{})
		r.hello()
		r.send(wire.FromCore{Call: &wire.Call{Seq: 4, Provider: "test", Operation: tt.operation, Params: jsontext.Value(`{}`), DeadlineMS: tt.deadline}})
		if tt.deadline == 0 {
			if m := r.next(); m.Progress == nil {
				t.Fatalf("got %+v", m)
			}
			r.send(wire.FromCore{Cancel: &wire.Cancel{Seq: 3}}) // another call's cancel is nobody's
			r.send(wire.FromCore{Cancel: &wire.Cancel{Seq: 4}})
		}
		d, _ := r.done()
		m, files := r.read(d, "{}")
		var code fault.Code
		if m.Error != nil {
			code = m.Error.Code
		}
		if diff := cmp.Diff(tt.files, files); m.Outcome != tt.outcome || code != tt.code || diff != "" {
			t.Errorf("%s: %s, %q, want %s, %q; files (-want +got):\n%s", tt.operation, m.Outcome, code, tt.outcome, tt.code, diff)
		}
	}
}

// TestManyCalls: one call runs at a time, a waiting one can be cancelled, and a release frees its folder.
func TestManyCalls(t *testing.T) {
	r := start(t, setup{})
	r.hello()
	r.call(1, "wait", "{}")
	if m := r.next(); m.Progress == nil {
		t.Fatalf("got %+v", m)
	}
	r.call(2, "echo", `{"b":2}`)
	r.call(3, "echo", `{"c":3}`)
	r.send(wire.FromCore{Cancel: &wire.Cancel{Seq: 3}})
	d, _ := r.done()
	if m, _ := r.read(d, `{"c":3}`); d.Seq != 3 || m.Outcome != volume.Cancelled {
		t.Errorf("first done of call %d, %s; want call 3, cancelled while it waited", d.Seq, m.Outcome)
	}
	r.send(wire.FromCore{Cancel: &wire.Cancel{Seq: 1}})
	if d, _ = r.done(); d.Seq != 1 {
		t.Errorf("then done of call %d, want 1", d.Seq)
	}
	d, _ = r.done()
	if _, files := r.read(d, `{"b":2}`); d.Seq != 2 || files["result.json"] != `{"b":2}` {
		t.Errorf("then done of call %d with %v", d.Seq, files)
	}
	r.send(wire.FromCore{Release: &wire.Release{Seq: 2}})
	r.answer(4, "echo", `{}`) // the release was handled before this call
	left, err := filepath.Glob(filepath.Join(r.evidence, "[0-9]*"))
	must(t, err)
	for i := range left {
		left[i] = filepath.Base(left[i])
	}
	if diff := cmp.Diff([]string{"1", "3", "4"}, left); diff != "" {
		t.Errorf("folders (-want +got):\n%s", diff)
	}
}

// TestMemory: of the program's share an eighth is left for what the Go runtime does not count: 7/8 of 80 million.
func TestMemory(t *testing.T) {
	r := start(t, setup{args: []string{"--memory=80000000"}})
	r.hello()
	if _, files := r.answer(1, "memory", "{}"); files["result.json"] != "70000000" {
		t.Errorf("limit %s", files["result.json"])
	}
}

func TestOnce(t *testing.T) {
	r := start(t, setup{args: []string{"--once"}})
	r.hello()
	r.answer(1, "echo", "{}")
	r.send(wire.FromCore{Release: &wire.Release{Seq: 1}})
	if code := r.end(); code != exitReleased {
		t.Errorf("exit code %d", code)
	}
}

// TestLeash: when the core lets go, the worker and all that its handler started are gone, whatever they are doing. The
// rig's end returns when nothing holds the worker's standard error, which the grandchild inherited.
func TestLeash(t *testing.T) {
	for name, stdio := range map[string]bool{"socket": false, "pipes": true} {
		t.Run(name, func(t *testing.T) {
			r := start(t, setup{stdio: stdio})
			r.hello()
			r.call(1, "orphan", "{}")
			if m := r.next(); m.Progress == nil {
				t.Fatalf("got %+v", m)
			}
			must(t, r.core.Close())
			if code := r.end(); code != exitCut {
				t.Errorf("exit code %d", code)
			}
		})
	}
	t.Run("idle", func(t *testing.T) {
		r := start(t, setup{})
		r.hello()
		must(t, r.core.Close())
		if code := r.end(); code != exitReleased {
			t.Errorf("exit code %d", code)
		}
	})
}

// TestSignals: a process of the same uid sends PID 1 every signal there is. With --allow-not-pid1 the worker catches
// none: the check can fail.
func TestSignals(t *testing.T) {
	r := start(t, setup{})
	r.hello()
	_, files := r.answer(1, "signals", "{}")
	if files["result.json"] != "61" { // 64 signals less the three that belong to C libraries and the runtime
		t.Errorf("%s signals were sent", files["result.json"])
	}
	if _, files := r.answer(2, "echo", `{}`); files["result.json"] != `{}` {
		t.Error("no answer after the signals")
	}
	control := start(t, setup{args: []string{"--allow-not-pid1"}})
	control.hello()
	control.call(1, "signals", "{}")
	if _, err := control.core.Next(t.Context()); !errors.Is(err, io.EOF) {
		t.Errorf("a worker that catches no signal goes on: %v", err)
	}
}

// TestChildInherits: a child has fresh standard streams and no way to the channel or to PID 1's memory.
func TestChildInherits(t *testing.T) {
	for _, stdio := range []bool{false, true} {
		r := start(t, setup{stdio: stdio})
		r.hello()
		_, files := r.answer(1, "child", "{}")
		// Output and errors are the handler's pipes, the only things besides /dev/null that exec.Cmd gives.
		if diff := cmp.Diff("0=/dev/null 1=pipe 2=pipe mem=true fds=true", files["result.json"]); diff != "" {
			t.Errorf("stdio %v (-want +got):\n%s", stdio, diff)
		}
	}
}

func TestLandlock(t *testing.T) {
	if landlockABI() == 0 {
		t.Skip("this kernel has no Landlock")
	}
	r := start(t, setup{})
	open := filepath.Join(r.dir, "open")
	must(t, os.Mkdir(open, 0o777))
	must(t, os.Chmod(open, 0o777))
	must(t, os.WriteFile(filepath.Join(open, "secret"), nil, 0o644))
	pipe := filepath.Join(r.dir, "target", "pipe")
	must(t, unix.Mkfifo(pipe, 0o666))
	must(t, os.Chmod(pipe, 0o666))
	reader, err := os.OpenFile(pipe, os.O_RDONLY|unix.O_NONBLOCK, 0)
	must(t, err)
	defer reader.Close()
	r.hello()
	_, files := r.answer(1, "reach", "{}")
	want := "target= pipe=EACCES elsewhere=EACCES create=EACCES scratch= "
	if diff := cmp.Diff(want, files["result.json"]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestParse(t *testing.T) {
	for _, args := range [][]string{{"--channel"}, {"--memory=x"}, {"--unknown"}, {"word"}} {
		if _, err := parse(args); err == nil {
			t.Errorf("%q was accepted", args)
		}
	}
	got, err := parse([]string{"--channel=fd3", "--memory=7", "--once"})
	if err != nil || got != (settings{channel: "fd3", memory: 7, once: true}) {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := takeChannel(""); err == nil {
		t.Error("a worker without a channel was made")
	}
}

// TestMountType reads lines in the form that the manual page of the mount table gives.
func TestMountType(t *testing.T) {
	table := strings.Join([]string{
		`22 1 0:5 / / rw,relatime - ext4 /dev/root rw`,
		`36 22 98:0 /mnt1 /evidence rw,noatime master:1 - ext3 /dev/root rw,errors=continue`,
		`37 36 0:77 / /evidence rw,nosuid - tmpfs tmpfs rw,size=8192k`,
		`38 22 0:78 / /with\040blank rw - ramfs none rw`,
		`39 22 0:79 / /evidence/deeper rw - proc none rw`,
		`bad line`,
	}, "\n")
	for dir, want := range map[string]string{"/evidence": "tmpfs", "/with blank": "ramfs", "/": "ext4", "/target": ""} {
		if got, err := mountType(strings.NewReader(table), dir); got != want || err != nil {
			t.Errorf("%s: %q, %v, want %q", dir, got, err, want)
		}
	}
}

// TestDescribePlainDirectory: a directory that is no mount has no type, so that the core refuses it.
func TestDescribePlainDirectory(t *testing.T) {
	got, err := describe(t.TempDir())
	if err != nil || got.Type != "" || got.Bytes == 0 {
		t.Errorf("got %+v, %v", got, err)
	}
	if nonce, err := readNonce(filepath.Join(t.TempDir(), "nonce")); nonce != "" || err != nil {
		t.Errorf("no nonce: %q, %v", nonce, err)
	}
	long := filepath.Join(t.TempDir(), "nonce")
	must(t, os.WriteFile(long, make([]byte, 65), 0o600))
	if _, err := readNonce(long); err == nil {
		t.Error("a nonce of another length was accepted")
	}
}

// TestSelftest runs the provider that doctor runs.
func TestSelftest(t *testing.T) {
	r := start(t, setup{})
	r.hello()
	r.send(wire.FromCore{Call: &wire.Call{Seq: 1, Provider: "selftest", Operation: "noop", Params: jsontext.Value(`{}`)}})
	d, _ := r.done()
	if _, files := r.read(d, "{}"); files["result.json"] != `{"ok":true}` {
		t.Errorf("got %v", files)
	}
}
