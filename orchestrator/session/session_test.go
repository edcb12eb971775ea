package session_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"rea/evidence"
	"rea/evidence/fault"
	"rea/orchestrator/catalog"
	"rea/orchestrator/run"
	"rea/orchestrator/schema"
	"rea/orchestrator/session"
	"rea/orchestrator/session/sessiontest"
)

func newSession(a *sessiontest.Analyzer) *session.Session {
	return session.New(session.Options{Analyzer: a, Catalog: catalog.Builtin(), Server: session.Server{
		Name: "rea", Version: "1.2.3", RootPath: "/opt/rea", CommandPath: "/opt/rea/rea", Started: time.Unix(0, 1_500_000).UTC(), Commands: []string{"mcp"},
	}})
}

// identify gives every path the same bytes.
func identify(_ context.Context, path string, _ func(run.Progress)) (session.Identity, error) {
	return session.Identity{Path: path, SHA256: strings.Repeat("ab", 32), Format: "zip", Kind: session.Archive}, nil
}

func file(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func wantCode(t *testing.T, err error, code fault.Code) *fault.Error {
	t.Helper()
	var f *fault.Error
	if !errors.As(err, &f) || f.Code != code {
		t.Fatalf("got %v, want %s", err, code)
	}
	if f.Message == "" || f.Action == "" {
		t.Errorf("%s without a message or an action", code)
	}
	return f
}

func TestOpenIsIdempotent(t *testing.T) {
	ctx, path := t.Context(), file(t, "a.zip")
	s := newSession(&sessiontest.Analyzer{OnIdentify: identify})
	runID := func() string {
		st, err := s.BinarySession(ctx, session.Expectations{}, session.Connection{})
		if err != nil || st.Run == nil {
			t.Fatalf("%+v, %v", st.Run, err)
		}
		return st.Run.RunID
	}
	open := func(path string) session.Target {
		target, err := s.OpenBinary(ctx, session.OpenInput{Path: path}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return target
	}
	if diff := cmp.Diff(session.Target{Path: path, Format: "zip", Kind: "archive", SHA256: strings.Repeat("ab", 32)}, open(path)); diff != "" {
		t.Errorf("target (-want +got):\n%s", diff)
	}
	first := runID()
	if open(path); runID() != first {
		t.Error("opening the active target again began another run")
	}
	if open(file(t, "b.zip")); runID() == first {
		t.Error("another target has the run of the first")
	}
}

func TestOpenRefusals(t *testing.T) {
	dir := t.TempDir()
	mkdir := func(name string) string {
		path := filepath.Join(dir, name)
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	regular := file(t, "a.zip")
	for _, c := range []struct {
		name    string
		in      session.OpenInput
		code    fault.Code
		details fault.Details
	}{
		{"missing", session.OpenInput{Path: filepath.Join(dir, "none")}, fault.TargetUnavailable, fault.Details{"reason": "does not exist"}},
		{"below a file", session.OpenInput{Path: filepath.Join(regular, "x")}, fault.TargetUnavailable, nil},
		{"device", session.OpenInput{Path: os.DevNull}, fault.TargetUnavailable, nil},
		{"directory", session.OpenInput{Path: mkdir("plain")}, fault.TargetUnavailable, fault.Details{"constraint": "directory_requires_file"}},
		{"other bundle", session.OpenInput{Path: mkdir("x.kext")}, fault.UnsupportedTarget, nil},
		{"unknown provider", session.OpenInput{Path: regular, ProviderID: "beta"}, fault.CapabilityUnavailable,
			fault.Details{"selection_reason": "unknown_provider", "requested_provider_id": "beta"}},
		{"snapshot", session.OpenInput{Path: regular, SnapshotPath: "/s"}, fault.CapabilityUnavailable, fault.Details{"operation": "open_binary"}},
		{"no such slice", session.OpenInput{Path: regular, Architecture: "arm64"}, fault.InvalidRequest, nil},
		{"format of a known target", session.OpenInput{Path: regular, Format: "dos-com"}, fault.InvalidRequest, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSession(&sessiontest.Analyzer{OnIdentify: identify})
			_, err := s.OpenBinary(t.Context(), c.in, nil)
			f := wantCode(t, err, c.code)
			for key, want := range c.details {
				if f.Details[key] != want {
					t.Errorf("details.%s = %v, want %v", key, f.Details[key], want)
				}
			}
		})
	}
	t.Run("bundle", func(t *testing.T) {
		s := newSession(&sessiontest.Analyzer{OnIdentify: identify})
		if _, err := s.OpenBinary(t.Context(), session.OpenInput{Path: mkdir("X.App"), ProviderID: "auto"}, nil); err != nil {
			t.Error(err)
		}
	})
}

// A failed switch keeps the target that was active, and its run.
func TestFailedOpenKeepsTheTarget(t *testing.T) {
	ctx := t.Context()
	a := &sessiontest.Analyzer{OnIdentify: identify}
	s := newSession(a)
	if _, err := s.OpenBinary(ctx, session.OpenInput{Path: file(t, "a.zip")}, nil); err != nil {
		t.Fatal(err)
	}
	before, _ := s.BinarySession(ctx, session.Expectations{}, session.Connection{})
	a.OnIdentify = func(context.Context, string, func(run.Progress)) (session.Identity, error) {
		return session.Identity{}, fault.New(fault.ArtifactChanged, "changed", "again")
	}
	_, err := s.OpenBinary(ctx, session.OpenInput{Path: file(t, "b.zip")}, nil)
	wantCode(t, err, fault.ArtifactChanged)
	after, _ := s.BinarySession(ctx, session.Expectations{}, session.Connection{})
	if diff := cmp.Diff(before.Run, after.Run); diff != "" || after.Path != before.Path {
		t.Errorf("the target changed: %s to %s %s", before.Path, after.Path, diff)
	}
}

func bundleOf(t *testing.T, s *session.Session) string {
	t.Helper()
	d, err := s.EvidenceBundle(t.Context(), session.BundleInput{})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := d.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// emptyBundle is the vector of the runtime contract (2.1): 105 bytes, SHA-256 000bef2a…
const emptyBundle = `{"artifacts":[],"captures":[],"environments":[],"providers":[],"records":[],"scenarios":[],"unknowns":[]}`

// Records stay through an open and go with a close, also when no target is open.
func TestRetention(t *testing.T) {
	ctx := t.Context()
	s := newSession(&sessiontest.Analyzer{OnIdentify: identify})
	if got := bundleOf(t, s); got != emptyBundle {
		t.Errorf("empty bundle %s", got)
	}
	r := sessiontest.Record("sample_operation", map[string]any{"n": 1})
	if _, err := s.Retain(ctx, r); err != nil {
		t.Fatal(err)
	}
	if _, err := s.OpenBinary(ctx, session.OpenInput{Path: file(t, "a.zip")}, nil); err != nil {
		t.Fatal(err)
	}
	if got := bundleOf(t, s); !strings.Contains(got, r.ID) {
		t.Errorf("the record is gone: %s", got)
	}
	for range 2 { // with a target and without
		if err := s.CloseBinary(ctx); err != nil {
			t.Fatal(err)
		}
		if got := bundleOf(t, s); got != emptyBundle {
			t.Errorf("after close: %s", got)
		}
		if _, err := s.Retain(ctx, r); err != nil { // the ledger stays usable
			t.Fatal(err)
		}
	}
	_, err := s.InspectArtifact(ctx, session.InspectInput{}, nil)
	wantCode(t, err, fault.TargetUnavailable)
	// A close that asks for a snapshot is refused and closes nothing.
	wantCode(t, s.CloseBinaryWith(ctx, session.CloseInput{SnapshotPath: "/s"}), fault.CapabilityUnavailable)
	if got := bundleOf(t, s); !strings.Contains(got, r.ID) {
		t.Errorf("a refused close cleared the session: %s", got)
	}
}

func TestBundleFilters(t *testing.T) {
	ctx := t.Context()
	s := newSession(&sessiontest.Analyzer{})
	for _, op := range []string{"one", "two"} {
		if _, err := s.Retain(ctx, sessiontest.Record(op, map[string]any{})); err != nil {
			t.Fatal(err)
		}
	}
	_, err := s.EvidenceBundle(ctx, session.BundleInput{Filters: &evidence.Filters{}})
	f := wantCode(t, err, fault.InvalidRequest)
	want := []schema.Issue{{Path: []any{"filters"}, Reason: schema.InvalidValue, Expected: "detail: summary"}}
	if diff := cmp.Diff(want, f.Details["issues"]); diff != "" {
		t.Errorf("issues (-want +got):\n%s", diff)
	}
	d, err := s.EvidenceBundle(ctx, session.BundleInput{Detail: "summary", Filters: &evidence.Filters{Operation: "two"}})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := d.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{`"total_retained_records":2`, `"matching_records":1`, `"filters":{"operation":"two"}`, `"operation":"two"`} {
		if !strings.Contains(b.String(), part) {
			t.Errorf("%s is missing in %s", part, b.String())
		}
	}
}

func TestReferences(t *testing.T) {
	ctx := t.Context()
	s := newSession(&sessiontest.Analyzer{})
	missing := session.Source{EvidenceID: "ev_" + strings.Repeat("0", 64)}
	_, err := s.CompareArtifacts(ctx, missing, missing)
	f := wantCode(t, err, fault.EvidenceIntegrityMismatch)
	if f.Details["reason"] != "missing" && f.Details["reason"] != evidence.ReferenceMissing || f.Details["evidence_id"] != missing.EvidenceID {
		t.Errorf("details %v", f.Details)
	}
	r, err := s.Retain(ctx, sessiontest.Record("sample_operation", 1))
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.CompareArtifacts(ctx, session.Source{EvidenceID: r.ID}, session.Source{EvidenceID: r.ID})
	f = wantCode(t, err, fault.EvidenceIntegrityMismatch)
	if f.Details["reason"] != "wrong_operation" || f.Details["actual"] != "sample_operation" {
		t.Errorf("details %v", f.Details)
	}
}

// A cancelled call never ends in success and retains nothing, even if its work was done.
func TestCancelledRetainsNothing(t *testing.T) {
	path := file(t, "a.zip")
	ctx, cancel := context.WithCancel(t.Context())
	s := newSession(&sessiontest.Analyzer{OnExtract: func(context.Context, string, session.ExtractOptions, func(run.Progress)) (*evidence.Record, error) {
		cancel()
		return sessiontest.Record("extract_artifact", 1), nil
	}})
	_, err := s.ExtractArtifact(ctx, session.ExtractInput{Path: path}, nil)
	wantCode(t, err, fault.Cancelled)
	if got := bundleOf(t, s); got != emptyBundle {
		t.Errorf("retained %s", got)
	}
}

// Closing waits for the calls that may still add records, and calls that come later wait for it.
func TestCloseDrains(t *testing.T) {
	path := file(t, "a.zip")
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s := newSession(&sessiontest.Analyzer{OnExtract: func(context.Context, string, session.ExtractOptions, func(run.Progress)) (*evidence.Record, error) {
			<-release
			return sessiontest.Record("extract_artifact", 1), nil
		}})
		extracted, closed := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := s.ExtractArtifact(t.Context(), session.ExtractInput{Path: path}, nil)
			extracted <- err
		}()
		synctest.Wait()
		go func() { closed <- s.CloseBinary(t.Context()) }()
		synctest.Wait()
		select {
		case err := <-closed:
			t.Fatalf("closed while a call was running: %v", err)
		default:
		}
		close(release)
		if err := <-extracted; err != nil {
			t.Error(err)
		}
		if err := <-closed; err != nil {
			t.Error(err)
		}
		if got := bundleOf(t, s); got != emptyBundle {
			t.Errorf("after close: %s", got)
		}
	})
}

// A close that waits gives up with its caller.
func TestCloseIsCancellable(t *testing.T) {
	path := file(t, "a.zip")
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s := newSession(&sessiontest.Analyzer{OnIdentify: func(context.Context, string, func(run.Progress)) (session.Identity, error) {
			<-release
			return session.Identity{}, errors.New("enough")
		}})
		opened := make(chan error, 1)
		go func() {
			_, err := s.OpenBinary(context.Background(), session.OpenInput{Path: path}, nil)
			opened <- err
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantCode(t, s.CloseBinary(ctx), fault.ProviderTimeout)
		close(release)
		wantCode(t, <-opened, fault.ExecutionFailure)
	})
}

func TestAvailability(t *testing.T) {
	ctx := t.Context()
	a := &sessiontest.Analyzer{OnIdentify: identify}
	s := newSession(a)
	state := func() session.State {
		st, err := s.BinarySession(ctx, session.Expectations{}, session.Connection{})
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	reasons := func(st session.State) map[string]string {
		out := map[string]string{}
		for _, g := range st.ToolAvailability.Groups {
			for _, n := range g.Names {
				out[n] = g.Reason
				if g.Available != (g.Reason == "available") || g.Available != (g.Remediation == nil) {
					t.Errorf("%s: %+v", n, g)
				}
			}
		}
		return out
	}
	all := map[string]string{}
	for _, tool := range catalog.Builtin().Tools() {
		all[tool.Name] = "available"
	}
	if diff := cmp.Diff(all, reasons(state())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	a.OnAvailable = func() error { return fault.New(fault.CapabilityUnavailable, "no engine", "Install one.") }
	for _, name := range []string{"open_binary", "inspect_artifact", "extract_artifact"} {
		all[name] = "unsupported_host"
	}
	st := state()
	if diff := cmp.Diff(all, reasons(st)); diff != "" {
		t.Errorf("without an engine (-want +got):\n%s", diff)
	}
	if *st.ToolAvailability.Groups[0].Remediation != "Install one." {
		t.Errorf("remediation %q", *st.ToolAvailability.Groups[0].Remediation)
	}
}

func TestAlignment(t *testing.T) {
	s := newSession(&sessiontest.Analyzer{})
	st, err := s.BinarySession(t.Context(), session.Expectations{}, session.Connection{})
	if err != nil {
		t.Fatal(err)
	}
	digest := st.ServerIdentity.Catalog.Digests.Combined
	for _, c := range []struct {
		name    string
		in      session.Expectations
		state   string
		reasons []string
	}{
		{"none", session.Expectations{}, "unknown", []string{}},
		{"all", session.Expectations{PackageVersion: "1.2.3", CatalogDigest: digest, ServerPath: "/opt/rea/rea"}, "aligned", []string{}},
		{"one", session.Expectations{PackageVersion: "1.2.3"}, "aligned", []string{}},
		{"other", session.Expectations{PackageVersion: "1", CatalogDigest: strings.Repeat("0", 64), ServerPath: "/x"}, "mcp_server_restart_required",
			[]string{"package_version_mismatch", "catalog_digest_mismatch", "registration_path_mismatch"}},
	} {
		st, err := s.BinarySession(t.Context(), c.in, session.Connection{})
		if err != nil {
			t.Fatal(err)
		}
		a := st.ServerIdentity.Alignment
		if a.State != c.state || (a.Remediation != nil) != (len(c.reasons) > 0) {
			t.Errorf("%s: %+v", c.name, a)
		}
		if diff := cmp.Diff(c.reasons, a.Reasons); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
	if got := st.ServerIdentity.Server.StartedAt; got != "1970-01-01T00:00:00.001Z" {
		t.Errorf("started_at %s", got)
	}
}
