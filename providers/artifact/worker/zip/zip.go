// Package zip reads zip archives as an observer: every central-directory entry in order, where its bytes lie, and
// every place where the archive contradicts itself. It follows APPNOTE.TXT 6.3 (zip64 included).
//
// It exists beside archive/zip because that package hides what matters here: bytes before, between and behind the
// members, names that repeat, flags that lie, local headers that disagree. Input is hostile: nothing is allocated
// from a size that the archive claims, and one bad entry leaves its siblings readable. Package zip must not decide
// what a disagreement means for coverage, nor decompress.
package zip

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
)

// Compression methods that this project reads.
const (
	Stored   = 0
	Deflated = 8
)

// Bits of the general purpose flags.
const (
	FlagEncrypted  = 1 << 0
	FlagDescriptor = 1 << 3 // sizes and CRC stand behind the data
	FlagUTF8       = 1 << 11
)

const (
	localSignature      = 0x04034b50
	centralSignature    = 0x02014b50
	endSignature        = 0x06054b50
	end64Signature      = 0x06064b50
	locatorSignature    = 0x07064b50
	descriptorSignature = 0x08074b50

	localSize   = 30
	centralSize = 46
	endSize     = 22
	end64Size   = 56
	locatorSize = 20

	maxComment = 1<<16 - 1
	// maxTail bounds how far before the end of the file an end record is looked for: the longest comment plus bytes
	// that something appended to the archive, such as a signature block.
	maxTail = 1 << 20
	// maxCandidates bounds how many signatures of end records are examined: each costs a read, and a hostile comment
	// can hold thousands.
	maxCandidates = 64
	// maxEntryHeader is the longest central header: three 16-bit lengths behind the fixed part.
	maxEntryHeader = centralSize + 3*maxComment

	extraZip64 = 0x0001
)

// ErrFormat says that a file is not a zip archive, or not one whose directory can be found.
var ErrFormat = errors.New("not a zip archive")

// Archive is an archive whose end record was found and whose directory begins where that says.
type Archive struct {
	r    io.ReaderAt
	size int64 // of the file

	Base      int64  // added to every recorded offset: length of a prefix that the archive does not know of
	Directory int64  // where the central directory begins in the file
	Length    int64  // length of the central directory in bytes, as recorded
	Count     uint64 // entries, as recorded
	Records   int64  // where the end records begin: zip64 records if present, else the end record
	End       int64  // first byte behind the end record and its comment
	Zip64     bool
	Volumes   uint32 // of a split archive, whose last volume this is; 1 for every other
	Comment   []byte
	Ambiguous bool // another end record further ahead is plausible too: other programs may see other members
}

// Open finds the end record and the central directory of a file of the given size.
func Open(r io.ReaderAt, size int64) (*Archive, error) {
	for _, window := range []int64{endSize + maxComment, maxTail} {
		a, err := open(r, size, min(size, window))
		if a != nil || err != nil {
			return a, err
		}
		if size <= window {
			break
		}
	}
	return nil, ErrFormat
}

// open looks for an end record in the last window bytes of the file; the last one that leads to a directory counts. A
// further one whose bytes overlap the archive so found makes it ambiguous; one that ends before the directory begins
// belongs to a member.
func open(r io.ReaderAt, size, window int64) (found *Archive, err error) {
	tail := make([]byte, window)
	start := size - window
	if n, err := r.ReadAt(tail, start); n < len(tail) {
		return nil, err
	}
	i := len(tail)
	for range maxCandidates {
		if i = bytes.LastIndex(tail[:i], []byte("PK\x05\x06")); i < 0 {
			break
		}
		if len(tail)-i < endSize {
			continue
		}
		a := candidate(r, size, tail[i:], start+int64(i))
		switch {
		case a == nil:
		case found == nil:
			found = a
		case a.End > found.Directory:
			found.Ambiguous = true
			return found, nil
		}
	}
	return found, nil
}

