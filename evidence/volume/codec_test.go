package volume

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"rea/evidence/fault"
)

func TestManifestRoundTrip(t *testing.T) {
	m := &Manifest{
		Nonce: nonce, Seq: 3, RequestSHA256: sha(`{}`), Outcome: Failed, Exhausted: ExhaustedInodes,
		Error:  &Failure{Code: fault.UnsupportedTarget, Message: "m", Action: "a", Details: fault.Details{"reason": "r"}},
		Target: &TargetSeen{SHA256: sha("t"), Unreadable: []string{"b", "a%FF"}, Omitted: 2},
		Files:  []File{{"files/0", 4, sha("zero")}, {"result.json", 2, sha("{}")}},
	}
	raw, err := m.Encode()
	must(t, err)
	want := `{"error":{"action":"a","code":"unsupported_target","details":{"reason":"r"},"message":"m"},"exhausted":"inodes",` +
		`"files":[{"path":"files/0","sha256":"` + sha("zero") + `","size":4},{"path":"result.json","sha256":"` + sha("{}") + `","size":2}],` +
		`"nonce":"` + nonce + `","outcome":"failed","request_sha256":"` + sha(`{}`) + `","seq":3,` +
		`"target":{"omitted":2,"sha256":"` + sha("t") + `","unreadable":["b","a%FF"]}}`
	if diff := cmp.Diff(want, string(raw)); diff != "" {
		t.Errorf("encoded (-want +got):\n%s", diff)
	}
	back, err := DecodeManifest(raw)
	must(t, err)
	if diff := cmp.Diff(m, back); diff != "" {
		t.Errorf("decoded (-want +got):\n%s", diff)
	}
}

func TestDecodeManifestRefuses(t *testing.T) {
	base := honest(t).manifest
	replace := func(old, replacement string) string {
		s := strings.Replace(base, old, replacement, 1)
		if s == base {
			t.Fatalf("%q is not in the manifest", old)
		}
		return s
	}
	withError := func(e string) string {
		return strings.Replace(replace(`"error":null`, `"error":`+e), `"completed"`, `"failed"`, 1)
	}
	for _, tt := range []struct {
		name, raw string
		code      fault.Code
		reason    string
	}{
		{"empty", "", fault.UnreadableOutput, "manifest"},
		{"null", "null", fault.UnreadableOutput, "manifest"},
		{"white space behind", base + "\n", fault.UnreadableOutput, "manifest"},
		{"second value", base + base, fault.UnreadableOutput, "manifest"},
		{"unknown member", replace(`{"error"`, `{"a":1,"error"`), fault.UnreadableOutput, "manifest"},
		{"unknown member of a file", replace(`"size":4`, `"size":4,"x":1`), fault.UnreadableOutput, "manifest"},
		{"duplicate member", replace(`"seq":3`, `"seq":3,"seq":3`), fault.UnreadableOutput, "manifest"},
		{"members not sorted", replace(`"path":"files/0","sha256":"`+sha("zero")+`"`, `"sha256":"`+sha("zero")+`","path":"files/0"`), fault.UnreadableOutput, "manifest"},
		{"member missing", replace(`"exhausted":"",`, ``), fault.UnreadableOutput, "manifest"},
		{"number in another form", replace(`"size":4`, `"size":4.0`), fault.UnreadableOutput, "manifest"},
		{"needless escape", replace(`result.json`, `\u0072esult.json`), fault.UnreadableOutput, "manifest"},
		{"unknown outcome", replace(`"completed"`, `"fine"`), fault.UnreadableOutput, "manifest"},
		{"failed without an error", replace(`"completed"`, `"failed"`), fault.UnreadableOutput, "manifest"},
		{"completed with an error", replace(`"error":null`, `"error":{"action":"","code":"cancelled","details":{},"message":"m"}`), fault.UnreadableOutput, "manifest"},
		{"completed on a full volume", replace(`"exhausted":""`, `"exhausted":"bytes"`), fault.UnreadableOutput, "manifest"},
		{"error of an unknown code", withError(`{"action":"","code":"oops","details":{},"message":"m"}`), fault.UnreadableOutput, "manifest"},
		{"error without a message", withError(`{"action":"","code":"cancelled","details":{},"message":""}`), fault.UnreadableOutput, "manifest"},
		{"error too deep", withError(`{"action":"","code":"cancelled","details":{"a":` + strings.Repeat("[", 20) + strings.Repeat("]", 20) + `},"message":"m"}`), fault.UnreadableOutput, "manifest"},
		{"error too long", withError(`{"action":"","code":"cancelled","details":{},"message":"` + strings.Repeat("m", MaxFailure) + `"}`), fault.UnreadableOutput, "manifest"},
		{"target digest malformed", replace(sha("target"), "ab"), fault.UnreadableOutput, "manifest"},
		{"nonce malformed", replace(nonce, "ab"), fault.UnreadableOutput, "manifest"},
		{"size negative", replace(`"size":4`, `"size":-4`), fault.EvidenceIntegrityMismatch, "size"},
		{"size not an integer", replace(`"size":4`, `"size":4.5`), fault.UnreadableOutput, "manifest"},
		{"digest in upper case", replace(sha("zero"), strings.ToUpper(sha("zero"))), fault.EvidenceIntegrityMismatch, "digest"},
		{"absolute path", replace("files/0", "/etc/passwd"), fault.EvidenceIntegrityMismatch, "name"},
		{"path with a backslash", replace("files/0", `files\\0`), fault.EvidenceIntegrityMismatch, "name"},
		{"path with an accent", replace("files/0", "fil\u00e9s/0"), fault.EvidenceIntegrityMismatch, "name"},
		{"path too deep", replace("files/0", strings.Repeat("d/", 8)+"0"), fault.EvidenceIntegrityMismatch, "name"},
		{"path too long", replace("files/0", strings.Repeat("dddd/", 3)+strings.Repeat("l", 500)), fault.EvidenceIntegrityMismatch, "name"},
		{"path twice", replace("raw/out.txt", "files/0"), fault.EvidenceIntegrityMismatch, "order"},
		{"paths not sorted", replace("files/0", "z"), fault.EvidenceIntegrityMismatch, "order"},
		{"manifest names itself", replace("raw/out.txt", "manifest.json"), fault.EvidenceIntegrityMismatch, "name"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, err := DecodeManifest([]byte(tt.raw))
			var f *fault.Error
			if m != nil || !errors.As(err, &f) {
				t.Fatalf("got %+v, %v", m, err)
			}
			if f.Code != tt.code || f.Details["reason"] != tt.reason {
				t.Errorf("got %v with %v", f, f.Details)
			}
		})
	}
}

