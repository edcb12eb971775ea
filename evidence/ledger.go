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

// Retainer keeps records for one connection; a lease of the store is one.
type Retainer interface {
	// Retain keeps a sealed record and returns it as it is kept, its large payloads out of memory. When it returns
	// without error the record lasts until Release.
	Retain(ctx context.Context, r *Record) (*Record, error)
	// Release lets go of everything that was retained.
	Release() error
}

// Ledger is the index of the records that one connection retains. It is safe for concurrent use. Make one with
// NewLedger.
type Ledger struct {
	keeper Retainer
	change sync.Mutex // held while a record is added or all are cleared

	mu      sync.RWMutex
	records map[string]*Record
}

// NewLedger returns an empty ledger over keeper.
func NewLedger(keeper Retainer) *Ledger {
	return &Ledger{keeper: keeper, records: map[string]*Record{}}
}

// Record retains a sealed record; false means that it was there already. A record whose content does not have its
// identity is evidence_integrity_mismatch; a store that cannot take it is the store's error, and nothing is retained.
func (l *Ledger) Record(ctx context.Context, r *Record) (added bool, err error) {
	l.change.Lock()
	defer l.change.Unlock()
	_, known := l.Get(r.ID)
	if known || !r.Sealed() {
		if err := r.checkIdentity(); err != nil {
			return false, err
		}
	}
	if known {
		return false, nil
	}
	kept, err := l.keeper.Retain(ctx, r)
	if err != nil {
		return false, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records[r.ID] = kept
	return true, nil
}

// Get returns the record with this ID.
func (l *Ledger) Get(id string) (*Record, bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	r, ok := l.records[id]
	return r, ok
}

// Resolve returns the record that a reference names. A miss is an EvidenceReference failure; it says nothing about
// why the record is not there.
func (l *Ledger) Resolve(id string) (*Record, error) {
	if r, ok := l.Get(id); ok {
		return r, nil
	}
	return nil, ReferenceFault(id, ReferenceMissing, "a record that this connection retains", "")
}

// All returns the records in the order of their IDs.
func (l *Ledger) All() []*Record {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return sortedByID(slices.Collect(maps.Values(l.records)))
}

func sortedByID(list []*Record) []*Record {
	slices.SortFunc(list, func(a, b *Record) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

// Len is the number of records.
func (l *Ledger) Len() int {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return len(l.records)
}

// Clear forgets every record and lets the store evict them. The ledger is empty afterwards even on an error.
func (l *Ledger) Clear() error {
	l.change.Lock()
	defer l.change.Unlock()
	l.mu.Lock()
	l.records = map[string]*Record{}
	l.mu.Unlock()
	return l.keeper.Release()
}

// ReferenceReason says why a reference to Evidence cannot be used.
type ReferenceReason string

// The closed set of reasons.
const (
	ReferenceMissing        ReferenceReason = "missing"
	ReferenceWrongOperation ReferenceReason = "wrong_operation"
	ReferenceWrongPredicate ReferenceReason = "wrong_predicate"
	ReferenceWrongIdentity  ReferenceReason = "identity_mismatch"
)

// ReferenceFault is the EvidenceReference failure of the runtime contract. An actual of "" is null.
func ReferenceFault(id string, reason ReferenceReason, expected, actual string) *fault.Error {
	message := fmt.Sprintf("The Evidence reference %q cannot be used: %s, expected %s.", id, reason, expected)
	action := "Pass the exact reference of a record of this session, or the complete Evidence inline; or repeat the call that made it, or import a bundle that holds it with import_evidence_bundle. close_binary clears records."
	if reason != ReferenceMissing {
		action = "Pass the ID of Evidence of the expected kind; get_evidence_bundle with detail summary lists what is retained."
	}
	details := fault.Details{"evidence_id": id, "reason": string(reason), "expected": expected, "actual": nil}
	if actual != "" {
		details["actual"] = actual
	}
	return fault.New(fault.EvidenceIntegrityMismatch, message, action).WithAll(details)
}
