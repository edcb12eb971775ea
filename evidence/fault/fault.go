// Package fault is the one error taxonomy that the library, the MCP wire and the command line share.
//
// Every failure that reaches a caller is a *fault.Error: a stable code, a category, what happened to what, and what
// to do next. The codes, their categories and whether a repetition may help are the error algebra of the runtime
// contract; nothing outside this package decides them. Package fault must not know where an error is shown.
package fault

import (
	"context"
	"errors"
	"fmt"
	"maps"
)

// Code names a kind of failure. Codes are stable: clients branch on them.
type Code string

// The closed set of codes.
const (
	InvalidRequest            Code = "invalid_request"
	PlanStale                 Code = "plan_stale"
	AccessDenied              Code = "access_denied"
	ArtifactChanged           Code = "artifact_changed"
	UnreadableOutput          Code = "unreadable_output"
	CapabilityUnavailable     Code = "capability_unavailable"
	UnsupportedTarget         Code = "unsupported_target"
	ProviderUnavailable       Code = "provider_unavailable"
	ProviderTimeout           Code = "provider_timeout"
	ResourceConstraint        Code = "resource_constraint"
	Cancelled                 Code = "cancelled"
	ArtifactIntegrityMismatch Code = "artifact_integrity_mismatch"
	ArtifactOperationFailed   Code = "artifact_operation_failed"
	EvidenceIntegrityMismatch Code = "evidence_integrity_mismatch"
	Truncated                 Code = "truncated"
	ProcessCaptureFailed      Code = "process_capture_failed"
	CleanupIncomplete         Code = "cleanup_incomplete"
	RevisionConflict          Code = "revision_conflict"
	ConfigurationInvalid      Code = "configuration_invalid"
	TargetUnavailable         Code = "target_unavailable"
	ExecutionFailure          Code = "execution_failure"
)

// Category groups codes by who can act on them.
type Category string

// The closed set of categories.
const (
	CategoryInvalidInput        Category = "invalid_input"
	CategoryUnsupportedProvider Category = "unsupported_provider"
	CategoryUnsupportedTarget   Category = "unsupported_target"
	CategoryIntegrityMismatch   Category = "integrity_mismatch"
	CategoryTruncated           Category = "truncated"
	CategoryCancelled           Category = "cancelled"
	CategoryTimeout             Category = "timeout"
	CategoryResourceConstraint  Category = "resource_constraint"
	CategoryUnavailable         Category = "unavailable"
	CategoryExecutionFailure    Category = "execution_failure"
)

type trait struct {
	category  Category
	retryable bool
}

// traits is the table of the runtime contract: the default category of each code, and whether an unchanged or
// corrected repetition may succeed without operator work.
var traits = map[Code]trait{
	InvalidRequest:            {CategoryInvalidInput, true},
	PlanStale:                 {CategoryIntegrityMismatch, false},
	AccessDenied:              {CategoryUnavailable, false},
	ArtifactChanged:           {CategoryIntegrityMismatch, true},
	UnreadableOutput:          {CategoryExecutionFailure, false},
	CapabilityUnavailable:     {CategoryUnsupportedProvider, false},
	UnsupportedTarget:         {CategoryUnsupportedTarget, false},
	ProviderUnavailable:       {CategoryUnavailable, true},
	ProviderTimeout:           {CategoryTimeout, true},
	ResourceConstraint:        {CategoryResourceConstraint, false},
	Cancelled:                 {CategoryCancelled, true},
	ArtifactIntegrityMismatch: {CategoryIntegrityMismatch, false},
	ArtifactOperationFailed:   {CategoryExecutionFailure, false},
	EvidenceIntegrityMismatch: {CategoryIntegrityMismatch, false},
	Truncated:                 {CategoryTruncated, false},
	ProcessCaptureFailed:      {CategoryExecutionFailure, false},
	CleanupIncomplete:         {CategoryExecutionFailure, false},
	RevisionConflict:          {CategoryExecutionFailure, true},
	ConfigurationInvalid:      {CategoryExecutionFailure, false},
	TargetUnavailable:         {CategoryUnavailable, false},
	ExecutionFailure:          {CategoryExecutionFailure, false},
}

