// Package imagetest makes small images for tests of the readers, in forms that no program of a Linux distribution
// writes. What it makes is held against readers that are not ours (7-Zip, dmg2img). It belongs to tests alone.
package imagetest

import (
	"encoding/binary"
	"math/bits"
)

// LZFSE compresses data into a stream of LZFSE blocks with one entropy-coded block for each 30,000 bytes: greedy
// matches of four bytes or more.
func LZFSE(data []byte) []byte {
	var out []byte
	for at := 0; at < len(data); at += 30_000 {
		out = append(out, lzfseBlock(data, at, min(at+30_000, len(data)))...)
	}
	return append(out, "bvx$"...)
}

// Plain makes a stream of one block that is not compressed.
func Plain(data []byte) []byte {
	out := binary.LittleEndian.AppendUint32([]byte("bvx-"), uint32(len(data)))
	return append(append(out, data...), "bvx$"...)
}

// InLZVN makes a stream of one block of LZVN instructions.
func InLZVN(data []byte) []byte {
	payload := LZVN(data)
	out := binary.LittleEndian.AppendUint32([]byte("bvxn"), uint32(len(data)))
	out = binary.LittleEndian.AppendUint32(out, uint32(len(payload)))
	return append(append(out, payload...), "bvx$"...)
}

// triple is literals, then a match.
type triple struct{ literals, match, distance int }

// triples finds matches greedily, by the last place of each four bytes.
func triples(data []byte, from, to, maxLiterals, maxMatch, maxDistance int) (found []triple, literals []byte) {
	last := map[uint32]int{}
	for i := 0; i+4 <= from; i++ {
		last[binary.LittleEndian.Uint32(data[i:])] = i
	}
	start := from
	for i := from; i < to; {
		match, distance := 0, 0
		if i+4 <= to {
			key := binary.LittleEndian.Uint32(data[i:])
			if j, ok := last[key]; ok && j < i && i-j <= maxDistance {
				for match < maxMatch && i+match < to && data[j+match] == data[i+match] {
					match++
				}
				distance = i - j
			}
			last[key] = i
		}
		if match < 4 && i-start < maxLiterals {
			i++
			if i < to {
				continue
			}
			match, distance = 0, 0
		} else if match < 4 {
			match, distance = 0, 0
		}
		found = append(found, triple{i - start, match, distance})
		literals = append(literals, data[start:i]...)
		i += match
		start = i
	}
	return found, literals
}

// alphabet is one of the four alphabets: the bits behind each symbol, and the states of its code.
type alphabet struct {
	states int
	extra  []int
}

func ladder(plain int, extra ...int) []int { return append(make([]int, plain), extra...) }

func alphabets() (l, m, d, c alphabet) {
	distances := make([]int, 64)
	for i := range distances {
		distances[i] = i / 4
	}
	return alphabet{64, ladder(16, 2, 3, 5, 8)}, alphabet{64, ladder(16, 3, 5, 8, 11)}, alphabet{256, distances}, alphabet{1024, make([]int, 256)}
}

// symbol finds the range of a value.
func (a alphabet) symbol(v int) (symbol, offset int) {
	base := 0
	for s, e := range a.extra {
		if v < base+1<<e {
			return s, v - base
		}
		base += 1 << e
	}
	panic("a value out of range")
}

// normal scales counts so that they add up to the number of states, with none of a used symbol's lost.
func (a alphabet) normal(counts []int) []int {
	total := 0
	for _, n := range counts {
		total += n
	}
	f := make([]int, len(counts))
	if total == 0 {
		f[0] = a.states
		return f
	}
	left, most := a.states, 0
	for s, n := range counts {
		if n > 0 {
			f[s] = max(1, n*a.states/total)
			left -= f[s]
			if f[s] > f[most] {
				most = s
			}
		}
	}
	for left < 0 { // too many small ones were rounded up
		for s := range f {
			if f[s] > 1 && left < 0 {
				f[s]--
				left++
			}
		}
	}
	f[most] += left
	return f
}

// bitWriter writes bits so that a reader takes them from the end.
type bitWriter struct {
	b    []byte
	acc  uint64
	held int
}

func (w *bitWriter) put(v, n int) {
	w.acc |= uint64(v) << w.held
	w.held += n
	for w.held >= 8 {
		w.b = append(w.b, byte(w.acc))
		w.acc >>= 8
		w.held -= 8
	}
}

// finish writes what is left, and says how many bits of the last byte are not used.
func (w *bitWriter) finish() (b []byte, unused int) {
	if w.held > 0 {
		w.b = append(w.b, byte(w.acc))
		unused = 8 - w.held
	}
	return w.b, unused
}

// encode goes from a state back to one before it: the one that, with the bits that are written, leads here.
func encode(w *bitWriter, f []int, states, symbol, extra, extraBits int, state *int) {
	at := 0
	for s := range symbol {
		at += f[s]
	}
	n := f[symbol]
	k := bits.Len(uint(states)) - bits.Len(uint(n))
	longer := 2*states>>k - n
	for j := range n {
		base, b := (n+j)<<k-states, k
		if j >= longer {
			base, b = (j-longer)<<(k-1), k-1
		}
		if *state >= base && *state < base+1<<b {
			w.put(extra, extraBits)
			w.put(*state-base, b)
			*state = at + j
			return
		}
	}
	panic("no state leads to this one")
}

