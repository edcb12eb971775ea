package branch

import (
	"bytes"
	"io"
	"testing"
	"testing/iotest"
)

// What 7z writes through these filters is read in the tests of package worker; here by hand: a BL and an ADRP at 0x2000
// that were made absolute, one that is out of reach, and a last byte that is no instruction.
func TestARM64(t *testing.T) {
	in := []byte("\x00\x08\x00\x94" + "\x01\x00\x00\xd0" + "\x01\x00\x40\x90" + "\x00")
	// 0x800 words - 0x2000/4 = 0; page 2 (immlo 2) - page 2 = 0; page 0x20000·4 is out of reach.
	want := []byte("\x00\x00\x00\x94" + "\x01\x00\x00\x90" + "\x01\x00\x40\x90" + "\x00")
	for name, r := range map[string]io.Reader{"whole": bytes.NewReader(in), "bytes": iotest.OneByteReader(bytes.NewReader(in))} {
		got, err := io.ReadAll(ARM64(r, 0x2000))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %x, want %x, error %v", name, got, want, err)
		}
	}
}

// Decoding ends, gives no more than four bytes for each of the main stream and as many, and does not depend on how the
// output is asked for.
func FuzzBCJ2(f *testing.F) {
	f.Add([]byte("\x90\xe8\x0f\x80"), []byte("\x00\x00\x00\x10"), []byte("\x00\x00\x00\x20"), []byte("\x00\xff\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, main, calls, jumps, decisions []byte) {
		open := func() io.Reader {
			return BCJ2(bytes.NewReader(main), bytes.NewReader(calls), bytes.NewReader(jumps), bytes.NewReader(decisions))
		}
		a, aerr := io.ReadAll(open())
		b, berr := io.ReadAll(iotest.OneByteReader(open()))
		if !bytes.Equal(a, b) || aerr != berr || len(a) > 5*len(main) {
			t.Fatalf("%x %v, byte by byte %x %v", a, aerr, b, berr)
		}
	})
}
