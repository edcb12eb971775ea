package session

import (
	"context"

	"github.com/go-json-experiment/json/jsontext"

	"rea/evidence"
	"rea/evidence/fault"
)

// InspectView makes a view of Evidence and retains it. The request is an object of the shape that the catalog
// advertises for the view of inspect_analysis_view. It starts nothing and opens nothing.
func (s *Session) InspectView(ctx context.Context, src Source, request jsontext.Value) (*evidence.Record, error) {
	if err := acquire(ctx, s.work, 1); err != nil {
		return nil, err
	}
	defer s.work.Release(1)
	parent := src.Record
	if parent == nil {
		var err error
		if parent, err = s.ledger.Resolve(src.EvidenceID); err != nil {
			return nil, fault.From(err)
		}
	}
	made, err := s.views.Make(ctx, parent, request, s.analyzer.Spooler())
	if err != nil {
		return nil, fault.From(err)
	}
	return s.retain(ctx, made)
}
