package doctor

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// askTimeout bounds a question to the host's package manager: a local look-up.
const askTimeout = 5 * time.Second

// origin is the distribution's package that a program comes from.
type origin struct {
	distribution, release string // ID and VERSION_ID of os-release(5)
	pkg, version          string
	dpkg                  bool // the package manager is dpkg; otherwise it is rpm
}

// builders are packages whose programs are built by the projects themselves: the version decides alone.
var builders = []string{"docker-ce", "containerd.io", "moby-engine", "moby-containerd", "moby-runc"}

// originOf finds the package of a program that runs in the given version. It is nil where no package manager knows the
// program, where the package does not patch it, and where the package's version is another one: then the engine is not
// this host's.
func originOf(ctx context.Context, program, version string) *origin {
	path := find(program)
	if path == "" {
		return nil
	}
	o := &origin{}
	o.distribution, o.release = osRelease("/etc/os-release")
	if owner := ask(ctx, "dpkg-query", "-S", path); owner != "" {
		o.dpkg = true
		o.pkg, _, _ = strings.Cut(owner, ":")
		o.version = ask(ctx, "dpkg-query", "-W", "-f=${Version}", o.pkg)
	} else {
		o.pkg, o.version, _ = strings.Cut(ask(ctx, "rpm", "-qf", "--qf", "%{NAME} %{VERSION}-%{RELEASE}", path), " ")
	}
	running, ok := parseVersion(version)
	packaged, known := parseVersion(o.version)
	if !ok || !known || running != packaged || slices.Contains(builders, o.pkg) {
		return nil
	}
	return o
}

// judge decides by the revisions that are known to carry a fix.
func (o *origin) judge(ctx context.Context, revisions []revision) (Verdict, string) {
	for _, r := range revisions {
		if r.distribution != o.distribution || r.release != o.release || r.pkg != o.pkg || !o.dpkg {
			continue
		}
		if newEnough(ctx, o.version, r.version) {
			return Fixed, "package " + o.pkg + " " + o.version + " carries the fix since " + r.version
		}
		return Affected, "package " + o.pkg + " " + o.version + " is older than " + r.version + ", which carries the fix"
	}
	return Undecided, "package " + o.pkg + " " + o.version + " is not in the table: its distribution may have fixed it"
}

// newEnough compares two package versions by the rules of deb-version(7).
func newEnough(ctx context.Context, have, want string) bool {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return exec.CommandContext(ctx, "dpkg", "--compare-versions", have, "ge", want).Run() == nil
}

// programVersion asks a program for its version: the first word of the answer that is one.
func programVersion(ctx context.Context, program string) string {
	path := find(program)
	if path == "" {
		return ""
	}
	for word := range strings.FieldsSeq(ask(ctx, path, "--version")) {
		if _, ok := parseVersion(word); ok {
			return word
		}
	}
	return ""
}

// find finds a program, also where only root's path leads.
func find(program string) string {
	if path, err := exec.LookPath(program); err == nil {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			return real
		}
		return path
	}
	for _, dir := range []string{"/usr/sbin", "/sbin", "/usr/local/sbin"} {
		path := filepath.Join(dir, program)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path
		}
	}
	return ""
}

// ask runs a program of the host and returns the first line that it prints, "" where it fails.
func ask(ctx context.Context, program string, args ...string) string {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH") + ":/usr/sbin:/sbin", "LC_ALL=C"}
	out, err := cmd.Output()
	if err != nil {
		return ""
	}
	line, _, _ := bytes.Cut(out, []byte("\n"))
	return strings.TrimSpace(string(line))
}

// osRelease reads os-release(5): the distribution and its release.
func osRelease(path string) (id, release string) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return "", ""
	}
	lines := bufio.NewScanner(bytes.NewReader(raw))
	for lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), "=")
		value = strings.Trim(value, `"'`)
		switch key {
		case "ID":
			id = value
		case "VERSION_ID":
			release = value
		}
	}
	return id, release
}
