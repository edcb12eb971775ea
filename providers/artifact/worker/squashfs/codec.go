package squashfs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/ulikunitz/xz/lzma"
	"github.com/xi2/xz"
)

// codec decodes the blocks of an image. It may be used by several goroutines.
type codec struct {
	name   string
	decode func(src []byte, limit int) ([]byte, error)
	close  func()
}

var errTooLong = errors.New("a block decodes to more bytes than a block can have")

func newCodec(id uint16, blockSize int) (*codec, error) {
	c := &codec{close: func() {}}
	switch id {
	case 1:
		c.name, c.decode = "gzip", (&zlibPool{}).decode
	case 2:
		c.name, c.decode = "lzma", lzmaBlock
	case 3:
		c.name, c.decode = "lzo", lzo
	case 4:
		c.name, c.decode = "xz", (&xzPool{dictionary: uint32(max(blockSize, metadataSize))}).decode
	case 5:
		c.name, c.decode = "lz4", lz4Block
	case 6:
		return zstdCodec(blockSize)
	default:
		return nil, fmt.Errorf("%w: its compression method is %d", ErrUnsupported, id)
	}
	return c, nil
}

// bounded reads to the end, which must come within limit bytes.
func bounded(r io.Reader, limit int) ([]byte, error) {
	var b bytes.Buffer
	n, err := b.ReadFrom(io.LimitReader(r, int64(limit)+1))
	if n > int64(limit) {
		return nil, errTooLong
	}
	return b.Bytes(), err
}

type zlibPool struct{ free sync.Pool }

func (p *zlibPool) decode(src []byte, limit int) ([]byte, error) {
	in := bytes.NewReader(src)
	r, ok := p.free.Get().(io.ReadCloser)
	var err error
	if ok {
		err = r.(zlib.Resetter).Reset(in, nil)
	} else {
		r, err = zlib.NewReader(in)
	}
	if err != nil {
		return nil, err
	}
	b, err := bounded(r, limit)
	p.free.Put(r)
	return b, err
}

type xzPool struct {
	dictionary uint32
	free       sync.Pool
}

func (p *xzPool) decode(src []byte, limit int) ([]byte, error) {
	r, ok := p.free.Get().(*xz.Reader)
	if !ok {
		var err error
		if r, err = xz.NewReader(nil, p.dictionary); err != nil {
			return nil, err
		}
	}
	if err := r.Reset(bytes.NewReader(src)); err != nil {
		return nil, err
	}
	b, err := bounded(r, limit)
	if err == nil {
		p.free.Put(r)
	}
	return b, err
}

// lzmaBlock decodes the oldest form: a block is an LZMA file with its 13 bytes of header.
func lzmaBlock(src []byte, limit int) ([]byte, error) {
	const header = 13
	if len(src) < header {
		return nil, io.ErrUnexpectedEOF
	}
	if d := binary.LittleEndian.Uint32(src[1:]); d > 2*maxBlock {
		return nil, fmt.Errorf("an LZMA dictionary of %d bytes where a block has %d at most", d, maxBlock)
	}
	r, err := lzma.NewReader(bytes.NewReader(src))
	if err != nil {
		return nil, err
	}
	return bounded(r, limit)
}

func lz4Block(src []byte, limit int) ([]byte, error) {
	b := make([]byte, limit)
	n, err := lz4.UncompressBlock(src, b)
	if err != nil {
		return nil, err
	}
	return b[:n], nil
}

func zstdCodec(blockSize int) (*codec, error) {
	d, err := zstd.NewReader(nil, zstd.WithDecoderLowmem(true), zstd.WithDecoderConcurrency(2),
		zstd.WithDecoderMaxMemory(uint64(max(blockSize, metadataSize))))
	if err != nil {
		return nil, err
	}
	return &codec{
		name: "zstd",
		decode: func(src []byte, limit int) ([]byte, error) {
			b, err := d.DecodeAll(src, nil)
			if err == nil && len(b) > limit {
				err = errTooLong
			}
			return b, err
		},
		close: d.Close,
	}, nil
}
