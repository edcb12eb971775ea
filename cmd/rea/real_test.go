package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"rea/orchestrator"
	"rea/sandbox/journal"
)

// comparison is the part of a compare_versions record that the tests read.
type comparison struct {
	EvidenceID       string `json:"evidence_id"`
	NormalizedResult struct {
		Status      string `json:"status"`
		Comparisons []struct {
			Evidence struct {
				NormalizedResult struct {
					Changes []struct {
						Classification string `json:"classification"`
						LogicalPath    string `json:"logical_path"`
					} `json:"changes"`
					Moves []struct {
						Left  string `json:"left_logical_path"`
						Right string `json:"right_logical_path"`
					} `json:"moves"`
				} `json:"normalized_result"`
			} `json:"evidence"`
		} `json:"comparisons"`
	} `json:"normalized_result"`
}

// program makes a command of the program in a directory of its own for state and home.
func program(t *testing.T, exe, state string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(exe, args...)
	cmd.Args[0] = name // the test binary is the program under this name
	cmd.Env = []string{"PATH=" + os.Getenv("PATH") + ":/usr/sbin:/sbin", "HOME=" + state, "REA_STATE_DIR=" + state, "TMPDIR=" + os.TempDir()}
	if host, set := os.LookupEnv("DOCKER_HOST"); set {
		cmd.Env = append(cmd.Env, "DOCKER_HOST="+host)
	}
	return cmd
}

func self(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return exe
}

// answerOf runs a command that succeeds and decodes its JSON.
func answerOf[T any](t *testing.T, cmd *exec.Cmd) T {
	t.Helper()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s%.2000s", err, stderr.Bytes(), out)
	}
	var v T
	if err := json.Unmarshal(out, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// truth is every file of both versions of the sample with its SHA-256, as their packer computed it without rea.
func truth(t *testing.T) (before, after map[string]string) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(sampleDir(t), "truth.json"))
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]map[string]string
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	return all["notes-1.0.0"], all["notes-1.1.0"]
}

// expected derives the changes of files from the packer's digests alone.
func expected(before, after map[string]string) map[string]string {
	want := map[string]string{}
	for path, digest := range before {
		switch other, there := after[path]; {
		case !there:
			want[path] = "removed"
		case other != digest:
			want[path] = "changed"
		}
	}
	for path := range after {
		if _, there := before[path]; !there {
			want[path] = "added"
		}
	}
	return want
}

// TestCompareAgainstTruth compares the two versions of the sample with both drivers and holds what came out against
// the packer's own digests; both drivers give the same Evidence.
func TestCompareAgainstTruth(t *testing.T) {
	before, after := truth(t)
	want := expected(before, after)
	if len(want) < 4 {
		t.Fatalf("the sample differs in %v only", want)
	}
	ids := map[string]string{}
	for _, driver := range []string{orchestrator.DriverDocker, orchestrator.DriverOCI} {
		t.Run(driver, func(t *testing.T) {
			requireDriver(t, driver)
			dir := sampleDir(t)
			c := answerOf[comparison](t, program(t, self(t), t.TempDir(), "compare", filepath.Join(dir, "notes-1.0.0.zip"), filepath.Join(dir, "notes-1.1.0.zip"), "--json", "--driver", driver))
			ids[driver] = c.EvidenceID
			if c.NormalizedResult.Status != "changed" || len(c.NormalizedResult.Comparisons) != 1 {
				t.Fatalf("status %s with %d comparisons", c.NormalizedResult.Status, len(c.NormalizedResult.Comparisons))
			}
			result := c.NormalizedResult.Comparisons[0].Evidence.NormalizedResult
			got := map[string]string{}
			for _, ch := range result.Changes {
				if _, file := before[ch.LogicalPath]; !file && after[ch.LogicalPath] == "" {
					continue // the packer lists files; directories and the root follow from them
				}
				got[ch.LogicalPath] = ch.Classification
			}
			if diff := gocmp.Diff(want, got); diff != "" {
				t.Errorf("changes (-packer +rea):\n%s", diff)
			}
			if len(result.Moves) != 1 || before[result.Moves[0].Left] != after[result.Moves[0].Right] || before[result.Moves[0].Left] == "" {
				t.Errorf("moves %v", result.Moves)
			}
		})
	}
	if len(ids) == 2 && ids[orchestrator.DriverDocker] != ids[orchestrator.DriverOCI] {
		t.Errorf("the drivers give different Evidence: %v", ids)
	}
}

