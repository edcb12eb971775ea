// Package sessiontest is an Analyzer without containers, for tests of what stands above it: each operation is a
// function that the test sets. What contained runs really give is tested where they are real.
package sessiontest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"maps"
	"slices"

	"rea/evidence"
	"rea/evidence/fault"
	"rea/orchestrator/run"
	"rea/orchestrator/session"
	"rea/providers/artifact"
)

// Analyzer is a session.Analyzer. An operation whose function is nil fails.
type Analyzer struct {
	OnAvailable func() error
	OnIdentify  func(ctx context.Context, path string, progress func(run.Progress)) (session.Identity, error)
	OnInventory func(ctx context.Context, path string, p artifact.Policy, progress func(run.Progress)) (*evidence.Record, artifact.Inventory, error)
	OnExtract   func(ctx context.Context, path string, o session.ExtractOptions, progress func(run.Progress)) (*evidence.Record, error)
	Keeper      evidence.Retainer // nil for memory
}

func missing(operation string) error {
	return fault.New(fault.ProviderUnavailable, operation+" is not part of this test.", "Set its function.")
}

// Available implements session.Analyzer.
func (a *Analyzer) Available(context.Context) error {
	if a.OnAvailable == nil {
		return nil
	}
	return a.OnAvailable()
}

// Identify implements session.Analyzer.
func (a *Analyzer) Identify(ctx context.Context, path string, progress func(run.Progress)) (session.Identity, error) {
	if a.OnIdentify == nil {
		return session.Identity{}, missing("Identify")
	}
	return a.OnIdentify(ctx, path, progress)
}

// Inventory implements session.Analyzer.
func (a *Analyzer) Inventory(ctx context.Context, path string, p artifact.Policy, progress func(run.Progress)) (*evidence.Record, artifact.Inventory, error) {
	if a.OnInventory == nil {
		return nil, artifact.Inventory{}, missing("Inventory")
	}
	return a.OnInventory(ctx, path, p, progress)
}

// Extract implements session.Analyzer.
func (a *Analyzer) Extract(ctx context.Context, path string, o session.ExtractOptions, progress func(run.Progress)) (*evidence.Record, error) {
	if a.OnExtract == nil {
		return nil, missing("Extract")
	}
	return a.OnExtract(ctx, path, o, progress)
}

// Spooler implements session.Analyzer.
func (a *Analyzer) Spooler() evidence.Spooler { return evidence.Memory{} }

// Retainer implements session.Analyzer.
func (a *Analyzer) Retainer() evidence.Retainer {
	if a.Keeper == nil {
		return evidence.Memory{}
	}
	return a.Keeper
}

// Record is a sealed record of operation without a subject, whose result is value.
func Record(operation string, value any) *evidence.Record {
	result, err := evidence.PayloadOf(value)
	if err != nil {
		panic(err)
	}
	r := &evidence.Record{Provider: evidence.Provider{ID: "alpha", Name: "Alpha engine", Version: "2.0"}, Operation: operation, NormalizedResult: result}
	if err := r.Seal(); err != nil {
		panic(err)
	}
	return r
}

// Inventory is the inventory Evidence of a zip with these members, made by the builder that a worker's readers feed
// and checked as the core checks a worker's result. The zip's own bytes are those of root.
func Inventory(root string, members map[string]string) (*evidence.Record, artifact.Inventory, error) {
	b := artifact.NewBuilder(artifact.Root{Format: artifact.FormatZip})
	b.SetContent(0, *content(root))
	b.SetScope(artifact.ScopeEntries)
	for _, path := range slices.Sorted(maps.Keys(members)) {
		size := artifact.SizeOf(int64(len(members[path])))
		if _, err := b.Add(artifact.Entry{Path: path, EntryKind: artifact.EntryFile, Format: artifact.FormatFile,
			Content: content(members[path]), DeclaredSize: size, CompressedSize: size}); err != nil {
			return nil, artifact.Inventory{}, err
		}
	}
	var out bytes.Buffer
	if _, err := b.Finish(context.Background(), &out); err != nil {
		return nil, artifact.Inventory{}, err
	}
	inv, err := artifact.CheckInventory(context.Background(), bytes.NewReader(out.Bytes()))
	if err != nil {
		return nil, artifact.Inventory{}, err
	}
	r, err := artifact.InventoryRecord(inv.Subject("sample.zip", "/samples/sample.zip"), artifact.PolicyFail, inv, evidence.CanonicalPayload(out.Bytes()))
	return r, inv, err
}

func content(text string) *artifact.Content {
	return &artifact.Content{SHA256: sha256.Sum256([]byte(text)), Size: int64(len(text))}
}
