package run

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"rea/evidence/fault"
	"rea/evidence/volume"
	"rea/providers/wire"
	"rea/sandbox"
)

// verdict gathers what is known of a run that is over. Our own decisions come first, the kernel's counters second, the
// worker's word last.
type verdict struct {
	operation string
	cause     error // why we stopped it, nil when we did not
	broken    error // why the channel ended without a commitment
	contents  *volume.Contents
	read      error // why the volume did not verify
	kill      error
	usage     sandbox.Usage
	usageErr  error
	limits    sandbox.Limits
	output    []byte
}

// evidenceReserve is what a worker keeps back to be able to say that the volume is full; less free than that means full.
const evidenceReserve = 64 << 10

func (v verdict) decide() (Outcome, error) {
	switch {
	case v.kill != nil:
		return Infrastructure, fault.From(v.kill).With("outcome", string(Infrastructure))
	case v.cause != nil && !v.completed():
		return outcomeOf(v.cause), stopped(v.operation, v.cause, nil)
	case v.contents != nil && v.read == nil:
		return v.committed()
	case v.contents != nil || v.read != nil:
		return Failed, fault.From(v.read).With("operation", v.operation).With("outcome", string(Failed))
	}
	return v.uncommitted()
}

func (v verdict) completed() bool {
	return v.contents != nil && v.read == nil && v.contents.Manifest.Outcome == volume.Completed
}

// committed reads the outcome of a manifest that verified.
func (v verdict) committed() (Outcome, error) {
	m := v.contents.Manifest
	if m.Outcome == volume.Completed {
		return Completed, nil
	}
	if m.Exhausted != "" && v.full() {
		return EvidenceLimit, v.limit(EvidenceLimit, "storage", "The result did not fit the evidence volume: it ran out of "+string(m.Exhausted)+".")
	}
	if m.Error == nil {
		return Failed, fault.New(fault.UnreadableOutput, "The worker failed without saying why.", "Report it with the output of rea doctor.").
			With("operation", v.operation).With("outcome", string(Failed)).With("reason", "no error in the manifest")
	}
	return Failed, v.workerError(m.Error)
}

// workerError admits an error that a worker reported: a known code, its own words.
func (v verdict) workerError(e *volume.Failure) error {
	code := e.Code
	if !fault.Known(code) {
		code = fault.ExecutionFailure
	}
	f := fault.New(code, e.Message, e.Action).WithAll(e.Details).With("outcome", string(Failed))
	if code == fault.ArtifactOperationFailed && f.Details["reason"] == "unavailable" {
		f.InCategory(fault.CategoryUnavailable)
	}
	if f.Details["operation"] == nil {
		f.With("operation", v.operation)
	}
	return f
}

// uncommitted decides why a run ended without a commitment, and without our having stopped it.
func (v verdict) uncommitted() (Outcome, error) {
	var protocol *wire.ProtocolError
	switch {
	case v.usage.OOMKills != nil && *v.usage.OOMKills > 0:
		return MemoryLimit, v.limit(MemoryLimit, "memory", "The run was ended by its memory limit.")
	case v.usage.PIDsRefused != nil && *v.usage.PIDsRefused:
		return PIDsLimit, v.limit(PIDsLimit, "pids", "The run reached its limit of processes and threads.")
	case errors.Is(v.broken, wire.ErrFlood):
		return OutputLimit, v.limit(OutputLimit, "output", "The worker wrote more to its control channel than a run may.")
	case v.full():
		return EvidenceLimit, v.limit(EvidenceLimit, "storage", "The run filled its evidence volume and ended.")
	case errors.As(v.broken, &protocol):
		return Failed, fault.New(fault.UnreadableOutput, "The worker broke the control protocol: "+protocol.Reason+".", "Report it with the output of rea doctor.").
			With("operation", v.operation).With("reason", protocol.Reason).With("outcome", string(Failed))
	}
	f := fault.New(fault.ProviderUnavailable, "The container ended before its work was done.", "Repeat the call; if it fails again, report it with the output of rea doctor.").
		With("operation", v.operation).With("outcome", string(Killed)).Because(v.broken)
	if out := strings.TrimSpace(string(v.output)); out != "" {
		f.With("captured_output", map[string]any{"stdout": "", "stderr": out, "truncated": false})
	}
	return Killed, f
}

// full reports whether the kernel says that the evidence volume is exhausted.
func (v verdict) full() bool {
	free := v.usage.EvidenceFree
	return free != nil && (free.Bytes < evidenceReserve || free.Inodes == 0)
}

func (v verdict) limit(o Outcome, resource, reason string) error {
	reported := map[string]any{"memory_bytes": v.limits.Memory, "pids": v.limits.PIDs}
	if p := v.usage.MemoryPeak; p != nil {
		reported["memory_peak_bytes"] = *p
	}
	if p := v.usage.PIDsPeak; p != nil {
		reported["pids_peak"] = *p
	}
	return fault.New(fault.ResourceConstraint, reason, "Give the run more of this resource, or analyse a smaller artifact; reported_limits has the figures.").
		WithAll(fault.Details{"operation": v.operation, "resource": resource, "reason": reason, "reported_limits": reported, "outcome": string(o)})
}

// outcomeOf maps the cause for which we stopped a run.
func outcomeOf(cause error) Outcome {
	if errors.Is(cause, errDeadline) || errors.Is(cause, errIdle) || errors.Is(cause, context.DeadlineExceeded) {
		return Deadline
	}
	return Cancelled
}

// stopped is the error of a run that we stopped; err, if any, is what failed because of it.
func stopped(operation string, cause, err error) error {
	if outcomeOf(cause) == Deadline {
		return fault.New(fault.ProviderTimeout, fmt.Sprintf("%s did not finish in time: %v.", operation, deadlineText(cause)),
			"Repeat the call when the host is less busy, or analyse a smaller artifact.").
			WithAll(fault.Details{"operation": operation, "outcome": string(Deadline), "reason": deadlineText(cause)}).Because(errors.Join(cause, err))
	}
	return fault.New(fault.Cancelled, operation+" was cancelled.", "Repeat the call if the result is still wanted.").
		WithAll(fault.Details{"operation": operation, "cleanup": "complete", "outcome": string(Cancelled)}).Because(errors.Join(cause, err))
}

func deadlineText(cause error) string {
	if errors.Is(cause, errIdle) {
		return errIdle.Error()
	}
	return errDeadline.Error()
}

// incomplete is the error of a run of which something remains on the host; it replaces whatever else failed.
func incomplete(operation string, r sandbox.Receipt, primary error) error {
	kinds := make([]string, 0, len(r.Remains))
	seen := map[string]bool{}
	for _, res := range r.Remains {
		if !seen[res.Kind] {
			seen[res.Kind] = true
			kinds = append(kinds, res.Kind)
		}
	}
	f := fault.New(fault.CleanupIncomplete, operation+" left resources on this host that could not be removed.",
		"Run rea sandbox sweep, which removes what the journal lists, then repeat the call.")
	if primary != nil {
		p := fault.From(primary)
		f.InCategory(p.Category).WithAll(p.Details).With("execution_failure", string(p.Code)).Because(primary)
	}
	return f.WithAll(fault.Details{"operation": operation, "cleanup": "incomplete", "resources": kinds, "cleanup_reason": r.Reason})
}
