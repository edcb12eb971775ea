package docker

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"rea/sandbox"
	"rea/sandbox/sandboxtest"
	"rea/sandbox/staging"
)

// BenchmarkNoop is one whole contained run that does nothing: hardened, with a target, up to the removal of the last
// resource. It reports the median of each step in milliseconds, and that of the whole as p50-ms.
func BenchmarkNoop(b *testing.B) {
	for name, o := range map[string]Options{"privileged": {}, "ordinary": {Ordinary: true}} {
		b.Run(name, func(b *testing.B) {
			if !o.Ordinary && !staging.Privileged() {
				b.Skip("needs the right to mount")
			}
			d := open(b, o)
			bench := sandboxtest.NewBench(b, harness(d, o.Ordinary))
			removeImage(b, d, sandboxtest.Probe(b))
			target := filepath.Join(b.TempDir(), "target")
			if err := os.WriteFile(target, []byte("content"), 0o644); err != nil {
				b.Fatal(err)
			}
			spec := bench.Spec(b, sandboxtest.Target(b, target))
			if err := d.LoadImage(context.Background(), spec.Image); err != nil {
				b.Fatal(err)
			}
			steps := map[string][]time.Duration{}
			for b.Loop() {
				spec.ID = bench.Spec(b).ID
				noop(b, bench, spec, steps)
			}
			for step, took := range steps {
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, step)
			}
		})
	}
}

// noop makes one run and appends how long each step took.
func noop(b *testing.B, bench *sandboxtest.Bench, s sandbox.Spec, steps map[string][]time.Duration) {
	ctx := context.Background()
	begin := time.Now()
	last := begin
	lap := func(step string) {
		now := time.Now()
		steps[step] = append(steps[step], now.Sub(last))
		last = now
	}
	box, err := bench.Runtime.Create(ctx, s, bench.Owner)
	if err != nil {
		b.Fatal(err)
	}
	lap("create-ms")
	channel, err := box.Start(ctx)
	if err != nil {
		b.Fatal(err)
	}
	lap("start-ms")
	if _, err := channel.Read(make([]byte, 64<<10)); err != nil {
		b.Fatal(err)
	}
	lap("hello-ms")
	live := box.Proof().Live
	if live {
		collect(b, box)
		lap("collect-ms")
	}
	if err := box.Kill(ctx); err != nil {
		b.Fatal(err)
	}
	lap("kill-ms")
	if !live {
		collect(b, box)
		lap("collect-ms")
	}
	if _, err := box.Destroy(ctx); err != nil {
		b.Fatal(err)
	}
	lap("destroy-ms")
	steps["p50-ms"] = append(steps["p50-ms"], last.Sub(begin))
}

// collect reads one file of the volume.
func collect(b *testing.B, box sandbox.Sandbox) {
	source, err := box.Evidence(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	r, err := source.Open(context.Background(), "nonce", 1<<10)
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	if _, err := io.Copy(io.Discard, r); err != nil {
		b.Fatal(err)
	}
}
