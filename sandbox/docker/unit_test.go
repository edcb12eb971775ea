package docker

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/system"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"rea/evidence/fault"
	"rea/sandbox"
	"rea/sandbox/journal"
)

// fails checks code and details of an error, and that it says what to do.
func fails(t *testing.T, err error, code fault.Code, details fault.Details) *fault.Error {
	t.Helper()
	var f *fault.Error
	if !errors.As(err, &f) {
		t.Fatalf("got %v, want %s", err, code)
	}
	if f.Code != code || f.Action == "" {
		t.Errorf("got %v with action %q, want %s", f, f.Action, code)
	}
	for key, want := range details {
		if diff := cmp.Diff(want, f.Details[key]); diff != "" {
			t.Errorf("detail %s (-want +got):\n%s", key, diff)
		}
	}
	return f
}

func TestNewRefusesRemoteEngines(t *testing.T) {
	for _, host := range []string{
		"tcp://127.0.0.1:2375", "ssh://root@engine", "npipe:////./pipe/docker_engine", "http://x", "/var/run/docker.sock",
		"unix://", "unix://relative/sock",
	} {
		_, err := New(Options{Host: host})
		f := fails(t, err, fault.ConfigurationInvalid, nil)
		if len(host) > len("unix://") && strings.Contains(f.Message+f.Action, host) {
			t.Errorf("%s is echoed", host)
		}
	}
	d, err := New(Options{})
	if err != nil || d.socket != "/var/run/docker.sock" {
		t.Errorf("default: %+v, %v", d, err)
	}
}

