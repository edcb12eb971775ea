// Package providers says what a provider is: a source of analysis results, with its needs as data.
//
// The core side of a provider declares its operations and checks what comes back; the container side (packages named
// worker) parses target bytes. Package builtin lists what is linked in. Package providers starts nothing.
package providers

import (
	"context"
	"io"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"rea/evidence"
	"rea/sandbox"
)

// Manifest declares a provider: who it is and what its runs need. The core decides from it whether a run may start.
type Manifest struct {
	ID      string // "rea-artifact-graph"
	Name    string // for people
	Version string
	Worker  string // name of the container side, as wire.Call carries it
	Image   string // name of an image in package images; "static" is the worker alone
	Needs   Needs
}

// Needs are the resources of one run. They are the provider's own figures, not the caller's.
type Needs struct {
	Memory         int64 // bytes for the program itself; evidence and scratch come on top
	CPU            float64
	PIDs           int64
	EvidenceBytes  int64
	EvidenceInodes int64
	Scratch        []sandbox.Tmpfs
	Seccomp        string        // name of a profile of package sandbox
	Deadline       time.Duration // whole run
	Idle           time.Duration // longest silence of the worker
	Least          Least
}

// Least is how little a run may be given on a host that cannot give it all of its Needs. A zero field is not lowered.
type Least struct {
	Memory        int64 // bytes for the program itself
	EvidenceBytes int64
	ScratchBytes  int64 // of each scratch
	// PerTargetByte is how much evidence and scratch, above the least, a target file is worth for each of its bytes.
	PerTargetByte int64
}

// Operation is one thing that a provider can be asked for.
type Operation struct {
	Name string
	// Check reads the result as a stream, once, in canonical form, and refuses what the operation's contract does not
	// allow. It returns what the core needs to know of it. It holds one element in memory at a time; what it keeps
	// beyond that is bounded and stated by the operation.
	Check func(ctx context.Context, result io.Reader, params jsontext.Value) (Summary, error)
}

// Summary is what Check learned of a result.
type Summary struct {
	Format       string   // subject format
	Architecture string   // subject architecture, "" for null
	RootSHA256   string   // the digest that the result claims for its subject
	Limitations  []string // of the record
	Locations    []evidence.Location
	Detail       any // what the operation's own package wants to know further, such as artifact.Inventory
}

// Provider is the core side of a provider.
type Provider interface {
	Manifest() Manifest
	Operations() []Operation
}

// Find returns the operation of p by name.
func Find(p Provider, name string) (Operation, bool) {
	for _, op := range p.Operations() {
		if op.Name == name {
			return op, true
		}
	}
	return Operation{}, false
}
