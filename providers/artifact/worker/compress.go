package worker

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/xi2/xz"

	"rea/providers/artifact"
	"rea/providers/artifact/worker/cpio"
	"rea/providers/artifact/worker/tar"
)

// A compressed stream holds one embedded file, or a tar or cpio archive that is read as part of the stream, over all of
// its members (frames, concatenated streams).

// codec is one compressed format.
type codec struct {
	name     string
	suffixes []string // taken from a file's name, replaced by what follows the equals sign, if any
	// open begins to decode. The reader returns errTail where bytes follow that are not of the format.
	open func(in *counter) (io.Reader, error)
	// tail is where such bytes begin; -1 where that is not known. at is the number of bytes that the decoder took.
	tail func(c *container, at int64) int64
	// inner is the name that the stream gives to its file, nil for none.
	inner func(c *container) []byte
}

// errTail says that the stream has ended and something else follows.
var errTail = errors.New("bytes of another kind follow the compressed stream")

func readGzip(c *container) error {
	return c.decompress(codec{name: "gzip", suffixes: []string{".tgz=.tar", ".gz"}, inner: gzipName,
		open: func(in *counter) (io.Reader, error) {
			z, err := gzip.NewReader(in.Reader)
			if err != nil {
				return nil, err
			}
			z.Multistream(false)
			return &gzipMembers{in: in, z: z}, nil
		},
		tail: func(_ *container, at int64) int64 { return at },
	})
}

// gzipMembers reads one member after another, and stops where something else follows.
type gzipMembers struct {
	in *counter
	z  *gzip.Reader
}

// Read implements io.Reader.
func (g *gzipMembers) Read(p []byte) (int, error) {
	for {
		n, err := g.z.Read(p)
		if n > 0 && err == io.EOF {
			err = nil
		}
		if n > 0 || err != io.EOF {
			return n, err
		}
		next, _ := g.in.Peek(3)
		if len(next) == 0 {
			return 0, io.EOF
		}
		if string(next) != "\x1f\x8b\x08" {
			return 0, errTail
		}
		if err := g.z.Reset(g.in.Reader); err != nil {
			return 0, noEOF(err)
		}
		g.z.Multistream(false)
	}
}

// gzipName reads the FNAME field of the first member (RFC 1952) as bytes.
func gzipName(c *container) []byte {
	const (
		fixed, flagExtra, flagName = 10, 4, 8
		longest                    = 64<<10 + 1<<10
	)
	b := make([]byte, min(c.src.size, longest))
	n, _ := c.src.ReadAt(b, 0)
	if b = b[:n]; len(b) < fixed || b[3]&flagName == 0 {
		return nil
	}
	flags := b[3]
	if b = b[fixed:]; flags&flagExtra != 0 {
		if len(b) < 2 || len(b)-2 < int(binary.LittleEndian.Uint16(b)) {
			return nil
		}
		b = b[2+binary.LittleEndian.Uint16(b):]
	}
	name, _, ok := bytes.Cut(b, []byte{0})
	if !ok {
		return nil
	}
	return name
}

func readBzip2(c *container) error {
	return c.decompress(codec{name: "bzip2", suffixes: []string{".tbz2=.tar", ".tbz=.tar", ".bz2"},
		open: func(in *counter) (io.Reader, error) { return bzip2Streams{bzip2.NewReader(in.Reader)}, nil },
		tail: func(_ *container, at int64) int64 { return at - bzip2Ahead },
	})
}

// bzip2Streams tells bytes behind the last stream from damage inside one.
type bzip2Streams struct{ r io.Reader }

const (
	// bzip2Tail is the error of package bzip2 for such bytes; a test holds it against the package.
	bzip2Tail = bzip2.StructuralError("bad magic value in continuation file")
	// bzip2Ahead is how much of them the package takes before it says so.
	bzip2Ahead = 2
)

// Read implements io.Reader.
func (b bzip2Streams) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if err == bzip2Tail {
		err = errTail
	}
	return n, err
}

