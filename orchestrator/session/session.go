package session

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"rea/evidence"
	"rea/evidence/fault"
	"rea/orchestrator/catalog"
	"rea/orchestrator/guidance"
	"rea/orchestrator/run"
	"rea/orchestrator/schema"
	"rea/orchestrator/view"
)

// maxWork is the weight of all work that a session can own at once; whoever takes it whole has waited for the rest.
const maxWork = 1 << 20

// Options configure a session. Analyzer and Catalog are required.
type Options struct {
	Analyzer Analyzer
	Catalog  *catalog.Catalog
	Provider string // engine selector of the environment: "", auto or an id
	Server   Server // what binary_session says about this program
}

// Session is the state of one connection. It is safe for concurrent use: analyses run side by side, transitions one
// after the other. Close it when the connection ends.
type Session struct {
	analyzer Analyzer
	catalog  *catalog.Catalog
	provider string
	server   Server
	ledger   *evidence.Ledger
	unknowns *evidence.Registry // with the ledger's records
	views    view.Set
	digests  func() (catalog.Digests, error)
	guide    *guidance.Guide

	transition *semaphore.Weighted // held by an open or a close
	work       *semaphore.Weighted // one for each call that may add records; whole for a close

	mu     sync.Mutex
	target *target
	litter []string // staging directories that could not be removed yet
}

// target is the active target with the identity of its run.
type target struct {
	Identity
	runID string
}

// New returns a session with no target, an empty ledger and no unknowns.
func New(o Options) *Session {
	ledger := evidence.NewLedger(o.Analyzer.Retainer())
	guide := guidance.For(o.Catalog)
	return &Session{
		analyzer:   o.Analyzer,
		catalog:    o.Catalog,
		provider:   o.Provider,
		server:     o.Server,
		ledger:     ledger,
		unknowns:   evidence.NewRegistry(ledger),
		views:      view.Builtin(),
		guide:      guide,
		digests:    sync.OnceValues(func() (catalog.Digests, error) { return o.Catalog.Digests(o.Server.Commands, guide.Identity()) }),
		transition: semaphore.NewWeighted(1),
		work:       semaphore.NewWeighted(maxWork),
	}
}

// Close ends the session: it waits for what runs, until ctx ends, and lets go of the records and unknowns. Cancel
// running calls first where they should not be waited for.
func (s *Session) Close(ctx context.Context) error { return s.CloseBinary(ctx) }

// acquire waits for a semaphore as long as the caller does.
func acquire(ctx context.Context, sem *semaphore.Weighted, n int64) error {
	if err := sem.Acquire(ctx, n); err != nil {
		return stopped(ctx)
	}
	return nil
}

// stopped is the failure of a call whose context has ended. A cause that is no failure of ours, such as a signal, does
// not make it another one.
func stopped(ctx context.Context) *fault.Error {
	if f := fault.From(context.Cause(ctx)); f.Code != fault.ExecutionFailure {
		return f
	}
	return fault.From(ctx.Err()).Because(context.Cause(ctx))
}

// enter begins work that may add records. The end function must be called. An analysis that needs the active target
// waits for a transition that is under way and then gets its target, path for another.
func (s *Session) enter(ctx context.Context, path string) (on string, end func(), err error) {
	if path == "" {
		if err := acquire(ctx, s.transition, 1); err != nil {
			return "", nil, err
		}
		defer s.transition.Release(1)
		t := s.active()
		if t == nil {
			return "", nil, noTarget()
		}
		path = t.Path
	}
	if err := acquire(ctx, s.work, 1); err != nil {
		return "", nil, err
	}
	return path, func() { s.work.Release(1) }, nil
}

func (s *Session) active() *target {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.target
}

// retain puts a record into the ledger and returns it as it is kept. A call that was cancelled retains nothing more
// and so never ends in success.
func (s *Session) retain(ctx context.Context, r *evidence.Record) (*evidence.Record, error) {
	if ctx.Err() != nil {
		return nil, stopped(ctx)
	}
	if _, err := s.ledger.Record(ctx, r); err != nil {
		return nil, fault.From(err)
	}
	kept, err := s.ledger.Resolve(r.ID)
	if err != nil {
		return nil, fault.From(err)
	}
	return kept, nil
}

// Retain records Evidence that was made outside the session's own tools, such as a diagnostic that is too large to
// deliver.
func (s *Session) Retain(ctx context.Context, r *evidence.Record) (*evidence.Record, error) {
	if err := acquire(ctx, s.work, 1); err != nil {
		return nil, err
	}
	defer s.work.Release(1)
	return s.retain(ctx, r)
}

// OpenInput is the input of open_binary.
type OpenInput struct {
	Path         string `json:"path"`
	ProviderID   string `json:"provider_id"`
	Architecture string `json:"architecture"`
	Format       string `json:"format"`
	SnapshotPath string `json:"snapshot_path"` // refused: no engine of this build has an analysis to save
}

// Target is what open_binary returns.
type Target struct {
	Path         string  `json:"path"`
	Format       string  `json:"format"`
	Kind         Kind    `json:"kind"`
	SHA256       string  `json:"sha256"`
	Architecture *string `json:"architecture"`
}

