package session

import (
	"context"
	"io"

	"rea/evidence"
	"rea/evidence/fault"
	"rea/orchestrator/catalog"
)

// BundleInput is the input of get_evidence_bundle.
type BundleInput struct {
	Detail  string            `json:"detail"` // "" for complete
	Filters *evidence.Filters `json:"filters"`
}

// EvidenceBundle returns what the session retains, as of now: a complete bundle, or a summary of the records that
// match. The document is written when it is asked for and may be written more than once.
func (s *Session) EvidenceBundle(ctx context.Context, in BundleInput) (io.WriterTo, error) {
	records := s.ledger.All()
	if in.Detail != DetailSummary {
		if in.Filters != nil {
			return nil, catalog.Reject(catalog.GetEvidenceBundle, catalog.Issue{
				Path: []any{"filters"}, Reason: catalog.InvalidValue, Expected: "detail: summary"})
		}
		return bundle{ctx, records}, nil
	}
	var filters evidence.Filters
	if in.Filters != nil {
		filters = *in.Filters
	}
	summary, err := evidence.PayloadOf(evidence.Summarize(records, nil, filters))
	if err != nil {
		return nil, fault.From(err)
	}
	return summary, nil
}

// bundle is the complete bundle of a snapshot of the ledger.
type bundle struct {
	ctx     context.Context
	records []*evidence.Record
}

func (b bundle) WriteTo(w io.Writer) (int64, error) {
	return evidence.WriteBundle(b.ctx, w, b.records, nil)
}
