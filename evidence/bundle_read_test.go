package evidence

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"rea/evidence/fault"
)

func read(t testing.TB, raw []byte) (*Bundle, error) {
	t.Helper()
	return ReadBundle(t.Context(), bytes.NewReader(raw), Memory{}, Memory{})
}

// sampleBundle has records with and without subject and profile, and two unknowns of which one is resolved.
func sampleBundle(t testing.TB) []byte {
	t.Helper()
	r, l := registry(t)
	if _, err := l.Record(t.Context(), recordE2(t, true)); err != nil {
		t.Fatal(err)
	}
	open := mustRecord(t, r, "Is it open?", func(t *Terms) { t.Probes = []Probe{{"inspect_artifact", "look"}} })
	done := mustRecord(t, r, "Is it done?", func(t *Terms) { t.Relationships = []Relationship{{dependsOn, open.ID}} })
	in := terms()
	in.Supporting = []string{idE1}
	if _, err := r.Update(t.Context(), nil, done.ID, 1, StatusResolved, in, &Resolution{DispositionVerified, "seen", []string{idE1}}); err != nil {
		t.Fatal(err)
	}
	records, unknowns := r.Snapshot()
	var b bytes.Buffer
	if _, err := WriteBundle(t.Context(), &b, records, unknowns); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestBundleRoundTrip(t *testing.T) {
	raw := sampleBundle(t)
	for name, from := range map[string]io.Reader{"whole": bytes.NewReader(raw), "byte by byte": iotest.OneByteReader(bytes.NewReader(raw)),
		"indented": indented(t, raw)} {
		b, err := ReadBundle(t.Context(), from, Memory{}, Memory{})
		if err != nil {
			t.Fatalf("%s: %v %v", name, err, fault.From(err).Details)
		}
		var again bytes.Buffer
		if _, err := b.WriteTo(&again); err != nil || !bytes.Equal(again.Bytes(), raw) {
			t.Errorf("%s: %v\n%s\n%s", name, err, again.Bytes(), raw)
		}
	}
}

func indented(t *testing.T, raw []byte) io.Reader {
	t.Helper()
	var b bytes.Buffer
	if err := json.Indent(&b, raw, " ", "\t"); err != nil {
		t.Fatal(err)
	}
	return &b
}

// edit changes a decoded bundle; members are found again by encoding/json, not by the code under test.
func edit(t *testing.T, raw []byte, change func(b map[string]any)) []byte {
	t.Helper()
	var b map[string]any
	if err := json.Unmarshal(raw, &b); err != nil {
		t.Fatal(err)
	}
	change(b)
	out, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func items(b map[string]any, key string) []any { return b[key].([]any) }
func item(b map[string]any, key string, i int) map[string]any {
	return b[key].([]any)[i].(map[string]any)
}

// Every way in which a bundle can lie is refused with the same code (runtime contract 2.3).
func TestBundleRefusals(t *testing.T) {
	raw := sampleBundle(t)
	last := func(b map[string]any) map[string]any { return item(b, "unknowns", len(items(b, "unknowns"))-1) }
	for name, change := range map[string]func(b map[string]any){
		"unknown member":         func(b map[string]any) { b["version"] = 1 },
		"missing member":         func(b map[string]any) { delete(b, "captures") },
		"member of another type": func(b map[string]any) { b["captures"] = map[string]any{} },
		"record twice":           func(b map[string]any) { b["records"] = append(items(b, "records"), items(b, "records")[0]) },
		"record changed":         func(b map[string]any) { item(b, "records", 0)["confidence"] = "inferred" },
		"record extended":        func(b map[string]any) { item(b, "records", 0)["note"] = 1 },
		"record no object":       func(b map[string]any) { items(b, "records")[0] = 7 },
		"provider extended":      func(b map[string]any) { item(b, "records", 0)["provider"].(map[string]any)["note"] = 1 },
		"artifact missing":       func(b map[string]any) { b["artifacts"] = []any{} },
		"artifact extra": func(b map[string]any) {
			extra := map[string]any{"architecture": nil, "digest": map[string]any{"sha256": strings.Repeat("0", 64)}, "format": "zip"}
			b["artifacts"] = append(items(b, "artifacts"), extra)
		},
		"artifact twice":    func(b map[string]any) { b["artifacts"] = append(items(b, "artifacts"), items(b, "artifacts")[0]) },
		"artifact extended": func(b map[string]any) { item(b, "artifacts", 0)["name"] = "x" },
		"scenario invented": func(b map[string]any) {
			b["scenarios"] = []any{map[string]any{"evidence_id": idE1, "operation": "x", "authority": "controlled-replay"}}
		},
		"unknown extended":   func(b map[string]any) { item(b, "unknowns", 0)["note"] = 1 },
		"unknown shortened":  func(b map[string]any) { delete(item(b, "unknowns", 0), "domain") },
		"unknown changed":    func(b map[string]any) { item(b, "unknowns", 0)["severity"] = "low" },
		"unknown twice":      func(b map[string]any) { b["unknowns"] = append(items(b, "unknowns"), items(b, "unknowns")[0]) },
		"revision missing":   func(b map[string]any) { b["unknowns"] = cutRevision(items(b, "unknowns"), 1) },
		"citation dangling":  func(b map[string]any) { b["records"] = cutRecord(items(b, "records"), idE1); b["artifacts"] = []any{} },
		"question rewritten": func(b map[string]any) { last(b)["question"] = "Another?" },
		"tie dangling": func(b map[string]any) {
			b["unknowns"] = cutUnknown(items(b, "unknowns"), "Is it open?")
		},
	} {
		t.Run(name, func(t *testing.T) {
			kept := Memory{}
			_, err := ReadBundle(t.Context(), bytes.NewReader(edit(t, raw, change)), Memory{}, kept)
			var f *fault.Error
			if !errors.As(err, &f) || f.Code != fault.EvidenceIntegrityMismatch || f.Message == "" || f.Action == "" {
				t.Errorf("got %v", err)
			}
		})
	}
	if _, err := read(t, edit(t, raw, func(map[string]any) {})); err != nil {
		t.Errorf("the unchanged bundle is refused: %v", err)
	}
}

func cutRecord(list []any, id string) (out []any) {
	for _, r := range list {
		if r.(map[string]any)["evidence_id"] != id {
			out = append(out, r)
		}
	}
	return out
}

func cutRevision(list []any, n float64) (out []any) {
	for _, u := range list {
		if m := u.(map[string]any); m["revision"] != n || m["question"] != "Is it done?" {
			out = append(out, u)
		}
	}
	return out
}

func cutUnknown(list []any, question string) (out []any) {
	for _, u := range list {
		if u.(map[string]any)["question"] != question {
			out = append(out, u)
		}
	}
	return out
}

// What is not a bundle at all.
func TestBundleNotJSON(t *testing.T) {
	raw := string(sampleBundle(t))
	for name, text := range map[string]string{
		"empty": "", "not JSON": "hello", "list": "[]", "null": "null", "cut": raw[:len(raw)/2], "two": raw + raw, "mark": "\ufeff" + raw,
		"invalid UTF-8": strings.Replace(raw, "Sample limitation", "Sample \xff limitation", 1), "key twice": `{"artifacts":[],` + raw[1:],
		"comma": strings.Replace(raw, `"captures":[]`, `"captures":[,]`, 1), "no comma": strings.Replace(raw, `},{`, `}{`, 1),
		"trailing comma": strings.Replace(raw, `"captures":[]`, `"captures":[1,]`, 1),
	} {
		_, err := read(t, []byte(text))
		if f := fault.From(err); f == nil || f.Code != fault.EvidenceIntegrityMismatch {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A list of manifest entries in another order is the same set.
func TestBundleOrderIsTolerated(t *testing.T) {
	raw := edit(t, sampleBundle(t), func(b map[string]any) {
		for _, key := range []string{"providers", "records", "unknowns"} {
			list := items(b, key)
			for i, j := 0, len(list)-1; i < j; i, j = i+1, j-1 {
				list[i], list[j] = list[j], list[i]
			}
		}
	})
	if _, err := read(t, raw); err != nil {
		t.Error(err)
	}
}

// Changing any one byte makes another bundle or none: an accepted one differs in what is for display only.
func TestBundleByteByByte(t *testing.T) {
	r, _ := registry(t)
	mustRecord(t, r, "Is it open?", nil)
	raw := bundle(t, r.ledger.All(), r.Heads())
	want, err := read(t, raw)
	if err != nil {
		t.Fatal(err)
	}
	for i := range raw {
		changed := bytes.Clone(raw)
		changed[i] ^= 1
		got, err := read(t, changed)
		if err != nil {
			continue
		}
		if len(got.Records) != len(want.Records) || !cmp.Equal(got.Unknowns, want.Unknowns) {
			t.Fatalf("byte %d: another bundle was accepted", i)
		}
		for n, r := range got.Records {
			if r.ID != want.Records[n].ID || r.Operation != want.Records[n].Operation {
				t.Fatalf("byte %d: another record was accepted", i)
			}
		}
	}
}

func TestImport(t *testing.T) {
	raw := sampleBundle(t)
	b, err := read(t, raw)
	if err != nil {
		t.Fatal(err)
	}
	r := NewRegistry(NewLedger(Memory{}))
	mustRecord(t, r, "Mine?", nil)
	added, err := r.Import(t.Context(), b)
	if err != nil || added != (Imported{Records: 5, Unknowns: 3, Total: 6}) { // E1, E2, three changes; and mine
		t.Errorf("%+v, %v", added, err)
	}
	if added, err = r.Import(t.Context(), b); err != nil || added != (Imported{Total: 6}) {
		t.Errorf("again: %+v, %v", added, err)
	}
	// A longer history here stays.
	var open Unknown
	for _, u := range r.Heads() {
		if u.Question == "Is it open?" {
			open = u
		}
	}
	if _, err := r.Update(t.Context(), nil, open.ID, 1, "blocked", terms(), nil); err != nil {
		t.Fatal(err)
	}
	if added, err = r.Import(t.Context(), b); err != nil || added.Unknowns != 0 || r.head(open.ID).Status != "blocked" {
		t.Errorf("a longer history: %+v, %v", added, err)
	}
}

func (r *Registry) head(id string) Unknown { h := r.histories[id]; return h[len(h)-1] }

// A conflict changes nothing, and neither does a store that is full.
func TestImportIsAtomic(t *testing.T) {
	ours, theirs := NewRegistry(NewLedger(Memory{})), NewRegistry(NewLedger(Memory{}))
	u := mustRecord(t, ours, "Does it?", nil)
	mustRecord(t, theirs, "Does it?", nil)
	for r, status := range map[*Registry]string{ours: "blocked", theirs: "investigating"} {
		if _, err := r.Update(t.Context(), nil, u.ID, 1, status, terms(), nil); err != nil {
			t.Fatal(err)
		}
	}
	mustRecord(t, theirs, "Another?", nil)
	records, unknowns := theirs.Snapshot()
	b, err := read(t, bundle(t, records, unknowns))
	if err != nil {
		t.Fatal(err)
	}
	before := text2(ours.Snapshot())
	_, err = ours.Import(t.Context(), b)
	if f := fault.From(err); f == nil || f.Code != fault.EvidenceIntegrityMismatch || f.Details["reason"] != "integrity" {
		t.Errorf("got %v", err)
	}
	if after := text2(ours.Snapshot()); after != before {
		t.Errorf("a refused import changed the session:\n%s\n%s", before, after)
	}
	if _, err := NewRegistry(NewLedger(full{})).Import(t.Context(), b); err == nil {
		t.Error("a full store took the bundle")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	empty := NewRegistry(NewLedger(Memory{}))
	if _, err := empty.Import(ctx, b); fault.From(err).Code != fault.Cancelled || len(empty.Heads()) != 0 {
		t.Errorf("cancelled: %v", err)
	}
}

func text2(records []*Record, unknowns []Unknown) string {
	var b bytes.Buffer
	if _, err := WriteBundle(context.Background(), &b, records, unknowns); err != nil {
		return err.Error()
	}
	return b.String()
}

// An import may refresh what is for display, and nothing else.
func TestImportRefreshesDisplay(t *testing.T) {
	r, l := registry(t)
	raw := bytes.ReplaceAll(bundle(t, []*Record{recordE1(t)}, nil), []byte("/samples/sample.zip"), []byte("/moved/sample.zip"))
	b, err := read(t, raw)
	if err != nil {
		t.Fatal(err)
	}
	if added, err := r.Import(t.Context(), b); err != nil || added.Records != 0 {
		t.Errorf("%+v, %v", added, err)
	}
	if got, _ := l.Get(idE1); got.Subject.LocalPath != "/moved/sample.zip" || got.Verify() != nil {
		t.Errorf("%+v", got.Subject)
	}
}

// A reader that goes on for ever is stopped by its context, and an index that is larger than any real one refused.
func TestBundleBounds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	entry := `{"evidence_id":"` + idE1 + `","predicate_type":"` + strings.Repeat("x", 1<<16) + `"}`
	endless := io.MultiReader(strings.NewReader(`{"captures":[`+entry), &repeating{text: "," + entry, then: func() { cancel() }, after: 8})
	if _, err := ReadBundle(ctx, endless, Memory{}, Memory{}); !errors.Is(err, context.Canceled) {
		// Equal entries are refused as repeated before that; either end is bounded.
		if f := fault.From(err); f.Code != fault.EvidenceIntegrityMismatch {
			t.Errorf("got %v", err)
		}
	}
	long := `{"captures":["` + strings.Repeat("x", maxBundleIndex) + `"]}`
	_, err := read(t, []byte(long))
	if f := fault.From(err); f.Code != fault.ResourceConstraint || f.Details["resource"] != "memory" {
		t.Errorf("got %v", err)
	}
}

type repeating struct {
	text  string
	rest  string
	after int
	then  func()
}

func (r *repeating) Read(p []byte) (int, error) {
	if r.rest == "" {
		r.rest = r.text
		if r.after--; r.after == 0 {
			r.then()
		}
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

func FuzzReadBundle(f *testing.F) {
	f.Add(sampleBundle(f))
	f.Add([]byte(`{"artifacts":[],"captures":[],"environments":[],"providers":[],"records":[],"scenarios":[],"unknowns":[]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		b, err := read(t, raw)
		if err != nil {
			return
		}
		var out bytes.Buffer
		if _, err := b.WriteTo(&out); err != nil {
			t.Fatal(err)
		}
		again, err := read(t, out.Bytes())
		if err != nil {
			t.Fatalf("what was accepted is refused when it is written again: %v", err)
		}
		var third bytes.Buffer
		if _, err := again.WriteTo(&third); err != nil || !bytes.Equal(out.Bytes(), third.Bytes()) {
			t.Errorf("not stable: %v", err)
		}
	})
}

// The summary that is written by hand is the one that the general encoder gives.
func TestSummaryPayload(t *testing.T) {
	b, err := read(t, sampleBundle(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []Filters{{}, {Operation: "sample_operation"}, {EvidenceID: idE2}, {Operation: "none\u2028<"}} {
		s := Summarize(b.Records, b.Unknowns, f)
		want, err := Canonical(s)
		if err != nil {
			t.Fatal(err)
		}
		p, err := s.Payload()
		if err != nil {
			t.Fatal(err)
		}
		got, err := p.Bytes(1 << 20)
		if err != nil || string(got) != string(want) {
			t.Errorf("%v\n%s\n%s", err, got, want)
		}
	}
}
