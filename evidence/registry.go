package evidence

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"rea/evidence/fault"
)

// PredicateMutation is the predicate of the registry's own records.
const PredicateMutation = "rea.residual-unknown-mutation"

// mutationLimitation stands in every record of the registry. It is part of identity: never change a byte of it.
const mutationLimitation = "States what an analyst decided; it proves nothing about the target."

// registryProvider made the registry's own records.
var registryProvider = Provider{ID: "rea-unknown-registry", Name: "REA residual unknown registry", Version: "1"}

// Operations of the registry, as its records name them.
const (
	operationRecord = "record_unknown"
	operationUpdate = "update_unknown"
)

// Registry keeps the residual unknowns of one connection beside its ledger: for each question an append-only history
// of revisions. A change and the Evidence of it appear together or not at all. It is safe for concurrent use. Make one
// with NewRegistry.
type Registry struct {
	ledger *Ledger

	mu        sync.RWMutex
	histories map[string][]Unknown
}

// NewRegistry returns an empty registry whose Evidence goes to ledger.
func NewRegistry(ledger *Ledger) *Registry {
	return &Registry{ledger: ledger, histories: map[string][]Unknown{}}
}

// Terms are what a caller says about an unknown, at its beginning and at every update.
type Terms struct {
	Severity            string               `json:"severity"`
	Supporting          []string             `json:"supporting_evidence_ids"`
	Contradicting       []string             `json:"contradicting_evidence_ids"`
	RequiredAuthority   *Authority           `json:"required_authority"`
	RequiredConfidence  Confidence           `json:"required_confidence"`
	RequiredEnvironment *RequiredEnvironment `json:"required_environment"`
	Probes              []Probe              `json:"recommended_probes"`
	Relationships       []Relationship       `json:"relationships"`
}

func (t Terms) apply(u *Unknown) {
	u.Severity, u.Supporting, u.Contradicting = t.Severity, t.Supporting, t.Contradicting
	u.RequiredAuthority, u.RequiredConfidence, u.RequiredEnvironment = t.RequiredAuthority, t.RequiredConfidence, t.RequiredEnvironment
	u.Probes, u.Relationships, u.Resolution = t.Probes, t.Relationships, nil
}

// Record begins an unknown about subject, nil for none, and returns its first revision.
func (r *Registry) Record(ctx context.Context, subject *Subject, question, domain string, t Terms) (Unknown, error) {
	u := Unknown{Revision: 1, Question: normalQuestion(question), Domain: domain, Status: StatusOpen}
	if subject != nil {
		u.ScopeDigest = &subject.SHA256
	}
	if t.apply(&u); len(t.Contradicting) > 0 {
		u.Status = StatusContradicted
	}
	var err error
	if u.ID, err = u.identity(); err != nil {
		return Unknown{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.histories[u.ID] != nil {
		return Unknown{}, unknownFault(UnknownExists, "This question is recorded already.").With("unknown_id", u.ID)
	}
	return r.add(ctx, subject, u, operationRecord, map[string]any{"domain": u.Domain, "severity": u.Severity},
		map[string]any{"action": "record", "question": u.Question, "required_authority": u.RequiredAuthority, "required_confidence": u.RequiredConfidence})
}

// Update continues an unknown with its complete new state, against the revision that the caller has seen.
func (r *Registry) Update(ctx context.Context, subject *Subject, id string, expected int, status string, t Terms, resolution *Resolution) (Unknown, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	history := r.histories[id]
	if history == nil {
		return Unknown{}, notFound(id)
	}
	u := history[len(history)-1]
	if u.Revision != expected {
		return Unknown{}, unknownFault(UnknownStale, fmt.Sprintf("The unknown is at revision %d, not %d.", u.Revision, expected)).
			With("unknown_id", id).With("current_revision", u.Revision)
	}
	previous := u.Digest
	u.Revision, u.PreviousDigest, u.Status = u.Revision+1, &previous, status
	t.apply(&u)
	u.Resolution = resolution
	return r.add(ctx, subject, u, operationUpdate, map[string]any{"unknown_id": id, "expected_revision": expected},
		map[string]any{"action": "update", "status": u.Status, "severity": u.Severity, "resolution": u.Resolution})
}

func notFound(id string) error {
	return unknownFault(UnknownMissing, fmt.Sprintf("No unknown of this session has the id %s.", id)).With("unknown_id", id)
}

// add checks a revision, records the Evidence of it and adds it. The caller holds the lock.
func (r *Registry) add(ctx context.Context, subject *Subject, u Unknown, operation string, parameters, result map[string]any) (Unknown, error) {
	mutation, err := mutationRecord(subject, operation, parameters, result)
	if err != nil {
		return Unknown{}, err
	}
	u.Mutations = append(slices.Clone(u.Mutations), mutation.ID)
	u.normalize()
	if err := r.check(&u); err != nil {
		return Unknown{}, err
	}
	if u.Digest, err = u.digest(); err != nil {
		return Unknown{}, err
	}
	if ctx.Err() != nil {
		return Unknown{}, context.Cause(ctx)
	}
	if _, err := r.ledger.Record(ctx, mutation); err != nil {
		return Unknown{}, err
	}
	r.histories[u.ID] = append(slices.Clone(r.histories[u.ID]), u)
	return u, nil
}

func mutationRecord(subject *Subject, operation string, parameters, result map[string]any) (*Record, error) {
	p, err := PayloadOf(parameters)
	if err != nil {
		return nil, err
	}
	n, err := PayloadOf(result)
	if err != nil {
		return nil, err
	}
	m := &Record{Subject: subject, Provider: registryProvider, PredicateType: PredicateMutation, Operation: operation, Parameters: p,
		NormalizedResult: n, Confidence: Derived, Authority: AnalystInference, Limitations: []string{mutationLimitation}}
	return m, m.Seal()
}

// check holds a revision that is to become the head against the rules, the ledger and the other heads.
func (r *Registry) check(u *Unknown) error {
	if why := u.broken(); why != "" {
		return unknownFault(UnknownTransition, "The unknown breaks a rule: "+why+".").With("unknown_id", u.ID)
	}
	cited := slices.Concat(u.Supporting, u.Contradicting)
	if u.Resolution != nil {
		cited = append(cited, u.Resolution.EvidenceIDs...)
	}
	for _, id := range cited {
		if _, err := r.ledger.Resolve(id); err != nil {
			return err
		}
	}
	heads := r.heads()
	for _, rel := range u.Relationships {
		if _, ok := heads[rel.UnknownID]; !ok {
			return notFound(rel.UnknownID)
		}
	}
	if heads[u.ID] = *u; circle(heads) {
		return unknownFault(UnknownTransition, "The unknown would depend on itself by way of others.").With("unknown_id", u.ID)
	}
	if why := u.unqualified(r.ledger.Get); why != "" {
		return unknownFault(UnknownTransition, "The resolution cannot be verified: "+why+".").With("unknown_id", u.ID)
	}
	return nil
}

// heads are the last revisions. The caller holds the lock.
func (r *Registry) heads() map[string]Unknown {
	heads := make(map[string]Unknown, len(r.histories))
	for id, h := range r.histories {
		heads[id] = h[len(h)-1]
	}
	return heads
}

// Heads returns the current heads by ID.
func (r *Registry) Heads() []Unknown {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.SortedFunc(maps.Values(r.heads()), func(a, b Unknown) int { return cmp.Compare(a.ID, b.ID) })
}

// Verify reports whether the head of an unknown is resolved and its resolution holds, and whether by Evidence.
func (r *Registry) Verify(id string) (head Unknown, valid, verified bool, err error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	h := r.histories[id]
	if h == nil {
		return Unknown{}, false, false, notFound(id)
	}
	head = h[len(h)-1]
	valid = head.Resolution != nil && head.unqualified(r.ledger.Get) == ""
	return head, valid, valid && head.Resolution.Disposition == DispositionVerified, nil
}

// Snapshot returns every record and every revision as of one moment.
func (r *Registry) Snapshot() ([]*Record, []Unknown) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.ledger.All(), r.revisions()
}

// revisions lists every revision by ID and number. The caller holds the lock.
func (r *Registry) revisions() []Unknown {
	out := []Unknown{}
	for _, id := range slices.Sorted(maps.Keys(r.histories)) {
		out = append(out, r.histories[id]...)
	}
	return out
}

// Clear forgets every unknown and every record of the ledger.
func (r *Registry) Clear() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.histories = map[string][]Unknown{}
	return r.ledger.Clear()
}

