package artifact

import (
	"context"
	"errors"
	"io"
)

// Ref names an entry of a Builder. The zero Ref is the root.
type Ref uint32

// Size is a number of bytes or unknown. The zero value is unknown, which is null in JSON.
type Size struct {
	n     int64
	known bool
}

// SizeOf is a known size. A size that JSON cannot carry exactly (above MaxInteger) or a negative one is unknown; the
// caller then says so in a limitation.
func SizeOf(n int64) Size { return Size{n, 0 <= n && n <= MaxInteger} }

// Content is what bytes are, once they were read.
type Content struct {
	SHA256 [32]byte
	Size   int64
}

// Declared is a digest that the container states for an entry.
type Declared struct {
	SHA256   [32]byte
	Unpacked bool // the bytes lie beside the archive, in its .unpacked companion
}

// Root describes the target itself. Its content is set with SetContent(0, …) before the graph is sealed; a directory
// root gets its digest from its entries.
type Root struct {
	Format       Format // root format; FormatDirectory for a directory
	Content      Format // content format of the root's node; "" is Format
	MediaType    string // "" for null
	Architecture string // "" for null
	Executable   bool
	Limitations  []string // of the root occurrence
}

// Entry is one place below the root. Strings must be valid UTF-8.
type Entry struct {
	Path             string    // logical path from the root, escaped; never "." and never absolute
	Container        Ref       // the expanded container that it stands in
	EntryKind        EntryKind // what the place is
	Kind             Kind      // "" is Role(Path, Format)
	Format           Format    // format of the content; ignored for directories, "" where there is no content
	OccurrenceFormat Format    // "" is OccurrenceFormat(Path, Format)
	MediaType        string    // of the content, "" for null
	Architecture     string    // of the content, "" for null
	Content          *Content  // nil where bytes were not read (yet: SetContent); ignored for directories
	DeclaredSize     Size      // what the container says; directories have 0
	CompressedSize   Size      // what the container says; directories have 0
	Executable       bool
	Encrypted        bool
	HashStatus       HashStatus // "" follows from Content and Declared
	Source           *Range     // where the stored bytes lie in the container
	Producer         string     // of a slice's edge, "" for null
	Limitations      []string   // of the place
	NodeLimitations  []string   // of the content
	Declared         *Declared  // digest that the container states, nil for none
}

// ErrFull says that a Builder holds MaxEntries. Stop adding, add a limitation and call Incomplete.
var ErrFull = errors.New("the inventory holds its maximum of entries")

// ErrPath says that a path cannot stand in a graph: empty, absolute, longer than MaxPath, or not below its container.
// A reader escapes names before it adds them, so this is a path that is too long or a reader's mistake.
var ErrPath = errors.New("the logical path cannot stand in an inventory")

// Builder collects a graph. It is for one goroutine. It needs about 256 bytes and the path for each entry, and 64
// more for each directory: less than 450 MB for MaxEntries with paths of 100 bytes.
type Builder struct{ unfinished }

type unfinished struct{}

// NewBuilder begins a graph. Its coverage is complete with scope root until Scope and Incomplete say otherwise.
func NewBuilder(root Root) *Builder { return nil }

// Add puts one entry in. Parent directories that no entry names are made. Entries of one container that share path
// and entry kind get ordinals in the order in which they are added; a directory that was made and is then added is
// that one. Errors are ErrFull and ErrPath; after one, the Builder is unchanged.
func (b *Builder) Add(e Entry) (Ref, error) { return 0, nil }

// SetContent sets the content of an entry (0: the root) whose bytes were read after it was added.
func (b *Builder) SetContent(ref Ref, c Content) {}

// SetFormat sets the content format of an entry that was recognised after it was added, with role and occurrence
// format as Add derives them.
func (b *Builder) SetFormat(ref Ref, f Format) {}

// SetHashStatus overrides what follows from content and declared digest, where bytes were read and do not count.
func (b *Builder) SetHashStatus(ref Ref, s HashStatus) {}

// AddLimitation adds to the limitations of an entry's place.
func (b *Builder) AddLimitation(ref Ref, text string) {}

// AddContainer says how an expanded container arranges its members. OccurrenceID is filled in from ref.
func (b *Builder) AddContainer(ref Ref, c Container) {}

// Limit adds a limitation of the whole inventory, in the order of calls; one that is already there is not repeated.
func (b *Builder) Limit(text string) {}

// Incomplete makes coverage unknown.
func (b *Builder) Incomplete() {}

// SetScope says what was set out to be seen.
func (b *Builder) SetScope(s Scope) {}

// AddProvenance names a tool that took part.
func (b *Builder) AddProvenance(p Provenance) {}

// Len is the number of occurrences so far, the root and made directories included.
func (b *Builder) Len() int { return 0 }

// Seal orders, links and identifies everything. Nothing can be added after it.
func (b *Builder) Seal(ctx context.Context) (Manifest, error) { return Manifest{}, nil }

// OccurrenceID is the identity of a sealed entry.
func (b *Builder) OccurrenceID(ref Ref) string { return "" }

// ArtifactID is the identity of a sealed entry's content, "" where it has none.
func (b *Builder) ArtifactID(ref Ref) string { return "" }

// Mismatched reports whether a sealed entry's bytes contradict their declared digest.
func (b *Builder) Mismatched(ref Ref) bool { return false }

// Finish seals, where that was not done, and writes the inventory result as canonical JSON.
func (b *Builder) Finish(ctx context.Context, w io.Writer) (Manifest, error) { return Manifest{}, nil }

// ExtractedFile is one file that extract_artifact wrote into the files folder of its evidence volume.
type ExtractedFile struct {
	Ref          Ref
	File         string // name below files/: decimal digits
	RelativePath string // where it belongs below the output root; plain components only, unique
}

// FinishExtraction writes the worker's part of an extraction's result: manifest, the files, and the contradictions of
// exactly these files. Every file's content must be set. Files are written in the order of their relative path.
func (b *Builder) FinishExtraction(ctx context.Context, w io.Writer, files []ExtractedFile) error {
	return nil
}
