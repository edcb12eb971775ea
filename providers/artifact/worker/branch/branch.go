// Package branch undoes the filters that 7z puts before compression where machine code calls by relative address, as far
// as package xi2/xz does not have them: ARM64, and BCJ2, which takes x86 calls and jumps out into streams of their own.
//
// Its memory is fixed. Package branch must not know of archives.
package branch

import (
	"bufio"
	"encoding/binary"
	"io"
)

const piece = 64 << 10

// ARM64 gives absolute addresses in branches with link, and in page addresses that lie near, back as relative ones. pc
// is the address of the first byte.
func ARM64(r io.Reader, pc uint32) io.Reader { return &arm64{r: r, pc: pc} }

type arm64 struct {
	r    io.Reader
	pc   uint32
	buf  [piece]byte
	done []byte // converted and not given out
	err  error
}

// Read implements io.Reader.
func (a *arm64) Read(p []byte) (int, error) {
	for len(a.done) == 0 {
		if a.err != nil {
			return 0, a.err
		}
		a.fill()
	}
	n := copy(p, a.done)
	a.done = a.done[n:]
	return n, nil
}

// fill reads a piece whole, so that every piece but the last ends with an instruction.
func (a *arm64) fill() {
	n, err := io.ReadFull(a.r, a.buf[:])
	if err == io.ErrUnexpectedEOF {
		err = io.EOF
	}
	a.err = err
	a.done = a.buf[:n]
	for i := 0; i+4 <= n; i += 4 {
		w := a.buf[i:]
		binary.LittleEndian.PutUint32(w, relative(binary.LittleEndian.Uint32(w), a.pc+uint32(i)))
	}
	a.pc += uint32(n)
}

// relative converts one instruction at pc.
func relative(instruction, pc uint32) uint32 {
	switch {
	case instruction>>26 == 0x25: // BL: 26 bits, in words
		return 0x94000000 | (instruction-pc>>2)&0x03ffffff
	case instruction&0x9f000000 == 0x90000000: // ADRP: 21 bits, in pages, of which those in reach use 18
		page := instruction>>29&3 | instruction>>3&0x1ffffc
		if (page+0x20000)&0x1c0000 != 0 {
			return instruction
		}
		page -= pc >> 12
		return instruction&0x9000001f | page&3<<29 | page&0x3fffc<<3 | -(page&0x20000)&0xe00000
	}
	return instruction
}

// The range coder of BCJ2: 11 bits of probability, moved by a 32nd.
const (
	probabilityBits = 11
	move            = 5
	top             = 1 << 24
)

// BCJ2 puts the targets of calls and jumps back into a program: main is the program without them, decisions say of each
// place where one may stand whether one does.
func BCJ2(main, calls, jumps, decisions io.Reader) io.Reader {
	b := &bcj2{
		main: bufio.NewReaderSize(main, piece), calls: bufio.NewReader(calls), jumps: bufio.NewReader(jumps),
		decisions: bufio.NewReader(decisions), width: 1<<32 - 1,
	}
	for i := range b.probabilities {
		b.probabilities[i] = 1 << (probabilityBits - 1)
	}
	return b
}

type bcj2 struct {
	main, calls, jumps, decisions *bufio.Reader

	started       bool
	width, code   uint32
	probabilities [256 + 2]uint16 // for a call by the byte before it; for a jump; for a conditional jump
	before        byte
	at            uint32  // bytes given so far
	target        [4]byte // of a call or jump
	pending       []byte  // of target, not given out yet
	err           error
}

// Read implements io.Reader.
func (b *bcj2) Read(p []byte) (n int, err error) {
	if b.err == nil && !b.started {
		b.started = true
		b.err = b.start()
	}
	for n < len(p) && b.err == nil {
		if len(b.pending) > 0 {
			c := copy(p[n:], b.pending)
			b.pending = b.pending[c:]
			n += c
			b.at += uint32(c)
			continue
		}
		c, err := b.main.ReadByte()
		if err != nil {
			b.err = err
			break
		}
		p[n] = c
		n++
		b.at++
		if branches(b.before, c) {
			b.err = b.decide(c)
		} else {
			b.before = c
		}
	}
	if n > 0 {
		return n, nil
	}
	return 0, b.err
}

// branches reports whether two bytes may begin a call or jump: E8, E9, or 0F 80 to 0F 8F.
func branches(before, c byte) bool { return c&0xfe == 0xe8 || before == 0x0f && c&0xf0 == 0x80 }

func (b *bcj2) start() error {
	for range 5 {
		c, err := b.decisions.ReadByte()
		if err != nil {
			return early(err)
		}
		b.code = b.code<<8 | uint32(c)
	}
	return nil
}

// decide reads whether a target follows the byte c, and the target.
func (b *bcj2) decide(c byte) error {
	probability, from := &b.probabilities[257], b.jumps
	switch c {
	case 0xe8:
		probability, from = &b.probabilities[b.before], b.calls
	case 0xe9:
		probability = &b.probabilities[256]
	}
	taken, err := b.bit(probability)
	if err != nil || !taken {
		b.before = c
		return err
	}
	if _, err := io.ReadFull(from, b.target[:]); err != nil {
		return early(err)
	}
	binary.LittleEndian.PutUint32(b.target[:], binary.BigEndian.Uint32(b.target[:])-(b.at+4))
	b.pending, b.before = b.target[:], b.target[3]
	return nil
}

func (b *bcj2) bit(probability *uint16) (bool, error) {
	if b.width < top {
		c, err := b.decisions.ReadByte()
		if err != nil {
			return false, early(err)
		}
		b.width <<= 8
		b.code = b.code<<8 | uint32(c)
	}
	bound := b.width >> probabilityBits * uint32(*probability)
	if b.code < bound {
		b.width = bound
		*probability += (1<<probabilityBits - *probability) >> move
		return false, nil
	}
	b.width -= bound
	b.code -= bound
	*probability -= *probability >> move
	return true, nil
}

func early(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
