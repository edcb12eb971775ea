package sevenzip

import (
	"encoding/binary"
	"slices"
)

// parser takes a header apart. Its first error stays, and everything it gives from then on is zero.
type parser struct {
	b    []byte
	file int64 // size of the file
	err  error
}

func (p *parser) fail(format string, args ...any) {
	if p.err == nil {
		p.err = broken(format, args...)
	}
	p.b = nil
}

// take gives the next n bytes.
func (p *parser) take(n int) []byte {
	if n > len(p.b) || n < 0 {
		p.fail("a field of %d bytes where %d are left", n, len(p.b))
		return nil
	}
	b := p.b[:n:n]
	p.b = p.b[n:]
	return b
}

func (p *parser) byte() byte {
	if b := p.take(1); len(b) == 1 {
		return b[0]
	}
	return 0
}

// number reads an integer whose first byte says with its leading ones how many further bytes it has.
func (p *parser) number() uint64 {
	first := p.byte()
	var v uint64
	for i := range 8 {
		mask := byte(0x80) >> i
		if first&mask == 0 {
			return v | uint64(first&(mask-1))<<(8*i)
		}
		v |= uint64(p.byte()) << (8 * i)
	}
	return v
}

// size reads a number of bytes.
func (p *parser) size() int64 {
	n := p.number()
	if n>>maxSizeBit != 0 {
		p.fail("a size of %d", n)
		return 0
	}
	return int64(n)
}

// count reads a number of things that each need a byte of some header.
func (p *parser) count() int {
	n := p.number()
	if n > maxHeader {
		p.fail("a count of %d", n)
		return 0
	}
	return int(n)
}

// skipTo passes fields that are not known to the first of the marks.
func (p *parser) skipTo(marks ...byte) byte {
	for p.err == nil {
		mark := p.byte()
		if slices.Contains(marks, mark) {
			return mark
		}
		p.take(p.count())
	}
	return kEnd
}

// inside refuses a field whose values lie in another stream, which no program writes.
func (p *parser) inside(what string) {
	if p.byte() != 0 {
		p.fail("its %s lie outside its header", what)
	}
}

// defined reads which of n things have a value: nil for all.
func (p *parser) defined(n int) []byte {
	if p.byte() != 0 {
		return nil
	}
	v := p.take((n + 7) / 8)
	if v == nil {
		return []byte{}
	}
	return v
}

// sums reads CRC-32 sums.
func (p *parser) sums(list []*sum) {
	v := p.defined(len(list))
	for i, s := range list {
		if v != nil && !bit(v, i) {
			continue
		}
		b := p.take(4)
		if b == nil {
			return
		}
		*s = sum{binary.LittleEndian.Uint32(b), true}
	}
}

// packed reads where packed streams lie.
func (p *parser) packed() []Extent {
	at := headSize + p.size()
	n := p.count()
	mark := p.skipTo(kSize, kEnd)
	if mark != kSize {
		return nil
	}
	var list []Extent
	for range n {
		size := p.size()
		if p.err != nil {
			return nil
		}
		if at > p.file || size > p.file-at {
			p.fail("packed bytes from %d to %d of a file of %d", at, at+size, p.file)
			return nil
		}
		list = append(list, Extent{at, size})
		at += size
	}
	if p.skipTo(kCRC, kEnd) == kCRC {
		sums := make([]*sum, len(list))
		for i := range sums {
			sums[i] = &sum{}
		}
		p.sums(sums) // of packed bytes; those of unpacked ones are verified
		p.skipTo(kEnd)
	}
	return list
}

