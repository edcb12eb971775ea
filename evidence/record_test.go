package evidence

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"rea/evidence/fault"
)

// Vectors of the runtime contract 1.3, 1.9 and 2.1, copied from there.
const (
	idE1    = "ev_b5bb669d91f0d00070a706f1b919764d10aafa6027c006437637473905fd0c01"
	idE2    = "ev_3071dc9cd04d2d619c5107ef30005261d4bc94e582d76214b16923f85302dcf0"
	digest2 = "f5871b0435b92129bd2ba1d68413f3aa63e77e0bab2af1d1ff93a68f3abfe027"

	projectionE1 = `{"analysis_profile":null,"authority":"shipped-artifact","confidence":"observed","environment":null,"evidence_links":[],"limitations":["Sample limitation."],"locations":[{"kind":"artifact-path","path":"a.txt"}],"normalized_result":{"entries":2,"names":["a.txt","dir/b.json"]},"operation":"sample_operation","parameters":{"depth":1},"predicate_type":"rea.analysis","provider":{"id":"rea-artifact-graph","name":"REA safe artifact graph provider","version":"1"},"raw_result":null,"subject":{"architecture":null,"digest":{"sha256":"aa09cab01c050a9dc51f1db00de9312bd764cfad39098f643aed807e220840de"},"format":"zip"}}`

	delivered = `{"evidence_id":"ev_b5bb669d91f0d00070a706f1b919764d10aafa6027c006437637473905fd0c01","subject":{"name":"sample.zip","digest":{"sha256":"aa09cab01c050a9dc51f1db00de9312bd764cfad39098f643aed807e220840de"},"format":"zip","architecture":null,"local_path":"/samples/sample.zip"},"provider":{"id":"rea-artifact-graph","name":"REA safe artifact graph provider","version":"1"},"analysis_profile":null,"predicate_type":"rea.analysis","operation":"sample_operation","parameters":{"depth":1},"raw_result":null,"normalized_result":{"entries":2,"names":["a.txt","dir/b.json"]},"confidence":"observed","authority":"shipped-artifact","environment":null,"limitations":["Sample limitation."],"locations":[{"kind":"artifact-path","path":"a.txt"}],"evidence_links":[]}`
)