// HasEnd reports whether an end record without comment closes the file: a cheap sign of an archive behind a prefix.
func HasEnd(r io.ReaderAt, size int64) bool {
	var b [endSize]byte
	if size < endSize {
		return false
	}
	if _, err := r.ReadAt(b[:], size-endSize); err != nil && err != io.EOF {
		return false
	}
	return binary.LittleEndian.Uint32(b[:]) == endSignature && b[20] == 0 && b[21] == 0
}

// candidate examines one end record at pos; b holds the file from there to its end. It returns nil where the record
// does not lead to a directory.
func candidate(r io.ReaderAt, size int64, b []byte, pos int64) *Archive {
	le := binary.LittleEndian
	comment := int(le.Uint16(b[20:]))
	if endSize+comment > len(b) {
		return nil
	}
	a := &Archive{
		r: r, size: size, Records: pos, End: pos + endSize + int64(comment),
		Count:   uint64(le.Uint16(b[10:])),
		Length:  int64(le.Uint32(b[12:])),
		Volumes: 1,
	}
	if disk := le.Uint16(b[4:]); disk != 0xffff {
		a.Volumes += uint32(disk)
	}
	offset := int64(le.Uint32(b[16:]))
	if a.Count == 0xffff || a.Length == 0xffffffff || offset == 0xffffffff {
		if o, ok := a.readZip64(pos); ok {
			offset = o
		}
	}
	if a.Length < 0 || offset < 0 || !a.place(offset) {
		return nil
	}
	a.Comment = bytes.Clone(b[endSize : endSize+comment])
	return a
}

// readZip64 replaces the figures of the end record at pos by those of the zip64 end record, if there is one, and
// returns the directory's recorded offset.
func (a *Archive) readZip64(pos int64) (offset int64, ok bool) {
	le := binary.LittleEndian
	var loc [locatorSize]byte
	if pos < locatorSize+end64Size || !a.read(loc[:], pos-locatorSize) || le.Uint32(loc[:]) != locatorSignature {
		return 0, false
	}
	var b [end64Size]byte
	// As recorded first; directly before the locator where a prefix has moved everything.
	for _, at := range []int64{int64(le.Uint64(loc[8:])), pos - locatorSize - end64Size} {
		if at < 0 || at > pos-locatorSize-end64Size || !a.read(b[:], at) || le.Uint32(b[:]) != end64Signature {
			continue
		}
		a.Zip64, a.Records = true, at
		a.Count = le.Uint64(b[32:])
		a.Length = int64(le.Uint64(b[40:]))
		return int64(le.Uint64(b[48:])), true
	}
	return 0, false
}

// place decides where the directory is: directly before the end records, which tells how much the recorded offsets
// are off, or else exactly where they say.
func (a *Archive) place(offset int64) bool {
	at := a.Records - a.Length
	if at >= 0 && at >= offset && a.begins(at) {
		a.Directory, a.Base = at, at-offset
		return true
	}
	if offset <= a.Records-a.Length && a.begins(offset) {
		a.Directory, a.Base = offset, 0
		return true
	}
	return false
}

// begins reports whether a central header, or for an empty directory nothing, stands at an offset.
func (a *Archive) begins(at int64) bool {
	if a.Length == 0 {
		return a.Count == 0 && at == a.Records
	}
	var b [4]byte
	return a.Length >= centralSize && a.read(b[:], at) && binary.LittleEndian.Uint32(b[:]) == centralSignature
}

func (a *Archive) read(b []byte, at int64) bool {
	n, err := a.r.ReadAt(b, at)
	return n == len(b) && (err == nil || err == io.EOF)
}

// Entry is one entry of the central directory.
type Entry struct {
	Name           []byte // as recorded
	Flags          uint16
	Method         uint16
	MadeBy         uint8 // host system of the external attributes
	CRC32          uint32
	CompressedSize uint64
	Size           uint64
	Offset         uint64 // of the local header, as recorded
	Attributes     uint32 // external
	Volume         uint16 // of a split archive, in which the local header is; the first one is 0
	Comment        int    // length of the entry's comment
}

// Host systems whose external attributes hold a Unix mode in the upper half.
const (
	hostUnix   = 3
	hostDarwin = 19
)

