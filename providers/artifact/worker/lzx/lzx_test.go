package lzx

import (
	"errors"
	"io"
	"testing"
)

// The test of package worker holds what is decoded against cabextract. Here: whatever the bytes are, a frame is filled
// or refused, and the next one too.
func FuzzBlock(f *testing.F) {
	f.Add(15, []byte("\x00\x30\x30\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00abc\x00"), []byte("rest"), uint16(3))
	f.Add(21, []byte("\xff\xff\xff\xff\xff\xff"), []byte{}, uint16(32768))
	f.Fuzz(func(t *testing.T, bits int, first, second []byte, size uint16) {
		d, err := New(bits)
		if err != nil {
			return
		}
		for _, packed := range [][]byte{first, second} {
			if err := d.Block(packed, make([]byte, min(size, 1<<15))); err != nil {
				if !errors.Is(err, ErrCorrupt) && err != io.ErrUnexpectedEOF {
					t.Fatal(err)
				}
				return
			}
		}
	})
}

// Calls, by hand: one to 0x1000 from 0x100, one to a negative address that wraps, one out of the program.
func TestRelative(t *testing.T) {
	out := append([]byte("\xe8\x00\x10\x00\x00"+"\xe8\xf0\xff\xff\xff"+"\xe8\x00\x00\x00\x7f"), make([]byte, 10)...)
	relative(out, 0x100, 0x2000)
	want := "\xe8\x00\x0f\x00\x00" + "\xe8\xf0\x1f\x00\x00" + "\xe8\x00\x00\x00\x7f"
	if string(out[:15]) != want {
		t.Errorf("%x, want %x", out[:15], want)
	}
}
