package evidence

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"rea/evidence/fault"
)

func bundle(t *testing.T, records []*Record, unknowns []Unknown) []byte {
	t.Helper()
	var b bytes.Buffer
	n, err := WriteBundle(t.Context(), &b, records, unknowns)
	if err != nil || n != int64(b.Len()) {
		t.Fatalf("%d of %d bytes, %v", n, b.Len(), err)
	}
	if err := CheckCanonical(bytes.NewReader(b.Bytes())); err != nil {
		t.Fatalf("bundle not canonical: %v", err)
	}
	return b.Bytes()
}

// Sizes and digests are the vectors of the runtime contract 2.1.
func TestBundleVectors(t *testing.T) {
	for _, c := range []struct {
		name    string
		records []*Record
		size    int
		sha256  string
	}{
		{"empty", nil, 105, "000bef2a45fbd4b17adc4e2ab0acd65b076ef5c25f0d8479244c8088730de9cd"},
		{"sample", []*Record{recordE1(t)}, 1060, "14a95009078352ac91c1fb5a88c0f5c14aafe55004fd8fd0af7aa4ae81c44670"},
	} {
		got := bundle(t, c.records, nil)
		if len(got) != c.size || DigestBytes(got) != c.sha256 {
			t.Errorf("%s: %d bytes, %s: %s", c.name, len(got), DigestBytes(got), got)
		}
	}
}

