package sandboxtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"rea/evidence/fault"
	"rea/evidence/volume"
	"rea/sandbox"
	"rea/sandbox/sandboxtest/script"
)

// Conformance runs the suite on a driver. The test that calls it must do nothing else: the suite runs it again in a
// process that it kills (crash).
func Conformance(t *testing.T, open func(t *testing.T) Harness) {
	h := open(t)
	if state := os.Getenv(crashVariable); state != "" {
		crash(t, h, state)
		return
	}
	for _, test := range []struct {
		name string
		run  func(*testing.T, *Bench)
	}{
		{"Identity", identity}, {"ClosedByDefault", closedByDefault}, {"SystemCalls", systemCalls},
		{"Controls", controls}, {"EvidencePlanted", planted}, {"TargetFile", targetFile}, {"TargetDirectory", targetDirectory}, {"TargetNames", targetNames},
		{"TargetPrivate", targetPrivate}, {"TargetPrivateUnmapped", targetPrivateUnmapped}, {"TargetManyOwners", targetManyOwners}, {"TargetNestedMount", targetNestedMount}, {"TargetSwapped", targetSwapped},
		{"UserNamespace", userNamespace}, {"TargetSocket", targetSocket}, {"EvidenceOut", evidenceOut}, {"EvidenceQuota", evidenceQuota},
		{"EvidenceNotMounted", evidenceNotMounted}, {"MemoryLimit", memoryLimitMet}, {"MemoryLimitOfChild", memoryLimitOfChild},
		{"PIDsLimit", pidsLimitMet}, {"KillProvesEmpty", killProvesEmpty}, {"LeashEndsRun", leashEndsRun},
		{"KillStubborn", killStubborn}, {"ExitCode", exitCode}, {"OutputIsBounded", outputIsBounded},
		{"Proof", proof}, {"DestroyLeavesNothing", destroyLeavesNothing}, {"DestroyUnstarted", destroyUnstarted},
		{"RefusesAndLeavesNothing", refuses}, {"Parallel", parallel}, {"Crash", crashes},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, NewBench(t, h)) })
	}
}

// The first process is the worker, as itself, and sees the volume that was made for it.
func identity(t *testing.T, b *Bench) {
	s := b.Spec(t)
	f := b.Start(t, s).Facts
	type id struct {
		PID, UID, GID            int
		Groups, Hostname, Dir    string
		Args, Env                []string
		Nonce                    string
		Type                     int64
		EvidenceBytes, Evidences uint64
	}
	want := id{PID: 1, UID: sandbox.RunUID, GID: sandbox.RunUID, Hostname: "rea", Dir: "/", Env: s.Env,
		Args: []string{sandbox.WorkerPath, f.Args[1], "an argument"}, Nonce: s.Evidence.Nonce,
		Type: unix.TMPFS_MAGIC, EvidenceBytes: evidenceBytes, Evidences: evidenceInodes}
	groups := strings.TrimSpace(f.Status["Groups"])
	if groups == fmt.Sprint(sandbox.RunUID) {
		groups = "" // engines list the run's own group among the supplementary ones, which adds nothing to it
	}
	got := id{f.PID, f.UID, f.GID, groups, f.Hostname, f.Dir, f.Args, f.Env, f.Nonce,
		f.Evidence.Type, f.Evidence.Bytes, f.Evidence.Inodes}
	slices.Sort(got.Env)
	slices.Sort(want.Env)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what the first process sees (-want +got):\n%s", diff)
	}
	if !strings.HasPrefix(f.Args[1], "--channel=") {
		t.Errorf("first argument is %q, want the channel", f.Args[1])
	}
}

func closedByDefault(t *testing.T, b *Bench) {
	r := b.Start(t, b.Spec(t, Target(t, directory(t))))
	const none = "0000000000000000"
	status := map[string]string{"CapInh": none, "CapPrm": none, "CapEff": none, "CapBnd": none, "CapAmb": none,
		"NoNewPrivs": "1", "Seccomp": "2"}
	for name, want := range status {
		if got := r.Facts.Status[name]; got != want {
			t.Errorf("%s is %q inside, want %q", name, got, want)
		}
	}
	limits := map[string]uint64{"core": 0, "nofile": fileLimit, "fsize": fileSize}
	if diff := cmp.Diff(limits, r.Facts.Limits); diff != "" {
		t.Errorf("limits (-want +got):\n%s", diff)
	}
	if r.Facts.OOMScoreAdj != "500" {
		t.Errorf("oom_score_adj is %q", r.Facts.OOMScoreAdj)
	}
	if diff := cmp.Diff([]string{"lo"}, r.Facts.Interfaces); diff != "" {
		t.Errorf("network interfaces (-want +got):\n%s", diff)
	}
	for path, size := range r.Facts.Masked {
		if size != 0 {
			t.Errorf("%s shows %d bytes or entries", path, size)
		}
	}
	mountsAreClosed(t, r.Facts.Mounts)
	for path, want := range map[string]int{
		"/new": int(unix.EROFS), "/etc/hosts": int(unix.EROFS), "/rea/rea-worker": int(unix.EROFS), "/target/new": int(unix.EROFS),
		"/dev/new": int(unix.EACCES), "/proc/sys/kernel/core_pattern": int(unix.EROFS), "/proc/sysrq-trigger": int(unix.EROFS),
		"/sys/kernel/uevent_helper": int(unix.EROFS), "/tmp/new": 0, "/evidence/new": 0, "/dev/null": 0,
	} {
		got := r.Do(t, script.Task{Do: script.Write, Path: path, Text: "x"}).Errno
		refused := want != 0 && (got == int(unix.EROFS) || got == int(unix.EACCES) || got == int(unix.EPERM) || got == int(unix.ENOENT))
		if got != want && !refused {
			t.Errorf("writing %s: error %d (%v), want %d", path, got, unix.Errno(got), want)
		}
	}
}

