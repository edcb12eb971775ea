// Package run is the life of one contained run: admit ▸ prepare ▸ start ▸ supervise ▸ collect ▸ retain ▸ tear down.
//
// It knows neither the client nor what the operation means. Every run ends in teardown with a receipt, whatever
// failed before; what verified before a failure is kept and named in the error.
package run

import (
	"context"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sys/unix"

	"rea/evidence"
	"rea/evidence/target"
	"rea/evidence/volume"
	"rea/providers"
	"rea/sandbox"
)

// Request asks for one operation of one provider on one target.
type Request struct {
	Provider  providers.Provider
	Operation string
	Params    jsontext.Value // what the worker gets: the operation's parameters plus the target's name
	Target    *Target
	Progress  func(Progress) // may be nil; called from one goroutine at a time, must not block
	// File opens where one file below files/ of the volume goes to, by its name there. Nil means the store.
	File func(ctx context.Context, name string) (volume.Sink, error)
}

// Target is what a run reads: mounts for the container, and the same descriptors for the core's own digest.
type Target struct {
	Path   string // canonical, for messages
	Mounts []sandbox.Target
	Roots  []target.Root
	Doubts []string // what is less certain about it, for the run record
}

// Progress is one observation of a run that goes on.
type Progress struct {
	Phase          string // queued, prepare, start, analyze, collect, retain, teardown, or the worker's own phase
	Text           string // target text: escape it before showing it
	Position       int    // place in the queue, 1 is next; 0 when not queued
	Entries, Bytes int64
}

// replaced reports whether a part of the target has lost its last name since it was opened: it cannot be bound then.
func (t *Target) replaced() bool {
	for _, root := range t.Roots {
		var st unix.Stat_t
		if err := unix.Fstat(int(root.File.Fd()), &st); err == nil && st.Nlink == 0 {
			return true
		}
	}
	return false
}

// Result is what came out of a completed run, verified and retained.
type Result struct {
	Payload evidence.Payload  // the normalized result, a blob of the store
	Summary providers.Summary // what the operation's check learned
	Raw     map[string]evidence.Blob
	Files   map[string]evidence.Blob // content of files/, by path below it
	// Verified has size and digest of everything that was copied out of the volume, by path in the call's folder.
	Verified map[string]volume.File
	Target   TargetDigest
	Record   Record
}

// TargetDigest is the core's own digest of what was mounted, equal to the worker's.
type TargetDigest struct {
	Bound string // digest that both sides computed
	File  string // SHA-256 of the bytes where the target is a file, "" for a directory
	Size  int64  // bytes read
}

// Record is the run record: what stands beside Evidence and is not part of its identity.
type Record struct {
	RunID         string          `json:"run_id"`
	Provider      string          `json:"provider"`
	Operation     string          `json:"operation"`
	Started       time.Time       `json:"started"`
	Ended         time.Time       `json:"ended"`
	Outcome       Outcome         `json:"outcome"`
	WorkerVersion string          `json:"worker_version"`
	WorkerSHA256  string          `json:"worker_sha256"`
	Limits        sandbox.Limits  `json:"limits"`
	Lowered       []Lowered       `json:"lowered,omitzero"` // quotas that this host could not give in full
	Usage         sandbox.Usage   `json:"usage"`
	Proof         sandbox.Proof   `json:"proof"`
	Receipt       sandbox.Receipt `json:"receipt"`
	Landlock      int             `json:"landlock"`
	Volume        VolumeFacts     `json:"volume"`
}

// VolumeFacts is what the evidence volume held besides what was committed.
type VolumeFacts struct {
	Manifest volume.Outcome `json:"manifest"`
	Unlisted []string       `json:"unlisted"` // entries that no manifest named, escaped, bounded
}

// Outcome is how a run ended, decided from our own journal first and the cgroup's counters second.
type Outcome string

// The closed set of outcomes.
const (
	Completed      Outcome = "completed"
	Failed         Outcome = "failed"
	Deadline       Outcome = "deadline"
	Cancelled      Outcome = "cancelled"
	MemoryLimit    Outcome = "memory-limit"
	PIDsLimit      Outcome = "pids-limit"
	OutputLimit    Outcome = "output-limit"
	EvidenceLimit  Outcome = "evidence-limit"
	Killed         Outcome = "killed"
	Infrastructure Outcome = "infrastructure"
)