// Mode is the Unix mode, 0 where the entry has none.
func (e *Entry) Mode() uint32 {
	if e.MadeBy != hostUnix && e.MadeBy != hostDarwin {
		return 0
	}
	return e.Attributes >> 16
}

// IsDir reports whether the entry is a directory: by its name, as every program decides it.
func (e *Entry) IsDir() bool { return len(e.Name) > 0 && e.Name[len(e.Name)-1] == '/' }

// IsSymlink reports whether the entry's data is the target of a symbolic link.
func (e *Entry) IsSymlink() bool { return e.Mode()&0o170000 == 0o120000 }

// Entries reads the central directory in order. Entry and its Name are valid until the next turn. A directory that
// breaks off or holds another number of entries than recorded ends with an error that wraps ErrFormat; the entries
// before it stand.
func (a *Archive) Entries() iter.Seq2[*Entry, error] {
	return func(yield func(*Entry, error) bool) {
		length := a.Records - a.Directory
		br := bufio.NewReaderSize(io.NewSectionReader(a.r, a.Directory, length), maxEntryHeader)
		var e Entry
		var n uint64
		var used int64
		for used < a.Length {
			size, err := e.parse(br)
			if err != nil {
				yield(nil, fmt.Errorf("%w: entry %d of the central directory: %w", ErrFormat, n, err))
				return
			}
			if !yield(&e, nil) {
				return
			}
			used += int64(size)
			n++
		}
		// A count of 16 bits wraps where zip64 should have been used and was not.
		if n != a.Count && (a.Zip64 || n&0xffff != a.Count) {
			yield(nil, fmt.Errorf("%w: the directory holds %d entries and its end record says %d", ErrFormat, n, a.Count))
		}
	}
}

var errHeader = errors.New("no central header")

// parse reads the next central header and returns its length.
func (e *Entry) parse(br *bufio.Reader) (int, error) {
	le := binary.LittleEndian
	b, err := br.Peek(centralSize)
	if err != nil {
		return 0, io.ErrUnexpectedEOF
	}
	if le.Uint32(b) != centralSignature {
		return 0, errHeader
	}
	name, extra, comment := int(le.Uint16(b[28:])), int(le.Uint16(b[30:])), int(le.Uint16(b[32:]))
	size := centralSize + name + extra + comment
	b, err = br.Peek(size)
	if err != nil {
		return 0, io.ErrUnexpectedEOF
	}
	*e = Entry{
		Name:           append(e.Name[:0], b[centralSize:centralSize+name]...),
		MadeBy:         b[5],
		Flags:          le.Uint16(b[8:]),
		Method:         le.Uint16(b[10:]),
		CRC32:          le.Uint32(b[16:]),
		CompressedSize: uint64(le.Uint32(b[20:])),
		Size:           uint64(le.Uint32(b[24:])),
		Offset:         uint64(le.Uint32(b[42:])),
		Attributes:     le.Uint32(b[38:]),
		Volume:         le.Uint16(b[34:]),
		Comment:        comment,
	}
	e.widen(b[centralSize+name : centralSize+name+extra])
	_, _ = br.Discard(size) // peeked: cannot fail
	return size, nil
}

// widen takes the 64-bit figures from the zip64 extra field: those, in this order, whose 32-bit form is all ones.
func (e *Entry) widen(extra []byte) {
	le := binary.LittleEndian
	for len(extra) >= 4 {
		id, n := le.Uint16(extra), int(le.Uint16(extra[2:]))
		extra = extra[4:]
		if n > len(extra) {
			return
		}
		field := extra[:n]
		extra = extra[n:]
		if id != extraZip64 {
			continue
		}
		for _, v := range []*uint64{&e.Size, &e.CompressedSize, &e.Offset} {
			if *v == 0xffffffff && len(field) >= 8 {
				*v = le.Uint64(field)
				field = field[8:]
			}
		}
		return
	}
}

