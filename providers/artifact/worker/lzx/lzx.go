// Package lzx decodes LZX as Microsoft cabinets use it ([MS-PATCH] describes the method): a window of 32 KiB to 2 MiB, in
// frames of up to 32 KiB whose bits begin anew.
//
// Its memory is the window. Package lzx must not know of archives.
package lzx

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

const (
	minWindow, maxWindow = 15, 21 // powers of two
	maxBits              = 16
	literals             = 256
	lengths              = 249
	pretree              = 20
	aligned              = 8
	maxSlots             = 50
	maxTranslated        = 1 << 15 // frames in which calls are translated
)

// ErrCorrupt says that a frame is no LZX frame.
var ErrCorrupt = errors.New("the LZX data is broken")

// slotsOf is how many ranges of distances a window has.
var slotsOf = [...]int{30, 32, 34, 36, 38, 42, 50}

// code is a canonical Huffman code, the first bit of a word highest.
type code struct {
	limit  [maxBits + 1]uint32 // of words of a length, filled up to maxBits
	first  [maxBits + 1]uint32
	index  [maxBits + 1]int
	symbol [literals + 8*maxSlots]uint16
}

// set makes the code of the lengths. No lengths at all are a code of no words.
func (c *code) set(length []uint8) error {
	var count [maxBits + 1]int
	for _, n := range length {
		if n > maxBits {
			return ErrCorrupt
		}
		count[n]++
	}
	count[0] = 0
	var next [maxBits + 1]int
	word, at := uint32(0), 0
	for n := 1; n <= maxBits; n++ {
		unit := uint32(1) << (maxBits - n)
		c.first[n], c.index[n], next[n] = word, at, at
		word += uint32(count[n]) * unit
		at += count[n]
		c.limit[n] = word
	}
	if word > 1<<maxBits {
		return ErrCorrupt
	}
	for s, n := range length {
		if n > 0 {
			c.symbol[next[n]] = uint16(s)
			next[n]++
		}
	}
	return nil
}

// Block types.
const (
	verbatim     = 1
	alignedBlock = 2
	uncompressed = 3
)

// Decoder decodes frames in order.
type Decoder struct {
	window []byte
	slots  int
	at     int64 // bytes decoded
	bits   bitReader

	started   bool
	translate int32 // size of the program whose calls were made absolute, 0 for none
	frames    int

	kind    uint32 // of the current block
	left    int    // bytes of it
	odd     bool   // it has an odd number of them
	run     int    // bytes of a match that reaches into the next frame
	recent  [3]int
	main    [literals + 8*maxSlots]uint8 // lengths of codes, which each block changes
	length  [lengths]uint8
	mainSet code
	lenSet  code
	alnSet  code
	preSet  code
}

// New makes a decoder with a window of two to the power of bits.
func New(bits int) (*Decoder, error) {
	if bits < minWindow || bits > maxWindow {
		return nil, fmt.Errorf("%w: a window of 2^%d bytes", ErrCorrupt, bits)
	}
	return &Decoder{window: make([]byte, 1<<bits), slots: slotsOf[bits-minWindow], recent: [3]int{1, 1, 1}}, nil
}

