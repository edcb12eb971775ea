package worker

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"runtime/debug"

	"rea/evidence/fault"
	"rea/evidence/target"
	"rea/providers/artifact"
	"rea/providers/artifact/worker/dmg"
)

// member is one entry of a container on its way into the graph. The reader of the format sets the first part; read
// fills in what was observed; commit takes both.
type member struct {
	path       string // logical path from the root
	name       string // the part of path below the container
	kind       artifact.EntryKind
	executable bool
	encrypted  bool  // the container says so; cleared where the bytes prove otherwise
	declared   int64 // size that the container states, -1 for none
	compressed int64 // stored size that the container states, -1 for none
	source     *artifact.Range
	method     string // how the container stores it, for the container's record
	link       []byte // recorded target of a symbolic link
	linkData   bool   // the link's target is the member's data
	linkCut    bool   // the link's target is longer than is kept
	notes      []string
	problem    string // why there are no bytes; coverage is then unknown
	missing    bool   // the problem is that the bytes lie elsewhere and are not there
	awkward    bool   // its name is not plain
	incomplete bool   // something of it was left out, although its bytes were read
	closed     bool   // for lack of permission
	opaque     bool   // it is not to be opened although its bytes are a container
	plain      bool   // a file of the target's own tree: no guard applies to its bytes

	digest    *artifact.Declared // declared by the container
	blockSize int64              // of declared block digests
	blocks    [][32]byte
	known     *artifact.Content // content that needs no reading: of a hard link

	architecture string

	// open begins to read the bytes; nil where there are none. section reads the same bytes at random where they are
	// stored as they are.
	open    func() (io.ReadCloser, error)
	section io.ReaderAt
	// check judges what was read, "" when it is sound. It may add notes.
	check func(m *member) string
	// resolve is called when all members before m are committed.
	resolve func(m *member)
	// finish is called when the member is done with, whatever became of it.
	finish func() error
	// companions finds unpacked companions of the member, if it turns out to be an ASAR.
	companions companions

	place place
	skip  bool          // nothing of it is wanted
	write bool          // its bytes are wanted as a file
	done  chan struct{} // closed when it was read
	// omitted is the kind of an entry that is no occurrence because it is never opened; "" for every other.
	omitted target.Kind

	// Observed.
	read    bool // to the end, or size 0
	content artifact.Content
	crc     uint32
	head    []byte // the first headSize bytes
	end     [endSize]byte
	trailed bool // it ends as a disk image does
	format  artifact.Format
	limit   *hit
	spooled *source // the bytes, kept while they were read from a stream that cannot be read again
	fatal   error   // ends the operation
}

// hasBytes reports whether a tar member is a file of its own bytes.
func (m *member) hasBytes() bool {
	return m.kind == artifact.EntryFile && m.problem == "" && m.resolve == nil && m.omitted == ""
}

// endSize is how many last bytes of a member are kept: an end record of a zip archive without comment.
const endSize = 22

// place identifies a member without its bytes: the container's number in the order of opening, and the member's number
// in its container.
type place struct{ container, index uint32 }

// unavailable is the error of opening bytes that are not there.
type unavailable struct{ reason string }

func (u unavailable) Error() string { return u.reason }

// observe reads m's bytes and keeps what they are. It runs beside other members' and survives a decoder's panic.
func (c *container) observe(m *member, buf []byte) {
	defer func() {
		if r := recover(); r != nil {
			_, _ = fmt.Fprintf(c.w.stderr, "rea-worker: panic while %s was read: %v\n%s", quote([]byte(m.path)), r, debug.Stack())
			m.read, m.problem = false, "Its decoder failed."
		}
	}()
	if m.open == nil || m.problem != "" || m.skip {
		return
	}
	r, err := m.open()
	if err != nil {
		m.failed(c.w.ctx, err)
		return
	}
	defer r.Close()
	err = c.consume(m, r, buf)
	switch {
	case errors.Is(err, io.EOF):
		m.read = true
		m.recognise()
	case err != nil:
		m.failed(c.w.ctx, err)
	}
	if m.encrypted && m.problem != "" {
		m.problem = isEncrypted
	}
}

// isEncrypted is said of a member whose bytes do not decode and whose container says that they are encrypted.
const isEncrypted = "It is encrypted; its bytes were not read."

// failed sorts an error of opening or reading a member.
func (m *member) failed(ctx context.Context, err error) {
	var f *fault.Error
	var u unavailable
	switch {
	case context.Cause(ctx) != nil:
		m.fatal = context.Cause(ctx)
	case errors.As(err, &m.limit):
	case errors.As(err, &f):
		m.fatal = err
	case errors.As(err, &u):
		m.problem, m.missing = u.reason, true
	default:
		m.problem = fmt.Sprintf("Its data cannot be decoded behind %d bytes: %s.", m.content.Size, reason(err))
	}
}

