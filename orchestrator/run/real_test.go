package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"rea/evidence/fault"
	"rea/evidence/volume"
	"rea/images"
	"rea/providers"
	"rea/sandbox"
	"rea/sandbox/cgroup"
	"rea/sandbox/docker"
	"rea/sandbox/journal"
	"rea/sandbox/oci"
	"rea/sandbox/sandboxtest"
	"rea/sandbox/staging"
)

// The tests below bring real containers, with a worker that does what its parameters say, into each outcome, on every
// driver. What must come out is the table "container outcome to code" of the runtime contract; that something was
// ended by the kernel is read from the kernel's counters in the run's record.

// realDriver is a driver of this host. Where it is absent the test skips.
type realDriver struct {
	name string
	open func(t *testing.T) sandbox.Runtime
	own  bool // the limits are on a cgroup of ours, whose counters are exact

	class string // runtime class
}

var realDrivers = []realDriver{
	{"oci", func(t *testing.T) sandbox.Runtime { return oci.New(oci.Options{}) }, true, ""},
	{"docker", func(t *testing.T) sandbox.Runtime { return engine(t, docker.Options{}) }, true, ""},
	{"docker as an ordinary user", func(t *testing.T) sandbox.Runtime { return engine(t, docker.Options{Ordinary: true}) }, false, ""},
}