// engineAt is a driver for an engine that a test makes up.
func engineAt(t *testing.T, socket string) *Driver {
	t.Helper()
	d, err := New(Options{Host: "unix://" + socket})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func TestAbsentEngine(t *testing.T) {
	dir := t.TempDir()
	stale := filepath.Join(dir, "stale")
	l, err := net.Listen("unix", stale)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	for socket, says := range map[string]string{filepath.Join(dir, "none"): "apt-get install docker.io", stale: "systemctl start docker"} {
		d := engineAt(t, socket)
		_, err := d.Create(context.Background(), sandbox.Spec{}, nil)
		f := fails(t, err, fault.CapabilityUnavailable, fault.Details{"engine": "docker", "image": nil, "feature": "engine"})
		if !strings.Contains(f.Action, says) {
			t.Errorf("action is %q", f.Action)
		}
		facts, err := d.Probe(context.Background())
		if err != nil || facts.Available || facts.Reason != f.Message || facts.Action != f.Action {
			t.Errorf("probe: %+v, %v", facts, err)
		}
	}
}

func TestAbsenceOfPermission(t *testing.T) {
	err := &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", unix.EACCES)}
	if message, action := engineAt(t, "/").absence(err); !strings.Contains(message, "may not") || !strings.Contains(action, "usermod") {
		t.Errorf("%q %q", message, action)
	}
}

func TestCancelledContact(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := engineAt(t, filepath.Join(t.TempDir(), "none")).Create(ctx, sandbox.Spec{}, nil)
	fails(t, err, fault.Cancelled, nil)
}

func TestNewEngine(t *testing.T) {
	got := newEngine(system.Info{
		ServerVersion: "20.10.24", CgroupDriver: "systemd", CgroupVersion: "2", DockerRootDir: "/var/lib/docker/100000.200000",
		Runtimes:        map[string]system.RuntimeWithStatus{"runc": {}, "runsc": {}},
		SecurityOptions: []string{"name=seccomp,profile=default", "name=userns", "name=cgroupns"},
	}, "1.41")
	want := &engine{
		version: "20.10.24", api: "1.41", cgroupDriver: "systemd", cgroupVersion: "2", seccomp: true, remapped: true,
		remapUID: 100000, remapGID: 200000, dataRoot: "/var/lib/docker/100000.200000", runtimes: map[string]string{"runc": "", "runsc": ""},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(engine{})); diff != "" {
		t.Errorf("engine (-want +got):\n%s", diff)
	}
	if reason, _ := got.unusable("runsc"); reason != "" {
		t.Errorf("refused: %s", reason)
	}
	for name, e := range map[string]*engine{
		"no seccomp":    {runtimes: got.runtimes},
		"no such class": {seccomp: true, runtimes: map[string]string{"crun": ""}},
		"remap unknown": {seccomp: true, remapped: true, runtimes: got.runtimes},
	} {
		if reason, action := e.unusable(""); reason == "" || action == "" {
			t.Errorf("%s was not refused", name)
		}
	}
}

func TestEnvironment(t *testing.T) {
	got := environment([]string{"PATH=/x", "A=b=c"}, []string{"LD_PRELOAD=/evil.so", "A=other", "HOME", "PATH=/image"})
	want := []string{"PATH=/x", "A=b=c", "HOSTNAME", "LD_PRELOAD", "HOME"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
}

// TestReadBack changes one field after another of an answer that is as it was asked for.
func TestReadBack(t *testing.T) {
	answer := func() (*request, container.InspectResponse) {
		memory := int64(1 << 20)
		want := &request{
			container.Config{Image: "sha256:1", Labels: map[string]string{"a": "b"}, Env: []string{"A=1"}},
			container.HostConfig{ReadonlyRootfs: true, Resources: container.Resources{PidsLimit: &memory}, Init: new(bool)},
		}
		want.host.Mounts = append(want.host.Mounts, bindMount("/x", "/target/artifact", true, false))
		config, host := want.config, want.host
		return want, container.InspectResponse{
			ContainerJSONBase: &container.ContainerJSONBase{Image: "sha256:1", HostConfig: &host}, Config: &config,
			Mounts: []container.MountPoint{{Type: "bind", Source: "/x", Destination: "/target/artifact"}},
		}
	}
	yes := true
	none := int64(0)
	tests := map[string]struct {
		change func(*container.InspectResponse)
		field  string
	}{
		"nothing":         {func(*container.InspectResponse) {}, ""},
		"null for empty":  {func(i *container.InspectResponse) { i.HostConfig.Init = nil; i.Config.Cmd = []string{} }, ""},
		"another image":   {func(i *container.InspectResponse) { i.Image = "sha256:2" }, "Image"},
		"a label more":    {func(i *container.InspectResponse) { i.Config.Labels = map[string]string{"a": "b", "c": "d"} }, "Config.Labels.c"},
		"a variable more": {func(i *container.InspectResponse) { i.Config.Env = []string{"A=1", "B=2"} }, "Config.Env"},
		"a health check": {func(i *container.InspectResponse) {
			i.Config.Healthcheck = &container.HealthConfig{Test: []string{"CMD"}}
		}, "Config.Healthcheck"},
		"writable root":  {func(i *container.InspectResponse) { i.HostConfig.ReadonlyRootfs = false }, "HostConfig.ReadonlyRootfs"},
		"no pids limit":  {func(i *container.InspectResponse) { i.HostConfig.PidsLimit = nil }, "HostConfig.PidsLimit"},
		"unlimited pids": {func(i *container.InspectResponse) { i.HostConfig.PidsLimit = &none }, "HostConfig.PidsLimit"},
		"init":           {func(i *container.InspectResponse) { i.HostConfig.Init = &yes }, "HostConfig.Init"},
		"privileged":     {func(i *container.InspectResponse) { i.HostConfig.Privileged = true }, "HostConfig.Privileged"},
		"a mount more": {func(i *container.InspectResponse) {
			i.Mounts = append(i.Mounts, container.MountPoint{Type: "volume", Destination: "/v"})
		}, "Mounts"},
		"a writable mount":    {func(i *container.InspectResponse) { i.Mounts[0].RW = true }, "Mounts"},
		"no host config":      {func(i *container.InspectResponse) { i.HostConfig = nil }, "HostConfig"},
		"a lost bind option":  {func(i *container.InspectResponse) { i.HostConfig.Mounts = nil }, "HostConfig.Mounts"},
		"another user":        {func(i *container.InspectResponse) { i.Config.User = "0" }, "Config.User"},
		"an added capability": {func(i *container.InspectResponse) { i.HostConfig.CapAdd = []string{"SYS_ADMIN"} }, "HostConfig.CapAdd"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			want, got := answer()
			test.change(&got)
			err := readBack(want, got)
			if test.field == "" {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			fails(t, err, fault.CapabilityUnavailable, fault.Details{"fields": []string{test.field}})
		})
	}
}

// frame is a frame of the engine's multiplexed stream, written after its API description: stream, three zeros, size.
func frame(stream byte, content string) string {
	head := [8]byte{stream}
	binary.BigEndian.PutUint32(head[4:], uint32(len(content)))
	return string(head[:]) + content
}

// dialog is a channel over a pair of sockets; the second end plays the engine.
func dialog(t *testing.T, diag io.Writer) (*channel, *net.UnixConn) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s")})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ours, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	engine, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	c := newChannel(types.NewHijackedResponse(ours, ""), diag)
	t.Cleanup(func() { c.end(); engine.Close() })
	return c, engine
}

func TestChannel(t *testing.T) {
	var diag sandbox.Capture
	c, engine := dialog(t, &diag)
	fmt.Fprint(engine, frame(1, "hel"), frame(2, "oops"), frame(1, "lo"))
	got := make([]byte, 5)
	if _, err := io.ReadFull(c, got); err != nil || string(got) != "hello" {
		t.Fatalf("read %q, %v", got, err)
	}
	if _, err := c.Write([]byte("call")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(engine, got[:4]); err != nil || string(got[:4]) != "call" {
		t.Fatalf("the engine read %q, %v", got, err)
	}
	if err := c.SetReadDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(got); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read past its deadline: %v", err)
	}
	// Closing ends the container's standard input, and what it says afterwards is still captured.
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := engine.Read(got); err != io.EOF {
		t.Errorf("the engine read on: %v", err)
	}
	fmt.Fprint(engine, frame(1, strings.Repeat("x", 1<<16)), frame(2, " again"))
	engine.CloseWrite()
	<-c.pumped
	if got := string(diag.Bytes()); got != "oops again" {
		t.Errorf("captured %q", got)
	}
}

func TestChannelEndsWithTheContainer(t *testing.T) {
	c, engine := dialog(t, io.Discard)
	engine.Close()
	if n, err := c.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("read %d, %v", n, err)
	}
}