func readXZ(c *container) error {
	return c.decompress(codec{name: "xz", suffixes: []string{".txz=.tar", ".xz"},
		open: func(in *counter) (io.Reader, error) {
			r, err := xz.NewReader(in, maxDictionary)
			if err != nil {
				return nil, err
			}
			return xzStreams{r}, nil
		},
		tail: xzEnd,
	})
}

// xzStreams tells bytes behind the last stream from damage inside one.
type xzStreams struct{ r *xz.Reader }

// Read implements io.Reader.
func (x xzStreams) Read(p []byte) (int, error) {
	n, err := x.r.Read(p)
	if errors.Is(err, xz.ErrFormat) {
		err = errTail
	}
	return n, err
}

// xzEnd finds the last valid stream footer before a position: its CRC-32, sizes and mark (the .xz format, 2.1.2).
func xzEnd(c *container, at int64) int64 {
	const footer = 12
	const behind = 64 << 10 // more than the decoder reads ahead
	start := max(0, at-behind)
	b := make([]byte, min(at+footer, c.src.size)-start)
	n, _ := c.src.ReadAt(b, start)
	for i := n - footer; i >= 0; i-- {
		f := b[i : i+footer]
		if string(f[10:]) == "YZ" && crc32.ChecksumIEEE(f[4:10]) == binary.LittleEndian.Uint32(f) {
			return start + int64(i) + footer
		}
	}
	return -1
}

func readZstd(c *container) error {
	return c.decompress(codec{name: "zstd", suffixes: []string{".tzst=.tar", ".zst"},
		open: func(in *counter) (io.Reader, error) {
			d, err := newZstd(in)
			if err != nil {
				return nil, err
			}
			return &zstdFrames{d: d}, nil
		},
		tail: zstdEnd,
	})
}

func newZstd(r io.Reader) (*zstd.Decoder, error) {
	return zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(maxDictionary), zstd.WithDecoderMaxMemory(maxDictionary))
}

// zstdFrames tells bytes behind the last frame from a stream that is none.
type zstdFrames struct {
	d    *zstd.Decoder
	some bool
}

// Read implements io.Reader.
func (z *zstdFrames) Read(p []byte) (int, error) {
	n, err := z.d.Read(p)
	z.some = z.some || n > 0
	if errors.Is(err, zstd.ErrMagicMismatch) && z.some {
		err = errTail
	}
	return n, err
}

// Close ends the decoder.
func (z *zstdFrames) Close() error {
	z.d.Close()
	return nil
}

// zstdEnd walks frames and their blocks by their headers (RFC 8878, 3.1.1) to the first byte that begins none.
func zstdEnd(c *container, _ int64) int64 {
	var at int64
	for {
		var b [18]byte
		n, _ := c.src.ReadAt(b[:], at)
		if n < 8 {
			return at
		}
		switch magic := binary.LittleEndian.Uint32(b[:]); {
		case magic&^0xf == 0x184d2a50: // skippable
			at += 8 + int64(binary.LittleEndian.Uint32(b[4:]))
		case magic == 0xfd2fb528:
			end, ok := zstdBlocks(c, at, b[4])
			if !ok {
				return -1
			}
			at = end
		default:
			return at
		}
		if at > c.src.size || c.w.ctx.Err() != nil {
			return -1
		}
	}
}

func zstdBlocks(c *container, at int64, descriptor byte) (int64, bool) {
	sizes := []int64{0, 2, 4, 8}
	content := sizes[descriptor>>6]
	window := int64(1)
	if single := descriptor&0x20 != 0; single {
		window = 0
		content = max(content, 1)
	}
	at += 5 + window + []int64{0, 1, 2, 4}[descriptor&3] + content
	for {
		var b [3]byte
		if n, _ := c.src.ReadAt(b[:], at); n < len(b) || c.w.ctx.Err() != nil {
			return 0, false
		}
		head := uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16
		size := int64(head >> 3)
		if head>>1&3 == 1 { // one byte, repeated
			size = 1
		}
		at += 3 + size
		if head&1 != 0 {
			break
		}
	}
	if descriptor&4 != 0 {
		at += 4
	}
	return at, true
}

