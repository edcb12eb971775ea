package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"rea/evidence/fault"
)

// dieEnv makes this test binary play an owner that is killed at the n-th visit of a point: "<state> <point> <n>".
const dieEnv = "REA_JOURNAL_TEST_DIE"

func TestMain(m *testing.M) {
	if how, ok := os.LookupEnv(dieEnv); ok {
		die(strings.Fields(how))
	}
	os.Exit(m.Run())
}

// die makes three entries, confirms two of them and strikes one out, unless it is killed before.
func die(how []string) {
	left, _ := strconv.Atoi(how[2])
	Failpoint = func(p Point, _ Entry) {
		if p != Point(how[1]) {
			return
		}
		if left--; left == 0 {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	own, err := Open(context.Background(), how[0])
	if err != nil {
		panic(err)
	}
	// A child that lives on must not keep the lock.
	child := exec.Command("/bin/cat")
	child.Stdin = os.Stdin
	if err := child.Start(); err != nil {
		panic(err)
	}
	var made []Entry
	for _, name := range []string{"a", "b", "c"} {
		e, err := own.Make("run", "thing", name, nil)
		if err != nil {
			panic(err)
		}
		made = append(made, e)
	}
	own.Confirm(made[0])
	own.Confirm(made[1])
	own.Gone(made[0])
	own.Gone(made[1])
	panic("not killed")
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func openOwner(t testing.TB, state string) *Owner {
	t.Helper()
	own, err := Open(t.Context(), state)
	must(t, err)
	t.Cleanup(func() { own.Close() })
	return own
}

// makeEntry journals something that is confirmed.
func makeEntry(t testing.TB, own *Owner, run, name string) Entry {
	t.Helper()
	e, err := own.Make(run, "thing", name, map[string]string{"key": "value"})
	must(t, err)
	must(t, own.Confirm(e))
	e.Confirmed = true
	return e
}

// abandon gives up an owner's lock without a word, as a death does.
func abandon(own *Owner) {
	own.mu.Lock()
	defer own.mu.Unlock()
	own.closed = true
	own.release()
}

// dead sweeps and returns the owners found, which the test then owns.
func dead(t testing.TB, state string) []*Dead {
	t.Helper()
	found, err := DeadOwners(t.Context(), state)
	must(t, err)
	for _, d := range found {
		t.Cleanup(d.Close)
	}
	return found
}

func names(entries []Entry) (list []string) {
	for _, e := range entries {
		list = append(list, e.Name)
	}
	return list
}

// tree lists everything below dir with its mode.
func tree(t testing.TB, dir string) (list []string) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		fi, err := d.Info()
		if err == nil {
			rel, _ := filepath.Rel(dir, path)
			list = append(list, fi.Mode().String()+" "+rel)
		}
		return err
	}))
	return list
}

func wantCode(t testing.TB, err error, code fault.Code) {
	t.Helper()
	var e *fault.Error
	if !errors.As(err, &e) || e.Code != code || e.Action == "" {
		t.Fatalf("error is %v, want code %s with an action", err, code)
	}
}

func TestLayout(t *testing.T) {
	state := filepath.Join(t.TempDir(), "deep", "state")
	own := openOwner(t, state)
	const run = "0123456789abcdef"
	dir, err := own.RunDir(run, nil)
	must(t, err)
	again, err := own.RunDir(run, nil)
	must(t, err)
	if dir != again || dir != filepath.Join(own.RunsDir(), run) {
		t.Errorf("run directory %s, then %s", dir, again)
	}
	o := own.ID()
	want := []string{
		"-rw------- id",
		"drwx------ owners",
		"drwx------ owners/" + o,
		"-rw------- owners/" + o + "/journal.ndjson",
		"-rw------- owners/" + o + "/lock",
		"-rw------- owners/" + o + "/owner.json",
		"drwx------ runs",
		"drwx------ runs/" + o,
		"drwx------ runs/" + o + "/" + run,
	}
	if diff := cmp.Diff(want, tree(t, state)); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{"", "..", "0123456789ABCDEF", "0123456789abcdef/.."} {
		if _, err := own.RunDir(bad, nil); err == nil {
			t.Errorf("run %q has a directory", bad)
		}
	}

	wantCode(t, own.Close(), fault.CleanupIncomplete)
	must(t, own.Close())
	for _, d := range dead(t, state) {
		for _, e := range d.Entries() {
			if e.Kind != KindRunDirectory || e.Name != dir {
				t.Errorf("left: %+v", e)
			}
			must(t, os.Remove(e.Name))
			must(t, d.Gone(e))
		}
		must(t, d.Finish())
	}
	if diff := cmp.Diff([]string{"-rw------- id", "drwx------ owners", "drwx------ runs"}, tree(t, state)); diff != "" {
		t.Error(diff)
	}
}

