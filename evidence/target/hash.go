package target

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"rea/evidence/fault"
)

const (
	// bufferSize is one read: large enough that system calls do not count, small enough to stay in the cache, and the
	// distance between two looks at the context.
	bufferSize = 512 << 10
	// window bounds the files that are open and hashed ahead of the one whose turn it is.
	window = 64
	// maxListed bounds the names of special and unreadable entries that Digest carries; the counts are exact.
	maxListed = 1000
)

// Root is one part of a target: an open descriptor (O_PATH allowed) of a file or a directory, and the name that its
// entries stand under where a target has more than one part.
type Root struct {
	Name string
	File *os.File
	// Unreadable lists paths, as Digest.Unreadable has them, that are taken as unreadable although this process may be
	// able to read them: what the worker, as another user, could not read.
	Unreadable []string
}

// Names of the two parts of a target that is a file with a companion directory.
const (
	MainName      = "artifact"
	CompanionName = "artifact.unpacked"
)

// Parts gives the roots of a target: main, and the companion directory that stands beside it, or nil.
func Parts(main, companion *os.File) []Root {
	if companion == nil {
		return []Root{{File: main}}
	}
	return []Root{{Name: MainName, File: main}, {Name: CompanionName, File: companion}}
}

// Digest identifies a target.
type Digest struct {
	SHA256     string // file: of its bytes; directory or several roots: of the Tree
	FileSHA256 string // of the bytes of the first root where that is a file, else ""
	Bytes      int64  // bytes read
	Entries    int64  // entries of the tree; 1 for a file
	Specials   []Special
	Unreadable []string // escaped paths, in walk order; at most maxListed
	Omitted    int64    // special and unreadable entries beyond those listed
}

// Special is an entry that was not opened.
type Special struct {
	Path string // escaped
	Kind Kind
}

// Hash computes the digest of a target: of one file, of one directory, or of a file with its companion directory. The
// worker computes the same from what it reads. progress may be nil; it is called from one goroutine with running
// totals. Errors are *fault.Error: artifact_changed, access_denied, artifact_operation_failed, or the context's cause.
func Hash(ctx context.Context, roots []Root, progress func(entries, bytes int64)) (Digest, error) {
	return hashAll(ctx, roots, &hasher{tree: NewTree(), progress: progress})
}

func hashAll(ctx context.Context, roots []Root, h *hasher) (Digest, error) {
	for i, r := range roots {
		dir, err := isDir(r.File)
		if err != nil {
			return Digest{}, err
		}
		if dir {
			err = h.directory(ctx, r, len(roots) > 1)
		} else {
			err = h.file(ctx, r, i == 0)
		}
		if err != nil {
			return Digest{}, err
		}
	}
	h.d.Entries = h.tree.Entries()
	h.d.SHA256 = h.tree.Sum()
	if len(roots) == 1 && h.d.FileSHA256 != "" {
		h.d.SHA256 = h.d.FileSHA256
	}
	return h.d, nil
}

func isDir(f *os.File) (bool, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return false, ioFailure("examine", ".", err)
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return true, nil
	case unix.S_IFREG:
		return false, nil
	}
	return false, fault.New(fault.TargetUnavailable, "The target is neither a regular file nor a directory.",
		"Name a regular file or a directory.").With("reason", "not a regular file or directory")
}

// HashBound is Hash where the digest of the first root, a file, is known: it is not read again.
func HashBound(ctx context.Context, roots []Root, file [sha256.Size]byte, progress func(entries, bytes int64)) (Digest, error) {
	return hashAll(ctx, roots, &hasher{tree: NewTree(), progress: progress, known: &file})
}

// hasher collects results in walk order.
type hasher struct {
	d        Digest
	tree     *Tree
	progress func(entries, bytes int64)
	known    *[sha256.Size]byte // digest of the first root
}

func (h *hasher) tell() {
	if h.progress != nil {
		h.progress(h.tree.Entries(), h.d.Bytes)
	}
}

func (h *hasher) file(ctx context.Context, r Root, first bool) error {
	f, err := Open(r.File)
	if err != nil {
		return err
	}
	var sum [sha256.Size]byte
	if first && h.known != nil {
		sum, err = *h.known, f.Close()
	} else {
		sum, err = f.sum(ctx, func(n int64) { h.d.Bytes += n; h.tell() })
	}
	if err != nil {
		return err
	}
	if first {
		h.d.FileSHA256 = hex.EncodeToString(sum[:])
	}
	h.tree.File([]byte(r.Name), f.Info.Size, sum, f.Info.Exec)
	h.tell()
	return nil
}

