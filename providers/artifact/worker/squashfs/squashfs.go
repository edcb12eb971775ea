// Package squashfs reads squashfs 4 images as an observer, after the format's description in the Linux kernel
// (Documentation/filesystems/squashfs.rst) and its on-disk header.
//
// Names are bytes, nothing is mounted, and no size of the image is believed before as many bytes were decoded. Package
// squashfs must not decide what an entry means.
package squashfs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"rea/providers/artifact/worker/chunk"
)

const (
	superblockSize = 96
	magic          = "hsqs"
	bigEndian      = "sqsh"

	// maxBlock and minBlock bound the block size; the format allows no other.
	maxBlock = 1 << 20
	minBlock = 4 << 10
	// metadataSize is the size of a decoded metadata block, except the last one.
	metadataSize = 8 << 10
	// metadataKept and fragmentsKept bound the decoded blocks that are kept.
	metadataKept  = 4 << 20
	fragmentsKept = 8 << 20
	// maxDepth bounds the open directories of a walk: a path of 4,096 bytes cannot have more components.
	maxDepth = 2048
	// maxPath is the length of path at which directories are not gone into: longer ones are refused by the walk above.
	maxPath = 4096
	// maxTarget bounds a symbolic link's target.
	maxTarget = 64 << 10

	plainBlock    = 1 << 24 // of a data block's size: it is not compressed
	plainMetadata = 1 << 15 // of a metadata block's size
	noFragment    = math.MaxUint32
)

// ErrFormat says that a structure of the image is broken.
var ErrFormat = errors.New("not a squashfs image")

// ErrUnsupported says that the image is of a version or compression that is not read.
var ErrUnsupported = errors.New("it is not read")

// FS is an open image.
type FS struct {
	r     io.ReaderAt
	size  int64
	codec *codec

	blockSize   int64
	root        uint64
	inodes      int64 // where the tables begin
	directories int64
	fragments   int64
	fragmentN   uint32
	// Used is how many bytes the image says that it has.
	Used int64

	metadata *chunk.Cache
	tails    *chunk.Cache
}

// Open reads the superblock. Close gives back what decoding took.
func Open(r io.ReaderAt, size int64) (*FS, error) {
	var b [superblockSize]byte
	if _, err := r.ReadAt(b[:], 0); err != nil {
		return nil, fmt.Errorf("%w: its superblock cannot be read", ErrFormat)
	}
	le := binary.LittleEndian
	if string(b[:4]) == bigEndian {
		return nil, fmt.Errorf("%w: its numbers are big-endian, which version 4 does not have", ErrUnsupported)
	}
	if string(b[:4]) != magic {
		return nil, fmt.Errorf("%w: its mark is %q", ErrFormat, b[:4])
	}
	if major, minor := le.Uint16(b[28:]), le.Uint16(b[30:]); major != 4 || minor != 0 {
		return nil, fmt.Errorf("%w: its squashfs version is %d.%d", ErrUnsupported, major, minor)
	}
	f := &FS{
		r: r, size: size, blockSize: int64(le.Uint32(b[12:])), fragmentN: le.Uint32(b[16:]), root: le.Uint64(b[32:]),
		Used: int64(le.Uint64(b[40:])), inodes: int64(le.Uint64(b[64:])), directories: int64(le.Uint64(b[72:])),
		fragments: int64(le.Uint64(b[80:])), metadata: chunk.New(metadataKept), tails: chunk.New(fragmentsKept),
	}
	if f.blockSize < minBlock || f.blockSize > maxBlock || f.blockSize&(f.blockSize-1) != 0 {
		return nil, fmt.Errorf("%w: a block size of %d", ErrFormat, f.blockSize)
	}
	for _, at := range []int64{f.inodes, f.directories} {
		if at < superblockSize || at >= size {
			return nil, fmt.Errorf("%w: a table at %d, behind the end at %d", ErrFormat, at, size)
		}
	}
	var err error
	f.codec, err = newCodec(le.Uint16(b[20:]), int(f.blockSize))
	return f, err
}

// Close gives back what decoding took.
func (f *FS) Close() { f.codec.close() }

// Compression is the name of the image's compression method.
func (f *FS) Compression() string { return f.codec.name }