// counter knows how many bytes a decoder has taken from its buffer, exactly where the decoder reads single bytes and no
// further than it must.
type counter struct {
	*bufio.Reader
	src *counted
}

type counted struct {
	r io.Reader
	n int64
}

// Read implements io.Reader.
func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

func newCounter(r io.Reader) *counter {
	const input = 64 << 10
	src := &counted{r: r}
	return &counter{bufio.NewReaderSize(src, input), src}
}

func (c *counter) taken() int64 { return c.src.n - int64(c.Buffered()) }

// guarded holds a decoded stream against the guards.
type guarded struct {
	c   *container
	in  *counter
	r   io.Reader
	n   int64
	err error // sticky
}

// Read implements io.Reader.
func (g *guarded) Read(p []byte) (int, error) {
	if g.err != nil {
		return 0, g.err
	}
	if g.err = context.Cause(g.c.w.ctx); g.err != nil {
		return 0, g.err
	}
	n, err := g.r.Read(p)
	g.n += int64(n)
	switch {
	case g.n > maxEntryBytes:
		err = &hit{"entry-bytes", maxEntryBytes, g.n, g.c.path}
	case g.n > ratioFrom && g.n/maxRatio > g.in.taken():
		err = &hit{"compression-ratio", maxRatio, g.n / max(g.in.taken(), 1), g.c.path}
	}
	g.err = err
	return n, err
}

// ahead decodes in a goroutine of its own, a few buffers ahead of the one that hashes.
type ahead struct {
	full chan chunk
	free chan []byte
	stop chan struct{}
	own  sync.WaitGroup
	once sync.Once
	rest []byte
	cur  []byte
	err  error
}

type chunk struct {
	b   []byte
	err error
}

const aheadBuffers = 4

func newAhead(r io.Reader) *ahead {
	a := &ahead{full: make(chan chunk, aheadBuffers), free: make(chan []byte, aheadBuffers), stop: make(chan struct{})}
	for range aheadBuffers {
		a.free <- make([]byte, copyBuffer)
	}
	a.own.Go(func() { a.run(r) })
	return a
}

func (a *ahead) run(r io.Reader) {
	defer close(a.full)
	defer func() {
		if e := recover(); e != nil {
			a.full <- chunk{nil, errors.New("its decoder failed")} // has room: a buffer is out
		}
	}()
	for {
		select {
		case <-a.stop:
			return
		case b := <-a.free:
			n, err := io.ReadAtLeast(r, b, 1)
			a.full <- chunk{b[:n], err} // has room for all buffers
			if err != nil {
				return
			}
		}
	}
}

// Read implements io.Reader.
func (a *ahead) Read(p []byte) (int, error) {
	for len(a.rest) == 0 {
		if a.err != nil {
			return 0, a.err
		}
		if a.cur != nil {
			a.free <- a.cur[:cap(a.cur)]
			a.cur = nil
		}
		ch, ok := <-a.full
		if !ok {
			a.err = io.EOF
			continue
		}
		a.cur, a.rest, a.err = ch.b, ch.b, ch.err
	}
	n := copy(p, a.rest)
	a.rest = a.rest[n:]
	return n, nil
}

// Close ends the goroutine and waits for it.
func (a *ahead) Close() {
	a.once.Do(func() { close(a.stop) })
	a.own.Wait()
}

// decompress reads a compressed stream as a container.
func (c *container) decompress(k codec) error {
	in := newCounter(c.src.reader())
	dec, err := k.open(in)
	if err != nil {
		return noEOF(err)
	}
	if closer, ok := dec.(io.Closer); ok {
		defer closer.Close()
	}
	g := &guarded{c: c, in: in, r: dec}
	a := newAhead(g)
	defer a.Close()
	c.stream = true
	br := bufio.NewReaderSize(a, copyBuffer)
	switch head, _ := br.Peek(recogniseFrom); {
	case tar.Looks(head):
		err = c.tarStream(br)
	case cpio.Looks(head):
		err = c.cpioStream(br)
	default:
		err = c.embedded(k, br)
	}
	if err != nil {
		return err
	}
	a.Close() // from here on g is not read any more
	return c.streamEnd(k, g)
}

