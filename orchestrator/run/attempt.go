package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"rea/evidence"
	"rea/evidence/fault"
	"rea/evidence/target"
	"rea/evidence/volume"
	"rea/providers"
	"rea/providers/wire"
	"rea/sandbox"
	"rea/sandbox/journal"
)

// callSeq is the sequence number of the one call of a static run.
const callSeq = 1

// attempt is one run under way. It is used by one goroutine.
type attempt struct {
	r        *Runner
	req      Request
	manifest providers.Manifest
	report   func(Progress)
	spec     sandbox.Spec

	box     sandbox.Sandbox
	channel *wire.Conn
	hashed  chan hashResult // nil without a target
	mark    string          // of the target's file, "" for none
	called  chan struct{}   // closed when the worker has its call
	record  Record

	stop   context.CancelCauseFunc // ends the run's context with one of our causes
	commit *wire.Done              // the worker's commitment, nil before it came
	broken error                   // why the channel ended before it
}

type hashResult struct {
	digest target.Digest
	err    error
}

func newAttempt(r *Runner, req Request, report func(Progress)) *attempt {
	m := req.Provider.Manifest()
	needs, lowered := fit(m.Needs, req.Target.fileSize(), r.o.Ceiling, int64(max(r.o.Concurrent, 1)))
	m.Needs = needs
	a := &attempt{r: r, req: req, manifest: m, report: report, called: make(chan struct{})}
	a.record = Record{RunID: journal.NewID(), Provider: m.ID, Operation: req.Operation, Started: time.Now().UTC(),
		WorkerSHA256: r.o.WorkerSHA256, Lowered: lowered}
	return a
}

// run takes the attempt through its phases. Whatever happens, teardown comes last and what remains is told.
func (a *attempt) run(ctx context.Context) (*Result, error) {
	ctx, a.stop = context.WithCancelCause(ctx)
	defer a.stop(nil)
	deadline := time.AfterFunc(a.manifest.Needs.Deadline, func() { a.stop(errDeadline) })
	defer deadline.Stop()

	result, err := a.work(ctx)
	receipt := a.teardown(ctx)
	if a.req.Target != nil {
		a.record.Proof.Unproved = append(slices.Clip(a.record.Proof.Unproved), a.req.Target.Doubts...)
	}
	a.record.Receipt, a.record.Ended = receipt, time.Now().UTC()
	if result != nil {
		result.Record = a.record
	}
	if !receipt.Complete() {
		return result, incomplete(a.req.Operation, receipt, err)
	}
	return result, err
}

// work is everything before teardown.
func (a *attempt) work(ctx context.Context) (*Result, error) {
	a.report(Progress{Phase: "prepare"})
	if err := a.prepare(ctx); err != nil {
		return nil, a.failed(ctx, err)
	}
	a.hashTarget(ctx)
	a.report(Progress{Phase: "start"})
	if err := a.start(ctx); err != nil {
		return nil, a.failed(ctx, err)
	}
	a.supervise(ctx)
	return a.collect(ctx)
}

// prepare makes the sandbox, waiting while the host has no room for it.
func (a *attempt) prepare(ctx context.Context) error {
	image, err := a.r.o.Image(ctx, a.manifest.Image)
	if err != nil {
		return err
	}
	if a.spec, err = a.buildSpec(image); err != nil {
		return err
	}
	for {
		box, err := a.create(ctx)
		if err == nil {
			a.box = box
			a.record.Proof = box.Proof()
			return nil
		}
		if a.r.o.HostFull == nil || !a.r.o.HostFull(err) {
			return err
		}
		a.report(Progress{Phase: "queued", Text: "the host-wide limit leaves no room for another run"})
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(ceilingPoll):
		}
	}
}

func (a *attempt) create(ctx context.Context) (sandbox.Sandbox, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, errDeadline)
	defer cancel()
	return a.r.o.Runtime.Create(ctx, a.spec, a.r.o.Owner)
}

