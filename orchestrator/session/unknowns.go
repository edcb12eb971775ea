package session

import (
	"context"
	"path/filepath"

	"rea/evidence"
	"rea/evidence/fault"
)

// UnknownInput is the input of record_unknown.
type UnknownInput struct {
	Question string `json:"question"`
	Domain   string `json:"domain"`
	evidence.Terms
}

// RecordUnknown begins a residual unknown about the active target, or about none.
func (s *Session) RecordUnknown(ctx context.Context, in UnknownInput) (evidence.Unknown, error) {
	return s.changeUnknown(ctx, func(subject *evidence.Subject) (evidence.Unknown, error) {
		return s.unknowns.Record(ctx, subject, in.Question, in.Domain, in.Terms)
	})
}

// UnknownUpdate is the input of update_unknown: the complete new state.
type UnknownUpdate struct {
	UnknownID        string `json:"unknown_id"`
	ExpectedRevision int    `json:"expected_revision"`
	Status           string `json:"status"`
	evidence.Terms
	Resolution *evidence.Resolution `json:"resolution"`
}

// UpdateUnknown adds a revision to a residual unknown.
func (s *Session) UpdateUnknown(ctx context.Context, in UnknownUpdate) (evidence.Unknown, error) {
	return s.changeUnknown(ctx, func(subject *evidence.Subject) (evidence.Unknown, error) {
		return s.unknowns.Update(ctx, subject, in.UnknownID, in.ExpectedRevision, in.Status, in.Terms, in.Resolution)
	})
}

func (s *Session) changeUnknown(ctx context.Context, change func(*evidence.Subject) (evidence.Unknown, error)) (evidence.Unknown, error) {
	if err := acquire(ctx, s.work, 1); err != nil {
		return evidence.Unknown{}, err
	}
	defer s.work.Release(1)
	u, err := change(s.active().subject())
	if err != nil {
		return evidence.Unknown{}, ended(ctx, err)
	}
	return u, nil
}

// subject is the target as Evidence names it; nil for no target.
func (t *target) subject() *evidence.Subject {
	if t == nil {
		return nil
	}
	return &evidence.Subject{Name: shown(filepath.Base(t.Path)), SHA256: t.SHA256, Format: t.Format, Architecture: t.Architecture, LocalPath: shown(t.Path)}
}

// UnknownQuery is the input of list_unknowns. The zero value is every head.
type UnknownQuery struct {
	Status   string `json:"status"`
	Severity string `json:"severity"`
	Domain   string `json:"domain"`
	Offset   int    `json:"offset"`
	Limit    *int   `json:"limit"` // nil for no limit
}

// UnknownPage is what list_unknowns returns.
type UnknownPage struct {
	Items      []evidence.Unknown `json:"items"`
	Total      int                `json:"total"` // all that match
	Offset     int                `json:"offset"`
	Limit      *int               `json:"limit"`
	NextOffset *int               `json:"next_offset"`
}

// ListUnknowns lists the current heads that match, by ID.
func (s *Session) ListUnknowns(in UnknownQuery) UnknownPage {
	is := func(want, got string) bool { return want == "" || want == got }
	page := UnknownPage{Items: []evidence.Unknown{}, Offset: in.Offset, Limit: in.Limit}
	for _, u := range s.unknowns.Heads() {
		if !is(in.Status, u.Status) || !is(in.Severity, u.Severity) || !is(in.Domain, u.Domain) {
			continue
		}
		if page.Total >= in.Offset && (in.Limit == nil || len(page.Items) < *in.Limit) {
			page.Items = append(page.Items, u)
		}
		page.Total++
	}
	if next := in.Offset + len(page.Items); next < page.Total {
		page.NextOffset = &next
	}
	return page
}

// Verification is what verify_unknown_resolution returns.
type Verification struct {
	Valid         bool             `json:"valid"`
	TruthVerified bool             `json:"truthVerified"` // the historic spelling of the contract
	Unknown       evidence.Unknown `json:"unknown"`
}

// VerifyUnknown says whether the resolution of an unknown still holds. It changes nothing.
func (s *Session) VerifyUnknown(id string) (Verification, error) {
	head, valid, verified, err := s.unknowns.Verify(id)
	if err != nil {
		return Verification{}, fault.From(err)
	}
	return Verification{valid, verified, head}, nil
}