// TestExtractAgainstTruth extracts a whole archive, equal files at two places among it, and holds every file against
// the packer's digests.
func TestExtractAgainstTruth(t *testing.T) {
	requireDriver(t, orchestrator.DriverAuto)
	before, _ := truth(t)
	to := filepath.Join(t.TempDir(), "out")
	answerOf[map[string]any](t, program(t, self(t), t.TempDir(), "extract-artifact", filepath.Join(sampleDir(t), "notes-1.0.0.zip"), "--to", to, "--json"))
	written := map[string]int{}
	err := filepath.WalkDir(to, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		raw, err := os.ReadFile(path)
		sum := sha256.Sum256(raw)
		written[hex.EncodeToString(sum[:])]++
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int{}
	for _, digest := range before {
		want[digest]++
	}
	if diff := gocmp.Diff(want, written); diff != "" {
		t.Errorf("files by digest (-packer +extracted):\n%s", diff)
	}
}

// engineGroup is the group that may talk to the engine.
func engineGroup(t *testing.T) uint32 {
	t.Helper()
	var st unix.Stat_t
	socket := strings.TrimPrefix(cmp.Or(os.Getenv("DOCKER_HOST"), "unix:///var/run/docker.sock"), "unix://")
	if err := unix.Stat(socket, &st); err != nil {
		t.Skip("no engine's socket: ", err)
	}
	if st.Gid == 0 {
		t.Skip("the engine's socket has no group of its own")
	}
	return st.Gid
}

// ordinary is a uid that nobody has.
const ordinary = 61001

// TestOrdinaryUser runs the program as a user who may talk to the engine and nothing more: the same commands work and
// give the same Evidence, also for a target that only this user may read, and doctor names what cannot be proved.
func TestOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("becoming another user needs root")
	}
	requireDriver(t, orchestrator.DriverDocker)
	group := engineGroup(t)
	dir := openDir(t)
	exe, state := filepath.Join(dir, name), filepath.Join(dir, "state")
	copyFile(t, self(t), exe, 0o755)
	private := filepath.Join(dir, "private.zip")
	copyFile(t, filepath.Join(sampleDir(t), "notes-1.0.0.zip"), private, 0o600)
	public := filepath.Join(dir, "public.zip")
	copyFile(t, filepath.Join(sampleDir(t), "notes-1.1.0.zip"), public, 0o644)
	for _, path := range []string{private, mkdir(t, state)} {
		if err := os.Chown(path, ordinary, ordinary); err != nil {
			t.Fatal(err)
		}
	}
	as := func(args ...string) *exec.Cmd {
		cmd := program(t, exe, state, args...)
		cmd.Dir = dir
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: ordinary, Gid: ordinary, Groups: []uint32{group}}}
		return cmd
	}
	users := answerOf[comparison](t, as("compare", private, public, "--json", "--output", filepath.Join(state, "out")))
	roots := answerOf[comparison](t, program(t, self(t), t.TempDir(), "compare", private, public, "--json"))
	if users.EvidenceID != roots.EvidenceID || users.NormalizedResult.Status != "changed" {
		t.Errorf("the user's Evidence %s (%s) is not root's %s", users.EvidenceID, users.NormalizedResult.Status, roots.EvidenceID)
	}
	requireUnproved(t, filepath.Join(state, "out", "runs"))

	examined := answerOf[struct {
		Result struct {
			Healthy bool `json:"healthy"`
			Drivers []struct {
				Driver  string   `json:"driver"`
				Missing []string `json:"missing"`
			} `json:"drivers"`
		} `json:"result"`
	}](t, as("doctor", "--json"))
	if !examined.Result.Healthy || len(examined.Result.Drivers) == 0 || len(examined.Result.Drivers[0].Missing) == 0 {
		t.Errorf("doctor does not name what an ordinary user cannot prove: %+v", examined)
	}

	// Another user's private file is refused, as the caller's to correct.
	if err := os.Chown(private, ordinary+1, ordinary+1); err != nil {
		t.Fatal(err)
	}
	requireExit(t, as("inspect-artifact", private), 3, "not readable")
	requireExit(t, as("inspect-artifact", private, "--json"), 3, "not readable")
	requireExit(t, as("doctor", private), 4, "")
	requireNothing(t, state)
}