// Block decodes the next frame, which fills out.
func (d *Decoder) Block(packed, out []byte) error {
	d.bits = bitReader{b: packed}
	if !d.started {
		d.started = true
		if d.bits.take(1) == 1 {
			d.translate = int32(d.bits.take(16)<<16 | d.bits.take(16))
		}
	}
	start := d.at
	for n := 0; n < len(out); {
		done, err := d.some(out[n:])
		if err == nil && d.bits.over() {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
		n += done
	}
	if d.translate != 0 && d.frames < maxTranslated {
		relative(out, int32(start), d.translate)
	}
	d.frames++
	return nil
}

// some decodes a part of a frame, of one block or of a header.
func (d *Decoder) some(out []byte) (int, error) {
	if d.run > 0 {
		return d.repeat(out), nil
	}
	if d.left == 0 {
		return 0, d.header()
	}
	out = out[:min(len(out), d.left)]
	if d.kind == uncompressed {
		n := d.bits.raw(out)
		if n == 0 {
			return 0, io.ErrUnexpectedEOF
		}
		for _, b := range out[:n] {
			d.put(b)
		}
		if d.left -= n; d.left == 0 && d.odd {
			d.bits.at++ // a byte that makes words of it
		}
		return n, nil
	}
	return d.symbols(out)
}

func (d *Decoder) put(b byte) {
	d.window[int(d.at)&(len(d.window)-1)] = b
	d.at++
}

// header reads the head of a block.
func (d *Decoder) header() error {
	d.kind = d.bits.take(3)
	d.left = int(d.bits.take(16)<<8 | d.bits.take(8))
	d.odd = d.left&1 == 1
	switch d.kind {
	case alignedBlock:
		var length [aligned]uint8
		for i := range length {
			length[i] = uint8(d.bits.take(3))
		}
		if err := d.alnSet.set(length[:]); err != nil {
			return err
		}
		return d.trees()
	case verbatim:
		return d.trees()
	case uncompressed:
		return d.plain()
	}
	return ErrCorrupt
}

func (d *Decoder) plain() error {
	d.bits.align()
	var b [12]byte
	if d.bits.raw(b[:]) < len(b) {
		return io.ErrUnexpectedEOF
	}
	for i := range d.recent {
		v := binary.LittleEndian.Uint32(b[4*i:])
		if v == 0 || v > uint32(len(d.window)) {
			return ErrCorrupt
		}
		d.recent[i] = int(v)
	}
	return nil
}

// trees reads the codes of a block, as differences to those before.
func (d *Decoder) trees() error {
	all := d.main[:literals+8*d.slots]
	for _, part := range [][]uint8{all[:literals], all[literals:]} {
		if err := d.lengths(part); err != nil {
			return err
		}
	}
	if err := d.mainSet.set(all); err != nil {
		return err
	}
	if err := d.lengths(d.length[:]); err != nil {
		return err
	}
	return d.lenSet.set(d.length[:])
}

func (d *Decoder) lengths(list []uint8) error {
	var pre [pretree]uint8
	for i := range pre {
		pre[i] = uint8(d.bits.take(4))
	}
	if err := d.preSet.set(pre[:]); err != nil {
		return err
	}
	for i := 0; i < len(list); {
		s, err := d.bits.decode(&d.preSet)
		if err != nil {
			return err
		}
		n, zero := 1, false
		switch s {
		case 17:
			n, zero = 4+int(d.bits.take(4)), true
		case 18:
			n, zero = 20+int(d.bits.take(5)), true
		case 19:
			n = 4 + int(d.bits.take(1))
			if s, err = d.bits.decode(&d.preSet); err != nil || s > maxBits {
				return ErrCorrupt
			}
		}
		if n > len(list)-i {
			return ErrCorrupt
		}
		value := uint8((int(list[i]) - s + 17) % 17)
		if zero {
			value = 0
		}
		for range n {
			list[i] = value
			i++
		}
	}
	return nil
}

// symbols decodes literals and matches up to the end of out.
func (d *Decoder) symbols(out []byte) (n int, err error) {
	for n < len(out) {
		s, err := d.bits.decode(&d.mainSet)
		if err != nil {
			return n, err
		}
		if s < literals {
			out[n] = byte(s)
			d.put(byte(s))
			n++
			d.left--
			continue
		}
		if err := d.match(s - literals); err != nil {
			return n, err
		}
		n += d.repeat(out[n:])
	}
	return n, nil
}

// match reads a match: its length into run, its distance into recent[0].
func (d *Decoder) match(s int) error {
	const longer = 7
	slot, length := s>>3, s&7
	if length == longer {
		more, err := d.bits.decode(&d.lenSet)
		if err != nil {
			return err
		}
		length += more
	}
	length += 2
	switch {
	case slot < len(d.recent):
		d.recent[0], d.recent[slot] = d.recent[slot], d.recent[0]
	default:
		distance, err := d.distance(slot)
		if err != nil {
			return err
		}
		d.recent = [3]int{distance, d.recent[0], d.recent[1]}
	}
	if length > d.left || int64(d.recent[0]) > d.at || d.recent[0] > len(d.window) {
		return ErrCorrupt
	}
	d.run = length
	return nil
}

// distance reads what follows a slot: the slots from 4 on have one bit more each second time, up to 17.
func (d *Decoder) distance(slot int) (int, error) {
	const most, low = 17, 3
	extra := min(max(slot/2-1, 0), most)
	base := slot
	switch {
	case extra == most && slot > 2*most+2:
		base = 1<<(most+1) + (slot-2*most-2)<<most
	case extra > 0:
		base = (2 + slot&1) << extra
	}
	if d.kind != alignedBlock || extra < low {
		return base - 2 + int(d.bits.take(uint(extra))), nil
	}
	high := int(d.bits.take(uint(extra-low))) << low
	s, err := d.bits.decode(&d.alnSet)
	return base - 2 + high + s, err
}

// repeat copies what is left of a match, as far as out reaches.
func (d *Decoder) repeat(out []byte) int {
	n := min(len(out), d.run)
	mask := len(d.window) - 1
	for i := range n {
		b := d.window[(int(d.at)-d.recent[0])&mask]
		out[i] = b
		d.put(b)
	}
	d.run -= n
	d.left -= n
	return n
}

// relative makes the targets of calls relative again: those that lie in the program.
func relative(out []byte, at, size int32) {
	const call, behind = 0xe8, 10
	le := binary.LittleEndian
	for i := 0; i < len(out)-behind; i++ {
		if out[i] != call {
			continue
		}
		pc := at + int32(i)
		target := int32(le.Uint32(out[i+1:]))
		if target >= -pc && target < size {
			if target >= 0 {
				target -= pc
			} else {
				target += size
			}
			le.PutUint32(out[i+1:], uint32(target))
		}
		i += 4
	}
}

// bitReader reads words of 16 bits, the lower byte first, the highest bit first.
type bitReader struct {
	b     []byte
	at    int
	held  uint64
	nheld uint
	lack  int // bytes that were not there
}

func (r *bitReader) fill(n uint) {
	for r.nheld < n {
		var w uint64
		if r.at+1 < len(r.b) {
			w = uint64(r.b[r.at]) | uint64(r.b[r.at+1])<<8
		} else {
			r.lack += 2
		}
		r.at += 2
		r.held = r.held<<16 | w
		r.nheld += 16
	}
}

// take gives n bits, at most 17; zeros where the frame has ended.
func (r *bitReader) take(n uint) uint32 {
	r.fill(n)
	r.nheld -= n
	return uint32(r.held>>r.nheld) & (1<<n - 1)
}

func (r *bitReader) decode(c *code) (int, error) {
	r.fill(maxBits)
	v := uint32(r.held>>(r.nheld-maxBits)) & (1<<maxBits - 1)
	for n := 1; n <= maxBits; n++ {
		if v < c.limit[n] {
			r.nheld -= uint(n)
			return int(c.symbol[c.index[n]+int((v-c.first[n])>>(maxBits-n))]), nil
		}
	}
	return 0, ErrCorrupt
}

// over reports whether bits were used that were not there.
func (r *bitReader) over() bool { return 8*r.lack > int(r.nheld) }

// align gives back whole words and drops the bits of the last one; a whole word is dropped where none was begun.
func (r *bitReader) align() {
	if r.nheld == 0 {
		r.fill(16)
	}
	r.at -= int(r.nheld / 16 * 2)
	if r.nheld%16 == 0 {
		r.at += 2
	}
	r.held, r.nheld, r.lack = 0, 0, 0
}

// raw takes bytes behind an alignment.
func (r *bitReader) raw(out []byte) int {
	if r.nheld > 0 {
		r.at -= int(r.nheld / 16 * 2) // words that were only looked at
		r.held, r.nheld, r.lack = 0, 0, 0
	}
	n := copy(out, r.b[min(r.at, len(r.b)):])
	r.at += n
	return n
}
