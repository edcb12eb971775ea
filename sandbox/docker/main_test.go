package docker

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain fails when a goroutine of a run outlives the run.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