// requireUnproved checks that every run record says what its run could not prove.
func requireUnproved(t *testing.T, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "ev_*.json"))
	if err != nil || len(files) != 2 {
		t.Fatalf("run records: %v %v", files, err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var run struct {
			Outcome string `json:"outcome"`
			Proof   struct {
				Unproved []string `json:"unproved"`
			} `json:"proof"`
		}
		if err := json.Unmarshal(raw, &run); err != nil {
			t.Fatal(err)
		}
		if run.Outcome != "completed" || len(run.Proof.Unproved) == 0 {
			t.Errorf("%s: outcome %q, unproved %q", filepath.Base(file), run.Outcome, run.Proof.Unproved)
		}
	}
}

// TestPrivateTargetOfAnother lets root compare a file that only its owner may read, with both drivers.
func TestPrivateTargetOfAnother(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("a file of another user needs root")
	}
	private := filepath.Join(t.TempDir(), "private.zip")
	copyFile(t, filepath.Join(sampleDir(t), "notes-1.0.0.zip"), private, 0o600)
	if err := os.Chown(private, ordinary, ordinary); err != nil {
		t.Fatal(err)
	}
	for _, driver := range []string{orchestrator.DriverDocker, orchestrator.DriverOCI} {
		t.Run(driver, func(t *testing.T) {
			requireDriver(t, driver)
			c := answerOf[comparison](t, program(t, self(t), t.TempDir(), "compare", private, filepath.Join(sampleDir(t), "notes-1.0.0.zip"), "--json", "--driver", driver))
			if c.NormalizedResult.Status != "unchanged" {
				t.Errorf("status %s, want unchanged", c.NormalizedResult.Status)
			}
		})
	}
}

func requireExit(t *testing.T, cmd *exec.Cmd, code int, stderr string) {
	t.Helper()
	var errs bytes.Buffer
	cmd.Stderr = &errs
	_, err := cmd.Output()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != code || !strings.Contains(errs.String(), stderr) {
		t.Errorf("%v: %v, want exit code %d and %q; standard error: %s", cmd.Args, err, code, stderr, errs.String())
	}
}

// requireNothing checks that no process of this state directory is left with anything that it made.
func requireNothing(t *testing.T, state string) {
	t.Helper()
	owners, err := journal.Owners(state)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range owners {
		t.Errorf("owner %s is left, alive %v, with %d entries", o.Owner, o.Alive, len(o.Entries))
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(mounts), state) {
		t.Error("a mount below the state directory is left")
	}
}

// openDir is a directory that every user may enter; those of the testing package are private.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "rea-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func mkdir(t *testing.T, dir string) string {
	t.Helper()
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

func copyFile(t *testing.T, from, to string, mode fs.FileMode) {
	t.Helper()
	raw, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, raw, mode); err != nil {
		t.Fatal(err)
	}
}

