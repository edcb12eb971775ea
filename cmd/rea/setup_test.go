package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// An ordinary user edits what is theirs, and gets exit code 3 where the system does not let them: nothing is left
// behind. Root may write everywhere, so the user is another one.
func TestSetupAsOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
	home := openDir(t)
	exe := filepath.Join(home, name)
	copyFile(t, self(t), exe, 0o755)
	as := func(args ...string) *exec.Cmd {
		cmd := program(t, exe, home, args...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: ordinary, Gid: ordinary}}
		return cmd
	}
	own, others := filepath.Join(home, ".codex"), filepath.Join(home, ".cursor")
	for _, dir := range []string{own, others} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(others, "mcp.json")
	if err := errors.Join(os.Chown(own, ordinary, ordinary), os.WriteFile(file, []byte("{}\n"), 0o666), os.Chmod(file, 0o666)); err != nil {
		t.Fatal(err)
	}
	out, err := as("setup", "--yes").Output()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 3 {
		t.Errorf("%v, want exit code 3\n%s", err, out)
	}
	if !bytes.Contains(out, []byte("added     Codex")) || !bytes.Contains(out, []byte("failed    Cursor")) {
		t.Errorf("%s", out)
	}
	list, err := os.ReadDir(others)
	if err != nil || len(list) != 1 {
		t.Errorf("%v, %v: want the client's file alone", list, err)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "{}\n" {
		t.Errorf("%q, %v", text, err)
	}
}

// A signal ends the question, and nothing was changed.
func TestSetupInterrupted(t *testing.T) {
	home := openDir(t)
	if err := os.Mkdir(filepath.Join(home, ".cursor"), 0o755); err != nil {
		t.Fatal(err)
	}
	near, far := terminal(t)
	cmd := program(t, self(t), home, "setup")
	cmd.Stdin, cmd.Stderr = far, far
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = far.Close()
	waitFor(t, near, "[y/N]")
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	drain(near)
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 130 {
		t.Errorf("%v, want exit code 130", err)
	}
	if _, err := os.Stat(filepath.Join(home, ".cursor", "mcp.json")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file is there: %v", err)
	}
}