func (a *attempt) buildSpec(image sandbox.Image) (sandbox.Spec, error) {
	needs := a.manifest.Needs
	profile, err := sandbox.SeccompProfile(needs.Seccomp)
	if err != nil {
		return sandbox.Spec{}, err
	}
	limits := sandbox.Limits{Memory: charged(needs), PIDs: needs.PIDs, CPU: needs.CPU, NoFile: fileLimit,
		FileSize: uint64(max(needs.EvidenceBytes, maxScratch(needs.Scratch)))}
	a.record.Limits = limits
	spec := sandbox.Spec{
		ID: a.record.RunID, Image: image, Env: workerEnv,
		Args:     []string{sandbox.WorkerPath, fmt.Sprintf("--memory=%d", needs.Memory)},
		User:     sandbox.User{UID: sandbox.RunUID, GID: sandbox.RunUID},
		Evidence: sandbox.Evidence{Bytes: needs.EvidenceBytes, Inodes: needs.EvidenceInodes, Nonce: newNonce()},
		Scratch:  needs.Scratch, Limits: limits, Seccomp: profile, Runtime: a.r.o.Class,
	}
	if a.req.Target != nil {
		spec.Targets = a.req.Target.Mounts
	}
	return spec, nil
}

// fileLimit is RLIMIT_NOFILE of a run: a reader holds one handle a nesting level and a few for its volume, never one
// for each entry.
const fileLimit = 1024

// workerEnv is the whole environment of a static run.
var workerEnv = []string{"PATH=/rea", "HOME=/tmp", "HOSTNAME=rea", "LANG=C.UTF-8", "TZ=UTC"}

func maxScratch(scratch []sandbox.Tmpfs) int64 {
	var most int64
	for _, t := range scratch {
		most = max(most, t.Bytes)
	}
	return most
}

// hashTarget starts the core's own reading of the target, beside the container and out of the same page cache.
func (a *attempt) hashTarget(ctx context.Context) {
	if a.req.Target == nil {
		return
	}
	if len(a.req.Target.Doubts) == 0 { // where a file system's times say little, the worker reads for itself
		a.mark = target.Mark(a.req.Target.Roots[0].File, a.r.now())
	}
	a.hashed = make(chan hashResult, 1)
	go func() {
		d, err := target.Hash(ctx, a.req.Target.Roots, nil)
		if a.mark != "" {
			a.tell(ctx, d.FileSHA256)
		}
		a.hashed <- hashResult{d, err}
	}()
}

// tell gives the worker our digest of the target's file, so that it need not read the file for one of its own.
func (a *attempt) tell(ctx context.Context, sum string) {
	select {
	case <-a.called:
		// A worker that is gone or stalled is found out by whoever listens.
		_ = a.channel.Send(wire.FromCore{Digest: &wire.Digest{Seq: callSeq, SHA256: sum}})
	case <-ctx.Done():
	}
}

// start starts the container and does the handshake: before a byte of the target is asked for, the worker proves that
// the evidence volume that it writes to is the one that we made.
func (a *attempt) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, errDeadline)
	defer cancel()
	channel, err := a.box.Start(ctx)
	if err != nil {
		return err
	}
	a.channel = wire.NewCore(channel)
	frame, err := a.channel.Next(ctx)
	if err != nil {
		return a.notStarted(ctx, err)
	}
	if frame.Fatal != nil {
		return fault.New(fault.ExecutionFailure, "The worker could not start: "+frame.Fatal.Reason,
			"Run rea doctor; report it when it finds nothing.").With("operation", a.req.Operation)
	}
	if err := a.trust(frame.Hello); err != nil {
		return err
	}
	a.record.Proof = a.box.Proof()
	err = a.channel.Send(wire.FromCore{Call: &wire.Call{
		Seq: callSeq, Provider: a.manifest.Worker, Operation: a.req.Operation, Params: a.req.Params,
		DeadlineMS: a.manifest.Needs.Deadline.Milliseconds(), Mark: a.mark,
	}})
	close(a.called)
	return err
}

// notStarted explains a channel that ended before the hello, with what the container said outside the channel.
func (a *attempt) notStarted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	f := fault.New(fault.ProviderUnavailable, "The container ended before its worker answered.",
		"Run rea doctor, which starts a container and says what is missing.").Because(err)
	if out := strings.TrimSpace(string(a.box.Output())); out != "" {
		f.With("captured_output", map[string]any{"stdout": "", "stderr": out, "truncated": false})
	}
	return f.With("operation", a.req.Operation)
}

