// Package hfsplus reads HFS Plus and HFSX volumes as an observer, after Apple's Technical Note TN1150.
//
// A folder's entries are found as a file system finds them, through the catalog's index, so that what is told is what a
// mount would show. Names are the volume's own units as bytes, with the slash that the volume may hold in a name shown
// as the colon that POSIX programs see. The journal is not replayed. Package hfsplus must not decide what an entry
// means.
package hfsplus

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"rea/providers/artifact/worker/chunk"
)

const (
	headerAt   = 1024
	headerSize = 512
	// nodesKept bounds the B-tree nodes that are kept.
	nodesKept = 4 << 20
	// maxDepth bounds the open folders of a walk, maxPath the length of path below which folders are gone into.
	maxDepth = 2048
	maxPath  = 4096
	// maxExtents bounds the pieces of one fork.
	maxExtents = 1 << 18
	// maxLinked bounds the files that are remembered for hard links to them.
	maxLinked = 200_000

	idRoot       = 2
	idExtents    = 3
	idCatalog    = 4
	idAttributes = 8
)

// ErrFormat says that a structure of the volume is broken.
var ErrFormat = errors.New("not an HFS Plus volume")

// Volume is an open volume.
type Volume struct {
	r    io.ReaderAt
	size int64

	block int64
	// Used is how many bytes the volume says that it has; Dirty is set where it was not unmounted.
	Used  int64
	Dirty bool

	extents    *btree
	catalog    *btree
	attributes *btree            // nil where the volume has none
	linked     map[uint32]record // files by their number as targets of hard links; made on first use
}

// Open reads the volume header and the heads of the B-trees.
func Open(r io.ReaderAt, size int64) (*Volume, error) {
	h := make([]byte, headerSize)
	if n, _ := r.ReadAt(h, headerAt); n < len(h) {
		return nil, fmt.Errorf("%w: its header cannot be read", ErrFormat)
	}
	be := binary.BigEndian
	if mark := string(h[:2]); mark != "H+" && mark != "HX" {
		return nil, fmt.Errorf("%w: its mark is %q", ErrFormat, mark)
	}
	const unmounted = 1 << 8
	v := &Volume{r: r, size: size, block: int64(be.Uint32(h[40:])), Dirty: be.Uint32(h[4:])&unmounted == 0}
	if v.block < 512 || v.block > 1<<30 || v.block&(v.block-1) != 0 {
		return nil, fmt.Errorf("%w: a block of %d bytes", ErrFormat, v.block)
	}
	v.Used = int64(be.Uint32(h[44:])) * v.block
	nodes := chunk.New(nodesKept)
	var err error
	if v.extents, err = v.tree(nodes, idExtents, h[192:272]); err != nil {
		return nil, err
	}
	if v.catalog, err = v.tree(nodes, idCatalog, h[272:352]); err != nil {
		return nil, err
	}
	if be.Uint64(h[352:]) > 0 {
		if v.attributes, err = v.tree(nodes, idAttributes, h[352:432]); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// Extent is a run of bytes of the volume.
type Extent struct{ Start, Length int64 }

// Fork is the bytes of a file.
type Fork struct {
	Size    int64
	Extents []Extent // inside the volume, neighbours joined; together Size
	r       io.ReaderAt
	ends    []int64 // of the extents, in the fork
}

// ReadAt implements io.ReaderAt.
func (f *Fork) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, errors.New("a negative offset")
	}
	done := 0
	for done < len(p) {
		if off >= f.Size {
			return done, io.EOF
		}
		i, found := slices.BinarySearch(f.ends, off)
		if found {
			i++
		}
		x := f.Extents[i]
		at := x.Length - (f.ends[i] - off)
		n := int(min(int64(len(p)-done), x.Length-at))
		got, err := f.r.ReadAt(p[done:done+n], x.Start+at)
		done += got
		off += int64(got)
		if got < n {
			if err == nil || err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return done, err
		}
	}
	return done, nil
}

const (
	dataFork     = 0
	resourceFork = 0xff
	forkSize     = 80
)

// fork makes the fork that 80 bytes of a record describe. What they do not hold stands in the extents tree.
func (v *Volume) fork(b []byte, file uint32, kind byte) (*Fork, error) {
	be := binary.BigEndian
	size := be.Uint64(b)
	if size > math.MaxInt64 {
		return nil, fmt.Errorf("%w: a file of %d bytes", ErrFormat, size)
	}
	f := &Fork{Size: int64(size), r: v.r}
	left := f.Size
	blocks := uint32(0) // of the fork, so far
	list := b[16:forkSize]
	for left > 0 {
		before := blocks
		for ; len(list) >= 8 && left > 0; list = list[8:] {
			start, count := be.Uint32(list), be.Uint32(list[4:])
			if count == 0 {
				break
			}
			n := min(left, int64(count)*v.block)
			if at := int64(start) * v.block; at > v.size-n {
				return nil, fmt.Errorf("%d of its bytes are declared at %d, and the volume ends at %d", n, at, v.size)
			} else if err := f.add(Extent{at, n}); err != nil {
				return nil, err
			}
			left -= n
			blocks += count
		}
		if left == 0 {
			break
		}
		if file == idExtents || blocks == before {
			return nil, fmt.Errorf("%w: %d bytes of a fork have no place", ErrFormat, left)
		}
		var err error
		if list, err = v.overflow(file, kind, blocks); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// add appends a run, as a part of the last one where they are neighbours.
func (f *Fork) add(x Extent) error {
	end := x.Length
	if n := len(f.Extents); n > 0 {
		end += f.ends[n-1]
		if last := &f.Extents[n-1]; last.Start+last.Length == x.Start {
			last.Length += x.Length
			f.ends[n-1] = end
			return nil
		}
	}
	if len(f.Extents) == maxExtents {
		return fmt.Errorf("a fork has more than %d pieces", maxExtents)
	}
	f.Extents, f.ends = append(f.Extents, x), append(f.ends, end)
	return nil
}

// overflow gives the eight extents of a fork from one of its blocks on.
func (v *Volume) overflow(file uint32, kind byte, block uint32) ([]byte, error) {
	be := binary.BigEndian
	const keySize = 10
	compare := func(key []byte) int {
		if len(key) < keySize {
			return -1
		}
		return cmpAll(be.Uint32(key[2:]), file, uint32(key[0]), uint32(kind), be.Uint32(key[6:]), block)
	}
	c, err := v.extents.find(compare)
	if err != nil {
		return nil, err
	}
	key, data, err := c.next()
	if err != nil && err != io.EOF {
		return nil, err
	}
	if err == io.EOF || compare(key) != 0 || len(data) < 64 {
		return nil, fmt.Errorf("%w: the extents tree does not say where block %d of file %d is", ErrFormat, block, file)
	}
	return data[:64], nil
}

// cmpAll compares pairs of numbers, the first ones first.
func cmpAll(pairs ...uint32) int {
	for i := 0; i+1 < len(pairs); i += 2 {
		switch {
		case pairs[i] < pairs[i+1]:
			return -1
		case pairs[i] > pairs[i+1]:
			return 1
		}
	}
	return 0
}