// block decodes the metadata block at an offset of the image, and gives the offset of the next one.
func (f *FS) block(at int64) (b []byte, next int64, err error) {
	var head [2]byte
	if at < 0 || at > f.size-int64(len(head)) {
		return nil, 0, fmt.Errorf("%w: metadata at %d, behind the end", ErrFormat, at)
	}
	if _, err := f.r.ReadAt(head[:], at); err != nil {
		return nil, 0, err
	}
	size := int64(binary.LittleEndian.Uint16(head[:]))
	plain := size&plainMetadata != 0
	if size &^= plainMetadata; size == 0 || size > metadataSize || size > f.size-at-int64(len(head)) {
		return nil, 0, fmt.Errorf("%w: a metadata block of %d bytes at %d", ErrFormat, size, at)
	}
	b, err = f.metadata.Get(at, func() ([]byte, error) { return f.decode(at+int64(len(head)), size, plain, metadataSize) })
	return b, at + int64(len(head)) + size, err
}

// decode reads and decodes a block of at most limit decoded bytes. size is bounded by the caller.
func (f *FS) decode(at, size int64, plain bool, limit int) ([]byte, error) {
	if at < 0 || size > f.size-at {
		return nil, fmt.Errorf("%w: a block of %d bytes at %d, behind the end at %d", ErrFormat, size, at, f.size)
	}
	raw := make([]byte, size)
	if n, err := f.r.ReadAt(raw, at); int64(n) < size {
		return nil, noEOF(err)
	}
	if plain {
		if len(raw) > limit {
			return nil, fmt.Errorf("%w: a block of %d bytes where %d are the most", ErrFormat, len(raw), limit)
		}
		return raw, nil
	}
	b, err := f.codec.decode(raw, limit)
	return b, noEOF(err)
}

// noEOF keeps the end of some bytes from passing for the end of what is read.
func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// cursor reads a table's metadata blocks as one stream.
type cursor struct {
	f    *FS
	rest []byte
	next int64 // offset of the block behind rest
}

// at makes a cursor for a place of a table: a block's offset from the table's start, and an offset in the decoded block.
func (f *FS) at(table int64, block uint64, offset uint16) (*cursor, error) {
	if block > uint64(f.size) {
		return nil, fmt.Errorf("%w: metadata at %d of a table, behind the end", ErrFormat, block)
	}
	b, next, err := f.block(table + int64(block))
	if err != nil {
		return nil, err
	}
	if int(offset) > len(b) {
		return nil, fmt.Errorf("%w: offset %d in a metadata block of %d bytes", ErrFormat, offset, len(b))
	}
	return &cursor{f, b[offset:], next}, nil
}

// Read implements io.Reader.
func (c *cursor) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		b, next, err := c.f.block(c.next)
		if err != nil {
			return 0, err
		}
		if len(b) == 0 {
			return 0, fmt.Errorf("%w: an empty metadata block", ErrFormat)
		}
		c.rest, c.next = b, next
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

func (c *cursor) bytes(n int) ([]byte, error) {
	b := make([]byte, n)
	_, err := io.ReadFull(c, b)
	return b, err
}

// tail gives the decoded fragment block with that number, and its size in the image.
func (f *FS) tail(number uint32) (b []byte, stored int64, err error) {
	at, size, plain, err := f.fragment(number)
	if err != nil {
		return nil, 0, err
	}
	b, err = f.tails.Get(int64(number), func() ([]byte, error) { return f.decode(at, size, plain, int(f.blockSize)) })
	return b, size, err
}

// fragment reads a row of the fragment table: where its block is.
func (f *FS) fragment(number uint32) (at, size int64, plain bool, err error) {
	const row, rows = 16, metadataSize / 16
	if number >= f.fragmentN {
		return 0, 0, false, fmt.Errorf("%w: fragment %d of %d", ErrFormat, number, f.fragmentN)
	}
	var index [8]byte
	place := f.fragments + int64(number/rows)*int64(len(index))
	if f.fragments < 0 || place > f.size-int64(len(index)) {
		return 0, 0, false, fmt.Errorf("%w: its fragment table lies behind the end", ErrFormat)
	}
	if _, err := f.r.ReadAt(index[:], place); err != nil {
		return 0, 0, false, err
	}
	c, err := f.at(0, binary.LittleEndian.Uint64(index[:]), uint16(number%rows*row))
	if err != nil {
		return 0, 0, false, err
	}
	b, err := c.bytes(row)
	if err != nil {
		return 0, 0, false, err
	}
	at = int64(binary.LittleEndian.Uint64(b))
	size, plain, err = f.blockLength(binary.LittleEndian.Uint32(b[8:]))
	return at, size, plain, err
}

// blockLength takes a data block's size field apart.
func (f *FS) blockLength(field uint32) (size int64, plain bool, err error) {
	size, plain = int64(field&^plainBlock), field&plainBlock != 0
	if size > f.blockSize {
		return 0, false, fmt.Errorf("%w: a data block of %d bytes where %d are the most", ErrFormat, size, f.blockSize)
	}
	return size, plain, nil
}
