package worker

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/klauspost/compress/flate"

	"rea/providers/artifact"
	"rea/providers/artifact/worker/branch"
	"rea/providers/artifact/worker/inflate64"
	"rea/providers/artifact/worker/sevenzip"
)

// Methods of 7z coders (Methods.txt of 7-Zip).
const (
	szCopy      sevenzip.Method = 0x00
	szDelta     sevenzip.Method = 0x03
	szX86       sevenzip.Method = 0x04
	szPPC       sevenzip.Method = 0x05
	szIA64      sevenzip.Method = 0x06
	szARM       sevenzip.Method = 0x07
	szARMT      sevenzip.Method = 0x08
	szSPARC     sevenzip.Method = 0x09
	szARM64     sevenzip.Method = 0x0a
	szRISCV     sevenzip.Method = 0x0b
	szLZMA2     sevenzip.Method = 0x21
	szLZMA      sevenzip.Method = 0x030101
	szPPMd      sevenzip.Method = 0x030401
	szBCJ       sevenzip.Method = 0x03030103
	szBCJ2      sevenzip.Method = 0x0303011b
	szOldPPC    sevenzip.Method = 0x03030205
	szOldIA64   sevenzip.Method = 0x03030401
	szOldARM    sevenzip.Method = 0x03030501
	szOldARMT   sevenzip.Method = 0x03030701
	szOldSPARC  sevenzip.Method = 0x03030805
	szDeflate   sevenzip.Method = 0x040108
	szDeflate64 sevenzip.Method = 0x040109
	szBzip2     sevenzip.Method = 0x040202
	szZstd      sevenzip.Method = 0x04f71101
	szAES       sevenzip.Method = 0x06f10701
)

// szName is how methods are called.
func szName(m sevenzip.Method) string {
	names := map[sevenzip.Method]string{
		szCopy: "copy", szDelta: "delta", szX86: "bcj", szPPC: "ppc", szIA64: "ia64", szARM: "arm", szARMT: "armt", szSPARC: "sparc",
		szARM64: "arm64", szRISCV: "riscv", szLZMA2: "lzma2", szLZMA: "lzma", szPPMd: "ppmd", szBCJ: "bcj", szBCJ2: "bcj2",
		szOldPPC: "ppc", szOldIA64: "ia64", szOldARM: "arm", szOldARMT: "armt", szOldSPARC: "sparc", szDeflate: "deflate",
		szDeflate64: "deflate64", szBzip2: "bzip2", szZstd: "zstd", szAES: "aes",
	}
	if name, ok := names[m]; ok {
		return name
	}
	return fmt.Sprintf("method-%x", uint64(m))
}

// xzBranch is the number of a branch filter in xz, 0 for every other method.
func xzBranch(m sevenzip.Method) byte {
	switch m {
	case szX86, szBCJ:
		return 0x04
	case szPPC, szOldPPC:
		return 0x05
	case szIA64, szOldIA64:
		return 0x06
	case szARM, szOldARM:
		return 0x07
	case szARMT, szOldARMT:
		return 0x08
	case szSPARC, szOldSPARC:
		return 0x09
	}
	return 0
}

// errLocked says that a stream is encrypted.
var errLocked = errors.New("it is encrypted")

// readSevenZip reads 7z archives. Members are read in archive order: most stand one behind another in a block.
func readSevenZip(c *container) error {
	z := &sevenZip{c: c, limit: maxDictionary}
	if c.depth == 0 {
		z.limit = maxRootDictionary // no other window is open
	}
	var err error
	z.a, err = sevenzip.Open(c.src, c.src.size, z.decode)
	if errors.Is(err, errLocked) {
		c.partial("Its header is encrypted: what it holds cannot be said.")
		return nil
	}
	if err != nil {
		return err
	}
	c.stream = true
	defer z.leave()
	if err := z.members(); err != nil || c.w.graph == nil {
		return err
	}
	return z.describe()
}

// sevenZip turns files of a 7z archive into members of the graph.
type sevenZip struct {
	c     *container
	a     *sevenzip.Archive
	limit int64 // of dictionaries

	folder  int // that block decodes, if that is not nil
	block   *solid
	closers []io.Closer
}

func (z *sevenZip) members() error {
	buf := make([]byte, copyBuffer)
	for f, err := range z.a.Entries() {
		if err != nil {
			z.c.partial("It breaks off, and the members before that point were read: " + reason(err) + ".")
			return nil
		}
		m := z.member(f)
		if m == nil {
			continue
		}
		if err := z.c.one(m, buf); err != nil {
			return err
		}
	}
	return nil
}

// member makes a member; nil for the archive's own root.
func (z *sevenZip) member(f *sevenzip.File) *member {
	const typeMask, link = 0o170000, 0o120000
	m := &member{declared: f.Size, compressed: -1, executable: f.Mode()&0o111 != 0 && !f.Directory, method: "empty"}
	name := f.Name
	switch {
	case f.Directory:
		m.kind, m.method = artifact.EntryDirectory, "directory"
		if name = bytes.TrimSuffix(name, []byte("/")); len(name) == 0 {
			return nil
		}
	case f.Anti:
		m.problem = "It has no bytes: it says that a file of its name is to be deleted."
	case f.Folder < 0:
		m.open = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(nil)), nil }
	default:
		z.attach(m, f)
		if f.Mode()&typeMask == link {
			m.kind, m.linkData, m.executable = artifact.EntrySymlink, true, false
		}
	}
	return z.c.add(m, split(name))
}

