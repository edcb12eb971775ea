// Package sevenzip reads the structure of 7z archives as an observer, as 7zFormat.txt describes it: where the packed
// streams lie, through which coders they go, and which files the results hold.
//
// Counts and sizes are held against the bytes that could carry them before anything is allocated, and names are bytes.
// Package sevenzip must not know how a coder decodes.
package sevenzip

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"

	"rea/providers/artifact/worker/ucs2"
)

const (
	magic      = "7z\xbc\xaf\x27\x1c"
	headSize   = 32
	maxHeader  = 128 << 20 // bytes of a header that is unpacked: a million names of sixty characters
	maxNested  = 4         // headers that pack a header
	maxCoders  = 32        // of one folder, as in 7-Zip
	maxInputs  = 8         // of one coder
	maxStreams = 1 << 21   // files with bytes; each takes memory before the first one is given
	maxSizeBit = 62
)

// Marks of the header's parts.
const (
	kEnd = iota
	kHeader
	kProperties
	kAdditional
	kMain
	kFiles
	kPack
	kUnpack
	kSubStreams
	kSize
	kCRC
	kFolder
	kUnpackSize
	kNumUnpack
	kEmptyStream
	kEmptyFile
	kAnti
	kNames
	kAttributes    = 0x15
	kEncodedHeader = 0x17
)

// ErrFormat says that a file is no 7z archive or that its header is broken.
var ErrFormat = errors.New("not a 7z archive")

func broken(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrFormat, fmt.Sprintf(format, args...))
}

// Method identifies a coder.
type Method uint64

// Coder is one step of a folder. It has one output.
type Coder struct {
	Method     Method
	Properties []byte
	Inputs     int
	Size       int64 // of its output
}

// Extent is a byte range of the file.
type Extent struct{ Start, Size int64 }

// Folder is one unit of packing: streams of the file that go through coders to one stream, which holds files one behind
// another.
type Folder struct {
	Coders []Coder
	Packed []Extent // the streams of the file that it reads
	CRC    *uint32  // of the whole

	main   int   // coder whose output is the folder's
	inputs []int // for each input of each coder: the coder it comes from, or -1 - index into Packed
	files  int   // streams in it
}

// Size is the number of bytes that the folder unpacks to.
func (f *Folder) Size() int64 { return f.Coders[f.main].Size }

// PackedSize is the number of bytes of the file that the folder reads.
func (f *Folder) PackedSize() int64 {
	var n int64
	for _, p := range f.Packed {
		n += p.Size
	}
	return n
}

// Uses reports whether one of the coders is of a method.
func (f *Folder) Uses(m Method) bool {
	for _, c := range f.Coders {
		if c.Method == m {
			return true
		}
	}
	return false
}

// Decode makes a coder's output of its inputs.
type Decode func(c Coder, in []io.Reader) (io.Reader, error)

// Open decodes the folder.
func (f *Folder) Open(r io.ReaderAt, decode Decode) (io.Reader, error) {
	first := make([]int, len(f.Coders)) // index of each coder's first input
	for i := range f.Coders[:len(f.Coders)-1] {
		first[i+1] = first[i] + f.Coders[i].Inputs
	}
	var output func(coder int) (io.Reader, error)
	output = func(coder int) (io.Reader, error) { // no deeper than there are coders: bonds make a tree
		c := f.Coders[coder]
		in := make([]io.Reader, c.Inputs)
		for i := range in {
			from := f.inputs[first[coder]+i]
			if from < 0 {
				p := f.Packed[-1-from]
				in[i] = io.NewSectionReader(r, p.Start, p.Size)
				continue
			}
			var err error
			if in[i], err = output(from); err != nil {
				return nil, err
			}
		}
		out, err := decode(c, in)
		if err != nil {
			return nil, err
		}
		return &exactly{r: out, left: c.Size}, nil
	}
	return output(f.main)
}