// trust holds the worker's hello against what was made for it.
func (a *attempt) trust(h *wire.Hello) error {
	want := a.spec.Evidence
	var wrong string
	switch {
	case h.Version != wire.Version:
		wrong = fmt.Sprintf("the worker speaks protocol %d, this core %d", h.Version, wire.Version)
	case h.PID != 1:
		wrong = "the worker is not the first process of its container"
	case h.Nonce != want.Nonce:
		wrong = "the evidence volume inside is not the one that was made for this run: the engine has another view of this host's mounts"
	case h.UID == 0, h.GID == 0:
		wrong = "the worker is root inside"
	case !closed(h.Evidence, a.box.Proof().OwnKernel):
		wrong = "the evidence volume inside is not a tmpfs with nosuid, nodev and noexec"
	case h.Evidence.Bytes > roundPage(want.Bytes), h.Evidence.Inodes > want.Inodes, h.Evidence.Bytes <= 0, h.Evidence.Inodes <= 0:
		wrong = "the evidence volume inside has other quotas than were asked for"
	default:
		a.record.WorkerVersion, a.record.Landlock = h.Worker, h.Landlock
		return nil
	}
	return fault.New(fault.CapabilityUnavailable, "The run was refused before it saw the target: "+wrong+".",
		"Run rea doctor, or choose another driver with REA_SANDBOX_DRIVER.").
		With("operation", a.req.Operation).With("reason", wrong).With("feature", "evidence-volume")
}

// closed reports whether a volume is of the kind that was made, and harmless. gVisor's kernel shows a host's mount as a
// kind of its own: that it is ours the nonce says, and its flags hold on the host.
func closed(v wire.Volume, ownKernel bool) bool {
	if ownKernel && v.Type == "9p" {
		return true
	}
	return v.Type == "tmpfs" && v.NoSUID && v.NoDev && v.NoExec
}

// pageSize is the unit in which a tmpfs counts its size.
const pageSize = 4096

func roundPage(n int64) int64 { return (n + pageSize - 1) / pageSize * pageSize }

// supervise listens until the worker commits, the channel ends, or the run is stopped and its time to seal is over.
func (a *attempt) supervise(ctx context.Context) {
	idle := time.AfterFunc(a.manifest.Needs.Idle, func() { a.stop(errIdle) })
	defer idle.Stop()
	a.report(Progress{Phase: "analyze"})
	a.broken = a.listen(ctx, idle)
	if a.broken == nil || ctx.Err() == nil {
		return
	}
	// Stopped: ask the worker to seal what it has, and listen a little longer.
	if a.channel.Send(wire.FromCore{Cancel: &wire.Cancel{Seq: callSeq}}) != nil {
		return
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	a.broken = a.listen(drain, idle)
}

// listen hands progress on until the worker commits (nil), or the channel or ctx ends.
func (a *attempt) listen(ctx context.Context, idle *time.Timer) error {
	for {
		frame, err := a.channel.Next(ctx)
		switch {
		case err != nil:
			return err
		case frame.Progress != nil:
			idle.Reset(a.manifest.Needs.Idle)
			p := frame.Progress
			a.report(Progress{Phase: p.Phase, Text: p.Text, Entries: p.Entries, Bytes: p.Bytes})
		case frame.Fatal != nil:
			return errors.New(frame.Fatal.Reason)
		case frame.Done != nil:
			a.commit = frame.Done
			return nil
		}
	}
}

// collect ends the container and reads what it committed to; where the volume dies with the container, in the
// opposite order.
func (a *attempt) collect(ctx context.Context) (*Result, error) {
	cause := context.Cause(ctx)
	detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), collectTimeout)
	defer cancel()
	a.report(Progress{Phase: "collect"})
	live := a.record.Proof.Live
	var contents *volume.Contents
	var readErr error
	if live && a.commit != nil {
		contents, readErr = a.read(detached)
	}
	killErr := a.end(detached)
	usage, usageErr := a.box.Usage(detached)
	a.record.Usage = usage
	if !live && a.commit != nil && killErr == nil {
		contents, readErr = a.read(detached)
	}
	v := verdict{cause: cause, broken: a.broken, contents: contents, read: readErr, kill: killErr, usage: usage, usageErr: usageErr,
		limits: a.record.Limits, operation: a.req.Operation, output: a.box.Output()}
	outcome, err := v.decide()
	a.record.Outcome = outcome
	if contents == nil {
		return nil, err
	}
	result, checkErr := a.retain(detached, contents, err == nil)
	if err == nil {
		err = checkErr
	}
	if err == nil && ctx.Err() != nil {
		// The run was finished when the caller gave up: a cancelled call never ends in success.
		a.record.Outcome = Cancelled
		err = stopped(a.req.Operation, context.Cause(ctx), nil)
	}
	return result, err
}

// end lets a worker that finished go, and ends whatever else is there.
func (a *attempt) end(ctx context.Context) error {
	if a.commit != nil && a.record.Proof.Live {
		_ = a.channel.Send(wire.FromCore{Release: &wire.Release{Seq: callSeq}}) // the kill below does not depend on it
	}
	return a.box.Kill(ctx)
}

