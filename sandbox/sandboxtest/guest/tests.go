package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// packages are those whose tests need a real host, in the order of run.sh.
var packages = []string{"sandbox/cgroup", "sandbox/staging", "sandbox/keeper", "sandbox/oci", "sandbox/docker", "sandbox/sandboxtest/testworker"}

// programs are what the tests run inside containers and would build themselves.
var programs = map[string]string{"probe": "sandbox/sandboxtest/probe", "worker": "sandbox/sandboxtest/testworker"}

// tests builds the sandbox's tests for the guest, which has no compiler, into a fresh directory.
func tests(ctx context.Context, short bool) (dir string, err error) {
	if dir, err = os.MkdirTemp("", "rea-payload-"); err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			os.RemoveAll(dir)
		}
	}()
	for name, path := range programs {
		if err := compile(ctx, "build", filepath.Join(dir, name), path); err != nil {
			return "", err
		}
	}
	for _, path := range packages {
		if short && path == "sandbox/sandboxtest/testworker" {
			continue
		}
		if err := compile(ctx, "test", filepath.Join(dir, filepath.Base(path), "tests"), path); err != nil {
			return "", err
		}
	}
	script, err := os.ReadFile(filepath.Join(source, "run.sh"))
	if err == nil && short {
		err = os.WriteFile(filepath.Join(dir, "short"), nil, 0o644)
	}
	return dir, errors.Join(err, os.WriteFile(filepath.Join(dir, "run"), script, 0o755), os.Chmod(dir, 0o755))
}

// compile makes one static program, of a package or of its tests.
func compile(ctx context.Context, what, to, path string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	args := []string{what, "-trimpath", "-ldflags=-s -w", "-o", to}
	if what == "test" {
		args = append(args, "-c")
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "./"+path)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", path, err, out)
	}
	return nil
}
