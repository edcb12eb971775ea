package cab

import (
	"bytes"
	"io"
	"testing"
)

// Files lie in folders that are there, a folder gives no more than its blocks can, and reading ends.
func FuzzCabinet(f *testing.F) {
	f.Add([]byte("MSCF\x00\x00\x00\x00\x56\x00\x00\x00\x00\x00\x00\x00\x2c\x00\x00\x00\x00\x00\x00\x00\x03\x01\x01\x00\x01\x00\x00\x00\x00\x00\x00\x00" +
		"\x3e\x00\x00\x00\x01\x00\x00\x00" + "\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x20\x00a\x00" + "\x00\x00\x00\x00\x04\x00\x04\x00data"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := Open(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return
		}
		for _, file := range c.Files {
			if file.Folder >= len(c.Folders) || len(file.Name) > maxName {
				t.Fatalf("%+v", file)
			}
		}
		for i := range c.Folders[:min(len(c.Folders), 4)] {
			r, err := c.OpenFolder(i)
			if err != nil {
				continue
			}
			if n, _ := io.Copy(io.Discard, r); n > int64(c.Folders[i].blocks)*maxBlock {
				t.Fatalf("%d bytes of %d blocks", n, c.Folders[i].blocks)
			}
		}
	})
}
