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
)

// class is a runtime class: what differs between runtimes that this driver executes.
type class struct {
	name      string
	ownKernel bool     // programs of the run have a kernel in user space, and not the host's, below them
	options   []string // global ones
	install   string   // what a person does to have it
}

var classes = map[string]class{
	defaultRuntime: {name: defaultRuntime, install: "Install the package runc (Debian and Ubuntu: apt-get install runc), or run make setup."},
	gvisor: {name: gvisor, ownKernel: true, options: []string{"--network", "none"},
		install: "Install the package runsc (Debian: apt-get install runsc), or leave the runtime class away (REA_SANDBOX_RUNTIME)."},
}

// channel is how a runtime hands the control channel on. One with a kernel of its own has no descriptors of the host
// inside but the standard streams.
func (c class) channel() sandbox.Channel {
	if c.ownKernel {
		return sandbox.ChannelStdio
	}
	return sandbox.ChannelFD3
}

// program is a runtime that was found on this host.
type program struct {
	class
	path    string // absolute
	kind    string // the first word of its version: "runc"
	version string // "1.1.5+ds1"
}

// String names the program as proofs do: "runc 1.1.5+ds1".
func (p *program) String() string { return p.kind + " " + p.version }

// program finds the runtime of a class and checks its version, once. A failure is not remembered: it may be installed
// meanwhile.
func (d *Driver) program(ctx context.Context, c class) (*program, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if p := d.found[c.name]; p != nil {
		return p, nil
	}
	p, err := findProgram(ctx, c, d.binary(c))
	if err != nil {
		return nil, err
	}
	d.found[c.name] = p
	return p, nil
}

// binary is the program of a class, by name or by path.
func (d *Driver) binary(c class) string {
	if c.name == defaultRuntime {
		return d.runtime
	}
	return c.name
}

func findProgram(ctx context.Context, c class, name string) (*program, error) {
	path, err := lookup(name)
	if err != nil {
		return nil, unavailable("runtime "+c.name, fmt.Sprintf("The OCI runtime %q was not found on this host.", name), c.install).Because(err)
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
		return nil, unavailable("runtime "+c.name, fmt.Sprintf("The OCI runtime %q does not tell its version.", name), c.install).Because(err)
	}
	p, err := parseVersion(c, string(out.Bytes()))
	if err != nil {
		return nil, unavailable("runtime "+c.name, fmt.Sprintf("The OCI runtime %q cannot be used: %v.", name, err), c.install)
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

// parseVersion reads the first line that a runtime prints for --version: "runc version 1.1.5+ds1".
func parseVersion(c class, text string) (*program, error) {
	line, _, _ := strings.Cut(text, "\n")
	words := strings.Fields(line)
	if len(words) < 3 || words[1] != "version" {
		return nil, errors.New("it is not an OCI runtime that this driver knows")
	}
	p := &program{class: c, kind: words[0], version: words[2]}
	if p.kind != c.name {
		return nil, errors.New(refusal(p.kind))
	}
	if c.ownKernel {
		return p, nil // released by date, under forms that changed; what it does is checked in every run
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
