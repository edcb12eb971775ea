package evidence

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"rea/evidence/fault"
)

// Statuses of a residual unknown.
const (
	StatusOpen         = "open"
	StatusContradicted = "contradicted"
	StatusResolved     = "resolved"
)

// DispositionVerified is the resolution that rests on Evidence; the others are decisions.
const DispositionVerified = "verified"

// dependsOn is the relationship that must not form a circle.
const dependsOn = "depends-on"

// Closed vocabularies of residual unknowns.
var (
	UnknownStatuses   = []string{StatusOpen, "investigating", "blocked", StatusContradicted, StatusResolved}
	UnknownSeverities = []string{"low", "medium", "high", "critical"}
	relationshipTypes = []string{dependsOn, "related-to", "contradicts"}
	dispositions      = []string{DispositionVerified, "withdrawn", "out-of-scope"}
)

// Authorities lists the vocabulary of authorities.
func Authorities() []string {
	out := make([]string, len(authorities))
	for i, a := range authorities {
		out[i] = string(a)
	}
	return out
}

// Unknown is one revision of a residual unknown: a question that the Evidence does not answer. Revisions are made by a
// Registry and then immutable.
type Unknown struct {
	ID                  string               `json:"unknown_id"` // "unk_" + hex64
	Revision            int                  `json:"revision"`   // from 1
	PreviousDigest      *string              `json:"previous_revision_digest"`
	Digest              string               `json:"revision_digest"` // over the record without this member
	ScopeDigest         *string              `json:"scope_digest"`
	Question            string               `json:"question"`
	Status              string               `json:"status"`   // open, investigating, blocked, contradicted, resolved
	Severity            string               `json:"severity"` // low, medium, high, critical
	Domain              string               `json:"domain"`
	Supporting          []string             `json:"supporting_evidence_ids"`
	Contradicting       []string             `json:"contradicting_evidence_ids"`
	RequiredAuthority   *Authority           `json:"required_authority"`
	RequiredConfidence  Confidence           `json:"required_confidence"`
	RequiredEnvironment *RequiredEnvironment `json:"required_environment"`
	Probes              []Probe              `json:"recommended_probes"`
	Relationships       []Relationship       `json:"relationships"`
	Resolution          *Resolution          `json:"resolution"`
	Mutations           []string             `json:"mutation_evidence_ids"`
}

// RequiredEnvironment restricts where an unknown can be resolved; null means any.
type RequiredEnvironment struct {
	ID           *string `json:"id"`
	Platform     *string `json:"platform"`
	Architecture *string `json:"architecture"`
	Isolation    *string `json:"isolation"`
}

// Probe is a recommended next step.
type Probe struct {
	Operation string `json:"operation"`
	Rationale string `json:"rationale"`
}

// Relationship ties one unknown to another: depends-on, related-to or contradicts.
type Relationship struct {
	Type      string `json:"type"`
	UnknownID string `json:"unknown_id"`
}

// Resolution says how an unknown ended: verified, withdrawn or out-of-scope.
type Resolution struct {
	Disposition string   `json:"disposition"`
	Rationale   string   `json:"rationale"`
	EvidenceIDs []string `json:"evidence_ids"`
}

// unknownPrefix begins the identity of an unknown.
const unknownPrefix = "unk_"

func validUnknownID(id string) bool {
	return strings.HasPrefix(id, unknownPrefix) && validSHA256(id[len(unknownPrefix):])
}

// normalQuestion is a question with its white space put in order.
func normalQuestion(q string) string { return strings.Join(strings.Fields(q), " ") }

// identity computes unknown_id from what never changes along a history.
func (u *Unknown) identity() (string, error) {
	sum, err := Digest(map[string]any{"domain": u.Domain, "question": u.Question, "scope_digest": u.ScopeDigest})
	return unknownPrefix + sum, err
}

// unsealed is an Unknown without its revision digest, in the order in which the members are declared.
type unsealed struct {
	ID                  string               `json:"unknown_id"`
	Revision            int                  `json:"revision"`
	PreviousDigest      *string              `json:"previous_revision_digest"`
	ScopeDigest         *string              `json:"scope_digest"`
	Question            string               `json:"question"`
	Status              string               `json:"status"`
	Severity            string               `json:"severity"`
	Domain              string               `json:"domain"`
	Supporting          []string             `json:"supporting_evidence_ids"`
	Contradicting       []string             `json:"contradicting_evidence_ids"`
	RequiredAuthority   *Authority           `json:"required_authority"`
	RequiredConfidence  Confidence           `json:"required_confidence"`
	RequiredEnvironment *RequiredEnvironment `json:"required_environment"`
	Probes              []Probe              `json:"recommended_probes"`
	Relationships       []Relationship       `json:"relationships"`
	Resolution          *Resolution          `json:"resolution"`
	Mutations           []string             `json:"mutation_evidence_ids"`
}

