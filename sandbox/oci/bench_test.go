package oci_test

import (
	"slices"
	"testing"
	"time"

	"rea/sandbox/oci"
	"rea/sandbox/sandboxtest"
	"rea/sandbox/sandboxtest/script"
)

// BenchmarkNoop is a whole contained run that does next to nothing: create, start and verify, one answer, kill, read
// the evidence, tear down. It reports the median of each step; the goal is 40 ms for the whole. The run without a user
// namespace of its own beside it shows what that costs.
func BenchmarkNoop(b *testing.B) {
	h := harness(b)
	b.Run("userns", func(b *testing.B) { noop(b, h) })
	h.Runtime = oci.WithoutUserNS(oci.New(oci.Options{}))
	b.Run("without", func(b *testing.B) { noop(b, h) })
}

func noop(b *testing.B, h sandboxtest.Harness) {
	bench := sandboxtest.NewBench(b, h)
	ctx := sandboxtest.Context(b)
	steps := map[string][]time.Duration{}
	for b.Loop() {
		begin, last := time.Now(), time.Now()
		lap := func(step string) {
			now := time.Now()
			steps[step] = append(steps[step], now.Sub(last))
			last = now
		}
		s := bench.Spec(b)
		box, err := bench.Runtime.Create(ctx, s, bench.Owner)
		if err != nil {
			b.Fatal(err)
		}
		lap("create")
		channel, err := box.Start(ctx)
		if err != nil {
			b.Fatal(err)
		}
		run := sandboxtest.Attach(b, box, s, channel)
		lap("start")
		run.Do(b, script.Task{Do: script.Write, Path: "/evidence/out", Text: "{}"})
		lap("answer")
		if err := box.Kill(ctx); err != nil {
			b.Fatal(err)
		}
		lap("kill")
		if _, err := sandboxtest.ReadFile(ctx, box, "out"); err != nil {
			b.Fatal(err)
		}
		lap("collect")
		if _, err := box.Destroy(ctx); err != nil {
			b.Fatal(err)
		}
		lap("destroy")
		steps["whole"] = append(steps["whole"], time.Since(begin))
	}
	for step, times := range steps {
		slices.Sort(times)
		b.ReportMetric(float64(times[len(times)/2].Microseconds())/1000, step+"-p50-ms")
	}
}
