package worker

import (
	"encoding/binary"
	"fmt"

	"rea/providers/artifact"
)

// isAppImage reports whether an ELF file has the mark of the AppImage specification in the padding of its ident field.
func isAppImage(head []byte) bool {
	return len(head) > 10 && string(head[:4]) == "\x7fELF" && head[8] == 'A' && head[9] == 'I' && (head[10] == 1 || head[10] == 2)
}

// readAppImage reads the image that an AppImage carries: of type 1 the file is an ISO 9660 image whose unused first
// sectors hold the program; of type 2 a squashfs image follows the program.
func readAppImage(c *container) error {
	var head [64]byte
	if n, _ := c.src.ReadAt(head[:], 0); n < len(head) {
		return fmt.Errorf("its ELF header is cut")
	}
	if head[10] == 1 {
		return readISO(c)
	}
	start := elfEnd(head[:])
	var mark [4]byte
	if start < int64(len(head)) || start > c.src.size-int64(len(mark)) {
		return fmt.Errorf("its program ends at %d, and the file at %d: no image follows", start, c.src.size)
	}
	if _, err := c.src.ReadAt(mark[:], start); err != nil {
		return err
	}
	if string(mark[:]) != "hsqs" {
		return fmt.Errorf("what follows its program at %d begins with %q and is no squashfs image", start, mark[:])
	}
	if err := c.region(artifact.RegionPrefix, 0, start); err != nil {
		return err
	}
	return c.squashFS(start)
}

// elfEnd is where an ELF file's section headers end, which is where its linker ended it.
func elfEnd(head []byte) int64 {
	const class64, bigEndian = 2, 2
	order := binary.ByteOrder(binary.LittleEndian)
	if head[5] == bigEndian {
		order = binary.BigEndian
	}
	if head[4] == class64 {
		return end(order.Uint64(head[40:]), order.Uint16(head[58:]), order.Uint16(head[60:]))
	}
	return end(uint64(order.Uint32(head[32:])), order.Uint16(head[46:]), order.Uint16(head[48:]))
}

// end is behind a table, 0 where it lies out of reach.
func end(at uint64, size, count uint16) int64 {
	if at > artifact.MaxInteger {
		return 0
	}
	return int64(at) + int64(size)*int64(count)
}