// exactly gives the declared number of bytes, whatever follows them.
type exactly struct {
	r    io.Reader
	left int64
}

// Read implements io.Reader.
func (e *exactly) Read(p []byte) (int, error) {
	if e.left == 0 {
		return 0, io.EOF
	}
	n, err := e.r.Read(p[:min(int64(len(p)), e.left)])
	e.left -= int64(n)
	switch {
	case e.left == 0:
		err = nil
	case err == io.EOF:
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// Archive is an archive whose header was read.
type Archive struct {
	Folders []Folder
	Start   int64 // first byte behind the fixed header: where packed streams are counted from
	Header  Extent
	// Nested are the folders of packed headers; they hold no files.
	Nested []Folder

	sizes []int64 // of all streams in all folders
	sums  []sum   // for each of these
	files files
}

type sum struct {
	value uint32
	known bool
}

type files struct {
	count       int
	empty       []byte // bit vectors
	emptyFile   []byte
	anti        []byte
	names       []byte
	attributes  []byte
	attributed  []byte // bit vector; nil where all have attributes
	hasAttr     bool
	emptyMember int // number of files without a stream
}

// Open reads the header of a file of the given size. decode serves to unpack a header that is packed; its error is
// returned as it is.
func Open(r io.ReaderAt, size int64, decode Decode) (*Archive, error) {
	var h [headSize]byte
	if n, err := r.ReadAt(h[:], 0); n < headSize {
		return nil, noEOF(err)
	}
	le := binary.LittleEndian
	if string(h[:6]) != magic {
		return nil, ErrFormat
	}
	if crc32.ChecksumIEEE(h[12:]) != le.Uint32(h[8:]) {
		return nil, broken("its first header has another CRC-32 than it declares")
	}
	a := &Archive{Start: headSize}
	offset, length := le.Uint64(h[12:]), le.Uint64(h[20:])
	if length == 0 {
		return a, nil
	}
	if room := uint64(size - headSize); offset > room || length > room-offset || length > maxHeader {
		return nil, fmt.Errorf("its header of %d bytes lies at %d, past the end of the file: %w", length, offset, io.ErrUnexpectedEOF)
	}
	a.Header = Extent{headSize + int64(offset), int64(length)}
	b := make([]byte, length)
	if n, err := r.ReadAt(b, a.Header.Start); n < len(b) {
		return nil, noEOF(err)
	}
	if crc32.ChecksumIEEE(b) != le.Uint32(h[28:]) {
		return nil, broken("its header has another CRC-32 than it declares")
	}
	return a, a.read(r, size, b, decode)
}

// read reads a header, through as many packed ones as there may be.
func (a *Archive) read(r io.ReaderAt, size int64, b []byte, decode Decode) error {
	for range maxNested {
		p := &parser{b: b, file: size}
		switch mark := p.byte(); {
		case p.err != nil:
			return p.err
		case mark == kHeader:
			a.header(p)
			return p.err
		case mark != kEncodedHeader:
			return broken("mark %#x where its header begins", mark)
		}
		var packed Archive
		packed.streams(p)
		if p.err != nil {
			return p.err
		}
		if len(packed.Folders) != 1 || packed.Folders[0].Size() > maxHeader {
			return broken("its header is packed into %d folders, or unpacks to more than %d bytes", len(packed.Folders), maxHeader)
		}
		f := &packed.Folders[0]
		a.Nested = append(a.Nested, *f)
		unpacked, err := f.Open(r, decode)
		if err != nil {
			return err
		}
		if b, err = io.ReadAll(unpacked); err != nil { //nolint:forbidigo // no more than Size bytes, which is below maxHeader
			return err
		}
		if f.CRC != nil && crc32.ChecksumIEEE(b) != *f.CRC {
			return broken("its unpacked header has another CRC-32 than it declares")
		}
	}
	return broken("its header is packed more than %d times", maxNested)
}

// header reads the parts of a header.
func (a *Archive) header(p *parser) {
	mark := p.byte()
	if mark == kProperties {
		for p.byte() != kEnd && p.err == nil {
			p.take(p.count())
		}
		mark = p.byte()
	}
	if mark == kAdditional {
		var other Archive // streams for fields that no program writes outside the header
		other.streams(p)
		mark = p.byte()
	}
	if mark == kMain {
		a.streams(p)
		mark = p.byte()
	}
	if mark == kFiles {
		a.files.read(p)
		mark = p.byte()
	}
	if mark != kEnd {
		p.fail("mark %#x where its header ends", mark)
	}
}

// streams reads where packed streams lie and what they unpack to.
func (a *Archive) streams(p *parser) {
	var packed []Extent
	mark := p.byte()
	if mark == kPack {
		packed = p.packed()
		mark = p.byte()
	}
	if mark == kUnpack {
		a.Folders = p.folders(packed)
		mark = p.byte()
	}
	for i := range a.Folders {
		a.Folders[i].files = 1
	}
	if mark != kSubStreams {
		a.sub(p, kEnd)
	} else {
		a.sub(p, a.counts(p))
		mark = p.byte()
	}
	if mark != kEnd {
		p.fail("mark %#x where its streams end", mark)
	}
}

// counts reads how many files each folder holds, and returns the mark behind.
func (a *Archive) counts(p *parser) byte {
	mark := p.skipTo(kNumUnpack, kSize, kCRC, kEnd)
	if mark != kNumUnpack {
		return mark
	}
	for i := range a.Folders {
		a.Folders[i].files = p.count()
	}
	return p.skipTo(kSize, kCRC, kEnd)
}

// sub reads the sizes and sums of the files in folders; mark is the first of these parts, which may be missing.
func (a *Archive) sub(p *parser, mark byte) {
	for i := range a.Folders {
		a.divide(p, i, mark)
	}
	if mark == kSize {
		mark = p.skipTo(kCRC, kEnd)
	}
	if mark != kCRC {
		return
	}
	var unknown []*sum
	for i := range a.sums {
		if !a.sums[i].known {
			unknown = append(unknown, &a.sums[i])
		}
	}
	p.sums(unknown)
	p.skipTo(kEnd)
}

// divide reads the sizes of a folder's files, all but the last one's, which is the rest.
func (a *Archive) divide(p *parser, folder int, mark byte) {
	f := &a.Folders[folder]
	if f.files > 1 && mark != kSize || f.files > maxStreams-len(a.sizes) {
		p.fail("folder %d holds %d files, without sizes or more than are read", folder, f.files)
	}
	left := f.Size()
	for n := range f.files {
		size := left
		if n < f.files-1 {
			size = p.size()
		}
		if size > left {
			p.fail("files of folder %d are larger than the folder", folder)
		}
		if p.err != nil {
			return
		}
		left -= size
		s := sum{}
		if f.files == 1 && f.CRC != nil {
			s = sum{*f.CRC, true}
		}
		a.sizes, a.sums = append(a.sizes, size), append(a.sums, s)
	}
}

// read reads the list of files.
func (f *files) read(p *parser) {
	f.count = p.count()
	if f.count > len(p.b) {
		p.fail("%d files in a header of %d bytes", f.count, len(p.b))
	}
	for p.err == nil {
		mark := p.byte()
		if mark == kEnd {
			return
		}
		v := &parser{b: p.take(p.count())}
		if p.err != nil {
			return
		}
		switch mark {
		case kEmptyStream:
			f.empty = v.take((f.count + 7) / 8)
			f.emptyMember = ones(f.empty, f.count)
		case kEmptyFile:
			f.emptyFile = v.take((f.emptyMember + 7) / 8)
		case kAnti:
			f.anti = v.take((f.emptyMember + 7) / 8)
		case kNames:
			v.inside("names")
			f.names = v.b
		case kAttributes:
			f.attributed = v.defined(f.count)
			v.inside("attributes")
			f.attributes, f.hasAttr = v.b, true
		}
		if v.err != nil {
			p.err = v.err
		}
	}
}

func ones(vector []byte, n int) (count int) {
	for i := range n {
		if bit(vector, i) {
			count++
		}
	}
	return count
}

// bit is bit i of a vector, false where that is too short; the highest of each byte comes first.
func bit(vector []byte, i int) bool {
	return i/8 < len(vector) && vector[i/8]&(0x80>>(i%8)) != 0
}

// File is one file of the archive.
type File struct {
	Name       []byte // as UTF-8; what is no text stays distinguishable
	Directory  bool
	Anti       bool   // it says that a file is to be deleted
	Attributes uint32 // of Windows, with a Unix mode in the upper half if bit 15 is set
	Folder     int    // that holds its bytes; -1 for none
	Offset     int64  // in the unpacked folder
	Size       int64
	CRC        *uint32
}

// Mode is the Unix mode, 0 where the file has none.
func (f *File) Mode() uint32 {
	const unix = 1 << 15
	if f.Attributes&unix == 0 {
		return 0
	}
	return f.Attributes >> 16
}

// Entries gives the files in order. An error that wraps ErrFormat ends them; the files before it stand.
func (a *Archive) Entries() iter.Seq2[*File, error] {
	return func(yield func(*File, error) bool) {
		it := &entries{a: a, names: a.files.names, attributes: a.files.attributes}
		for i := range a.files.count {
			f, err := it.next(i)
			if !yield(f, err) || err != nil {
				return
			}
		}
	}
}

// Streams is the number of files with bytes that the folders hold.
func (a *Archive) Streams() int { return len(a.sizes) }

type entries struct {
	a                 *Archive
	names, attributes []byte
	stream            int // the next one
	folder, inFolder  int // where that lies
	offset            int64
	emptySoFar        int
}

func (it *entries) next(i int) (*File, error) {
	l := &it.a.files
	f := &File{Folder: -1}
	var err error
	if f.Name, err = it.name(i); err != nil {
		return nil, err
	}
	if l.hasAttr && (l.attributed == nil || bit(l.attributed, i)) {
		if len(it.attributes) < 4 {
			return nil, broken("attributes end at file %d", i)
		}
		f.Attributes = binary.LittleEndian.Uint32(it.attributes)
		it.attributes = it.attributes[4:]
	}
	if bit(l.empty, i) {
		f.Directory = !bit(l.emptyFile, it.emptySoFar)
		f.Anti = bit(l.anti, it.emptySoFar)
		it.emptySoFar++
		return f, nil
	}
	return f, it.place(f, i)
}

// name takes the next name.
func (it *entries) name(i int) ([]byte, error) {
	if it.a.files.names == nil {
		return nil, nil
	}
	b := it.names
	for n := 0; n+1 < len(b); n += 2 {
		if b[n] == 0 && b[n+1] == 0 {
			it.names = b[n+2:]
			return ucs2.Bytes(ucs2.LittleEndian(b[:n])), nil
		}
	}
	return nil, broken("names end at file %d", i)
}

// place finds the next stream.
func (it *entries) place(f *File, i int) error {
	for it.folder < len(it.a.Folders) && it.inFolder == it.a.Folders[it.folder].files {
		it.folder, it.inFolder, it.offset = it.folder+1, 0, 0
	}
	if it.folder == len(it.a.Folders) {
		return broken("file %d has bytes, and its folders hold %d files", i, len(it.a.sizes))
	}
	f.Folder, f.Offset, f.Size = it.folder, it.offset, it.a.sizes[it.stream]
	if s := it.a.sums[it.stream]; s.known {
		f.CRC = &s.value
	}
	it.stream++
	it.inFolder++
	it.offset += f.Size
	return nil
}

func noEOF(err error) error {
	if err == nil || err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
