package squashfs

import (
	"bytes"
	"io"
	"testing"

	"rea/providers/artifact/worker/imagetest"
)

// limits of one input: an image may stand for far more than it has
const (
	someEntries = 2000
	someBytes   = 8 << 20
)

// readAll walks an image and reads its files, within limits.
func readAll(t testing.TB, b []byte) (entries int, data int64, err error) {
	fs, err := Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return 0, 0, err
	}
	defer fs.Close()
	err = fs.Walk(func(e *Entry) bool {
		entries++
		if e.Problem == "" && e.Kind == File {
			if n := fs.Stored(e, someBytes); n > int64(len(b))*(someBytes/minBlock+2) {
				t.Errorf("%d stored bytes in %d", n, len(b))
			}
			n, err := io.Copy(io.Discard, io.LimitReader(fs.Open(e), someBytes-data))
			if data += n; err == nil && n != e.Size && data < someBytes {
				t.Errorf("a file of %d bytes gives %d", e.Size, n)
			}
		}
		return entries < someEntries && data < someBytes
	}, func([][]byte, error) {})
	return entries, data, err
}

func images(t testing.TB) [][]byte {
	var all [][]byte
	for _, args := range [][]string{{"-comp", "gzip"}, {"-comp", "xz"}, {"-comp", "lzo"}, {"-comp", "lz4"}, {"-comp", "zstd"}, {"-noI", "-noD", "-noF"}} {
		if b, ok := imagetest.Make(t, imagetest.Tree(t), append([]string{"mksquashfs", ".", "OUT", "-quiet", "-no-progress"}, args...)...); ok {
			all = append(all, b)
		}
	}
	return all
}

// Whatever is cut off an image or changed in it, reading it ends, and what is whole still gives what it says.
func TestDamage(t *testing.T) {
	for _, b := range images(t) {
		if _, data, err := readAll(t, b); err != nil || data != 6+7500+9000+4 { // the sizes of the tree's files
			t.Errorf("the whole image gives %d bytes, %v", data, err)
		}
		for cut := 0; cut < len(b); cut += 149 {
			_, _, _ = readAll(t, b[:cut])
		}
		for at := 0; at < min(len(b), 4096); at += 5 {
			c := bytes.Clone(b)
			c[at] ^= 0xff
			_, _, _ = readAll(t, c)
		}
	}
}

func FuzzSquashFS(f *testing.F) {
	for _, b := range images(f) {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) { _, _, _ = readAll(t, b) })
}

// The decoder of LZO blocks keeps its limit whatever it is given.
func FuzzLZO(f *testing.F) {
	f.Add([]byte("\x12ab\x20\x00\x04\x00\x11\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		const limit = 4096
		if got, _ := lzo(b, limit); len(got) > limit {
			t.Fatalf("%d bytes, the limit is %d", len(got), limit)
		}
	})
}