func (a *attempt) read(ctx context.Context) (*volume.Contents, error) {
	src, err := a.box.Evidence(ctx)
	if err != nil {
		return nil, err
	}
	want := volume.Commit{Seq: callSeq, ManifestSHA256: a.commit.ManifestSHA256, ManifestBytes: a.commit.ManifestBytes,
		Nonce: a.spec.Evidence.Nonce, RequestSHA256: digest(a.req.Params)}
	limits := volume.Limits{Files: a.spec.Evidence.Inodes, Bytes: a.spec.Evidence.Bytes}
	contents, err := volume.Read(ctx, src, want, a.sink, limits)
	if !a.record.Proof.Live {
		a.record.Volume.Unlisted = unlisted(ctx, src, contents)
	}
	return contents, err
}

// sink opens where one file of the volume goes to: the request's own place for files/, else the store.
func (a *attempt) sink(ctx context.Context, name string) (volume.Sink, error) {
	if rest, ok := strings.CutPrefix(name, volume.FilesDir+"/"); ok && a.req.File != nil {
		return a.req.File(ctx, rest)
	}
	return a.r.o.Create(ctx)
}

// maxUnlisted bounds how many unlisted entries a run record names.
const maxUnlisted = 32

// unlisted walks the volume of a run that is over and names what no manifest named: nothing of it is read.
func unlisted(ctx context.Context, src volume.Source, contents *volume.Contents) []string {
	known := map[string]bool{volume.NonceName: true, volume.Folder(callSeq) + "/" + volume.ManifestName: true}
	if contents != nil {
		for _, f := range contents.Manifest.Files {
			known[volume.Folder(callSeq)+"/"+f.Path] = true
		}
	}
	entries, err := src.List(ctx, volume.ListLimits{Entries: len(known) + 4*maxUnlisted, Depth: 4})
	var names []string
	for _, e := range entries {
		if e.Kind != volume.KindDirectory && !known[e.Path] && len(names) < maxUnlisted {
			names = append(names, volume.Escape(e.Path))
		}
	}
	if err != nil {
		names = append(names, "(the listing is incomplete)")
	}
	return names
}

// retain checks a verified result against its operation's contract. whole says whether it must be complete.
func (a *attempt) retain(ctx context.Context, c *volume.Contents, whole bool) (*Result, error) {
	a.report(Progress{Phase: "retain"})
	a.record.Volume.Manifest = c.Manifest.Outcome
	result := &Result{Files: map[string]evidence.Blob{}, Raw: map[string]evidence.Blob{}, Verified: map[string]volume.File{}}
	for _, f := range c.Manifest.Files {
		if c.Files[f.Path] != nil {
			result.Verified[f.Path] = f
		}
	}
	for name, blob := range c.Files {
		if rest, ok := strings.CutPrefix(name, volume.FilesDir+"/"); ok {
			result.Files[rest] = blob
		}
		if rest, ok := strings.CutPrefix(name, volume.RawDir+"/"); ok {
			result.Raw[rest] = blob
		}
	}
	blob := c.Files[volume.ResultName]
	if blob == nil {
		if whole {
			return nil, fault.New(fault.UnreadableOutput, "The worker completed without a result.", "Report it with the output of rea doctor.").
				With("operation", a.req.Operation).With("reason", "no "+volume.ResultName)
		}
		return nil, nil
	}
	summary, err := a.check(ctx, blob)
	if err != nil {
		return nil, err
	}
	result.Payload, result.Summary = evidence.BlobPayload(blob), summary
	if !whole {
		return result, nil
	}
	result.Target, err = a.bindTarget(ctx, c.Manifest.Target)
	return result, err
}

func (a *attempt) check(ctx context.Context, blob evidence.Blob) (providers.Summary, error) {
	op, ok := providers.Find(a.req.Provider, a.req.Operation)
	if !ok {
		return providers.Summary{}, fault.New(fault.CapabilityUnavailable, "The provider does not know the operation "+a.req.Operation+".",
			"Report it: a request names an operation that is not declared.").With("operation", a.req.Operation)
	}
	r, err := blob.Open()
	if err != nil {
		return providers.Summary{}, fmt.Errorf("open the retained result: %w", err)
	}
	defer r.Close()
	canonical := evidence.NewPayloadChecker()
	summary, err := op.Check(ctx, io.TeeReader(r, canonical), a.req.Params)
	if err == nil {
		err = canonical.Close()
	}
	if err != nil && fault.From(err).Code == fault.ExecutionFailure {
		err = fault.New(fault.UnreadableOutput, "The worker's result does not satisfy the contract of "+a.req.Operation+".",
			"Report it with the output of rea doctor.").With("operation", a.req.Operation).With("reason", err.Error()).Because(err)
	}
	return summary, err
}