// The manifests and the order are written by hand from the contract.
func TestBundleManifests(t *testing.T) {
	e := &Environment{"e", "linux", "x86_64", "container"}
	replay := &Record{Provider: Provider{"p", "P", ""}, Operation: "replay", PredicateType: PredicateCapture, Authority: ControlledReplay, Environment: e}
	again := &Record{Provider: Provider{"p", "P", ""}, Operation: "again", Authority: ControlledReplay, Environment: e}
	seal(t, replay)
	seal(t, again)
	one, two := recordE1(t), recordE2(t, false)
	var got struct {
		Artifacts, Providers, Environments, Scenarios, Captures, Unknowns []json.RawMessage
		Records                                                           []struct {
			ID string `json:"evidence_id"`
		}
	}
	if err := json.Unmarshal(bundle(t, []*Record{replay, two, again, one}, nil), &got); err != nil {
		t.Fatal(err)
	}
	texts := func(list []json.RawMessage) (out []string) {
		for _, m := range list {
			out = append(out, string(m))
		}
		return out
	}
	scenario := func(r *Record) string {
		return `{"authority":"controlled-replay","evidence_id":"` + r.ID + `","operation":"` + r.Operation + `"}`
	}
	scenarios := []string{scenario(replay), scenario(again)}
	if replay.ID > again.ID {
		scenarios = []string{scenario(again), scenario(replay)}
	}
	for name, c := range map[string]struct{ got, want []string }{
		"artifacts":    {texts(got.Artifacts), []string{`{"architecture":null,"digest":{"sha256":"aa09cab01c050a9dc51f1db00de9312bd764cfad39098f643aed807e220840de"},"format":"zip"}`}},
		"providers":    {texts(got.Providers), []string{`{"id":"alpha","name":"Alpha engine","version":"2.0"}`, `{"id":"p","name":"P","version":null}`, `{"id":"rea-artifact-graph","name":"REA safe artifact graph provider","version":"1"}`}},
		"environments": {texts(got.Environments), []string{`{"architecture":"x86_64","id":"e","isolation":"container","platform":"linux"}`}},
		"scenarios":    {texts(got.Scenarios), scenarios},
		"captures":     {texts(got.Captures), []string{`{"evidence_id":"` + replay.ID + `","predicate_type":"rea.process-capture"}`}},
	} {
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	for i := range got.Records[1:] {
		if got.Records[i].ID >= got.Records[i+1].ID {
			t.Error("records out of order")
		}
	}
}

func TestBundleRefusesRepeatsAndStops(t *testing.T) {
	if _, err := WriteBundle(t.Context(), io.Discard, []*Record{recordE1(t), recordE1(t)}, nil); fault.From(err).Code != fault.EvidenceIntegrityMismatch {
		t.Errorf("a record twice: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("no longer wanted")
	large := largeRecord(t, 1<<20)
	stop := writerFunc(func(p []byte) (int, error) { cancel(why); return len(p), nil })
	if n, err := WriteBundle(ctx, stop, []*Record{large}, nil); !errors.Is(err, why) {
		t.Errorf("%d bytes, %v", n, err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// The vector of the runtime contract 7.1: what the revision digest covers is this type's encoding without the digest.
func TestUnknownVector(t *testing.T) {
	scope := "aa09cab01c050a9dc51f1db00de9312bd764cfad39098f643aed807e220840de"
	u := Unknown{
		ID: "unk_13acafe8092a870031a3af216de927de8f613386ed3b1d7605a2c6ba28bf49aa", Revision: 1, ScopeDigest: &scope,
		Question: "Does the cache survive restart?", Status: "open", Severity: "medium", Domain: "storage", RequiredConfidence: Observed,
		Mutations: []string{"ev_894a3d4a9cad13a615b4b17872193ea39547c366090cf050ad3e3bba5f0f6537"},
	}
	id, err := Digest(map[string]any{"domain": u.Domain, "question": u.Question, "scope_digest": u.ScopeDigest})
	if err != nil || "unk_"+id != u.ID {
		t.Errorf("ID unk_%s, %v", id, err)
	}
	raw, err := Canonical(u)
	if err != nil {
		t.Fatal(err)
	}
	covered := bytes.Replace(raw, []byte(`"revision_digest":"",`), nil, 1)
	if got := DigestBytes(covered); got != "2856768339c9e265eda306e951ad7f83d44d5a2e95c743e1b60db3d54e63f3c3" {
		t.Errorf("revision digest %s of %s", got, covered)
	}
	second := u
	second.Revision = 2
	out := string(bundle(t, nil, []Unknown{second, u}))
	if i, j := strings.Index(out, `"revision":1`), strings.Index(out, `"revision":2`); i < 0 || j < i {
		t.Errorf("revisions out of order in %s", out)
	}
}

// The expected text is the sample of the runtime contract 2.4.
func TestSummarySample(t *testing.T) {
	const want = `{"kind":"evidence-bundle-summary","filters":{"operation":"sample_operation"},"total_retained_records":3,"matching_records":1,"unknown_revisions":0,"records":[{"evidence_id":"ev_b5bb669d91f0d00070a706f1b919764d10aafa6027c006437637473905fd0c01","subject":{"name":"sample.zip","digest":{"sha256":"aa09cab01c050a9dc51f1db00de9312bd764cfad39098f643aed807e220840de"},"format":"zip","architecture":null,"local_path":"/samples/sample.zip"},"provider":{"id":"rea-artifact-graph","name":"REA safe artifact graph provider","version":"1"},"operation":"sample_operation","confidence":"observed","authority":"shipped-artifact","analysis_profile_digest":null,"retention":"complete-record","limitation_count":1,"native_dossier":{"available":false,"reason":"different-operation"}}]}`
	records := []*Record{recordE2(t, true), recordE1(t), recordE2(t, false)}
	got, err := Canonical(Summarize(records, nil, Filters{Operation: "sample_operation"}))
	if err != nil {
		t.Fatal(err)
	}
	canonical, err := Canonicalize([]byte(want))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(canonical), string(got)); diff != "" {
		t.Error(diff)
	}
	viaStandard, err := json.Marshal(Summarize(records, nil, Filters{Operation: "sample_operation"}))
	if err != nil {
		t.Fatal(err)
	}
	if again, err := Canonicalize(viaStandard); err != nil || !bytes.Equal(again, got) {
		t.Errorf("encoding/json writes %s", viaStandard)
	}
}

func TestFilters(t *testing.T) {
	dossier := &Record{Provider: Provider{"alpha", "Alpha engine", "2.0"}, Operation: "analyze_function"}
	seal(t, dossier)
	records := []*Record{recordE1(t), recordE2(t, true), recordE2(t, false), dossier}
	for _, c := range []struct {
		f    Filters
		want int
	}{
		{Filters{}, 4}, {Filters{EvidenceID: idE1}, 1}, {Filters{EvidenceID: idE1, Operation: "sample_query"}, 0}, {Filters{Operation: "sample_query"}, 2},
		{Filters{TargetSHA256: "aa09cab01c050a9dc51f1db00de9312bd764cfad39098f643aed807e220840de"}, 1}, {Filters{AnalysisProfileDigest: digest2}, 1},
		{Filters{ProcedureAddress: "0x1"}, 0}, {Filters{TargetSHA256: "no"}, 0},
	} {
		if s := Summarize(records, nil, c.f); s.Matching != c.want || len(s.Records) != c.want || s.TotalRetained != 4 {
			t.Errorf("%+v: %d of %d", c.f, s.Matching, s.TotalRetained)
		}
	}
	if got := dossier.Summary().NativeDossier.Reason; got != "not-recorded-or-incompatible" {
		t.Errorf("dossier: %s", got)
	}
}

func TestLedger(t *testing.T) {
	l := NewLedger(Memory{})
	e1, e2 := recordE1(t), recordE2(t, true)
	for _, c := range []struct {
		r     *Record
		added bool
	}{{e1, true}, {e2, true}, {recordE1(t), false}} {
		if added, err := l.Record(t.Context(), c.r); err != nil || added != c.added {
			t.Errorf("%s: %v, %v", c.r.ID, added, err)
		}
	}
	if got := l.All(); len(got) != 2 || got[0].ID != idE2 || got[1].ID != idE1 || l.Len() != 2 {
		t.Errorf("listed %v", got)
	}
	forged := recordE2(t, false)
	forged.ID = idE1
	if _, err := l.Record(t.Context(), forged); fault.From(err).Code != fault.EvidenceIntegrityMismatch {
		t.Errorf("another content under a known ID: %v", err)
	}
	changed := recordE1(t)
	changed.Limitations = []string{"changed after Seal"}
	if _, err := l.Record(t.Context(), changed); fault.From(err).Code != fault.EvidenceIntegrityMismatch {
		t.Errorf("a record changed after Seal: %v", err)
	}
	if r, err := l.Resolve(idE1); err != nil || r.ID != idE1 {
		t.Errorf("resolve: %v", err)
	}
	miss := "ev_" + strings.Repeat("0", 64)
	_, err := l.Resolve(miss)
	want := fault.Details{"evidence_id": miss, "reason": "missing", "expected": "a record that this connection retains", "actual": nil}
	if e := fault.From(err); e == nil || e.Code != fault.EvidenceIntegrityMismatch || !cmp.Equal(e.Details, want) {
		t.Errorf("a miss: %v", err)
	}
	if err := l.Clear(); err != nil || l.Len() != 0 {
		t.Errorf("clear: %v, %d left", err, l.Len())
	}
	if added, err := l.Record(t.Context(), e1); err != nil || !added {
		t.Errorf("after clear: %v, %v", added, err)
	}
}

// full is a store without room.
type full struct{ Memory }

func (full) Retain(context.Context, *Record) (*Record, error) {
	return nil, fault.New(fault.ResourceConstraint, "full", "").With("resource", "storage")
}

func TestLedgerOverFullStore(t *testing.T) {
	l := NewLedger(full{})
	_, err := l.Record(t.Context(), recordE1(t))
	if e := fault.From(err); e == nil || e.Details["resource"] != "storage" {
		t.Errorf("got %v", err)
	}
	if _, ok := l.Get(idE1); ok || l.Len() != 0 {
		t.Error("the ledger lists what was not retained")
	}
}

func TestLedgerConcurrently(t *testing.T) {
	l := NewLedger(Memory{})
	var added [8]int
	var wg sync.WaitGroup
	for g := range added {
		wg.Go(func() {
			for i := range 50 {
				r := &Record{Provider: Provider{"p", "P", "1"}, Operation: fmt.Sprint("op", i)}
				if err := r.Seal(); err != nil {
					t.Error(err)
					return
				}
				ok, err := l.Record(t.Context(), r)
				if err != nil {
					t.Error(err)
				}
				if ok {
					added[g]++
				}
				l.All()
			}
		})
	}
	wg.Wait()
	total := 0
	for _, n := range added {
		total += n
	}
	if total != 50 || l.Len() != 50 {
		t.Errorf("%d times added, %d records, want 50", total, l.Len())
	}
}

func BenchmarkWriteBundle(b *testing.B) {
	records := []*Record{largeRecord(b, 10<<20), recordE1(b), recordE2(b, true)}
	n, err := WriteBundle(b.Context(), sha256.New(), records, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(n)
	for b.Loop() {
		if _, err := WriteBundle(b.Context(), sha256.New(), records, nil); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSeal10MB(b *testing.B) {
	r := largeRecord(b, 10<<20)
	b.SetBytes(r.Size())
	for b.Loop() {
		r.ID = ""
		if err := r.Seal(); err != nil {
			b.Fatal(err)
		}
	}
}