// digest computes revision_digest.
func (u *Unknown) digest() (string, error) {
	return Digest(unsealed{u.ID, u.Revision, u.PreviousDigest, u.ScopeDigest, u.Question, u.Status, u.Severity, u.Domain, u.Supporting,
		u.Contradicting, u.RequiredAuthority, u.RequiredConfidence, u.RequiredEnvironment, u.Probes, u.Relationships, u.Resolution, u.Mutations})
}

// normalize puts the lists in order; probes keep the caller's.
func (u *Unknown) normalize() {
	u.Question = normalQuestion(u.Question)
	u.Supporting, u.Contradicting, u.Mutations = idSet(u.Supporting), idSet(u.Contradicting), idSet(u.Mutations)
	if u.Resolution != nil {
		r := *u.Resolution
		r.EvidenceIDs = idSet(r.EvidenceIDs)
		u.Resolution = &r
	}
	if u.Probes == nil {
		u.Probes = []Probe{}
	}
	u.Relationships = slices.Clone(u.Relationships)
	slices.SortFunc(u.Relationships, func(a, b Relationship) int {
		return bytes.Compare(AppendString(AppendString(nil, a.Type), a.UnknownID), AppendString(AppendString(nil, b.Type), b.UnknownID))
	})
	u.Relationships = append([]Relationship{}, slices.Compact(u.Relationships)...)
}

// idSet sorts ids and drops repeats.
func idSet(ids []string) []string {
	ids = slices.Clone(ids)
	slices.Sort(ids)
	return append([]string{}, slices.Compact(ids)...)
}

// broken says which rule a revision breaks by itself, "" for none.
func (u *Unknown) broken() string {
	same := func(set []string, ids []string) bool { return slices.Equal(set, idSet(ids)) }
	switch {
	case u.Question == "" || u.Question != normalQuestion(u.Question):
		return "a question has text, without white space around it and with single spaces"
	case u.Domain == "":
		return "a domain has text"
	case !slices.Contains(UnknownStatuses, u.Status) || !slices.Contains(UnknownSeverities, u.Severity):
		return "status and severity are of the vocabulary"
	case u.RequiredAuthority != nil && !slices.Contains(authorities, *u.RequiredAuthority) || !slices.Contains(confidences, u.RequiredConfidence):
		return "required authority and confidence are of the vocabulary"
	case u.RequiredEnvironment != nil && u.RequiredEnvironment.Isolation != nil && !slices.Contains(isolations, *u.RequiredEnvironment.Isolation):
		return "required isolation is of the vocabulary"
	case !same(u.Supporting, u.Supporting) || !same(u.Contradicting, u.Contradicting) || !same(u.Mutations, u.Mutations) || len(u.Mutations) == 0:
		return "lists of Evidence are sorted, without repeats, and name at least one mutation"
	case (u.Revision > 1) != (u.PreviousDigest != nil) || u.Revision < 1:
		return "the first revision has no predecessor, and every later one has"
	case (u.Status == StatusResolved) != (u.Resolution != nil):
		return "an unknown has a resolution exactly when it is resolved"
	case u.Status == StatusContradicted && len(u.Contradicting) == 0:
		return "contradicted needs contradicting Evidence"
	case slices.ContainsFunc(u.Supporting, func(id string) bool { return slices.Contains(u.Contradicting, id) }):
		return "no Evidence both supports and contradicts"
	}
	if why := u.brokenRelationships(); why != "" {
		return why
	}
	return u.Resolution.broken()
}

func (u *Unknown) brokenRelationships() string {
	sorted := *u
	sorted.normalize()
	if !slices.Equal(sorted.Relationships, u.Relationships) {
		return "relationships are sorted and without repeats"
	}
	for _, r := range u.Relationships {
		if r.UnknownID == u.ID {
			return "an unknown has no relationship to itself"
		}
		if !slices.Contains(relationshipTypes, r.Type) {
			return "relationships are of the vocabulary"
		}
	}
	return ""
}

