package worker

import (
	"fmt"

	"rea/evidence/fault"
	"rea/providers/artifact"
)

// The guards: they protect the worker and are not the caller's to choose. Each one that is met is named with its value
// and the observed amount.
const (
	// maxProduced and maxProducedFactor bound the bytes that members of containers give, together: a base, plus so many
	// times the target's own size (of a directory: the files walked so far).
	maxProduced       = 1 << 30
	maxProducedFactor = 100
	// maxEntryBytes bounds one member.
	maxEntryBytes = 16 << 30
	// maxRatio bounds bytes produced for each compressed byte, counted on what is really produced and from ratioFrom
	// bytes on: short runs of one byte compress far better and hurt nobody.
	maxRatio  = 10_000
	ratioFrom = 1 << 20
	// maxNesting bounds containers inside containers. It is also the bound of this package's recursion.
	maxNesting = 16
	// maxPath bounds a member's recorded name in bytes, and its path from the root.
	maxPath = 4096
	// maxASARHeader bounds an ASAR header, which is read as a stream but must be read whole.
	maxASARHeader = 256 << 20
)

// Bounds of this package's own memory. Beside them stand the graph's (see artifact.Builder), 16 bytes for each zip
// entry, and the decompressors' windows.
const (
	// copyBuffer is one read of a member: what stands between two looks at the context.
	copyBuffer = 256 << 10
	// pulseBytes is how much of one member is read between two reports: a slow disk gives it in a few seconds.
	pulseBytes = 16 << 20
	// headSize is how much of each member is kept to recognise it: an ISO 9660 image says what it is in its sector 16.
	headSize = 33 << 10
	// window bounds the members that are read ahead of the one whose turn it is.
	window = 32
	// memorySpool is the largest compressed container that is unpacked into memory to be read at random; a larger one
	// goes to scratch space. At most maxNesting are held at once.
	memorySpool = 2 << 20
	// maxDictionary bounds the window of xz and zstd streams: the largest that their command line tools make without
	// being asked for more.
	maxDictionary = 64 << 20
	// maxRootDictionary bounds that of a 7z archive that is the target itself: the largest that 7-Zip makes without being
	// asked for more. One is held at a time.
	maxRootDictionary = 256 << 20
	// maxLink bounds a link's target where it is stored as data.
	maxLink = 4096
	// maxRegions bounds the byte ranges outside members that one container lists.
	maxRegions = artifact.MaxRegions
	// maxHardLinks bounds the tar members that are remembered for hard links to them.
	maxHardLinks = 200_000
	// shownPath is how much of a path that is too long is shown.
	shownPath = 80
	// maxNamed bounds how many paths one diagnostic names.
	maxNamed = 10
)

// hit is a guard that was met.
type hit struct {
	guard                string
	configured, observed int64
	path                 string
}

// Error makes a hit travel through readers as an error.
func (h *hit) Error() string { return h.String() }

func (h *hit) String() string {
	return fmt.Sprintf("Limit %s (%d) was met at %s: %d observed.", h.guard, h.configured, quote([]byte(h.path)), h.observed)
}

// fault is the failure of an operation that cannot do with less than everything.
func (h *hit) fault(operation string) *fault.Error {
	return fault.New(fault.Truncated, "The artifact operation stopped at a limit. "+h.String(),
		"Select members that stay below the limit, or inspect the artifact, which keeps what was read.").
		WithAll(fault.Details{"operation": operation, "reason": "limit", "truncated": true, "guard": h.guard,
			"configured": h.configured, "observed": h.observed, "logical_path": h.path})
}
