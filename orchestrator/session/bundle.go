package session

import (
	"context"
	"errors"
	"io"
	"os"

	"rea/evidence"
	"rea/evidence/fault"
	"rea/evidence/portable"
	"rea/orchestrator/catalog"
	"rea/orchestrator/schema"
)

// BundleInput is the input of get_evidence_bundle.
type BundleInput struct {
	Detail  string            `json:"detail"` // "" for complete
	Filters *evidence.Filters `json:"filters"`
}

// EvidenceBundle returns what the session retains, as of now: a complete bundle, or a summary of the records that
// match. The document is written when it is asked for and may be written more than once.
func (s *Session) EvidenceBundle(ctx context.Context, in BundleInput) (io.WriterTo, error) {
	records, unknowns := s.unknowns.Snapshot()
	return ProjectBundle(ctx, catalog.GetEvidenceBundle, &evidence.Bundle{Records: records, Unknowns: unknowns}, in)
}

// ProjectBundle is a bundle as get_evidence_bundle shows one: complete, or as a summary of the records that match.
func ProjectBundle(ctx context.Context, operation string, b *evidence.Bundle, in BundleInput) (io.WriterTo, error) {
	if in.Detail != DetailSummary {
		if in.Filters != nil {
			return nil, schema.Reject(operation, schema.Issue{Path: []any{"filters"}, Reason: schema.InvalidValue, Expected: "detail: summary"})
		}
		return complete{ctx, b}, nil
	}
	var filters evidence.Filters
	if in.Filters != nil {
		filters = *in.Filters
	}
	summary, err := evidence.Summarize(b.Records, b.Unknowns, filters).Payload()
	if err != nil {
		return nil, fault.From(err)
	}
	return summary, nil
}

// complete is a bundle that stops being written when the call ends.
type complete struct {
	ctx    context.Context
	bundle *evidence.Bundle
}

func (c complete) WriteTo(w io.Writer) (int64, error) {
	return evidence.WriteBundle(c.ctx, w, c.bundle.Records, c.bundle.Unknowns)
}

// ExportInput is the input of export_evidence_bundle.
type ExportInput struct {
	Path      string `json:"path"`
	Overwrite bool   `json:"overwrite"`
}

// Exported is what export_evidence_bundle returns.
type Exported struct {
	Path     string `json:"path"`
	Bytes    int64  `json:"bytes"`
	Records  int    `json:"records"`
	Unknowns int    `json:"unknowns"` // revisions
}

// ExportBundle writes what the session retains, as of now, to a file that appears complete or not at all. The bundle
// is streamed: memory does not grow with it.
func (s *Session) ExportBundle(ctx context.Context, in ExportInput) (Exported, error) {
	if err := acquire(ctx, s.work, 1); err != nil {
		return Exported{}, err
	}
	defer s.work.Release(1)
	records, unknowns := s.unknowns.Snapshot()
	receipt, err := WriteBundleFile(ctx, in, &evidence.Bundle{Records: records, Unknowns: unknowns})
	if receipt.Staging != "" {
		s.mu.Lock()
		s.litter = append(s.litter, receipt.Staging)
		s.mu.Unlock()
	}
	if err != nil {
		return Exported{}, err
	}
	return Exported{receipt.Path, receipt.Bytes, len(records), len(unknowns)}, nil
}

// WriteBundleFile writes a bundle to a file, all of it or nothing.
func WriteBundleFile(ctx context.Context, in ExportInput, b *evidence.Bundle) (portable.Receipt, error) {
	receipt, err := portable.Publish(ctx, in.Path, in.Overwrite, func(w io.Writer) error {
		_, err := evidence.WriteBundle(ctx, w, b.Records, b.Unknowns)
		return err
	})
	switch {
	case err == nil:
		return receipt, nil
	case ctx.Err() != nil && fault.From(err).Code != fault.CleanupIncomplete:
		return receipt, stopped(ctx)
	}
	return receipt, fault.From(err).With("operation", catalog.ExportEvidenceBundle)
}

// tidy removes what exports left beside their destinations.
func (s *Session) tidy() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var failed error
	var rest []string
	for _, dir := range s.litter {
		if err := os.RemoveAll(dir); err != nil {
			rest, failed = append(rest, dir), err
		}
	}
	s.litter = rest
	if failed == nil {
		return nil
	}
	return fault.New(fault.CleanupIncomplete, "Staging directories of an export could not be removed: "+shown(rest[0])+".",
		"Remove the directory, or give rea access to it, and close again.").WithAll(fault.Details{
		"operation": catalog.CloseBinary, "cleanup": "incomplete", "resources": []string{"staging_directory"}}).Because(failed)
}

// ImportBundle adds the bundle in a file to the session, all of it or nothing. The file is streamed into the store and
// every identity recomputed before anything of the session changes.
func (s *Session) ImportBundle(ctx context.Context, path string) (evidence.Imported, error) {
	if err := acquire(ctx, s.work, 1); err != nil {
		return evidence.Imported{}, err
	}
	defer s.work.Release(1)
	staging := s.analyzer.Retainer()
	b, err := ReadBundleFile(ctx, path, s.analyzer.Spooler(), staging)
	var added evidence.Imported
	if err == nil {
		added, err = s.unknowns.Import(ctx, b)
	}
	if rerr := staging.Release(); err == nil && rerr != nil {
		err = rerr
	}
	if err != nil {
		return evidence.Imported{}, ended(ctx, err)
	}
	return added, nil
}

// ReadBundleFile reads and verifies the bundle in a file. Records go to keep as they are verified; on an error the
// caller releases what it was given.
func ReadBundleFile(ctx context.Context, path string, sp evidence.Spooler, keep evidence.Retainer) (*evidence.Bundle, error) {
	f, err := portable.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := evidence.ReadBundle(ctx, f, sp, keep)
	if err == nil {
		return b, nil
	}
	var failed *fault.Error
	if errors.As(ended(ctx, err), &failed) && failed.Code == fault.ResourceConstraint {
		if limits, ok := failed.Details["reported_limits"].(map[string]any); ok {
			limits["input_path"] = shown(path)
		}
	}
	return nil, failed
}

// ended is the failure of a call: that of its context where it has ended.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return stopped(ctx)
	}
	return fault.From(err)
}