func TestStateIDStays(t *testing.T) {
	state := t.TempDir()
	var ids [8]string
	var all sync.WaitGroup
	for i := range ids {
		all.Go(func() {
			own, err := Open(context.Background(), state)
			if err != nil {
				t.Error(err)
				return
			}
			ids[i] = own.StateID()
			must(t, own.Close())
		})
	}
	all.Wait()
	for _, id := range ids {
		if id != ids[0] || !idForm.MatchString(id) {
			t.Fatalf("ids %q", ids)
		}
	}
}

func TestEntries(t *testing.T) {
	own := openOwner(t, t.TempDir())
	a, b := makeEntry(t, own, "one", "a"), makeEntry(t, own, "two", "b")
	c, err := own.Make("one", "thing", "c", nil)
	must(t, err)
	if same, err := own.Make("one", "thing", "c", nil); err != nil || same.Seq != c.Seq {
		t.Errorf("asked twice: %+v, %v", same, err)
	}
	if diff := cmp.Diff([]Entry{a, b, c}, own.Live()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]Entry{a, c}, own.RunEntries("one")); diff != "" {
		t.Error(diff)
	}
	own.Live()[0].Detail["key"] = "changed by a caller"
	must(t, own.Gone(b))
	must(t, own.Gone(b))
	if diff := cmp.Diff([]Entry{a, c}, own.Live()); diff != "" {
		t.Error(diff)
	}
	for _, bad := range [][2]string{{"", "name"}, {"kind", ""}, {"kind", strings.Repeat("x", maxLine)}, {"kind", "byte\xff"}} {
		if _, err := own.Make("one", bad[0], bad[1], nil); err == nil {
			t.Errorf("%.20q was journalled", bad)
		}
	}
	// What was refused left no trace: the journal reads back as it was.
	got, err := Read(filepath.Dir(filepath.Dir(own.dir)), own.ID())
	must(t, err)
	if diff := cmp.Diff([]Entry{a, c}, got, cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
}

