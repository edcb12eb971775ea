package orchestrator

import (
	"context"
	"fmt"
	"path/filepath"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"rea/evidence"
	"rea/evidence/fault"
	"rea/evidence/target"
	"rea/orchestrator/run"
	"rea/orchestrator/session"
	"rea/providers/artifact"
)

var _ session.Analyzer = (*Host)(nil)

// Inventory runs inventory_artifact on path, keeps the Evidence with its run record and returns it. With an error the
// record is that of the part that verified before it, nil where there is none; the error names it.
func (h *Host) Inventory(ctx context.Context, path string, policy artifact.Policy, progress func(run.Progress)) (*evidence.Record, artifact.Inventory, error) {
	in, err := h.openInput(path)
	if err != nil {
		return nil, artifact.Inventory{}, err
	}
	defer in.Close()
	record, inv, _, err := h.inventory(ctx, in, policy, progress)
	return record, inv, err
}

// inventory is Inventory on an opened target; it returns the run's result too.
func (h *Host) inventory(ctx context.Context, in *input, policy artifact.Policy, progress func(run.Progress)) (*evidence.Record, artifact.Inventory, *run.Result, error) {
	var none artifact.Inventory
	result, err := h.run(ctx, in, artifact.OpInventory, artifact.Params{IntegrityPolicy: policy, Name: in.name()}, nil, progress)
	if err != nil {
		part, err := h.keepPart(ctx, in, policy, result, err)
		return part, none, nil, err
	}
	inv, ok := result.Summary.Detail.(artifact.Inventory)
	if !ok {
		return nil, none, nil, fmt.Errorf("the check of %s returned a %T", artifact.OpInventory, result.Summary.Detail)
	}
	if err := sameFile(in, artifact.OpInventory, inv.Manifest.RootSHA256, result); err != nil {
		return nil, none, nil, err
	}
	record, err := h.keepInventory(ctx, in, policy, inv, result)
	return record, inv, result, err
}

// keepInventory makes the record of an inventory and keeps it with its run record.
func (h *Host) keepInventory(ctx context.Context, in *input, policy artifact.Policy, inv artifact.Inventory, result *run.Result) (*evidence.Record, error) {
	record, err := artifact.InventoryRecord(in.subject(inv), policy, inv, result.Payload)
	if err != nil {
		return nil, err
	}
	return record, h.keep(ctx, record, result.Record)
}

// keepPart keeps what verified before a failure as Evidence of its own, and names it in the error.
func (h *Host) keepPart(ctx context.Context, in *input, policy artifact.Policy, result *run.Result, failure error) (*evidence.Record, error) {
	if result == nil || result.Payload.IsNull() {
		return nil, failure
	}
	inv, ok := result.Summary.Detail.(artifact.Inventory)
	if !ok || inv.Coverage.Status == artifact.CoverageComplete {
		return nil, failure // a part that claims to be the whole is not kept
	}
	record, err := h.keepInventory(context.WithoutCancel(ctx), in, policy, inv, result)
	if err != nil {
		h.config.Log(fmt.Sprintf("partial inventory: %v", err))
		return nil, failure
	}
	reference := map[string]any{"kind": "retained-evidence", "evidence_id": record.ID}
	return record, fault.From(failure).With("partial_observation", reference)
}

// keep puts a record and the record of its run into the store.
func (h *Host) keep(ctx context.Context, record *evidence.Record, r run.Record) error {
	st, err := h.Store()
	if err != nil {
		return err
	}
	if err := st.PutRecord(ctx, record); err != nil {
		return err
	}
	raw, err := evidence.Canonical(r)
	if err != nil {
		return fmt.Errorf("encode the run record: %w", err)
	}
	return st.PutRun(ctx, record.ID, raw)
}

// sameFile holds the worker's digest of a file against the core's own.
func sameFile(in *input, operation, claimed string, result *run.Result) error {
	if in.main.Dir || claimed == result.Target.File {
		return nil
	}
	return fault.New(fault.UnreadableOutput, "The worker's result is about other bytes than the target's.", "Report it with the output of rea doctor.").
		With("operation", operation).With("reason", "root digest")
}

// subject is what a record says about the target for people, beside its identity.
func (in *input) subject(inv artifact.Inventory) *evidence.Subject {
	return inv.Subject(in.displayName(), in.displayPath())
}

// run does one operation of the artifact provider in a container.
func (h *Host) run(ctx context.Context, in *input, operation string, params artifact.Params, files fileSink, progress func(run.Progress)) (*run.Result, error) {
	m, err := h.open(ctx)
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(params, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("encode parameters: %w", err)
	}
	canonical, err := evidence.Canonicalize(raw)
	if err != nil {
		return nil, fmt.Errorf("encode parameters: %w", err)
	}
	return m.runner.Do(ctx, run.Request{
		Provider: artifact.Provider(), Operation: operation, Params: jsontext.Value(canonical), Target: in.target(), File: files, Progress: progress,
	})
}

// Identify binds path, hashes it and recognises what it is, in a container of its own.
func (h *Host) Identify(ctx context.Context, path string, progress func(run.Progress)) (session.Identity, error) {
	in, err := h.openInput(path)
	if err != nil {
		return session.Identity{}, err
	}
	defer in.Close()
	result, err := h.run(ctx, in, artifact.OpIdentify, artifact.Params{IntegrityPolicy: artifact.PolicyRecord, Name: in.name()}, nil, progress)
	if err != nil {
		return session.Identity{}, err
	}
	inv, ok := result.Summary.Detail.(artifact.Inventory)
	if !ok {
		return session.Identity{}, fmt.Errorf("the check of %s returned a %T", artifact.OpIdentify, result.Summary.Detail)
	}
	if err := sameFile(in, artifact.OpIdentify, inv.Manifest.RootSHA256, result); err != nil {
		return session.Identity{}, err
	}
	s := in.subject(inv)
	return session.Identity{
		Path: in.main.Path, SHA256: s.SHA256, Format: s.Format, Kind: kindOf(inv), Architecture: s.Architecture, Slices: inv.Architectures,
	}, nil
}

// kindOf sorts formats by what can be done with them.
func kindOf(inv artifact.Inventory) session.Kind {
	switch inv.Manifest.RootFormat {
	case artifact.FormatMachO, artifact.FormatMachOUniversal, artifact.FormatELF, artifact.FormatPE, artifact.FormatDOSMZ, artifact.FormatDOSCOM:
		return session.Executable
	case artifact.FormatHopper, artifact.FormatAnalysisDatabase:
		return session.Database
	}
	if inv.Manifest.RootFormat.Container() {
		return session.Archive
	}
	return session.Artifact
}

func (in *input) displayName() string { return display(filepath.Base(in.main.Path)) }
func (in *input) displayPath() string { return display(in.main.Path) }

// display gives a name or path as text: as it is, or escaped where it is not UTF-8.
func display(name string) string {
	if utf8.ValidString(name) {
		return name
	}
	return target.Escape([]byte(name))
}
