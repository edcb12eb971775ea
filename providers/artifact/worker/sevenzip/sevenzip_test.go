package sevenzip

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"testing"
)

// frame puts a header behind packed bytes.
func frame(packed, header []byte) []byte {
	le := binary.LittleEndian
	start := le.AppendUint64(nil, uint64(len(packed)))
	start = le.AppendUint64(start, uint64(len(header)))
	start = le.AppendUint32(start, crc32.ChecksumIEEE(header))
	b := append([]byte(magic+"\x00\x04"), le.AppendUint32(nil, crc32.ChecksumIEEE(start))...)
	return append(append(append(b, start...), packed...), header...)
}

func copying(c Coder, in []io.Reader) (io.Reader, error) { return io.MultiReader(in...), nil }

// Numbers, by hand from 7zFormat.txt.
func TestNumbers(t *testing.T) {
	for b, want := range map[string]uint64{
		"\x00": 0, "\x7f": 127, "\x80\x80": 128, "\xbf\xff": 0x3fff, "\xc0\x00\x40": 0x4000, "\xff\x01\x02\x03\x04\x05\x06\x07\x08": 0x0807060504030201,
	} {
		p := &parser{b: []byte(b)}
		if got := p.number(); got != want || len(p.b) > 0 || p.err != nil {
			t.Errorf("%x is %d, want %d; error %v", b, got, want, p.err)
		}
	}
}

// Whatever a header says, files lie in their folders, folders in the file, and reading ends.
func FuzzHeader(f *testing.F) {
	f.Add([]byte("data"), []byte("\x01\x04\x06\x00\x01\x09\x04\x00\x07\x0b\x01\x00\x01\x01\x00\x0c\x04\x00\x00\x05\x01\x11\x05\x00x\x00\x00\x00\x00\x00"))
	f.Add([]byte("\x01\x05\x00\x00"), []byte("\x17\x06\x00\x01\x09\x04\x00\x07\x0b\x01\x00\x01\x01\x00\x0c\x04\x00\x00"))
	f.Add([]byte("datadata"), []byte("\x01\x04\x06\x00\x02\x09\x04\x04\x00\x07\x0b\x01\x00\x02\x11\x00\x02\x01\x01\x00\x00\x01\x00\x02\x0c\x08\x08\x00\x08\x0d\x02\x09\x04\x00\x00\x05\x02\x0e\x01\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, packed, header []byte) {
		b := frame(packed, header)
		a, err := Open(bytes.NewReader(b), int64(len(b)), copying)
		if err != nil {
			if !errors.Is(err, ErrFormat) && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Fatal(err)
			}
			return
		}
		const enough = 1000
		n := 0
		for file, err := range a.Entries() {
			if err != nil {
				if !errors.Is(err, ErrFormat) {
					t.Fatal(err)
				}
				break
			}
			if n++; n > enough {
				break
			}
			if file.Folder < 0 {
				continue
			}
			folder := &a.Folders[file.Folder]
			if file.Offset < 0 || file.Size < 0 || file.Offset+file.Size > folder.Size() || folder.PackedSize() > int64(len(b)) {
				t.Fatalf("%+v in %+v", file, folder)
			}
			r, err := folder.Open(bytes.NewReader(b), copying)
			if err != nil {
				t.Fatal(err)
			}
			if got, _ := io.Copy(io.Discard, r); got > folder.Size() {
				t.Fatalf("%d bytes of a folder of %d", got, folder.Size())
			}
		}
	})
}