func engine(t *testing.T, o docker.Options) sandbox.Runtime {
	t.Helper()
	d, err := docker.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// real is a runner on a real driver.
type real struct {
	*Runner
	bench *sandboxtest.Bench
}

func newReal(t *testing.T, d realDriver) *real {
	t.Helper()
	if !staging.Privileged() {
		t.Skip("these tests make mounts and cgroups")
	}
	ctx, driver := sandboxtest.Context(t), d.open(t)
	if facts, err := driver.Probe(ctx); err != nil || !facts.Available {
		t.Skip("no such driver here: ", facts.Reason, err)
	}
	b := sandboxtest.NewBench(t, sandboxtest.Harness{Runtime: driver, Image: func(t testing.TB, i *images.Image, state string) sandbox.Image {
		if driver.Name() != oci.DriverName {
			return i.Sandbox("")
		}
		root, err := i.RootFS(state)
		if err != nil {
			t.Fatal(err)
		}
		return i.Sandbox(root)
	}})
	image := b.Harness.Image(t, sandboxtest.Worker(t), b.State)
	return &real{bench: b, Runner: New(Options{
		Runtime: driver, Owner: b.Owner, Class: d.class,
		Image:    func(context.Context, string) (sandbox.Image, error) { return image, nil },
		Create:   func(context.Context) (volume.Sink, error) { return &memorySink{}, nil },
		HostFull: func(err error) bool { return errors.Is(err, cgroup.ErrCeiling) },
	})}
}

// realNeeds are small, so that a limit is reached quickly.
var realNeeds = providers.Needs{
	Memory: 64 << 20, CPU: 1, PIDs: 64, EvidenceBytes: 4 << 20, EvidenceInodes: 200, Seccomp: sandbox.SeccompStatic,
	Deadline: time.Minute, Idle: time.Minute,
}

// realProvider has the scripted worker's one operation.
type realProvider struct{ fakeProvider }

func (p realProvider) Manifest() providers.Manifest {
	return providers.Manifest{ID: "test", Name: "Test", Version: "1", Worker: "test", Image: "testworker", Needs: p.needs}
}

func (p realProvider) Operations() []providers.Operation {
	return []providers.Operation{{Name: "script", Check: func(_ context.Context, r io.Reader, _ jsontext.Value) (providers.Summary, error) {
		_, err := io.Copy(io.Discard, r)
		return providers.Summary{Format: "file"}, err
	}}}
}

func scripted(needs providers.Needs, behaviours string) Request {
	return Request{Provider: realProvider{fakeProvider{needs}}, Operation: "script", Params: jsontext.Value(`{"behaviours":[` + behaviours + `]}`)}
}

// do runs a request and checks that nothing of it is left.
func (r *real) do(t *testing.T, ctx context.Context, req Request, report func(Progress)) (*Result, Record, error) {
	t.Helper()
	if report == nil {
		report = func(Progress) {}
	}
	a := newAttempt(r.Runner, req, report)
	result, err := a.run(ctx)
	if !a.record.Receipt.Complete() {
		t.Errorf("something remains: %+v", a.record.Receipt)
	}
	r.bench.ExpectNothing(t, a.record.RunID)
	return result, a.record, err
}

func TestRealOutcomes(t *testing.T) {
	short := func(change func(*providers.Needs)) providers.Needs {
		n := realNeeds
		change(&n)
		return n
	}
	tests := []struct {
		name       string
		behaviours string
		needs      providers.Needs
		outcome    Outcome
		code       fault.Code // "" for success
		counters   func(sandbox.Usage) bool
	}{
		{name: "completed", behaviours: `{"do":"file","path":"a","bytes":4096}`, outcome: Completed},
		{name: "failed", behaviours: `{"do":"nonesuch"}`, outcome: Failed, code: fault.ExecutionFailure},
		{name: "memory of the worker", behaviours: `{"do":"memory","bytes":268435456}`, outcome: MemoryLimit, code: fault.ResourceConstraint,
			counters: func(u sandbox.Usage) bool { return *u.OOMKills > 0 && *u.MemoryPeak > 48<<20 }},
		{name: "memory of a child alone", behaviours: `{"do":"child","bytes":268435456}`, outcome: Completed,
			counters: func(u sandbox.Usage) bool { return *u.OOMKills > 0 }},
		{name: "fork bomb", behaviours: `{"do":"fork","count":100000},{"do":"exit","count":1}`, outcome: PIDsLimit, code: fault.ResourceConstraint,
			counters: func(u sandbox.Usage) bool { return *u.PIDsRefused && *u.PIDsPeak == realNeeds.PIDs }},
		{name: "fork bomb that is survived", behaviours: `{"do":"fork","count":100000}`, outcome: Completed,
			counters: func(u sandbox.Usage) bool { return *u.PIDsRefused }},
		{name: "volume full of bytes", behaviours: `{"do":"fill","op":"bytes"}`, outcome: EvidenceLimit, code: fault.ResourceConstraint},
		{name: "volume full of inodes", behaviours: `{"do":"fill","op":"inodes"}`, outcome: EvidenceLimit, code: fault.ResourceConstraint},
		{name: "frames without end", behaviours: `{"do":"storm"}`, outcome: OutputLimit, code: fault.ResourceConstraint},
		{name: "output without a line's end", behaviours: `{"do":"stdout","bytes":33554432}`, outcome: Completed},
		{name: "gone without a word", behaviours: `{"do":"exit","count":3}`, outcome: Killed, code: fault.ProviderUnavailable},
		{name: "panic", behaviours: `{"do":"panic"}`, outcome: Failed, code: fault.ExecutionFailure},
		{name: "a false commitment", behaviours: `{"do":"done"},{"do":"hang"}`, outcome: Failed, code: fault.EvidenceIntegrityMismatch},
		{name: "deadline", behaviours: `{"do":"hang"}`, needs: short(func(n *providers.Needs) { n.Deadline = 2 * time.Second }), outcome: Deadline, code: fault.ProviderTimeout},
		{name: "silence", behaviours: `{"do":"hang"}`, needs: short(func(n *providers.Needs) { n.Idle = time.Second }), outcome: Deadline, code: fault.ProviderTimeout},
		{name: "a grandchild that stays", behaviours: `{"do":"orphan"}`, outcome: Completed},
	}
	for _, d := range realDrivers {
		t.Run(d.name, func(t *testing.T) {
			r := newReal(t, d)
			for _, tt := range tests {
				t.Run(tt.name, func(t *testing.T) {
					if tt.needs.Memory == 0 {
						tt.needs = realNeeds
					}
					result, record, err := r.do(t, context.Background(), scripted(tt.needs, tt.behaviours), nil)
					if !d.own && (tt.outcome == PIDsLimit || tt.outcome == EvidenceLimit) && record.Outcome != tt.outcome {
						t.Skipf("outcome %s: the counters went with the container, as the proof says", record.Outcome)
					}
					if record.Outcome != tt.outcome {
						t.Errorf("outcome %q, want %q (error %v)", record.Outcome, tt.outcome, err)
					}
					if got := code(err); got != tt.code {
						t.Errorf("error %v, want code %q", err, tt.code)
					}
					if err == nil && result == nil {
						t.Error("success without a result")
					}
					if d.own && tt.counters != nil && !tt.counters(record.Usage) {
						t.Errorf("usage %+v", record.Usage)
					}
				})
			}
		})
	}
}

// code is an error's code, "" for none.
func code(err error) fault.Code {
	if err == nil {
		return ""
	}
	return fault.From(err).Code
}

// gvisorDrivers are gVisor as a runtime class of both drivers; the engine is one of the test's own that knows it.
var gvisorDrivers = []realDriver{
	{"oci", func(t *testing.T) sandbox.Runtime { return oci.New(oci.Options{}) }, true, "runsc"},
	{"docker", func(t *testing.T) sandbox.Runtime {
		path, err := exec.LookPath("runsc")
		if err != nil {
			t.Skip("runsc is not installed")
		}
		// As an administrator would: without a network of gVisor's own, which a run has no use for.
		config := filepath.Join(t.TempDir(), "daemon.json")
		text := fmt.Sprintf(`{"runtimes":{"runsc":{"path":%q,"runtimeArgs":["--network=none"]}}}`, path)
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		e := sandboxtest.NewEngine(t, nil, "--config-file", config)
		return engine(t, docker.Options{Host: e.Host()})
	}, true, "runsc"},
}

// TestRealGVisor does the same in gVisor: it is what was asked for, and says so. What of its own kernel's limits an
// outcome shows is less, and told apart.
func TestRealGVisor(t *testing.T) {
	if _, err := exec.LookPath("runsc"); err != nil {
		t.Skip("runsc is not installed")
	}
	needs := realNeeds
	needs.Memory, needs.PIDs = 256<<20, 256 // its kernel's own memory and threads count
	for _, d := range gvisorDrivers {
		t.Run(d.name, func(t *testing.T) {
			r := newReal(t, d)
			for _, tt := range []struct {
				name, behaviours string
				outcome          Outcome
			}{
				{"completed", `{"do":"file","path":"a","bytes":4096}`, Completed},
				{"memory", `{"do":"memory","bytes":1073741824}`, MemoryLimit},
				{"volume full", `{"do":"fill","op":"bytes"}`, EvidenceLimit},
				{"gone", `{"do":"exit","count":3}`, Killed},
			} {
				t.Run(tt.name, func(t *testing.T) {
					_, record, err := r.do(t, context.Background(), scripted(needs, tt.behaviours), nil)
					if record.Outcome != tt.outcome {
						t.Errorf("outcome %q, want %q (error %v)", record.Outcome, tt.outcome, err)
					}
					p := record.Proof
					if !p.OwnKernel || !strings.HasPrefix(p.Runtime, "runsc") || !slices.Contains(p.Unproved, sandbox.UnprovedOwnKernel) {
						t.Errorf("proof %+v", p)
					}
				})
			}
		})
	}
}

// TestRealClassMissing asks for runtimes that are not there, or cannot work here: nothing is put in their place.
func TestRealClassMissing(t *testing.T) {
	for _, d := range realDrivers {
		for _, class := range []string{"nonesuch", "crun", "kata"} {
			t.Run(d.name+"/"+class, func(t *testing.T) {
				d.class = class
				r := newReal(t, d)
				_, record, err := r.do(t, context.Background(), scripted(realNeeds, ``), nil)
				if record.Outcome != Infrastructure || code(err) != fault.CapabilityUnavailable || !strings.Contains(err.Error(), class) {
					t.Errorf("outcome %q, error %v", record.Outcome, err)
				}
			})
		}
	}
}

// TestRealCancel gives up in each phase of a run.
func TestRealCancel(t *testing.T) {
	for _, d := range realDrivers {
		t.Run(d.name, func(t *testing.T) {
			r := newReal(t, d)
			for _, phase := range []string{"prepare", "start", "analyze", "storm", "collect", "retain"} {
				t.Run(phase, func(t *testing.T) {
					ctx, cancel := context.WithCancel(context.Background())
					defer cancel()
					behaviours := `{"do":"storm","count":10},{"do":"file","path":"a","bytes":4096}`
					if phase == "analyze" || phase == "storm" {
						behaviours = `{"do":"storm","count":10},{"do":"wait"}`
					}
					reached := false
					_, record, err := r.do(t, ctx, scripted(realNeeds, behaviours), func(p Progress) {
						if p.Phase == phase {
							reached = true
							cancel()
						}
					})
					if !reached || record.Outcome != Cancelled || code(err) != fault.Cancelled {
						t.Errorf("reached %v, outcome %q, error %v; want cancelled", reached, record.Outcome, err)
					}
				})
			}
		})
	}
}

// TestRealKilled ends the first process from outside, as the host's own killer would.
func TestRealKilled(t *testing.T) {
	for _, d := range realDrivers {
		t.Run(d.name, func(t *testing.T) {
			r := newReal(t, d)
			var id string
			killed := false
			_, record, err := r.do(t, context.Background(), scripted(realNeeds, `{"do":"storm","count":1},{"do":"wait"}`), func(p Progress) {
				if p.Phase != "storm" || killed {
					return
				}
				for _, e := range r.bench.Owner.Live() {
					id = e.Run
				}
				killed = true
				kill(t, id)
			})
			if !killed || record.Outcome != Killed || code(err) != fault.ProviderUnavailable {
				t.Errorf("killed %v, outcome %q, error %v", killed, record.Outcome, err)
			}
		})
	}
}

// kill finds the first process of a run by what the kernel says of every process, and kills it.
func kill(t *testing.T, run string) {
	t.Helper()
	for _, status := range glob(t, "/proc/[0-9]*/status") {
		dir := filepath.Dir(status)
		data, err := os.ReadFile(status)
		if err != nil || !strings.Contains(string(data), "\nNSpid:") {
			continue
		}
		_, rest, _ := strings.Cut(string(data), "\nNSpid:")
		line, _, _ := strings.Cut(rest, "\n")
		pids := strings.Fields(line)
		group, err := os.ReadFile(dir + "/cgroup")
		command, _ := os.ReadFile(dir + "/cmdline")
		ours := strings.Contains(string(group), run) || strings.Contains(string(group), "/docker/") && strings.HasPrefix(string(command), sandbox.WorkerPath+"\x00")
		if err != nil || len(pids) < 2 || pids[len(pids)-1] != "1" || !ours {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Error(err)
		}
		return
	}
	t.Error("the run's first process is not to be found")
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestRealEngineStops kills an engine under a run. What then remains is told, and a sweep with the next engine ends it.
func TestRealEngineStops(t *testing.T) {
	for name, ordinary := range map[string]bool{"privileged": false, "ordinary": true} {
		t.Run(name, func(t *testing.T) {
			e := sandboxtest.NewEngine(t, nil)
			driver := engine(t, docker.Options{Host: e.Host(), Ordinary: ordinary})
			state := t.TempDir()
			owner, err := journal.Open(sandboxtest.Context(t), state)
			if err != nil {
				t.Fatal(err)
			}
			image := sandboxtest.Worker(t).Sandbox("")
			runner := New(Options{Runtime: driver, Owner: owner,
				Image:  func(context.Context, string) (sandbox.Image, error) { return image, nil },
				Create: func(context.Context) (volume.Sink, error) { return &memorySink{}, nil }})
			stopped := false
			a := newAttempt(runner, scripted(realNeeds, `{"do":"storm","count":1},{"do":"wait"}`), func(p Progress) {
				if p.Phase == "storm" && !stopped {
					stopped = true
					e.Stop(syscall.SIGKILL)
				}
			})
			_, err = a.run(context.Background())
			if !stopped || err == nil || a.record.Receipt.Complete() || code(err) != fault.CleanupIncomplete {
				t.Errorf("stopped %v, receipt %+v, error %v; want what remains", stopped, a.record.Receipt, err)
			}
			if err := owner.Close(); err == nil {
				t.Error("the journal lists nothing")
			}
			e.Start()
			dead, err := journal.DeadOwners(sandboxtest.Context(t), state)
			if err != nil || len(dead) != 1 {
				t.Fatalf("%d dead owners, %v", len(dead), err)
			}
			if receipt, err := driver.Sweep(sandboxtest.Context(t), dead[0]); err != nil {
				t.Errorf("sweep: %v, %+v", err, receipt)
			}
			if err := dead[0].Finish(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestRealImageMissing asks for an image that is not there any more.
func TestRealImageMissing(t *testing.T) {
	for _, d := range realDrivers {
		t.Run(d.name, func(t *testing.T) {
			r := newReal(t, d)
			r.o.Image = func(context.Context, string) (sandbox.Image, error) {
				return sandbox.Image{Name: "rea/none", Digest: "sha256:" + strings.Repeat("0", 64), RootFS: "/nonexistent", HasWorker: true}, nil
			}
			_, record, err := r.do(t, context.Background(), scripted(realNeeds, ``), nil)
			if c := code(err); record.Outcome != Infrastructure || c != fault.CapabilityUnavailable && c != fault.ProviderUnavailable {
				t.Errorf("outcome %q, error %v", record.Outcome, err)
			}
		})
	}
}

// floodVariable sets how much TestRealFlood has a worker write, in bytes; the least is a quarter of a gigabyte.
const floodVariable = "REA_TEST_FLOOD"

// TestRealFlood has a worker write without end, and watches this process's memory: what is kept is a few kilobytes.
func TestRealFlood(t *testing.T) {
	bytes := int64(256 << 20)
	if s := os.Getenv(floodVariable); s != "" {
		var err error
		if bytes, err = strconv.ParseInt(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	needs := realNeeds
	needs.Deadline, needs.Idle = 10*time.Minute, 10*time.Minute
	for _, d := range realDrivers {
		t.Run(d.name, func(t *testing.T) {
			r := newReal(t, d)
			runtime.GC()
			var before, now runtime.MemStats
			runtime.ReadMemStats(&before)
			_, record, err := r.do(t, context.Background(), scripted(needs, fmt.Sprintf(`{"do":"stdout","bytes":%d}`, bytes/2)), nil)
			runtime.ReadMemStats(&now)
			if err != nil || record.Outcome != Completed {
				t.Fatalf("outcome %q, error %v", record.Outcome, err)
			}
			if grown := int64(now.Sys) - int64(before.Sys); grown > 32<<20 {
				t.Errorf("%d bytes of output made this process %d bytes larger", bytes, grown)
			}
		})
	}
}

// TestRealParallel asks for many runs at once, of which the host-wide ceiling has room for a few, and reads the
// kernel's limits all the while: their sum never passes the ceiling's. Where the engine makes the only cgroup there is
// no ceiling, and the gate alone bounds what is under way.
func TestRealParallel(t *testing.T) {
	const atOnce = 2
	for _, d := range realDrivers {
		t.Run(d.name, func(t *testing.T) {
			r := newReal(t, d)
			needs := realNeeds
			needs.Deadline = 10 * time.Minute // most of which is waiting for room
			r.gate = newGate(atOnce)
			runs := 10
			if d.own {
				runs = 50
				r.gate = newGate(runs)
				needs.Memory = hostMemory(t) / 8
			}
			var under, most, queued atomic.Int64
			done := make(chan error, runs)
			for i := range runs {
				req := scripted(needs, fmt.Sprintf(`{"do":"file","path":"f%d","bytes":65536}`, i))
				req.Progress = func(p Progress) {
					switch p.Phase {
					case "queued":
						queued.Add(1)
					case "start":
						if n := under.Add(1); n > most.Load() {
							most.Store(n)
						}
						belowCeiling(t)
					case "teardown":
						under.Add(-1)
					}
				}
				go func() {
					result, err := r.Do(context.Background(), req)
					if err == nil && result.Verified[volume.FilesDir+"/f"+strconv.Itoa(i)].Size != 65536 {
						err = fmt.Errorf("run %d gave another one's file: %v", i, result.Verified)
					}
					done <- err
				}()
			}
			for range runs {
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
			if bound := map[bool]int64{true: 8, false: atOnce}[d.own]; most.Load() > bound || queued.Load() == 0 {
				t.Errorf("%d runs at once, where %d have room; queued %d times", most.Load(), bound, queued.Load())
			}
		})
	}
}

// hostMemory is what the kernel says the host has, in bytes.
func hostMemory(t *testing.T) int64 {
	t.Helper()
	var info syscall.Sysinfo_t
	if err := syscall.Sysinfo(&info); err != nil {
		t.Fatal(err)
	}
	return int64(info.Totalram) * int64(info.Unit)
}

// belowCeiling adds up the limits of all runs of this host, and compares them with their parent's.
func belowCeiling(t *testing.T) {
	t.Helper()
	for _, place := range [][2]string{{"/sys/fs/cgroup/memory/rea", "memory.limit_in_bytes"}, {"/sys/fs/cgroup/rea", "memory.max"}, {"/sys/fs/cgroup/rea.slice", "memory.max"}} {
		ceiling, err := strconv.ParseInt(readText(filepath.Join(place[0], place[1])), 10, 64)
		if err != nil {
			continue // not this host's kind, or no ceiling
		}
		var sum int64
		for _, file := range glob(t, filepath.Join(place[0], "*", place[1])) {
			if limit, err := strconv.ParseInt(readText(file), 10, 64); err == nil && limit < ceiling { // one that is not limited yet holds nothing
				sum += limit
			}
		}
		if sum > ceiling {
			t.Errorf("runs may use %d bytes together, and the ceiling is %d", sum, ceiling)
		}
	}
}

func readText(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return "" // gone meanwhile, or not there
	}
	return strings.TrimSpace(string(data))
}
