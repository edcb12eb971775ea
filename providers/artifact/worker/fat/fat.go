// Package fat reads the slice table of a universal Mach-O file (mach-o/fat.h), 32- and 64-bit, in either byte order.
//
// A Java class begins with the same four bytes: Looks tells them apart. Package fat must not read what is inside a
// slice.
package fat

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
)

const (
	magic32 = 0xcafebabe
	magic64 = 0xcafebabf

	headerSize = 8
	arch32Size = 20
	arch64Size = 32

	// maxSlices is more than the processor types that ever existed; a Java class has at least 45 in this field.
	maxSlices = 44
)

// ErrFormat says that a file is not a universal Mach-O or that its table does not fit.
var ErrFormat = errors.New("not a readable universal Mach-O header")

// Slice is one architecture's part of the file.
type Slice struct {
	CPU, Subtype   uint32
	Offset, Length int64
	Problem        string // why the range cannot be read, "" when it can
}

// Looks reports whether the first bytes are a universal header rather than a Java class or anything else. In both
// formats the second word decides: a fat file has a few slices, a class file a major version of 45 or more.
func Looks(b []byte) bool {
	_, _, n, ok := head(b)
	return ok && n > 0 && n <= maxSlices
}

func head(b []byte) (order binary.ByteOrder, wide bool, count uint32, ok bool) {
	if len(b) < headerSize {
		return nil, false, 0, false
	}
	for _, order := range []binary.ByteOrder{binary.BigEndian, binary.LittleEndian} {
		switch order.Uint32(b) {
		case magic32:
			return order, false, order.Uint32(b[4:]), true
		case magic64:
			return order, true, order.Uint32(b[4:]), true
		}
	}
	return nil, false, 0, false
}

// Read reads the slice table of a file of the given size.
func Read(r io.ReaderAt, size int64) ([]Slice, error) {
	var b [headerSize + maxSlices*arch64Size]byte
	n, err := r.ReadAt(b[:min(size, int64(len(b)))], 0)
	if err != nil && err != io.EOF {
		return nil, err
	}
	order, wide, count, ok := head(b[:n])
	if !ok || count == 0 || count > maxSlices {
		return nil, ErrFormat
	}
	step := arch32Size
	if wide {
		step = arch64Size
	}
	if headerSize+int(count)*step > n {
		return nil, fmt.Errorf("%w: a table of %d slices does not fit into %d bytes", ErrFormat, count, size)
	}
	slices := make([]Slice, count)
	for i := range slices {
		e := b[headerSize+i*step:]
		offset, length := uint64(order.Uint32(e[8:])), uint64(order.Uint32(e[12:]))
		if wide {
			offset, length = order.Uint64(e[8:]), order.Uint64(e[16:])
		}
		s := Slice{CPU: order.Uint32(e), Subtype: order.Uint32(e[4:])}
		if offset > uint64(size) || length > uint64(size)-offset {
			s.Problem = fmt.Sprintf("its range of %d bytes at %d lies outside the file of %d bytes", length, offset, size)
		} else {
			s.Offset, s.Length = int64(offset), int64(length)
		}
		slices[i] = s
	}
	return slices, nil
}

// Name is the architecture's usual name, or "cpu-" and its number.
func (s Slice) Name() string {
	const capabilities = 0xff000000 // of the subtype: not part of the architecture
	switch sub := s.Subtype &^ capabilities; s.CPU {
	case 7:
		return "i386"
	case 0x01000007:
		if sub == 8 {
			return "x86_64h"
		}
		return "x86_64"
	case 12:
		switch sub {
		case 6:
			return "armv6"
		case 9:
			return "armv7"
		case 11:
			return "armv7s"
		case 12:
			return "armv7k"
		}
		return "arm"
	case 0x0100000c:
		if sub == 2 {
			return "arm64e"
		}
		return "arm64"
	case 0x0200000c:
		return "arm64_32"
	case 18:
		return "ppc"
	case 0x01000012:
		return "ppc64"
	}
	return "cpu-" + strconv.FormatUint(uint64(s.CPU), 10)
}
