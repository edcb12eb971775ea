package rpm

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// head makes a header structure of one string for each tag.
func head(tags map[uint32]string) []byte {
	be := binary.BigEndian
	var index, store []byte
	for tag, text := range tags {
		for _, v := range []uint32{tag, typeString, uint32(len(store)), 1} {
			index = be.AppendUint32(index, v)
		}
		store = append(append(store, text...), 0)
	}
	b := append([]byte(headerMagic), 0, 0, 0, 0)
	b = be.AppendUint32(be.AppendUint32(b, uint32(len(index)/entrySize)), uint32(len(store)))
	return append(append(b, index...), store...)
}

func sample() []byte {
	b := append([]byte(leadMagic), make([]byte, leadSize-4)...)
	b = append(b, head(map[uint32]string{tagHeaderSHA256: "00ff"})...)
	b = append(b, make([]byte, -len(b)&7)...)
	b = append(b, head(map[uint32]string{tagPayloadFormat: "cpio", tagPayloadCompressor: "xz"})...)
	return append(b, "payload"...)
}

func TestOpen(t *testing.T) {
	b := sample()
	p, err := Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	if p.Format != "cpio" || p.Suffix() != ".xz" || string(b[p.Payload.Start:p.Payload.End()]) != "payload" || p.HeaderSHA256 != nil {
		t.Errorf("%+v", p)
	}
	for name, at := range map[string]int{"entries": leadSize + 8, "store": leadSize + 12} {
		broken := bytes.Clone(b)
		copy(broken[at:], "\x7f\xff\xff\xff")
		if _, err := Open(bytes.NewReader(broken), int64(len(broken))); err == nil {
			t.Errorf("%s: a header past the end of the file was taken", name)
		}
	}
}

// The parts of whatever opens lie in the file, one behind another.
func FuzzOpen(f *testing.F) {
	f.Add(sample())
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := Open(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return
		}
		at := int64(0)
		for _, part := range []Part{p.Lead, p.Signature, p.Header, p.Payload} {
			if part.Start < at || part.Size < 0 || part.End() > int64(len(b)) {
				t.Fatalf("%+v", p)
			}
			at = part.End()
		}
	})
}