// terminal is a pseudo-terminal: what a program writes to the far end is read from the near one.
func terminal(t *testing.T) (near, far *os.File) {
	t.Helper()
	near, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no pseudo-terminal: ", err)
	}
	t.Cleanup(func() { _ = near.Close() })
	if err := unix.IoctlSetPointerInt(int(near.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(near.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	far, err = os.OpenFile(filepath.Join("/dev/pts", strconv.Itoa(number)), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = far.Close() })
	return near, far
}

// TestInterrupt interrupts a comparison while its containers run, twice in a row. The display on the terminal tells
// when they do. Both signals together lead to one clean end: exit code 130, and nothing is left.
func TestInterrupt(t *testing.T) {
	for _, c := range []struct {
		driver string
		signal syscall.Signal
		code   int
	}{
		{orchestrator.DriverDocker, syscall.SIGINT, 130}, {orchestrator.DriverDocker, syscall.SIGTERM, 143},
		{orchestrator.DriverOCI, syscall.SIGINT, 130}, {orchestrator.DriverOCI, syscall.SIGTERM, 143},
	} {
		t.Run(c.driver+"/"+c.signal.String(), func(t *testing.T) {
			requireDriver(t, c.driver)
			// Sparse, and longer to hash than any test waits: the run is surely going on when the signal comes.
			target := filepath.Join(t.TempDir(), "long")
			if err := os.WriteFile(target, nil, 0o644); err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(target, 64<<30); err != nil {
				t.Fatal(err)
			}
			near, far := terminal(t)
			state := t.TempDir()
			cmd := program(t, self(t), state, "compare", target, target, "--driver", c.driver)
			var stdout bytes.Buffer
			cmd.Stdout, cmd.Stderr = &stdout, far
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			_ = far.Close() // the program has its own: reading ends with the program
			seen := waitFor(t, near, "analyze")
			for range 2 {
				if err := cmd.Process.Signal(c.signal); err != nil {
					t.Fatal(err)
				}
			}
			seen += drain(near)
			err := cmd.Wait()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != c.code {
				t.Errorf("%v, want exit code %d; terminal: %q", err, c.code, seen)
			}
			if stdout.Len() > 0 {
				t.Errorf("standard output: %s", stdout.Bytes())
			}
			if !strings.Contains(seen, "old ") || !strings.Contains(seen, "new ") {
				t.Errorf("the display does not name both sides: %q", seen)
			}
			requireNothing(t, state)
		})
	}
}

// waitFor reads a terminal until a text appears.
func waitFor(t *testing.T, near *os.File, text string) string {
	t.Helper()
	var seen strings.Builder
	buffer := make([]byte, 4096)
	for !strings.Contains(seen.String(), text) {
		n, err := near.Read(buffer)
		seen.Write(buffer[:n])
		if err != nil {
			t.Fatalf("the program ended before it showed %q: %q", text, seen.String())
		}
	}
	return seen.String()
}

// drain reads a terminal until the program at its far end is gone.
func drain(near *os.File) string {
	var seen strings.Builder
	buffer := make([]byte, 4096)
	for {
		n, err := near.Read(buffer)
		seen.Write(buffer[:n])
		if err != nil {
			return seen.String()
		}
	}
}

// TestKilled kills the program without warning while containers run: the keeper ends them, and the next sweep removes
// what is left.
func TestKilled(t *testing.T) {
	for _, driver := range []string{orchestrator.DriverDocker, orchestrator.DriverOCI} {
		t.Run(driver, func(t *testing.T) {
			requireDriver(t, driver)
			target := filepath.Join(t.TempDir(), "long")
			if err := errors.Join(os.WriteFile(target, nil, 0o644), os.Truncate(target, 64<<30)); err != nil {
				t.Fatal(err)
			}
			near, far := terminal(t)
			state := t.TempDir()
			cmd := program(t, self(t), state, "inspect-artifact", target, "--driver", driver)
			cmd.Stderr = far
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			_ = far.Close()
			waitFor(t, near, "analyze")
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // it was killed

			listed := answerOf[struct {
				Result struct {
					Owners []struct {
						Alive   bool             `json:"alive"`
						Entries []map[string]any `json:"entries"`
					} `json:"owners"`
				} `json:"result"`
			}](t, program(t, self(t), state, "sandbox", "list", "--json"))
			dead := slices.ContainsFunc(listed.Result.Owners, func(o struct {
				Alive   bool             `json:"alive"`
				Entries []map[string]any `json:"entries"`
			}) bool {
				return !o.Alive && len(o.Entries) > 0
			})
			if !dead {
				t.Errorf("no dead owner with entries in %+v", listed)
			}
			answerOf[map[string]any](t, program(t, self(t), state, "sandbox", "sweep", "--json"))
			requireNothing(t, state)
		})
	}
}

// TestServe lets the server answer a handshake and a list of tools, and end with its input.
func TestServe(t *testing.T) {
	cmd := program(t, self(t), t.TempDir(), "mcp")
	cmd.Stdin = strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"0"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/list"}
`)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.Bytes())
	}
	frames := json.NewDecoder(bytes.NewReader(out))
	var names []string
	for frames.More() {
		var frame struct {
			Result struct {
				ServerInfo struct{ Name string } `json:"serverInfo"`
				Tools      []struct{ Name string }
			}
		}
		if err := frames.Decode(&frame); err != nil {
			t.Fatal(err)
		}
		if frame.Result.ServerInfo.Name != "" {
			names = append(names, frame.Result.ServerInfo.Name)
		}
		for _, tool := range frame.Result.Tools {
			names = append(names, tool.Name)
		}
	}
	if !slices.Contains(names, name) || !slices.Contains(names, "compare_artifacts") {
		t.Errorf("answers name %v", names)
	}
	if stderr.Len() > 0 {
		t.Errorf("standard error: %s", stderr.Bytes())
	}
}
