//go:build linux

// Command probe is what the conformance suite runs inside a sandbox: it looks at its own containment, tries what must
// not work, and tells what happened. It talks lines of JSON over the control channel, in the types of sandboxtest, and
// speaks first. It holds no judgement: what an answer must be is the suite's business.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"rea/sandbox"
	"rea/sandbox/sandboxtest/script"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "child" {
		child(os.Args[2:])
		return
	}
	// A Go program that is PID 1 dies of a peer's signal unless it catches it; the channel of a dead peer raises one.
	signal.Notify(make(chan os.Signal, 16))
	in, out := channel()
	if err := serve(in, out); err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(1)
	}
}

// channel opens the control channel that the first argument names, so that no child inherits it.
func channel() (io.Reader, io.Writer) {
	if len(os.Args) > 1 && os.Args[1] == "--channel="+string(sandbox.ChannelFD3) {
		unix.CloseOnExec(3)
		f := os.NewFile(3, "channel")
		return f, f
	}
	return os.Stdin, os.Stdout
}

// A filter may end the one thread that makes a call: keep the main goroutine on the first one, which others wait for.
func init() { runtime.LockOSThread() }

// try32bit makes a call through the kernel's 32-bit entry on a thread of its own. It returns 0 if the call was made,
// 1 if it was refused with an error, 2 if the thread was ended for it.
func try32bit() int {
	thread, result := make(chan string, 1), make(chan int32, 1)
	go func() {
		runtime.LockOSThread()
		thread <- fmt.Sprintf("/proc/self/task/%d", unix.Gettid())
		result <- int32(int80())
		select {} // the thread must not end by itself
	}()
	for path := <-thread; ; time.Sleep(time.Millisecond) {
		if _, err := os.Stat(path); err != nil {
			return 2
		}
		select {
		case r := <-result:
			if r <= 0 {
				return 1
			}
			return 0
		default:
		}
	}
}

func serve(in io.Reader, out io.Writer) error {
	answers := json.NewEncoder(out)
	if err := answers.Encode(script.Answer{Facts: facts()}); err != nil {
		return err
	}
	stubborn := false
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var task script.Task
		if err := json.Unmarshal(lines.Bytes(), &task); err != nil {
			return err
		}
		if task.Do == script.Stubborn {
			stubborn = true
		}
		if err := answers.Encode(do(task)); err != nil {
			break
		}
	}
	if stubborn { // what a compromised worker would do when its owner is gone
		select {}
	}
	return lines.Err()
}

func do(task script.Task) script.Answer {
	switch task.Do {
	case script.Stubborn:
		return script.Answer{}
	case script.Exit:
		os.Exit(task.Number)
	case script.Write:
		return failed(write(task.Path, []byte(task.Text)))
	case script.Read:
		data, err := read(task.Path)
		return script.Answer{Text: string(data), Errno: errno(err)}
	case script.Fill:
		n, err := fill(task.Path)
		return script.Answer{Number: n, Errno: errno(err)}
	case script.Files:
		n, err := files(task.Path)
		return script.Answer{Number: n, Errno: errno(err)}
	case script.Calls:
		return script.Answer{Calls: calls(task.Path)}
	case script.Look:
		return script.Answer{Around: look()}
	case script.Attack:
		return script.Answer{Calls: attack(task.Path)}
	case script.Escalate:
		return script.Answer{Calls: escalate()}
	case script.Plant:
		return script.Answer{Calls: plant(task.Path)}
	case script.Allocate:
		allocate(task.Number)
		return script.Answer{}
	case script.AllocateInChild:
		return failed(exec.Command(sandbox.WorkerPath, "child", "allocate", fmt.Sprint(task.Number)).Run())
	case script.Fork:
		n, err := fork(task.Number, "wait")
		return script.Answer{Number: n, Errno: errno(err)}
	case script.Daemonize:
		n, err := fork(1, "daemonize")
		return script.Answer{Number: n, Errno: errno(err)}
	case script.Flood:
		return failed(flood(task.Number))
	}
	return script.Answer{Errno: int(unix.ENOSYS)}
}

func failed(err error) script.Answer { return script.Answer{Errno: errno(err)} }

// errno gives the system's number for an error, 0 for none and -1 for one that has no number.
func errno(err error) int {
	var e syscall.Errno
	switch {
	case err == nil:
		return 0
	case errors.As(err, &e):
		return int(e)
	}
	return -1
}

func write(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

func read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, 1<<20))
}

// fill writes a file until the volume refuses, and says how many bytes it took.
func fill(path string) (int, error) {
	f, err := os.Create(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	block, total := make([]byte, 64<<10), 0
	for {
		n, err := f.Write(block)
		total += n
		if err != nil {
			return total, err
		}
	}
}

// files makes empty files until the volume refuses, and says how many it took.
func files(dir string) (int, error) {
	for n := 0; ; n++ {
		f, err := os.Create(fmt.Sprintf("%s/f%d", dir, n))
		if err != nil {
			return n, err
		}
		f.Close()
	}
}

func allocate(bytes int) {
	block := make([]byte, bytes)
	for i := 0; i < len(block); i += os.Getpagesize() {
		block[i] = 1
	}
	kept = append(kept, block)
}

// kept holds what was allocated, so that it stays.
var kept [][]byte

// fork starts children until there are n or the system refuses, and says how many it started.
func fork(n int, kind string) (int, error) {
	for i := range n {
		if err := exec.Command(sandbox.WorkerPath, "child", kind).Start(); err != nil {
			return i, err
		}
	}
	return n, nil
}

// flood writes numbered lines to standard error.
func flood(bytes int) error {
	w := bufio.NewWriter(os.Stderr)
	for n, i := 0, 0; n < bytes; i++ {
		c, err := fmt.Fprintf(w, "line %d\n", i)
		if err != nil {
			return err
		}
		n += c
	}
	fmt.Fprintln(w, "the last line")
	return w.Flush()
}

// child is what the probe's children do.
func child(args []string) {
	switch args[0] {
	case "allocate":
		var n int
		fmt.Sscan(args[1], &n)
		allocate(n)
	case "int80":
		os.Exit(try32bit())
	case "daemonize": // leave the session and the parent, as a program that wants to outlive its owner does
		cmd := exec.Command(sandbox.WorkerPath, "child", "wait")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err != nil {
			os.Exit(1)
		}
	case "wait":
		signal.Ignore(unix.SIGTERM, unix.SIGHUP, unix.SIGINT)
		select {}
	}
}