// directory walks in one goroutine, hashes in several and collects in walk order in the calling one.
func (h *hasher) directory(ctx context.Context, r Root, named bool) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	p := &pipeline{ctx: ctx, queue: make(chan *item, window), work: make(chan *item, window)}
	if named {
		p.prefix = append([]byte(r.Name), '/')
		h.tree.Dir([]byte(r.Name))
	}
	var owned sync.WaitGroup
	for range max(1, runtime.GOMAXPROCS(0)) {
		owned.Go(p.hash)
	}
	owned.Go(func() { p.walk(r) })
	defer owned.Wait()
	var failed error
	for it := range p.queue { // drained to the end even after a failure: every item's file is closed
		<-it.done
		if failed == nil && it.err != nil {
			failed = it.err
			cancel(failed)
		}
		if failed == nil {
			h.collect(it)
		}
	}
	if failed == nil {
		failed = p.err
	}
	return failed
}

func (h *hasher) collect(it *item) {
	switch it.kind {
	case 'd':
		h.tree.Dir(it.path)
	case 'f':
		h.tree.File(it.path, it.file.Info.Size, it.sum, it.file.Info.Exec)
		h.d.Bytes += it.file.Info.Size
	case 'l':
		h.tree.Link(it.path, it.target)
	case 's':
		h.tree.Special(it.path, it.special)
		if len(h.d.Specials) < maxListed {
			h.d.Specials = append(h.d.Specials, Special{Escape(it.path), it.special})
		} else {
			h.d.Omitted++
		}
	case 'u':
		h.tree.Unreadable(it.path)
		if len(h.d.Unreadable) < maxListed {
			h.d.Unreadable = append(h.d.Unreadable, Escape(it.path))
		} else {
			h.d.Omitted++
		}
	}
	h.tell()
}

// item is one entry on its way through the pipeline.
type item struct {
	kind    byte
	path    []byte
	target  []byte
	special Kind
	file    *File
	sum     [sha256.Size]byte
	err     error
	done    chan struct{} // closed when sum or err is set
}

// pipeline is the Visitor of a directory's hashing: it hands files to the hashing goroutines and everything, in order,
// to the collector.
type pipeline struct {
	ctx    context.Context
	prefix []byte
	queue  chan *item // in walk order
	work   chan *item // files only
	err    error      // of the walk, set before queue is closed
}

// ready is the done channel of entries that need no work.
var ready = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

func (p *pipeline) walk(r Root) {
	defer close(p.queue)
	defer close(p.work)
	w := &walker{ctx: p.ctx, v: p, buf: make([]byte, direntBuffer)}
	if len(r.Unreadable) > 0 {
		prefix, closed := Escape(p.prefix), make(map[string]struct{}, len(r.Unreadable))
		for _, path := range r.Unreadable {
			closed[path] = struct{}{}
		}
		w.skip = func(path []byte) bool {
			_, found := closed[prefix+Escape(path)]
			return found
		}
	}
	p.err = w.run(r.File)
}

func (p *pipeline) hash() {
	for it := range p.work {
		it.sum, it.err = it.file.sum(p.ctx, nil)
		close(it.done)
	}
}

func (p *pipeline) add(it *item, path []byte) error {
	it.path = slices.Concat(p.prefix, path)
	if it.done == nil {
		it.done = ready
	}
	p.queue <- it // the collector always drains
	return nil
}

// Dir implements Visitor.
func (p *pipeline) Dir(path []byte) error { return p.add(&item{kind: 'd'}, path) }

// File implements Visitor.
func (p *pipeline) File(path []byte, f *File) error {
	it := &item{kind: 'f', file: f, done: make(chan struct{})}
	p.work <- it
	return p.add(it, path)
}

// Link implements Visitor.
func (p *pipeline) Link(path, target []byte) error {
	return p.add(&item{kind: 'l', target: slices.Clone(target)}, path)
}

// Special implements Visitor.
func (p *pipeline) Special(path []byte, kind Kind) error {
	return p.add(&item{kind: 's', special: kind}, path)
}

// Unreadable implements Visitor.
func (p *pipeline) Unreadable(path []byte, _ bool) error { return p.add(&item{kind: 'u'}, path) }

// sum hashes the whole file and closes it. A file that gives more or fewer bytes than it said has changed. tell may be
// nil; it gets the bytes of each read.
func (f *File) sum(ctx context.Context, tell func(int64)) ([sha256.Size]byte, error) {
	var sum [sha256.Size]byte
	d := sha256.New()
	n, err := f.copy(ctx, d, tell)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return sum, err
	}
	if n != f.Info.Size {
		return sum, Changed(Escape(f.path), "it gave more or fewer bytes than its size")
	}
	d.Sum(sum[:0])
	return sum, nil
}

// copy writes the file's bytes to w, at most one more than its size.
func (f *File) copy(ctx context.Context, w io.Writer, tell func(int64)) (int64, error) {
	buf := buffers.get()
	defer buffers.put(buf)
	var total int64
	for total <= f.Info.Size {
		if err := context.Cause(ctx); err != nil {
			return total, err
		}
		n, err := f.Read(buf)
		if _, werr := w.Write(buf[:n]); werr != nil {
			return total, werr
		}
		total += int64(n)
		if tell != nil && n > 0 {
			tell(int64(n))
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return total, err
		}
	}
	return total, nil
}