func (r *Resolution) broken() string {
	switch {
	case r == nil:
	case !slices.Contains(dispositions, r.Disposition):
		return "a disposition is of the vocabulary"
	case r.Disposition == DispositionVerified && len(r.EvidenceIDs) == 0:
		return "a verified resolution names Evidence"
	case !slices.Equal(r.EvidenceIDs, idSet(r.EvidenceIDs)):
		return "Evidence of a resolution is sorted and without repeats"
	}
	return ""
}

// cited lists the Evidence that the revision names.
func (u *Unknown) cited() []string {
	ids := slices.Concat(u.Supporting, u.Contradicting, u.Mutations)
	if u.Resolution != nil {
		ids = append(ids, u.Resolution.EvidenceIDs...)
	}
	return ids
}

// confidenceRank orders confidences.
var confidenceRank = map[Confidence]int{Inferred: 1, Derived: 2, Observed: 3}

// unqualified says why a verified resolution does not hold, "" where it does or where nothing is claimed to be
// verified.
func (u *Unknown) unqualified(find func(id string) (*Record, bool)) string {
	if u.Resolution == nil || u.Resolution.Disposition != DispositionVerified {
		return ""
	}
	if len(u.Contradicting) > 0 {
		return "there is contradicting Evidence"
	}
	why := "no Evidence of the resolution supports the answer"
	for _, id := range u.Resolution.EvidenceIDs {
		if !slices.Contains(u.Supporting, id) {
			continue
		}
		r, ok := find(id)
		if !ok {
			why = "its Evidence is not here"
			continue
		}
		if why = u.short(r); why == "" {
			return ""
		}
	}
	return why
}

// short says what a record lacks to settle the unknown.
func (u *Unknown) short(r *Record) string {
	switch {
	case r.PredicateType == PredicateMutation:
		return "a record of the registry itself proves nothing"
	case u.RequiredAuthority != nil && r.Authority != *u.RequiredAuthority:
		return fmt.Sprintf("the required authority is %s", *u.RequiredAuthority)
	case confidenceRank[r.Confidence] < confidenceRank[u.RequiredConfidence]:
		return fmt.Sprintf("the required confidence is %s", u.RequiredConfidence)
	case !u.RequiredEnvironment.admits(r.Environment):
		return "the required environment is another"
	}
	return ""
}

func (e *RequiredEnvironment) admits(have *Environment) bool {
	if e == nil {
		return true
	}
	var h Environment
	if have != nil {
		h = *have
	}
	is := func(want *string, got string) bool { return want == nil || *want == got }
	return is(e.ID, h.ID) && is(e.Platform, h.Platform) && is(e.Architecture, h.Architecture) && is(e.Isolation, h.Isolation)
}

// circle reports whether depends-on leads from one of the heads back to it.
func circle(heads map[string]Unknown) bool {
	const visiting, done = 1, 2
	state := map[string]int{}
	for start := range heads {
		for stack := []string{start}; len(stack) > 0; {
			id := stack[len(stack)-1]
			if state[id] != 0 {
				state[id] = done
				stack = stack[:len(stack)-1]
				continue
			}
			state[id] = visiting
			for _, r := range heads[id].Relationships {
				if r.Type != dependsOn {
					continue
				}
				switch state[r.UnknownID] {
				case visiting:
					return true
				case 0:
					stack = append(stack, r.UnknownID)
				}
			}
		}
	}
	return false
}

// UnknownReason says why the registry of unknowns refuses.
type UnknownReason string

// The closed set of reasons.
const (
	UnknownStale      UnknownReason = "revision-conflict"
	UnknownExists     UnknownReason = "already-exists"
	UnknownDamaged    UnknownReason = "integrity"
	UnknownMissing    UnknownReason = "not-found"
	UnknownTransition UnknownReason = "invalid-transition"
)

// unknownFault is the UnknownRegistry failure of the runtime contract.
func unknownFault(reason UnknownReason, message string) *fault.Error {
	code, action := fault.ExecutionFailure, "Correct the named rule and call again; list_unknowns shows the current heads."
	switch reason {
	case UnknownStale, UnknownExists:
		code, action = fault.RevisionConflict, "Read the current head with list_unknowns and send update_unknown with its revision as expected_revision."
	case UnknownDamaged:
		code, action = fault.EvidenceIntegrityMismatch, "Use the bundle as rea exported it."
	case UnknownMissing:
		action = "Check with list_unknowns that the id belongs to this session; close_binary clears unknowns."
	}
	return fault.New(code, message, action).InCategory(fault.CategoryExecutionFailure).With("reason", string(reason))
}
