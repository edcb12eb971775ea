package fat

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func table(order binary.AppendByteOrder, wide bool, size int) []byte {
	magic := uint32(magic32)
	if wide {
		magic = magic64
	}
	b := order.AppendUint32(order.AppendUint32(nil, magic), 2)
	for _, s := range []Slice{{CPU: 0x01000007, Subtype: 3, Offset: 4096, Length: 10}, {CPU: 0x0100000c, Subtype: 0x80000002, Offset: 8192, Length: 99}} {
		b = order.AppendUint32(order.AppendUint32(b, s.CPU), s.Subtype)
		if wide {
			b = order.AppendUint64(order.AppendUint64(b, uint64(s.Offset)), uint64(s.Length))
			b = order.AppendUint32(order.AppendUint32(b, 12), 0)
			continue
		}
		b = order.AppendUint32(order.AppendUint32(b, uint32(s.Offset)), uint32(s.Length))
		b = order.AppendUint32(b, 12)
	}
	return append(b, make([]byte, size-len(b))...)
}

func TestRead(t *testing.T) {
	for _, order := range []binary.AppendByteOrder{binary.BigEndian, binary.LittleEndian} {
		for _, wide := range []bool{false, true} {
			b := table(order, wide, 8200)
			got, err := Read(bytes.NewReader(b), int64(len(b)))
			if err != nil || !Looks(b) {
				t.Fatal(err)
			}
			want := []Slice{
				{CPU: 0x01000007, Subtype: 3, Offset: 4096, Length: 10},
				{CPU: 0x0100000c, Subtype: 0x80000002, Problem: "its range of 99 bytes at 8192 lies outside the file of 8200 bytes"},
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			if got[0].Name() != "x86_64" || got[1].Name() != "arm64e" {
				t.Errorf("names %s, %s", got[0].Name(), got[1].Name())
			}
		}
	}
}

// A Java class file (major version 52) is not a universal file.
func TestLooksJava(t *testing.T) {
	if Looks([]byte("\xca\xfe\xba\xbe\x00\x00\x00\x34\x00\x05")) || Looks([]byte("\xca\xfe\xba\xbe\x00\x03\x00\x2d")) {
		t.Error("a Java class passes for a universal file")
	}
}

func FuzzRead(f *testing.F) {
	f.Add(table(binary.BigEndian, false, 100))
	f.Add(table(binary.LittleEndian, true, 100))
	f.Fuzz(func(t *testing.T, b []byte) {
		slices, err := Read(bytes.NewReader(b), int64(len(b)))
		for _, s := range slices {
			if s.Offset < 0 || s.Length < 0 || s.Offset+s.Length > int64(len(b)) || s.Name() == "" {
				t.Fatalf("%+v, %v", s, err)
			}
		}
	})
}
