package sandbox

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"

	"rea/evidence/fault"
)

var update = flag.Bool("update", false, "rewrite golden files")

func testSpec(t *testing.T) Spec {
	t.Helper()
	// A stand-in: the real filter is tested on its own, and would hide the rest of the golden file.
	eperm := uint(1)
	return Spec{
		ID:       "00112233445566ff",
		Image:    Image{Digest: "sha256:00", RootFS: "/state/images/00/rootfs", HasWorker: true},
		Args:     []string{WorkerPath, "artifact"},
		Env:      []string{"PATH=/usr/bin:/bin"},
		User:     User{UID: RunUID, GID: RunUID},
		Targets:  []Target{{Destination: TargetPath, Dir: true}},
		Evidence: Evidence{Bytes: 8 << 20, Inodes: 500, Nonce: strings.Repeat("0", 64)},
		Scratch:  []Tmpfs{{Destination: ScratchPath, Bytes: 4 << 20, Inodes: 100}},
		Limits:   Limits{Memory: 64 << 20, PIDs: 64, CPU: 1.5, NoFile: 256, FileSize: 8 << 20},
		Seccomp: Profile{Name: SeccompStatic, Filter: &specs.LinuxSeccomp{
			DefaultAction: specs.ActErrno, DefaultErrnoRet: &eperm}},
	}
}

var testPaths = HostPaths{
	RootFS: "/state/images/00/rootfs", Targets: []string{"/state/runs/o/r/target0"}, Evidence: "/state/runs/o/r/evidence",
	Cgroup: "/rea/00112233445566ff/box", Channel: ChannelFD3,
}

// The golden file was read line by line against the OCI runtime specification and the rules of docs/security.md.
func TestRenderGolden(t *testing.T) {
	rendered, err := Render(testSpec(t), testPaths)
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.MarshalIndent(rendered, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "static.json")
	if *update {
		if err := os.WriteFile(golden, append(got, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)+"\n"); diff != "" {
		t.Errorf("rendering differs from %s (-want +got):\n%s", golden, diff)
	}
}

func TestRenderUserNamespace(t *testing.T) {
	h := testPaths
	h.UserNS = &IDMap{
		UIDs: []specs.LinuxIDMapping{{ContainerID: 0, HostID: 100000, Size: 65536}},
		GIDs: []specs.LinuxIDMapping{{ContainerID: 0, HostID: 200000, Size: 65536}},
	}
	rendered, err := Render(testSpec(t), h)
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, n := range rendered.Linux.Namespaces {
		found = found || n.Type == specs.UserNamespace
	}
	if !found || rendered.Linux.UIDMappings[0].HostID != 100000 || rendered.Linux.GIDMappings[0].HostID != 200000 {
		t.Errorf("user namespace not rendered: %+v", rendered.Linux)
	}
}

func TestRenderBindsWorkerWhereImageLacksIt(t *testing.T) {
	s := testSpec(t)
	s.Image.HasWorker, s.Image.WorkerFile = false, "/state/worker"
	rendered, err := Render(s, testPaths)
	if err != nil {
		t.Fatal(err)
	}
	want := specs.Mount{Destination: WorkerPath, Type: "bind", Source: "/state/worker",
		Options: []string{"nosuid", "nodev", "bind", "rprivate", "ro"}}
	if diff := cmp.Diff(want, rendered.Mounts[len(rendered.Mounts)-1]); diff != "" {
		t.Errorf("worker mount (-want +got):\n%s", diff)
	}
}

// Every case breaks one rule of a closed run.
func TestRenderRefusesOpenSpecs(t *testing.T) {
	tests := []struct {
		name  string
		want  string
		spoil func(*Spec)
	}{
		{"id that names a path", "run id", func(s *Spec) { s.ID = "../../../../etc/" }},
		{"id too short", "run id", func(s *Spec) { s.ID = "00" }},
		{"relative program", "absolute", func(s *Spec) { s.Args = []string{"sh"} }},
		{"no program", "absolute", func(s *Spec) { s.Args = nil }},
		{"root", "uid or gid is 0", func(s *Spec) { s.User.UID = 0 }},
		{"root's group", "uid or gid is 0", func(s *Spec) { s.User.GID = 0 }},
		{"no filter", "seccomp", func(s *Spec) { s.Seccomp.Filter = nil }},
		{"no memory limit", "limit", func(s *Spec) { s.Limits.Memory = 0 }},
		{"no pids limit", "limit", func(s *Spec) { s.Limits.PIDs = 0 }},
		{"cpu below the kernel's least", "limit", func(s *Spec) { s.Limits.CPU = 0.001 }},
		{"no open files", "limit", func(s *Spec) { s.Limits.NoFile = 0 }},
		{"no file size", "limit", func(s *Spec) { s.Limits.FileSize = 0 }},
		{"evidence without inode quota", "quota", func(s *Spec) { s.Evidence.Inodes = 0 }},
		{"scratch without quota", "quota", func(s *Spec) { s.Scratch[0].Bytes = 0 }},
		{"volumes as large as memory", "does not cover", func(s *Spec) { s.Evidence.Bytes = s.Limits.Memory }},
		{"target elsewhere", "below /target", func(s *Spec) { s.Targets[0].Destination = "/etc/passwd" }},
		{"target climbs", "below /target", func(s *Spec) { s.Targets[0].Destination = "/target/../etc" }},
		{"target over another", "of its own", func(s *Spec) { s.Targets = append(s.Targets, s.Targets[0]) }},
		{"scratch over evidence", "of its own", func(s *Spec) { s.Scratch[0].Destination = EvidencePath }},
		{"scratch over proc", "of its own", func(s *Spec) { s.Scratch[0].Destination = "/proc" }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, h := testSpec(t), testPaths
			tt.spoil(&s)
			for len(h.Targets) < len(s.Targets) {
				h.Targets = append(h.Targets, "/x")
			}
			_, err := Render(s, h)
			var f *fault.Error
			if !errors.As(err, &f) || f.Code != fault.ExecutionFailure || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Render = %v, want execution_failure that says %q", err, tt.want)
			}
		})
	}
}

