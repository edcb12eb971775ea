package orchestrator

import (
	"context"
	"testing"

	"rea/providers/artifact"
)

// BenchmarkInventory is one contained inventory of the sample application from open to teardown, per driver: what a
// user waits for when nothing is large.
func BenchmarkInventory(b *testing.B) {
	for _, driver := range []string{DriverDocker, DriverOCI} {
		b.Run(driver, func(b *testing.B) {
			h := New(Config{Driver: driver, StateDir: b.TempDir()})
			if err := h.Available(context.Background()); err != nil {
				b.Skip(err)
			}
			defer h.Close(context.Background())
			for b.Loop() {
				if _, _, err := h.Inventory(context.Background(), "../testdata/notes/notes-1.0.0.zip", artifact.PolicyFail, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
