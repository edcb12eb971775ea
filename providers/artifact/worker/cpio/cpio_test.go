package cpio

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// old is one binary member, by cpio(5): 13 words, of which the size is two with the more significant one first.
func old(order binary.AppendByteOrder, name, data string) []byte {
	var b []byte
	for _, w := range []uint16{0o070707, 1, 2, 0o100644, 0, 0, 1, 0, 0, 0, uint16(len(name) + 1), 0, uint16(len(data))} {
		b = order.AppendUint16(b, w)
	}
	b = append(append(b, name...), 0)
	b = append(b, make([]byte, len(b)&1)...)
	b = append(b, data...)
	return append(b, make([]byte, len(b)&1)...)
}

func modern(name, data string) []byte {
	b := fmt.Appendf(nil, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00", 1, 0o100644, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name)+1, 0, name)
	b = append(b, make([]byte, -len(b)&3)...)
	return append(append(b, data...), make([]byte, -len(data)&3)...)
}

type facts struct {
	Name, Form, Content string
	Start               int64
}

func read(t *testing.T, r *Reader, b []byte) (list []facts, err error) {
	t.Helper()
	peek := func(n int) []byte { return b[min(r.Offset(), int64(len(b))):min(r.Offset()+int64(n), int64(len(b)))] }
	for {
		m, err := r.Next()
		if err == io.EOF {
			if more, aerr := r.Again(peek); aerr == nil && more {
				continue
			}
		}
		if err != nil {
			return list, err
		}
		content, err := io.ReadAll(r)
		list = append(list, facts{string(m.Name), m.Form, string(content), m.Start})
		if err != nil {
			return list, err
		}
	}
}

func TestByteOrders(t *testing.T) {
	for _, order := range []binary.AppendByteOrder{binary.LittleEndian, binary.BigEndian} {
		b := append(old(order, "odd", "abc"), old(order, trailer, "")...)
		got, err := read(t, NewReader(bytes.NewReader(b)), b)
		if diff := cmp.Diff([]facts{{"odd", "binary", "abc", 30}}, got); diff != "" || err != io.EOF {
			t.Errorf("%v: %v %s", order, err, diff)
		}
		if !Looks(b) || Looks(b[:26]) {
			t.Errorf("%v: not recognised, or by too little", order)
		}
	}
}

// Reading ends, takes no more than there is, and both ways of reading agree.
func FuzzReader(f *testing.F) {
	f.Add(append(old(binary.LittleEndian, "a", "abc"), old(binary.LittleEndian, trailer, "")...))
	f.Add(append(append(modern("a", "abc"), modern(trailer, "")...), modern("b", "")...))
	f.Add([]byte("070707000001000002100644000000000000000001000000000000000000000000200000000003a\x00abc"))
	f.Fuzz(func(t *testing.T, b []byte) {
		stream := NewReader(bytes.NewReader(b))
		got, err := read(t, stream, b)
		if err == nil || stream.Offset() > int64(len(b)) {
			t.Fatalf("error %v at %d of %d", err, stream.Offset(), len(b))
		}
		if err != io.EOF && err != io.ErrUnexpectedEOF && !errors.Is(err, ErrFormat) {
			t.Fatal(err)
		}
		section := NewSection(io.NewSectionReader(bytes.NewReader(b), 0, int64(len(b))))
		again, _ := read(t, section, b)
		if diff := cmp.Diff(got, again); diff != "" {
			t.Fatal(diff)
		}
		Looks(b)
	})
}
