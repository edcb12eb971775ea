package artifact

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"rea/evidence"
	"rea/evidence/fault"
	"rea/providers"
	"rea/sandbox"
)

// Identity of the provider, as Evidence carries it.
const (
	ProviderID      = "rea-artifact-graph"
	ProviderName    = "REA safe artifact graph provider"
	ProviderVersion = "1"
)

// Needs of one run, each with its reason.
const (
	// needMemory holds a graph of MaxEntries (see Builder), the windows of nested decompressors, and the members that a
	// reader keeps in memory while it expands them.
	needMemory = 768 << 20
	// needCPU is two: the root is hashed while its members are read.
	needCPU = 2
	// needPIDs is the worker's threads: Go makes one for each core and for each read that blocks.
	needPIDs = 64
	// needEvidence holds the result for MaxEntries, about 1.3 kB each. Extracted files have to fit as well.
	needEvidence = 3 << 29
	// needInodes is one for each extracted file and a few of the folder's own; each costs about 1 kB of kernel memory.
	needInodes = 256 << 10
	// needScratch holds one nested container that is too large for memory while it is expanded.
	needScratch = 512 << 20
	// leastMemory is the worker with its windows and a graph of some 200,000 entries.
	leastMemory = 256 << 20
	// leastEvidence and leastScratch hold the result for 50,000 entries, and the members of most packages.
	leastEvidence = 64 << 20
	leastScratch  = 64 << 20
	// needPerByte is far above what packages unpack to, and what their entries make of a result: an entry of a zip
	// archive has some 150 bytes there and 1.3 kB in the result.
	needPerByte = 32
	// needDeadline is what reading and unpacking the largest guarded input takes on a slow disk.
	needDeadline = 30 * time.Minute
	// needIdle is far above the worker's longest step between two reports: one read of a slow disk, or the sorting and
	// writing of a graph of MaxEntries.
	needIdle = 2 * time.Minute
)

func needs() providers.Needs {
	return providers.Needs{
		Memory: needMemory, CPU: needCPU, PIDs: needPIDs, EvidenceBytes: needEvidence, EvidenceInodes: needInodes,
		Scratch: []sandbox.Tmpfs{{Destination: sandbox.ScratchPath, Bytes: needScratch, Inodes: 1024}},
		Seccomp: sandbox.SeccompStatic, Deadline: needDeadline, Idle: needIdle,
		Least: providers.Least{Memory: leastMemory, EvidenceBytes: leastEvidence, ScratchBytes: leastScratch, PerTargetByte: needPerByte},
	}
}

// Provider is the core side of the artifact graph.
func Provider() providers.Provider { return provider{} }

type provider struct{}

func (provider) Manifest() providers.Manifest {
	return providers.Manifest{
		ID: ProviderID, Name: ProviderName, Version: ProviderVersion, Worker: "artifact", Image: "static", Needs: needs(),
	}
}

func (provider) Operations() []providers.Operation {
	return []providers.Operation{
		{Name: OpIdentify, Check: checkInventory}, {Name: OpInventory, Check: checkInventory}, {Name: OpExtract, Check: checkExtraction},
	}
}

// Params are the parameters of every operation as the worker gets them. Only integrity_policy is a parameter of the
// Evidence.
type Params struct {
	IntegrityPolicy Policy `json:"integrity_policy"`
	// Name is the target's base name, escaped: what a suffix says about a format is taken from it.
	Name string `json:"name"`
	// Selected are the occurrences to extract, sorted; nil selects every regular file and slice.
	Selected []string `json:"selected,omitzero"`
}

func parseParams(raw jsontext.Value) (Params, error) {
	var p Params
	if err := json.Unmarshal(raw, &p); err != nil || !p.IntegrityPolicy.Known() {
		return p, fault.New(fault.ExecutionFailure, "The parameters of an artifact run cannot be read.",
			"Report it: the parameters are made by rea itself.").Because(err)
	}
	return p, nil
}

// checkInventory is the check of inventory_artifact. The summary's Detail is an Inventory.
func checkInventory(ctx context.Context, result io.Reader, params jsontext.Value) (providers.Summary, error) {
	p, err := parseParams(params)
	if err != nil {
		return providers.Summary{}, err
	}
	inv, err := verifyInventory(ctx, result) // the run sees to the canonical form of every result
	if err != nil {
		return providers.Summary{}, unreadable(OpInventory, err)
	}
	if p.IntegrityPolicy == PolicyFail && inv.ContradictionCount > 0 {
		return providers.Summary{}, unreadable(OpInventory, &flaw{at: "integrity_contradictions", reason: "the policy was to fail"})
	}
	return summary(inv), nil
}

func summary(inv Inventory) providers.Summary {
	return providers.Summary{
		Format: string(inv.Manifest.RootFormat), Architecture: inv.Subject("", "").Architecture,
		RootSHA256: inv.Manifest.RootSHA256, Limitations: inv.Limitations, Locations: []evidence.Location{}, Detail: inv,
	}
}

// CheckInventory reads an inventory result of our own producer as a stream and verifies it: canonical form, strict
// shape, order, every identity, the graph's digest, counts, links, coverage. It holds about 32 bytes for each node, 250
// for each contradiction, 128 for each described container, and the limitations. The error is a *fault.Error of code
// unreadable_output, a context's cause, or the reader's own.
func CheckInventory(ctx context.Context, result io.Reader) (Inventory, error) {
	form := evidence.NewChecker()
	inv, err := verifyInventory(ctx, io.TeeReader(result, form))
	if err == nil {
		err = form.Close()
	}
	if err != nil {
		return Inventory{}, unreadable(OpInventory, err)
	}
	return inv, nil
}

// verifyInventory is CheckInventory without the canonical form of what is not kept.
func verifyInventory(ctx context.Context, result io.Reader) (Inventory, error) {
	s, err := open(ctx, result, rule{own: true})
	for err == nil && !s.done {
		_, err = s.next()
	}
	if err != nil {
		return Inventory{}, err
	}
	return s.inv, nil
}

// unreadable gives a flaw in a worker's result its code; other errors keep theirs.
func unreadable(operation string, err error) error {
	var f *flaw
	var syntax *evidence.SyntaxError
	if !errors.As(err, &f) && !errors.As(err, &syntax) {
		return err
	}
	return fault.New(fault.UnreadableOutput, "The worker's result is not what its contract allows: "+err.Error()+".",
		"Repeat the call; if it fails again, report it with the output of rea doctor.").
		With("operation", operation).With("reason", err.Error()).Because(err)
}
