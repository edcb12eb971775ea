package evidence

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"rea/evidence/fault"
)

// Vectors of the runtime contract 7.1, copied from there.
const (
	vectorUnknown  = "unk_13acafe8092a870031a3af216de927de8f613386ed3b1d7605a2c6ba28bf49aa"
	vectorRevision = "2856768339c9e265eda306e951ad7f83d44d5a2e95c743e1b60db3d54e63f3c3"
	vectorMutation = "ev_894a3d4a9cad13a615b4b17872193ea39547c366090cf050ad3e3bba5f0f6537"
)

func terms() Terms { return Terms{Severity: "medium", RequiredConfidence: Observed} }

// registry is a registry over a ledger with the record E1.
func registry(t testing.TB) (*Registry, *Ledger) {
	t.Helper()
	l := NewLedger(Memory{})
	if _, err := l.Record(t.Context(), recordE1(t)); err != nil {
		t.Fatal(err)
	}
	return NewRegistry(l), l
}

func mustRecord(t testing.TB, r *Registry, question string, change func(*Terms)) Unknown {
	t.Helper()
	in := terms()
	if change != nil {
		change(&in)
	}
	u, err := r.Record(t.Context(), nil, question, "storage", in)
	if err != nil {
		t.Fatalf("%v %v", err, fault.From(err).Details)
	}
	return u
}

func TestRegistryVectors(t *testing.T) {
	r, l := registry(t)
	u, err := r.Record(t.Context(), recordE1(t).Subject, "  Does the cache\n survive  restart? ", "storage", terms())
	if err != nil {
		t.Fatal(err)
	}
	if u.ID != vectorUnknown || u.Digest != vectorRevision || len(u.Mutations) != 1 || u.Mutations[0] != vectorMutation {
		t.Errorf("%s, revision %s, mutations %v", u.ID, u.Digest, u.Mutations)
	}
	if _, ok := l.Get(vectorMutation); !ok {
		t.Error("the Evidence of the change is not in the ledger")
	}
}

func TestRegistryRefuses(t *testing.T) {
	missing := "ev_" + strings.Repeat("0", 64)
	stranger := "unk_" + strings.Repeat("0", 64)
	authority := ControlledReplay
	linux := "linux"
	verified := &Resolution{Disposition: DispositionVerified, Rationale: "seen", EvidenceIDs: []string{idE1}}
	for _, c := range []struct {
		name       string
		revision   int
		id         string
		status     string
		change     func(*Terms)
		resolution *Resolution
		code       fault.Code
		reason     string
	}{
		{"stale", 2, "", StatusOpen, nil, nil, fault.RevisionConflict, "revision-conflict"},
		{"another id", 1, stranger, StatusOpen, nil, nil, fault.ExecutionFailure, "not-found"},
		{"resolved without resolution", 1, "", StatusResolved, nil, nil, fault.ExecutionFailure, "invalid-transition"},
		{"open with resolution", 1, "", StatusOpen, nil, &Resolution{Disposition: "withdrawn", Rationale: "no"}, fault.ExecutionFailure, "invalid-transition"},
		{"contradicted by nothing", 1, "", StatusContradicted, nil, nil, fault.ExecutionFailure, "invalid-transition"},
		{"both sides", 1, "", StatusOpen, func(t *Terms) { t.Supporting, t.Contradicting = []string{idE1}, []string{idE1} }, nil, fault.ExecutionFailure, "invalid-transition"},
		{"no such Evidence", 1, "", StatusOpen, func(t *Terms) { t.Supporting = []string{missing} }, nil, fault.EvidenceIntegrityMismatch, "missing"},
		{"no such unknown", 1, "", StatusOpen, func(t *Terms) { t.Relationships = []Relationship{{"related-to", stranger}} }, nil, fault.ExecutionFailure, "not-found"},
		{"tied to itself", 1, "", StatusOpen, func(t *Terms) { t.Relationships = []Relationship{{"related-to", "self"}} }, nil, fault.ExecutionFailure, "invalid-transition"},
		{"unsupported", 1, "", StatusResolved, nil, verified, fault.ExecutionFailure, "invalid-transition"},
		{"without Evidence", 1, "", StatusResolved, nil, &Resolution{Disposition: DispositionVerified, Rationale: "x"}, fault.ExecutionFailure, "invalid-transition"},
		{"another authority", 1, "", StatusResolved, func(t *Terms) { t.Supporting, t.RequiredAuthority = []string{idE1}, &authority }, verified, fault.ExecutionFailure, "invalid-transition"},
		{"another environment", 1, "", StatusResolved, func(t *Terms) {
			t.Supporting, t.RequiredEnvironment = []string{idE1}, &RequiredEnvironment{Platform: &linux}
		}, verified, fault.ExecutionFailure, "invalid-transition"},
		{"severity", 1, "", StatusOpen, func(t *Terms) { t.Severity = "huge" }, nil, fault.ExecutionFailure, "invalid-transition"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, l := registry(t)
			u := mustRecord(t, r, "Does it?", nil)
			records := l.Len()
			in := terms()
			if c.change != nil {
				c.change(&in)
			}
			for i, rel := range in.Relationships {
				if rel.UnknownID == "self" {
					in.Relationships[i].UnknownID = u.ID
				}
			}
			id := u.ID
			if c.id != "" {
				id = c.id
			}
			_, err := r.Update(t.Context(), nil, id, c.revision, c.status, in, c.resolution)
			f := fault.From(err)
			if f == nil || f.Code != c.code || f.Details["reason"] != c.reason {
				t.Fatalf("got %v %v, want %s %s", f, f.Details, c.code, c.reason)
			}
			if heads := r.Heads(); l.Len() != records || len(heads) != 1 || !cmp.Equal(heads[0], u) {
				t.Errorf("the refused change left something: %d records, %v", l.Len(), heads)
			}
		})
	}
	t.Run("recorded twice", func(t *testing.T) {
		r, _ := registry(t)
		mustRecord(t, r, "Does it?", nil)
		_, err := r.Record(t.Context(), nil, " Does  it? ", "storage", terms())
		if f := fault.From(err); f.Code != fault.RevisionConflict || f.Details["reason"] != "already-exists" {
			t.Errorf("got %v %v", f, f.Details)
		}
	})
	t.Run("circle", func(t *testing.T) {
		r, _ := registry(t)
		a := mustRecord(t, r, "a", nil)
		b := mustRecord(t, r, "b", func(t *Terms) { t.Relationships = []Relationship{{dependsOn, a.ID}} })
		in := terms()
		in.Relationships = []Relationship{{dependsOn, b.ID}}
		_, err := r.Update(t.Context(), nil, a.ID, 1, StatusOpen, in, nil)
		if f := fault.From(err); f == nil || f.Details["reason"] != "invalid-transition" {
			t.Errorf("got %v", err)
		}
		in.Relationships[0].Type = "related-to" // only depends-on must not go round
		if _, err := r.Update(t.Context(), nil, a.ID, 1, StatusOpen, in, nil); err != nil {
			t.Error(err)
		}
	})
}

