package orchestrator

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"rea/evidence/fault"
	"rea/orchestrator/run"
	"rea/providers/artifact"
	"rea/sandbox"
	"rea/sandbox/cgroup"
)

// endless is a target that takes longer to hash than any test waits: sparse, so that it takes no room.
func endless(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "endless")
	if err := errors.Join(os.WriteFile(path, nil, 0o644), os.Truncate(path, 64<<30)); err != nil {
		t.Fatal(err)
	}
	return path
}

// cancelRun cancels a run whose container is at work, and returns how long it took until its control group was empty
// and until the call was back, everything torn down. The group is found by the journal and read from the kernel.
func cancelRun(t testing.TB, h *Host, target string) (empty, back time.Duration) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	working, result := make(chan struct{}), make(chan error, 1)
	go func() {
		begun := false
		_, _, err := h.Inventory(ctx, target, artifact.PolicyFail, func(p run.Progress) {
			if p.Phase == "analyze" && !begun {
				begun = true
				close(working)
			}
		})
		result <- err
	}()
	select {
	case <-working:
	case err := <-result:
		t.Fatalf("the run ended before it was cancelled: %v", err)
	}
	group := groupOf(t, h)
	if n, err := group.Procs(); n == 0 || err != nil {
		t.Fatalf("%d processes at work, %v", n, err)
	}
	began := time.Now()
	cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		// A group that is gone was empty: the kernel removes no other.
		if n, err := group.Procs(); n == 0 || errors.Is(err, os.ErrNotExist) {
			break
		}
		<-tick.C
	}
	empty = time.Since(began)
	if err := <-result; fault.From(err).Code != fault.Cancelled {
		t.Fatalf("%v, want cancelled", err)
	}
	return empty, time.Since(began)
}

// groupOf opens the one control group that a host's journal names.
func groupOf(t testing.TB, h *Host) *cgroup.Group {
	t.Helper()
	owners, err := h.Owners()
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range owners {
		for _, e := range o.Entries {
			if e.Kind != sandbox.KindCgroup {
				continue
			}
			g, err := cgroup.Open(e.Name)
			if err != nil {
				t.Fatal(err)
			}
			return g
		}
	}
	t.Fatalf("no control group in %+v", owners)
	return nil
}

// A cancelled run leaves an empty group, and then nothing.
func TestCancelEmptiesTheGroup(t *testing.T) {
	for _, driver := range []string{DriverDocker, DriverOCI} {
		t.Run(driver, func(t *testing.T) {
			h := newHost(t, driver)
			requireGroups(t)
			cancelRun(t, h, endless(t))
			owners, err := h.Owners()
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range owners {
				if len(o.Entries) > 0 {
					t.Errorf("left: %+v", o.Entries)
				}
			}
		})
	}
}

func requireGroups(t testing.TB) {
	t.Helper()
	if host := cgroup.Detect(); !host.Usable {
		t.Skip("no control group can be made: " + host.Reason)
	}
}

// BenchmarkCancel measures from the cancellation of a call to the empty control group of its run, and to the call's
// return. The contract's bound for the first is 1 s at the 95th percentile.
func BenchmarkCancel(b *testing.B) {
	requireGroups(b)
	for _, driver := range []string{DriverDocker, DriverOCI} {
		b.Run(driver, func(b *testing.B) {
			h := New(Config{Driver: driver, StateDir: b.TempDir()})
			if err := h.Available(context.Background()); err != nil {
				b.Skip(err)
			}
			defer h.Close(context.Background())
			target := endless(b)
			var empty, back []time.Duration
			for b.Loop() {
				e, r := cancelRun(b, h, target)
				empty, back = append(empty, e), append(back, r)
			}
			reportTimes(b, "empty", empty)
			reportTimes(b, "back", back)
		})
	}
}

// reportTimes reports median and 95th percentile.
func reportTimes(b *testing.B, what string, times []time.Duration) {
	slices.Sort(times)
	for _, q := range []struct {
		name string
		at   int
	}{{"p50", len(times) / 2}, {"p95", len(times) * 95 / 100}} {
		b.ReportMetric(float64(times[min(q.at, len(times)-1)].Microseconds())/1000, what+"-"+q.name+"-ms")
	}
}
