package main

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"rea/evidence/fault"
	"rea/images"
	"rea/orchestrator"
)

// TestMain lets the test binary be the program: scripts and tests start it under the name rea, and so does the program
// itself when it starts its keeper.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){name: main})
}

// required reports whether every real part must be there, as in CI.
func required() bool { return os.Getenv("REA_TEST_REQUIRE") != "" }

// able reports why no container can be started with a driver, "" where one can.
func able(driver string) string {
	if _, _, err := images.Worker(); err != nil {
		return "built without its worker: run make worker"
	}
	h := orchestrator.New(orchestrator.Config{Driver: driver, StateDir: os.TempDir()})
	if err := h.Available(context.Background()); err != nil {
		return fault.From(err).Message
	}
	return ""
}

func requireDriver(t *testing.T, driver string) {
	t.Helper()
	if reason := able(driver); reason != "" {
		if required() {
			t.Fatal(reason)
		}
		t.Skip("no container can be started here: ", reason)
	}
}

// sampleDir holds the two archives of the sample application and what their packer knows of them.
func sampleDir(t interface{ Fatal(...any) }) string {
	dir, err := filepath.Abs("../../testdata/notes")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// terminalNames drive a terminal that prints them as they are: they set its title, clear it, overwrite and break
// lines, turn text direction, and colour by a C1 control.
var terminalNames = []string{
	"\x1b]0;owned\atitle.txt", "\x1b[2J\x1b[Hclean.txt", "two\nlines.txt", "cr\rOVER.txt", "tab\there.txt",
	"doc\u202egnp.exe", "\u009b31mred.txt", "plain.txt",
}

// writeZip writes an archive whose members hold their own names.
func writeZip(path string, names []string) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	z := zip.NewWriter(f)
	for _, n := range names {
		w, err := z.Create(n)
		if err != nil {
			return err
		}
		if _, err := io.WriteString(w, n); err != nil {
			return err
		}
	}
	return z.Close()
}

// writeCut writes the first half of a compressed stream.
func writeCut(path string) error {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	for i := range 1 << 16 {
		if _, err := fmt.Fprintln(z, i*i); err != nil {
			return err
		}
	}
	if err := z.Close(); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes()[:b.Len()/2], 0o644)
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			for key, value := range map[string]string{
				"HOME": filepath.Join(env.WorkDir, "home"), "REA_STATE_DIR": filepath.Join(env.WorkDir, "state"),
				"NOTES": sampleDir(t), "NAMES": filepath.Join(env.WorkDir, "names.zip"),
				"PATH": env.Getenv("PATH") + ":/usr/sbin:/sbin", "DOCKER_HOST": os.Getenv("DOCKER_HOST"),
			} {
				env.Setenv(key, value)
			}
			env.Setenv("TITLE", "\x1b]0;owned\aabsent.txt")
			return errors.Join(writeZip(env.Getenv("NAMES"), terminalNames), writeCut(filepath.Join(env.WorkDir, "cut.gz")))
		},
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "container":
				reason := able(orchestrator.DriverAuto)
				if reason != "" && required() {
					return false, errors.New(reason)
				}
				return reason == "", nil
			case "root":
				return os.Geteuid() == 0, nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": scriptExits, "onejson": scriptOneJSON, "harmless": scriptHarmless, "names": scriptNames, "nothing": scriptNothing,
		},
	})
}

// scriptExits runs a program and compares its exit code: exits CODE PROGRAM ARGS...
func scriptExits(ts *testscript.TestScript, neg bool, args []string) {
	want, err := strconv.Atoi(args[0])
	if err != nil || neg {
		ts.Fatalf("usage: exits CODE PROGRAM ARGS...")
	}
	got := 0
	var exit *exec.ExitError
	switch err := ts.Exec(args[1], args[2:]...); {
	case errors.As(err, &exit):
		got = exit.ExitCode()
	case err != nil:
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// scriptOneJSON checks that a file, or the last standard output, is exactly one JSON object with these members.
func scriptOneJSON(ts *testscript.TestScript, _ bool, args []string) {
	d := json.NewDecoder(strings.NewReader(ts.ReadFile(args[0])))
	var object map[string]any
	if err := d.Decode(&object); err != nil {
		ts.Fatalf("not JSON: %v", err)
	}
	if rest, err := d.Token(); err != io.EOF {
		ts.Fatalf("more than one value: %v %v", rest, err)
	}
	for _, key := range args[1:] {
		if _, ok := object[key]; !ok {
			ts.Fatalf("no member %q", key)
		}
	}
}

// scriptHarmless checks that text holds nothing that a terminal obeys, but newlines.
func scriptHarmless(ts *testscript.TestScript, _ bool, args []string) {
	for _, r := range ts.ReadFile(args[0]) {
		switch {
		case r == '\n':
		case r < 0x20, r >= 0x7f && r < 0xa0, r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069:
			ts.Fatalf("the text holds %U", r)
		}
	}
}

// scriptNames checks that the JSON of an inventory gives exactly the names that drive a terminal.
func scriptNames(ts *testscript.TestScript, _ bool, args []string) {
	var record struct {
		NormalizedResult struct {
			Occurrences []struct {
				LogicalPath string `json:"logical_path"`
			} `json:"occurrences"`
		} `json:"normalized_result"`
	}
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &record))
	found := map[string]bool{}
	for _, o := range record.NormalizedResult.Occurrences {
		found[o.LogicalPath] = true
	}
	for _, n := range terminalNames {
		if !found[n] {
			ts.Fatalf("%q is not among %v", n, slices.Sorted(maps.Keys(found)))
		}
	}
	if want := len(terminalNames) + 1; len(found) != want {
		ts.Fatalf("%d entries, want %d", len(found), want)
	}
}

// scriptNothing checks that nothing that a run makes is left in the state directory: no owner, no run directory.
func scriptNothing(ts *testscript.TestScript, _ bool, args []string) {
	for _, dir := range []string{"owners", "runs"} {
		list, err := os.ReadDir(filepath.Join(ts.MkAbs(args[0]), dir))
		if err != nil && !os.IsNotExist(err) {
			ts.Fatalf("%v", err)
		}
		for _, e := range list {
			ts.Fatalf("%s/%s is left", dir, e.Name())
		}
	}
}
