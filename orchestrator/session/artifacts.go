package session

import (
	"context"

	"golang.org/x/sync/errgroup"

	"rea/evidence"
	"rea/evidence/fault"
	"rea/orchestrator/catalog"
	"rea/orchestrator/run"
	"rea/providers/artifact"
	"rea/providers/versions"
)

// Details of an inspection.
const (
	DetailComplete = "complete"
	DetailSummary  = "summary"
)

// InspectInput is the input of inspect_artifact.
type InspectInput struct {
	Path   string          `json:"path"` // "" for the active target
	Policy artifact.Policy `json:"integrity_policy"`
	Detail string          `json:"detail"` // "" for complete
}

// InspectArtifact takes stock of a target and retains both the inspection and the inventory that it stands on. With
// detail summary it returns the summary view of the inspection, which is retained too; the detail never reaches the
// run nor the inspection.
func (s *Session) InspectArtifact(ctx context.Context, in InspectInput, progress func(run.Progress)) (*evidence.Record, error) {
	path, end, err := s.begin(ctx, catalog.InspectArtifact, in.Path)
	if err != nil {
		return nil, err
	}
	defer end()
	inv, sum, err := s.analyzer.Inventory(ctx, path, policy(in.Policy), progress)
	if err != nil {
		return nil, s.keepPart(ctx, inv, err)
	}
	inv, err = s.retain(ctx, inv)
	if err != nil {
		return nil, err
	}
	inspection, err := artifact.Inspect(ctx, inv, sum)
	if err != nil {
		return nil, fault.From(err)
	}
	if inspection, err = s.retain(ctx, inspection); err != nil || in.Detail != DetailSummary {
		return inspection, err
	}
	summary, err := s.views.Summary(ctx, inspection, s.analyzer.Spooler())
	if err != nil {
		return nil, fault.From(err)
	}
	return s.retain(ctx, summary)
}

// keepPart retains what verified before a failure, so that the reference in the error can be used; a call that was
// cancelled keeps it too. It returns the failure.
func (s *Session) keepPart(ctx context.Context, part *evidence.Record, failure error) *fault.Error {
	f := fault.From(failure)
	if part == nil {
		return f
	}
	if _, err := s.retain(context.WithoutCancel(ctx), part); err != nil {
		delete(f.Details, "partial_observation")
	}
	return f
}

// begin resolves the path that a call works on and begins its work.
func (s *Session) begin(ctx context.Context, operation, path string) (string, func(), error) {
	path, end, err := s.enter(ctx, path)
	if err != nil {
		return "", nil, err
	}
	if err := admitPath(operation, path); err != nil {
		end()
		return "", nil, err
	}
	return path, end, nil
}

func policy(p artifact.Policy) artifact.Policy {
	if p == "" {
		return artifact.PolicyFail
	}
	return p
}

// ExtractInput is the input of extract_artifact. To is the command line's own: a directory that must not exist yet.
type ExtractInput struct {
	Path          string          `json:"path"` // "" for the active target
	Policy        artifact.Policy `json:"integrity_policy"`
	LogicalPaths  []string        `json:"logical_paths"`
	OccurrenceIDs []string        `json:"occurrence_ids"`
	To            string          `json:"-"`
}

// ExtractArtifact writes members of a container to a fresh directory and retains the record of it.
func (s *Session) ExtractArtifact(ctx context.Context, in ExtractInput, progress func(run.Progress)) (*evidence.Record, error) {
	path, end, err := s.begin(ctx, catalog.ExtractArtifact, in.Path)
	if err != nil {
		return nil, err
	}
	defer end()
	record, err := s.analyzer.Extract(ctx, path, ExtractOptions{
		Policy: policy(in.Policy), LogicalPaths: in.LogicalPaths, OccurrenceIDs: in.OccurrenceIDs, To: in.To,
	}, progress)
	if err != nil {
		return nil, fault.From(err)
	}
	return s.retain(ctx, record)
}

// Source is Evidence as an input: a record, or the id of one that this session retains.
type Source struct {
	Record     *evidence.Record // not nil for inline Evidence
	EvidenceID string
}

