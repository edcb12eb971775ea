package sandboxtest

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"rea/sandbox/staging"
)

// Engine is an engine that a test may configure, kill and start again. It has no network and shares nothing with
// the host's engine but the kernel.
type Engine struct {
	t      testing.TB
	dir    string
	socket string
	args   []string
	prefix []string // command that the engine is started by
	cmd    *exec.Cmd
}

// NewEngine starts one, by the command prefix if there is one, with more arguments. It needs root and the engine's program, and skips without.
func NewEngine(t testing.TB, prefix []string, args ...string) *Engine {
	t.Helper()
	if !staging.Privileged() {
		t.Skip("needs the right to start an engine")
	}
	if _, err := exec.LookPath("dockerd"); err != nil {
		t.Skip("needs dockerd")
	}
	dir, err := os.MkdirTemp("", "rea-engine-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o711); err != nil { // a remapped engine's containers pass through it
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "daemon.json"), []byte("{}"), 0o600); err != nil { // and not the host's own
		t.Fatal(err)
	}
	p := &Engine{t: t, dir: dir, socket: filepath.Join(dir, "sock"), args: args, prefix: prefix}
	t.Cleanup(func() {
		p.Stop(syscall.SIGTERM)
		p.endShims()
		for unix.Unmount(dir+"/data", unix.MNT_DETACH) == nil { // an engine that was killed leaves its own mount of it
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	p.Start()
	return p
}

// Start starts it, the first time or again, and returns when the engine says that it listens.
func (p *Engine) Start() {
	p.t.Helper()
	// A killed engine takes its containerd along; where nobody reaps that, the next engine takes it for alive.
	_ = os.Remove(p.dir + "/exec/containerd/containerd.pid")
	line := slices.Concat(p.prefix, []string{"dockerd", "--config-file", p.dir + "/daemon.json", "--data-root", p.dir + "/data", "--exec-root", p.dir + "/exec", "-p", p.dir + "/pid",
		"-H", "unix://" + p.socket, "--bridge=none", "--iptables=false", "--ip-masq=false", "--log-level=info"}, p.args)
	p.cmd = exec.Command(line[0], line[1:]...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	log, write, err := os.Pipe() // not the command's own pipe: what the engine leaves running goes on writing to it
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { log.Close() })
	p.cmd.Stderr = write
	err = p.cmd.Start()
	write.Close()
	if err != nil {
		p.t.Fatal(err)
	}
	var said strings.Builder
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		said.WriteString(lines.Text() + "\n")
		if strings.Contains(lines.Text(), "API listen on") {
			go io.Copy(io.Discard, log) // ends with the engine
			return
		}
	}
	p.t.Fatalf("the engine did not start: %v\n%s", p.cmd.Wait(), said.String())
}

// Stop ends the engine by a signal; SIGKILL leaves its containers running.
func (p *Engine) Stop(s syscall.Signal) {
	if p.cmd.ProcessState != nil {
		return
	}
	_ = p.cmd.Process.Signal(s) // it may have ended by itself
	_ = p.cmd.Wait()
}

// endShims ends what a killed engine leaves behind for a container, and no later one takes over.
func (p *Engine) endShims() {
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		p.t.Fatal(err)
	}
	for _, line := range lines {
		data, err := os.ReadFile(line)
		if err != nil || !strings.Contains(string(data), p.dir+"/exec/containerd/containerd.sock") {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(line))); err == nil {
			_ = unix.Kill(pid, unix.SIGKILL) // it may end by itself just now
		}
	}
}

// Host is its address, as DOCKER_HOST has it.
func (p *Engine) Host() string { return "unix://" + p.socket }
