package hfsplus

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"io"
	"strings"
	"testing"

	"rea/providers/artifact/worker/imagetest"
)

// forkOf makes a fork of two pieces that stand apart and in the wrong order.
func forkOf(content []byte) *Fork {
	half := int64(len(content) / 2)
	disk := append(append([]byte(nil), content[half:]...), "between"...)
	first := int64(len(disk))
	disk = append(disk, content[:half]...)
	f := &Fork{Size: int64(len(content)), r: bytes.NewReader(disk)}
	_ = f.add(Extent{first, half}) // two extents: cannot fail
	_ = f.add(Extent{0, int64(len(content)) - half})
	return f
}

func TestForkInPieces(t *testing.T) {
	want := []byte(strings.Repeat("0123456789", 100))
	f := forkOf(want)
	if got, err := io.ReadAll(io.NewSectionReader(f, 0, f.Size)); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	b := make([]byte, 20)
	if n, err := f.ReadAt(b, 490); n != 20 || err != nil || string(b) != "01234567890123456789" {
		t.Errorf("across the pieces: %q, %v", b[:n], err)
	}
	if n, err := f.ReadAt(b, 990); n != 10 || err != io.EOF {
		t.Errorf("across the end: %d bytes, %v", n, err)
	}
}

func zlibOf(b []byte) []byte {
	var out bytes.Buffer
	w := zlib.NewWriter(&out)
	_, _ = w.Write(b)
	_ = w.Close()
	return out.Bytes()
}

// inFork lays pieces of 64 KiB out as the resource forks of compressed files have them: for zlib as the first item of a
// resource fork, whose data begins at 0x100 here, else behind a table of offsets.
func inFork(content []byte, method uint32, pack func([]byte) []byte) []byte {
	le := binary.LittleEndian
	var pieces [][]byte
	for at := 0; at < len(content); at += pieceSize {
		pieces = append(pieces, pack(content[at:min(at+pieceSize, len(content))]))
	}
	var table, data []byte
	if method == zlibFork {
		table = le.AppendUint32(nil, uint32(len(pieces)))
		at := 4 + 8*len(pieces)
		for _, p := range pieces {
			table = le.AppendUint32(le.AppendUint32(table, uint32(at+len(data))), uint32(len(p)))
			data = append(data, p...)
		}
		head := make([]byte, 0x104)
		binary.BigEndian.PutUint32(head, 0x100)
		return append(append(head, table...), data...)
	}
	at := 4 * (len(pieces) + 1)
	for _, p := range pieces {
		table = le.AppendUint32(table, uint32(at+len(data)))
		data = append(data, p...)
	}
	return append(le.AppendUint32(table, uint32(at+len(data))), data...)
}

// Files that the file system stores compressed, laid out by hand after xnu's decmpfs; the codecs themselves are held
// against 7-Zip by the tests of disk images.
func TestCompressedFiles(t *testing.T) {
	small, large := []byte("hello, hello, hello, hello"), []byte(strings.Repeat("the same words over and over; ", 7000))
	for name, c := range map[string]struct {
		method uint32
		want   []byte
		pack   func([]byte) []byte
	}{
		"zlib":              {zlibInline, small, zlibOf},
		"zlib, as it is":    {zlibInline, small, func(b []byte) []byte { return append([]byte{0xff}, b...) }},
		"LZVN":              {lzvnInline, small, imagetest.LZVN},
		"LZFSE":             {lzfseInline, small, imagetest.LZFSE},
		"plain":             {plainInline, small, func(b []byte) []byte { return append([]byte{0xcc}, b...) }},
		"zlib in the fork":  {zlibFork, large, zlibOf},
		"LZVN in the fork":  {lzvnFork, large, imagetest.LZVN},
		"LZFSE in the fork": {lzfseFork, large, imagetest.LZFSE},
		"plain in the fork": {plainFork, large, func(b []byte) []byte { return append([]byte{0xcc}, b...) }},
	} {
		e := &Entry{Compressed: c.method, Size: int64(len(c.want))}
		if c.method%2 == 0 {
			e.Resource = forkOf(inFork(c.want, c.method, c.pack))
		} else {
			e.attribute = c.pack(c.want)
		}
		if got, err := io.ReadAll(e.Open()); err != nil || !bytes.Equal(got, c.want) {
			t.Errorf("%s: %d bytes of %d, %v", name, len(got), len(c.want), err)
		}
		e.Size++ // a size that lies
		if got, err := io.ReadAll(e.Open()); err == nil {
			t.Errorf("%s: a size of %d passes with %d bytes", name, e.Size, len(got))
		}
	}
}
