// Package cfb reads compound files ("OLE structured storage") as an observer, after Microsoft's [MS-CFB]: Windows
// Installer databases, old Office documents, thumbnails, saved mails.
//
// Chains of sectors are followed only as far as a stream's size needs, and no table is believed before it was read.
// Package cfb must not know what streams hold.
package cfb

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"rea/providers/artifact/worker/chunk"
)

const (
	headerSize = 512
	inHeader   = 109 // FAT sectors that the header names
	entrySize  = 128
	miniSize   = 64
	// tableKept bounds the sectors of the allocation tables that are kept.
	tableKept = 1 << 20
	// maxCutoff bounds the size below which streams stand in the mini stream; [MS-CFB] has 4,096 only.
	maxCutoff = 64 << 10
	maxDepth  = 2048
	maxPath   = 4096

	maxSector = 0xfffffffa
	noStream  = 0xffffffff
)

// ErrFormat says that a structure of the file is broken.
var ErrFormat = errors.New("not a compound file")

// File is an open compound file.
type File struct {
	r      io.ReaderAt
	size   int64
	sector int64
	major  uint16
	cutoff int64

	fat      []uint32 // sectors of the allocation table
	tables   *chunk.Cache
	entries  *Stream // the directory
	mini     *Stream // the mini stream
	miniFAT  *Stream
	seen     []uint64 // a bit for each directory entry that was met
	class    [16]byte // of the root storage
	rootLeaf uint32   // its first entry
}

// Open reads the header and the heads of the tables.
func Open(r io.ReaderAt, size int64) (*File, error) {
	h := make([]byte, headerSize)
	if n, _ := r.ReadAt(h, 0); n < len(h) || string(h[:8]) != "\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" {
		return nil, fmt.Errorf("%w: its header cannot be read", ErrFormat)
	}
	le := binary.LittleEndian
	f := &File{r: r, size: size, major: le.Uint16(h[26:]), cutoff: int64(le.Uint32(h[56:])), tables: chunk.New(tableKept)}
	shift := le.Uint16(h[30:])
	if shift != 9 && shift != 12 || f.cutoff > maxCutoff {
		return nil, fmt.Errorf("%w: sectors of 2^%d bytes, a mini stream for less than %d", ErrFormat, shift, f.cutoff)
	}
	f.sector = 1 << shift
	if err := f.allocation(h); err != nil {
		return nil, err
	}
	var err error
	if f.entries, err = f.chain(le.Uint32(h[48:]), -1); err != nil {
		return nil, fmt.Errorf("its directory: %w", err)
	}
	f.seen = make([]uint64, f.count()/64+1)
	root, err := f.entry(0)
	if err != nil {
		return nil, err
	}
	f.class, f.rootLeaf = root.class, root.child
	if f.mini, err = f.chain(root.start, root.size); err != nil {
		f.mini = &Stream{} // the streams in it say so
	}
	if f.miniFAT, err = f.chain(le.Uint32(h[60:]), -1); err != nil {
		f.miniFAT = &Stream{}
	}
	return f, nil
}

// allocation finds the sectors of the allocation table: some in the header, the rest in a chain of their own.
func (f *File) allocation(h []byte) error {
	le := binary.LittleEndian
	for i := range inHeader {
		if n := le.Uint32(h[76+4*i:]); n <= maxSector {
			f.fat = append(f.fat, n)
		}
	}
	most := f.size / f.sector
	next := le.Uint32(h[68:])
	for range most {
		if next > maxSector {
			return nil
		}
		b, err := f.read(next)
		if err != nil {
			return err
		}
		row := len(b) - 4
		for i := 0; i < row; i += 4 {
			if n := le.Uint32(b[i:]); n <= maxSector {
				f.fat = append(f.fat, n)
			}
		}
		next = le.Uint32(b[row:])
		if int64(len(f.fat)) > most {
			break
		}
	}
	if next <= maxSector {
		return fmt.Errorf("%w: its list of tables does not end", ErrFormat)
	}
	return nil
}

// at is where a sector begins.
func (f *File) at(sector uint32) int64 { return (int64(sector) + 1) * f.sector }

