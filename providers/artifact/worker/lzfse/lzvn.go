package lzfse

import "encoding/binary"

// DecodeLZVN decodes a stream of LZVN instructions into at most limit bytes.
func DecodeLZVN(src []byte, limit int) ([]byte, error) {
	return lzvn(nil, src, limit)
}

// lzvn appends what the instructions of src make to dst, which earlier blocks have filled; limit bounds all of dst.
func lzvn(dst, src []byte, limit int) ([]byte, error) {
	distance := 0
	for {
		op, ok := instruction(src)
		if !ok {
			return dst, errBroken
		}
		if op.end {
			return dst, nil
		}
		src = src[op.size:]
		if op.literals > len(src) || op.literals > limit-len(dst) || op.match > limit-len(dst)-op.literals {
			return dst, errBroken
		}
		dst = append(dst, src[:op.literals]...)
		src = src[op.literals:]
		if op.distance >= 0 {
			distance = op.distance
		}
		if dst, ok = match(dst, distance, op.match); !ok {
			return dst, errBroken
		}
	}
}

// operation is an instruction: literals that follow it, then a match. distance is -1 for that of the last match.
type operation struct {
	size, literals, match, distance int
	end                             bool
}

// instruction takes the next instruction apart. The first byte's high bits give its form.
func instruction(b []byte) (operation, bool) {
	if len(b) == 0 {
		return operation{}, false
	}
	c := int(b[0])
	literals, length := c>>6, c>>3&7+3
	need := func(n int) bool { return len(b) >= n }
	switch {
	case c == 0x06:
		return operation{end: true}, true
	case c == 0x0e || c == 0x16: // nothing
		return operation{size: 1, distance: -1}, true
	case c >= 0xf1:
		return operation{size: 1, match: c & 15, distance: -1}, true
	case c == 0xf0 && need(2):
		return operation{size: 2, match: int(b[1]) + 16, distance: -1}, true
	case c >= 0xe1 && c < 0xf0:
		return operation{size: 1, literals: c & 15, distance: -1}, true
	case c == 0xe0 && need(2):
		return operation{size: 2, literals: int(b[1]) + 16, distance: -1}, true
	case c >= 0xa0 && c < 0xc0 && need(3):
		low := int(binary.LittleEndian.Uint16(b[1:]))
		return operation{size: 3, literals: c >> 3 & 3, match: c&7<<2 | low&3 + 3, distance: low >> 2}, true
	case c >= 0x70 && c < 0x80 || c >= 0xd0: // no instruction, or a cut one
		return operation{}, false
	case c >= 0xa0 && c < 0xc0:
		return operation{}, false
	case c&7 == 7 && need(3):
		return operation{size: 3, literals: literals, match: length, distance: int(binary.LittleEndian.Uint16(b[1:]))}, true
	case c&7 == 6 && literals > 0:
		return operation{size: 1, literals: literals, match: length, distance: -1}, true
	case c&7 < 6 && need(2):
		return operation{size: 2, literals: literals, match: length, distance: c&7<<8 | int(b[1])}, true
	}
	return operation{}, false
}

// match appends n bytes that stand distance before the end, which may overlap what is appended.
func match(dst []byte, distance, n int) ([]byte, bool) {
	if n == 0 {
		return dst, true
	}
	if distance <= 0 || distance > len(dst) {
		return dst, false
	}
	for n > 0 {
		from := len(dst) - distance
		k := min(n, distance)
		dst = append(dst, dst[from:from+k]...)
		n -= k
	}
	return dst, true
}