// attach says how a file's bytes are read.
func (z *sevenZip) attach(m *member, f *sevenzip.File) {
	folder := &z.a.Folders[f.Folder]
	m.method, m.encrypted = chain(folder), folder.Uses(szAES)
	if folder.Size() == f.Size {
		m.compressed = folder.PackedSize()
	}
	if m.problem = z.unread(folder); m.problem != "" {
		return
	}
	m.open = func() (io.ReadCloser, error) {
		z.enter(f.Folder)
		return z.block.member(f.Offset, f.Size)
	}
	m.check = func(m *member) string {
		if f.CRC != nil && m.crc != *f.CRC {
			return fmt.Sprintf("Its declared CRC-32 is contradicted: %08x declared, %08x observed.", *f.CRC, m.crc)
		}
		if m.linkData {
			m.open = nil
		}
		return ""
	}
}

// chain names the methods of a folder in the order of its header.
func chain(f *sevenzip.Folder) string {
	var names []string
	for _, c := range f.Coders {
		names = append(names, szName(c.Method))
	}
	return strings.Join(names, "+")
}

// unread says why a folder's bytes are not read, "" where they are.
func (z *sevenZip) unread(f *sevenzip.Folder) string {
	if f.Uses(szAES) {
		return isEncrypted
	}
	for _, c := range f.Coders {
		if !readsCoder(c.Method) {
			return fmt.Sprintf("Compression method %s is not read.", szName(c.Method))
		}
	}
	return ""
}

func readsCoder(m sevenzip.Method) bool {
	switch m {
	case szCopy, szDelta, szARM64, szLZMA2, szLZMA, szBCJ2, szDeflate, szDeflate64, szBzip2, szZstd:
		return true
	}
	return xzBranch(m) != 0
}

// enter makes a folder the one that is decoded.
func (z *sevenZip) enter(folder int) {
	if z.block != nil && z.folder == folder {
		return
	}
	z.leave()
	f := &z.a.Folders[folder]
	z.folder = folder
	z.block = &solid{c: z.c, packed: f.PackedSize(), open: func() (io.Reader, error) { return f.Open(z.c.src, z.decode) }}
}

// leave ends the decoders of a folder.
func (z *sevenZip) leave() {
	for _, c := range z.closers {
		_ = c.Close() // of a reader: nothing is lost
	}
	z.block, z.closers = nil, nil
}

// decode makes a coder's output of its inputs.
func (z *sevenZip) decode(c sevenzip.Coder, in []io.Reader) (io.Reader, error) {
	switch {
	case c.Method == szBCJ2 && len(in) == 4:
		return branch.BCJ2(in[0], in[1], in[2], in[3]), nil
	case len(in) != 1:
		return nil, fmt.Errorf("%s with %d inputs", szName(c.Method), len(in))
	}
	const input = 64 << 10
	switch r, n := in[0], len(c.Properties); c.Method {
	case szCopy:
		return r, nil
	case szLZMA:
		if n != lzmaProperties {
			return nil, fmt.Errorf("LZMA properties of %d bytes", n)
		}
		return openLZMA(c.Properties, c.Size, z.limit, bufio.NewReaderSize(r, input))
	case szLZMA2:
		if n != 1 {
			return nil, fmt.Errorf("LZMA2 properties of %d bytes", n)
		}
		return openLZMA2(c.Properties[0], c.Size, z.limit, r)
	case szDelta:
		if n != 1 {
			return nil, fmt.Errorf("delta properties of %d bytes", n)
		}
		return openFilter(xzFilter{xzDelta, c.Properties}, r)
	case szARM64:
		return branch.ARM64(r, 0), nil
	case szDeflate:
		return flate.NewReader(bufio.NewReaderSize(r, input)), nil
	case szDeflate64:
		return inflate64.NewReader(bufio.NewReaderSize(r, input)), nil
	case szBzip2:
		return bzip2.NewReader(bufio.NewReaderSize(r, input)), nil
	case szZstd:
		d, err := newZstd(r)
		if err == nil {
			z.closers = append(z.closers, d.IOReadCloser())
		}
		return d, err
	case szAES:
		return nil, errLocked
	default:
		if id := xzBranch(c.Method); id != 0 {
			return openFilter(xzFilter{id, nil}, r)
		}
		return nil, fmt.Errorf("method %s is not read", szName(c.Method))
	}
}

// describe says what stands outside the packed streams and the header.
func (z *sevenZip) describe() error {
	used := []extent{{0, z.a.Start}, {z.a.Header.Start, z.a.Header.Start + z.a.Header.Size}}
	for _, list := range [][]sevenzip.Folder{z.a.Folders, z.a.Nested} {
		for i := range list {
			for _, p := range list[i].Packed {
				used = append(used, extent{p.Start, p.Start + p.Size})
			}
		}
	}
	overlaps, err := z.c.outside(used)
	if overlaps > 0 {
		z.c.note(fmt.Sprintf("%d of its packed streams share bytes with others or with the header.", overlaps))
	}
	return err
}
