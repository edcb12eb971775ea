package staging

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// TargetOptions says what a target must not be.
type TargetOptions struct {
	// Refuse lists directories that no target may be, hold or lie in, beside the built-in ones: the state directory,
	// the engine's data root.
	Refuse []string
}

// Target is an open, checked source. Close it when its last mount is gone.
type Target struct {
	File        *os.File    // O_PATH descriptor
	Path        string      // canonical path at the time of opening, for people and for engines that take no mount
	Dir         bool        // a directory; otherwise a regular file
	UID, GID    uint32      // owner
	Private     bool        // others may not read it (or search it, for a directory)
	Limitations []string    // what is less certain about it, for people
	Stat        unix.Stat_t // of the descriptor
}

// OpenTarget resolves path and opens it without following a link. The error is target_unavailable (missing, neither
// directory nor regular file, a refused place) or access_denied.
func OpenTarget(path string, o TargetOptions) (*Target, error) { return nil, errors.ErrUnsupported }

// Reopen returns a readable descriptor of the very same inode, for hashing.
func (t *Target) Reopen() (*os.File, error) { return nil, errors.ErrUnsupported }

// Companion opens the directory "<name>.unpacked" beside a file whose name ends in ".asar". It returns nil without an
// error where there is none.
func (t *Target) Companion(o TargetOptions) (*Target, error) { return nil, errors.ErrUnsupported }

// Close closes the descriptor.
func (t *Target) Close() error { return t.File.Close() }
