// Package dmg reads Apple disk images in UDIF form as an observer: the trailer, the property list of partitions, and
// their runs of sectors, which are stored, left out or compressed one by one.
//
// A partition can be read at random; the last decoded runs are kept. No size of the image is believed before as many
// bytes were decoded. Package dmg must not know file systems or decide what a partition means.
package dmg

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"

	"rea/providers/artifact/worker/chunk"
)

const (
	// TrailerSize is the size of the trailer at the end of every image.
	TrailerSize = 512
	sectorSize  = 512
	// maxList bounds the property list: a row of 40 bytes for each run of usually 256 KiB or more.
	maxList = 64 << 20
	// maxRun bounds a compressed run, decoded and as it is stored; the usual ones have up to 1 MiB.
	maxRun = 16 << 20
	// runsKept bounds the decoded runs that are kept.
	runsKept = 32 << 20
	// maxPartitions bounds the partitions of one image.
	maxPartitions = 4096
)

// ErrFormat says that a structure of the image is broken.
var ErrFormat = errors.New("not a UDIF disk image")

// ErrOldForm says that the image describes its partitions in a resource fork, as images of before 2002 do.
var ErrOldForm = errors.New("its partitions are described in a resource fork, which is not read")

// Is reports whether the last TrailerSize bytes of a file are a trailer.
func Is(b []byte) bool {
	const version = 4
	return len(b) == TrailerSize && string(b[:4]) == "koly" &&
		binary.BigEndian.Uint32(b[4:]) == version && binary.BigEndian.Uint32(b[8:]) == TrailerSize
}

// Image is an open image.
type Image struct {
	r    io.ReaderAt
	size int64
	base int64 // where the data fork begins

	Partitions []*Partition
	// Segment and Segments say which part of a split image this is.
	Segment, Segments uint32
	// ListAt and ListLength are where the property list is.
	ListAt, ListLength int64
	cache              *chunk.Cache
}

// Partition is a run of sectors of the disk.
type Partition struct {
	Name     []byte
	Sector   uint64 // of the disk
	Size     int64
	Stored   int64  // bytes in the image
	Holes    bool   // some of it is left out
	Method   string // of most of its runs
	CRC32    uint32
	HasCRC32 bool
	Problem  string // why it cannot be read, "" for none

	im   *Image
	runs []run // in order of their first byte, without overlap; what no run covers is zero
}

// run is a number of bytes of a partition that are stored in one way.
type run struct {
	kind          uint32
	start, length int64 // in the partition
	at, stored    int64 // in the image
}

// The kinds of runs.
const (
	kindZero   = 0
	kindPlain  = 1
	kindIgnore = 2 // zero, and not part of the checksum
	kindADC    = 0x80000004
	kindZlib   = 0x80000005
	kindBzip2  = 0x80000006
	kindLZFSE  = 0x80000007
	kindXZ     = 0x80000008
	kindNote   = 0x7ffffffe
	kindEnd    = 0xffffffff
)

var methods = map[uint32]string{
	kindZero: "zero", kindPlain: "stored", kindIgnore: "zero", kindADC: "adc", kindZlib: "zlib", kindBzip2: "bzip2",
	kindLZFSE: "lzfse", kindXZ: "xz",
}

// Open reads the trailer and the list of partitions.
func Open(r io.ReaderAt, size int64) (*Image, error) {
	t := make([]byte, TrailerSize)
	if size < TrailerSize {
		return nil, ErrFormat
	}
	if n, _ := r.ReadAt(t, size-TrailerSize); n < len(t) || !Is(t) {
		return nil, fmt.Errorf("%w: it has no trailer", ErrFormat)
	}
	be := binary.BigEndian
	at, length := be.Uint64(t[216:]), be.Uint64(t[224:])
	im := &Image{
		r: r, size: size, base: int64(be.Uint64(t[24:])), Segment: be.Uint32(t[56:]), Segments: be.Uint32(t[60:]),
		ListAt: int64(at), ListLength: int64(length), cache: chunk.New(runsKept),
	}
	switch {
	case length == 0:
		return nil, ErrOldForm
	case length > maxList || at > uint64(size) || length > uint64(size)-at:
		return nil, fmt.Errorf("%w: a property list of %d bytes at %d", ErrFormat, length, at)
	case im.base < 0 || im.base > size:
		return nil, fmt.Errorf("%w: data at %d", ErrFormat, im.base)
	}
	tables, err := readList(io.NewSectionReader(r, int64(at), int64(length)))
	if err != nil {
		return nil, err
	}
	for _, b := range tables {
		if len(im.Partitions) == maxPartitions {
			return nil, fmt.Errorf("it has more than %d partitions", maxPartitions)
		}
		im.Partitions = append(im.Partitions, im.partition(b))
	}
	return im, nil
}

// partition takes a table of runs apart.
func (im *Image) partition(t listed) *Partition {
	const head, row, sumCRC32 = 204, 40, 2
	be := binary.BigEndian
	p := &Partition{Name: t.name, im: im}
	b := t.data
	if len(b) < head || string(b[:4]) != "mish" {
		p.Problem = "its table of runs is broken"
		return p
	}
	p.Sector = be.Uint64(b[8:])
	sectors, base := be.Uint64(b[16:]), be.Uint64(b[24:])
	if sectors > 1<<50 || base > 1<<60 {
		p.Problem = fmt.Sprintf("it has %d sectors by its own account", sectors)
		return p
	}
	p.Size = int64(sectors) * sectorSize
	if be.Uint32(b[64:]) == sumCRC32 {
		p.CRC32, p.HasCRC32 = be.Uint32(b[72:]), true
	}
	count := int64(be.Uint32(b[200:]))
	b = b[head:]
	if count > int64(len(b)/row) {
		p.Problem = fmt.Sprintf("its table has %d runs by its own account, and room for %d", count, len(b)/row)
		return p
	}
	for i := range count {
		if end, err := p.add(b[i*row:][:row], im.base+int64(base)); err != nil {
			p.Problem = err.Error()
			return p
		} else if end {
			break
		}
	}
	p.settle()
	return p
}

