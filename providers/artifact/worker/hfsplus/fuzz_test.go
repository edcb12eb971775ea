package hfsplus

import (
	"bytes"
	"encoding/binary"
	"io"
	"testing"

	"rea/providers/artifact/worker/imagetest"
)

const (
	someEntries = 2000
	someBytes   = 4 << 20
)

func readAll(t testing.TB, b []byte) (entries int, data int64, err error) {
	v, err := Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return 0, 0, err
	}
	err = v.Walk(func(e *Entry) bool {
		entries++
		if e.Problem == "" && e.Kind == File {
			n, err := io.Copy(io.Discard, io.LimitReader(e.Open(), someBytes-data))
			if data += n; err == nil && n != e.Size && data < someBytes {
				t.Errorf("a file of %d bytes gives %d", e.Size, n)
			}
		}
		return entries < someEntries && data < someBytes
	}, func([][]byte, error) {})
	return entries, data, err
}

// volume lets xorriso make one; it stands in the middle of an ISO 9660 image.
func volume(t testing.TB) ([]byte, bool) {
	image, ok := imagetest.Make(t, imagetest.Tree(t), "xorriso", "-as", "mkisofs", "-quiet", "-hfsplus", "-o", "OUT", ".")
	if !ok {
		return nil, false
	}
	at := bytes.Index(image, []byte("H+\x00\x04"))
	h := image[at:]
	size := int(binary.BigEndian.Uint32(h[40:])) * int(binary.BigEndian.Uint32(h[44:]))
	return image[at-headerAt:][:size], true
}

func TestDamage(t *testing.T) {
	b, ok := volume(t)
	if !ok {
		t.Skip("xorriso is not installed")
	}
	if _, data, err := readAll(t, b); err != nil || data != 6+7500+9000+4 { // the sizes of the tree's files
		t.Errorf("the whole volume gives %d bytes, %v", data, err)
	}
	for cut := 0; cut < len(b); cut += 511 {
		_, _, _ = readAll(t, b[:cut])
	}
	for at := headerAt; at < len(b); at += 7 {
		c := bytes.Clone(b)
		c[at] ^= 0xff
		_, _, _ = readAll(t, c)
	}
}

func FuzzHFSPlus(f *testing.F) {
	if b, ok := volume(f); ok {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) { _, _, _ = readAll(t, b) })
}
