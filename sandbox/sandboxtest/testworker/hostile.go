package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"rea/evidence/volume"
	"rea/providers/wire"
)

// kept holds what a behaviour must not give back.
var kept [][]byte

const evidenceDir = "/evidence" // sandbox.EvidencePath

func (s step) folder() string { return filepath.Join(evidenceDir, volume.Folder(s.call.Seq)) }

func (s step) file() string { return filepath.Join(s.folder(), volume.FilesDir, s.Path) }

func eatMemory(_ context.Context, s step) error {
	block, err := unix.Mmap(-1, 0, int(s.Bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return err
	}
	for i := 0; i < len(block); i += os.Getpagesize() {
		block[i] = 1
	}
	kept = append(kept, block)
	return nil
}

// eatInChild has a child eat memory. The kernel may end it, or this process.
func eatInChild(_ context.Context, s step) error {
	s.report(0, fmt.Sprint(exec.Command("/proc/self/exe", "child", "eat", strconv.FormatInt(s.Bytes, 10)).Run()))
	return nil
}

func fork(_ context.Context, s step) error {
	for i := range s.Count {
		if err := exec.Command("/proc/self/exe", "child", "sleep").Start(); err != nil {
			s.report(i, err.Error())
			return nil
		}
	}
	s.report(s.Count, "")
	return nil
}

func fill(_ context.Context, s step) error {
	for i := 0; ; i++ {
		f, err := s.call.File("fill/" + strconv.Itoa(i))
		if err != nil {
			return err
		}
		if s.Op == "bytes" {
			_, err = io.Copy(f, pattern{})
		} else {
			err = f.Close()
		}
		if err != nil {
			return err
		}
	}
}

func stderr(_ context.Context, s step) error {
	_, err := io.CopyN(os.Stderr, pattern{}, s.Bytes)
	return err
}

// stdout writes to descriptor 1, wherever that leads, and to standard error.
func stdout(_ context.Context, s step) error {
	block := make([]byte, 1<<20)
	for n := int64(0); n < s.Bytes; n += int64(len(block)) {
		if _, err := os.Stdout.Write(block); err != nil {
			return err
		}
		if _, err := os.Stderr.Write(block); err != nil {
			return err
		}
	}
	return nil
}

func hang(context.Context, step) error { select {} }

func storm(_ context.Context, s step) error {
	for i := int64(0); s.Count == 0 || i < s.Count; i++ {
		p := &wire.Progress{Seq: s.call.Seq, Phase: "storm", Text: strings.Repeat("~", wire.MaxText), Entries: i}
		if err := s.process.Channel().Send(wire.FromWorker{Progress: p}); err != nil {
			return err
		}
	}
	return nil
}

func done(_ context.Context, s step) error {
	return s.process.Channel().Send(wire.FromWorker{Done: &wire.Done{
		Seq: s.call.Seq, ManifestSHA256: strings.Repeat("ab", 32), ManifestBytes: 2,
	}})
}

func hello(_ context.Context, s step) error {
	return s.process.Channel().Send(wire.FromWorker{Hello: &wire.Hello{Version: wire.Version}})
}

func tamper(_ context.Context, s step) error {
	f, err := os.OpenFile(s.file(), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteAt([]byte{'y'}, 0)
	return err
}

func replace(_ context.Context, s step) error {
	name := s.file()
	if s.Op == "hardlink" {
		return os.Link(name, name+".second")
	}
	if s.Op == "setuid" {
		return os.Chmod(name, 0o600|os.ModeSetuid)
	}
	if s.Op == "sparse" {
		return os.Truncate(name, 1<<40)
	}
	if err := os.Remove(name); err != nil {
		return err
	}
	switch s.Op {
	case "missing":
		return nil
	case "symlink":
		return os.Symlink("/evidence/nonce", name)
	}
	return fmt.Errorf("cannot replace a file by %q", s.Op)
}

func litter(_ context.Context, s step) error {
	for i := range s.Count {
		if err := os.WriteFile(filepath.Join(s.folder(), fmt.Sprintf("litter\n%d", i)), nil, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// swap flips a name for as long as the container lives.
func swap(_ context.Context, s step) error {
	name := s.file()
	spare := name + ".kept"
	if err := os.Rename(name, spare); err != nil {
		return err
	}
	go func() {
		for {
			os.Link(spare, name)
			os.Remove(name)
			os.Symlink("/etc/hostname", name)
			os.Remove(name)
			os.Rename(spare, name)
			os.Rename(name, spare)
		}
	}()
	return nil
}

func exit(_ context.Context, s step) error {
	os.Exit(int(s.Count))
	return nil
}

func panics(context.Context, step) error { panic("as the script says") }

// orphan starts a child that starts a grandchild and ends; it returns when the grandchild lives.
func orphan(_ context.Context, s step) error {
	cmd := exec.Command("/proc/self/exe", "child", "parent")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return err
	}
	s.report(0, strings.TrimSpace(line))
	return cmd.Wait()
}

func signals(_ context.Context, s step) error {
	out, err := exec.Command("/proc/self/exe", "child", "signals").Output()
	if err != nil {
		return err
	}
	sent, err := strconv.ParseInt(string(out), 10, 64)
	s.report(sent, "")
	return err
}

// child is what the processes do that behaviours start.
func child(args []string) {
	switch args[0] {
	case "sleep":
		sleep()
	case "eat":
		n, err := strconv.ParseInt(args[1], 10, 64)
		if err == nil {
			err = eatMemory(context.Background(), step{behaviour: behaviour{Bytes: n}})
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	case "parent":
		grandchild := exec.Command("/proc/self/exe", "child", "holder")
		grandchild.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		grandchild.Stdout = os.Stdout
		if err := grandchild.Start(); err != nil {
			fmt.Println(err)
		}
	case "holder":
		fmt.Println("channels held:", grab("/proc/1/fd")+grab("/proc/self/fd")-1) // its standard output is a pipe
		sleep()
	case "signals":
		fmt.Print(signalAll())
	}
}

// sleep never returns. An empty select would be a deadlock to the runtime.
func sleep() {
	for {
		time.Sleep(time.Hour)
	}
}

// grab opens again, for writing, what is open as one of the first descriptors in the process behind dir, and counts
// the pipes and sockets that it got.
func grab(dir string) int {
	opened := []int{}
	for fd := range 32 {
		if f, err := unix.Open(filepath.Join(dir, strconv.Itoa(fd)), unix.O_RDWR|unix.O_NONBLOCK, 0); err == nil {
			opened = append(opened, f)
		}
		if slices.Contains(opened, fd+1) {
			break // what follows was opened here
		}
	}
	got := 0
	for _, f := range opened {
		var st unix.Stat_t
		if unix.Fstat(f, &st) == nil && (st.Mode&unix.S_IFMT == unix.S_IFIFO || st.Mode&unix.S_IFMT == unix.S_IFSOCK) {
			got++
		}
	}
	return got
}

// signalAll sends PID 1 every signal that can be sent, many times over, and counts the kinds.
func signalAll() int {
	sent := 0
	for sig := syscall.Signal(1); sig <= 64; sig++ {
		if syscall.Kill(1, sig) == nil {
			sent++
		}
		runtime.Gosched()
	}
	return sent
}
