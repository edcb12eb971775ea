package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	snapshot = "ready"
	// bootPatience bounds a boot until the engine answers; half a minute on an idle machine.
	bootPatience = 10 * time.Minute
	// connectPatience bounds the emulator's own start.
	connectPatience = time.Minute
	// silence bounds how long the tests may print nothing: a crash test is silent for minutes.
	silence = 30 * time.Minute
)

// machine is a running emulator with two connections: the guest's second serial line, and the emulator's control.
type machine struct {
	cmd     *exec.Cmd
	ended   chan struct{} // closed when the emulator has ended
	dir     string        // of the sockets
	serial  net.Conn
	lines   *bufio.Reader
	control net.Conn
	answers *json.Decoder
}

// hardware is the machine with what it boots, whose files lie in dir: what a saved state is bound to.
func hardware(dir string) []string {
	file := func(name string) string { return filepath.Join(dir, name) }
	return []string{
		"-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", "2048", "-nodefaults", "-display", "none", "-nic", "none",
		"-kernel", file("vmlinuz"), "-initrd", file("initrd"),
		"-append", "root=/dev/vda rw console=ttyS0 mitigations=off",
		"-drive", "file=" + file("state.qcow2") + ",if=virtio,format=qcow2,cache=unsafe",
		"-drive", "file=" + file("payload.img") + ",if=virtio,format=raw,readonly=on",
	}
}

// start starts the emulator, from the saved state or cold.
func start(ctx context.Context, dir string, resume bool) (_ *machine, err error) {
	m := &machine{ended: make(chan struct{})}
	if m.dir, err = os.MkdirTemp("", "rea-guest-"); err != nil { // a socket's path must be short
		return nil, err
	}
	args := append(hardware(dir),
		"-serial", "file:"+filepath.Join(dir, "console.log"),
		"-chardev", "socket,id=line,server=on,wait=off,path="+m.socket("line"), "-serial", "chardev:line",
		"-qmp", "unix:"+m.socket("control")+",server=on,wait=off")
	if resume {
		args = append(args, "-loadvm", snapshot)
	}
	m.cmd = exec.CommandContext(ctx, "qemu-system-x86_64", args...)
	m.cmd.Stderr = os.Stderr
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL} // a terminal's interrupt is ours to handle
	if err := m.cmd.Start(); err != nil {
		os.RemoveAll(m.dir)
		return nil, err
	}
	go func() {
		defer close(m.ended)
		_ = m.cmd.Wait() // why it ended it says itself
	}()
	defer func() {
		if err != nil {
			m.end()
		}
	}()
	if m.control, err = m.connect(ctx, "control"); err != nil {
		return nil, err
	}
	m.answers = json.NewDecoder(m.control)
	if err := m.ask("qmp_capabilities", nil); err != nil {
		return nil, err
	}
	if m.serial, err = m.connect(ctx, "line"); err != nil {
		return nil, err
	}
	m.lines = bufio.NewReader(m.serial)
	return m, nil
}

func (m *machine) socket(name string) string { return filepath.Join(m.dir, name) }

// connect reaches one of the emulator's sockets as soon as it listens.
func (m *machine) connect(ctx context.Context, name string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectPatience)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", m.socket(name))
		if err == nil {
			return conn, nil
		}
		select {
		case <-tick.C:
		case <-m.ended:
			return nil, errors.New("the emulator ended")
		case <-ctx.Done():
			return nil, errors.Join(err, context.Cause(ctx))
		}
	}
}

// ask gives the emulator one command (qemu-qmp-ref(7)) and waits for its answer; events in between are passed over.
func (m *machine) ask(command string, arguments any) error {
	request := struct {
		Execute   string `json:"execute"`
		Arguments any    `json:"arguments,omitempty"`
	}{command, arguments}
	if err := json.NewEncoder(m.control).Encode(request); err != nil {
		return err
	}
	for {
		var answer struct {
			Return any
			Error  *struct{ Desc string }
		}
		if err := m.answers.Decode(&answer); err != nil {
			return fmt.Errorf("%s: %w", command, err)
		}
		if answer.Error != nil {
			return fmt.Errorf("%s: %s", command, answer.Error.Desc)
		}
		if text, isText := answer.Return.(string); isText && strings.TrimSpace(text) != "" {
			return fmt.Errorf("%s: %s", command, text) // what a person's command prints is its failure
		}
		if answer.Return != nil {
			return nil
		}
	}
}

// save keeps the running machine in its disk.
func (m *machine) save() error {
	return m.ask("human-monitor-command", map[string]string{"command-line": "savevm " + snapshot})
}

// ready waits until the guest says that its engine answers.
func (m *machine) ready(ctx context.Context) error {
	defer m.interruptible(ctx)()
	m.serial.SetReadDeadline(time.Now().Add(bootPatience))
	for {
		line, err := m.lines.ReadString('\n')
		if err != nil {
			return fmt.Errorf("wait for the guest (its console is in console.log beside its disk): %w", err)
		}
		if strings.TrimSpace(line) == "ready" {
			return nil
		}
	}
}

// interruptible makes reads from the guest end with ctx.
func (m *machine) interruptible(ctx context.Context) (release func() bool) {
	return context.AfterFunc(ctx, func() { m.serial.Close() })
}

// execute tells the guest to run its payload, passes on what it prints, and returns its exit code.
func (m *machine) execute(ctx context.Context, out io.Writer) (int, error) {
	defer m.interruptible(ctx)()
	mark := rand.Text() // no test prints it
	if _, err := fmt.Fprintf(m.serial, "%s %d\n", mark, time.Now().Unix()); err != nil {
		return 0, err
	}
	for {
		m.serial.SetReadDeadline(time.Now().Add(silence))
		line, err := m.lines.ReadBytes('\n')
		if err != nil {
			return 0, fmt.Errorf("read from the guest: %w", err)
		}
		if code, found := bytes.CutPrefix(line, []byte(mark+" ")); found {
			return strconv.Atoi(string(bytes.TrimSpace(code)))
		}
		if _, err := out.Write(line); err != nil {
			return 0, err
		}
	}
}

// end stops the emulator and waits for it. A clean end lets it close its disk.
func (m *machine) end() {
	clean := false
	if m.control != nil {
		m.control.SetDeadline(time.Now().Add(connectPatience))
		clean = m.ask("quit", nil) == nil
		m.control.Close()
	}
	if !clean {
		m.cmd.Process.Kill()
	}
	if m.serial != nil {
		m.serial.Close()
	}
	<-m.ended
	os.RemoveAll(m.dir)
}
