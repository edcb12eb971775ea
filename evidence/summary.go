package evidence

import (
	"slices"
	"strconv"
)

// Filters select records of a bundle summary: exact matches, all of them. A filter of "" is absent.
type Filters struct {
	EvidenceID            string `json:"evidence_id,omitempty"`
	Operation             string `json:"operation,omitempty"`
	TargetSHA256          string `json:"target_sha256,omitempty"`
	AnalysisProfileDigest string `json:"analysis_profile_digest,omitempty"`
	ProcedureAddress      string `json:"procedure_address,omitempty"`
}

// BundleSummary lists what a ledger retains without any payload.
type BundleSummary struct {
	Kind             string          `json:"kind"` // evidence-bundle-summary
	Filters          Filters         `json:"filters"`
	TotalRetained    int             `json:"total_retained_records"`
	Matching         int             `json:"matching_records"`
	UnknownRevisions int             `json:"unknown_revisions"`
	Records          []RecordSummary `json:"records"` // by evidence_id
}

// RecordSummary is one record without its payloads.
type RecordSummary struct {
	EvidenceID            string        `json:"evidence_id"`
	Subject               *Subject      `json:"subject"`
	Provider              Provider      `json:"provider"`
	Operation             string        `json:"operation"`
	Confidence            Confidence    `json:"confidence"`
	Authority             Authority     `json:"authority"`
	AnalysisProfileDigest *string       `json:"analysis_profile_digest"`
	Retention             string        `json:"retention"` // complete-record
	LimitationCount       int           `json:"limitation_count"`
	NativeDossier         NativeDossier `json:"native_dossier"`
}

// NativeDossier says whether a record holds the dossier of a native function. None does yet.
type NativeDossier struct {
	Available bool   `json:"available"`
	Reason    string `json:"reason"` // different-operation, not-recorded-or-incompatible
}

// operationDossier is the operation whose Evidence can hold a native dossier.
const operationDossier = "analyze_function"

// Summary describes the record without its payloads.
func (r *Record) Summary() RecordSummary {
	s := RecordSummary{
		EvidenceID:      r.ID,
		Subject:         r.Subject,
		Provider:        r.Provider,
		Operation:       r.Operation,
		Confidence:      r.Confidence,
		Authority:       r.Authority,
		Retention:       "complete-record",
		LimitationCount: len(r.Limitations),
		NativeDossier:   NativeDossier{Reason: "different-operation"},
	}
	if r.AnalysisProfile != nil {
		s.AnalysisProfileDigest = &r.AnalysisProfile.SHA256
	}
	if r.Operation == operationDossier {
		s.NativeDossier.Reason = "not-recorded-or-incompatible"
	}
	return s
}

// Summarize lists the records that match f. A procedure address matches none: no record has a dossier yet.
func Summarize(records []*Record, unknowns []Unknown, f Filters) BundleSummary {
	s := BundleSummary{
		Kind:             "evidence-bundle-summary",
		Filters:          f,
		TotalRetained:    len(records),
		UnknownRevisions: len(unknowns),
		Records:          []RecordSummary{},
	}
	for _, r := range sortedByID(slices.Clone(records)) {
		if one := r.Summary(); f.match(one) {
			s.Records = append(s.Records, one)
		}
	}
	s.Matching = len(s.Records)
	return s
}

func (f Filters) match(s RecordSummary) bool {
	is := func(want, got string) bool { return want == "" || want == got }
	var target, profile string
	if s.Subject != nil {
		target = s.Subject.SHA256
	}
	if s.AnalysisProfileDigest != nil {
		profile = *s.AnalysisProfileDigest
	}
	return is(f.EvidenceID, s.EvidenceID) && is(f.Operation, s.Operation) && is(f.TargetSHA256, target) &&
		is(f.AnalysisProfileDigest, profile) && f.ProcedureAddress == ""
}

// Payload is the summary as one JSON value. It is written by hand, keys in canonical order: a session may retain tens
// of thousands of records.
func (s BundleSummary) Payload() (Payload, error) {
	filters, err := Canonical(s.Filters)
	if err != nil {
		return Payload{}, err
	}
	dst := make([]byte, 0, 512*(1+len(s.Records))) // what a record takes with short names
	dst = append(append(append(dst, `{"filters":`...), filters...), `,"kind":`...)
	dst = AppendString(dst, s.Kind)
	dst = strconv.AppendInt(append(dst, `,"matching_records":`...), int64(s.Matching), 10)
	dst = appendList(append(dst, `,"records":`...), s.Records, appendSummary)
	dst = strconv.AppendInt(append(dst, `,"total_retained_records":`...), int64(s.TotalRetained), 10)
	dst = strconv.AppendInt(append(dst, `,"unknown_revisions":`...), int64(s.UnknownRevisions), 10)
	return CanonicalPayload(append(dst, '}')), nil
}

func appendSummary(dst []byte, s RecordSummary) []byte {
	profile := ""
	if s.AnalysisProfileDigest != nil {
		profile = *s.AnalysisProfileDigest
	}
	dst = appendOptional(append(dst, `{"analysis_profile_digest":`...), profile)
	dst = AppendString(append(dst, `,"authority":`...), string(s.Authority))
	dst = AppendString(append(dst, `,"confidence":`...), string(s.Confidence))
	dst = AppendString(append(dst, `,"evidence_id":`...), s.EvidenceID)
	dst = strconv.AppendInt(append(dst, `,"limitation_count":`...), int64(s.LimitationCount), 10)
	dst = strconv.AppendBool(append(dst, `,"native_dossier":{"available":`...), s.NativeDossier.Available)
	dst = AppendString(append(dst, `,"reason":`...), s.NativeDossier.Reason)
	dst = AppendString(append(dst, `},"operation":`...), s.Operation)
	dst = appendProvider(append(dst, `,"provider":`...), s.Provider)
	dst = AppendString(append(dst, `,"retention":`...), s.Retention)
	dst = appendSubject(append(dst, `,"subject":`...), s.Subject, true)
	return append(dst, '}')
}