// Details carries the machine-readable part of an error. Keys are those of the failure catalogue; values must encode
// as JSON and must hold no secret, no environment value and no stack trace.
type Details map[string]any

// Error is a failure as a caller sees it. Build it with New; the zero value is not useful.
type Error struct {
	Code     Code
	Category Category // the code's default unless the failure catalogue says otherwise
	Message  string   // what happened, to what
	Action   string   // what to do next
	Details  Details
	cause    error // for errors.Is and logs; never projected
}

// New returns an error with the code's default category. Message says what happened to what, action what to do next.
func New(code Code, message, action string) *Error {
	return &Error{Code: code, Category: traits[code].category, Message: message, Action: action}
}

// With adds one detail and returns the same error.
func (e *Error) With(key string, value any) *Error {
	if e.Details == nil {
		e.Details = Details{}
	}
	e.Details[key] = value
	return e
}

// WithAll adds details and returns the same error.
func (e *Error) WithAll(d Details) *Error {
	if e.Details == nil {
		e.Details = Details{}
	}
	maps.Copy(e.Details, d)
	return e
}

// InCategory sets a category other than the code's default, where the failure catalogue asks for one.
func (e *Error) InCategory(c Category) *Error {
	e.Category = c
	return e
}

// Because records the underlying error for errors.Is and diagnostics; it is never shown to a caller.
func (e *Error) Because(cause error) *Error {
	e.cause = cause
	return e
}

// Error gives the message and, for logs, the cause.
func (e *Error) Error() string {
	if e.cause != nil {
		return fmt.Sprintf("%s: %s: %v", e.Code, e.Message, e.cause)
	}
	return fmt.Sprintf("%s: %s", e.Code, e.Message)
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.cause }

// Retryable reports whether a repetition may succeed without operator work.
func (e *Error) Retryable() bool { return traits[e.Code].retryable }

// Known reports whether c belongs to the closed set.
func Known(c Code) bool { _, ok := traits[c]; return ok }

// Remediation is the projected advice.
type Remediation struct {
	Action string `json:"action"`
}

// Projection is the wire form of an error: exactly these members, never a cause chain.
type Projection struct {
	Code        Code        `json:"code"`
	Category    Category    `json:"category"`
	Message     string      `json:"message"`
	Retryable   bool        `json:"retryable"`
	Remediation Remediation `json:"remediation"`
	Details     Details     `json:"details,omitempty"`
}

// Project returns the wire form.
func (e *Error) Project() Projection {
	action := e.Action
	if action == "" {
		action = "Repeat the call; if it fails again, report it with the output of rea doctor."
	}
	return Projection{e.Code, e.Category, e.Message, e.Retryable(), Remediation{action}, e.Details}
}

// From returns err as an *Error. A context's cause decides between cancelled and provider_timeout; anything that is
// not part of the taxonomy becomes execution_failure, whose message does not repeat the unknown text.
func From(err error) *Error {
	var e *Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &e):
		return e
	case errors.Is(err, context.Canceled):
		return New(Cancelled, "The request was cancelled.", "Repeat the call if the result is still wanted.").Because(err)
	case errors.Is(err, context.DeadlineExceeded):
		return New(ProviderTimeout, "A deadline owned by rea expired.", "Repeat the call, or raise the deadline that the details name.").Because(err)
	}
	return New(ExecutionFailure, "An unexpected failure occurred.", "Repeat the call; if it fails again, report it with the output of rea doctor.").Because(err)
}

// Exit codes of the command line. Codes above 128 are 128 plus the signal's number.
const (
	ExitDone        = 0
	ExitDifference  = 1 // --fail-on named a difference or contradiction that was found
	ExitUnknown     = 2 // --fail-on named an unknown or truncated result
	ExitUnusable    = 3 // the request, a setting or the target cannot be used
	ExitNotDone     = 4 // the work could not be done
	ExitInterrupted = 130
	ExitTerminated  = 143
)

// ExitCode maps the error to the command line's exit code.
func (e *Error) ExitCode() int {
	switch e.Code {
	case ConfigurationInvalid, TargetUnavailable, AccessDenied:
		return ExitUnusable
	}
	switch e.Category {
	case CategoryInvalidInput, CategoryUnsupportedTarget:
		return ExitUnusable
	}
	return ExitNotDone
}
