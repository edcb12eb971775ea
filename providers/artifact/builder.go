package artifact

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"rea/evidence/fault"
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

// value is the size, -1 where it is unknown.
func (s Size) value() int64 {
	if !s.known {
		return -1
	}
	return s.n
}

// Content is what bytes are, once they were read.
type Content struct {
	SHA256 [32]byte
	Size   int64
}

// Declared is a digest that the container states for an entry.
type Declared struct {
	SHA256     [32]byte
	Unpacked   bool   // the bytes lie beside the archive, in its .unpacked companion
	Limitation string // what else is to be said if the bytes contradict it, "" for nothing
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

// Entry is one place below the root. Strings are UTF-8.
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
	Limitations      []string   // of the place
	NodeLimitations  []string   // of the content
	Declared         *Declared  // digest that the container states, nil for none
}

// ErrFull says that a Builder holds MaxEntries or MaxPathBytes. Stop adding, add a limitation and call Incomplete.
var ErrFull = errors.New("the inventory holds its maximum of entries or path bytes")

// ErrPath says that a path cannot stand in a graph: not plain, longer than MaxPath, or not below its container.
// A reader escapes names before it adds them, so this is a path that is too long or a reader's mistake.
var ErrPath = errors.New("the logical path cannot stand in an inventory")

// Builder collects a graph. It is for one goroutine. It needs about 250 bytes and the path for each entry, 50 more
// for each directory and 400 for each expanded container: about 350 MB for MaxEntries with paths of 100 bytes.
type Builder struct {
	rows        chunks[row]
	paths       strings.Builder // current block of path bytes
	pathBytes   int             // of all paths
	dirs        map[dirKey]Ref
	notes       []notes // limitations of the few entries that have some
	declared    []declared
	containers  []Container
	arranged    []Ref // of which entry containers[i] speaks
	names       []string
	nameIndex   map[string]uint16
	limitations []string
	limited     map[string]struct{}
	limitBytes  int
	limitsFull  bool
	provenance  []Provenance
	coverage    Coverage

	sealed         *sealed
	contradictions []Contradiction
	pulse          func()
}

// row is one occurrence. Its identity is computed when the graph is sealed.
type row struct {
	path                 string
	content              sum
	size                 int64 // of the content
	declared, compressed int64 // -1 for null
	offset, length       int64 // -1 for null
	container, parent    Ref
	ordinal              uint32
	notes                uint32 // 1 + index into notes, 0 for none
	media, architecture  uint16 // index into names
	entry, kind          uint8
	format, place        uint8 // of the content, of the occurrence
	status               uint8
	flags                uint8
}

const (
	flagContent uint8 = 1 << iota
	flagExecutable
	flagEncrypted
	flagImplied // a directory that no entry named
	flagRepeats // path and entry kind stand more than once
	flagStatus  // the status was given, it does not follow
)

type dirKey struct {
	container Ref
	path      string
}

type notes struct{ place, content []string }

type declared struct {
	ref Ref
	Declared
}

// NewBuilder begins a graph. Its coverage is complete with scope root until SetScope and Incomplete say otherwise.
func NewBuilder(root Root) *Builder {
	b := &Builder{
		dirs: map[dirKey]Ref{}, nameIndex: map[string]uint16{"": 0}, names: []string{""}, limited: map[string]struct{}{},
		coverage: Coverage{Scope: ScopeRoot, Status: CoverageComplete}, pulse: func() {},
	}
	content := root.Content
	if content == "" {
		content = root.Format
	}
	entry := EntryFile
	if root.Format == FormatDirectory {
		entry = EntryDirectory
	}
	r := row{path: rootPath, declared: -1, compressed: -1, offset: -1, length: -1}
	r.entry = uint8(index(entryKinds, entry))
	r.place = formatIndex(root.Format)
	r.media, r.architecture = b.name(root.MediaType), b.name(root.Architecture)
	r.set(flagExecutable, root.Executable)
	b.rows.add(r)
	b.SetFormat(0, content)
	b.row(0).place = formatIndex(root.Format)
	for _, text := range root.Limitations {
		b.AddLimitation(0, text)
	}
	return b
}

func (r *row) set(flag uint8, on bool) {
	if on {
		r.flags |= flag
	}
}

func (r *row) has(flag uint8) bool { return r.flags&flag != 0 }

func (r *row) kindOfEntry() EntryKind { return entryKinds[r.entry] }

func (b *Builder) row(ref Ref) *row { return b.rows.at(int(ref)) }

