package worker

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"crypto/md5"  //nolint:gosec // a digest that archives declare; nothing is trusted for it
	"crypto/sha1" //nolint:gosec // as above
	"crypto/sha512"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"slices"

	"github.com/klauspost/compress/zlib"
	"github.com/xi2/xz"

	"rea/evidence/target"
	"rea/providers/artifact"
	"rea/providers/artifact/worker/xar"
)

// readXar reads xar archives, among them installer packages, whose payloads are archives in streams and open in place.
func readXar(c *container) error {
	a, err := xar.Open(c.src, c.src.size)
	if err != nil {
		return err
	}
	x := &xarReader{c: c, a: a, used: []extent{{0, a.Heap}}, known: map[string]hardLink{}}
	err = c.each(func(yield func(*member, error) bool) {
		for i := range a.Files {
			if m := x.member(&a.Files[i]); !yield(m, nil) {
				return
			}
		}
	})
	if err != nil {
		return err
	}
	if a.Broken != nil {
		c.partial("Its table breaks off, and the files before that point were read: " + reason(a.Broken) + ".")
	}
	overlaps, err := c.outside(x.used)
	if overlaps > 0 {
		c.note(fmt.Sprintf("%d of its members share bytes with others or with its table.", overlaps))
	}
	return err
}

// xarReader turns files of a xar archive into members of the graph.
type xarReader struct {
	c     *container
	a     *xar.Archive
	used  []extent
	known map[string]hardLink
}

func (x *xarReader) member(f *xar.File) *member {
	m := &member{declared: f.Size, compressed: f.Length, executable: f.Mode&0o111 != 0, method: xarMethod(f.Encoding)}
	switch f.Type {
	case "directory":
		m.kind, m.executable, m.declared, m.compressed, m.method = artifact.EntryDirectory, false, 0, 0, "directory"
	case "symlink":
		m.kind, m.executable, m.declared, m.compressed, m.method = artifact.EntrySymlink, false, -1, -1, "symlink"
		m.link = f.Link
	case "hardlink":
		if f.Of != "original" {
			m.declared, m.compressed, m.method = -1, -1, "hard-link"
			m.resolve = func(m *member) { x.follow(m, f.Of) }
			break
		}
		x.attach(m, f)
	case "fifo", "character special", "block special", "socket":
		m.omitted = map[string]target.Kind{
			"fifo": target.FIFO, "character special": target.Char, "block special": target.Block, "socket": target.Socket,
		}[f.Type]
	default:
		x.attach(m, f)
	}
	return x.c.add(m, x.path(f))
}

// path gives the components of a file's path. It is no deeper than the table.
func (x *xarReader) path(f *xar.File) [][]byte {
	parts := [][]byte{f.Name}
	for p := f.Parent; p >= 0; p = x.a.Files[p].Parent {
		parts = append(parts, x.a.Files[p].Name)
	}
	slices.Reverse(parts)
	return parts
}

// xarMethod names an encoding.
func xarMethod(encoding string) string {
	switch encoding {
	case "", "application/octet-stream":
		return "stored"
	case "application/x-gzip":
		return "zlib"
	case "application/x-bzip2":
		return "bzip2"
	case "application/x-xz":
		return "xz"
	case "application/x-lzma":
		return "lzma"
	}
	return "other"
}

// attach says how a file's bytes are read.
func (x *xarReader) attach(m *member, f *xar.File) {
	m.finish = func() error { x.remember(f, m); return nil }
	if !f.HasData { // an empty file
		m.declared, m.compressed = 0, 0
		m.open = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(nil)), nil }
		return
	}
	src := x.c.src
	if room := src.size - x.a.Heap; f.Offset > room || f.Length > room-f.Offset {
		m.declared, m.compressed = exact(uint64(max(f.Size, 0))), exact(uint64(f.Length))
		m.problem = fmt.Sprintf("Its %d bytes of data at %d of the heap lie outside the file.", f.Length, f.Offset)
		return
	}
	start := x.a.Heap + f.Offset
	x.used = append(x.used, extent{start, start + f.Length})
	x.c.stored(m, start, f.Length)
	if m.method == "other" {
		m.open, m.section = nil, nil
		m.problem = "Its encoding " + quote([]byte(f.Encoding)) + " is not read."
		return
	}
	if m.method != "stored" {
		m.section = nil
		m.open = func() (io.ReadCloser, error) { return openXar(m.method, io.NewSectionReader(src, start, f.Length)) }
	}
	x.verify(m, f)
}

// openXar begins to decode a file.
func openXar(method string, raw io.Reader) (io.ReadCloser, error) {
	const input = 64 << 10
	in := bufio.NewReaderSize(raw, input)
	switch method {
	case "zlib":
		r, err := zlib.NewReader(in)
		return r, noEOF(err)
	case "bzip2":
		return io.NopCloser(bzip2.NewReader(in)), nil
	}
	if mark, _ := in.Peek(6); method == "lzma" && string(mark) != "\xfd7zXZ\x00" {
		var head [lzmaHeader]byte
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return nil, io.ErrUnexpectedEOF
		}
		r, err := openLZMA(head[:], int64(binary.LittleEndian.Uint64(head[lzmaProperties:])), maxDictionary, in)
		return io.NopCloser(r), err
	}
	r, err := xz.NewReader(in, maxDictionary)
	return io.NopCloser(r), noEOF(err)
}

// verify holds size and digest against what the table declares. A SHA-256 is a declared digest like any other; others
// are treated as the sums of other archives are.
func (x *xarReader) verify(m *member, f *xar.File) {
	var h hash.Hash
	want, err := hex.DecodeString(f.Sum.Hex)
	switch {
	case err != nil:
	case f.Sum.Style == "sha256" && len(want) == 32:
		m.digest = &artifact.Declared{SHA256: [32]byte(want)}
	case f.Sum.Style == "sha1":
		h = sha1.New() //nolint:gosec // see the import
	case f.Sum.Style == "sha512":
		h = sha512.New()
	case f.Sum.Style == "md5":
		h = md5.New() //nolint:gosec // see the import
	}
	if h != nil {
		open := m.open
		m.open = func() (io.ReadCloser, error) {
			r, err := open()
			if err != nil {
				return nil, err
			}
			return teed{io.TeeReader(r, h), r}, nil
		}
	}
	m.check = func(m *member) string {
		if f.Size >= 0 && m.content.Size != f.Size {
			return fmt.Sprintf("Its declared size is contradicted: %d bytes declared, %d observed.", f.Size, m.content.Size)
		}
		if h != nil {
			if got := h.Sum(nil); !bytes.Equal(got, want) {
				return fmt.Sprintf("Its declared %s is contradicted: %x declared, %x observed.", f.Sum.Style, want, got)
			}
		}
		return ""
	}
}

// teed reads through a digest.
type teed struct {
	io.Reader
	io.Closer
}

// remember keeps what a file's bytes are, for hard links to it.
func (x *xarReader) remember(f *xar.File, m *member) {
	if m.read && f.Type == "hardlink" && len(x.known) < maxHardLinks {
		x.known[f.ID] = hardLink{m.content, m.format}
	}
}

// follow gives a hard link the content of the file that it names.
func (x *xarReader) follow(m *member, id string) {
	m.notes = append(m.notes, "It is a hard link to the file with the number "+quote([]byte(id))+".")
	known, ok := x.known[id]
	if !ok {
		m.problem, m.missing = "No readable file of that number stands before it.", true
		return
	}
	m.known, m.format = &known.content, known.format
}