func mustPayload(t testing.TB, text string) Payload {
	t.Helper()
	p, err := NewPayload([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func recordE1(t testing.TB) *Record {
	t.Helper()
	r := &Record{
		Subject:          &Subject{Name: "sample.zip", SHA256: "aa09cab01c050a9dc51f1db00de9312bd764cfad39098f643aed807e220840de", Format: "zip", LocalPath: "/samples/sample.zip"},
		Provider:         Provider{"rea-artifact-graph", "REA safe artifact graph provider", "1"},
		Operation:        "sample_operation",
		Parameters:       mustPayload(t, `{"depth":1}`),
		NormalizedResult: mustPayload(t, `{"names":["a.txt","dir/b.json"],"entries":2}`),
		Limitations:      []string{"Sample limitation."},
		Locations:        []Location{{Kind: "artifact-path", Path: "a.txt"}},
	}
	seal(t, r)
	return r
}

func seal(t testing.TB, r *Record) {
	t.Helper()
	if err := r.Seal(); err != nil {
		t.Fatalf("seal: %v: %v", err, fault.From(err).Details)
	}
}

func recordE2(t testing.TB, profile bool) *Record {
	t.Helper()
	alpha := Provider{"alpha", "Alpha engine", "2.0"}
	r := &Record{Provider: alpha, Operation: "sample_query"}
	if profile {
		r.AnalysisProfile = &AnalysisProfile{Provider: alpha, Parameters: mustPayload(t, `{"language":"x86:LE:64","analyzers":["a","b"]}`)}
	}
	seal(t, r)
	return r
}

func text(t testing.TB, r *Record) string {
	t.Helper()
	var b bytes.Buffer
	n, err := r.WriteTo(&b)
	if err != nil || n != int64(b.Len()) || n != r.Size() {
		t.Fatalf("write: %d of %d bytes, size %d, %v", n, b.Len(), r.Size(), err)
	}
	if err := CheckCanonical(bytes.NewReader(b.Bytes())); err != nil {
		t.Fatalf("record not canonical: %v", err)
	}
	return b.String()
}

func TestIdentityVectors(t *testing.T) {
	r := recordE1(t)
	if r.ID != idE1 {
		t.Errorf("E1: %s", r.ID)
	}
	projection, err := ObjectPayload(r.members(false)...).Bytes(1 << 20)
	if err != nil || string(projection) != projectionE1 || len(projection) != 610 {
		t.Errorf("E1's projection: %s, %v", projection, err)
	}
	with := recordE2(t, true)
	if with.ID != idE2 || with.AnalysisProfile.SHA256 != digest2 {
		t.Errorf("E2: %s, profile %s", with.ID, with.AnalysisProfile.SHA256)
	}
	if without := recordE2(t, false); without.ID == idE2 || !ValidID(without.ID) {
		t.Errorf("E2 without profile: %s", without.ID)
	}
}

// The sample as delivered, its keys in another order than ours, is the canonical text that the standard library's
// sorted maps give: it holds no character that the two encode differently.
func TestDeliveredSample(t *testing.T) {
	r, err := Parse([]byte(delivered))
	if err != nil {
		t.Fatal(err)
	}
	if !r.Sealed() || r.ID != idE1 {
		t.Errorf("ID %s, sealed %v", r.ID, r.Sealed())
	}
	var tree any
	if err := json.Unmarshal([]byte(delivered), &tree); err != nil {
		t.Fatal(err)
	}
	want, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), text(t, r)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(text(t, recordE1(t)), text(t, r)); diff != "" {
		t.Error(diff)
	}
}

func TestSealDefaults(t *testing.T) {
	link := "ev_" + strings.Repeat("a", 64)
	r := &Record{Provider: Provider{"p", "P", ""}, Operation: "o", NoSubject: "It has two.", Limitations: []string{"More."}, Links: []string{link, link}}
	seal(t, r)
	want := `{"analysis_profile":null,"authority":"shipped-artifact","confidence":"observed","environment":null,"evidence_id":"` + r.ID +
		`","evidence_links":["` + link + `"],"limitations":["It has two.","More."],"locations":[],"normalized_result":null,"operation":"o","parameters":{},` +
		`"predicate_type":"rea.analysis","provider":{"id":"p","name":"P","version":null},"raw_result":null,"subject":null}`
	if diff := cmp.Diff(want, text(t, r)); diff != "" {
		t.Error(diff)
	}
	before := r.ID
	seal(t, r) // verifies, changes nothing
	if r.ID != before || len(r.Limitations) != 2 {
		t.Errorf("sealing again changed the record: %v", r.Limitations)
	}
	r.Operation = "other"
	if code := fault.From(r.Seal()).Code; code != fault.EvidenceIntegrityMismatch {
		t.Errorf("a record changed after Seal: %s", code)
	}
	named := recordE1(t)
	named.ID, named.Subject.Name = "", ""
	seal(t, named)
	if named.ID != idE1 || named.Subject.Name != "artifact" {
		t.Errorf("display name %q changed the identity to %s", named.Subject.Name, named.ID)
	}
}

// Every member that is part of identity changes the ID, display fields do not.
func TestWhatIdentityCovers(t *testing.T) {
	for name, change := range map[string]func(*Record){
		"digest":      func(r *Record) { r.Subject.SHA256 = strings.Repeat("0", 64) },
		"format":      func(r *Record) { r.Subject.Format = "tar" },
		"arch":        func(r *Record) { r.Subject.Architecture = "arm64" },
		"provider":    func(r *Record) { r.Provider.Version = "2" },
		"predicate":   func(r *Record) { r.PredicateType = "x" },
		"operation":   func(r *Record) { r.Operation = "x" },
		"parameters":  func(r *Record) { r.Parameters = mustPayload(t, `{"depth":2}`) },
		"raw":         func(r *Record) { r.RawResult = mustPayload(t, `{}`) },
		"result":      func(r *Record) { r.NormalizedResult = mustPayload(t, `{"entries":2,"names":["dir/b.json","a.txt"]}`) },
		"confidence":  func(r *Record) { r.Confidence = Derived },
		"authority":   func(r *Record) { r.Authority = AnalystInference },
		"environment": func(r *Record) { r.Environment = &Environment{"e", "linux", "amd64", "container"} },
		"limitations": func(r *Record) { r.Limitations = append(r.Limitations, "x") },
		"locations":   func(r *Record) { r.Locations[0].Path = "b.txt" },
		"links":       func(r *Record) { r.Links = []string{idE2} },
	} {
		r := recordE1(t)
		change(r)
		r.ID = ""
		if seal(t, r); r.ID == idE1 {
			t.Errorf("%s does not change the identity", name)
		}
	}
	r := recordE1(t)
	r.Subject.LocalPath, r.Subject.Name, r.ID = "/other", "other", ""
	if seal(t, r); r.ID != idE1 {
		t.Error("display fields change the identity")
	}
}

func issuesOf(t *testing.T, err error) []Issue {
	t.Helper()
	e := fault.From(err)
	if e == nil || e.Code != fault.InvalidRequest {
		t.Fatalf("got %v, want invalid_request", err)
	}
	return e.Details["issues"].([]Issue)
}

func TestParseRejectsShapes(t *testing.T) {
	sub := func(old, new string) string {
		if !strings.Contains(delivered, old) {
			t.Fatalf("nothing to replace: %s", old)
		}
		return strings.Replace(delivered, old, new, 1)
	}
	for _, c := range []struct {
		name, in string
		path     []any
		reason   Reason
	}{
		{"missing profile", sub(`"analysis_profile":null,`, ``), []any{"analysis_profile"}, MissingArgument},
		{"missing raw", sub(`"raw_result":null,`, ``), []any{"raw_result"}, MissingArgument},
		{"missing digest", sub(`"digest":{"sha256":"aa09cab01c050a9dc51f1db00de9312bd764cfad39098f643aed807e220840de"},`, ``), []any{"subject", "digest"}, MissingArgument},
		{"unknown in envelope", sub(`"raw_result"`, `"extra":1,"raw_result"`), []any{"extra"}, UnknownArgument},
		{"unknown in subject", sub(`"name":"sample.zip"`, `"name":"sample.zip","x":1`), []any{"subject", "x"}, UnknownArgument},
		{"unknown in digest", sub(`"sha256":`, `"md5":"","sha256":`), []any{"subject", "digest", "md5"}, UnknownArgument},
		{"unknown in provider", sub(`"version":"1"`, `"version":"1","v":1`), []any{"provider", "v"}, UnknownArgument},
		{"unknown in location", sub(`"path":"a.txt"`, `"path":"a.txt","line":1`), []any{"locations", 0, "line"}, UnknownArgument},
		{"unknown in profile", sub(`"analysis_profile":null`, `"analysis_profile":{"provider":{"id":"a","name":"b","version":"1"},"parameters":{},"digest":"","y":1}`), []any{"analysis_profile", "y"}, UnknownArgument},
		{"unknown in environment", sub(`"environment":null`, `"environment":{"id":"a","platform":"b","architecture":"c","isolation":"none","image":"d"}`), []any{"environment", "image"}, UnknownArgument},
		{"repeated key", sub(`"raw_result":null`, `"raw_result":null,"raw_result":null`), []any{"raw_result"}, InvalidFormat},
		{"repeated key in provider", sub(`"id":"rea`, `"id":"x","id":"rea`), []any{"provider"}, InvalidFormat},
		{"format", sub(`"format":"zip"`, `"format":"ZIP"`), []any{"subject", "format"}, InvalidValue},
		{"architecture", sub(`"architecture":null`, `"architecture":"mips64"`), []any{"subject", "architecture"}, InvalidValue},
		{"architecture empty", sub(`"architecture":null`, `"architecture":""`), []any{"subject", "architecture"}, OutOfRange},
		{"confidence", sub(`"observed"`, `"certain"`), []any{"confidence"}, InvalidValue},
		{"authority", sub(`"authority":"shipped-artifact"`, `"authority":null`), []any{"authority"}, InvalidType},
		{"isolation", sub(`"environment":null`, `"environment":{"id":"a","platform":"b","architecture":"c","isolation":"jail"}`), []any{"environment", "isolation"}, InvalidValue},
		{"kind", sub(`"kind":"artifact-path"`, `"kind":"line"`), []any{"locations", 0, "path"}, UnknownArgument},
		{"offset", sub(`{"kind":"artifact-path","path":"a.txt"}`, `{"kind":"file-offset","offset":-1}`), []any{"locations", 0, "offset"}, OutOfRange},
		{"offset fraction", sub(`{"kind":"artifact-path","path":"a.txt"}`, `{"kind":"file-offset","offset":1.5}`), []any{"locations", 0, "offset"}, InvalidType},
		{"offset too large", sub(`{"kind":"artifact-path","path":"a.txt"}`, `{"kind":"file-offset-range","start":0,"end":9007199254740992}`), []any{"locations", 0, "end"}, OutOfRange},
		{"link", sub(`"evidence_links":[]`, `"evidence_links":["ev_1"]`), []any{"evidence_links", 0}, InvalidFormat},
		{"id", sub(`"evidence_id":"ev_`, `"evidence_id":"EV_`), []any{"evidence_id"}, InvalidFormat},
		{"operation", sub(`"sample_operation"`, `""`), []any{"operation"}, OutOfRange},
		{"parameters", sub(`{"depth":1}`, `[1]`), []any{"parameters"}, InvalidType},
		{"limitation", sub(`["Sample limitation."]`, `[1]`), []any{"limitations", 0}, InvalidType},
		{"limitations", sub(`["Sample limitation."]`, `"x"`), []any{"limitations"}, InvalidType},
		{"subject type", sub(`"subject":{`, `"subject":[{`), []any{"subject"}, InvalidFormat},
		{"payload syntax", sub(`"entries":2`, `"entries":02`), []any{"normalized_result"}, InvalidFormat},
		{"infinite", sub(`"entries":2`, `"entries":1e999`), []any{"normalized_result"}, InvalidFormat},
		{"too deep", sub(`"entries":2`, `"entries":`+strings.Repeat("[", 1000)+strings.Repeat("]", 1000)), []any{"normalized_result"}, InvalidFormat},
		{"invalid UTF-8", sub(`a.txt`, "a\xff.txt"), []any{"normalized_result"}, InvalidFormat},
		{"not an object", `[]`, nil, InvalidType},
		{"empty", ``, nil, InvalidFormat},
		{"cut", delivered[:len(delivered)-1], nil, InvalidFormat},
		{"tail", delivered + "x", nil, InvalidFormat},
		{"byte-order mark", "\xef\xbb\xbf" + delivered, nil, InvalidType},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse([]byte(c.in))
			for _, issue := range issuesOf(t, err) {
				if cmp.Equal(issue.Path, c.path) || len(issue.Path)+len(c.path) == 0 {
					if issue.Reason != c.reason {
						t.Errorf("reason %s, want %s", issue.Reason, c.reason)
					}
					return
				}
			}
			t.Errorf("no issue at %v: %+v", c.path, issuesOf(t, err))
		})
	}
}