// formatIndex stores a format; one that is not of the closed set is unknown.
func formatIndex(f Format) uint8 {
	if i := index(formats, f); i >= 0 {
		return uint8(i)
	}
	return uint8(index(formats, FormatUnknown))
}

// maxNames bounds the distinct media types and architectures: a few dozen exist. What comes later is null.
const maxNames = 1024

func (b *Builder) name(s string) uint16 {
	i, ok := b.nameIndex[s]
	if !ok && len(b.names) < maxNames {
		i = uint16(len(b.names))
		b.names = append(b.names, s)
		b.nameIndex[s] = i
	}
	return i
}

// OnPulse makes the graph call f again and again while it is sealed and written: with MaxEntries on a busy host that
// takes minutes, and nothing else is to be seen of it.
func (b *Builder) OnPulse(f func()) { b.pulse = f }

// Add puts one entry in. Parent directories that no entry names are made. Entries that share path and entry kind get
// ordinals in the order in which they are added; a directory that was made and is then added is that one. Errors are
// ErrFull and ErrPath; after one, no entry was added.
func (b *Builder) Add(e Entry) (Ref, error) {
	if err := b.admit(e); err != nil {
		return 0, err
	}
	path := b.keep(e.Path)
	parent, err := b.directory(e.Container, path[:max(strings.LastIndexByte(path, '/'), 0)])
	if err != nil {
		return 0, err
	}
	ref, ok := b.implied(e, path)
	if !ok {
		if b.full(1, len(path)) {
			return 0, ErrFull
		}
		b.pathBytes += len(path)
		ref = Ref(b.rows.add(row{path: path, container: e.Container, parent: parent}))
		if e.EntryKind == EntryDirectory {
			b.enter(e.Container, path, ref)
		}
	}
	b.fill(ref, e)
	return ref, nil
}

// admit checks what an entry is before anything is kept.
func (b *Builder) admit(e Entry) error {
	if !plainPath(e.Path) || int(e.Container) >= b.rows.len() {
		return fmt.Errorf("%w: %.200q", ErrPath, e.Path)
	}
	if e.Container != 0 {
		above := b.row(e.Container).path
		if len(e.Path) <= len(above)+1 || e.Path[:len(above)] != above || e.Path[len(above)] != '/' {
			return fmt.Errorf("%w: %.200q is not below %.200q", ErrPath, e.Path, above)
		}
	}
	return nil
}

// full reports whether n more entries with paths of so many bytes do not fit.
func (b *Builder) full(n, bytes int) bool {
	return b.rows.len()+n > MaxEntries || b.pathBytes+bytes > MaxPathBytes
}

// plainPath reports whether a logical path is relative, of plain components and short enough.
func plainPath(path string) bool {
	if path == "" || path == rootPath || len(path) > MaxPath || !utf8.ValidString(path) || strings.ContainsAny(path, "\\\x00") {
		return false
	}
	for part := range strings.SplitSeq(path, "/") {
		if part == "" || part == "." || part == ".." {
			return false
		}
	}
	return true
}

// pathBlock is how many path bytes are allocated at once.
const pathBlock = 64 << 10

// keep copies a path next to others, so that a million of them are a few thousand allocations.
func (b *Builder) keep(path string) string {
	if b.paths.Cap()-b.paths.Len() < len(path) {
		b.paths = strings.Builder{}
		b.paths.Grow(pathBlock)
	}
	start := b.paths.Len()
	b.paths.WriteString(path)
	return b.paths.String()[start:]
}

// directory finds or makes the directory that an entry of container stands in; "" and the container's own path are
// the container. Missing ancestors are made from the outside in.
func (b *Builder) directory(container Ref, path string) (Ref, error) {
	inside := ""
	if container != 0 {
		inside = b.row(container).path
	}
	var missing []string
	at, bytes := container, 0
	for path != inside && path != "" {
		if ref, ok := b.dirs[dirKey{container, path}]; ok {
			at = ref
			break
		}
		missing = append(missing, path)
		bytes += len(path)
		path = path[:max(strings.LastIndexByte(path, '/'), 0)]
	}
	if b.full(len(missing)+1, bytes) {
		return 0, ErrFull
	}
	b.pathBytes += bytes
	for _, path := range slices.Backward(missing) {
		r := row{path: path, container: container, parent: at, flags: flagImplied, offset: -1, length: -1}
		r.format = formatIndex(FormatDirectory)
		r.place, r.kind = r.format, b.directoryKind(at, path)
		at = Ref(b.rows.add(r))
		b.enter(container, path, at)
	}
	return at, nil
}

