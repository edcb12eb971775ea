package inflate64

import (
	"bufio"
	"bytes"
	"compress/flate"
	"errors"
	"io"
	"strings"
	"testing"
)

func inflate(b []byte) ([]byte, int, error) {
	in := bufio.NewReader(bytes.NewReader(b))
	out, err := io.ReadAll(NewReader(in))
	return out, in.Buffered(), err
}

// DEFLATE streams without runs of 258 bytes mean the same in both formats; those of 7z, with all the differences, are
// read in the tests of package worker.
func TestCommonPart(t *testing.T) {
	text := []byte(strings.Repeat("the quick brown fox, over and over ", 1))
	for i := range 3000 {
		text = append(text, byte(i*i>>3), byte(i), 'x', 'y', 'z', byte(i>>4))
	}
	for _, level := range []int{flate.NoCompression, flate.BestSpeed, flate.BestCompression, flate.HuffmanOnly} {
		var b bytes.Buffer
		w, _ := flate.NewWriter(&b, level)
		w.Write(text)
		w.Close()
		got, left, err := inflate(append(b.Bytes(), "tail"...))
		if err != nil || !bytes.Equal(got, text) || left != 4 {
			t.Errorf("level %d: %d bytes, %d left, error %v", level, len(got), left, err)
		}
		if _, _, err := inflate(b.Bytes()[:b.Len()-3]); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("level %d, cut: %v", level, err)
		}
	}
}

// By hand from RFC 1951 and APPNOTE: a fixed block of 'a', length code 285 with 16 bits of 0x0100, distance 1, the end.
// Bits: 1 01 | 10010001 (a = 0x30+97) | 11000101 (285 = 11000000+5) | 16 further bits | 00000 | 0000000.
func TestLongRun(t *testing.T) {
	bits := "1" + "10" + "10010001" + "11000101" + "0000000010000000" + "00000" + "0000000"
	b := make([]byte, (len(bits)+7)/8)
	for i, c := range bits {
		b[i/8] |= byte(c-'0') << (i % 8)
	}
	got, _, err := inflate(b)
	if err != nil || string(got) != strings.Repeat("a", 1+3+0x100) {
		t.Errorf("%d bytes, error %v", len(got), err)
	}
}

// Whatever the bytes are, decoding ends, and in one of the three ways.
func FuzzReader(f *testing.F) {
	f.Add([]byte("\x03\x00"))
	f.Add([]byte("\x4b\x4c\x4a\x06\x00"))
	f.Add([]byte("\x01\x01\x00\xfe\xffx"))
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := io.Copy(io.Discard, io.LimitReader(NewReader(bufio.NewReader(bytes.NewReader(b))), 1<<24))
		if err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("%d bytes and %v", n, err)
		}
	})
}
