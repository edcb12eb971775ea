// Package lzfse decodes LZFSE and LZVN, Apple's compression of disk images and files: blocks of matches and literals,
// coded with finite state entropy (LZFSE) or as instructions (LZVN).
//
// It exists because no decoder in Go without cgo is kept up. It follows the format of Apple's reference implementation.
// Package lzfse must not allocate by what a block says of itself.
package lzfse

import (
	"encoding/binary"
	"errors"
)

var errBroken = errors.New("its LZFSE or LZVN data is broken")

// Block marks.
const (
	markEnd    = "bvx$"
	markPlain  = "bvx-"
	markLZVN   = "bvxn"
	markFSE    = "bvx2"
	markFSEOld = "bvx1" // the same with its fields unpacked
)

// The states and symbols of the four tables, as the format fixes them.
const (
	symbolsL, statesL = 20, 64
	symbolsM, statesM = 20, 64
	symbolsD, statesD = 64, 256
	symbolsC, statesC = 256, 1024 // literals
	symbols           = symbolsL + symbolsM + symbolsD + symbolsC

	maxMatches  = 10_000
	maxLiterals = 4 * maxMatches
)

// Decode decodes a stream of blocks into at most limit bytes.
func Decode(src []byte, limit int) ([]byte, error) {
	var dst []byte
	le := binary.LittleEndian
	for {
		if len(src) < 4 {
			return dst, errBroken
		}
		mark := string(src[:4])
		if mark == markEnd {
			return dst, nil
		}
		if len(src) < 12 {
			return dst, errBroken
		}
		raw := int64(le.Uint32(src[4:]))
		if raw > int64(limit-len(dst)) {
			return dst, errBroken
		}
		end := len(dst) + int(raw)
		var err error
		switch mark {
		case markPlain:
			if src = src[8:]; raw > int64(len(src)) {
				return dst, errBroken
			}
			dst, src = append(dst, src[:raw]...), src[raw:]
		case markLZVN:
			n := int64(le.Uint32(src[8:]))
			if src = src[12:]; n > int64(len(src)) {
				return dst, errBroken
			}
			if dst, err = lzvn(dst, src[:n], end); err != nil {
				return dst, err
			}
			src = src[n:]
		case markFSE, markFSEOld:
			if dst, src, err = fseBlock(dst, src, end, mark == markFSEOld); err != nil {
				return dst, err
			}
		default:
			return dst, errBroken
		}
		if len(dst) != end {
			return dst, errBroken
		}
	}
}

// block is the head of a block of entropy-coded data.
type block struct {
	literals, matches        int
	literalBytes, matchBytes int
	literalBits, matchBits   int // bits of the first word that are not used, 0 to 7
	literalStates            [4]int
	stateL, stateM, stateD   int
	frequencies              [symbols]uint16
}

// fseBlock decodes one block onto dst, up to a length of end, and gives what follows the block.
func fseBlock(dst, src []byte, end int, old bool) ([]byte, []byte, error) {
	b, size, ok := packedHead(src)
	if old {
		b, size, ok = plainHead(src)
	}
	if !ok || !b.sound() {
		return dst, src, errBroken
	}
	src = src[size:]
	if b.literalBytes > len(src) || b.matchBytes > len(src)-b.literalBytes {
		return dst, src, errBroken
	}
	literals, ok := b.readLiterals(src[:b.literalBytes])
	if !ok {
		return dst, src, errBroken
	}
	src = src[b.literalBytes:]
	dst, ok = b.readMatches(dst, src[:b.matchBytes], literals, end)
	if !ok {
		return dst, src, errBroken
	}
	return dst, src[b.matchBytes:], nil
}

// packedHead reads the head whose fields are packed into three words and whose frequencies have codes of variable length.
func packedHead(src []byte) (*block, int, bool) {
	const fixed = 32
	if len(src) < fixed {
		return nil, 0, false
	}
	le := binary.LittleEndian
	w := [3]uint64{le.Uint64(src[8:]), le.Uint64(src[16:]), le.Uint64(src[24:])}
	field := func(word, at, n int) int { return int(w[word] >> at & (1<<n - 1)) }
	b := &block{
		literals: field(0, 0, 20), literalBytes: field(0, 20, 20), matches: field(0, 40, 20), literalBits: 7 - field(0, 60, 3),
		literalStates: [4]int{field(1, 0, 10), field(1, 10, 10), field(1, 20, 10), field(1, 30, 10)},
		matchBytes:    field(1, 40, 20), matchBits: 7 - field(1, 60, 3),
		stateL: field(2, 32, 10), stateM: field(2, 42, 10), stateD: field(2, 52, 10),
	}
	size := field(2, 0, 32)
	if size < fixed || size > len(src) {
		return nil, 0, false
	}
	return b, size, b.readFrequencies(src[fixed:size])
}

