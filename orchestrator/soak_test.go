package orchestrator

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"rea/evidence/fault"
	"rea/orchestrator/run"
	"rea/orchestrator/session"
	"rea/providers/artifact"
	"rea/sandbox/journal"
	"rea/sandbox/keeper"
)

// Environment of TestSoak and of the processes that it starts.
const (
	soakVariable = "REA_TEST_SOAK"      // how many runs are begun, for each driver; make soak sets it
	coreVariable = "REA_TEST_SOAK_CORE" // in a core that may be killed: driver, state directory and destination, by newlines
	stepVariable = "REA_TEST_SOAK_STEP" // at which line of its journal it dies, 0 for none
	onceVariable = "REA_TEST_SOAK_ONCE" // it extracts once and ends
)

// keeperMode is the hidden mode of this test's program, as rea itself has one.
const keeperMode = "soak-keeper"

func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == keeperMode {
		if keeper.Main(context.Background(), keeper.Job{State: os.Args[2], Owner: os.Args[3], Leash: os.Stdin}) != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestSoakCore is a core of TestSoak: it looks into the sample and extracts it, over and over, and says what it has
// been told is done. It ends with its standard input, or is killed.
func TestSoakCore(t *testing.T) {
	setting := strings.Split(os.Getenv(coreVariable), "\n")
	if len(setting) != 3 {
		t.Skip("TestSoak starts this")
	}
	step, err := strconv.Atoi(os.Getenv(stepVariable))
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	journal.Failpoint = func(journal.Point, journal.Entry) {
		if lines++; lines == step {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() { // ends with this process
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	h := New(Config{Driver: setting[0], StateDir: setting[1], Keeper: []string{keeperMode}})
	path, _ := sample(t, "1.0.0")
	once := os.Getenv(onceVariable) != ""
	for n := 0; ctx.Err() == nil && (n == 0 || !once); n++ {
		fmt.Println("\nbegin")
		record, _, err := h.Inventory(ctx, path, artifact.PolicyFail, func(run.Progress) {})
		if err == nil && (n%2 == 1 || once) {
			to := filepath.Join(setting[2], journal.NewID())
			if record, err = h.Extract(ctx, path, session.ExtractOptions{Policy: artifact.PolicyFail, To: to}, func(run.Progress) {}); err == nil {
				fmt.Println("\nplaced", to)
			}
		}
		if err != nil && ctx.Err() == nil {
			fmt.Println("\nbad", fault.From(err).Code, strings.ReplaceAll(err.Error(), "\n", " "))
			return
		}
		if err == nil {
			fmt.Println("\nack", record.ID)
		}
	}
	if err := h.Close(context.Background()); err != nil {
		fmt.Println("\nbad", err)
	}
}

// soak is what the parent of all these cores knows.
type soak struct {
	driver, state, out string
	begun              int
	acked, placed      []string
	runs               map[string]bool // run ids that dead owners' journals listed
}

// TestSoak kills cores at random, at a line of their journal or at any moment, while one core beside them works on
// undisturbed. One sweep then leaves nothing, and everything that was acknowledged is there.
func TestSoak(t *testing.T) {
	runs := 8
	if s := os.Getenv(soakVariable); s != "" {
		var err error
		if runs, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for _, driver := range []string{DriverOCI, DriverDocker} {
		t.Run(driver, func(t *testing.T) {
			requireDriver(t, New(Config{Driver: driver, StateDir: t.TempDir()}))
			s := &soak{driver: driver, state: t.TempDir(), out: t.TempDir(), runs: map[string]bool{}}
			calm := &soak{driver: driver, state: s.state, out: s.out}
			survivor := calm.start(t, 0)
			heard := make(chan struct{})
			go func() { defer close(heard); calm.hear(t, survivor, false) }()
			for s.begun < runs {
				s.victim(t, random)
			}
			s.remember(t)
			s.sweep(t)
			if err := survivor.in.Close(); err != nil {
				t.Fatal(err)
			}
			<-heard
			if err := survivor.cmd.Wait(); err != nil || len(calm.acked) == 0 {
				t.Errorf("the core that nobody killed: %v, %d answers", err, len(calm.acked))
			}
			t.Logf("the core that nobody killed did %d runs", calm.begun)
			s.acked, s.placed = append(s.acked, calm.acked...), append(s.placed, calm.placed...)
			s.check(t)
		})
	}
}

// core is one process that works.
type core struct {
	cmd *exec.Cmd
	in  io.Closer
	out *bufio.Scanner
}

func (s *soak) start(t *testing.T, step int, more ...string) *core {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestSoakCore$", "-test.count=1")
	cmd.Env = append(os.Environ(), coreVariable+"="+strings.Join([]string{s.driver, s.state, s.out}, "\n"), stepVariable+"="+strconv.Itoa(step))
	cmd.Env = append(cmd.Env, more...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return &core{cmd, in, bufio.NewScanner(out)}
}

// hear takes what a core says until its end, or until it begins something, where begin says so.
func (s *soak) hear(t *testing.T, c *core, begin bool) {
	t.Helper()
	for c.out.Scan() {
		word, rest, _ := strings.Cut(c.out.Text(), " ")
		switch word {
		case "begin":
			s.begun++
			if begin {
				return
			}
		case "ack":
			s.acked = append(s.acked, rest)
		case "placed":
			s.placed = append(s.placed, rest)
		case "bad":
			t.Errorf("a core failed: %s", rest)
		}
	}
}

// victim starts a core and kills it.
func (s *soak) victim(t *testing.T, random *rand.Rand) {
	t.Helper()
	const lines = 60 // of a journal: some three runs
	step := 0
	if random.IntN(2) == 0 {
		step = 1 + random.IntN(lines)
	}
	c := s.start(t, step)
	s.hear(t, c, true)
	if step == 0 {
		const longest = 600 * time.Millisecond // two runs on a busy machine
		timer := time.AfterFunc(time.Duration(random.Int64N(int64(longest))), func() { _ = c.cmd.Process.Kill() })
		defer timer.Stop()
	}
	s.hear(t, c, false)
	_ = c.cmd.Wait() // it was killed
	if status, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		t.Errorf("a core ended with %v, and was to be killed", c.cmd.ProcessState)
	}
}

// TestCrashAtEachLine kills a core with its keeper at each line of its journal, from the first run of an inventory to
// the last step of an extraction, and sweeps after each.
func TestCrashAtEachLine(t *testing.T) {
	for _, driver := range []string{DriverOCI, DriverDocker} {
		t.Run(driver, func(t *testing.T) {
			requireDriver(t, New(Config{Driver: driver, StateDir: t.TempDir()}))
			stride := 7 // a part of them, another one in each test of a driver's own suite
			if os.Getenv(soakVariable) != "" {
				stride = 1
			}
			s := &soak{driver: driver, state: t.TempDir(), out: t.TempDir(), runs: map[string]bool{}}
			for step := 1; ; step += stride {
				c := s.start(t, step, onceVariable+"=1")
				s.hear(t, c, false)
				if c.cmd.Wait() == nil { // it lived to its end
					break
				}
				s.remember(t)
				s.sweep(t)
			}
			s.check(t)
			if len(s.acked) == 0 {
				t.Error("no core lived to its end")
			}
		})
	}
}

// remember notes the runs that the dead have left.
func (s *soak) remember(t *testing.T) {
	t.Helper()
	owners, err := journal.Owners(s.state)
	if err != nil {
		t.Fatal(err)
	}
	dead := 0
	for _, o := range owners {
		if !o.Alive {
			dead++
		}
		for _, e := range o.Entries {
			s.runs[e.Run] = true
		}
	}
	t.Logf("%d runs begun, %d acknowledged, %d dead cores, %d runs left by the dead", s.begun, len(s.acked), dead, len(s.runs))
}

// sweep sweeps once, while the survivor still works.
func (s *soak) sweep(t *testing.T) {
	t.Helper()
	swept, err := New(Config{Driver: s.driver, StateDir: s.state}).Sweep(context.Background())
	if err != nil {
		t.Error(err)
	}
	for _, o := range swept {
		if len(o.Remains) > 0 {
			t.Errorf("of %s remain %v: %s", o.Owner, o.Remains, o.Reason)
		}
	}
}

// check looks at the host: what is left of all runs, and what was acknowledged.
func (s *soak) check(t *testing.T) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(mounts), s.state) {
		t.Errorf("mounts remain below the state directory")
	}
	claims := globbed(t, "/run/rea/ids/*")
	for id := range s.runs {
		if strings.Contains(string(mounts), "/run/rea/roots/"+id) {
			t.Errorf("the root of %s remains mounted", id)
		}
		for _, pattern := range []string{"/sys/fs/cgroup/*/", "/sys/fs/cgroup/*/*/", "/sys/fs/cgroup/*/*/*/"} {
			if left := globbed(t, pattern+"*"+id+"*"); len(left) > 0 {
				t.Errorf("cgroups remain: %v", left)
			}
		}
		for _, claim := range claims {
			if holder, err := os.Readlink(claim); err == nil && holder == id {
				t.Errorf("%s still has ids", id)
			}
		}
	}
	for _, pattern := range []string{s.out + "/.rea-*", s.state + "/runs/*/*"} {
		if left := globbed(t, pattern); len(left) > 0 {
			t.Errorf("directories remain: %v", left)
		}
	}
	s.checkEngine(t)
	for _, dir := range s.placed {
		if _, err := os.Stat(dir); err != nil {
			t.Errorf("an extraction that was acknowledged: %v", err)
		}
	}
	st, err := New(Config{Driver: s.driver, StateDir: s.state}).Store()
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range s.acked {
		if _, err := st.Record(context.Background(), id); err != nil {
			t.Errorf("Evidence that was acknowledged: %v", err)
		}
	}
	if v, err := st.Verify(context.Background()); err != nil {
		t.Errorf("the store: %+v, %v", v, err)
	}
}

// checkEngine asks the engine's own command line for containers and volumes of this state directory.
func (s *soak) checkEngine(t *testing.T) {
	t.Helper()
	id, err := os.ReadFile(filepath.Join(s.state, "id"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := exec.LookPath("docker"); err != nil || s.driver != DriverDocker {
		return
	}
	label := "label=rea.state=" + strings.TrimSpace(string(id))
	for _, args := range [][]string{{"ps", "-aq", "--filter", label}, {"volume", "ls", "-q", "--filter", label}} {
		if out, err := exec.Command("docker", args...).Output(); err != nil || len(out) > 0 {
			t.Errorf("docker %s: %q, %v", args[0], out, err)
		}
	}
}

func globbed(t *testing.T, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return found
}