// directoryKind is Role for a directory. Below another directory it follows from that one's, so that a deep path is not
// read again for each of its components.
func (b *Builder) directoryKind(in Ref, path string) uint8 {
	above := b.row(in)
	if above.kindOfEntry() == EntryDirectory && !inFramework(path[strings.LastIndexByte(path, '/')+1:]) {
		return uint8(index(kinds, directoryRoles[kinds[above.kind] == KindFramework]))
	}
	return uint8(index(kinds, Role(path, FormatDirectory)))
}

// directoryRoles are the roles of a directory, by whether it stands in a framework.
var directoryRoles = map[bool]Kind{true: KindFramework, false: KindContainer}

// enter makes a directory the one that entries below its path stand in, unless there is one.
func (b *Builder) enter(container Ref, path string, ref Ref) {
	key := dirKey{container, path}
	if _, ok := b.dirs[key]; !ok {
		b.dirs[key] = ref
	}
}

// implied finds the directory that was made before the entry that names it came.
func (b *Builder) implied(e Entry, path string) (Ref, bool) {
	if e.EntryKind != EntryDirectory {
		return 0, false
	}
	ref, ok := b.dirs[dirKey{e.Container, path}]
	if !ok || !b.row(ref).has(flagImplied) {
		return 0, false
	}
	b.row(ref).flags &^= flagImplied
	return ref, true
}

// fill takes over what an entry says.
func (b *Builder) fill(ref Ref, e Entry) {
	r := b.row(ref)
	r.entry = uint8(max(index(entryKinds, e.EntryKind), 0))
	r.declared, r.compressed, r.offset, r.length = e.DeclaredSize.value(), e.CompressedSize.value(), -1, -1
	if e.Source != nil && SizeOf(e.Source.Offset).known && SizeOf(e.Source.Length).known {
		r.offset, r.length = e.Source.Offset, e.Source.Length
	}
	r.set(flagExecutable, e.Executable)
	r.set(flagEncrypted, e.Encrypted)
	r.media, r.architecture = b.name(e.MediaType), b.name(e.Architecture)
	if r.kindOfEntry() == EntryDirectory {
		r.declared, r.compressed, e.Format, e.Content = 0, 0, FormatDirectory, nil
	}
	b.SetFormat(ref, e.Format)
	if e.Kind != "" {
		r.kind = uint8(max(index(kinds, e.Kind), 0))
	}
	if e.OccurrenceFormat != "" {
		r.place = formatIndex(e.OccurrenceFormat)
	}
	if e.Content != nil {
		b.SetContent(ref, *e.Content)
	}
	if e.HashStatus != "" {
		b.SetHashStatus(ref, e.HashStatus)
	}
	if e.Declared != nil {
		b.declared = append(b.declared, declared{ref, *e.Declared})
	}
	for _, text := range e.Limitations {
		b.AddLimitation(ref, text)
	}
	for _, text := range e.NodeLimitations {
		n := b.noted(ref)
		n.content = appendNote(n.content, text)
	}
}

// SetContent sets the content of an entry (0: the root) whose bytes were read after it was added.
func (b *Builder) SetContent(ref Ref, c Content) {
	r := b.row(ref)
	r.content, r.size = c.SHA256, c.Size
	r.flags |= flagContent
	if ref == 0 {
		r.declared = SizeOf(c.Size).value()
	}
}

// SetFormat sets the content format of an entry that was recognised after it was added, with the role and the
// occurrence format that follow from it and the path. "" is unknown.
func (b *Builder) SetFormat(ref Ref, f Format) {
	r := b.row(ref)
	r.format = formatIndex(f)
	f = formats[r.format]
	r.place = formatIndex(OccurrenceFormat(r.path, f))
	kind := Role(r.path, f)
	if r.kindOfEntry() == EntrySlice {
		kind = KindUniversalSlice
	}
	r.kind = uint8(index(kinds, kind))
}

// SetHashStatus overrides what follows from content and declared digest. An entry that is then neither verified nor
// mismatched has no content, even if some was set: its bytes were read and do not count. A directory's is fixed.
func (b *Builder) SetHashStatus(ref Ref, s HashStatus) {
	r := b.row(ref)
	r.status = uint8(max(index(hashStatuses, s), 0))
	r.flags |= flagStatus
}

// Bounds of the limitations of one place or content, which keep an element below MaxElement.
const (
	maxNotes     = 16
	maxNoteBytes = 4 << 10
)