func TestParseRejectsForgeries(t *testing.T) {
	e2 := text(t, recordE2(t, true))
	if _, err := Parse([]byte(e2)); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ in, path string }{
		"result":           {strings.Replace(delivered, `"entries":2`, `"entries":3`, 1), "evidence_id"},
		"id":               {strings.Replace(delivered, "0c01", "0c02", 1), "evidence_id"},
		"profile digest":   {strings.Replace(e2, digest2, strings.Repeat("0", 64), 1), "analysis_profile.digest"},
		"profile provider": {strings.Replace(e2, `"name":"Alpha engine"`, `"name":"Beta engine"`, 1), "analysis_profile.provider"},
		"profile content":  {strings.Replace(e2, "x86:LE:64", "x86:LE:32", 1), "analysis_profile.digest"},
	} {
		_, err := Parse([]byte(c.in))
		if e := fault.From(err); e == nil || e.Code != fault.EvidenceIntegrityMismatch || e.Details["path"] != c.path {
			t.Errorf("%s: %v", name, err)
		}
	}
	if r, err := Parse([]byte(strings.Replace(delivered, "/samples/sample.zip", "/elsewhere", 1))); err != nil || r.Subject.LocalPath != "/elsewhere" {
		t.Errorf("another display path: %v", err)
	}
}

