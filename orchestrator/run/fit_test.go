package run

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"rea/evidence/target"
	"rea/providers"
	"rea/sandbox"
)

// TestFit works out quotas by hand for hosts of several sizes, in MiB: needs are 768 for the program, 1536 of evidence
// and 512 of scratch, with 64 of headroom; at least 256, 64 and 64.
func TestFit(t *testing.T) {
	const mib = 1 << 20
	needs := providers.Needs{Memory: 768 * mib, EvidenceBytes: 1536 * mib, Scratch: []sandbox.Tmpfs{{Bytes: 512 * mib}},
		Least: providers.Least{Memory: 256 * mib, EvidenceBytes: 64 * mib, ScratchBytes: 64 * mib, PerTargetByte: 32}}
	fixed := needs
	fixed.Least = providers.Least{}
	for _, tt := range []struct {
		name                      string
		needs                     providers.Needs
		size, ceiling, concurrent int64 // size and ceiling in MiB, size -1 for no file
		memory, evidence, scratch int64 // MiB
		tolerance                 int64 // MiB, where a proportion does not come out even
	}{
		{"room for all", needs, 1, 2 * 2880, 2, 768, 1536, 512, 0},
		{"no ceiling is known", needs, 1, 0, 2, 768, 1536, 512, 0},
		{"room for one: a small file leaves some for another", needs, 1, 3072, 2, 768, 96, 96, 0},
		{"room for one: a large file gets all", needs, 100, 3072, 2, 768, 1536, 512, 0},
		{"room for one: a directory gets all", needs, -1, 3072, 2, 768, 1536, 512, 0},
		{"a file of no bytes", needs, 0, 3072, 2, 768, 64, 64, 0},
		// 2880 are needed and 1536 are there: 1344 of the 1472+448 that may go, 70 percent of each.
		{"less than one: in proportion", needs, -1, 1536, 1, 768, 505, 198, 2},
		// After the size of the file 768+96+96+64 = 1024 are needed.
		{"less than one, and the file is small", needs, 1, 1024, 1, 768, 96, 96, 0},
		// All volumes at their least: 128, and 64 of headroom leave 576 of 768 for the program.
		{"less than the program", needs, -1, 768, 1, 576, 64, 64, 1},
		{"less than the least", needs, -1, 300, 1, 256, 64, 64, 0},
		{"nothing may be lowered", fixed, 1, 300, 1, 768, 1536, 512, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			size := tt.size
			if size > 0 {
				size *= mib
			}
			got, lowered := fit(tt.needs, size, tt.ceiling*mib, tt.concurrent)
			var names []string
			for _, q := range []struct {
				name             string
				got, want, whole int64
			}{
				{QuotaMemory, got.Memory, tt.memory, 768}, {QuotaEvidence, got.EvidenceBytes, tt.evidence, 1536},
				{QuotaScratch, got.Scratch[0].Bytes, tt.scratch, 512},
			} {
				if off := q.got - q.want*mib; off > tt.tolerance*mib || -off > tt.tolerance*mib {
					t.Errorf("%s: %.2f MiB, want %d", q.name, float64(q.got)/mib, q.want)
				}
				if q.want < q.whole {
					names = append(names, q.name)
				}
			}
			var told []string
			for _, l := range lowered {
				told = append(told, l.Quota)
			}
			if diff := cmp.Diff(names, told); diff != "" {
				t.Errorf("what the record names: %s", diff)
			}
			if fits := charged(got)+headroom <= tt.ceiling*mib; tt.ceiling >= 512 && !fits {
				t.Errorf("%d bytes do not fit below %d MiB", charged(got), tt.ceiling)
			}
		})
	}
	if needs.Scratch[0].Bytes != 512*mib {
		t.Error("the provider's own needs were changed")
	}
}

// A lowered quota reaches the sandbox, and the run record names it.
func TestLoweredRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t")
	if err := os.WriteFile(path, []byte("abc"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	runner, req := newFake(t, &fakeRuntime{script: die})
	runner.o.Ceiling = 400 << 20
	p := req.Provider.(fakeProvider)
	p.needs.EvidenceBytes, p.needs.Least = 1<<30, providers.Least{EvidenceBytes: 1 << 20, PerTargetByte: 1 << 20}
	req.Provider = p
	req.Target = &Target{Path: path, Roots: []target.Root{{File: f}}}
	a := newAttempt(runner, req, func(Progress) {})
	if _, err := a.run(t.Context()); err == nil {
		t.Fatal("a worker that died completed")
	}
	if a.spec.Evidence.Bytes != 4<<20 || a.spec.Limits.Memory != 68<<20 {
		t.Errorf("evidence %d, memory %d", a.spec.Evidence.Bytes, a.spec.Limits.Memory)
	}
	if diff := cmp.Diff([]Lowered{{QuotaEvidence, 1 << 30, 4 << 20}}, a.record.Lowered); diff != "" {
		t.Error(diff)
	}
}