// The digest must not see what belongs to one run or host, and must see everything else.
func TestDigest(t *testing.T) {
	digest := func(change func(*Spec)) string {
		t.Helper()
		s := testSpec(t)
		change(&s)
		d, err := Digest(s)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	base := digest(func(*Spec) {})
	if len(base) != 64 {
		t.Fatalf("Digest = %q, want 64 hex digits", base)
	}
	same := map[string]func(*Spec){
		"run id":    func(s *Spec) { s.ID = "ffffffffffffffff" },
		"root file": func(s *Spec) { s.Image.RootFS = "/elsewhere" },
		"nonce":     func(s *Spec) { s.Evidence.Nonce = strings.Repeat("f", 64) },
		"path":      func(s *Spec) { s.Targets[0].Path = "/home/someone/app" },
		"label":     func(s *Spec) { s.Labels = map[string]string{"a": "b"} },
	}
	for name, change := range same {
		if d := digest(change); d != base {
			t.Errorf("digest changed with the %s", name)
		}
	}
	other := map[string]func(*Spec){
		"memory":  func(s *Spec) { s.Limits.Memory++ },
		"pids":    func(s *Spec) { s.Limits.PIDs++ },
		"args":    func(s *Spec) { s.Args = append(s.Args, "x") },
		"user":    func(s *Spec) { s.User.UID++ },
		"env":     func(s *Spec) { s.Env = nil },
		"seccomp": func(s *Spec) { s.Seccomp.Filter = &specs.LinuxSeccomp{DefaultAction: specs.ActAllow} },
		"scratch": func(s *Spec) { s.Scratch = nil },
		"targets": func(s *Spec) { s.Targets = nil },
	}
	for name, change := range other {
		if d := digest(change); d == base {
			t.Errorf("digest did not change with %s", name)
		}
	}
}
