// Package inflate64 decodes Deflate64, the variant of DEFLATE (RFC 1951) that APPNOTE.TXT numbers 9: a window of 64 KiB,
// two more distance codes, and a last length code that stands for up to 65538 bytes.
//
// Its memory is fixed, whatever the stream says. Package inflate64 must not know of archives.
package inflate64

import (
	"bufio"
	"errors"
	"io"
)

const (
	window    = 64 << 10
	maxBits   = 15
	literals  = 288
	distances = 32
	endOfRun  = 256
)

// ErrCorrupt says that a stream is no Deflate64 stream.
var ErrCorrupt = errors.New("the deflate64 stream is broken")

// What the codes from 257 on, and the distance codes, stand for: a base and a number of further bits.
var (
	lengthBase = [...]int32{3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 3}
	lengthBits = [...]uint8{0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 16}
	distBase   = [...]int32{1, 2, 3, 4, 5, 7, 9, 13, 17, 25, 33, 49, 65, 97, 129, 193, 257, 385, 513, 769, 1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577, 32769, 49153}
	distBits   = [...]uint8{0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14}
	lengthsAt  = [...]uint8{16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15} // RFC 1951, 3.2.7
)

// code is a canonical Huffman code: how many codes each length has, and the symbols in the order of their codes.
type code struct {
	count  [maxBits + 1]uint16
	symbol [literals]uint16
}

// set makes the code of the lengths. A code that says more than there is room for is broken; one that says less is taken
// and its unused words are broken where they occur.
func (c *code) set(lengths []uint8) bool {
	c.count = [maxBits + 1]uint16{}
	for _, n := range lengths {
		c.count[n]++
	}
	c.count[0] = 0
	room := 1
	var next [maxBits + 2]uint16
	for n := 1; n <= maxBits; n++ {
		room = room<<1 - int(c.count[n])
		if room < 0 {
			return false
		}
		next[n+1] = next[n] + c.count[n]
	}
	for s, n := range lengths {
		if n > 0 {
			c.symbol[next[n]] = uint16(s)
			next[n]++
		}
	}
	return true
}

// state is what the reader does next.
type state uint8

const (
	header state = iota
	stored
	coded
)

// Reader decodes a stream.
type Reader struct {
	in    *bufio.Reader
	bits  uint32
	nbits uint
	err   error // sticky

	buf  [window]byte
	at   int // where the next byte goes
	out  int // first byte that was not given out
	full bool

	state      state
	last       bool
	left       int32 // of a stored block, or of a run
	distance   int32 // of the run
	lit, dist  code
	codeLength code
}

// NewReader decodes the stream that begins at in's position. It takes no byte behind the stream's end.
func NewReader(in *bufio.Reader) *Reader { return &Reader{in: in} }

// Read implements io.Reader. A stream that ends early is io.ErrUnexpectedEOF.
func (r *Reader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for r.out == r.at {
		if r.err != nil {
			return 0, r.err
		}
		if r.at == window {
			r.at, r.out, r.full = 0, 0, true
		}
		r.err = r.fill()
	}
	n := copy(p, r.buf[r.out:r.at])
	r.out += n
	return n, nil
}

// fill decodes until the window's end is reached or the stream's.
func (r *Reader) fill() error {
	for r.at < window {
		var err error
		switch {
		case r.state == header:
			if r.last {
				return io.EOF
			}
			err = r.block()
		case r.state == stored:
			err = r.copyStored()
		case r.left > 0:
			r.copyRun()
		default:
			err = r.next()
		}
		if err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
	}
	return nil
}

// need takes n bits, the first one lowest.
func (r *Reader) need(n uint) (uint32, error) {
	for r.nbits < n {
		b, err := r.in.ReadByte()
		if err != nil {
			return 0, err
		}
		r.bits |= uint32(b) << r.nbits
		r.nbits += 8
	}
	v := r.bits & (1<<n - 1)
	r.bits >>= n
	r.nbits -= n
	return v, nil
}

// decode takes one symbol, bit by bit.
func (r *Reader) decode(c *code) (int, error) {
	var word, first, index int
	for n := 1; n <= maxBits; n++ {
		b, err := r.need(1)
		if err != nil {
			return 0, err
		}
		word |= int(b)
		count := int(c.count[n])
		if word-first < count {
			return int(c.symbol[index+word-first]), nil
		}
		index += count
		first = (first + count) << 1
		word <<= 1
	}
	return 0, ErrCorrupt
}