// folders reads the folders and gives each its packed streams.
func (p *parser) folders(packed []Extent) []Folder {
	if p.skipTo(kFolder, kEnd) != kFolder {
		return nil
	}
	n := p.count()
	p.inside("folders")
	var list []Folder
	for range n {
		f := p.folder()
		if p.err != nil {
			return nil
		}
		streams := 0
		for _, from := range f.inputs {
			if from < 0 {
				streams++
			}
		}
		if streams > len(packed) {
			p.fail("folders that use more packed streams than there are")
			return nil
		}
		f.Packed, packed = packed[:streams:streams], packed[streams:]
		list = append(list, f)
	}
	if p.skipTo(kUnpackSize, kEnd) != kUnpackSize {
		p.fail("folders without sizes")
		return nil
	}
	for i := range list {
		for c := range list[i].Coders {
			list[i].Coders[c].Size = p.size()
		}
	}
	if p.skipTo(kCRC, kEnd) == kCRC {
		sums := make([]*sum, len(list))
		for i := range sums {
			sums[i] = &sum{}
		}
		p.sums(sums)
		for i, s := range sums {
			if s.known {
				list[i].CRC = &s.value
			}
		}
		p.skipTo(kEnd)
	}
	return list
}

// folder reads the coders of one folder and what joins them.
func (p *parser) folder() Folder {
	var f Folder
	n := p.count()
	if n == 0 || n > maxCoders {
		p.fail("a folder of %d coders", n)
		return f
	}
	inputs := 0
	for range n {
		c := p.coder()
		if p.err != nil {
			return f
		}
		inputs += c.Inputs
		f.Coders = append(f.Coders, c)
	}
	f.inputs = make([]int, inputs)
	const free = 1 << 30
	for i := range f.inputs {
		f.inputs[i] = free
	}
	used := make([]bool, n)
	for range n - 1 {
		in, out := p.count(), p.count()
		if p.err != nil || in >= inputs || out >= n || f.inputs[in] != free || used[out] {
			p.fail("coders that are not joined to one")
			return f
		}
		f.inputs[in], used[out] = out, true
	}
	f.main = slices.Index(used, false)
	p.inputs(&f, free)
	if p.err == nil && !f.tree() {
		p.fail("coders that are joined in a circle")
	}
	return f
}

// inputs gives each input that is not joined its packed stream.
func (p *parser) inputs(f *Folder, free int) {
	streams := len(f.inputs) - len(f.Coders) + 1
	if streams < 1 {
		p.fail("a folder without packed bytes")
		return
	}
	for i := range streams {
		in := slices.Index(f.inputs, free)
		if streams > 1 {
			in = p.count()
		}
		if in < 0 || in >= len(f.inputs) || f.inputs[in] != free {
			p.fail("a packed stream that goes nowhere")
			return
		}
		f.inputs[in] = -1 - i
	}
}

// tree reports whether every coder contributes to the main one: no two join in a circle.
func (f *Folder) tree() bool {
	seen := make([]bool, len(f.Coders))
	todo := []int{f.main}
	for count := 0; len(todo) > 0; count++ {
		c := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if seen[c] {
			return false
		}
		seen[c] = true
		first := 0
		for _, before := range f.Coders[:c] {
			first += before.Inputs
		}
		for _, from := range f.inputs[first : first+f.Coders[c].Inputs] {
			if from >= 0 {
				todo = append(todo, from)
			}
		}
	}
	return !slices.Contains(seen, false)
}

func (p *parser) coder() Coder {
	const idLength, complexCoder, hasProperties, reserved = 0x0f, 0x10, 0x20, 0xc0
	flags := p.byte()
	id := p.take(int(flags & idLength))
	c := Coder{Inputs: 1}
	if flags&reserved != 0 || len(id) > 8 {
		p.fail("a coder of another form")
		return c
	}
	for _, b := range id {
		c.Method = c.Method<<8 | Method(b)
	}
	if flags&complexCoder != 0 {
		in, out := p.count(), p.count()
		if p.err == nil && (in == 0 || in > maxInputs || out != 1) {
			p.fail("a coder of %d inputs and %d outputs", in, out)
		}
		c.Inputs = in
	}
	if flags&hasProperties != 0 {
		c.Properties = p.take(p.count())
	}
	return c
}
