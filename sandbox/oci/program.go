package oci

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"rea/evidence/fault"
	"rea/sandbox"
)

const (
	// Oldest runc whose handling of mounts and seccomp the rendering relies on.
	minMajor, minMinor = 1, 1
	// versionDeadline bounds `runc --version`, which takes milliseconds.
	versionDeadline = 10 * time.Second
	installAction   = "Install the package runc (Debian and Ubuntu: apt-get install runc), or run make setup."
)

// program is a runtime that was found on this host.
type program struct {
	path    string // absolute
	kind    string // the first word of its version: "runc"
	version string // "1.1.5+ds1"
}

// String names the program as proofs do: "runc 1.1.5+ds1".
func (p *program) String() string { return p.kind + " " + p.version }

// program finds the runtime and checks its version, once. A failure is not remembered: it may be installed meanwhile.
func (d *Driver) program(ctx context.Context) (*program, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.found != nil {
		return d.found, nil
	}
	p, err := findProgram(ctx, d.runtime)
	if err != nil {
		return nil, err
	}
	d.found = p
	return p, nil
}

func findProgram(ctx context.Context, name string) (*program, error) {
	path, err := lookup(name)
	if err != nil {
		return nil, unavailable("runc", fmt.Sprintf("The OCI runtime %q was not found on this host.", name), installAction).Because(err)
	}
	ctx, cancel := context.WithTimeout(ctx, versionDeadline)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--version")
	cmd.Env = []string{}
	var out sandbox.Capture
	cmd.Stdout, cmd.WaitDelay = &out, time.Second
	if err := cmd.Run(); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return nil, fault.From(cause)
		}
		return nil, unavailable("runc", fmt.Sprintf("The OCI runtime %q does not tell its version.", name), installAction).Because(err)
	}
	p, err := parseVersion(string(out.Bytes()))
	if err != nil {
		return nil, unavailable("runc", fmt.Sprintf("The OCI runtime %q cannot be used: %v.", name, err), installAction)
	}
	p.path = path
	return p, nil
}

// lookup searches PATH and then the system directories, which an ordinary environment may leave out.
func lookup(name string) (string, error) {
	path, err := exec.LookPath(name)
	for _, dir := range []string{"/usr/local/sbin/", "/usr/sbin/", "/sbin/"} {
		if err == nil || strings.Contains(name, "/") {
			break
		}
		path, err = exec.LookPath(dir + name)
	}
	return path, err
}

// parseVersion reads the first line that runc prints for --version: "runc version 1.1.5+ds1".
func parseVersion(text string) (*program, error) {
	line, _, _ := strings.Cut(text, "\n")
	words := strings.Fields(line)
	if len(words) < 3 || words[1] != "version" {
		return nil, errors.New("it is not an OCI runtime that this driver knows")
	}
	p := &program{kind: words[0], version: words[2]}
	if p.kind != defaultRuntime {
		return nil, errors.New(refusal(p.kind))
	}
	major, minor, ok := release(p.version)
	if !ok || major < minMajor || (major == minMajor && minor < minMinor) {
		return nil, fmt.Errorf("version %s is older than %d.%d", strconv.QuoteToASCII(p.version), minMajor, minMinor)
	}
	return p, nil
}

// release gives the first two numbers of a version.
func release(version string) (major, minor int, ok bool) {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return 0, 0, false
	}
	digits := func(r rune) bool { return r < '0' || r > '9' }
	if i := strings.IndexFunc(parts[1], digits); i >= 0 {
		parts[1] = parts[1][:i] // "1.4-rc.1"
	}
	major, err1 := strconv.Atoi(parts[0])
	minor, err2 := strconv.Atoi(parts[1])
	return major, minor, err1 == nil && err2 == nil
}