func TestConcurrentUse(t *testing.T) {
	state := t.TempDir()
	own := openOwner(t, state)
	var all sync.WaitGroup
	for n := range 32 {
		all.Go(func() {
			e, err := own.Make(strconv.Itoa(n), "thing", "name", nil)
			if err == nil {
				err = own.Confirm(e)
			}
			if err == nil && n%2 == 0 {
				err = own.Gone(e)
			}
			own.Live()
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	got, err := Read(state, own.ID())
	must(t, err)
	if len(got) != 16 {
		t.Errorf("%d entries are live, want 16", len(got))
	}
}

// TestKilledAtEachPoint has the expected leftovers from the order of the calls in die.
func TestKilledAtEachPoint(t *testing.T) {
	for _, test := range []struct {
		point Point
		visit int
		want  []string // name, confirmed
	}{
		{AfterMake, 1, []string{"a false"}},
		{AfterMake, 3, []string{"a false", "b false", "c false"}},
		{AfterConfirm, 1, []string{"a true", "b false", "c false"}},
		{AfterConfirm, 2, []string{"a true", "b true", "c false"}},
		{AfterGone, 1, []string{"b true", "c false"}},
		{AfterGone, 2, []string{"c false"}},
	} {
		t.Run(fmt.Sprint(test.point, test.visit), func(t *testing.T) {
			t.Parallel()
			state := t.TempDir()
			cmd := exec.Command("/proc/self/exe")
			cmd.Env = []string{fmt.Sprintf("%s=%s %s %d", dieEnv, state, test.point, test.visit)}
			hold, err := cmd.StdinPipe() // the orphaned child lives until this closes
			must(t, err)
			defer hold.Close()
			var exit *exec.ExitError
			if err := cmd.Run(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				t.Fatalf("the owner ended with %v", err)
			}
			found := dead(t, state)
			if len(found) != 1 {
				t.Fatalf("%d dead owners", len(found))
			}
			var got []string
			for _, e := range found[0].Entries() {
				got = append(got, fmt.Sprint(e.Name, " ", e.Confirmed))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestCutAtEachByte reads a journal that ends anywhere, as a crash in mid-write leaves it. What must be there follows
// from the complete lines alone: a line makes n, confirms none, or removes one.
func TestCutAtEachByte(t *testing.T) {
	const text = `{"op":"make","seq":1,"run":"r","kind":"k","name":"a","at":"2026-01-01T00:00:00Z"}
{"op":"make","seq":2,"run":"r","kind":"k","name":"b","at":"2026-01-01T00:00:00Z"}
{"op":"confirm","seq":1}
{"op":"gone","seq":1}
{"op":"make","seq":3,"run":"r","kind":"k","name":"c","at":"2026-01-01T00:00:00Z"}
`
	live := [][]string{nil, {"a"}, {"a", "b"}, {"a", "b"}, {"b"}, {"b", "c"}}
	for n := range len(text) + 1 {
		l, err := parse(strings.NewReader(text[:n]))
		must(t, err)
		if diff := cmp.Diff(live[strings.Count(text[:n], "\n")], names(l.entries(nil))); diff != "" {
			t.Fatalf("cut at byte %d: %s", n, diff)
		}
		if want := int64(strings.LastIndex(text[:n], "\n") + 1); l.whole != want {
			t.Fatalf("cut at byte %d: %d whole bytes, want %d", n, l.whole, want)
		}
	}
}

func TestSweepGoesOnAfterATornLine(t *testing.T) {
	state := t.TempDir()
	own := openOwner(t, state)
	makeEntry(t, own, "run", "a")
	_, err := own.journal.WriteString(`{"op":"make","seq":2,"ru`)
	must(t, err)
	abandon(own)
	d := dead(t, state)[0]
	must(t, d.Gone(d.Entries()[0]))
	d.Close()
	got, err := Read(state, own.ID())
	must(t, err)
	if len(got) != 0 {
		t.Errorf("live: %v", got)
	}
}

// TestDamagedJournalIsSwept damages a journal that lists one resource: the resource is still listed, the damage is
// told, what is found on the host can be added, and the sweep comes to an end.
func TestDamagedJournalIsSwept(t *testing.T) {
	const sound = `{"op":"make","seq":1,"run":"r","kind":"k","name":"sound"}` + "\n"
	for name, text := range map[string]string{
		"not JSON":             "make a\n" + sound,
		"an unknown member":    sound + `{"op":"gone","seq":1,"x":1}` + "\n",
		"an unknown operation": sound + `{"op":"burn","seq":1}` + "\n",
		"out of order":         sound + `{"op":"make","seq":1,"name":"b"}` + "\n",
		"never made":           `{"op":"gone","seq":7}` + "\n" + sound,
		"a line too long":      strings.Repeat("x", 3*maxLine) + "\n" + sound,
		"zeros and a torn end": sound + strings.Repeat("\x00", 100) + "\n" + `{"op":"ma`,
	} {
		t.Run(name, func(t *testing.T) {
			state := t.TempDir()
			own := openOwner(t, state)
			abandon(own)
			must(t, os.WriteFile(filepath.Join(own.dir, journalName), []byte(text), 0o600))
			infos, err := Owners(state)
			must(t, err)
			if len(infos) != 1 || infos[0].Problem == "" || len(infos[0].Entries) != 1 {
				t.Errorf("listed: %+v", infos)
			}

			d := dead(t, state)[0]
			if diff := cmp.Diff([]string{"sound"}, names(d.Entries())); diff != "" || d.Damage() == "" || d.StateID() != own.StateID() {
				t.Errorf("%s; damage %q, state %s", diff, d.Damage(), d.StateID())
			}
			for range 2 {
				must(t, d.Adopt("r", "k", "found", nil))
			}
			d.Keep()
			d.Close()
			d = dead(t, state)[0] // what was adopted is in the journal
			if diff := cmp.Diff([]string{"sound", "found"}, names(d.Entries())); diff != "" {
				t.Error(diff)
			}
			d.now = func() time.Time { return time.Now().Add(2 * Grace) }
			for _, e := range d.Entries() {
				must(t, d.Gone(e))
			}
			must(t, d.Finish())
			if left := dead(t, state); len(left) != 0 {
				t.Errorf("%d owners are left", len(left))
			}
		})
	}
}

// A missing journal does not keep an owner from being swept, and is told.
func TestMissingJournalIsSwept(t *testing.T) {
	state := t.TempDir()
	own := openOwner(t, state)
	abandon(own)
	must(t, os.Remove(filepath.Join(own.dir, journalName)))
	d := dead(t, state)[0]
	if d.ID() != own.ID() || d.Damage() == "" {
		t.Errorf("owner %q, damage %q", d.ID(), d.Damage())
	}
	d.Keep()
	must(t, d.Finish())
	must(t, dead(t, state)[0].Finish())
	if left := dead(t, state); len(left) != 0 {
		t.Errorf("%d owners are left", len(left))
	}
}

func TestOnlyTheLockDecides(t *testing.T) {
	state := t.TempDir()
	own := openOwner(t, state)
	makeEntry(t, own, "run", "a")
	if found := dead(t, state); len(found) != 0 {
		t.Fatal("a living owner was found dead")
	}
	infos, err := Owners(state)
	must(t, err)
	if len(infos) != 1 || !infos[0].Alive || infos[0].Foreign || infos[0].PID != os.Getpid() || len(infos[0].Entries) != 1 {
		t.Errorf("listed: %+v", infos)
	}
	abandon(own)
	infos, err = Owners(state)
	must(t, err)
	if len(infos) != 1 || infos[0].Alive {
		t.Errorf("listed: %+v", infos)
	}
	first := dead(t, state)
	if len(first) != 1 || len(dead(t, state)) != 0 {
		t.Fatal("two sweepers have the same owner")
	}
	wantCode(t, first[0].Finish(), fault.CleanupIncomplete)
	second := dead(t, state)
	if len(second) != 1 {
		t.Fatal("what a sweep left is not found again")
	}
	must(t, second[0].Gone(second[0].Entries()[0]))
	must(t, second[0].Finish())
	if len(dead(t, state)) != 0 {
		t.Error("a finished owner is found again")
	}
}

func TestAnotherMachinesOwnerIsLeftAlone(t *testing.T) {
	state := t.TempDir()
	own := openOwner(t, state)
	abandon(own)
	path := filepath.Join(own.dir, ownerName)
	b, err := os.ReadFile(path)
	must(t, err)
	changed := bytes.Replace(b, []byte(`"machine":"`+machine()), []byte(`"machine":"another`), 1)
	must(t, os.WriteFile(path, changed, 0o600))
	if found := dead(t, state); len(found) != 0 {
		t.Error("it was taken")
	}
	infos, err := Owners(state)
	must(t, err)
	if len(infos) != 1 || !infos[0].Foreign {
		t.Errorf("listed: %+v", infos)
	}
	must(t, os.WriteFile(path, b, 0o600))
	if found := dead(t, state); len(found) != 1 {
		t.Error("this machine's own was not taken")
	}
}

func TestUnconfirmedIsHeldForTheGrace(t *testing.T) {
	state := t.TempDir()
	own := openOwner(t, state)
	makeEntry(t, own, "run", "sure")
	_, err := own.Make("run", "thing", "unsure", nil)
	must(t, err)
	abandon(own)

	found := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	sweep := func(after time.Duration) *Dead {
		d, err := bury(state, own.ID(), func() time.Time { return found.Add(after) })
		must(t, err)
		t.Cleanup(d.Close)
		return d
	}
	for _, after := range []time.Duration{0, Grace - 1} { // counted from the first sweep, not from each
		d := sweep(after)
		for _, e := range d.Entries() {
			must(t, d.Gone(e))
		}
		if diff := cmp.Diff([]string{"unsure"}, names(d.Held())); diff != "" {
			t.Error(diff)
		}
		if left := d.Entries(); len(left) != 0 {
			t.Errorf("left: %v", left)
		}
		must(t, d.Finish())
	}
	d := sweep(Grace)
	if diff := cmp.Diff([]string{"unsure"}, names(d.Entries())); diff != "" {
		t.Error(diff)
	}
	must(t, d.Gone(d.Entries()[0]))
	must(t, d.Finish())
	if _, err := os.Lstat(own.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Error("the journal is still there")
	}
}

func TestHalfMadeOwner(t *testing.T) {
	state := t.TempDir()
	must(t, openOwner(t, state).Close())
	dir := filepath.Join(state, ownersDir, "0123456789abcdef")
	must(t, os.Mkdir(dir, 0o700))
	must(t, os.WriteFile(filepath.Join(dir, ownerName), []byte("{"), 0o600))
	dead(t, state)
	if _, err := os.Lstat(dir); err != nil {
		t.Error("an owner that may still be starting was removed")
	}
	old := time.Now().Add(-Grace - time.Minute)
	must(t, os.Chtimes(dir, old, old))
	dead(t, state)
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Error("an owner that never started is still there")
	}
}

// TestCutRemovalIsFinished takes away what the removal of a finished owner takes away, in its order and up to each
// point, as a sweeper leaves it that is killed there. The next sweep finishes it.
func TestCutRemovalIsFinished(t *testing.T) {
	for removed := range []string{journalName, ownerName, ""} {
		state := t.TempDir()
		own := openOwner(t, state)
		abandon(own)
		must(t, os.Remove(own.runs))
		for _, name := range []string{journalName, ownerName}[:removed] {
			must(t, os.Remove(filepath.Join(own.dir, name)))
		}
		for _, d := range dead(t, state) {
			must(t, d.Finish())
		}
		if _, err := os.Lstat(own.dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%d files removed before the cut: the owner is still there: %v", removed, err)
		}
	}
	// A journal without a record is another matter: nobody knows whose it is.
	state := t.TempDir()
	own := openOwner(t, state)
	abandon(own)
	must(t, os.Remove(filepath.Join(own.dir, ownerName)))
	if _, err := DeadOwners(t.Context(), state); err == nil {
		t.Error("a journal without a record was passed over")
	}
	if _, err := os.Lstat(filepath.Join(own.dir, journalName)); err != nil {
		t.Error("a journal without a record was removed")
	}
}

// TestHoldSeesAReplacedFile is the race of lock-then-unlink: the file that was opened is not the one at the path.
func TestHoldSeesAReplacedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	for name, replace := range map[string]func(){
		"removed":  func() {},
		"replaced": func() { must(t, os.WriteFile(path, nil, 0o600)) },
	} {
		must(t, os.WriteFile(path, nil, 0o600))
		f, err := os.Open(path)
		must(t, err)
		must(t, os.Remove(path))
		replace()
		if err := hold(f, path); !errors.Is(err, errTaken) {
			t.Errorf("%s: %v", name, err)
		}
		f.Close()
	}
}

// TestSweepersAndOwnersSideBySide opens and closes owners while others sweep: no owner is lost, none is found dead.
func TestSweepersAndOwnersSideBySide(t *testing.T) {
	state := t.TempDir()
	ctx, stop := context.WithCancel(t.Context())
	var owners, sweepers sync.WaitGroup
	var mu sync.Mutex
	living := map[string]bool{}
	for range 4 {
		owners.Go(func() {
			for range 50 {
				own, err := Open(context.Background(), state)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				living[own.ID()] = true
				mu.Unlock()
				e, err := own.Make("run", "thing", "name", nil)
				err = errors.Join(err, own.Confirm(e), own.Gone(e))
				mu.Lock()
				delete(living, own.ID())
				mu.Unlock()
				if err := errors.Join(err, own.Close()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 2 {
		sweepers.Go(func() {
			for ctx.Err() == nil {
				found, err := DeadOwners(context.Background(), state)
				if err != nil {
					t.Error(err)
				}
				for _, d := range found {
					mu.Lock()
					if living[d.ID()] {
						t.Errorf("%s lives and was found dead", d.ID())
					}
					mu.Unlock()
					if err := d.Finish(); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	owners.Wait()
	stop()
	sweepers.Wait()
	for _, d := range dead(t, state) {
		must(t, d.Finish())
	}
	if left := tree(t, filepath.Join(state, ownersDir)); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
}

func TestUnusableStateDirectories(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	must(t, os.WriteFile(file, nil, 0o600))
	shared := filepath.Join(dir, "shared")
	must(t, os.Mkdir(shared, 0o700))
	must(t, os.Chmod(shared, 0o770))
	cases := map[string]string{
		"relative":            "state",
		"empty":               "",
		"not UTF-8":           dir + "/byte\xff",
		"a file":              file,
		"below a file":        file + "/state",
		"writable for others": shared,
	}
	if os.Geteuid() == 0 {
		foreign := filepath.Join(dir, "foreign")
		must(t, os.Mkdir(foreign, 0o700))
		must(t, os.Chown(foreign, 1234, 1234))
		cases["another user's"] = foreign
	}
	for name, state := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := Open(t.Context(), state)
			wantCode(t, err, fault.ConfigurationInvalid)
			if !strings.Contains(fmt.Sprint(fault.From(err).Details), Setting) {
				t.Errorf("the error does not name %s", Setting)
			}
			_, err = DeadOwners(t.Context(), state)
			wantCode(t, err, fault.ConfigurationInvalid)
		})
	}
}

// TestNetworkFileSystems takes /dev/shm's file system for a network one, because a test cannot count on having NFS.
func TestNetworkFileSystems(t *testing.T) {
	dir, err := os.MkdirTemp("/dev/shm", "rea-test-")
	if err != nil {
		t.Skip("no /dev/shm here")
	}
	defer os.RemoveAll(dir)
	must(t, openOwner(t, dir).Close())
	remote[unix.TMPFS_MAGIC] = "a test"
	defer delete(remote, unix.TMPFS_MAGIC)
	_, err = Open(t.Context(), dir)
	wantCode(t, err, fault.ConfigurationInvalid)
	if !strings.Contains(err.Error(), "a test") {
		t.Errorf("error %v", err)
	}
}

func TestOwnersOfNothing(t *testing.T) {
	infos, err := Owners(filepath.Join(t.TempDir(), "none"))
	must(t, err)
	if len(infos) != 0 {
		t.Errorf("listed: %+v", infos)
	}
}

// TestFullDisk fills a small file system of its own.
func TestFullDisk(t *testing.T) {
	state := t.TempDir()
	if err := unix.Mount("test", state, "tmpfs", 0, "size=256k,mode=0700"); err != nil {
		t.Skip("no mount for a full disk here: ", err)
	}
	defer unix.Unmount(state, unix.MNT_DETACH)
	own := openOwner(t, state)
	kept := makeEntry(t, own, "run", "before")
	filler := filepath.Join(state, "filler")
	if err := os.WriteFile(filler, make([]byte, 1<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	var err error
	for range 200 { // until the journal's last page is full
		if _, err = own.Make(NewID(), "thing", "x", map[string]string{"pad": strings.Repeat("x", 1000)}); err != nil {
			break
		}
	}
	wantCode(t, err, fault.ResourceConstraint)
	before := own.Live()
	must(t, os.Remove(filler))
	after := makeEntry(t, own, "run", "after")
	got, err := Read(state, own.ID())
	must(t, err)
	if diff := cmp.Diff(append(before, after), got, cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
	if before[0].Name != kept.Name {
		t.Errorf("first entry %+v", before[0])
	}
	abandon(own)
}

func TestALongJournalIsEmptied(t *testing.T) {
	state := t.TempDir()
	own := openOwner(t, state)
	pad := map[string]string{"pad": strings.Repeat("x", 60<<10)}
	path := filepath.Join(own.dir, journalName)
	for range 40 { // 2.4 MB in all
		e, err := own.Make("run", "thing", NewID(), pad)
		must(t, err)
		must(t, own.Gone(e))
		if fi, err := os.Stat(path); err != nil || fi.Size() > compactAt+maxLine {
			t.Fatalf("the journal has %d bytes, %v", fi.Size(), err)
		}
	}
	last := makeEntry(t, own, "run", "last")
	got, err := Read(state, own.ID())
	must(t, err)
	if diff := cmp.Diff([]Entry{last}, got); diff != "" {
		t.Error(diff)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"op":"make","seq":1,"run":"r","kind":"k","name":"a","at":"2026-01-01T00:00:00Z"}` + "\n" + `{"op":"confirm","seq":1}` + "\n"))
	f.Add([]byte(`{"op":"dead","at":"2026-01-01T00:00:00Z"}` + "\n{"))
	f.Fuzz(func(t *testing.T, data []byte) {
		l, err := parse(bytes.NewReader(data))
		if err == nil && (l.whole < 0 || l.whole > int64(len(data))) {
			t.Errorf("%d whole bytes of %d", l.whole, len(data))
		}
	})
}

func BenchmarkEntry(b *testing.B) {
	own := openOwner(b, b.TempDir())
	for b.Loop() {
		e, err := own.Make("run", "thing", "name", nil)
		must(b, err)
		must(b, own.Confirm(e))
		must(b, own.Gone(e))
	}
}