// tarStream reads a tar archive inside the stream, and what follows its end mark.
func (c *container) tarStream(r io.Reader) error {
	r = endAtTail{r}
	t := &tarReader{c: c, r: tar.NewReader(r), known: map[string]hardLink{}}
	if err := t.stream(); err != nil {
		return err
	}
	if !errors.Is(t.ended, io.EOF) && !errors.Is(t.ended, io.ErrUnexpectedEOF) && !errors.Is(t.ended, tar.ErrFormat) {
		return nil // the stream's own end says why
	}
	return t.end(func(int64) error {
		buf := make([]byte, copyBuffer)
		other := int64(0)
		for {
			n, err := r.Read(buf)
			if len(bytes.Trim(buf[:n], "\x00")) > 0 || other > 0 {
				other += int64(n)
			}
			if err != nil {
				break // the stream's own end says why
			}
		}
		if other > 0 {
			c.note(fmt.Sprintf("Bytes that are not all zero follow the end mark of its tar archive: %d.", other))
		}
		return nil
	})
}

// embedded reads the one file of a stream.
func (c *container) embedded(k codec, r io.Reader) error {
	m := &member{declared: -1, compressed: -1, method: k.name}
	m.open = func() (io.ReadCloser, error) { return io.NopCloser(endAtTail{r}), nil }
	var name []byte
	if k.inner != nil {
		name = k.inner(c)
		name = name[bytes.LastIndexByte(name, '/')+1:]
	}
	if len(name) > 0 {
		c.add(m, [][]byte{name})
	} else {
		c.named(m, k.strip(c.base), true, nil)
	}
	return c.one(m, make([]byte, copyBuffer))
}

// endAtTail ends a file where its stream ends, whatever follows.
type endAtTail struct{ r io.Reader }

// Read implements io.Reader.
func (e endAtTail) Read(p []byte) (int, error) {
	n, err := e.r.Read(p)
	if err == errTail {
		err = io.EOF
	}
	return n, err
}

// strip gives the name of the file inside from the name of the compressed one, which is escaped already.
func (k codec) strip(base string) string {
	base = base[strings.LastIndexByte(base, '/')+1:]
	for _, s := range k.suffixes {
		suffix, instead, _ := strings.Cut(s, "=")
		if len(base) > len(suffix) && hasSuffix(base, suffix) {
			return base[:len(base)-len(suffix)] + instead
		}
	}
	return base
}

// streamEnd says how the stream ended: by itself, early, at a guard, or with something behind it.
func (c *container) streamEnd(k codec, g *guarded) error {
	var h *hit
	switch {
	case g.err == nil || g.err == io.EOF:
		return nil
	case context.Cause(c.w.ctx) != nil:
		return context.Cause(c.w.ctx)
	case errors.As(g.err, &h):
		c.note(h.String())
		c.w.meet(h)
		return nil
	case g.err == errTail:
		return c.streamTail(k, k.tail(c, g.in.taken()))
	}
	c.partial(fmt.Sprintf("Its %s stream cannot be decoded to its end: %s.", k.name, reason(g.err)))
	return nil
}

func (c *container) streamTail(k codec, at int64) error {
	if at < 0 || at >= c.src.size {
		c.note(fmt.Sprintf("Bytes that are not %s follow its stream; nothing in them was looked into.", k.name))
		return nil
	}
	zero, err := c.isZero(at, c.src.size)
	if err != nil {
		return err
	}
	if zero {
		c.note(fmt.Sprintf("%d zero bytes follow its stream, from %d to %d.", c.src.size-at, at, c.src.size))
	} else {
		c.note(fmt.Sprintf("%d bytes that are not %s follow its stream, from %d to %d; nothing in them was looked into.", c.src.size-at, k.name, at, c.src.size))
	}
	return c.region(artifact.RegionTail, at, c.src.size)
}

// noEOF keeps the end of the input from passing for a sound end of the stream.
func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
