package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"rea/evidence/fault"
	"rea/evidence/volume"
)

// handlers are what the worker under test can be asked for, by operation.
var handlers = map[string]Handler{
	"echo":      func(_ context.Context, c *Call) error { _, err := c.Result().Write(c.Params); return err },
	"files":     writeFiles,
	"duplicate": duplicate,
	"fault": func(_ context.Context, c *Call) error {
		return errors.Join(leaveParts(c), fault.New(fault.UnsupportedTarget, "not a zip", "give a zip").With("reason", "magic"))
	},
	"unencodable": func(context.Context, *Call) error {
		return fault.New(fault.UnsupportedTarget, strings.Repeat("m", 5000), "a").With("reason", func() {})
	},
	"plain": func(context.Context, *Call) error { return errors.New("text that stays inside") },
	"panic": func(_ context.Context, c *Call) error { leaveParts(c); panic("secret") },
	"wait": func(ctx context.Context, c *Call) error {
		c.Progress("ready", "", 0, 0)
		<-ctx.Done()
		return context.Cause(ctx)
	},
	"digest": func(ctx context.Context, c *Call) error {
		sum, err := c.Digest(ctx)
		fmt.Fprintf(c.Result(), `[%q,%q]`, c.Mark, sum)
		return err
	},
	"partial": func(ctx context.Context, c *Call) error {
		c.Progress("ready", "", 0, 0)
		<-ctx.Done()
		io.WriteString(c.Result(), `{"partial":true}`)
		return errors.Join(c.Result().Close(), ctx.Err())
	},
	"stubborn": func(ctx context.Context, c *Call) error {
		c.Progress("ready", "", 0, 0)
		<-ctx.Done()
		_, err := io.WriteString(c.Result(), `{"whole":true}`)
		return err
	},
	"bytes":   func(_ context.Context, c *Call) error { return fillBytes(c) },
	"inodes":  func(_ context.Context, c *Call) error { return fillInodes(c) },
	"deaf":    func(_ context.Context, c *Call) error { fillBytes(c); return nil },
	"crowded": fillWithFiles,
	"litter": func(_ context.Context, c *Call) error {
		f, err := os.Create(filepath.Join(c.folder, "..", "litter"))
		if err != nil {
			return err
		}
		defer f.Close()
		io.Copy(f, endless{}) // to the last page
		return nil
	},
	"progress": func(_ context.Context, c *Call) error {
		for i := range int64(100_000) {
			c.Progress("count", strings.Repeat("t", 1000)+"\xff", i, -1)
		}
		c.Progress("last", "", 1, 2)
		return nil
	},
	"memory": func(_ context.Context, c *Call) error {
		_, err := fmt.Fprint(c.Result(), debug.SetMemoryLimit(-1))
		return err
	},
	"scratch":    useScratch,
	"unreadable": manyUnreadable,
	"child":      childDescriptors,
	"signals":    childSignals,
	"reach":      reach,
	"orphan": func(_ context.Context, c *Call) error {
		cmd := exec.Command("/proc/self/exe", "child", "sleep")
		cmd.Stderr = os.Stderr // what the test waits on
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err != nil {
			return err
		}
		c.Progress("ready", "", 0, 0)
		select {} // deaf to the end of its context
	},
}

func writeFiles(_ context.Context, c *Call) error {
	var g errgroup.Group
	for i := range 20 {
		g.Go(func() error {
			f, err := c.File(fmt.Sprintf("%d/%d", i%3, i))
			if err != nil {
				return err
			}
			if _, err := io.WriteString(f, strings.Repeat("f", i)); err != nil {
				return err
			}
			return f.Close()
		})
	}
	raw, err := c.Raw("out.txt")
	if err != nil {
		return err
	}
	io.WriteString(raw, "raw, left open")
	io.WriteString(c.Result(), `{"a":1`)
	io.WriteString(c.Result(), `}`)
	c.SetTarget(volume.TargetSeen{SHA256: strings.Repeat("ab", 32), Unreadable: []string{"x"}})
	return g.Wait()
}

func duplicate(_ context.Context, c *Call) error {
	a, err := c.File("a")
	if err != nil {
		return err
	}
	io.WriteString(a, "first")
	if _, err := c.File("a"); err == nil {
		return errors.New("a file was made twice")
	}
	for _, name := range []string{"", "../x", "a/b/c/d/e/f/g/h", "caf\u00e9", "/x", "a//b"} {
		if _, err := c.File(name); err == nil {
			return fmt.Errorf("a file %q was made", name)
		}
	}
	return nil
}