// block reads the header of a block.
func (r *Reader) block() error {
	h, err := r.need(3)
	if err != nil {
		return err
	}
	r.last = h&1 != 0
	switch h >> 1 {
	case 0:
		return r.beginStored()
	case 1:
		r.state = coded
		var lengths [literals + distances]uint8
		for i := range lengths {
			switch {
			case i < 144:
				lengths[i] = 8
			case i < 256:
				lengths[i] = 9
			case i < 280:
				lengths[i] = 7
			case i < literals:
				lengths[i] = 8
			default:
				lengths[i] = 5
			}
		}
		r.lit.set(lengths[:literals])
		r.dist.set(lengths[literals:])
		return nil
	case 2:
		r.state = coded
		return r.codes()
	}
	return ErrCorrupt
}

func (r *Reader) beginStored() error {
	r.bits, r.nbits = 0, 0 // at most 7 are held: need takes whole bytes
	var b [4]byte
	if _, err := io.ReadFull(r.in, b[:]); err != nil {
		return io.ErrUnexpectedEOF
	}
	n := int32(b[0]) | int32(b[1])<<8
	if n != 0xffff^(int32(b[2])|int32(b[3])<<8) {
		return ErrCorrupt
	}
	r.state, r.left = stored, n
	return nil
}

// codes reads the codes of a block.
func (r *Reader) codes() error {
	h, err := r.need(14)
	if err != nil {
		return err
	}
	nlit, ndist, nlen := int(h&31)+257, int(h>>5&31)+1, int(h>>10)+4
	if nlit > literals {
		return ErrCorrupt
	}
	var lengths [literals + distances]uint8
	for i := range nlen {
		n, err := r.need(3)
		if err != nil {
			return err
		}
		lengths[lengthsAt[i]] = uint8(n)
	}
	if !r.codeLength.set(lengths[:len(lengthsAt)]) {
		return ErrCorrupt
	}
	lengths = [literals + distances]uint8{}
	if err := r.lengths(lengths[:nlit+ndist]); err != nil {
		return err
	}
	if lengths[endOfRun] == 0 || !r.lit.set(lengths[:nlit]) || !r.dist.set(lengths[nlit:nlit+ndist]) {
		return ErrCorrupt
	}
	return nil
}

// lengths reads the lengths of the codes, which are coded themselves.
func (r *Reader) lengths(lengths []uint8) error {
	for i := 0; i < len(lengths); {
		s, err := r.decode(&r.codeLength)
		if err != nil {
			return err
		}
		if s < 16 {
			lengths[i] = uint8(s)
			i++
			continue
		}
		bits, least := []uint{2, 3, 7}[s-16], []int{3, 3, 11}[s-16]
		more, err := r.need(bits)
		if err != nil {
			return err
		}
		n := least + int(more)
		if n > len(lengths)-i || s == 16 && i == 0 {
			return ErrCorrupt
		}
		for range n {
			if s == 16 {
				lengths[i] = lengths[i-1]
			}
			i++
		}
	}
	return nil
}

func (r *Reader) copyStored() error {
	n, err := r.in.Read(r.buf[r.at:min(window, r.at+int(r.left))])
	if r.left == 0 {
		err = nil
	}
	r.at += n
	if r.left -= int32(n); r.left == 0 {
		r.state = header
	}
	if n > 0 {
		return nil
	}
	return err
}

// copyRun repeats bytes up to the window's end.
func (r *Reader) copyRun() {
	for r.left > 0 && r.at < window {
		from := r.at - int(r.distance)
		if from < 0 {
			from += window
		}
		r.buf[r.at] = r.buf[from]
		r.at++
		r.left--
	}
}

// next decodes a literal, the begin of a run or the end of a block.
func (r *Reader) next() error {
	s, err := r.decode(&r.lit)
	switch {
	case err != nil:
		return err
	case s < endOfRun:
		r.buf[r.at] = byte(s)
		r.at++
		return nil
	case s == endOfRun:
		r.state = header
		return nil
	}
	if s -= endOfRun + 1; s >= len(lengthBase) {
		return ErrCorrupt
	}
	more, err := r.need(uint(lengthBits[s]))
	if err != nil {
		return err
	}
	length := lengthBase[s] + int32(more)
	if s, err = r.decode(&r.dist); err != nil {
		return err
	}
	if s >= len(distBase) {
		return ErrCorrupt
	}
	if more, err = r.need(uint(distBits[s])); err != nil {
		return err
	}
	r.left, r.distance = length, distBase[s]+int32(more)
	if !r.full && int(r.distance) > r.at {
		r.left = 0
		return ErrCorrupt
	}
	return nil
}
