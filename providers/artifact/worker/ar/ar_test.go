package ar

import (
	"bytes"
	"errors"
	"io"
	"testing"
)

// Reading ends, with one of the errors that Next names, and no header lies outside the file.
func FuzzReader(f *testing.F) {
	header := func(name, size string) string {
		return (name + "                ")[:16] + "0           0     0     100644  " + (size + "          ")[:10] + "`\n"
	}
	f.Add([]byte("!<arch>\n" + header("//", "6") + "long/\n" + header("/0", "1") + "x\n" + header("#1/4", "5") + "name!"))
	f.Add([]byte("!<thin>\n" + header("a/", "5")))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := Open(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return
		}
		for {
			before := r.Offset()
			m, err := r.Next()
			if err != nil {
				if err != io.EOF && err != io.ErrUnexpectedEOF && !errors.Is(err, ErrFormat) {
					t.Fatal(err)
				}
				return
			}
			if r.Offset() <= before || m.Start > int64(len(b)) || m.Size < 0 {
				t.Fatalf("%+v from %d to %d", m, before, r.Offset())
			}
		}
	})
}
