package sandboxtest

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	"rea/evidence/target"
	"rea/evidence/volume"
	"rea/sandbox"
	"rea/sandbox/sandboxtest/script"
)

// control is one row of the table: what must be, and what the probe saw. Missing is why this host or user cannot give
// it; such a row is printed and does not fail.
type control struct{ name, want, seen, missing string }

// look is everything that the probe found out in one run, before it is judged.
type look struct {
	r                     *Run
	f                     script.Facts
	around                *script.Surroundings
	calls, attack, become map[string]int
	before, after         string // digest of the target
}

// controls holds what the probe sees from inside, control by control, against what must be, and prints the table.
func controls(t *testing.T, b *Bench) {
	for _, profile := range []string{sandbox.SeccompStatic, sandbox.SeccompEngine} {
		t.Run(profile, func(t *testing.T) { b.table(t, profile) })
	}
}

func (b *Bench) table(t *testing.T, profile string) {
	dir := directory(t)
	s := b.Spec(t, Target(t, dir))
	var err error
	if s.Seccomp, err = sandbox.SeccompProfile(profile); err != nil {
		t.Fatal(err)
	}
	l := look{before: treeDigest(t, dir)}
	l.r = b.Start(t, s)
	l.f, l.around = l.r.Facts, l.r.Do(t, script.Task{Do: script.Look}).Around
	l.calls = l.r.Do(t, script.Task{Do: script.Calls, Path: sandbox.TargetPath + "/none"}).Calls
	l.attack = l.r.Do(t, script.Task{Do: script.Attack, Path: sandbox.TargetPath + "/file"}).Calls
	l.become = l.r.Do(t, script.Task{Do: script.Escalate}).Calls
	l.after = treeDigest(t, dir)

	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "CONTROL\tEXPECTED\tSEEN\t")
	for _, c := range slices.Concat(l.identity(), l.kernel(), l.files(), l.limits(b)) {
		verdict := ""
		switch {
		case c.missing != "":
			verdict = "not given here: " + c.missing
		case c.want != c.seen:
			verdict = "FAILS"
			t.Errorf("%s: %s, want %s", c.name, c.seen, c.want)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", c.name, shown(c.want), shown(c.seen), verdict)
	}
	w.Flush()
	t.Logf("%s, %s, profile %s; not proved: %q\n%s", b.Runtime.Name(), l.r.Proof().Runtime, profile, l.r.Proof().Unproved, out.String())
}

// shown is a cell of the table.
func shown(s string) string {
	const width = 48
	switch {
	case s == "":
		return "none"
	case len(s) > width:
		return s[:width] + "…"
	}
	return s
}