// mountsAreClosed checks that only the volumes of the run can be written to, and that these are harmless.
func mountsAreClosed(t *testing.T, mounts []script.Mount) {
	t.Helper()
	system := []string{"/dev", "/proc", "/dev/pts", "/dev/shm", "/dev/mqueue"} // writable for uid 0 alone, or private to the run
	volumes := []string{sandbox.EvidencePath, sandbox.ScratchPath}
	seen := map[string]bool{}
	for _, m := range mounts {
		seen[m.Path] = true
		if slices.Contains(volumes, m.Path) {
			for _, flag := range []string{"nosuid", "nodev", "noexec"} {
				if !slices.Contains(m.Options, flag) {
					t.Errorf("%s lacks %s: %v", m.Path, flag, m.Options)
				}
			}
			continue
		}
		masks := m.Type == "devtmpfs" || strings.HasPrefix(m.Path, "/proc/") || strings.HasPrefix(m.Path, "/sys/")
		if !slices.Contains(m.Options, "ro") && !slices.Contains(system, m.Path) && !masks {
			t.Errorf("%s (%s) is writable: %v", m.Path, m.Type, m.Options)
		}
	}
	for _, path := range []string{"/", sandbox.EvidencePath, sandbox.ScratchPath, sandbox.TargetPath, "/proc"} {
		if !seen[path] {
			t.Errorf("%s is not a mount", path)
		}
	}
}

func systemCalls(t *testing.T, b *Bench) {
	got := b.Start(t, b.Spec(t)).Do(t, script.Task{Do: script.Calls, Path: "/target/none"}).Calls
	works := []string{"openat2", "fallocate", "personality query", "membarrier", "pair STREAM", "pair SEQPACKET"}
	for name, e := range got {
		want := unix.EPERM
		switch {
		case slices.Contains(works, name):
			want = 0
		case name == "32-bit entry" && e == -1:
			continue // refused, or the thread was ended: what a filter of one architecture does
		case name == "clone3":
			want = unix.ENOSYS
		case name == "landlock" && (e == int(unix.ENOSYS) || e == int(unix.EOPNOTSUPP) || e == 0):
			want = unix.Errno(e) // the host's kernel may lack it; what counts is that the filter lets it through
		}
		if unix.Errno(e) != want {
			t.Errorf("%s: %v (%d), want %v (%d)", name, unix.Errno(e), e, want, int(want))
		}
	}
	if len(got) < 50 {
		t.Errorf("the probe tried %d calls only", len(got))
	}
}

// directory makes a target that everyone may read: one file in it, "file", that holds "content".
func directory(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(publicTemp(t), "app")
	if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "file"), []byte("content"), 0o644)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// publicTemp is a temporary directory that everyone may pass through: a driver that binds by path needs that.
func publicTemp(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if err := errors.Join(os.Chmod(dir, 0o755), os.Chmod(filepath.Dir(dir), 0o755)); err != nil {
		t.Fatal(err)
	}
	return dir
}

func expectRead(t testing.TB, r *Run, path, want string) {
	t.Helper()
	if a := r.Do(t, script.Task{Do: script.Read, Path: path}); a.Text != want || a.Errno != 0 {
		t.Errorf("reading %s inside: %q, %v; want %q", path, a.Text, unix.Errno(a.Errno), want)
	}
}

// expectClosed tries every way of writing to a path and to its directory.
func expectClosed(t testing.TB, r *Run, path string) {
	t.Helper()
	if a := r.Do(t, script.Task{Do: script.Write, Path: path, Text: "changed"}); a.Errno == 0 {
		t.Errorf("writing %s inside succeeded", path)
	}
}

