package fault

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestCodes is the table of codes of the runtime contract, section 4.2, with the exit code that section 11.3 gives to
// each category and code.
func TestCodes(t *testing.T) {
	table := []struct {
		code      Code
		category  Category
		retryable bool
		exit      int
	}{
		{"invalid_request", "invalid_input", true, 3},
		{"plan_stale", "integrity_mismatch", false, 4},
		{"access_denied", "unavailable", false, 3},
		{"artifact_changed", "integrity_mismatch", true, 4},
		{"unreadable_output", "execution_failure", false, 4},
		{"capability_unavailable", "unsupported_provider", false, 4},
		{"unsupported_target", "unsupported_target", false, 3},
		{"provider_unavailable", "unavailable", true, 4},
		{"provider_timeout", "timeout", true, 4},
		{"resource_constraint", "resource_constraint", false, 4},
		{"cancelled", "cancelled", true, 4},
		{"artifact_integrity_mismatch", "integrity_mismatch", false, 4},
		{"artifact_operation_failed", "execution_failure", false, 4},
		{"evidence_integrity_mismatch", "integrity_mismatch", false, 4},
		{"truncated", "truncated", false, 4},
		{"process_capture_failed", "execution_failure", false, 4},
		{"cleanup_incomplete", "execution_failure", false, 4},
		{"revision_conflict", "execution_failure", true, 4},
		{"configuration_invalid", "execution_failure", false, 3},
		{"target_unavailable", "unavailable", false, 3},
		{"execution_failure", "execution_failure", false, 4},
	}
	for _, row := range table {
		e := New(row.code, "m", "a")
		if !Known(row.code) {
			t.Errorf("%s is not known", row.code)
		}
		if e.Category != row.category || e.Retryable() != row.retryable || e.ExitCode() != row.exit {
			t.Errorf("%s: category %s, retryable %t, exit %d; want %s, %t, %d", row.code, e.Category, e.Retryable(), e.ExitCode(), row.category, row.retryable, row.exit)
		}
	}
	if len(table) != len(traits) {
		t.Errorf("%d codes are known, the contract has %d", len(traits), len(table))
	}
	if Known("permission_denied") {
		t.Error("a code that the contract lacks is known")
	}
}

// TestProjection: exactly the members of section 4.1, details only where there are some, never a cause.
func TestProjection(t *testing.T) {
	secret := errors.New("token hunter2")
	e := New(TargetUnavailable, "It is not there.", "Name another.").Because(secret)
	raw, err := json.Marshal(e.Project())
	if err != nil {
		t.Fatal(err)
	}
	want := `{"code":"target_unavailable","category":"unavailable","message":"It is not there.","retryable":false,"remediation":{"action":"Name another."}}`
	if diff := cmp.Diff(want, string(raw)); diff != "" {
		t.Error(diff)
	}
	if !errors.Is(e, secret) {
		t.Error("the cause is lost for errors.Is")
	}
	e.With("path", "/x").WithAll(Details{"reason": "missing"})
	if diff := cmp.Diff(Details{"path": "/x", "reason": "missing"}, e.Project().Details); diff != "" {
		t.Error(diff)
	}
	if New(Cancelled, "m", "").Project().Remediation.Action == "" {
		t.Error("an error without advice projects an empty action")
	}
}

func TestFrom(t *testing.T) {
	own := New(UnsupportedTarget, "m", "a")
	for _, tt := range []struct {
		err  error
		code Code
	}{
		{own, UnsupportedTarget},
		{fmt.Errorf("opening: %w", own), UnsupportedTarget},
		{context.Canceled, Cancelled},
		{fmt.Errorf("reading: %w", context.DeadlineExceeded), ProviderTimeout},
		{errors.New("something of a library"), ExecutionFailure},
	} {
		got := From(tt.err)
		if got.Code != tt.code {
			t.Errorf("%v: code %s, want %s", tt.err, got.Code, tt.code)
		}
	}
	if From(nil) != nil {
		t.Error("no error became one")
	}
	if got := From(errors.New("/secret/path")); got.Project().Message == "/secret/path" {
		t.Error("the text of an unknown error is shown")
	}
	if got := New(CleanupIncomplete, "m", "a").InCategory(CategoryCancelled); got.ExitCode() != ExitNotDone || got.Category != CategoryCancelled {
		t.Errorf("a category of its own: %+v", got)
	}
}