// TestDecodeManifestMemory gives the decoder the largest manifest of the cheapest elements that a hostile worker can
// write, and compares what the decoder allocates with the manifest's own size.
func TestDecodeManifestMemory(t *testing.T) {
	base := honest(t).manifest
	flood := func(open, element, closing string) []byte {
		n := (MaxManifest - len(base)) / (len(element) + 1)
		return []byte(open + strings.Repeat(element+",", n) + element + closing)
	}
	cut := strings.Index(base, `[{"path"`)
	for name, raw := range map[string][]byte{
		"empty files":       flood(base[:cut]+`[`, `{}`, `]}`),
		"unreadable paths":  flood(`{"target":{"unreadable":[`, `""`, `]}}`),
		"details":           flood(`{"error":{"details":{"a":[`, `{}`, `]}}}`),
		"unknown member":    flood(`{"zzz":[`, `[]`, `]}`),
		"a member of files": flood(`{"files":[{"x":[`, `[]`, `]}]}`),
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			if _, err := DecodeManifest(raw); err == nil {
				t.Error("accepted")
			}
			runtime.ReadMemStats(&after)
			if got := after.TotalAlloc - before.TotalAlloc; got > 2*MaxManifest {
				t.Errorf("%d bytes allocated for a manifest of %d", got, len(raw))
			}
		})
	}
}

func FuzzDecodeManifest(f *testing.F) {
	f.Add([]byte(honest(f).manifest))
	f.Add([]byte(`{"error":{"action":"","code":"cancelled","details":{"a":[1]},"message":"m"},"files":[]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, err := DecodeManifest(raw)
		if err != nil {
			var known *fault.Error
			if !errors.As(err, &known) {
				t.Fatalf("%v is no fault", err)
			}
			return
		}
		again, err := m.Encode()
		if err != nil || string(again) != string(raw) {
			t.Fatalf("accepted, but encodes as %s, %v", again, err)
		}
	})
}

// BenchmarkDecodeManifest decodes the manifest of 100,000 files.
func BenchmarkDecodeManifest(b *testing.B) {
	m := &Manifest{Nonce: nonce, Seq: 1, RequestSHA256: sha(""), Outcome: Completed}
	for i := range 100_000 {
		m.Files = append(m.Files, File{fmt.Sprintf("files/%06d", i), int64(i), sha("x")})
	}
	raw, err := m.Encode()
	must(b, err)
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeManifest(raw); err != nil {
			b.Fatal(err)
		}
	}
}