func lzfseBlock(data []byte, from, to int) []byte {
	aL, aM, aD, aC := alphabets()
	found, literals := triples(data, from, to, 300, 2000, 200_000)
	for len(literals)%4 != 0 {
		literals = append(literals, literals[0])
	}
	type coded struct{ l, lx, m, mx, d, dx int }
	rows := make([]coded, len(found))
	cl, cm, cd, cc := make([]int, 20), make([]int, 20), make([]int, 64), make([]int, 256)
	before := -1
	for i, t := range found {
		r := &rows[i]
		r.l, r.lx = aL.symbol(t.literals)
		r.m, r.mx = aM.symbol(t.match)
		d := t.distance
		if before < 0 && t.match == 0 {
			d, before = 1, 1 // decoders want a distance even where nothing is copied
		} else if d == before || t.match == 0 {
			d = 0 // the last one again
		} else {
			before = d
		}
		r.d, r.dx = aD.symbol(d)
		cl[r.l]++
		cm[r.m]++
		cd[r.d]++
	}
	for _, c := range literals {
		cc[c]++
	}
	fl, fm, fd, fc := aL.normal(cl), aM.normal(cm), aD.normal(cd), aC.normal(cc)

	var w bitWriter
	var states [4]int
	for i := len(literals) - 1; i >= 0; i-- {
		encode(&w, fc, aC.states, int(literals[i]), 0, 0, &states[i%4])
	}
	literalBytes, literalUnused := w.finish()
	w = bitWriter{}
	var sl, sm, sd int
	for i := len(rows) - 1; i >= 0; i-- {
		r := rows[i]
		encode(&w, fd, aD.states, r.d, r.dx, aD.extra[r.d], &sd)
		encode(&w, fm, aM.states, r.m, r.mx, aM.extra[r.m], &sm)
		encode(&w, fl, aL.states, r.l, r.lx, aL.extra[r.l], &sl)
	}
	matchBytes, matchUnused := w.finish()
	matchBytes = append(make([]byte, 8), matchBytes...) // encoders write eight bytes that are never taken

	var f bitWriter
	for _, list := range [][]int{fl, fm, fd, fc} {
		for _, n := range list {
			v, b := frequencyCode(n)
			f.put(v, b)
		}
	}
	if f.held > 0 {
		f.b = append(f.b, byte(f.acc))
	}
	le := binary.LittleEndian
	out := le.AppendUint32([]byte("bvx2"), uint32(to-from))
	out = le.AppendUint64(out, uint64(len(literals))|uint64(len(literalBytes))<<20|uint64(len(rows))<<40|uint64(7-literalUnused)<<60)
	out = le.AppendUint64(out, uint64(states[0])|uint64(states[1])<<10|uint64(states[2])<<20|uint64(states[3])<<30|
		uint64(len(matchBytes))<<40|uint64(7-matchUnused)<<60)
	out = le.AppendUint64(out, uint64(32+len(f.b))|uint64(sl)<<32|uint64(sm)<<42|uint64(sd)<<52)
	out = append(out, f.b...)
	out = append(out, literalBytes...)
	return append(out, matchBytes...)
}

// frequencyCode is the code of a frequency, the lowest bit first.
func frequencyCode(n int) (v, b int) {
	switch {
	case n == 0:
		return 0, 2
	case n == 1:
		return 2, 2
	case n == 2:
		return 1, 3
	case n == 3:
		return 5, 3
	case n < 8:
		return 3 | (n-4)<<3, 5
	case n < 24:
		return 7 | (n-8)<<4, 8
	}
	return 15 | (n-24)<<4, 14
}

// LZVN compresses data into LZVN instructions of every form.
func LZVN(data []byte) []byte {
	var out []byte
	found, literals := triples(data, 0, len(data), 271, 271, 65_535)
	before := 0
	for _, t := range found {
		n := t.literals
		run := literals[:n]
		literals = literals[n:]
		small := n <= 3 && t.match > 0
		if !small {
			out = append(out, literalRun(run)...)
			run = nil
		}
		if t.match > 0 {
			out = append(out, lzvnMatch(run, t.match, t.distance, before)...)
			before = t.distance
		}
	}
	return append(out, 6, 0, 0, 0, 0, 0, 0, 0)
}

func literalRun(run []byte) []byte {
	switch n := len(run); {
	case n == 0:
		return nil
	case n < 16:
		return append([]byte{0xe0 | byte(n)}, run...)
	default:
		return append([]byte{0xe0, byte(n - 16)}, run...)
	}
}

func lzvnMatch(run []byte, match, distance, before int) []byte {
	l := byte(len(run))
	first := min(match, 10-2*int(l)) // longer ones are other instructions
	var out []byte
	switch {
	case distance == before && l == 0: // only match
		return moreMatch(match)
	case distance == before:
		out = []byte{l<<6 | byte(first-3)<<3 | 6}
	case match >= 10 && match <= 34 && distance < 1<<14:
		out = []byte{0xa0 | l<<3 | byte(match-3)>>2, byte(match-3)&3 | byte(distance<<2), byte(distance >> 6)}
		first = match
	case distance < 0x600:
		out = []byte{l<<6 | byte(first-3)<<3 | byte(distance>>8), byte(distance)}
	default:
		out = []byte{l<<6 | byte(first-3)<<3 | 7, byte(distance), byte(distance >> 8)}
	}
	out = append(out, run...)
	return append(out, moreMatch(match-first)...)
}

func moreMatch(n int) []byte {
	switch {
	case n == 0:
		return nil
	case n < 16:
		return []byte{0xf0 | byte(n)}
	}
	return []byte{0xf0, byte(n - 16)}
}
