package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

func writeResult(_ context.Context, s step) error {
	*s.written = true
	_, err := io.WriteString(s.call.Result(), s.Text)
	return err
}

func writeFile(_ context.Context, s step) error {
	f, err := s.call.File(s.Path)
	if err != nil {
		return err
	}
	if _, err := io.CopyN(f, pattern{}, s.Bytes); err != nil {
		return err
	}
	return f.Close()
}

// pattern is an endless stream of one letter.
type pattern struct{}

func (pattern) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

func wait(ctx context.Context, _ step) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// tries are the operations of try. Each goes straight to the kernel, so that the report has its own answer.
var tries = map[string]func(s step) (string, error){
	"read": func(s step) (string, error) {
		f, err := os.Open(s.Path)
		if err != nil {
			return "", err
		}
		defer f.Close()
		raw, err := io.ReadAll(io.LimitReader(f, 64<<10))
		return string(raw), err
	},
	"write": func(s step) (string, error) {
		fd, err := unix.Open(s.Path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			return "", err
		}
		defer unix.Close(fd)
		_, err = unix.Write(fd, []byte(s.Text))
		return "", err
	},
	"create": func(s step) (string, error) {
		fd, err := unix.Open(s.Path, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
		if err == nil {
			err = unix.Close(fd)
		}
		return "", err
	},
	"mkdir": func(s step) (string, error) { return "", unix.Mkdir(s.Path, 0o700) },
	"list": func(s step) (string, error) {
		entries, err := os.ReadDir(s.Path)
		names := make([]string, len(entries))
		for i, e := range entries {
			names[i] = e.Name()
		}
		return strings.Join(names, "\n"), err
	},
	"connect": func(s step) (string, error) {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return "", err
		}
		defer unix.Close(fd)
		return "", unix.Connect(fd, &unix.SockaddrUnix{Name: s.Path})
	},
	"mknod": func(s step) (string, error) { return "", unix.Mknod(s.Path, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))) },
	"fifo":  func(s step) (string, error) { return "", unix.Mkfifo(s.Path, 0o600) },
	"link":  func(s step) (string, error) { return "", unix.Link(s.Path, s.Text) },
}

func try(_ context.Context, s step) error {
	op := tries[s.Op]
	if op == nil {
		return fmt.Errorf("no operation %q to try", s.Op)
	}
	data, err := op(s)
	s.report(report{Errno: errno(err), Data: data})
	return nil
}

// systemCall makes one call with integer arguments, as system-call filters see it.
func systemCall(_ context.Context, s step) error {
	var a [6]uintptr
	copy(a[:], s.Args)
	_, _, e := unix.Syscall6(uintptr(s.Count), a[0], a[1], a[2], a[3], a[4], a[5])
	r := report{Count: s.Count}
	if e != 0 {
		r.Errno = errno(e)
	}
	s.report(r)
	return nil
}

// errno is the name of the system error in err, or its text where it has none.
func errno(err error) string {
	for e := err; e != nil; {
		if n, ok := e.(syscall.Errno); ok {
			return unix.ErrnoName(n)
		}
		u, ok := e.(interface{ Unwrap() error })
		if !ok {
			return e.Error()
		}
		e = u.Unwrap()
	}
	return ""
}

// facts reports what the run looks like from inside: the members of /proc/self/status that say what a process may,
// the mounts with their options by mount point, the environment and the host name.
func facts(_ context.Context, s step) error {
	found := map[string]string{"env": strings.Join(os.Environ(), "\n")}
	found["hostname"], _ = os.Hostname()
	wanted := map[string]bool{"Uid": true, "Gid": true, "Groups": true, "CapInh": true, "CapPrm": true, "CapEff": true,
		"CapBnd": true, "CapAmb": true, "NoNewPrivs": true, "Seccomp": true, "NSpid": true}
	err := eachLine("/proc/self/status", func(line string) {
		if key, value, ok := strings.Cut(line, ":"); ok && wanted[key] {
			found[key] = strings.TrimSpace(value)
		}
	})
	if err != nil {
		return err
	}
	err = eachLine("/proc/self/mountinfo", func(line string) {
		mount, fs, _ := strings.Cut(line, " - ")
		if m, f := strings.Fields(mount), strings.Fields(fs); len(m) > 5 && len(f) > 0 {
			found["mount "+m[4]] = f[0] + " " + m[5]
		}
	})
	if err != nil {
		return err
	}
	s.report(report{Facts: found})
	return nil
}

func eachLine(path string, f func(string)) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		f(lines.Text())
	}
	return lines.Err()
}
