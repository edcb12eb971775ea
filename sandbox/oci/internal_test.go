package oci

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rea/evidence/fault"
	"rea/sandbox"
	"rea/sandbox/journal"
)

func TestParseVersion(t *testing.T) {
	for text, want := range map[string]string{
		"runc version 1.1.5+ds1\ncommit: x\n": "runc 1.1.5+ds1", // Debian 12
		"runc version 1.5.3\n":                "runc 1.5.3",
		"runc version 1.2-rc.1\n":             "runc 1.2-rc.1",
		"runc version 2.0.0\n":                "runc 2.0.0",
		"runc version 1.0.3\n":                "",
		"runc version one\n":                  "",
		"crun version 1.21\n":                 "",
		"":                                    "",
	} {
		p, err := parseVersion(classes[defaultRuntime], text)
		if got := ""; err == nil {
			got = p.String()
			if got != want {
				t.Errorf("parseVersion(%q) = %q, want %q", text, got, want)
			}
		} else if want != "" {
			t.Errorf("parseVersion(%q): %v", text, err)
		}
	}
}

// The lines are those of a real contained process; each case changes one.
func TestCheckStatus(t *testing.T) {
	const good = "Name:\trea-worker\nUid:\t10001\t10001\t10001\t10001\nGid:\t10001\t10001\t10001\t10001\nGroups:\t \n" +
		"NSpid:\t4711\t1\nCapInh:\t0000000000000000\nCapPrm:\t0000000000000000\nCapEff:\t0000000000000000\n" +
		"CapBnd:\t0000000000000000\nCapAmb:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t1\nOOMScoreAdj:\t500\n"
	user := sandbox.User{UID: 10001, GID: 10001}
	if err := checkStatus(good, user); err != nil {
		t.Fatalf("a contained process is refused: %v", err)
	}
	for name, change := range map[string][2]string{
		"effective uid 0":     {"Uid:\t10001\t10001", "Uid:\t10001\t0"},
		"group":               {"Groups:\t ", "Groups:\t6 "},
		"capability":          {"CapEff:\t0000000000000000", "CapEff:\t0000000000200000"},
		"bounding set":        {"CapBnd:\t0000000000000000", "CapBnd:\t000001ffffffffff"},
		"new privileges":      {"NoNewPrivs:\t1", "NoNewPrivs:\t0"},
		"no filter":           {"Seccomp:\t2", "Seccomp:\t0"},
		"not the first":       {"NSpid:\t4711\t1", "NSpid:\t4711\t7"},
		"no pid namespace":    {"NSpid:\t4711\t1", "NSpid:\t1"},
		"spared by the OOM":   {"OOMScoreAdj:\t500", "OOMScoreAdj:\t-1000"},
		"line that is absent": {"CapAmb:\t0000000000000000\n", ""},
	} {
		changed := strings.Replace(good, change[0], change[1], 1)
		if changed == good {
			t.Fatalf("%s: nothing was changed", name)
		}
		var f *fault.Error
		if err := checkStatus(changed, user); !errors.As(err, &f) || f.Code != fault.CapabilityUnavailable {
			t.Errorf("%s: %v, want capability_unavailable", name, err)
		}
	}
}

// This process is not contained, and must be refused.
func TestVerifyProcessRefusesUncontained(t *testing.T) {
	if err := verifyProcess(os.Getpid(), sandbox.User{UID: uint32(os.Getuid()), GID: uint32(os.Getgid())}, nil); err == nil {
		t.Error("this process counts as contained")
	}
}

func TestFirstSender(t *testing.T) {
	conn, peer, err := socketpair()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// A descriptor is sent along: it must not arrive here, and the bytes must stay.
	if err := unix.Sendmsg(int(peer.Fd()), []byte("hello"), unix.UnixRights(int(peer.Fd())), nil, 0); err != nil {
		t.Fatal(err)
	}
	before := descriptors(t)
	pid, err := firstSender(context.Background(), conn)
	if err != nil || pid != os.Getpid() {
		t.Errorf("firstSender = %d, %v; want this process, %d", pid, err, os.Getpid())
	}
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors before, %d after: one was received", before, after)
	}
	peer.Close()
	buf := make([]byte, 16)
	if n, err := conn.Read(buf); string(buf[:n]) != "hello" || err != nil {
		t.Errorf("read %q, %v after the look; want hello", buf[:n], err)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestFirstSenderEnds(t *testing.T) {
	open := func() (net.Conn, *os.File) {
		conn, peer, err := socketpair()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close(); peer.Close() })
		return conn, peer
	}
	conn, peer := open()
	peer.Close()
	if _, err := firstSender(context.Background(), conn); !errors.Is(err, errSilent) {
		t.Errorf("closed channel: %v, want errSilent", err)
	}
	conn, peer = open()
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(time.Millisecond, cancel)
	if _, err := firstSender(ctx, conn); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("cancelled: %v, want the interrupted read", err)
	}
	peer.Write([]byte("x")) // the channel is as good as before
	if n, err := conn.Read(make([]byte, 1)); n != 1 || err != nil {
		t.Errorf("reading after a cancelled wait: %d, %v", n, err)
	}
}

func TestLastError(t *testing.T) {
	for text, want := range map[string]string{
		"": "",
		`{"level":"warning","msg":"w"}` + "\n" + `{"level":"error","msg":"no such \u001b file."}` + "\n" + `{"level":"debug","msg":"d"}` + "\n": `no such \x1b file`,
		"not json\n": "",
		`{"level":"error","msg":"` + strings.Repeat("x", 2*maxReason) + `"}`: strings.Repeat("x", maxReason),
	} {
		path := filepath.Join(t.TempDir(), "log")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := lastError(path); got != want {
			t.Errorf("lastError of %q = %q, want %q", text, got, want)
		}
	}
}

func TestTeardownStaysInside(t *testing.T) {
	victim := t.TempDir()
	tt := removal{runs: filepath.Join(t.TempDir(), "owner")}
	for _, kind := range []string{sandbox.KindEvidence, sandbox.KindTargetMount, sandbox.KindRunDirectory} {
		for _, path := range []string{victim, tt.runs, tt.runs + "/../x", "/", "relative"} {
			if err := tt.remove(context.Background(), journal.Entry{Kind: kind, Name: path}); err == nil {
				t.Errorf("removing %s %s was not refused", kind, path)
			}
		}
	}
	if err := tt.remove(context.Background(), journal.Entry{Kind: "other"}); err == nil {
		t.Error("an unknown kind counts as removed")
	}
	if _, err := os.Stat(victim); err != nil {
		t.Error(err)
	}
}

// A run directory that holds anything unexpected, such as a mount that could not be undone, is left alone.
func TestRunDirectoryIsNotRemovedRecursively(t *testing.T) {
	dir := rundir(t.TempDir())
	precious := filepath.Join(string(dir), "target0", "file")
	if err := errors.Join(os.Mkdir(filepath.Dir(precious), 0o755), os.WriteFile(precious, []byte("x"), 0o644), os.Mkdir(dir.bundle(), 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := dir.remove(); err == nil {
		t.Error("the directory counts as removed")
	}
	if _, err := os.Stat(precious); err != nil {
		t.Errorf("a file that was not ours: %v", err)
	}
}