// Strings that are not Unicode text survive parsing, hashing and writing, inside and outside payloads.
func TestLoneSurrogatesSurvive(t *testing.T) {
	r := &Record{
		Subject:          &Subject{Name: "a\xed\xa0\x80", SHA256: strings.Repeat("1", 64), Format: "file", LocalPath: "/x"},
		Provider:         Provider{"p", "P", "1"},
		Operation:        "o",
		Limitations:      []string{"half \xed\xb8\x80"},
		NormalizedResult: mustPayload(t, `{"\uD800":"\uDfff"}`),
	}
	seal(t, r)
	first := text(t, r)
	for _, want := range []string{`"name":"a\ud800"`, `["half \ude00"]`, `{"\ud800":"\udfff"}`} {
		if !strings.Contains(first, want) {
			t.Errorf("%s is not in %s", want, first)
		}
	}
	again, err := Parse([]byte(first))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first, text(t, again)); diff != "" {
		t.Error(diff)
	}
	r.ID, r.Limitations = "", []string{"\xff"}
	if err := r.Seal(); err == nil {
		t.Error("a limitation that is not UTF-8 is sealed")
	}
}

func TestLocationsRoundTrip(t *testing.T) {
	r := recordE1(t)
	r.ID = ""
	r.AnalysisProfile = &AnalysisProfile{Provider: r.Provider}
	r.Environment = &Environment{"e", "linux", "x86_64", "virtual-machine"}
	r.Locations = []Location{
		{Kind: "address", Address: "0x10"}, {Kind: "address-range", Start: "0x1", End: "0x2"}, {Kind: "artifact-path", Path: "é"},
		{Kind: "file-offset", Offset: 7}, {Kind: "file-offset-range", Offset: 0, Limit: 9007199254740991},
	}
	seal(t, r)
	again, err := Parse([]byte(text(t, r)))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r.Locations, again.Locations); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(r.Environment, again.Environment); diff != "" {
		t.Error(diff)
	}
	if got := again.AnalysisProfile.SHA256; got != r.AnalysisProfile.SHA256 || len(got) != 64 {
		t.Errorf("profile digest %q", got)
	}
}

