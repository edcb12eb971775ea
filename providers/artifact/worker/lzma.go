package worker

import (
	"encoding/binary"
	"fmt"
	"io"
	"math/bits"

	"github.com/ulikunitz/xz/lzma"
	"github.com/xi2/xz"
)

// lzmaHeader is the length of the header of an LZMA stream: properties, size of the dictionary, size of the content.
const lzmaHeader = 13

// isLZMA recognises the old stream format, which has no mark: the properties that all of its programs write, a
// dictionary of a size that they choose, a content size that is unknown or below a TiB, and the first byte of the range
// coder, which is 0.
func isLZMA(head []byte) bool {
	const usual, most = 0x5d, 1 << 40
	if len(head) < lzmaHeader+5 || head[0] != usual || head[lzmaHeader] != 0 {
		return false
	}
	le := binary.LittleEndian
	dictionary, size := le.Uint32(head[1:]), le.Uint64(head[5:])
	if dictionary < 1<<12 || bits.OnesCount32(dictionary) > 2 || size >= most && size != 1<<64-1 {
		return false
	}
	return bits.OnesCount32(dictionary) == 1 || dictionary>>(bits.TrailingZeros32(dictionary)) == 3
}

func readLZMA(c *container) error {
	return c.decompress(codec{name: "lzma", suffixes: []string{".tlz=.tar", ".lzma"},
		open: func(in *counter) (io.Reader, error) {
			r, err := lzma.ReaderConfig{DictCap: maxDictionary}.NewReader(in)
			if err != nil {
				return nil, err
			}
			return lzmaStream{in, r}, nil
		},
		tail: func(_ *container, at int64) int64 { return at },
	})
}

// lzmaStream notices bytes behind the end of its stream.
type lzmaStream struct {
	in *counter
	r  io.Reader
}

// Read implements io.Reader.
func (l lzmaStream) Read(p []byte) (int, error) {
	n, err := l.r.Read(p)
	if err == io.EOF {
		if next, _ := l.in.Peek(1); len(next) > 0 {
			err = errTail
		}
	}
	return n, err
}

func readPbzx(c *container) error {
	return c.decompress(codec{name: "pbzx", suffixes: []string{".pbzx"},
		open: func(in *counter) (io.Reader, error) {
			const header = 12 // mark and size of a piece
			_, err := in.Discard(header)
			return &pbzxPieces{in: in}, err
		},
		tail: func(_ *container, at int64) int64 { return at },
	})
}

// pbzxPieces reads one piece after another: the size of its content, its own size, and an xz stream or plain bytes.
type pbzxPieces struct {
	in   *counter
	left *io.LimitedReader // of the current piece
	cur  io.Reader
	xz   *xz.Reader
}

// Read implements io.Reader.
func (b *pbzxPieces) Read(p []byte) (int, error) {
	for {
		if b.cur == nil {
			if err := b.next(); err != nil {
				return 0, err
			}
		}
		n, err := b.cur.Read(p)
		if err == io.EOF {
			b.cur, err = nil, b.finish()
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

// finish looks at what is left of a piece whose content has ended.
func (b *pbzxPieces) finish() error {
	if b.left.N > 0 {
		return fmt.Errorf("a piece ends %d bytes early", b.left.N)
	}
	return nil
}

func (b *pbzxPieces) next() error {
	var h [16]byte
	if n, err := io.ReadFull(b.in, h[:]); err != nil {
		if n == 0 {
			return io.EOF
		}
		return io.ErrUnexpectedEOF
	}
	length := binary.BigEndian.Uint64(h[8:])
	if length > 1<<62 {
		return fmt.Errorf("a piece of %d bytes", length)
	}
	b.left = &io.LimitedReader{R: b.in, N: int64(length)}
	if mark, _ := b.in.Peek(6); string(mark) != "\xfd7zXZ\x00" {
		b.cur = exactly{b.left}
		return nil
	}
	var err error
	if b.xz == nil {
		b.xz, err = xz.NewReader(b.left, maxDictionary)
	} else {
		err = b.xz.Reset(b.left)
	}
	b.cur = b.xz
	return noEOF(err)
}

// exactly reports a stream that ends before its limit.
type exactly struct{ *io.LimitedReader }

// Read implements io.Reader.
func (e exactly) Read(p []byte) (int, error) {
	n, err := e.LimitedReader.Read(p)
	if err == io.EOF && e.N > 0 {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}
