package worker

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"

	"github.com/klauspost/compress/flate"

	"rea/evidence/fault"
	"rea/providers/artifact"
	"rea/providers/artifact/worker/zip"
)

// readZip reads the zip family by its central directory.
func readZip(c *container) error {
	a, err := zip.Open(c.src, c.src.size)
	if err != nil {
		return c.firstVolume(err)
	}
	z := &zipReader{c: c, a: a}
	err = c.each(z.members())
	if errors.Is(err, zip.ErrFormat) {
		c.partial("Its central directory is broken; the members before that point were read: " + reason(err) + ".")
		err = nil
	}
	if err != nil || c.names == nil {
		return err
	}
	return z.describe()
}

// firstVolume makes the error of an archive without directory a limitation, where the archive says by its first bytes that
// it is split: its directory is in the last volume.
func (c *container) firstVolume(err error) error {
	var mark [4]byte
	if n, _ := c.src.ReadAt(mark[:], 0); n < len(mark) || string(mark[:]) != "PK\x07\x08" || !errors.Is(err, zip.ErrFormat) {
		return err
	}
	c.partial("It is the first volume of a split archive, whose directory is in the last one; its members were not read.")
	return nil
}

// zipReader keeps what is needed of a zip archive while its members are read.
type zipReader struct {
	c    *container
	a    *zip.Archive
	used []extent // byte ranges of members, in directory order
	// index finds members by name, for unpacked companions; made on first use.
	once  sync.Once
	index map[string]zip.Entry
}

type extent struct{ start, end int64 }

func (z *zipReader) members() iter.Seq2[*member, error] {
	return func(yield func(*member, error) bool) {
		for e, err := range z.a.Entries() {
			if err != nil {
				yield(nil, err)
				return
			}
			if !yield(z.member(e), nil) {
				return
			}
		}
	}
}

func (z *zipReader) member(e *zip.Entry) *member {
	m := &member{
		declared: exact(e.Size), compressed: exact(e.CompressedSize), method: methodName(e.Method),
		executable: e.Mode()&0o111 != 0 && !e.IsDir() && !e.IsSymlink(), encrypted: e.Flags&zip.FlagEncrypted != 0,
	}
	name := bytes.Clone(e.Name)
	if e.IsDir() {
		m.kind, m.encrypted = artifact.EntryDirectory, false
		name = name[:len(name)-1]
	}
	z.c.add(m, split(name))
	if hasSuffix(m.path, ".asar") {
		m.companions = z.inside(append(name[:len(name):len(name)], companionSuffix+"/"...))
	}
	d, err := z.a.Locate(e)
	if err == nil {
		z.used = append(z.used, extent{d.Header, d.End})
	}
	if m.kind == artifact.EntryDirectory {
		return m
	}
	if e.IsSymlink() {
		m.kind, m.linkData = artifact.EntrySymlink, true
	}
	switch {
	case err != nil && z.a.Volumes > 1 && uint32(e.Volume) != z.a.Volumes-1:
		m.problem = fmt.Sprintf("Its data begins in volume %d of %d; this is the last one.", e.Volume+1, z.a.Volumes)
	case err != nil:
		m.problem = "Its data cannot be found: " + reason(err) + "."
	case d.Disagreement != "":
		m.problem = "Its local header disagrees with the central directory: " + d.Disagreement + "."
	case e.Method == methodAES && m.encrypted:
		m.problem = isEncrypted
	case !hasMethod(e.Method):
		m.problem = unreadMethod(e.Method)
	case e.Method == zip.Stored && e.Size != e.CompressedSize && !m.encrypted:
		m.problem = fmt.Sprintf("It is stored, with %d bytes declared and %d bytes present.", e.Size, e.CompressedSize)
	default:
		z.attach(m, *e, d)
	}
	return m
}

