package lzfse

import "math/bits"

// state is a row of a decoding table: with so many bits read, the symbol it stands for and the next state.
type state struct {
	bits   uint8 // of the next state
	extra  uint8 // of the value, read together with those of the state
	symbol uint8
	delta  int16
	base   int32 // of the value
}

// table makes the decoding table of an alphabet. The states of a symbol with frequency f stand together: some take one
// bit fewer than the others, so that their next states cover all states.
func table(frequencies []uint16, states int) ([]state, bool) {
	t := make([]state, states) // rows that no symbol has decode as symbol 0 without bits
	at := 0
	for symbol, f16 := range frequencies {
		f := int(f16)
		if f == 0 {
			continue
		}
		if f > states-at {
			return nil, false
		}
		k := bits.Len(uint(states)) - bits.Len(uint(f))
		longer := (2*states)>>k - f
		for j := range f {
			row := state{symbol: uint8(symbol)}
			if j < longer {
				row.bits, row.delta = uint8(k), int16((f+j)<<k-states)
			} else {
				row.bits, row.delta = uint8(k-1), int16((j-longer)<<(k-1))
			}
			t[at] = row
			at++
		}
	}
	return t, true
}

// values makes the decoding table of an alphabet whose symbols stand for ranges of values: a base and so many bits.
func values(frequencies []uint16, states int, extra func(symbol int) uint8) ([]state, bool) {
	t, ok := table(frequencies, states)
	if !ok {
		return nil, false
	}
	bases := make([]int32, len(frequencies)+1)
	for s := range frequencies {
		bases[s+1] = bases[s] + 1<<extra(s)
	}
	for i := range t {
		t[i].extra, t[i].base = extra(int(t[i].symbol)), bases[t[i].symbol]
	}
	return t, true
}

// The bits that follow each symbol of literal lengths, match lengths and distances.

func extraL(s int) uint8 {
	if s < 16 {
		return 0
	}
	return [...]uint8{2, 3, 5, 8}[s-16]
}

func extraM(s int) uint8 {
	if s < 16 {
		return 0
	}
	return [...]uint8{3, 5, 8, 11}[s-16]
}

func extraD(s int) uint8 { return uint8(s / 4) }

// decode takes one symbol's bits and goes to the next state. value is the symbol itself where it has no range.
func (r *bitReader) decode(t []state, now *int) (symbol uint8, value int) {
	row := t[*now]
	b := r.take(int(row.bits + row.extra))
	*now = int(row.delta) + b>>row.extra
	if uint(*now) >= uint(len(t)) {
		r.bad, *now = true, 0
	}
	return row.symbol, int(row.base) + b&(1<<row.extra-1)
}

// readLiterals decodes all literals of the block; four states take turns.
func (b *block) readLiterals(src []byte) ([]byte, bool) {
	if b.literals == 0 {
		return nil, true
	}
	t, ok := table(b.frequencies[symbolsL+symbolsM+symbolsD:], statesC)
	if !ok {
		return nil, false
	}
	r := newBits(src, b.literalBits)
	literals := make([]byte, 0, b.literals)
	for len(literals) < b.literals && !r.bad {
		r.fill()
		for i := range b.literalStates {
			c, _ := r.decode(t, &b.literalStates[i])
			literals = append(literals, c)
		}
	}
	return literals, !r.bad
}

// readMatches decodes the block's triples of literal length, match length and distance, and carries them out.
func (b *block) readMatches(dst, src, literals []byte, end int) ([]byte, bool) {
	f := b.frequencies[:]
	tableL, okL := values(f[:symbolsL], statesL, extraL)
	tableM, okM := values(f[symbolsL:symbolsL+symbolsM], statesM, extraM)
	tableD, okD := values(f[symbolsL+symbolsM:symbolsL+symbolsM+symbolsD], statesD, extraD)
	if !okL || !okM || !okD {
		return dst, false
	}
	r := newBits(src, b.matchBits)
	distance := 0
	for range b.matches {
		r.fill()
		_, l := r.decode(tableL, &b.stateL)
		_, m := r.decode(tableM, &b.stateM)
		if _, d := r.decode(tableD, &b.stateD); d != 0 {
			distance = d
		}
		if r.bad || l > len(literals) || l > end-len(dst) || m > end-len(dst)-l {
			return dst, false
		}
		dst = append(dst, literals[:l]...)
		literals = literals[l:]
		var ok bool
		if dst, ok = match(dst, distance, m); !ok {
			return dst, false
		}
	}
	return dst, true
}