// leaveParts leaves one whole file, one open one, and an open result.
func leaveParts(c *Call) error {
	whole, err := c.File("whole")
	if err != nil {
		return err
	}
	io.WriteString(whole, "whole")
	open, err := c.File("open")
	if err != nil {
		return err
	}
	io.WriteString(open, "half")
	io.WriteString(c.Result(), `{"half":`)
	return whole.Close()
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func fillBytes(c *Call) error {
	f, err := c.File("big")
	if err != nil {
		return err
	}
	_, err = io.Copy(f, endless{})
	return err
}

func fillInodes(c *Call) error {
	for i := 0; ; i++ {
		f, err := c.File(strconv.Itoa(i))
		if err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
}

// fillWithFiles leaves whole files of a page each until no page is left.
func fillWithFiles(_ context.Context, c *Call) error {
	page := make([]byte, os.Getpagesize())
	for i := 0; ; i++ {
		f, err := c.File(strconv.Itoa(i))
		if err != nil {
			return err
		}
		f.Write(page)
		if err := f.Close(); err != nil {
			return err
		}
	}
}

func useScratch(_ context.Context, c *Call) error {
	dir, err := c.Scratch()
	if err != nil {
		return err
	}
	again, _ := c.Scratch()
	if dir != again {
		return errors.New("two scratch directories")
	}
	if err := os.WriteFile(filepath.Join(dir, "x"), nil, 0o600); err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.Result(), "%q", dir)
	return err
}

func manyUnreadable(_ context.Context, c *Call) error {
	paths := make([]string, 100_000)
	for i := range paths {
		paths[i] = fmt.Sprintf("%020d", i)
	}
	c.SetTarget(volume.TargetSeen{SHA256: strings.Repeat("ab", 32), Unreadable: paths, Omitted: 5})
	return nil
}

// childDescriptors lets a child say what it inherited.
func childDescriptors(_ context.Context, c *Call) error {
	out, err := exec.Command("/proc/self/exe", "child", "descriptors").Output()
	if err != nil {
		return err
	}
	_, err = c.Result().Write(out)
	return err
}

func childSignals(_ context.Context, c *Call) error {
	out, err := exec.Command("/proc/self/exe", "child", "signals").Output()
	if err != nil {
		return err
	}
	_, err = c.Result().Write(out)
	return err
}

// reach tries what Landlock must refuse, and what it must not.
func reach(_ context.Context, c *Call) error {
	say := func(name string, err error) {
		var n syscall.Errno
		errors.As(err, &n)
		fmt.Fprintf(c.Result(), "%s=%s ", name, unix.ErrnoName(n))
	}
	try := func(name, path string, flags int) {
		f, err := os.OpenFile(path, flags, 0o600)
		if err == nil {
			f.Close()
		}
		say(name, err)
	}
	base := filepath.Dir(c.Target)
	try("target", filepath.Join(c.Target, "artifact"), os.O_RDONLY)
	try("pipe", filepath.Join(c.Target, "pipe"), os.O_WRONLY|syscall.O_NONBLOCK)
	try("elsewhere", filepath.Join(base, "open", "secret"), os.O_RDONLY)
	try("create", filepath.Join(base, "open", "new"), os.O_WRONLY|os.O_CREATE)
	try("scratch", filepath.Join(base, "scratch", "new"), os.O_WRONLY|os.O_CREATE)
	return nil
}

// child is what handlers start.
func child(what string) {
	switch what {
	case "sleep":
		for {
			_ = syscall.Pause() // until a signal ends it
		}
	case "signals":
		sent := 0
		for sig := syscall.Signal(1); sig <= 64; sig++ {
			if sig < 32 || sig > 34 { // 32 to 34 belong to C libraries and the Go runtime; they are sent below
				if syscall.Kill(1, sig) == nil {
					sent++
				}
			}
		}
		fmt.Print(sent)
	case "descriptors":
		for fd := range 64 {
			if link, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd)); err == nil && !strings.HasPrefix(link, "anon_inode") {
				kind, _, _ := strings.Cut(link, ":")
				fmt.Printf("%d=%s ", fd, kind)
			}
		}
		_, err := os.OpenFile("/proc/1/mem", os.O_RDWR, 0)
		fmt.Print("mem=", errors.Is(err, os.ErrPermission))
		_, err = os.ReadDir("/proc/1/fd")
		fmt.Print(" fds=", errors.Is(err, os.ErrPermission))
	}
}