// attach says how the member's bytes are read.
func (z *zipReader) attach(m *member, e zip.Entry, d zip.Data) {
	crc, size := e.CRC32, e.Size
	m.open = func() (io.ReadCloser, error) { return z.decode(m, e, d) }
	if e.Method == zip.Stored {
		m.section = io.NewSectionReader(z.c.src, d.Start, d.Length)
	}
	m.check = func(m *member) string {
		switch {
		case uint64(m.content.Size) != size:
			return fmt.Sprintf("Its declared size is contradicted: %d bytes declared, %d observed.", size, m.content.Size)
		case m.crc != crc:
			return fmt.Sprintf("Its declared CRC-32 is contradicted: %08x declared, %08x observed.", crc, m.crc)
		}
		if m.encrypted {
			m.encrypted = false
			m.notes = append(m.notes, "Its flags say that it is encrypted, but its bytes are plain: they have the declared size and CRC-32.")
		}
		if m.linkData {
			m.open, m.section = nil, nil
		}
		return ""
	}
}

// decode reads a member's data. m may be nil.
func (z *zipReader) decode(m *member, e zip.Entry, d zip.Data) (io.ReadCloser, error) {
	raw := io.NewSectionReader(z.c.src, d.Start, d.Length)
	switch e.Method {
	case zip.Stored:
		return io.NopCloser(raw), nil
	case zip.Deflated:
		return newInflater(m, raw), nil
	}
	return openMethod(e, raw)
}

// inflater decodes deflated data and notices bytes behind the stream's end. Most members are small: those are read in one
// piece, out of which the decoder is faster.
type inflater struct {
	m     *member
	raw   *io.SectionReader
	in    *bufio.Reader
	piece *bytes.Reader // nil while in is read
	dec   io.ReadCloser // of in or of piece

	stream, small io.ReadCloser
	bytes         bytes.Reader
	buf           []byte
}

// inflateInput is how much compressed data is read at once.
const inflateInput = 64 << 10

var inflaters = sync.Pool{New: func() any {
	f := &inflater{in: bufio.NewReaderSize(nil, inflateInput), buf: make([]byte, inflateInput)}
	f.stream, f.small = flate.NewReader(f.in), flate.NewReader(&f.bytes)
	return f
}}

func newInflater(m *member, raw *io.SectionReader) *inflater {
	f := inflaters.Get().(*inflater)
	f.m, f.raw = m, raw
	if f.fetch() {
		f.piece, f.dec = &f.bytes, f.small
		_ = f.dec.(flate.Resetter).Reset(f.piece, nil) // cannot fail without a dictionary
		return f
	}
	f.in.Reset(raw)
	f.piece, f.dec = nil, f.stream
	_ = f.dec.(flate.Resetter).Reset(f.in, nil)
	return f
}

// fetch reads a small member in one piece. Where that fails, reading it as a stream says why.
func (f *inflater) fetch() bool {
	if f.raw.Size() > inflateInput {
		return false
	}
	data := f.buf[:f.raw.Size()]
	if n, _ := f.raw.ReadAt(data, 0); n < len(data) {
		return false
	}
	f.bytes.Reset(data)
	return true
}

// Read implements io.Reader.
func (f *inflater) Read(p []byte) (int, error) {
	n, err := f.dec.Read(p)
	if err == io.EOF && f.m != nil {
		if left := f.left(); left > 0 {
			f.m.notes = append(f.m.notes, fmt.Sprintf("%d bytes stand behind the end of its compressed data.", left))
		}
		f.m = nil
	}
	return n, err
}

// left is how many bytes the decoder did not take.
func (f *inflater) left() int64 {
	if f.piece != nil {
		return int64(f.piece.Len())
	}
	position, _ := f.raw.Seek(0, io.SeekCurrent)
	return f.raw.Size() - position + int64(f.in.Buffered())
}

// Close gives the decoder back.
func (f *inflater) Close() error {
	f.m, f.raw = nil, nil
	inflaters.Put(f)
	return nil
}

// exact is a size as the graph takes it, -1 where it is too large to be true.
func exact(n uint64) int64 {
	if n > artifact.MaxInteger {
		return -1
	}
	return int64(n)
}

