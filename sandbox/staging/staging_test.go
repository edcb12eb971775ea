package staging_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"rea/evidence/fault"
	"rea/sandbox/staging"
)

// helperEnv makes this test binary open one target as whoever it runs as and print the error's code.
const helperEnv = "REA_STAGING_TEST_OPEN"

func TestMain(m *testing.M) {
	if path, ok := os.LookupEnv(helperEnv); ok {
		fmt.Print(openAndRead(path))
		return
	}
	os.Exit(m.Run())
}

func openAndRead(path string) string {
	t, err := staging.OpenTarget(path, staging.TargetOptions{})
	if err == nil {
		_, err = t.Reopen()
	}
	if err == nil {
		return "opened"
	}
	e := fault.From(err)
	return fmt.Sprint(e.Code, " ", e.Details["system_code"])
}

// needMounts skips where the host lets nobody mount.
func needMounts(t testing.TB) {
	t.Helper()
	if !staging.Privileged() {
		t.Skip("this process may not mount: run as root")
	}
}

func write(t testing.TB, path, content string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func mkdir(t testing.TB, path string, mode os.FileMode) string {
	t.Helper()
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// publicDir is a fresh directory that every user may enter.
func publicDir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o755))
	must(t, os.Chmod(filepath.Dir(dir), 0o755))
	return dir
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func content(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	return string(b)
}

func open(t testing.TB, path string) *staging.Target {
	t.Helper()
	target, err := staging.OpenTarget(path, staging.TargetOptions{})
	must(t, err)
	t.Cleanup(func() { target.Close() })
	return target
}

// bind binds and unmounts at the test's end.
func bind(t testing.TB, target *staging.Target, dst string, o staging.BindOptions) []string {
	t.Helper()
	unproved, err := staging.Bind(target.File, dst, o)
	must(t, err)
	t.Cleanup(func() { must(t, staging.Unmount(dst)) })
	return unproved
}

// mount mounts with the classic system call, so that the expectations do not rest on the code under test.
func mount(t testing.TB, source, dst, fstype string, flags uintptr) {
	t.Helper()
	must(t, unix.Mount(source, dst, fstype, flags, ""))
	t.Cleanup(func() {
		if err := unix.Unmount(dst, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
			t.Error(err)
		}
	})
}

func wantCode(t testing.TB, err error, code fault.Code) *fault.Error {
	t.Helper()
	var e *fault.Error
	if !errors.As(err, &e) || e.Code != code {
		t.Fatalf("error is %v, want code %s", err, code)
	}
	if e.Action == "" {
		t.Error("the error does not say what to do next")
	}
	return e
}
