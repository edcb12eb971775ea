package session_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"rea/evidence"
	"rea/orchestrator/run"
	"rea/orchestrator/session"
	"rea/orchestrator/session/sessiontest"
	"rea/providers/artifact"
)

func inspecting(members map[string]string) *sessiontest.Analyzer {
	return &sessiontest.Analyzer{OnIdentify: identify, OnInventory: func(context.Context, string, artifact.Policy, func(run.Progress)) (*evidence.Record, artifact.Inventory, error) {
		return sessiontest.Inventory("root", members)
	}}
}

// idsIn finds ids in a record by their text, apart from the code under test.
func idsIn(t *testing.T, r *evidence.Record, key, prefix string) []string {
	t.Helper()
	var b bytes.Buffer
	if _, err := r.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, m := range regexp.MustCompile(`"`+key+`":"(`+prefix+`[a-f0-9]{64})"`).FindAllStringSubmatch(b.String(), -1) {
		out = append(out, m[1])
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func complete(t *testing.T, s *session.Session, prompt, argument, prefix string) session.Suggestions {
	t.Helper()
	got, issues := s.Complete(t.Context(), prompt, argument, prefix)
	if len(issues) > 0 {
		t.Fatalf("%s.%s: %v", prompt, argument, issues)
	}
	return got
}

func TestCompletion(t *testing.T) {
	ctx := t.Context()
	s := newSession(inspecting(map[string]string{"a": "1", "b": "2"}))
	const compare = "compare_application_versions"
	for _, argument := range []string{"left_manifest_id", "focus_occurrence_id"} {
		if got := complete(t, s, compare, argument, ""); got.Total != 0 || got.Values == nil {
			t.Errorf("%s of an empty session: %+v", argument, got)
		}
	}
	r, err := s.InspectArtifact(ctx, session.InspectInput{Path: file(t, "a.zip")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(idsIn(t, r, "manifest_id", "agm_"), complete(t, s, compare, "right_manifest_id", "AGM_").Values); diff != "" {
		t.Errorf("manifests (-want +got):\n%s", diff)
	}
	want := idsIn(t, r, "occurrence_id", "occ_")
	if diff := cmp.Diff(want, complete(t, s, compare, "focus_occurrence_id", "").Values); diff != "" || len(want) != 3 { // the zip and two members
		t.Errorf("occurrences (-want +got):\n%s", diff)
	}
	if got := complete(t, s, compare, "focus_occurrence_id", want[1][:30]).Values; !slices.Equal(got, want[1:2]) {
		t.Errorf("prefix: %v", got)
	}
	if got := complete(t, s, "verify_reconstruction", "comparison_evidence_id", "ev_"); got.Total != 2 || !slices.Contains(got.Values, r.ID) {
		t.Errorf("evidence: %+v", got)
	}
	// A process capture is one by its validated result, which this build cannot validate: nothing unverified is suggested.
	if got := complete(t, s, "trace_crash", "capture_evidence_id", ""); got.Total != 0 {
		t.Errorf("captures: %+v", got)
	}
	if err := s.CloseBinary(ctx); err != nil {
		t.Fatal(err)
	}
	if got := complete(t, s, "verify_reconstruction", "comparison_evidence_id", ""); got.Total != 0 {
		t.Errorf("after close: %+v", got)
	}
}

// Heads that are resolved are not suggested; a reply has at most 100 values and counts all.
func TestCompletionOfUnknowns(t *testing.T) {
	ctx := t.Context()
	s := newSession(&sessiontest.Analyzer{})
	var ids []string
	for i := range 130 {
		u, err := s.RecordUnknown(ctx, session.UnknownInput{Question: fmt.Sprint("Question ", i), Domain: "d", Terms: evidence.Terms{Severity: "low", RequiredConfidence: evidence.Inferred}})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, u.ID)
	}
	if _, err := s.UpdateUnknown(ctx, session.UnknownUpdate{UnknownID: ids[0], ExpectedRevision: 1, Status: evidence.StatusResolved,
		Terms:      evidence.Terms{Severity: "low", RequiredConfidence: evidence.Inferred},
		Resolution: &evidence.Resolution{Disposition: "withdrawn", Rationale: "no"}}); err != nil {
		t.Fatal(err)
	}
	want := slices.Sorted(slices.Values(ids[1:]))
	got := complete(t, s, "audit_residual_unknowns", "unknown_id", "")
	if diff := cmp.Diff(session.Suggestions{Values: want[:100], Total: 129, HasMore: true}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	raw, err := json.Marshal(complete(t, s, "audit_residual_unknowns", "unknown_id", "none"))
	if err != nil || string(raw) != `{"values":[],"total":0,"hasMore":false}` {
		t.Errorf("%s %v", raw, err)
	}
}

// An empty session goes out and comes in; a call that was cancelled does neither.
func TestImportAndExport(t *testing.T) {
	ctx := t.Context()
	path := file(t, "taken.json")
	s := newSession(&sessiontest.Analyzer{})
	if _, err := s.ExportBundle(ctx, session.ExportInput{Path: path}); err == nil || !strings.Contains(err.Error(), "exists") {
		t.Errorf("got %v", err)
	}
	out, err := s.ExportBundle(ctx, session.ExportInput{Path: path, Overwrite: true})
	if err != nil || out.Bytes != int64(len(emptyBundle)) || out.Records != 0 {
		t.Errorf("%+v %v", out, err)
	}
	added, err := s.ImportBundle(ctx, path)
	if err != nil || added != (evidence.Imported{}) {
		t.Errorf("%+v %v", added, err)
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	_, err = s.ExportBundle(cancelled, session.ExportInput{Path: path + "2"})
	wantCode(t, err, "cancelled")
	_, err = s.ImportBundle(cancelled, path)
	wantCode(t, err, "cancelled")
}