// consume reads to the end, which is io.EOF, or to the first error or guard.
func (c *container) consume(m *member, r io.Reader, buf []byte) error {
	out, err := c.output(m)
	if err != nil {
		return err
	}
	defer out.abort()
	sum := sha256.New()
	blocks := newBlocks(m)
	told := int64(0)
	var last tail
	for {
		if err := context.Cause(c.w.ctx); err != nil {
			return err
		}
		n, err := r.Read(buf)
		if p := buf[:n]; n > 0 {
			sum.Write(p)
			m.content.Size += int64(n)
			m.crc = crc32.Update(m.crc, crc32.IEEETable, p)
			m.keep(p)
			last.keep(p)
			blocks.write(p)
			if h := c.guard(m); h != nil {
				return h
			}
			if err := out.write(m, p); err != nil {
				return err
			}
		}
		if m.content.Size-told >= pulseBytes {
			told = m.content.Size
			c.w.pulse(m.path, told)
		}
		if err == nil {
			continue
		}
		if err != io.EOF {
			return err
		}
		sum.Sum(m.content.SHA256[:0])
		copy(m.end[:], last[len(last)-endSize:])
		m.trailed = dmg.Is(last[:])
		blocks.end(m)
		if err := out.close(m); err != nil {
			return err
		}
		return io.EOF
	}
}

// keep holds on to the first bytes.
func (m *member) keep(p []byte) {
	if room := headSize - len(m.head); room > 0 {
		m.head = append(m.head, p[:min(room, len(p))]...)
	}
}

// tail is a member's last bytes so far: what the trailer of a disk image takes.
type tail [dmg.TrailerSize]byte

func (t *tail) keep(p []byte) {
	if len(p) >= len(t) {
		copy(t[:], p[len(p)-len(t):])
		return
	}
	copy(t[:], t[len(p):])
	copy(t[len(t)-len(p):], p)
}

// guard holds what m has produced so far against the guards. What other members in flight produce does not count here:
// commit decides the total, in order.
func (c *container) guard(m *member) *hit {
	n := m.content.Size
	if m.plain {
		return nil
	}
	if n > maxEntryBytes {
		return &hit{"entry-bytes", maxEntryBytes, n, m.path}
	}
	if m.compressed >= 0 && n > ratioFrom && n/maxRatio > m.compressed {
		return &hit{"compression-ratio", maxRatio, n / max(m.compressed, 1), m.path}
	}
	return c.w.total(n, m.path)
}

// recognise decides the content's format and whether the bytes are sound.
func (m *member) recognise() {
	if m.check != nil {
		if m.problem = m.check(m); m.problem != "" {
			m.read = false
			return
		}
	}
	m.format = contentFormat(m.head, m.content.Size)
	if m.trailed && underTrailer(m.format) {
		m.format = artifact.FormatDMG
	}
	if m.linkData {
		if m.content.Size > maxLink {
			m.linkCut = true
			m.notes = append(m.notes, fmt.Sprintf("Its link target has %d bytes, and at most %d are read.", m.content.Size, maxLink))
			return
		}
		m.link = bytes.Clone(m.head)
	}
}

// blocks verifies declared block digests while a member is read.
type blocks struct {
	size, left int64
	h          hash.Hash
	sums       [][32]byte
	limit      int
}

// newBlocks returns nil, which does nothing, where there is nothing to verify. A file of one block needs no second
// digest: its block is the file.
func newBlocks(m *member) *blocks {
	if m.blockSize <= 0 || len(m.blocks) < 2 {
		return nil
	}
	return &blocks{size: m.blockSize, left: m.blockSize, h: sha256.New(), limit: len(m.blocks)}
}

func (b *blocks) write(p []byte) {
	if b == nil {
		return
	}
	for len(p) > 0 && len(b.sums) <= b.limit {
		n := min(int64(len(p)), b.left)
		b.h.Write(p[:n])
		p = p[n:]
		if b.left -= n; b.left == 0 {
			b.next()
		}
	}
}

func (b *blocks) next() {
	b.sums = append(b.sums, [32]byte(b.h.Sum(nil)))
	b.h.Reset()
	b.left = b.size
}

// end compares. A block that differs is a mismatch of the file; a list of another length says nothing about bytes.
func (b *blocks) end(m *member) {
	if m.digest == nil || m.digest.SHA256 != m.content.SHA256 {
		return // there is nothing to verify, or the file's own digest has already failed
	}
	var sums [][32]byte
	switch {
	case b == nil && len(m.blocks) == 1:
		sums = [][32]byte{m.content.SHA256}
	case b == nil:
		return
	default:
		if b.left < b.size {
			b.next()
		}
		sums = b.sums
	}
	if count := blockCount(m.content.Size, m.blockSize); count != int64(len(m.blocks)) {
		m.notes = append(m.notes, fmt.Sprintf("It has %d block digests where %d blocks are; they were not verified.", len(m.blocks), count))
		return
	}
	for i, want := range m.blocks {
		if i < len(sums) && sums[i] != want {
			m.digest.Limitation = fmt.Sprintf("The digest of the whole file is as declared; block %d has %x and its declared digest is %x.", i, sums[i], want)
			m.digest.SHA256 = want
			return
		}
	}
}

func blockCount(size, block int64) int64 {
	if block <= 0 {
		return 1
	}
	return max(1, (size-1)/block+1)
}

// reason is an error's text for a limitation: bounded, without paths of the container.
func reason(err error) string {
	const longest = 300
	s := err.Error()
	if errors.Is(err, io.ErrUnexpectedEOF) {
		s = "it ends early"
	}
	if len(s) > longest {
		s = s[:longest] + "…"
	}
	return s
}