// Imported says what an import added.
type Imported struct {
	Records  int `json:"imported"`
	Unknowns int `json:"unknowns_added"` // revisions
	Total    int `json:"total"`          // records of the ledger afterwards
}

// Import adds a bundle to the ledger and the registry, all of it or nothing. An unknown whose history here and in the
// bundle went different ways is a conflict.
func (r *Registry) Import(ctx context.Context, b *Bundle) (Imported, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	merged, added, err := r.merge(b.histories())
	if err != nil {
		return Imported{}, err
	}
	records, err := r.ledger.addAll(ctx, b.Records)
	if err != nil {
		return Imported{}, err
	}
	r.histories = merged
	return Imported{Records: records, Unknowns: added, Total: r.ledger.Len()}, nil
}

// merge joins histories: the longer one stays where one continues the other.
func (r *Registry) merge(theirs map[string][]Unknown) (merged map[string][]Unknown, added int, err error) {
	merged = maps.Clone(r.histories)
	heads := r.heads()
	for id, history := range theirs {
		ours := merged[id]
		common := min(len(ours), len(history))
		if common > 0 && ours[common-1].Digest != history[common-1].Digest {
			return nil, 0, unknownFault(UnknownDamaged, fmt.Sprintf("The history of %s went another way here than in the bundle.", id)).
				With("unknown_id", id)
		}
		if len(history) > len(ours) {
			added += len(history) - len(ours)
			merged[id], heads[id] = history, history[len(history)-1]
		}
	}
	if circle(heads) {
		return nil, 0, unknownFault(UnknownDamaged, "Together with the unknowns of this session, those of the bundle would depend on themselves.")
	}
	return merged, added, nil
}

// addAll retains records, all or none, and returns how many were new. A record that is there already may get other
// display fields.
func (l *Ledger) addAll(ctx context.Context, records []*Record) (added int, err error) {
	l.change.Lock()
	defer l.change.Unlock()
	kept := make([]*Record, len(records))
	for i, r := range records {
		if ctx.Err() != nil {
			return 0, fault.From(context.Cause(ctx))
		}
		if old, known := l.Get(r.ID); known {
			kept[i] = old.shownAs(r.Subject)
			continue
		}
		if kept[i], err = l.keeper.Retain(ctx, r); err != nil {
			return 0, err
		}
		added++
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range kept {
		l.records[r.ID] = r
	}
	return added, nil
}

// shownAs is the record with the display fields of a subject of the same identity.
func (r *Record) shownAs(s *Subject) *Record {
	if r.Subject == nil || s == nil || *r.Subject == *s {
		return r
	}
	shown := *r
	shown.Subject = s
	return &shown
}
