package session

import (
	"context"

	"rea/evidence"
	"rea/orchestrator/run"
	"rea/providers/artifact"
)

// Analyzer is the machinery that a session stands on: contained runs and the store that keeps their Evidence. Records
// that it returns are sealed; the session puts them into its ledger. Errors are *fault.Error, or a context's cause.
//
// A progress function may be nil; it is called from one goroutine at a time and does not block.
type Analyzer interface {
	// Available reports why no contained run can start, and nil where one can. It is quick and starts nothing: what it
	// says is advice for binary_session, the run itself decides.
	Available(ctx context.Context) error
	// Identify binds path, hashes it and recognises what it is, by a run in a container. The session has checked that
	// path is a file or an application bundle.
	Identify(ctx context.Context, path string, progress func(run.Progress)) (Identity, error)
	// Inventory runs inventory_artifact on path and returns the inventory Evidence with the summary that its check
	// made. A record beside an error is what verified before the failure; the error names it as partial_observation.
	Inventory(ctx context.Context, path string, policy artifact.Policy, progress func(run.Progress)) (*evidence.Record, artifact.Inventory, error)
	// Extract runs extract_artifact on path, materialises the verified files and returns the extraction Evidence.
	Extract(ctx context.Context, path string, o ExtractOptions, progress func(run.Progress)) (*evidence.Record, error)
	// Spooler keeps results that are assembled outside a container, such as a comparison.
	Spooler() evidence.Spooler
	// Retainer returns the keeper of one session's records. It touches no disk before the first record, and stays
	// usable after a Release.
	Retainer() evidence.Retainer
}

// Identity is what a target turned out to be.
type Identity struct {
	Path         string   // canonical absolute path
	SHA256       string   // hex; of a bundle, the digest of the tree
	Format       string   // a subject format of the Evidence contract
	Kind         Kind     // what can be done with it
	Architecture string   // "" where the format has none, more than one or an unlisted one
	Slices       []string // architectures of a universal file, sorted
}

// Kind says what can be done with a target.
type Kind string

// The closed set of kinds.
const (
	Executable Kind = "executable"
	Database   Kind = "database"
	Archive    Kind = "archive"
	Artifact   Kind = "artifact"
)

// ExtractOptions select what extract_artifact writes and where. The zero value takes every regular file to a fresh
// directory and fails on the first integrity mismatch.
type ExtractOptions struct {
	Policy        artifact.Policy
	LogicalPaths  []string // nil for all, with OccurrenceIDs nil too
	OccurrenceIDs []string
	To            string // a directory that must not exist yet; "" for a fresh one
}
