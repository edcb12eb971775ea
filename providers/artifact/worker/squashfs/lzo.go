package squashfs

import "errors"

var errLZO = errors.New("its LZO data is broken")

// lzo decodes one LZO1X block into at most limit bytes. The stream is the one that the Linux kernel's document "LZO
// stream format" describes: instructions that copy literals and earlier output.
func lzo(src []byte, limit int) ([]byte, error) {
	d := lzoDecoder{src: src, limit: limit}
	if len(src) == 0 {
		return nil, errLZO
	}
	if first := int(src[0]); first > 17 { // the first byte may be a run of literals
		d.at = 1
		d.literals(first - 17)
		d.state = min(first-17, 4)
	}
	for !d.ended && !d.bad {
		d.instruction()
	}
	if d.bad || d.at != len(src) {
		return nil, errLZO
	}
	return d.dst, nil
}

type lzoDecoder struct {
	src, dst []byte
	at       int
	limit    int
	state    int // literals that the last instruction copied: 0 to 3, or 4 for a run
	ended    bool
	bad      bool
}

// next gives the next byte; behind the end it is 0 and bad is set.
func (d *lzoDecoder) next() int {
	if d.at >= len(d.src) {
		d.bad = true
		return 0
	}
	d.at++
	return int(d.src[d.at-1])
}

func (d *lzoDecoder) instruction() {
	switch c := d.next(); {
	case c >= 64:
		d.match((c>>2&7)+d.next()<<3+1, lzoShort(c), c&3)
	case c >= 32:
		n := d.length(c&31, 31) + 2
		low := d.next()
		d.match((low>>2)+d.next()<<6+1, n, low&3)
	case c >= 16:
		n := d.length(c&7, 7) + 2
		low := d.next()
		distance := (low>>2 + d.next()<<6) + (c&8)<<11
		if distance == 0 { // the end mark
			d.ended = true
			return
		}
		d.match(distance+0x4000, n, low&3)
	case d.state == 0: // a run of literals
		d.literals(d.length(c&15, 15) + 3)
		d.state = 4
	case d.state < 4:
		d.match(d.next()<<2+c>>2+1, 2, c&3)
	default:
		d.match(d.next()<<2+c>>2+2049, 3, c&3)
	}
}

// lzoShort is the length of a match that stands in the first byte of its instruction.
func lzoShort(c int) int {
	if c >= 128 {
		return 5 + c>>5&3
	}
	return 3 + c>>5&1
}

// length is n, or where n is 0 the sum of the bytes that follow, up to one that is not 0.
func (d *lzoDecoder) length(n, more int) int {
	if n != 0 {
		return n
	}
	n = more
	for !d.bad && n <= d.limit {
		c := d.next()
		if c != 0 {
			return n + c
		}
		n += 255
	}
	d.bad = true
	return 0
}

func (d *lzoDecoder) literals(n int) {
	if d.bad || n > len(d.src)-d.at || n > d.limit-len(d.dst) {
		d.bad = true
		return
	}
	d.dst = append(d.dst, d.src[d.at:d.at+n]...)
	d.at += n
}

// match copies n bytes of earlier output, which may overlap what is written, and then the literals that follow.
func (d *lzoDecoder) match(distance, n, literals int) {
	if d.bad || distance > len(d.dst) || n > d.limit-len(d.dst) {
		d.bad = true
		return
	}
	for range n {
		d.dst = append(d.dst, d.dst[len(d.dst)-distance])
	}
	d.literals(literals)
	d.state = literals
}
