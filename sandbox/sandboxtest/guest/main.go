// Command guest runs test programs on a host that most users have and the machine at hand may not be: cgroup v2 with
// systemd and an engine that uses its systemd cgroup driver, in an emulated machine.
//
//	guest [-short] [-cache DIRECTORY] [-payload DIRECTORY]
//
// It makes the machine from Debian packages once and keeps its running state, so that a run begins within seconds.
// Every run begins from that state; nothing of one reaches the next. What the tests print is printed, and the exit
// code is theirs. It needs root (to install packages and to make the disk) and no network once the machine is made.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// source is where this program's scripts lie below the module's root, which must be the working directory.
const source = "sandbox/sandboxtest/guest"

func main() {
	// The emulator dies with the thread that started it, which must then be one that stays: the first.
	runtime.LockOSThread()
	short := flag.Bool("short", false, "run one conformance subset on each driver only")
	cache := flag.String("cache", ".cache/guest", "directory that keeps the machine")
	payload := flag.String("payload", "", "directory with a script named run, instead of the sandbox's tests")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	code, err := run(ctx, *cache, *payload, *short)
	if err != nil {
		fmt.Fprintln(os.Stderr, "guest:", err)
		code = 4
	}
	os.Exit(code)
}

func run(ctx context.Context, cache, payload string, short bool) (int, error) {
	unlock, err := lock(cache)
	if err != nil {
		return 0, err
	}
	defer unlock()
	dir, err := prepare(ctx, cache)
	if err != nil {
		return 0, err
	}
	if payload == "" {
		begun := time.Now()
		if payload, err = tests(ctx, short); err != nil {
			return 0, err
		}
		defer os.RemoveAll(payload)
		note("the tests are built", begun)
	}
	if err := disk(ctx, dir, payload); err != nil {
		return 0, err
	}
	m, err := start(ctx, dir, true)
	if err != nil {
		return 0, err
	}
	defer m.end()
	return m.execute(ctx, os.Stdout)
}

// lock keeps a second run on the same machine waiting: it has one disk.
func lock(cache string) (unlock func(), err error) {
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(cache, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil
}

// prepare makes the machine and its saved state if the cache does not have them for this recipe.
func prepare(ctx context.Context, cache string) (string, error) {
	key, err := recipe()
	if err != nil {
		return "", err
	}
	dir, err := filepath.Abs(filepath.Join(cache, key))
	if err != nil {
		return "", err
	}
	ready := filepath.Join(dir, "ready")
	if _, err := os.Stat(ready); err == nil {
		return dir, nil
	}
	begun := time.Now()
	if _, err := os.Stat(filepath.Join(dir, "root.img")); err != nil {
		if err := command(ctx, filepath.Join(source, "root.sh"), dir); err != nil {
			return "", fmt.Errorf("make the guest's disk: %w", err)
		}
		note("the guest's disk is made", begun)
	}
	begun = time.Now()
	if err := save(ctx, dir); err != nil {
		return "", fmt.Errorf("save the guest's state: %w", err)
	}
	note("the guest's state is saved", begun)
	return dir, os.WriteFile(ready, nil, 0o644)
}

// recipe names the machine by everything that it is made from.
func recipe() (string, error) {
	sum := sha256.New()
	for _, name := range []string{"root.sh", "settle.sh"} {
		data, err := os.ReadFile(filepath.Join(source, name))
		if err != nil {
			return "", fmt.Errorf("run this from the module's root: %w", err)
		}
		sum.Write(data)
	}
	fmt.Fprint(sum, hardware(""), diskSize)
	return hex.EncodeToString(sum.Sum(nil))[:12], nil
}

// save boots the machine until its engine answers and keeps it as it is then.
func save(ctx context.Context, dir string) error {
	err := errors.Join(
		command(ctx, "qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", "root.img", filepath.Join(dir, "state.qcow2")),
		disk(ctx, dir, ""))
	if err != nil {
		return err
	}
	m, err := start(ctx, dir, false)
	if err != nil {
		return err
	}
	defer m.end()
	if err := m.ready(ctx); err != nil {
		return err
	}
	return m.save()
}

// diskSize is the size of the payload's disk in bytes, which is part of the saved state.
const diskSize = 256 << 20

// disk makes the payload's disk from a directory, "" for an empty one.
func disk(ctx context.Context, dir, payload string) error {
	path := filepath.Join(dir, "payload.img")
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := errors.Join(os.WriteFile(path, nil, 0o644), os.Truncate(path, diskSize)); err != nil {
		return err
	}
	args := []string{"-q", "-O", "^has_journal", path}
	if payload != "" {
		args = append([]string{"-d", payload}, args...)
	}
	return command(ctx, "mkfs.ext4", args...)
}

// command runs a program and shows what it prints, on standard error.
func command(ctx context.Context, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(name), err)
	}
	return nil
}

func note(what string, begun time.Time) {
	fmt.Fprintf(os.Stderr, "guest: %s (%.1f s)\n", what, time.Since(begun).Seconds())
}
