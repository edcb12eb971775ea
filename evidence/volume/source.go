package volume

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// Source gives access to an evidence volume. Everything behind it is hostile: it is written by the run and may change
// while it is read. Names are slash paths below the volume's root, of the characters that CheckPath allows.
type Source interface {
	// Open opens the one regular file at name, which must be at most limit bytes long. What is not an ordinary file
	// of one name is refused with a *Refusal, without blocking; any other error is a failure of the source itself. The
	// reader is closed by the caller and yields a *Refusal where the content turns out not to be one regular file.
	Open(ctx context.Context, name string, limit int64) (io.ReadCloser, error)
	// Free says what is left of the volume's quotas; nil where this source cannot know.
	Free(ctx context.Context) (*Free, error)
	// List walks the volume without opening anything but directories. It returns what it saw also with an error:
	// ErrListLimit when a limit cut it, errors.ErrUnsupported when this source cannot be walked.
	List(ctx context.Context, limits ListLimits) ([]Entry, error)
}

// Free is what is left of a volume's quotas.
type Free struct {
	Bytes  int64
	Inodes int64
}

// ListLimits bounds a walk.
type ListLimits struct {
	Entries int // entries returned
	Depth   int // directories below the root that are entered, 1 is the root's own entries
}

// ErrListLimit says that a walk met one of its limits, so that there may be more than was listed.
var ErrListLimit = errors.New("the listing met a limit")

// Kind is what an entry of a volume is.
type Kind string

// The closed set of kinds.
const (
	KindFile      Kind = "file"
	KindDirectory Kind = "directory"
	KindSymlink   Kind = "symlink"
	KindFIFO      Kind = "fifo"
	KindSocket    Kind = "socket"
	KindDevice    Kind = "device"
	KindUnknown   Kind = "unknown" // gone, or not examinable, when it was looked at
)

// Entry is one name that a walk found.
type Entry struct {
	Path  string // below the volume's root, slash-separated, any bytes: Escape it before showing it
	Kind  Kind
	Size  int64  // bytes, of a file
	Links uint64 // names of the inode
}

// Reason says why an entry was refused, as details.reason of the error carries it.
type Reason string

// The closed set of reasons.
const (
	ReasonMissing  Reason = "missing"    // there is no such name
	ReasonName     Reason = "name"       // the name is not a plain path below the folder
	ReasonOrder    Reason = "order"      // names are not sorted, or repeat
	ReasonKind     Reason = "kind"       // not a regular file, or reached through a link
	ReasonLinks    Reason = "links"      // the inode has more names than one
	ReasonMode     Reason = "mode"       // set-user-id or set-group-id
	ReasonDevice   Reason = "device"     // on another file system
	ReasonSize     Reason = "size"       // larger than allowed, or not as long as the manifest says
	ReasonDigest   Reason = "digest"     // other bytes than the commitment names
	ReasonCommit   Reason = "commitment" // nonce, sequence number or request are not this call's
	ReasonAccess   Reason = "unreadable" // the system refused the open
	ReasonUnstable Reason = "unstable"   // would not hold still long enough to be opened
	ReasonLimit    Reason = "limit"      // more files or bytes than the run was given
	ReasonStream   Reason = "stream"     // the engine's copy is not one file
)

// Refusal says that an entry of a volume is not what it must be.
type Refusal struct {
	Name   string // as asked for: Escape it before showing it
	Reason Reason
	cause  error
}

func refuse(name string, reason Reason, cause error) *Refusal {
	return &Refusal{Name: name, Reason: reason, cause: cause}
}

// Error names the escaped entry and the reason.
func (r *Refusal) Error() string {
	if r.cause != nil {
		return fmt.Sprintf("volume entry %s refused: %s: %v", Escape(r.Name), r.Reason, r.cause)
	}
	return fmt.Sprintf("volume entry %s refused: %s", Escape(r.Name), r.Reason)
}

// Unwrap gives the underlying error, which may be nil.
func (r *Refusal) Unwrap() error { return r.cause }

// maxEscaped bounds an escaped name: enough to find it, too little to flood a message.
const maxEscaped = 200

// Escape makes a name from a volume printable: ASCII, control characters and quotes as Go escapes, at most 200 bytes
// and an ellipsis.
func Escape(name string) string {
	cut := len(name) > maxEscaped
	if cut {
		name = name[:maxEscaped]
	}
	q := strconv.QuoteToASCII(name)
	q = q[1 : len(q)-1]
	if len(q) > maxEscaped {
		q, cut = q[:maxEscaped], true
	}
	if cut {
		q += "..."
	}
	return q
}