// bindTarget waits for the core's own digest and holds the worker's against it.
func (a *attempt) bindTarget(ctx context.Context, seen *volume.TargetSeen) (TargetDigest, error) {
	if a.hashed == nil {
		return TargetDigest{}, nil
	}
	var own hashResult
	select {
	case own = <-a.hashed:
		a.hashed <- own // teardown waits for it too
	case <-ctx.Done():
		return TargetDigest{}, context.Cause(ctx)
	}
	if own.err != nil {
		return TargetDigest{}, own.err
	}
	d := TargetDigest{Bound: own.digest.SHA256, File: own.digest.FileSHA256, Size: own.digest.Bytes}
	switch {
	case seen == nil:
		return d, fault.New(fault.UnreadableOutput, "The worker did not say which target it read.", "Report it with the output of rea doctor.").
			With("operation", a.req.Operation).With("reason", "no target digest")
	case seen.SHA256 == d.Bound:
		return d, nil
	case len(seen.Unreadable) > 0 && a.agreesWithout(ctx, seen):
		// The worker may read less than the core. What it could not read the result names, and its coverage is unknown.
		d.Bound = seen.SHA256
		return d, nil
	}
	return d, fault.New(fault.ArtifactChanged, "The target changed while it was read, or the container saw other bytes than the core.",
		"Reopen the target and repeat the call when nothing writes to it.").
		With("operation", a.req.Operation).With("boundary", "stable-artifact-read").With("path", a.req.Target.Path).With("reason", "digests differ")
}

// agreesWithout reads the target once more without what the worker could not read.
func (a *attempt) agreesWithout(ctx context.Context, seen *volume.TargetSeen) bool {
	roots := make([]target.Root, len(a.req.Target.Roots))
	for i, root := range a.req.Target.Roots {
		root.Unreadable = below(root.Name, len(roots) > 1, seen.Unreadable)
		roots[i] = root
	}
	d, err := target.Hash(ctx, roots, nil)
	return err == nil && d.SHA256 == seen.SHA256
}

// below selects the paths under a root; with several roots they carry its name in front.
func below(name string, named bool, paths []string) []string {
	if !named {
		return paths
	}
	var out []string
	for _, p := range paths {
		if rest, ok := strings.CutPrefix(p, name+"/"); ok {
			out = append(out, rest)
		}
	}
	return out
}

// failed turns an error before the call into the caller's.
func (a *attempt) failed(ctx context.Context, err error) error {
	a.record.Outcome = Infrastructure
	if cause := context.Cause(ctx); cause != nil {
		a.record.Outcome = outcomeOf(cause)
		return stopped(a.req.Operation, cause, err)
	}
	if a.req.Target != nil && a.req.Target.replaced() {
		return fault.New(fault.ArtifactChanged, "The target was removed or replaced while it was opened for the run.",
			"Repeat the call when nothing writes to the target.").
			WithAll(fault.Details{"operation": a.req.Operation, "boundary": "stable-artifact-read", "path": a.req.Target.Path, "reason": "the opened file has no name any more"}).Because(err)
	}
	f := fault.From(err)
	if f.Details["outcome"] == nil {
		f.With("outcome", string(Infrastructure))
	}
	return f
}

// teardown removes what was made and waits for our own reader of the target.
func (a *attempt) teardown(ctx context.Context) sandbox.Receipt {
	a.report(Progress{Phase: "teardown"})
	a.stop(nil) // ends the hash where it is still under way
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), teardownTimeout)
	defer cancel()
	if a.channel != nil {
		_ = a.channel.Close() // the container is dead or about to be; a broken channel is what we want
	}
	if a.hashed != nil {
		select {
		case <-a.hashed:
		case <-ctx.Done():
		}
	}
	if a.box == nil {
		return sandbox.Receipt{}
	}
	receipt, err := a.box.Destroy(ctx)
	if err != nil && receipt.Complete() {
		receipt.Remains = append(receipt.Remains, sandbox.Resource{Kind: sandbox.KindContainer, Name: a.record.RunID})
		receipt.Reason = err.Error()
	}
	return receipt
}