// OpenBinary makes a file or an application bundle the active target. Opening the active target again keeps its run;
// a failed open keeps the target that was active. Retained records stay in every case.
func (s *Session) OpenBinary(ctx context.Context, in OpenInput, progress func(run.Progress)) (Target, error) {
	if err := s.selectProvider(in.ProviderID); err != nil {
		return Target{}, err
	}
	if err := noSnapshots(catalog.OpenBinary, in.SnapshotPath); err != nil {
		return Target{}, err
	}
	if err := admitTarget(catalog.OpenBinary, in.Path); err != nil {
		return Target{}, err
	}
	if err := acquire(ctx, s.transition, 1); err != nil {
		return Target{}, err
	}
	defer s.transition.Release(1)
	id, err := s.analyzer.Identify(ctx, in.Path, progress)
	if err != nil {
		return Target{}, fault.From(err)
	}
	if err := id.choose(in.Architecture, in.Format); err != nil {
		return Target{}, err
	}
	if ctx.Err() != nil {
		return Target{}, stopped(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.target == nil || !s.target.same(id) {
		s.target = &target{Identity: id, runID: newRunID()}
	}
	return s.target.result(), nil
}

// choose applies the caller's slice and format hint.
func (id *Identity) choose(architecture, format string) error {
	if architecture != "" && architecture != id.Architecture {
		if !contains(id.Slices, architecture) {
			return schema.Reject(catalog.OpenBinary, schema.Issue{Path: []any{"architecture"}, Reason: schema.InvalidValue,
				Expected: expectedSlices(id.Slices)})
		}
		id.Architecture = architecture
	}
	if format != "" && format != id.Format {
		if id.Format != "file" && id.Format != "unknown" {
			return schema.Reject(catalog.OpenBinary, schema.Issue{Path: []any{"format"}, Reason: schema.InvalidValue,
				Message: "The target's bytes say what it is; a format is accepted only for a raw image.", Expected: id.Format})
		}
		id.Format, id.Kind = format, Executable
	}
	return nil
}

func contains(list []string, s string) bool {
	for _, have := range list {
		if have == s {
			return true
		}
	}
	return false
}

func expectedSlices(slices []string) string {
	if len(slices) == 0 {
		return "no architecture: the target has one or none"
	}
	return fmt.Sprintf("one of: %v", slices)
}

func (t *target) same(id Identity) bool {
	return t.Path == id.Path && t.SHA256 == id.SHA256 && t.Architecture == id.Architecture && t.Format == id.Format
}

func (t *target) result() Target {
	return Target{t.Path, t.Format, t.Kind, t.SHA256, orNull(t.Architecture)}
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// selectProvider applies the selection policy. This build has no deep-analysis engine, so auto finds no candidate and
// the target opens unbound, and every concrete id is unknown.
func (s *Session) selectProvider(requested string) error {
	if requested == "" {
		requested = s.provider
	}
	if requested == "" || requested == "auto" {
		return nil
	}
	return fault.New(fault.CapabilityUnavailable, fmt.Sprintf("There is no analysis provider with the id %q in this build.", requested),
		"Leave provider_id out, or pass auto; binary_session lists the providers that can be chosen.").WithAll(fault.Details{
		"operation": catalog.OpenBinary, "selection_reason": "unknown_provider", "requested_provider_id": requested,
		"candidate_ids": []string{}, "rejections": []any{map[string]any{"provider_id": requested, "code": "unknown_provider",
			"reason": "No provider has this id.", "diagnostics": map[string]any{}}},
	})
}

// newRunID is a random UUID (RFC 9562, version 4).
func newRunID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// noSnapshots refuses a snapshot: an analysis engine makes what one holds, and this build has none.
func noSnapshots(operation, path string) error {
	if path == "" {
		return nil
	}
	return fault.New(fault.CapabilityUnavailable, operation+" can neither save nor take up an analysis: this build has no analysis engine.",
		"Leave snapshot_path out; "+catalog.ExportEvidenceBundle+" keeps Evidence.").WithAll(fault.Details{
		"provider_id": nil, "operation": operation, "reason": "no analysis engine is bound"})
}

// CloseInput is the input of close_binary.
type CloseInput struct {
	SnapshotPath string `json:"snapshot_path"` // refused, like that of OpenInput
	Overwrite    bool   `json:"overwrite"`
}

// CloseBinaryWith is CloseBinary for a caller that may ask for a snapshot; a refusal leaves the session as it is.
func (s *Session) CloseBinaryWith(ctx context.Context, in CloseInput) error {
	if err := noSnapshots(catalog.CloseBinary, in.SnapshotPath); err != nil {
		return err
	}
	return s.CloseBinary(ctx)
}

// CloseBinary waits for the session's work, closes the active target and forgets every record and unknown, also when no
// target is open. It tries again to remove what an export left beside its destination.
func (s *Session) CloseBinary(ctx context.Context) error {
	if err := acquire(ctx, s.transition, 1); err != nil {
		return err
	}
	defer s.transition.Release(1)
	if err := acquire(ctx, s.work, maxWork); err != nil {
		return err
	}
	defer s.work.Release(maxWork)
	s.mu.Lock()
	s.target = nil
	s.mu.Unlock()
	if err := s.unknowns.Clear(); err != nil {
		return fault.From(err)
	}
	return s.tidy()
}

// timestamp is a time as the contract writes it: UTC with milliseconds.
func timestamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }
