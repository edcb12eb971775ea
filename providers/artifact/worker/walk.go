package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"iter"
	"maps"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"rea/evidence/fault"
	"rea/providers/artifact"
	"rea/providers/artifact/worker/zip"
)

// walk is one traversal of a target. Members are read by several goroutines and committed by one, in order, so that the
// same target gives the same graph and meets the same guards.
type walk struct {
	ctx       context.Context
	operation string
	policy    artifact.Policy
	scratch   func() (string, error)
	progress  func(phase, path string, entries, bytes int64)
	stderr    io.Writer

	graph   *artifact.Builder // nil while files are written
	record  *recording        // nil unless files will be written afterwards
	extract *extraction       // nil unless files are written

	rootBytes int64        // of the target, as far as it was read; written between members only
	produced  atomic.Int64 // bytes that committed members gave
	entries   atomic.Int64
	bytes     atomic.Int64
	opened    uint32 // containers
	stopped   atomic.Bool
	first     *hit // the first guard that was met

	mismatches int64
	seed       maphash.Seed
	folded     map[uint64]uint64 // of folded paths: of the path that was first
	collisions []string
	collided   int64
	closedKind map[artifact.Format]bool // formats met inside that have no reader
}

// errStopped ends reading below a guard that stopped the traversal. It never leaves the walk.
var errStopped = errors.New("the traversal was stopped by a guard")

// errReader says that a reader failed in a way that no input should cause.
var errReader = errors.New("its reader failed")

// container is one container being read.
type container struct {
	w          *walk
	src        *source
	ref        artifact.Ref
	path       string // logical path, "." for the root
	base       string // name to derive an inner name from
	depth      int
	number     uint32
	next       uint32
	stream     bool // members come once, in order, and cannot be read again
	names      *artifact.Arrangement
	comment    *[32]byte
	regions    []artifact.Region
	companions companions
}

// add gives the next member of c: its path and its place.
func (c *container) add(m *member, parts [][]byte) *member {
	name, plain := escapePath(parts)
	return c.named(m, name, plain, parts)
}

func (c *container) named(m *member, name string, plain bool, parts [][]byte) *member {
	m.name, m.path = name, name
	if c.path != rootPath {
		m.path = c.path + "/" + name
	}
	if !plain {
		recorded := make([]byte, 0, len(name))
		for i, p := range parts {
			if i > 0 {
				recorded = append(recorded, '/')
			}
			recorded = append(recorded, p...)
		}
		m.notes = append(m.notes, notPlain+quote(recorded)+".")
		m.awkward = true
	}
	m.place = place{c.number, c.next}
	c.next++
	if m.kind == "" {
		m.kind = artifact.EntryFile
	}
	if x := c.w.extract; x != nil {
		_, m.write = x.wanted[m.place]
		_, into := x.numbers[m.place]
		m.skip = !m.write && !into
	}
	return m
}

// stored says that m's bytes stand in the container as they are.
func (c *container) stored(m *member, offset, length int64) {
	src := c.src
	m.compressed = length
	m.source = &artifact.Range{Offset: offset, Length: length}
	m.section = io.NewSectionReader(src, offset, length)
	m.open = func() (io.ReadCloser, error) { return io.NopCloser(io.NewSectionReader(src, offset, length)), nil }
}

const (
	rootPath = "."
	notPlain = "Its recorded name is not a plain relative path; it is shown escaped and never written: "
)

// each reads the members of seq with several goroutines and commits them in order. An error of seq comes after the
// members before it were committed.
func (c *container) each(seq iter.Seq2[*member, error]) error {
	var owned sync.WaitGroup
	defer owned.Wait()
	queue, work := make(chan *member, window), make(chan *member, window)
	var failed atomic.Bool
	for range max(1, runtime.GOMAXPROCS(0)) {
		owned.Go(func() {
			buf := make([]byte, copyBuffer)
			for m := range work {
				if !failed.Load() {
					c.observe(m, buf)
				}
				close(m.done)
			}
		})
	}
	var ended error
	owned.Go(func() {
		defer close(queue)
		defer close(work)
		defer func() {
			if r := recover(); r != nil {
				_, _ = fmt.Fprintf(c.w.stderr, "rea-worker: panic while %s was listed: %v\n%s", quote([]byte(c.path)), r, debug.Stack())
				ended = errReader
			}
		}()
		for m, err := range seq {
			if err != nil {
				ended = err
				return
			}
			m.done = make(chan struct{})
			work <- m
			queue <- m
			if failed.Load() {
				return
			}
		}
	})
	var err error
	for m := range queue { // to the end, whatever happened: every member is released
		<-m.done
		if err == nil {
			err = c.commit(m)
		}
		if m.plain && errors.Is(err, errStopped) {
			err = nil // the target's own tree is read to its end for its digest
		}
		if rerr := m.release(); err == nil {
			err = rerr
		}
		failed.Store(err != nil)
	}
	if err == nil {
		err = ended // written before queue was closed
	}
	return err
}

// one reads and commits a member of a stream.
func (c *container) one(m *member, buf []byte) error {
	c.observe(m, buf)
	err := c.commit(m)
	if rerr := m.release(); err == nil {
		err = rerr
	}
	return err
}

func (m *member) release() error {
	m.spooled.release()
	m.spooled, m.head = nil, nil
	if m.finish == nil {
		return nil
	}
	return m.finish()
}

// total holds the bytes produced so far, and n more, against the guard on all of them.
func (w *walk) total(n int64, path string) *hit {
	limit := maxProduced + maxProducedFactor*w.rootBytes
	if sum := w.produced.Load() + n; sum > limit {
		return &hit{"produced-bytes", limit, sum, path}
	}
	return nil
}

// commit puts a member that was read into the graph, or its bytes into the answer, and goes into it.
func (c *container) commit(m *member) error {
	w := c.w
	switch {
	case m.fatal != nil:
		return m.fatal
	case w.stopped.Load():
		return errStopped
	case w.extract != nil:
		return w.extract.commit(c, m)
	}
	if m.resolve != nil {
		m.resolve(m)
	}
	if m.omitted != "" {
		w.omit(m.path, m.omitted)
		return nil
	}
	if c.names != nil {
		c.names.Add(m.name, m.method)
	}
	if len(m.path) > maxPath {
		w.meet(&hit{"path-bytes", maxPath, int64(len(m.path)), strings.ToValidUTF8(m.path[:shownPath], "") + "…"})
		return nil
	}
	if !m.plain && m.read {
		if m.limit = w.total(m.content.Size, m.path); m.limit != nil {
			m.read = false
		}
		w.produced.Add(m.content.Size)
	}
	m.sound(c)
	if err := w.mismatch(m); err != nil {
		return err
	}
	ref, err := w.graph.Add(m.entry(c))
	switch {
	case errors.Is(err, artifact.ErrFull):
		return w.stop(&hit{"entries", artifact.MaxEntries, artifact.MaxEntries + 1, m.path})
	case err != nil:
		return err
	}
	w.note(m, ref)
	if m.limit != nil {
		w.graph.AddLimitation(ref, m.limit.String())
		w.meet(m.limit)
		if m.limit.guard == "produced-bytes" {
			return w.stop(m.limit)
		}
		return nil
	}
	return c.enter(m, ref)
}

// meet records a guard that was met: the inventory goes on without what it kept out.
func (w *walk) meet(h *hit) {
	if w.first == nil {
		w.first = h
	}
	if w.graph != nil {
		w.graph.Limit(h.String())
		w.graph.Incomplete()
	}
}

// stop ends the traversal with what was read. The files of the target's own tree are still hashed for its digest.
func (w *walk) stop(h *hit) error {
	w.meet(h)
	w.stopped.Store(true)
	return errStopped
}

// sound settles what could not be known before: an archive behind other bytes, and what its claim makes of a member.
func (m *member) sound(c *container) {
	if !m.read || m.format != artifact.FormatFile || string(m.end[:4]) != "PK\x05\x06" || m.end[20] != 0 || m.end[21] != 0 {
		return
	}
	src := m.atHand()
	if src == nil {
		return
	}
	if _, err := zip.Open(src, src.size); err == nil {
		m.format = artifact.FormatZip
	}
}

// atHand gives the bytes of a member that was read, to be read at random; nil where that would mean to unpack it again.
func (m *member) atHand() *source {
	switch {
	case m.section != nil:
		return &source{ReaderAt: m.section, size: m.content.Size}
	case m.spooled != nil:
		return m.spooled
	case m.content.Size <= int64(len(m.head)):
		return headSource(m)
	}
	return nil
}

// mismatch applies the policy to declared digests.
func (w *walk) mismatch(m *member) error {
	if !m.read || m.digest == nil || m.digest.SHA256 == m.content.SHA256 {
		return nil
	}
	m.opaque = true
	w.mismatches++
	if w.policy == artifact.PolicyRecord {
		return nil
	}
	message := fmt.Sprintf("The bytes of %s do not have the digest that its archive declares for them.", quote([]byte(m.path)))
	action := "Check where the artifact comes from; to look at it all the same, repeat the call with integrity_policy record-and-continue."
	if m.digest.Unpacked {
		message += " Packagers often sign or strip unpacked companions after the header was written, and Electron does not check them when it runs."
		action = "If the companion was changed after packing, repeat the call with integrity_policy record-and-continue."
	}
	return fault.New(fault.ArtifactIntegrityMismatch, message, action).WithAll(fault.Details{
		"operation": w.operation, "reason": "integrity", "logical_path": m.path, "unpacked": m.digest.Unpacked,
		"declared_sha256": fmt.Sprintf("%x", m.digest.SHA256), "calculated_sha256": fmt.Sprintf("%x", m.content.SHA256),
	})
}

// entry is what the graph keeps of a member.
func (m *member) entry(c *container) artifact.Entry {
	e := artifact.Entry{
		Path: m.path, Container: c.ref, EntryKind: m.kind, Executable: m.executable, Encrypted: m.encrypted,
		DeclaredSize: artifact.SizeOf(m.declared), CompressedSize: artifact.SizeOf(m.compressed), Source: m.source,
		Architecture: m.architecture, Limitations: m.notes,
	}
	switch {
	case m.kind == artifact.EntrySymlink:
		e.HashStatus = artifact.HashNotHashed
		e.Limitations = append(e.Limitations, m.linkNote())
	case m.kind == artifact.EntryDirectory:
	case m.limit != nil:
		e.HashStatus = artifact.HashNotHashed
	case m.problem != "":
		e.HashStatus = artifact.HashUnavailable
	case m.read:
		e.Content, e.Format, e.Declared = &m.content, m.format, m.digest
	case m.known != nil:
		e.Content, e.Format = m.known, m.format
	}
	if m.problem != "" {
		e.Limitations = append(e.Limitations, m.problem)
	}
	return e
}

// linkNote says where a symbolic link leads.
func (m *member) linkNote() string {
	if m.problem != "" || m.linkCut || m.linkData && !m.read {
		return artifact.LinkUnknown
	}
	return artifact.LinkTarget(quote(m.link))
}

// advance counts a member that is done with, and says how far the walk is.
func (w *walk) advance(m *member) {
	w.progress(w.phase(), m.path, w.entries.Add(1), w.bytes.Add(m.content.Size))
}

// pulse says that a long reading goes on: n bytes of path, beside what is done with.
func (w *walk) pulse(path string, n int64) {
	w.progress(w.phase(), path, w.entries.Load(), w.bytes.Load()+n)
}

func (w *walk) phase() string {
	if w.extract != nil {
		return "extract"
	}
	return "inventory"
}

// note keeps what a committed member means for the inventory as a whole.
func (w *walk) note(m *member, ref artifact.Ref) {
	w.advance(m)
	if m.problem != "" || m.incomplete {
		w.graph.Incomplete()
	}
	if m.kind != artifact.EntryDirectory {
		w.collide(m.path)
	}
	if w.record != nil {
		w.record.add(m, ref)
	}
}

// collide notices paths that differ by case only.
func (w *walk) collide(path string) {
	folded := fold(path)
	key, own := maphash.String(w.seed, folded), maphash.String(w.seed, path)
	before, seen := w.folded[key]
	if !seen {
		w.folded[key] = own
		return
	}
	if before != own {
		w.collided++
		if len(w.collisions) < maxNamed {
			w.collisions = append(w.collisions, quote([]byte(path)))
		}
	}
}

// enter goes into a member that is a container.
func (c *container) enter(m *member, ref artifact.Ref) error {
	w := c.w
	if !m.read || m.opaque || m.kind == artifact.EntrySlice && m.format != artifact.FormatMachOUniversal {
		return nil
	}
	format := readAs(m.path, m.format, m.head)
	if readerOf(format) == nil {
		if format.Container() {
			w.closedKind[format] = true
		} else if format.Executable() || bytes.HasPrefix(m.head, []byte("#!")) {
			if text := carries(m.atHand(), format); text != "" {
				w.graph.AddLimitation(ref, text)
			}
		}
		return nil
	}
	if c.depth+1 > maxNesting {
		h := &hit{"nesting", maxNesting, int64(c.depth + 1), m.path}
		w.graph.AddLimitation(ref, h.String())
		w.meet(h)
		return nil
	}
	sub, err := c.open(m, ref, w.opened)
	w.opened++
	if err != nil {
		return err
	}
	if sub == nil {
		w.graph.AddLimitation(ref, noRoom)
		w.graph.Incomplete()
		return nil
	}
	if w.record != nil {
		w.record.enter(m, sub.number, format)
	}
	err = sub.read(format)
	if sub.src != m.spooled {
		sub.src.release()
	}
	var h *hit
	if errors.As(err, &h) {
		w.graph.AddLimitation(ref, h.String())
		w.meet(h)
		return nil
	}
	if refused := closedError(w.ctx, err); refused != "" {
		w.graph.AddLimitation(ref, "It is a container and could not be opened: "+refused+".")
		w.graph.Incomplete()
		return nil
	}
	return err
}

// open makes a container of a member. It is nil where its bytes find no room to be read at random.
func (c *container) open(m *member, ref artifact.Ref, number uint32) (*container, error) {
	sub := &container{w: c.w, ref: ref, path: m.path, base: m.path, depth: c.depth + 1, number: number, companions: m.companions}
	switch {
	case m.section != nil:
		sub.src = &source{ReaderAt: m.section, size: m.content.Size}
	case m.spooled != nil:
		sub.src = m.spooled
	case m.content.Size <= int64(len(m.head)):
		sub.src = headSource(m)
	case c.stream:
		return nil, nil // its bytes are gone
	default:
		src, err := c.unpack(m)
		if src == nil {
			return nil, err
		}
		sub.src = src
	}
	return sub, nil
}

// unpack decodes a compressed member once more, into a spool.
func (c *container) unpack(m *member) (*source, error) {
	r, err := m.open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	s := &spool{scratch: c.w.scratch}
	buf := make([]byte, copyBuffer)
	for {
		if err := context.Cause(c.w.ctx); err != nil {
			s.drop()
			return nil, err
		}
		n, err := r.Read(buf)
		if _, werr := s.Write(buf[:n]); werr != nil {
			s.drop()
			return nil, nil
		}
		if err == io.EOF {
			return s.source(), nil
		}
		if err != nil {
			s.drop()
			return nil, err
		}
	}
}

// read runs the format's reader and keeps how the container arranges its members.
func (c *container) read(format artifact.Format) error {
	if c.w.graph != nil {
		c.names = artifact.NewArrangement()
	}
	err := readerOf(format)(c)
	if errors.Is(err, errStopped) {
		err = nil
	}
	if err == nil && c.names != nil {
		c.w.graph.AddContainer(c.ref, c.names.Container(c.comment, c.regions))
	}
	return err
}

// partial says that a container was read in part.
func (c *container) partial(text string) {
	if c.w.graph != nil {
		c.note(text)
		c.w.graph.Incomplete()
	}
}

// note adds a limitation to the container's place.
func (c *container) note(text string) {
	if c.w.graph != nil {
		c.w.graph.AddLimitation(c.ref, text)
	}
}

// closedError is why a container could not be opened, "" where err is nil or ends the operation.
func closedError(ctx context.Context, err error) string {
	var f *fault.Error
	if err == nil || errors.As(err, &f) || context.Cause(ctx) != nil {
		return ""
	}
	return reason(err)
}

func headSource(m *member) *source {
	return &source{ReaderAt: bytes.NewReader(m.head[:m.content.Size]), size: m.content.Size}
}

// listed joins the first of many names.
func listed(names []string, total int64) string {
	text := strings.Join(names, ", ")
	if total > int64(len(names)) {
		text += fmt.Sprintf(" and %d more", total-int64(len(names)))
	}
	return text
}

func sortedFormats(set map[artifact.Format]bool) string {
	var names []string
	for _, f := range slices.Sorted(maps.Keys(set)) {
		names = append(names, string(f))
	}
	return strings.Join(names, ", ")
}

// conclude says what concerns the inventory as a whole.
func (w *walk) conclude() {
	if w.mismatches > 0 {
		w.graph.Limit(fmt.Sprintf("Integrity contradictions were recorded: %d; the bytes of these entries were not looked into.", w.mismatches))
	}
	if w.collided > 0 {
		w.graph.Limit(fmt.Sprintf("%d paths differ from another one by case only, both were read; a case-insensitive file system could not hold them: %s.",
			w.collided, listed(w.collisions, w.collided)))
	}
	if len(w.closedKind) > 0 {
		w.graph.Limit("Entries of these formats inside the artifact were not looked into, no reader knows them: " + sortedFormats(w.closedKind) + ".")
	}
}