// Data is where an entry's bytes lie in the file.
type Data struct {
	Header int64 // local header
	Start  int64 // first byte of the compressed data
	Length int64 // of the compressed data
	End    int64 // behind the data and its descriptor
	// Disagreement names how the local header contradicts the directory, "" where it does not.
	Disagreement string
}

// Locate reads the local header of an entry. An error wraps ErrFormat and names values: the header or the data lies
// outside the file, or no local header stands there.
func (a *Archive) Locate(e *Entry) (Data, error) {
	at := uint64(a.Base) + e.Offset
	if at < e.Offset || at > uint64(a.size)-min(uint64(a.size), localSize) {
		return Data{}, fmt.Errorf("%w: local header at %d lies outside the file of %d bytes", ErrFormat, at, a.size)
	}
	d := Data{Header: int64(at)}
	le := binary.LittleEndian
	// One read for the header and, if it is as long as it should be, the name.
	b := make([]byte, min(localSize+int64(len(e.Name)), a.size-d.Header))
	if !a.read(b, d.Header) || le.Uint32(b) != localSignature {
		return Data{}, fmt.Errorf("%w: no local header at %d", ErrFormat, at)
	}
	name, extra := int64(le.Uint16(b[26:])), int64(le.Uint16(b[28:]))
	d.Start = d.Header + localSize + name + extra
	if d.Start > a.size || e.CompressedSize > uint64(a.size-d.Start) {
		return Data{}, fmt.Errorf("%w: %d bytes of data at %d lie outside the file of %d bytes", ErrFormat, e.CompressedSize, d.Start, a.size)
	}
	d.Length = int64(e.CompressedSize)
	d.End = d.Start + d.Length
	d.Disagreement = disagreement(e, b, name)
	if le.Uint16(b[6:])&FlagDescriptor != 0 {
		d.End += a.descriptor(e, d.End)
	}
	return d, nil
}

// disagreement compares a local header b, and the name behind it, with the directory.
func disagreement(e *Entry, b []byte, nameLen int64) string {
	le := binary.LittleEndian
	if nameLen != int64(len(e.Name)) {
		return fmt.Sprintf("name of %d bytes, directory %d", nameLen, len(e.Name))
	}
	if name := b[localSize:]; !bytes.Equal(name, e.Name) {
		return fmt.Sprintf("name %q, directory %q", name, e.Name)
	}
	if m := le.Uint16(b[8:]); m != e.Method {
		return fmt.Sprintf("method %d, directory %d", m, e.Method)
	}
	if le.Uint16(b[6:])&FlagDescriptor != 0 {
		return "" // CRC and sizes stand behind the data
	}
	if crc := le.Uint32(b[14:]); crc != e.CRC32 {
		return fmt.Sprintf("CRC %08x, directory %08x", crc, e.CRC32)
	}
	for _, f := range []struct {
		what  string
		local uint32
		want  uint64
	}{{"compressed size", le.Uint32(b[18:]), e.CompressedSize}, {"size", le.Uint32(b[22:]), e.Size}} {
		if f.local != 0xffffffff && uint64(f.local) != f.want {
			return fmt.Sprintf("%s %d, directory %d", f.what, f.local, f.want)
		}
	}
	return ""
}

// descriptor is the length of the data descriptor at an offset, 0 where none is recognised: with or without its
// signature, with sizes of four or eight bytes.
func (a *Archive) descriptor(e *Entry, at int64) int64 {
	le := binary.LittleEndian
	var buf [24]byte
	n, _ := a.r.ReadAt(buf[:min(int64(len(buf)), max(0, a.size-at))], at)
	b := buf[:n]
	head := int64(0)
	if len(b) >= 4 && le.Uint32(b) == descriptorSignature {
		b, head = b[4:], 4
	}
	if len(b) < 12 || le.Uint32(b) != e.CRC32 {
		return head
	}
	if len(b) >= 20 && le.Uint64(b[4:]) == e.CompressedSize && le.Uint64(b[12:]) == e.Size {
		return head + 20
	}
	if uint64(le.Uint32(b[4:])) == e.CompressedSize && uint64(le.Uint32(b[8:])) == e.Size {
		return head + 12
	}
	return head
}