func targetFile(t *testing.T, b *Bench) {
	path := filepath.Join(directory(t), "file")
	r := b.Start(t, b.Spec(t, Target(t, path)))
	expectRead(t, r, sandbox.TargetPath, "content")
	expectClosed(t, r, sandbox.TargetPath)
	expectClosed(t, r, sandbox.TargetDir+"/beside")
}

// Two targets, as an archive with its companion has them.
func targetDirectory(t *testing.T, b *Bench) {
	dir := directory(t)
	first, second := Target(t, dir), Target(t, filepath.Join(dir, "file"))
	second.Destination = sandbox.TargetPath + ".unpacked"
	r := b.Start(t, b.Spec(t, first, second))
	expectRead(t, r, sandbox.TargetPath+"/file", "content")
	expectRead(t, r, second.Destination, "content")
	expectClosed(t, r, sandbox.TargetPath+"/file")
	expectClosed(t, r, sandbox.TargetPath+"/new")
	expectClosed(t, r, second.Destination)
	if got, err := os.ReadFile(filepath.Join(dir, "file")); string(got) != "content" || err != nil {
		t.Errorf("the target on the host: %q, %v", got, err)
	}
}

func targetNames(t *testing.T, b *Bench) {
	for _, name := range []string{"a:b", "a,b", "a\nb", "a b", "$(touch x)", "-o", "ü", "\xff"} {
		t.Run(fmt.Sprintf("%q", name), func(t *testing.T) {
			path := filepath.Join(publicTemp(t), name)
			if err := os.WriteFile(path, []byte(name), 0o644); err != nil {
				t.Fatal(err)
			}
			s := b.Spec(t, Target(t, path))
			box, err := b.Runtime.Create(Context(t), s, b.Owner)
			var f *fault.Error
			if b.Ordinary && name == "\xff" && errors.As(err, &f) {
				return // a path that an engine's JSON cannot carry is refused with a typed error
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, err := box.Destroy(Context(t)); err != nil {
				t.Fatal(err)
			}
			s.ID = b.Spec(t).ID
			if name != "\xff" { // not valid in the probe's JSON answer either
				expectRead(t, b.Start(t, s), sandbox.TargetPath, name)
			}
		})
	}
}

// A file of mode 0600 in a directory of mode 0700, of another user where this process may give it away.
func targetPrivate(t *testing.T, b *Bench) {
	dir := directory(t)
	file := filepath.Join(dir, "file")
	if err := errors.Join(os.Chmod(file, 0o600), os.Chmod(dir, 0o700)); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() == 0 {
		const someone = 12345
		if err := errors.Join(os.Chown(file, someone, someone), os.Chown(dir, someone, someone)); err != nil {
			t.Fatal(err)
		}
	}
	r := b.Start(t, b.Spec(t, Target(t, dir)))
	expectRead(t, r, sandbox.TargetPath+"/file", "content")
	expectClosed(t, r, sandbox.TargetPath+"/file")
	expectClosed(t, r, sandbox.TargetPath+"/new")
	if r.Facts.UID == 0 {
		t.Error("the run is root")
	}
}

// On a file system that refuses mapped mounts (ramfs does) a private target is read as its owner, and never as root.
func targetPrivateUnmapped(t *testing.T, b *Bench) {
	if b.Ordinary {
		t.Skip("an ordinary user cannot mount the file system that this test needs")
	}
	const owner = 12345
	dir := publicTemp(t)
	if err := unix.Mount("ramfs", dir, "ramfs", 0, "mode=0755"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	file := filepath.Join(dir, "file")
	if err := errors.Join(os.WriteFile(file, []byte("content"), 0o600), os.Chown(file, owner, owner)); err != nil {
		t.Fatal(err)
	}
	r := b.Start(t, b.Spec(t, Target(t, file)))
	expectRead(t, r, sandbox.TargetPath, "content")
	expectClosed(t, r, sandbox.TargetPath)
	if got := r.hostUID(t); got != owner {
		t.Errorf("the run has uid %d on the host, want the owner's, %d", got, owner)
	}
	if r.Facts.UID != owner && !r.Proof().UserNS {
		t.Errorf("the run has uid %d inside, want the owner's, %d", r.Facts.UID, owner)
	}
	if !slices.Contains(r.Proof().Unproved, sandbox.UnprovedOwner) {
		t.Errorf("the proof does not say that the run is the owner: %q", r.Proof().Unproved)
	}
	if a := r.Do(t, script.Task{Do: script.Write, Path: sandbox.EvidencePath + "/out", Text: "x"}); a.Errno != 0 {
		t.Errorf("the owner cannot write evidence: %v", unix.Errno(a.Errno))
	}

	if err := os.Chown(file, 0, 0); err != nil {
		t.Fatal(err)
	}
	s := b.Spec(t, Target(t, file))
	_, err := b.Runtime.Create(Context(t), s, b.Owner)
	var f *fault.Error
	if !errors.As(err, &f) || f.Code != fault.AccessDenied {
		t.Errorf("a file of root's: %v, want access_denied", err)
	}
	b.ExpectNothing(t, s.ID)
}

// A directory of many owners: what others may read is read whoever owns it, what its owner alone may read is read where
// that is the owner of the whole, and the rest stays closed.
func targetManyOwners(t *testing.T, b *Bench) {
	if b.Ordinary {
		t.Skip("an ordinary user cannot make files of other users")
	}
	const owner, other = 12345, 54321
	dir := directory(t)
	for _, private := range []bool{false, true} {
		for name, f := range map[string]struct {
			uid  int
			mode os.FileMode
		}{"own": {owner, 0o600}, "open": {other, 0o644}, "root": {0, 0o644}, "closed": {other, 0o600}} {
			path := filepath.Join(dir, name)
			if err := errors.Join(os.WriteFile(path, []byte(name), 0o600), os.Chmod(path, f.mode), os.Chown(path, f.uid, f.uid)); err != nil {
				t.Fatal(err)
			}
		}
		mode := os.FileMode(0o755)
		if private {
			mode = 0o700
		}
		if err := errors.Join(os.Chown(dir, owner, owner), os.Chmod(dir, mode)); err != nil {
			t.Fatal(err)
		}
		r := b.Start(t, b.Spec(t, Target(t, dir)))
		expectRead(t, r, sandbox.TargetPath+"/open", "open")
		expectRead(t, r, sandbox.TargetPath+"/root", "root")
		if private {
			expectRead(t, r, sandbox.TargetPath+"/own", "own")
		}
		if a := r.Do(t, script.Task{Do: script.Read, Path: sandbox.TargetPath + "/closed"}); a.Errno != int(unix.EACCES) {
			t.Errorf("a file that only another user may read: %v, want EACCES", unix.Errno(a.Errno))
		}
	}
}

// Where runs have user namespaces, the maps that the kernel has on the host, that the run sees, and that the proof
// records are one; root inside is nobody outside; and no two runs share an id.
func userNamespace(t *testing.T, b *Bench) {
	first, second := b.Start(t, b.Spec(t)), b.Start(t, b.Spec(t))
	if !first.Proof().UserNS {
		for _, path := range b.claims(t, first.Spec.ID) {
			t.Errorf("a run without a user namespace took %s", path)
		}
		t.Skip("this driver gives runs no user namespace of their own here")
	}
	taken := map[uint64]bool{}
	for _, r := range []*Run{first, second} {
		proof := r.Proof().UIDMap
		if diff := cmp.Diff(proof, r.Facts.UIDMap); diff != "" {
			t.Errorf("the map inside is not the one of the proof (-proof +inside):\n%s", diff)
		}
		for _, line := range proof {
			var inside, outside, size uint64
			if n, err := fmt.Sscan(line, &inside, &outside, &size); n != 3 {
				t.Fatalf("line %q of the map: %v", line, err)
			}
			if outside < 1<<16 || size != 1 {
				t.Errorf("%q maps to ids that this host may use itself", line)
			}
			if taken[outside] {
				t.Errorf("two runs have the id %d", outside)
			}
			taken[outside] = true
		}
		if uid := r.hostUID(t); !taken[uint64(uid)] {
			t.Errorf("on the host the run is %d, which its map does not have: %q", uid, proof)
		}
		if len(b.claims(t, r.Spec.ID)) != 1 {
			t.Errorf("the run's ids are not taken: %q", b.claims(t, r.Spec.ID))
		}
		if _, err := r.Destroy(Context(t)); err != nil {
			t.Fatal(err)
		}
		if left := b.claims(t, r.Spec.ID); len(left) > 0 {
			t.Errorf("ids remain taken: %v", left)
		}
	}
}

// claims lists the links by which a run has taken ids of this host.
func (b *Bench) claims(t testing.TB, run string) []string {
	t.Helper()
	all, err := filepath.Glob("/run/rea/ids/*")
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(path string) bool {
		holder, err := os.Readlink(path)
		return err != nil || holder != run
	})
}

// hostUID is the effective uid, on the host, of the run's first process, by the kernel's word.
func (r *Run) hostUID(t testing.TB) int {
	t.Helper()
	for _, pid := range processes(t, r.Spec.ID) {
		status, err := os.ReadFile("/proc/" + pid + "/status")
		if err != nil {
			continue
		}
		lines := map[string][]string{}
		for line := range strings.Lines(string(status)) {
			name, value, _ := strings.Cut(line, ":")
			lines[name] = strings.Fields(value)
		}
		if pids := lines["NSpid"]; len(pids) > 1 && pids[len(pids)-1] == "1" {
			uid, err := strconv.Atoi(lines["Uid"][1])
			if err != nil {
				t.Fatal(err)
			}
			return uid
		}
	}
	t.Fatal("the run's first process is not to be found")
	return -1
}

func targetNestedMount(t *testing.T, b *Bench) {
	if b.Ordinary {
		t.Skip("an ordinary user cannot make the nested mount that this test needs")
	}
	dir := directory(t)
	nested := filepath.Join(dir, "nested")
	if err := os.Mkdir(nested, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", nested, "tmpfs", 0, "mode=0777"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(nested, unix.MNT_DETACH) })
	if err := os.WriteFile(filepath.Join(nested, "file"), []byte("nested"), 0o666); err != nil {
		t.Fatal(err)
	}
	r := b.Start(t, b.Spec(t, Target(t, dir)))
	if r.Proof().TargetBound == "descriptor" {
		expectRead(t, r, sandbox.TargetPath+"/nested/file", "nested")
	}
	expectClosed(t, r, sandbox.TargetPath+"/nested/file")
	expectClosed(t, r, sandbox.TargetPath+"/nested/new")
}

// Between the check and the start, the path becomes a link to something else.
func targetSwapped(t *testing.T, b *Bench) {
	if b.Ordinary {
		t.Skip("without the right to mount a target is bound by path; its digest is checked from inside instead")
	}
	dir := directory(t)
	secret := filepath.Join(publicTemp(t), "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	s := b.Spec(t, Target(t, filepath.Join(dir, "file")))
	swap := func() {
		path := filepath.Join(dir, "file")
		if err := errors.Join(os.Rename(path, path+".old"), os.Symlink(secret, path)); err != nil {
			t.Fatal(err)
		}
	}
	swap()
	expectRead(t, b.Start(t, s), sandbox.TargetPath, "content")
}

// A socket that listens in the target must be out of reach, also by a datagram from a pair.
func targetSocket(t *testing.T, b *Bench) {
	dir := directory(t)
	path := filepath.Join(shortTemp(t), "s")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := errors.Join(os.Chmod(path, 0o777), os.Rename(path, filepath.Join(dir, "s"))); err != nil {
		t.Fatal(err)
	}
	calls := b.Start(t, b.Spec(t, Target(t, dir))).Do(t, script.Task{Do: script.Calls, Path: sandbox.TargetPath + "/s"}).Calls
	for _, name := range []string{"pair DGRAM", "socket UNIX", "connect"} {
		if calls[name] != int(unix.EPERM) {
			t.Errorf("%s: %v, want EPERM", name, unix.Errno(calls[name]))
		}
	}
}

// shortTemp is a directory on the file system of the test's own one whose path fits a socket's address.
func shortTemp(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "rea-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// readEvidence reads one file of the volume, before or after the kill as the driver's proof says.
func readEvidence(t *testing.T, r *Run, name string) ([]byte, error) {
	t.Helper()
	ctx := Context(t)
	if !r.Proof().Live {
		if err := r.Kill(ctx); err != nil {
			t.Fatal(err)
		}
	}
	return ReadFile(ctx, r, name)
}

func evidenceOut(t *testing.T, b *Bench) {
	r := b.Start(t, b.Spec(t))
	if a := r.Do(t, script.Task{Do: script.Write, Path: sandbox.EvidencePath + "/out", Text: "the result"}); a.Errno != 0 {
		t.Fatal(unix.Errno(a.Errno))
	}
	got, err := readEvidence(t, r, "out")
	if string(got) != "the result" || err != nil {
		t.Errorf("evidence on the host: %q, %v", got, err)
	}
	var refusal *volume.Refusal
	if _, err := readEvidence(t, r, "absent"); !errors.As(err, &refusal) || refusal.Reason != volume.ReasonMissing {
		t.Errorf("reading what is not there: %v, want a refusal as missing", err)
	}
}

// The quotas are hard: arithmetic on what was asked for.
func evidenceQuota(t *testing.T, b *Bench) {
	r := b.Start(t, b.Spec(t))
	a := r.Do(t, script.Task{Do: script.Fill, Path: sandbox.EvidencePath + "/full"})
	if a.Errno != int(unix.ENOSPC) || a.Number > evidenceBytes || a.Number < evidenceBytes-64<<10 {
		t.Errorf("filling: %d bytes, %v; want %d and ENOSPC", a.Number, unix.Errno(a.Errno), evidenceBytes)
	}
	a = r.Do(t, script.Task{Do: script.Files, Path: sandbox.EvidencePath})
	if a.Errno != int(unix.ENOSPC) || a.Number > evidenceInodes || a.Number < evidenceInodes-10 {
		t.Errorf("files: %d, %v; want about %d and ENOSPC", a.Number, unix.Errno(a.Errno), evidenceInodes)
	}
	a = r.Do(t, script.Task{Do: script.Fill, Path: sandbox.ScratchPath + "/full"})
	if a.Errno != int(unix.ENOSPC) || a.Number > scratchBytes {
		t.Errorf("scratch: %d bytes, %v; want %d and ENOSPC", a.Number, unix.Errno(a.Errno), scratchBytes)
	}
	u, err := r.Usage(Context(t))
	if err != nil {
		t.Fatal(err)
	}
	if !r.Proof().Live && (u.EvidenceFree == nil || u.EvidenceFree.Bytes != 0 || u.EvidenceFree.Inodes != 0) {
		t.Errorf("free on a full volume: %+v", u.EvidenceFree)
	}
}

// Where the volume is not what the core made, the nonce is not there and writing fails loudly.
func evidenceNotMounted(t *testing.T, b *Bench) {
	if b.Ordinary {
		t.Skip("an ordinary user's volume is made by the engine")
	}
	ctx := Context(t)
	s := b.Spec(t)
	box, err := b.Runtime.Create(ctx, s, b.Owner)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { box.Destroy(Context(t)) })
	for _, e := range b.Owner.RunEntries(s.ID) {
		if e.Kind == sandbox.KindEvidence {
			if err := unix.Unmount(e.Name, unix.MNT_DETACH); err != nil {
				t.Fatal(err)
			}
		}
	}
	channel, err := box.Start(ctx)
	if err != nil {
		return // refused even earlier
	}
	r := Attach(t, box, s, channel)
	if r.Facts.Nonce != "" || r.Facts.Evidence.Bytes == evidenceBytes {
		t.Errorf("the worker sees nonce %q on a volume of %d bytes", r.Facts.Nonce, r.Facts.Evidence.Bytes)
	}
	if a := r.Do(t, script.Task{Do: script.Write, Path: sandbox.EvidencePath + "/out", Text: "lost"}); a.Errno == 0 {
		t.Error("writing below the missing volume succeeded")
	}
	channel.Close()
}

// ended waits for the run's end and kills what is left, as the orchestrator does, and returns its usage.
func ended(t *testing.T, r *Run) (sandbox.Exit, sandbox.Usage) {
	t.Helper()
	ctx := Context(t)
	exit, err := r.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Kill(ctx); err != nil {
		t.Fatal(err)
	}
	u, err := r.Usage(ctx)
	if err != nil && !r.Proof().Live {
		t.Fatal(err)
	}
	return exit, u
}

func memoryLimitMet(t *testing.T, b *Bench) {
	r := b.Start(t, b.Spec(t))
	r.Send(t, script.Task{Do: script.Allocate, Number: 2 * memoryLimit})
	_, u := ended(t, r)
	if !r.Proof().OwnCgroup {
		return
	}
	if u.OOMKills == nil || *u.OOMKills < 1 {
		t.Errorf("OOM kills: %v, want at least 1", deref(u.OOMKills))
	}
	// A few pages go beyond a limit where the kernel may not fail (cgroup-v2.rst, "memory.max"); the container's own
	// limit, 1 MiB above, bounds that.
	if u.MemoryPeak == nil || *u.MemoryPeak > memoryLimit+1<<20 || *u.MemoryPeak < memoryLimit*9/10 {
		t.Errorf("memory peak %v, want about %d", deref(u.MemoryPeak), memoryLimit)
	}
	if u.CPU == nil || *u.CPU <= 0 {
		t.Errorf("processor time %v, want some", u.CPU)
	}
}

// A kill that the first process survives must be seen as well.
func memoryLimitOfChild(t *testing.T, b *Bench) {
	r := b.Start(t, b.Spec(t))
	a := r.Do(t, script.Task{Do: script.AllocateInChild, Number: 2 * memoryLimit})
	if a.Errno == 0 {
		t.Error("the child survived twice the memory limit")
	}
	if u, err := r.Usage(Context(t)); r.Proof().OwnCgroup && (err != nil || u.OOMKills == nil || *u.OOMKills < 1) {
		t.Errorf("usage after a child's OOM kill: %v, %v", deref(u.OOMKills), err)
	}
}

func pidsLimitMet(t *testing.T, b *Bench) {
	r := b.Start(t, b.Spec(t))
	a := r.Do(t, script.Task{Do: script.Fork, Number: 10 * pidsLimit})
	if a.Errno != int(unix.EAGAIN) || a.Number >= pidsLimit {
		t.Errorf("forking: %d, %v; want fewer than %d and EAGAIN", a.Number, unix.Errno(a.Errno), pidsLimit)
	}
	if !r.Proof().OwnCgroup {
		return
	}
	u, err := r.Usage(Context(t))
	if err != nil {
		t.Fatal(err)
	}
	if u.PIDsPeak != nil && *u.PIDsPeak != pidsLimit {
		t.Errorf("peak of %d tasks, want %d", *u.PIDsPeak, pidsLimit)
	}
	if u.PIDsRefused != nil && !*u.PIDsRefused {
		t.Error("the limit was met and is not reported")
	}
}

func killProvesEmpty(t *testing.T, b *Bench) {
	r := b.Start(t, b.Spec(t))
	r.Do(t, script.Task{Do: script.Daemonize})
	r.Do(t, script.Task{Do: script.Fork, Number: 3})
	ctx := Context(t)
	if err := r.Kill(ctx); err != nil {
		t.Fatal(err)
	}
	if left := processes(t, r.Spec.ID); len(left) > 0 {
		t.Errorf("processes in the run's cgroup after Kill: %v", left)
	}
	if _, err := r.Wait(ctx); err != nil {
		t.Error(err)
	}
	if err := r.Kill(ctx); err != nil {
		t.Errorf("a second Kill: %v", err)
	}
}

// processes reads the kernel's lists for every cgroup directory that carries the run's id.
func processes(t testing.TB, run string) []string {
	t.Helper()
	var out []string
	for _, dir := range cgroupDirs(t, run) {
		err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
			if err == nil && filepath.Base(path) == "cgroup.procs" {
				data, _ := os.ReadFile(path)
				out = append(out, strings.Fields(string(data))...)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func leashEndsRun(t *testing.T, b *Bench) {
	r := b.Start(t, b.Spec(t))
	r.Do(t, script.Task{Do: script.Daemonize})
	r.channel.Close()
	if _, err := r.Wait(Context(t)); err != nil {
		t.Fatal(err)
	}
	if left := processes(t, r.Spec.ID); len(left) > 0 {
		t.Errorf("processes after the leash was cut: %v", left)
	}
}

func killStubborn(t *testing.T, b *Bench) {
	r := b.Start(t, b.Spec(t))
	r.Do(t, script.Task{Do: script.Stubborn})
	r.channel.Close()
	if err := r.Kill(Context(t)); err != nil {
		t.Fatal(err)
	}
	if left := processes(t, r.Spec.ID); len(left) > 0 {
		t.Errorf("processes after Kill: %v", left)
	}
}

func exitCode(t *testing.T, b *Bench) {
	r := b.Start(t, b.Spec(t))
	r.Send(t, script.Task{Do: script.Exit, Number: 7})
	if exit, _ := ended(t, r); exit.Code != 7 || exit.At.IsZero() {
		t.Errorf("exit %+v, want code 7", exit)
	}
}

func outputIsBounded(t *testing.T, b *Bench) {
	r := b.Start(t, b.Spec(t))
	if a := r.Do(t, script.Task{Do: script.Flood, Number: 8 << 20}); a.Errno != 0 {
		t.Fatalf("flood: %v", unix.Errno(a.Errno))
	}
	r.channel.Close()
	ended(t, r)
	out := r.Output()
	if len(out) > 256<<10 || !bytes.HasPrefix(out, []byte("line 0\n")) || !bytes.HasSuffix(out, []byte("the last line\n")) {
		t.Errorf("output of %d bytes, from %.20q to %.20q", len(out), out, out[max(0, len(out)-20):])
	}
}

// Every driver records the digest of the one rendering, so that runs can be compared across drivers.
func proof(t *testing.T, b *Bench) {
	s := b.Spec(t, Target(t, directory(t)))
	want, err := sandbox.Digest(s)
	if err != nil {
		t.Fatal(err)
	}
	p := b.Start(t, s).Proof()
	if p.SpecSHA256 != want || p.ImageDigest != s.Image.Digest || p.Seccomp != sandbox.SeccompStatic || p.Driver != b.Runtime.Name() || p.Runtime == "" {
		t.Errorf("proof %+v, want the digest %s of the rendering and image %s", p, want, s.Image.Digest)
	}
	if lacking := b.Ordinary || b.Bare; lacking == (len(p.Unproved) == 0) {
		t.Errorf("something is lacking: %v, and unproved is %q", lacking, p.Unproved)
	}
}

// ExpectNothing checks that a run has left nothing: on the host itself, not the driver's word.
func (b *Bench) ExpectNothing(t testing.TB, run string) {
	t.Helper()
	if left := mountsBelow(t, filepath.Join(b.Owner.RunsDir(), run)); len(left) > 0 {
		t.Errorf("still mounted: %v", left)
	}
	if dirs := cgroupDirs(t, run); len(dirs) > 0 {
		t.Errorf("cgroups remain: %v", dirs)
	}
	if left := b.claims(t, run); len(left) > 0 {
		t.Errorf("ids remain taken: %v", left)
	}
	if left := mountsBelow(t, "/run/rea/roots/"+run); len(left) > 0 {
		t.Errorf("still mounted: %v", left)
	}
	if left := b.Owner.RunEntries(run); len(left) > 0 {
		t.Errorf("the journal lists %+v", left)
	}
	if _, err := os.Lstat(filepath.Join(b.Owner.RunsDir(), run)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the run's directory remains: %v", err)
	}
	if b.Leftovers != nil {
		if left := b.Leftovers(t, run); len(left) > 0 {
			t.Errorf("the engine still has %v", left)
		}
	}
}

func destroyLeavesNothing(t *testing.T, b *Bench) {
	r := b.Start(t, b.Spec(t, Target(t, directory(t))))
	r.Do(t, script.Task{Do: script.Daemonize})
	cancelled, cancel := context.WithCancel(context.Background())
	cancel() // teardown must not depend on the request's context
	receipt, err := r.Destroy(cancelled)
	if err != nil || !receipt.Complete() || receipt.Reason != "" {
		t.Fatalf("destroy: %v, %+v", err, receipt)
	}
	made := map[string]bool{}
	for _, m := range receipt.Made {
		made[m.Kind] = true
	}
	if !made[sandbox.KindContainer] || !made[sandbox.KindEvidence] {
		t.Errorf("the receipt lists %+v, without a container or its volume", receipt.Made)
	}
	b.ExpectNothing(t, r.Spec.ID)
	again, err := r.Destroy(Context(t))
	if err != nil || !again.Complete() {
		t.Errorf("a second destroy: %v, %+v", err, again)
	}
	if _, err := r.Start(Context(t)); err == nil {
		t.Error("a destroyed sandbox started")
	}
}

func destroyUnstarted(t *testing.T, b *Bench) {
	s := b.Spec(t, Target(t, directory(t)))
	box, err := b.Runtime.Create(Context(t), s, b.Owner)
	if err != nil {
		t.Fatal(err)
	}
	if receipt, err := box.Destroy(Context(t)); err != nil || !receipt.Complete() {
		t.Errorf("destroy: %v, %+v", err, receipt)
	}
	b.ExpectNothing(t, s.ID)
}

// What cannot run is refused with a typed error, at the latest by Start, and leaves nothing.
func refuses(t *testing.T, b *Bench) {
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	for _, tt := range []struct {
		name  string
		ctx   context.Context
		codes []fault.Code
		spoil func(*sandbox.Spec)
	}{
		{"runtime class", Context(t), []fault.Code{fault.CapabilityUnavailable}, func(s *sandbox.Spec) { s.Runtime = "nonesuch" }},
		{"cancelled", cancelled, []fault.Code{fault.Cancelled}, func(*sandbox.Spec) {}},
		{"root", Context(t), []fault.Code{fault.ExecutionFailure}, func(s *sandbox.Spec) { s.User = sandbox.User{} }},
		{"no quota", Context(t), []fault.Code{fault.ExecutionFailure, fault.ProviderUnavailable}, func(s *sandbox.Spec) { s.Evidence.Bytes = 0 }},
		{"run id", Context(t), []fault.Code{fault.ExecutionFailure}, func(s *sandbox.Spec) { s.ID = "../x" }},
		{"no program", Context(t), []fault.Code{fault.ProviderUnavailable, fault.CapabilityUnavailable},
			func(s *sandbox.Spec) { s.Args[0] = "/rea/nonesuch" }},
		{"too much memory", Context(t), []fault.Code{fault.ResourceConstraint}, func(s *sandbox.Spec) { s.Limits.Memory = 1 << 50 }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if b.Ordinary && tt.name == "too much memory" {
				t.Skip("without cgroups of ours there is no ceiling")
			}
			s := b.Spec(t)
			tt.spoil(&s)
			box, err := b.Runtime.Create(tt.ctx, s, b.Owner)
			if err == nil {
				_, err = box.Start(tt.ctx)
				if _, destroyErr := box.Destroy(Context(t)); destroyErr != nil {
					t.Errorf("destroy: %v", destroyErr)
				}
			}
			var f *fault.Error
			if !errors.As(err, &f) || !slices.Contains(tt.codes, f.Code) || f.Message == "" || f.Action == "" {
				t.Errorf("error %v, want one of %v with a message and an action", err, tt.codes)
			}
			if sandbox.ValidID(s.ID) {
				b.ExpectNothing(t, s.ID)
			}
		})
	}
}

func parallel(t *testing.T, b *Bench) {
	const runs = 3
	done := make(chan error, runs)
	for range runs {
		s := b.Spec(t)
		go func() { done <- b.once(s) }()
	}
	for range runs {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// once is a whole run without a probe's task.
func (b *Bench) once(s sandbox.Spec) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	box, err := b.Runtime.Create(ctx, s, b.Owner)
	if err != nil {
		return err
	}
	defer func() {
		_, destroyErr := box.Destroy(ctx)
		err = errors.Join(err, destroyErr)
	}()
	channel, err := box.Start(ctx)
	if err != nil {
		return err
	}
	if err := channel.Close(); err != nil {
		return err
	}
	_, err = box.Wait(ctx)
	return err
}

func deref[T any](p *T) any {
	if p == nil {
		return "unknown"
	}
	return *p
}