// AddLimitation adds to the limitations of an entry's place.
func (b *Builder) AddLimitation(ref Ref, text string) {
	n := b.noted(ref)
	n.place = appendNote(n.place, text)
}

func (b *Builder) noted(ref Ref) *notes {
	r := b.row(ref)
	if r.notes == 0 {
		b.notes = append(b.notes, notes{})
		r.notes = uint32(len(b.notes))
	}
	return &b.notes[r.notes-1]
}

func (b *Builder) notesOf(ref Ref) notes {
	if n := b.row(ref).notes; n > 0 {
		return b.notes[n-1]
	}
	return notes{}
}

// appendNote adds a limitation within the bounds; the last one says that there were more.
func appendNote(list []string, text string) []string {
	switch {
	case slices.Contains(list, text) || len(list) >= maxNotes:
		return list
	case len(list) == maxNotes-1:
		return append(list, "More limitations were observed here than are listed.")
	}
	return append(list, clip(text, maxNoteBytes))
}

// clip makes text valid UTF-8 of at most limit bytes, and marks a cut.
func clip(text string, limit int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= limit {
		return text
	}
	cut := limit - len("…")
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "…"
}

// MaxRegions bounds the regions of one container; a reader names in a limitation what does not fit.
const MaxRegions = 1000

// AddContainer says how an expanded container arranges its members (see Arrangement). OccurrenceID is filled in from
// ref when the graph is sealed; a second statement about the same entry is ignored.
func (b *Builder) AddContainer(ref Ref, c Container) {
	c.Regions = c.Regions[:min(len(c.Regions), MaxRegions)]
	b.containers = append(b.containers, c)
	b.arranged = append(b.arranged, ref)
}

// Limit adds a limitation of the whole inventory, in the order of calls; one that is already there is not repeated.
// Past MaxLimitations, or MaxLimitationBytes, one last text says that there were more.
func (b *Builder) Limit(text string) {
	text = clip(text, maxNoteBytes)
	if _, ok := b.limited[text]; ok || b.limitsFull {
		return
	}
	b.limited[text] = struct{}{}
	b.limitBytes += len(text)
	if len(b.limitations) == MaxLimitations-1 || b.limitBytes > MaxLimitationBytes-maxNoteBytes {
		text, b.limitsFull = "More limitations were observed than are listed.", true
	}
	b.limitations = append(b.limitations, text)
}

// Incomplete makes coverage unknown.
func (b *Builder) Incomplete() { b.coverage.Status = CoverageUnknown }

// SetScope says what was set out to be seen.
func (b *Builder) SetScope(s Scope) { b.coverage.Scope = s }

// AddProvenance names a tool that took part.
func (b *Builder) AddProvenance(p Provenance) { b.provenance = append(b.provenance, p) }

// Len is the number of occurrences so far, the root and made directories included.
func (b *Builder) Len() int { return b.rows.len() }

// OccurrenceID is the identity of an entry of a sealed graph.
func (b *Builder) OccurrenceID(ref Ref) string {
	return id(prefixOccurrence, b.sealed.occurrences[ref])
}

// ArtifactID is the identity of an entry's content in a sealed graph, "" where it has none.
func (b *Builder) ArtifactID(ref Ref) string {
	if !b.row(ref).has(flagContent) {
		return ""
	}
	return id(prefixArtifact, b.sealed.artifacts[ref])
}

// Mismatched reports whether an entry's bytes contradict their declared digest. The graph is sealed.
func (b *Builder) Mismatched(ref Ref) bool { return hashStatuses[b.row(ref).status] == HashMismatched }

// Finish seals the graph, where that was not done, and writes the inventory result as canonical JSON.
func (b *Builder) Finish(ctx context.Context, w io.Writer) (Manifest, error) {
	m, err := b.Seal(ctx)
	if err != nil {
		return m, err
	}
	e := b.encoder(ctx, w)
	b.writeInventory(e)
	return m, e.flush()
}

// encoder is an encoder that tells how the work goes on.
func (b *Builder) encoder(ctx context.Context, w io.Writer) *encoder {
	e := newEncoder(ctx, w)
	e.pulse = b.pulse
	return e
}

// mistake is a reader's error that no input should be able to cause.
func mistake(format string, args ...any) error {
	return fault.New(fault.ExecutionFailure, "The artifact graph could not be built: "+fmt.Sprintf(format, args...)+".",
		"Report it with the target's format; other targets are not affected.")
}