// describe says what stands outside the members, and what of the archive is ambiguous.
func (z *zipReader) describe() error {
	c, a := z.c, z.a
	c.w.graph.Limit("Of zip archives, only what the central directory names are occurrences.")
	if len(a.Comment) > 0 {
		sum := sha256.Sum256(a.Comment)
		c.comment = &sum
	}
	if a.Volumes > 1 {
		c.note(fmt.Sprintf("Its end record says that it is the last of %d volumes.", a.Volumes))
	}
	if a.Ambiguous {
		c.note("More than one end record leads to a directory; the last one was read, and other programs may see other members.")
	}
	overlaps, err := c.outside(append(z.used, extent{a.Directory, a.Directory + a.Length}, extent{a.Records, a.End}))
	if overlaps > 0 {
		c.note(fmt.Sprintf("%d of its members share bytes with others or with the directory.", overlaps))
	}
	return err
}

// region digests a byte range that belongs to no member. An empty one is none.
func (c *container) region(role string, start, end int64) error {
	if start >= end || c.w.graph == nil {
		return nil
	}
	if len(c.regions) == maxRegions {
		c.note(fmt.Sprintf("It has more byte ranges outside its members than the %d that are listed.", maxRegions))
		return nil
	}
	sum, err := c.digest(start, end)
	if err != nil {
		return err
	}
	c.regions = append(c.regions, artifact.Region{Role: role, Offset: start, Length: end - start, SHA256: fmt.Sprintf("%x", sum)})
	return nil
}

// digest hashes a byte range of the container.
func (c *container) digest(start, end int64) (sum [32]byte, err error) {
	h := sha256.New()
	buf := make([]byte, min(copyBuffer, end-start))
	r := io.NewSectionReader(c.src, start, end-start)
	for {
		if err := context.Cause(c.w.ctx); err != nil {
			return sum, err
		}
		n, err := r.Read(buf)
		h.Write(buf[:n])
		if err == io.EOF {
			h.Sum(sum[:0])
			return sum, nil
		}
		if err != nil {
			return sum, err
		}
	}
}

// inside finds unpacked companions of an ASAR that is itself a member of this archive. Only an archive that holds an
// ASAR pays for the index.
func (z *zipReader) inside(prefix []byte) companions {
	return func(names [][]byte) (*companion, error) {
		z.once.Do(z.indexNames)
		key := string(prefix) + string(bytes.Join(names, []byte("/")))
		e, ok := z.index[key]
		if !ok {
			return nil, unavailable{noCompanion}
		}
		d, err := z.a.Locate(&e)
		switch {
		case err != nil:
			return nil, unavailable{"Its unpacked companion cannot be found: " + reason(err) + "."}
		case d.Disagreement != "" || e.Flags&zip.FlagEncrypted != 0 || !hasMethod(e.Method):
			return nil, unavailable{"Its unpacked companion cannot be read."}
		}
		r, err := z.decode(nil, e, d)
		if err != nil {
			return nil, err
		}
		return &companion{
			ReadCloser: r, executable: e.Mode()&0o111 != 0,
			check: func(m *member) string {
				if uint64(m.content.Size) != e.Size || m.crc != e.CRC32 {
					return "Its unpacked companion does not have the size and CRC-32 that the archive declares."
				}
				return ""
			},
		}, nil
	}
}

func (z *zipReader) indexNames() {
	z.index = map[string]zip.Entry{}
	for e, err := range z.a.Entries() {
		if err != nil {
			return
		}
		if !e.IsDir() && !e.IsSymlink() && bytes.Contains(e.Name, []byte(companionSuffix+"/")) {
			own := *e
			own.Name = bytes.Clone(e.Name)
			z.index[string(e.Name)] = own
		}
	}
}

// readError turns an error of reading the target itself into the operation's failure.
func readError(operation, path string, err error) error {
	if f := (*fault.Error)(nil); errors.As(err, &f) {
		return err
	}
	return fault.New(fault.ArtifactOperationFailed, "The artifact cannot be read: "+reason(err)+".",
		"Check that the file is whole and of the format that its name says.").
		WithAll(fault.Details{"operation": operation, "reason": "format", "logical_path": path})
}