// plainHead reads the head whose fields stand one after another.
func plainHead(src []byte) (*block, int, bool) {
	const fixed, size = 50, 52 + 2*symbols - 2
	if len(src) < size {
		return nil, 0, false
	}
	le := binary.LittleEndian
	u16 := func(at int) int { return int(le.Uint16(src[at:])) }
	u32 := func(at int) int { return int(min(le.Uint32(src[at:]), 1<<20)) }
	b := &block{
		literals: u32(12), matches: u32(16), literalBytes: u32(20), matchBytes: u32(24), literalBits: -int(int32(le.Uint32(src[28:]))),
		literalStates: [4]int{u16(32), u16(34), u16(36), u16(38)}, matchBits: -int(int32(le.Uint32(src[40:]))),
		stateL: u16(44), stateM: u16(46), stateD: u16(48),
	}
	for i := range b.frequencies {
		b.frequencies[i] = le.Uint16(src[fixed+2*i:])
	}
	return b, size, true
}

// readFrequencies decodes the frequencies' own code: up to 14 bits each, the lowest first. None at all are all zero.
func (b *block) readFrequencies(src []byte) bool {
	if len(src) == 0 {
		return true
	}
	acc, held := uint64(0), 0
	for i := range b.frequencies {
		for len(src) > 0 && held <= 32 {
			acc |= uint64(src[0]) << held
			held += 8
			src = src[1:]
		}
		value, n := frequency(uint32(acc))
		if n > held {
			return false
		}
		b.frequencies[i] = value
		acc >>= n
		held -= n
	}
	return len(src) == 0 && held < 8
}

// frequency takes one code apart: a value and the bits it takes.
func frequency(b uint32) (value uint16, n int) {
	switch {
	case b&3 == 0:
		return 0, 2
	case b&3 == 2:
		return 1, 2
	case b&7 == 1:
		return 2, 3
	case b&7 == 5:
		return 3, 3
	case b&7 == 3:
		return uint16(4 + b>>3&3), 5
	case b&15 == 7:
		return uint16(8 + b>>4&15), 8
	}
	return uint16(24 + b>>4&1023), 14
}

// sound holds the head's fields against what the format allows.
func (b *block) sound() bool {
	for _, s := range b.literalStates {
		if s >= statesC {
			return false
		}
	}
	return b.literals <= maxLiterals && b.literals%4 == 0 && b.matches <= maxMatches &&
		0 <= b.literalBits && b.literalBits <= 7 && 0 <= b.matchBits && b.matchBits <= 7 &&
		b.stateL < statesL && b.stateM < statesM && b.stateD < statesD
}

// bitReader takes bits from the end of its bytes, the highest first.
type bitReader struct {
	b    []byte
	acc  uint64
	held int
	bad  bool
}

// newBits begins with the last eight bytes (seven where all of their bits are used); unused is how many of the highest
// bits are not.
func newBits(b []byte, unused int) *bitReader {
	r := &bitReader{b: b}
	n := 8
	if unused == 0 {
		n = 7
	}
	n = min(n, len(b)) // fewer where all of the bits are few
	for i := range n {
		r.acc |= uint64(b[len(b)-n+i]) << (8 * i)
	}
	r.b, r.held = b[:len(b)-n], 8*n-unused
	r.bad = r.held < 0 || r.acc>>r.held != 0
	return r
}

// fill makes at least 56 bits ready, as long as there are any.
func (r *bitReader) fill() {
	for r.held <= 55 && len(r.b) > 0 {
		r.acc = r.acc<<8 | uint64(r.b[len(r.b)-1])
		r.b = r.b[:len(r.b)-1]
		r.held += 8
	}
}

func (r *bitReader) take(n int) int {
	r.held -= n
	if r.held < 0 {
		r.bad, r.held, r.acc = true, 0, 0
		return 0
	}
	v := r.acc >> r.held
	r.acc &= 1<<r.held - 1
	return int(v)
}
