package worker

import (
	"encoding/binary"
	"fmt"
	"io"

	"rea/providers/artifact"
)

// readCRX reads a browser extension: a zip archive behind a header with keys and signatures, which is not verified and
// listed as the archive's prefix. Version 2 has two lengths behind its version, version 3 has one.
func readCRX(c *container) error {
	const fixed, more = 12, 4
	var b [fixed + more]byte
	if n, _ := c.src.ReadAt(b[:], 0); n < len(b) {
		return io.ErrUnexpectedEOF
	}
	le := binary.LittleEndian
	header := fixed + int64(le.Uint32(b[8:]))
	if le.Uint32(b[4:]) == 2 {
		header += more + int64(le.Uint32(b[fixed:]))
	}
	if err := readZip(c); err != nil {
		return err
	}
	var prefix int64
	if len(c.regions) > 0 && c.regions[0].Role == artifact.RegionPrefix {
		prefix = c.regions[0].Length
	}
	if c.names != nil && prefix != header {
		c.note(fmt.Sprintf("Its header is declared with %d bytes, and %d stand before its archive.", header, prefix))
	}
	return nil
}