// treeDigest is the core's own digest of a target.
func treeDigest(t *testing.T, dir string) string {
	t.Helper()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	d, err := target.Hash(Context(t), []target.Root{{Name: "artifact", File: f}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return d.SHA256
}

func (l *look) identity() []control {
	const none = "0000000000000000"
	status := l.f.Status
	own := fmt.Sprint(sandbox.RunUID)
	groups := strings.TrimSpace(status["Groups"])
	if groups == own {
		groups = "" // an engine's way to say it: the run's own group
	}
	env := slices.Sorted(slices.Values(l.f.Env))
	list := []control{
		{name: "first process", want: "1", seen: fmt.Sprint(l.f.PID)},
		{name: "user and group", want: own + " " + own, seen: fmt.Sprint(l.f.UID, l.f.GID)},
		{name: "supplementary groups", seen: groups},
		{name: "uid map is the proof's", want: strings.Join(l.r.Proof().UIDMap, ", "), seen: strings.Join(l.f.UIDMap, ", ")},
		{name: "no new privileges", want: "1", seen: status["NoNewPrivs"]},
		{name: "environment", want: strings.Join(slices.Sorted(slices.Values(l.r.Spec.Env)), " "), seen: strings.Join(env, " ")},
		{name: "host name", want: "rea", seen: l.f.Hostname},
		{name: "first to be ended by the host", want: "500", seen: l.f.OOMScoreAdj},
	}
	if !l.r.Proof().UserNS {
		list[3].missing = "this driver's runs have no user namespace of their own"
	}
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		list = append(list, control{name: "capabilities " + set, want: none, seen: status[set]})
	}
	for _, how := range slices.Sorted(maps.Keys(l.become)) {
		list = append(list, control{name: "escalation: " + how, want: "refused", seen: refused(l.become[how])})
	}
	return list
}

// refused says whether an attempt was refused; the number matters to nobody.
func refused(errno int) string {
	if errno == 0 {
		return "WORKED"
	}
	return "refused"
}

// permitted are the calls of the probe that a worker needs.
var permitted = []string{"openat2", "fallocate", "personality query", "membarrier", "pair STREAM", "pair SEQPACKET", "landlock"}

func (l *look) kernel() []control {
	list := []control{{name: "seccomp filter", want: "2", seen: l.f.Status["Seccomp"]}}
	for _, name := range slices.Sorted(maps.Keys(l.calls)) {
		if !slices.Contains(permitted, name) {
			list = append(list, control{name: "call " + name, want: "refused", seen: refused(l.calls[name])})
		}
	}
	host := func(kind string) string {
		link, _ := os.Readlink("/proc/self/ns/" + kind)
		return link
	}
	for _, kind := range []string{"pid", "ipc", "uts", "net", "mnt", "cgroup", "user"} {
		c := control{name: "namespace " + kind, want: "private", seen: "private"}
		if l.around.Namespaces[kind] == host(kind) || l.around.Namespaces[kind] == "" {
			c.seen = "the host's"
		}
		if kind == "user" && !l.r.Proof().UserNS {
			c.missing = "this driver's runs have no user namespace of their own"
		}
		list = append(list, c)
	}
	return append(list,
		control{name: "network interfaces", want: "lo", seen: strings.Join(l.f.Interfaces, " ")},
		control{name: "routes", seen: strings.Join(l.around.Routes, "; ")},
		control{name: "metadata service", want: "refused", seen: refused(l.calls["socket INET"])},
		control{name: "abstract sockets of the host", seen: strings.Join(l.around.AbstractSockets, " ")},
		control{name: "engine sockets", seen: strings.Join(l.around.Engine, " ")},
		control{name: "mounts that hand on", seen: strings.Join(l.around.Shared, " ")})
}

func (l *look) files() []control {
	var odd []string
	for _, d := range l.around.Devices {
		if !slices.Contains(sandboxDevices, d) {
			odd = append(odd, d)
		}
	}
	list := []control{
		{name: "devices beyond the standard ones", seen: strings.Join(odd, " ")},
		{name: "files with set-id", seen: strings.Join(l.around.SetID, " ")},
		{name: "target's digest", want: l.before, seen: l.after},
	}
	for _, path := range slices.Sorted(maps.Keys(l.around.Masks)) {
		kind := l.around.Masks[path]
		c := control{name: "mask of " + path, want: "genuine and empty", seen: kind}
		if (kind == "c 1:3" || kind == "read-only tmpfs") && l.f.Masked[path] == 0 {
			c.seen = c.want
		}
		list = append(list, c)
	}
	for _, how := range slices.Sorted(maps.Keys(l.attack)) {
		list = append(list, control{name: "target: " + how, want: "refused", seen: refused(l.attack[how])})
	}
	for _, m := range l.f.Mounts {
		if m.Path == sandbox.EvidencePath || m.Path == sandbox.ScratchPath {
			for _, flag := range []string{"nosuid", "nodev", "noexec"} {
				list = append(list, control{name: m.Path + " " + flag, want: "set", seen: map[bool]string{true: "set", false: "NOT SET"}[slices.Contains(m.Options, flag)]})
			}
		}
		if m.Path == "/" {
			list = append(list, control{name: "root file system", want: "ro", seen: m.Options[0]})
		}
	}
	return list
}

// sandboxDevices are null, zero, full, random, urandom, tty and, where an engine makes one, the console and the
// multiplexer of pseudo terminals, which are the run's own.
var sandboxDevices = []string{"c 1:3", "c 1:5", "c 1:7", "c 1:8", "c 1:9", "c 5:0", "c 5:2"}

func (l *look) limits(b *Bench) []control {
	leaf := int64(memoryLimit) + 1<<20 // the container's own limit lies above the run's, which is verified from outside
	if !l.r.Proof().OwnCgroup {
		leaf = memoryLimit
	}
	want := map[string][]string{
		"memory": {fmt.Sprint(leaf)}, "swap": {fmt.Sprint(leaf), "0"}, // v1 counts memory in
		"pids": {fmt.Sprint(pidsLimit)}, "cpu": {"100000", "100000 100000"},
	}
	var list []control
	for _, name := range []string{"memory", "swap", "pids", "cpu"} {
		c := control{name: "limit of " + name, want: want[name][0], seen: l.around.Cgroup[name]}
		if slices.Contains(want[name], c.seen) {
			c.want = c.seen
		}
		if c.seen == "" {
			c.missing = "the kernel's file cannot be seen from inside; it is verified from outside"
		}
		list = append(list, c)
	}
	return append(list,
		control{name: "cgroup tree", seen: strings.Join(l.around.CgroupWritable, " ")},
		control{name: "core files", want: "0", seen: fmt.Sprint(l.f.Limits["core"])},
		control{name: "open files", want: fmt.Sprint(fileLimit), seen: fmt.Sprint(l.f.Limits["nofile"])},
		control{name: "file size", want: fmt.Sprint(fileSize), seen: fmt.Sprint(l.f.Limits["fsize"])},
		control{name: "evidence quota", want: fmt.Sprint(evidenceBytes, evidenceInodes), seen: fmt.Sprint(l.f.Evidence.Bytes, l.f.Evidence.Inodes)},
		control{name: "nonce of the volume", want: l.r.Spec.Evidence.Nonce, seen: l.f.Nonce})
}

// planted leaves in the volume what no reader must follow, block on or take, and reads it as the core does. What the
// run could not even make is proved as prevented.
func planted(t *testing.T, b *Bench) {
	r := b.Start(t, b.Spec(t))
	made := r.Do(t, script.Task{Do: script.Plant, Path: sandbox.EvidencePath}).Calls
	for _, name := range []string{"fifo", "device", "socket", "sparse"} {
		if made[name] == 0 {
			t.Errorf("a run could make a %s", name)
		}
	}
	if made["entries"] >= evidenceInodes || made["depth"] >= evidenceInodes {
		t.Errorf("%d entries and %d nested directories on a volume of %d inodes", made["entries"], made["depth"], evidenceInodes)
	}
	ctx := Context(t)
	if !r.Proof().Live {
		if err := r.Kill(ctx); err != nil {
			t.Fatal(err)
		}
	}
	source, err := r.Evidence(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]volume.Reason{
		"symlink": {volume.ReasonKind}, "hardlink": {volume.ReasonLinks, volume.ReasonKind}, "setuid": {volume.ReasonMode},
		"large": {volume.ReasonSize}, "odd\n\x1b[2J\xff": {volume.ReasonName}, "../nonce": {volume.ReasonName}, "d/d": {volume.ReasonKind, volume.ReasonStream},
		"fifo": {volume.ReasonMissing}, "device": {volume.ReasonMissing}, "socket": {volume.ReasonMissing},
	} {
		if r.Proof().Live && name == "hardlink" {
			continue // an engine's copy of one file does not tell of other names; its bytes are copied once all the same
		}
		f, err := source.Open(ctx, name, evidenceBytes)
		if err == nil {
			f.Close()
		}
		var refusal *volume.Refusal
		if !errors.As(err, &refusal) || !slices.Contains(want, refusal.Reason) {
			t.Errorf("opening %q: %v, want a refusal for one of %v", name, err, want)
		}
	}
	entries, err := source.List(ctx, volume.ListLimits{Entries: 10 * evidenceInodes, Depth: 16})
	if r.Proof().Live && errors.Is(err, errors.ErrUnsupported) {
		return
	}
	if !errors.Is(err, volume.ErrListLimit) { // the nested directories go deeper
		t.Errorf("walking the volume: %v, want ErrListLimit", err)
	}
	for _, e := range entries {
		if e.Kind != volume.KindFile && e.Kind != volume.KindDirectory && e.Kind != volume.KindSymlink {
			t.Errorf("the volume holds a %s: %s", e.Kind, filepath.Base(volume.Escape(e.Path)))
		}
	}
}