func TestRegistryHistory(t *testing.T) {
	r, l := registry(t)
	u := mustRecord(t, r, "Does it?", func(t *Terms) { t.Contradicting = []string{idE1, idE1} })
	if u.Status != StatusContradicted || len(u.Contradicting) != 1 {
		t.Fatalf("%+v", u)
	}
	if _, valid, verified, err := r.Verify(u.ID); valid || verified || err != nil {
		t.Errorf("an open question: %v %v %v", valid, verified, err)
	}
	in := terms()
	in.Supporting = []string{idE1}
	done, err := r.Update(t.Context(), nil, u.ID, 1, StatusResolved, in, &Resolution{DispositionVerified, "seen", []string{idE1}})
	if err != nil {
		t.Fatal(err)
	}
	if done.Revision != 2 || *done.PreviousDigest != u.Digest || done.ID != u.ID || len(done.Mutations) != 2 {
		t.Errorf("%+v", done)
	}
	if _, valid, verified, err := r.Verify(u.ID); !valid || !verified || err != nil {
		t.Errorf("resolved by Evidence: %v %v %v", valid, verified, err)
	}
	withdrawn, err := r.Update(t.Context(), nil, u.ID, 2, StatusResolved, terms(), &Resolution{Disposition: "withdrawn", Rationale: "not shipped"})
	if err != nil {
		t.Fatal(err)
	}
	if _, valid, verified, _ := r.Verify(u.ID); !valid || verified {
		t.Errorf("withdrawn: %v %v", valid, verified)
	}
	records, revisions := r.Snapshot()
	if len(records) != 4 || len(revisions) != 3 || !cmp.Equal(revisions[2], withdrawn) { // E1 and three changes
		t.Errorf("%d records, %d revisions", len(records), len(revisions))
	}
	if err := r.Clear(); err != nil || l.Len() != 0 || len(r.Heads()) != 0 {
		t.Errorf("after Clear: %v, %d records, %d heads", err, l.Len(), len(r.Heads()))
	}
}

// A store that is full keeps both the Evidence and the revision out.
func TestRegistryIsAtomic(t *testing.T) {
	r := NewRegistry(NewLedger(full{}))
	if _, err := r.Record(t.Context(), nil, "Does it?", "storage", terms()); err == nil || len(r.Heads()) != 0 {
		t.Errorf("%v, %d heads", err, len(r.Heads()))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r, l := registry(t)
	if _, err := r.Record(ctx, nil, "Does it?", "storage", terms()); !errors.Is(err, context.Canceled) || l.Len() != 1 {
		t.Errorf("%v, %d records", err, l.Len())
	}
}

// Of many that update one revision at once, one wins; every snapshot is a sound bundle.
func TestRegistryConcurrently(t *testing.T) {
	r, _ := registry(t)
	u := mustRecord(t, r, "Does it?", nil)
	var group sync.WaitGroup
	var mu sync.Mutex
	won := 0
	for range 8 {
		group.Go(func() {
			_, err := r.Update(t.Context(), nil, u.ID, 1, "investigating", terms(), nil)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				won++
			} else if f := fault.From(err); f.Details["reason"] != "revision-conflict" {
				t.Errorf("got %v", err)
			}
		})
		group.Go(func() {
			records, unknowns := r.Snapshot()
			if _, err := read(t, bundle(t, records, unknowns)); err != nil {
				t.Errorf("snapshot: %v", err)
			}
		})
	}
	group.Wait()
	if won != 1 {
		t.Errorf("%d updates of one revision won", won)
	}
}