// resolve returns the record, of one of these operations. What an inline record is, its consumer checks.
func (s *Session) resolve(src Source, expected string, operations ...string) (*evidence.Record, error) {
	if src.Record != nil {
		return src.Record, nil
	}
	r, err := s.ledger.Resolve(src.EvidenceID)
	if err != nil {
		return nil, fault.From(err)
	}
	if !contains(operations, r.Operation) {
		return nil, evidence.ReferenceFault(r.ID, evidence.ReferenceWrongOperation, expected, r.Operation)
	}
	return r, nil
}

// CompareArtifacts compares two inventories and retains the comparison. It starts nothing.
func (s *Session) CompareArtifacts(ctx context.Context, left, right Source) (*evidence.Record, error) {
	if err := acquire(ctx, s.work, 1); err != nil {
		return nil, err
	}
	defer s.work.Release(1)
	l, err := s.resolve(left, "inspect_artifact or inventory_artifact", catalog.InspectArtifact, artifact.OpInventory)
	if err != nil {
		return nil, err
	}
	r, err := s.resolve(right, "inspect_artifact or inventory_artifact", catalog.InspectArtifact, artifact.OpInventory)
	if err != nil {
		return nil, err
	}
	comparison, err := artifact.Compare(ctx, l, r, s.analyzer.Spooler())
	if err != nil {
		return nil, fault.From(err)
	}
	return s.retain(ctx, comparison)
}

// Versions is what CompareVersions found: the record that sums it up, and what it stands on.
type Versions struct {
	Record      *evidence.Record      // compare_versions
	Comparisons []versions.Comparison // one for each family that both sides admit
	Old, New    *evidence.Record      // inventories
}

// Side names the two sides of a comparison of versions.
type Side int

// The sides.
const (
	OldSide Side = iota
	NewSide
)

// CompareVersions takes stock of both paths side by side, each in a container of its own, and runs every comparison
// that both admit. When one side fails, the other is cancelled. The progress function may be called for both sides at
// once.
func (s *Session) CompareVersions(ctx context.Context, oldPath, newPath string, p artifact.Policy, progress func(Side, run.Progress)) (Versions, error) {
	const operation = "compare_versions"
	var v Versions
	for _, path := range []string{oldPath, newPath} {
		if err := admitPath(operation, path); err != nil {
			return v, err
		}
	}
	if err := acquire(ctx, s.work, 1); err != nil {
		return v, err
	}
	defer s.work.Release(1)
	group, both := errgroup.WithContext(ctx)
	for _, one := range []struct {
		side Side
		path string
		to   **evidence.Record
	}{{OldSide, oldPath, &v.Old}, {NewSide, newPath, &v.New}} {
		group.Go(func() error {
			inv, _, err := s.analyzer.Inventory(both, one.path, policy(p), onSide(one.side, progress))
			if err != nil {
				return s.keepPart(both, inv, err).With("target", one.path)
			}
			kept, err := s.retain(both, inv)
			if err != nil {
				return err
			}
			*one.to = named(kept, inv.Subject)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return v, fault.From(err)
	}
	err := s.compareFamilies(ctx, &v)
	return v, err
}

// named gives a retained record the display names of this call: one record stands for equal bytes under every name.
func named(kept *evidence.Record, subject *evidence.Subject) *evidence.Record {
	r := *kept
	r.Subject = subject
	return &r
}

func onSide(side Side, progress func(Side, run.Progress)) func(run.Progress) {
	if progress == nil {
		return nil
	}
	return func(p run.Progress) { progress(side, p) }
}

// compareFamilies runs each family of comparison and sums them up. A later family adds its record to the list.
func (s *Session) compareFamilies(ctx context.Context, v *Versions) error {
	comparison, err := artifact.Compare(ctx, v.Old, v.New, s.analyzer.Spooler())
	if err != nil {
		return fault.From(err)
	}
	if comparison, err = s.retain(ctx, comparison); err != nil {
		return err
	}
	facts, err := artifact.ComparisonFacts(ctx, comparison)
	if err != nil {
		return fault.From(err)
	}
	v.Comparisons = []versions.Comparison{{Family: versions.Artifact, Status: string(facts.Status), Evidence: comparison}}
	record, err := versions.Compare(versions.VersionOf(v.Old.Subject), versions.VersionOf(v.New.Subject), v.Comparisons)
	if err != nil {
		return fault.From(err)
	}
	v.Record, err = s.retain(ctx, record)
	return err
}
