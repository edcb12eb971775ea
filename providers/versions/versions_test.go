package versions

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"rea/evidence"
	"rea/evidence/fault"
)

// comparison is a sealed stand-in: the package does not look into the comparisons that it lists.
func comparison(t *testing.T, f Family, status string) Comparison {
	t.Helper()
	r := &evidence.Record{
		Provider: evidence.Provider{ID: "p", Name: "P", Version: "1"}, Operation: "compare_" + string(f),
		NormalizedResult: evidence.StringPayload(status), Confidence: evidence.Derived,
	}
	if err := r.Seal(); err != nil {
		t.Fatal(err)
	}
	return Comparison{Family: f, Status: status, Evidence: r}
}

// TestCompare reads the record back as an import would and compares it with the contract's shape.
func TestCompare(t *testing.T) {
	native, artifact := comparison(t, Native, Unknown), comparison(t, Artifact, Changed)
	left, right := Version{"zip", "aa"}, Version{"asar", "bb"}
	rec, err := Compare(left, right, []Comparison{native, artifact})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if _, err := rec.WriteTo(&out); err != nil {
		t.Fatal(err)
	}
	if _, err := evidence.Parse(out.Bytes()); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Subject     any      `json:"subject"`
		Operation   string   `json:"operation"`
		Confidence  string   `json:"confidence"`
		Links       []string `json:"evidence_links"`
		Limitations []string `json:"limitations"`
		Result      struct {
			Status      string  `json:"status"`
			Left        Version `json:"left"`
			Right       Version `json:"right"`
			Comparisons []struct {
				Family, Status string
				Evidence       struct {
					ID string `json:"evidence_id"`
				}
			} `json:"comparisons"`
			Limitations []string `json:"limitations"`
		} `json:"normalized_result"`
	}
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got.Subject != nil || got.Operation != "compare_versions" || got.Confidence != "derived" || got.Limitations[0] != twoSubjects {
		t.Errorf("%+v", got)
	}
	if diff := cmp.Diff([]string{artifact.Evidence.ID, native.Evidence.ID}, got.Links); diff != "" {
		t.Error(diff)
	}
	r := got.Result
	if r.Status != Changed || r.Left != left || r.Right != right || len(r.Comparisons) != 2 ||
		r.Comparisons[0].Family != "artifact" || r.Comparisons[0].Evidence.ID != artifact.Evidence.ID || r.Comparisons[1].Status != Unknown {
		t.Errorf("%+v", r)
	}
}

// TestStatus reads the contract's order: contradiction, changed, truncated, unknown, unchanged.
func TestStatus(t *testing.T) {
	for _, tt := range []struct {
		statuses []string
		want     string
	}{
		{[]string{Unchanged}, Unchanged}, {[]string{Unchanged, Unknown}, Unknown}, {[]string{Unknown, Truncated}, Truncated},
		{[]string{Truncated, Changed}, Changed}, {[]string{"added"}, Changed}, {[]string{"removed", Unknown}, Changed},
		{[]string{Changed, Contradiction}, Contradiction},
	} {
		var list []Comparison
		for _, s := range tt.statuses {
			list = append(list, Comparison{Status: s})
		}
		if got := Status(list); got != tt.want {
			t.Errorf("%v: %s, want %s", tt.statuses, got, tt.want)
		}
	}
}

// TestCompareRefuses has lists that no caller should make.
func TestCompareRefuses(t *testing.T) {
	a := comparison(t, Artifact, Changed)
	for name, list := range map[string][]Comparison{
		"none": nil, "unknown family": {comparison(t, "taste", Changed)}, "twice": {a, a},
	} {
		_, err := Compare(Version{}, Version{}, list)
		var f *fault.Error
		if !errors.As(err, &f) || f.Code != fault.ExecutionFailure {
			t.Errorf("%s: %v", name, err)
		}
	}
}
