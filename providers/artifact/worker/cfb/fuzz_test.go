package cfb

import (
	"bytes"
	"io"
	"testing"

	"rea/providers/artifact/worker/imagetest"
)

func readAll(t testing.TB, b []byte) (entries int, data int64, err error) {
	f, err := Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return 0, 0, err
	}
	f.Walk(func(e *Entry) bool {
		if entries++; entries > len(b)/entrySize {
			t.Errorf("%d entries in %d bytes", entries, len(b))
		}
		switch {
		case e.Problem != "" || e.Storage:
		case e.Stream == nil:
			data += int64(len(e.Small))
		default:
			n, err := io.Copy(io.Discard, io.NewSectionReader(e.Stream, 0, e.Stream.Size))
			if data += n; err == nil && n != e.Size {
				t.Errorf("a stream of %d bytes gives %d", e.Size, n)
			}
		}
		return true
	}, func([][]byte, error) {})
	f.Orphans()
	return entries, data, nil
}

func sample(t testing.TB) ([]byte, bool) {
	return imagetest.Make(t, imagetest.Tree(t), "gsf", "createole", "OUT", "a.txt", "empty", "d")
}

func TestDamage(t *testing.T) {
	b, ok := sample(t)
	if !ok {
		t.Skip("gsf is not installed")
	}
	if _, data, err := readAll(t, b); err != nil || data < 6+7500+9000 { // libgsf follows the link, so there is more
		t.Errorf("the whole file gives %d bytes, %v", data, err)
	}
	for cut := 0; cut < len(b); cut += 63 {
		_, _, _ = readAll(t, b[:cut])
	}
	for at := 0; at < len(b); at += 3 {
		c := bytes.Clone(b)
		c[at] ^= 0xff
		_, _, _ = readAll(t, c)
	}
}

// Entries that stand below themselves, or twice, are told once, and the walk ends.
func TestCircles(t *testing.T) {
	b, ok := sample(t)
	if !ok {
		t.Skip("gsf is not installed")
	}
	f, err := Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	directory := f.entries.Extents[0].Start
	c := bytes.Clone(b)
	first := directory + int64(f.rootLeaf)*entrySize
	copy(c[first+68:], []byte{byte(f.rootLeaf), 0, 0, 0}) // its own left neighbour
	troubles := 0
	f, err = Open(bytes.NewReader(c), int64(len(c)))
	if err != nil {
		t.Fatal(err)
	}
	f.Walk(func(*Entry) bool { return true }, func([][]byte, error) { troubles++ })
	if troubles != 1 {
		t.Errorf("%d troubles, want 1", troubles)
	}
}

func FuzzCFB(f *testing.F) {
	if b, ok := sample(f); ok {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) { _, _, _ = readAll(t, b) })
}