// countingSpooler notes what was handed to it.
type countingSpooler struct {
	Memory
	sizes []int64
}

func (c *countingSpooler) Spool(ctx context.Context, write func(io.Writer) error) (Payload, error) {
	p, err := c.Memory.Spool(ctx, write)
	c.sizes = append(c.sizes, p.Size())
	return p, err
}

func largeRecord(t testing.TB, size int) *Record {
	t.Helper()
	r := &Record{Subject: &Subject{SHA256: strings.Repeat("2", 64), Format: "zip"}, Provider: Provider{"p", "P", "1"}, Operation: "o"}
	r.NormalizedResult = CanonicalPayload([]byte(`{"a":["` + strings.Repeat(`x","`, size/4) + `"],"b":1}`))
	seal(t, r)
	return r
}

func TestParseReaderSpoolsLargeMembers(t *testing.T) {
	const limit = 4 * maxInline // in place of maxMaterialized, to be quick
	for _, size := range []int{maxInline / 2, maxInline * 2, 2 * limit} {
		r := largeRecord(t, size)
		sp := &countingSpooler{}
		got, err := parse(t.Context(), iotest.HalfReader(r.Payload().Reader()), sp, limit)
		if err != nil {
			t.Fatal(err)
		}
		if got.ID != r.ID {
			t.Errorf("%d: another record", size)
		}
		if want := r.NormalizedResult.Size(); size > maxInline && !cmp.Equal(sp.sizes, []int64{want}) {
			t.Errorf("%d: spooled %v, want %d", size, sp.sizes, want)
		}
	}
	// Out of order: below the limit it is put in order, above it the memory budget says no.
	swap := func(r *Record) io.Reader {
		raw := text(t, r)
		raw = strings.Replace(raw, `,"b":1}`, `}`, 1)
		return strings.NewReader(strings.Replace(raw, `{"a":["`, `{"b":1,"a":["`, 1))
	}
	small, large := largeRecord(t, maxInline*2), largeRecord(t, 2*limit)
	if _, err := parse(t.Context(), swap(small), Memory{}, limit); err != nil {
		t.Error(err)
	}
	_, err := parse(t.Context(), swap(large), Memory{}, limit)
	if e := fault.From(err); e == nil || e.Code != fault.ResourceConstraint || e.Details["resource"] != "memory" {
		t.Errorf("got %v", err)
	}
	raw, _ := io.ReadAll(swap(large))
	if _, err := Parse(raw); err != nil {
		t.Errorf("what lies in memory can be put in order there: %v", err)
	}
}

func TestParseReaderEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("the client went away")
	cancel(why)
	if _, err := ParseReader(ctx, strings.NewReader(delivered), Memory{}); !errors.Is(err, why) {
		t.Errorf("got %v", err)
	}
	broken := errors.New("broken")
	if _, err := ParseReader(t.Context(), io.MultiReader(strings.NewReader(delivered[:500]), iotest.ErrReader(broken)), Memory{}); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

func TestRestore(t *testing.T) {
	r := recordE1(t)
	head, err := r.Head()
	if err != nil {
		t.Fatal(err)
	}
	got, err := Restore(head, r.Parameters, r.RawResult, r.NormalizedResult)
	if err != nil || !got.Sealed() || text(t, got) != text(t, r) || got.Verify() != nil {
		t.Errorf("got %+v, %v", got, err)
	}
	wrong, err := Restore(head, r.Parameters, r.RawResult, Payload{})
	if err != nil || fault.From(wrong.Verify()).Code != fault.EvidenceIntegrityMismatch {
		t.Errorf("Verify does not see another payload: %v", err)
	}
	if _, err := Restore(head, Payload{}, r.RawResult, r.NormalizedResult); err == nil {
		t.Error("parameters that are no object are taken")
	}
}

func TestIssuesAreBounded(t *testing.T) {
	in := strings.Replace(delivered, `["Sample limitation."]`, "["+strings.Repeat("1,", 1000)+"1]", 1)
	_, err := Parse([]byte(in))
	if n := len(issuesOf(t, err)); n != maxIssues {
		t.Errorf("%d issues", n)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(delivered))
	var b bytes.Buffer
	if _, err := recordE2(f, true).WriteTo(&b); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := Parse(raw)
		if err != nil {
			if e := new(fault.Error); !errors.As(err, &e) {
				t.Fatalf("%q: %v is not of the taxonomy", raw, err)
			}
			return
		}
		want, err := Canonicalize(raw)
		if err != nil {
			t.Fatalf("%q: a record that is not JSON: %v", raw, err)
		}
		if got := text(t, r); got != string(want) {
			t.Fatalf("%q: read as %s", raw, got)
		}
	})
}

// FuzzShape changes one member at a time of a record whose identity is then made right, so that what is behind the
// identity check is reached too.
func FuzzShape(f *testing.F) {
	f.Add("subject", []byte(`{"name":"a","digest":{"sha256":"`+strings.Repeat("0", 64)+`"},"format":"zip","architecture":"arm","local_path":""}`))
	f.Add("analysis_profile", []byte(`{"provider":{"id":"a","name":"b","version":"1"},"parameters":{},"digest":""}`))
	f.Add("locations", []byte(`[{"kind":"file-offset","offset":1e3},{"kind":"address","address":"1"}]`))
	f.Fuzz(func(t *testing.T, key string, value []byte) {
		var members map[string]json.RawMessage
		if err := json.Unmarshal([]byte(delivered), &members); err != nil {
			t.Fatal(err)
		}
		members[key] = value
		var b strings.Builder
		sep := "{"
		for k, v := range members {
			fmt.Fprintf(&b, "%s%s:%s", sep, AppendString(nil, k), v)
			sep = ","
		}
		raw := []byte(b.String() + "}")
		p := &parser{ctx: t.Context(), sp: Memory{}, limit: maxMaterialized}
		if p.envelope(bytes.NewReader(raw)) != nil || p.record.checkShape() != nil {
			return
		}
		r := &p.record
		id, err := r.identity()
		if err != nil {
			t.Fatal(err)
		}
		r.ID = id
		if r.checkProfile() != nil {
			return
		}
		again, err := Parse([]byte(text(t, r)))
		if err != nil || text(t, again) != text(t, r) {
			t.Fatalf("%q: written and read again: %v", raw, err)
		}
	})
}
