// Package iso9660 reads ISO 9660 images as an observer: ECMA-119 with Joliet (a second tree in UCS-2) and with Rock
// Ridge, the POSIX names and modes of IEEE P1282 in the system use fields of SUSP (IEEE P1281).
//
// Of several trees the one is read that Linux shows: Rock Ridge, else Joliet, else the primary one. Names are bytes.
// Package iso9660 must not decide what an entry means.
package iso9660

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

const (
	sector    = 2048
	firstVD   = 16 // sector of the first volume descriptor
	maxVDs    = 64 // an image has a handful
	maxDepth  = 2048
	maxPath   = 4096
	maxSystem = 64 << 10 // bytes of one record's system use fields, continuations included
	maxCE     = 64       // continuations of one record
	// System is the size of the unused area before the first volume descriptor.
	System = firstVD * sector
)

// ErrFormat says that a structure of the image is broken.
var ErrFormat = errors.New("not an ISO 9660 image")

// Tree says which names an image gives to its files.
type Tree string

// The trees.
const (
	Primary   Tree = "primary"
	Joliet    Tree = "Joliet"
	RockRidge Tree = "Rock Ridge"
)

// Image is an open image.
type Image struct {
	r    io.ReaderAt
	size int64

	// Tree is the one that Walk reads, Other the one beside it ("" for none).
	Tree, Other Tree
	// Used is how many bytes the volume says that it has.
	Used int64
	// Boot is set where a boot record stands among the volume descriptors; UDF where the image has that file system too.
	Boot, UDF bool

	block   int64
	set     uint16 // volumes in the set
	number  uint16 // of this one
	primary record
	joliet  record
	skip    int // bytes before the first field of a system use area
}

// Open reads the volume descriptors and chooses a tree.
func Open(r io.ReaderAt, size int64) (*Image, error) {
	m := &Image{r: r, size: size}
	var found, joliet bool
	for i := int64(firstVD); i < firstVD+maxVDs; i++ {
		b := make([]byte, sector)
		if n, _ := r.ReadAt(b, i*sector); n < sector {
			break
		}
		mark := string(b[1:6])
		if mark == "BEA01" || mark == "NSR02" || mark == "NSR03" {
			m.UDF = true
			continue
		}
		if mark != "CD001" {
			if found {
				break
			}
			continue
		}
		switch b[0] {
		case 0:
			m.Boot = true
		case 1:
			if found {
				continue // a copy
			}
			if err := m.volume(b); err != nil {
				return nil, err
			}
			found = true
		case 2:
			if escape := string(b[88:91]); !joliet && (escape == "%/@" || escape == "%/C" || escape == "%/E") {
				m.joliet, joliet = parseRecord(b[156:190]), true
			}
		}
	}
	if !found {
		return nil, fmt.Errorf("%w: it has no primary volume descriptor", ErrFormat)
	}
	m.choose(joliet)
	return m, nil
}

// volume reads the primary volume descriptor.
func (m *Image) volume(b []byte) error {
	le := binary.LittleEndian
	m.block = int64(le.Uint16(b[128:]))
	if m.block < 512 || m.block > sector || m.block&(m.block-1) != 0 {
		return fmt.Errorf("%w: a logical block of %d bytes", ErrFormat, m.block)
	}
	m.Used = int64(le.Uint32(b[80:])) * m.block
	m.set, m.number = le.Uint16(b[120:]), le.Uint16(b[124:])
	m.primary = parseRecord(b[156:190])
	return nil
}

// choose prefers Rock Ridge, which the "." entry of the root announces, to Joliet, and Joliet to neither.
func (m *Image) choose(joliet bool) {
	m.Tree = Primary
	l := m.list(&m.primary, 0)
	if own, err := l.next(); err == nil {
		if skip, ok := announces(own.system); ok {
			m.skip = skip
			s := systemUse{m: m}
			s.read(own.system)
			if s.posix {
				m.Tree = RockRidge
			}
		}
	}
	switch {
	case joliet && m.Tree == Primary:
		m.Tree, m.Other = Joliet, Primary
	case joliet:
		m.Other = Joliet
	}
}

// announces finds the SP field of SUSP at the start of the root's own record.
func announces(b []byte) (skip int, ok bool) {
	const cdXA = 14 // bytes of another extension that may stand first
	for _, at := range []int{0, cdXA} {
		if len(b) >= at+7 && string(b[at:at+6]) == "SP\x07\x01\xbe\xef" {
			return int(b[at+6]), true
		}
	}
	return 0, false
}

// record is a directory record.
type record struct {
	length  int
	extent  int64 // block
	size    int64
	flags   byte
	unit    byte
	gap     byte
	volume  uint16
	name    []byte
	system  []byte
	attrLen int64 // blocks of an extended attribute record before the data
}

const (
	flagDirectory = 2
	flagMore      = 0x80 // another record continues the file
)

// parseRecord takes a record apart whose length byte fits b.
func parseRecord(b []byte) record {
	const fixed = 33
	le := binary.LittleEndian
	r := record{
		length: int(b[0]), attrLen: int64(b[1]), extent: int64(le.Uint32(b[2:])), size: int64(le.Uint32(b[10:])), flags: b[25],
		unit: b[26], gap: b[27], volume: le.Uint16(b[28:]),
	}
	end := min(fixed+int(b[32]), len(b))
	r.name = b[fixed:end]
	if len(r.name)%2 == 0 {
		end = min(end+1, len(b)) // a pad byte
	}
	r.system = b[end:]
	return r
}

// list begins to read a directory.
func (m *Image) list(r *record, length int) *listing {
	return &listing{m: m, extent: r.extent, at: (r.extent + r.attrLen) * m.block, left: r.size, length: length}
}

// listing is a directory being read.
type listing struct {
	m      *Image
	extent int64
	at     int64  // of the sector behind rest
	left   int64  // bytes of the directory behind rest
	rest   []byte // of the sector
	length int    // of the directory's path
}

// next reads a record; io.EOF is the directory's end. The record holds on to its sector.
func (l *listing) next() (record, error) {
	const fixed = 34
	for {
		if len(l.rest) > 0 && l.rest[0] == 0 {
			l.rest = nil // records do not cross sectors
		}
		if len(l.rest) == 0 {
			if err := l.fill(); err != nil {
				return record{}, err
			}
			continue
		}
		n := int(l.rest[0])
		if n < fixed || n > len(l.rest) {
			return record{}, fmt.Errorf("%w: a directory record of %d bytes", ErrFormat, n)
		}
		r := parseRecord(l.rest[:n])
		l.rest = l.rest[n:]
		return r, nil
	}
}

func (l *listing) fill() error {
	if l.left <= 0 {
		return io.EOF
	}
	n := min(l.left, sector)
	if l.at > l.m.size-n {
		return fmt.Errorf("%w: the directory lies at %d, behind the end at %d", ErrFormat, l.at, l.m.size)
	}
	b := make([]byte, n)
	if got, err := l.m.r.ReadAt(b, l.at); int64(got) < n {
		return noEOF(err)
	}
	l.rest, l.at, l.left = b, l.at+n, l.left-n
	return nil
}

// noEOF keeps the end of some bytes from passing for the end of what is read.
func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
