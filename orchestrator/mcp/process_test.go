package mcp

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// server starts this binary as a server process.
func startProcess(t *testing.T, mode string) (*exec.Cmd, io.WriteCloser, *bufio.Reader) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), serverVariable+"="+mode)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd, in, bufio.NewReader(out)
}

// Clients that are not ours, each against a process of its own.
func TestForeignClients(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	target := someFile(t)
	t.Run("python", func(t *testing.T) {
		python, err := exec.LookPath("python3")
		if err != nil {
			if required() {
				t.Fatal(err)
			}
			t.Skip("no python3")
		}
		runClient(t, exec.Command(python, "testdata/client/raw.py", target, exe))
	})
	t.Run("typescript", func(t *testing.T) {
		node, err := exec.LookPath("node")
		if err != nil {
			t.Skip("no node")
		}
		if _, err := os.Stat(filepath.Join("testdata", "client", "node_modules")); err != nil {
			t.Skip("the TypeScript SDK is not installed: npm ci in testdata/client")
		}
		runClient(t, exec.Command(node, "testdata/client/sdk.mjs", target, exe))
	})
}

func runClient(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	cmd.Env = append(os.Environ(), serverVariable+"=answer")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// A signal ends the process while its input stays open and idle, and while a call is running, which is told.
func TestSignalEndsTheProcess(t *testing.T) {
	for _, busy := range []bool{false, true} {
		cmd, in, out := startProcess(t, "block")
		read := func(part string) {
			line, err := out.ReadString('\n')
			if err != nil || !strings.Contains(line, part) {
				t.Fatalf("%v: %s", err, line)
			}
		}
		write := func(line string) {
			if _, err := io.WriteString(in, line+"\n"); err != nil {
				t.Fatal(err)
			}
		}
		write(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`)
		read(`"id":1`)
		if busy {
			write(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"extract_artifact","arguments":{"path":` + quoted(someFile(t)) + `},"_meta":{"progressToken":"t"}}}`)
			read(`"progressToken":"t"`) // it has begun
		}
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		rest, err := io.ReadAll(out)
		if err != nil {
			t.Fatal(err)
		}
		if busy && !strings.Contains(string(rest), `\"code\":\"cancelled\"`) {
			t.Errorf("the running call was not told: %s", rest)
		}
		for _, line := range strings.Split(strings.TrimSpace(string(rest)), "\n") {
			if line != "" && !strings.HasPrefix(line, `{"jsonrpc":"2.0"`) {
				t.Errorf("not a frame: %s", line)
			}
		}
		if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 143 {
			t.Errorf("ended with %v", err)
		}
	}
}