// add takes one row of the table.
func (p *Partition) add(b []byte, base int64) (end bool, err error) {
	be := binary.BigEndian
	kind, sector, sectors, at, stored := be.Uint32(b), be.Uint64(b[8:]), be.Uint64(b[16:]), be.Uint64(b[24:]), be.Uint64(b[32:])
	switch {
	case kind == kindEnd:
		return true, nil
	case kind == kindNote || sectors == 0:
		return false, nil
	case methods[kind] == "":
		return false, fmt.Errorf("a run of kind %#x is not read", kind)
	case sector > 1<<50 || sectors > 1<<50 || int64(sector+sectors)*sectorSize > p.Size:
		return false, fmt.Errorf("a run of %d sectors at %d leaves it", sectors, sector)
	}
	r := run{kind: kind, start: int64(sector) * sectorSize, length: int64(sectors) * sectorSize}
	if kind == kindZero || kind == kindIgnore {
		p.Holes = true
	} else {
		if at > 1<<60 || stored > uint64(p.im.size) || base+int64(at) > p.im.size-int64(stored) {
			return false, fmt.Errorf("a run of %d bytes at %d is behind the end of the image", stored, at)
		}
		r.at, r.stored = base+int64(at), int64(stored)
		if kind != kindPlain && (r.length > maxRun || r.stored > maxRun) {
			return false, fmt.Errorf("a compressed run of %d bytes, %d decoded: the limit is %d", stored, r.length, maxRun)
		}
		if kind == kindPlain && r.stored < r.length {
			return false, fmt.Errorf("a stored run has %d of %d bytes", r.stored, r.length)
		}
		p.Stored += r.stored
	}
	if n := len(p.runs); n > 0 && r.start < p.runs[n-1].start+p.runs[n-1].length {
		return false, errors.New("its runs overlap or are out of order")
	}
	p.runs = append(p.runs, r)
	return false, nil
}

// settle says how most of the partition is stored.
func (p *Partition) settle() {
	covered, lengths := int64(0), map[string]int64{}
	for _, r := range p.runs {
		covered += r.length
		lengths[methods[r.kind]] += r.length
	}
	if covered < p.Size {
		p.Holes = true
	}
	delete(lengths, "zero")
	p.Method = "zero"
	for _, m := range []string{"stored", "adc", "zlib", "bzip2", "lzfse", "xz"} { // the later ones win a draw
		if lengths[m] > 0 && lengths[m] >= lengths[p.Method] {
			p.Method = m
		}
	}
}

// ReadAt implements io.ReaderAt.
func (p *Partition) ReadAt(b []byte, off int64) (int, error) {
	if off < 0 {
		return 0, errors.New("a negative offset")
	}
	done := 0
	for done < len(b) {
		if off >= p.Size {
			return done, io.EOF
		}
		n, _, err := p.read(b[done:], off)
		done += n
		off += int64(n)
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// read reads some bytes at off, which is below Size: at least one, or an error. counted says that they are part of the
// checksum.
func (p *Partition) read(b []byte, off int64) (n int, counted bool, err error) {
	i, found := slices.BinarySearchFunc(p.runs, off, func(r run, off int64) int {
		switch {
		case r.start+r.length <= off:
			return -1
		case r.start > off:
			return 1
		}
		return 0
	})
	if !found { // between runs, up to the next one
		end := p.Size
		if i < len(p.runs) {
			end = p.runs[i].start
		}
		n = int(min(int64(len(b)), end-off))
		clear(b[:n])
		return n, false, nil
	}
	r := p.runs[i]
	within := off - r.start
	b = b[:min(int64(len(b)), r.length-within)]
	switch r.kind {
	case kindZero, kindIgnore:
		clear(b)
		return len(b), r.kind == kindZero, nil
	case kindPlain:
		n, err = p.im.r.ReadAt(b, r.at+within)
		if n == len(b) {
			err = nil
		}
		return n, true, noEOF(err)
	}
	data, err := p.im.decoded(r)
	if err != nil {
		return 0, true, err
	}
	return copy(b, data[within:]), true, nil
}

// Reader reads the partition from its start. After its end Sum is the checksum to hold against CRC32.
type Reader struct {
	p   *Partition
	off int64
	sum uint32
}

// NewReader makes a Reader.
func (p *Partition) NewReader() *Reader { return &Reader{p: p} }

// Read implements io.Reader.
func (r *Reader) Read(b []byte) (int, error) {
	if r.off >= r.p.Size {
		return 0, io.EOF
	}
	if len(b) == 0 {
		return 0, nil
	}
	n, counted, err := r.p.read(b, r.off)
	r.off += int64(n)
	if counted {
		r.sum = crc32.Update(r.sum, crc32.IEEETable, b[:n])
	}
	return n, err
}

// Sum is the CRC-32 of what was read, without what the image leaves out of its checksum.
func (r *Reader) Sum() uint32 { return r.sum }

// noEOF keeps the end of some bytes from passing for the end of what is read.
func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