// TestParseLeaf holds lines as three kinds of host print them.
func TestParseLeaf(t *testing.T) {
	const id = "0123456789abcdef"
	tests := map[string]struct {
		data string
		want *leaf
	}{
		"v1": {"5:memory:/docker/" + id + "\n4:pids:/docker/" + id + "\n3:cpu,cpuacct:/docker/" + id + "\n0::/docker/" + id + "\n",
			&leaf{"/sys/fs/cgroup/memory/docker/" + id, "/sys/fs/cgroup/pids/docker/" + id, "/sys/fs/cgroup/cpu/docker/" + id, "/sys/fs/cgroup/cpuacct/docker/" + id, false}},
		"v2": {"0::/system.slice/docker-" + id + ".scope\n",
			&leaf{"/sys/fs/cgroup/system.slice/docker-" + id + ".scope", "/sys/fs/cgroup/system.slice/docker-" + id + ".scope", "/sys/fs/cgroup/system.slice/docker-" + id + ".scope", "/sys/fs/cgroup/system.slice/docker-" + id + ".scope", true}},
		"somebody else's": {"0::/user.slice/session-1.scope\n", nil},
		"half":            {"5:memory:/docker/" + id + "\n4:pids:/\n0::/docker/" + id + "\n", nil},
		"nonsense":        {"::\n\nx", nil},
	}
	for name, test := range tests {
		if diff := cmp.Diff(test.want, parseLeaf([]byte(test.data), id), cmp.AllowUnexported(leaf{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestLeafOfUnifiedHost reads files laid out as cgroup-v2.rst describes them.
func TestLeafOfUnifiedHost(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"memory.max": "134217728\n", "memory.swap.max": "0\n", "pids.max": "64\n", "cpu.max": "50000 100000\n",
		"memory.peak": "1000\n", "memory.events": "low 0\noom 3\noom_kill 2\n", "pids.current": "5\n", "pids.events": "max 7\n",
		"cpu.stat": "usage_usec 1500\nuser_usec 1\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l := &leaf{dir, dir, dir, dir, true}
	limits := sandbox.Limits{Memory: 128<<20 + 5, PIDs: 64, CPU: 0.5}
	if field := l.verify(limits); field != "" {
		t.Errorf("%s differs", field)
	}
	for field, other := range map[string]sandbox.Limits{
		"memory": {Memory: 64 << 20, PIDs: 64, CPU: 0.5}, "pids": {Memory: 128 << 20, PIDs: 65, CPU: 0.5}, "cpu": {Memory: 128 << 20, PIDs: 64, CPU: 1},
	} {
		if got := l.verify(other); got != field {
			t.Errorf("another %s limit: %q differs", field, got)
		}
	}
	cpu, peak, kills, now, refused := 1500*time.Microsecond, int64(1000), int64(2), int64(5), true
	want := sandbox.Usage{CPU: &cpu, MemoryPeak: &peak, OOMKills: &kills, Processes: &now, PIDsRefused: &refused}
	if diff := cmp.Diff(want, l.read()); diff != "" { // this kernel has no pids.peak
		t.Errorf("usage (-want +got):\n%s", diff)
	}
}

// TestTeardownStaysInside hands over entries that no run of ours can have written.
func TestTeardownStaysInside(t *testing.T) {
	victim := t.TempDir()
	keep := filepath.Join(victim, "keep")
	if err := os.WriteFile(keep, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	td := removal{d: engineAt(t, filepath.Join(t.TempDir(), "none")), runs: t.TempDir()}
	entries := []journal.Entry{
		{Kind: sandbox.KindRunDirectory, Name: victim}, {Kind: sandbox.KindRunDirectory, Name: td.runs},
		{Kind: sandbox.KindRunDirectory, Name: td.runs + "/../" + filepath.Base(victim)},
		{Kind: sandbox.KindTargetMount, Name: "/proc"}, {Kind: "elephant", Name: "x"},
	}
	receipt, err := td.teardown(func(e journal.Entry) error {
		t.Errorf("struck out %+v", e)
		return nil
	}).Run(context.Background(), entries)
	if len(receipt.Remains) != len(entries) || receipt.Reason == "" {
		t.Errorf("receipt: %+v", receipt)
	}
	fails(t, err, fault.CleanupIncomplete, fault.Details{"cleanup": "incomplete", "cleanup_reason": receipt.Reason})
	if _, err := os.Stat(keep); err != nil {
		t.Error(err)
	}
}