func (f *File) read(sector uint32) ([]byte, error) {
	at := f.at(sector)
	if at > f.size-f.sector {
		return nil, fmt.Errorf("%w: sector %d is behind the end", ErrFormat, sector)
	}
	return f.tables.Get(at, func() ([]byte, error) {
		b := make([]byte, f.sector)
		if n, err := f.r.ReadAt(b, at); int64(n) < f.sector {
			return nil, noEOF(err)
		}
		return b, nil
	})
}

// next gives the sector that follows one in its chain.
func (f *File) next(sector uint32) (uint32, error) {
	per := f.sector / 4
	row := int64(sector) / per
	if row >= int64(len(f.fat)) {
		return 0, fmt.Errorf("%w: no table says what follows sector %d", ErrFormat, sector)
	}
	b, err := f.read(f.fat[row])
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint32(b[int64(sector)%per*4:]), nil
}

// Extent is a run of bytes of the file.
type Extent struct{ Start, Length int64 }

// Stream is a stream's bytes.
type Stream struct {
	Size    int64
	Extents []Extent // neighbours joined; together Size
	r       io.ReaderAt
	ends    []int64
}

// chain follows a chain of sectors for size bytes, or to its end where size is -1.
func (f *File) chain(start uint32, size int64) (*Stream, error) {
	s := &Stream{Size: size, r: f.r}
	if size > f.size {
		return nil, fmt.Errorf("%w: a stream of %d bytes in a file of %d", ErrFormat, size, f.size)
	}
	left := size
	if size < 0 {
		left = f.size / f.sector * f.sector // as much as there can be
	}
	sector := start
	for left > 0 && sector <= maxSector {
		at := f.at(sector)
		n := min(left, f.sector)
		if at > f.size-n {
			return nil, fmt.Errorf("%w: sector %d is behind the end", ErrFormat, sector)
		}
		s.add(Extent{at, n})
		left -= n
		var err error
		if left == 0 && size >= 0 {
			break
		}
		if sector, err = f.next(sector); err != nil {
			return nil, err
		}
	}
	switch {
	case size < 0 && sector <= maxSector:
		return nil, fmt.Errorf("%w: a chain of sectors goes round in a circle", ErrFormat)
	case size < 0:
		if n := len(s.ends); n > 0 {
			s.Size = s.ends[n-1]
		} else {
			s.Size = 0
		}
	case left > 0:
		return nil, fmt.Errorf("%w: a chain of sectors ends %d bytes before its stream", ErrFormat, left)
	}
	return s, nil
}

func (s *Stream) add(x Extent) {
	end := x.Length
	if n := len(s.Extents); n > 0 {
		end += s.ends[n-1]
		if last := &s.Extents[n-1]; last.Start+last.Length == x.Start {
			last.Length += x.Length
			s.ends[n-1] = end
			return
		}
	}
	s.Extents, s.ends = append(s.Extents, x), append(s.ends, end)
}

// ReadAt implements io.ReaderAt.
func (s *Stream) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, errors.New("a negative offset")
	}
	done := 0
	for done < len(p) {
		if off >= s.Size {
			return done, io.EOF
		}
		i, found := slices.BinarySearch(s.ends, off)
		if found {
			i++
		}
		x := s.Extents[i]
		at := x.Length - (s.ends[i] - off)
		n := int(min(int64(len(p)-done), x.Length-at))
		got, err := s.r.ReadAt(p[done:done+n], x.Start+at)
		done += got
		off += int64(got)
		if got < n {
			return done, noEOF(err)
		}
	}
	return done, nil
}

// miniStream reads a stream that stands in the mini stream.
func (f *File) miniStream(start uint32, size int64) ([]byte, error) {
	b := make([]byte, 0, size) // below the cutoff
	for sector := start; int64(len(b)) < size; {
		if sector > maxSector {
			return nil, fmt.Errorf("%w: a chain of mini sectors ends %d bytes before its stream", ErrFormat, size-int64(len(b)))
		}
		n := int(min(size-int64(len(b)), miniSize))
		b = b[:len(b)+n]
		if _, err := f.mini.ReadAt(b[len(b)-n:], int64(sector)*miniSize); err != nil {
			return nil, noEOF(err)
		}
		if int64(len(b)) == size {
			break
		}
		var row [4]byte
		if _, err := f.miniFAT.ReadAt(row[:], int64(sector)*4); err != nil {
			return nil, noEOF(err)
		}
		sector = binary.LittleEndian.Uint32(row[:])
	}
	return b, nil
}

// noEOF keeps the end of some bytes from passing for the end of what is read.
func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
