package zip

import (
	stdzip "archive/zip"
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

type facts struct {
	Name             string
	Method           uint16
	CRC              uint32
	Compressed, Size uint64
}

// archive is made by archive/zip, which shares no code with this package.
func archive(t testing.TB, n int, comment string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := stdzip.NewWriter(&b)
	for i := range n {
		method := uint16(Stored)
		if i < 100 && i%2 == 1 { // each costs the standard library a compressor
			method = Deflated
		}
		f, err := w.CreateHeader(&stdzip.FileHeader{Name: fmt.Sprintf("dir/%d.txt", i), Method: method})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(f, strings.Repeat("x", i%50))
	}
	w.SetComment(comment)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func read(t testing.TB, b []byte) (*Archive, []facts, error) {
	t.Helper()
	a, err := Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return nil, nil, err
	}
	var list []facts
	for e, err := range a.Entries() {
		if err != nil {
			return a, list, err
		}
		list = append(list, facts{string(e.Name), e.Method, e.CRC32, e.CompressedSize, e.Size})
	}
	return a, list, nil
}

func standard(t testing.TB, b []byte) []facts {
	t.Helper()
	r, err := stdzip.NewReader(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	var list []facts
	for _, f := range r.File {
		list = append(list, facts{f.Name, f.Method, f.CRC32, f.CompressedSize64, f.UncompressedSize64})
	}
	return list
}

// Entries agree with archive/zip, and so do the places of their bytes; descriptors stand behind all of them.
func TestAgainstStandardLibrary(t *testing.T) {
	for _, n := range []int{0, 1, 7, 70_000} { // the last one needs zip64
		b := archive(t, n, "a comment")
		a, list, err := read(t, b)
		if err != nil {
			t.Fatal(err)
		}
		if want := standard(t, b); !slices.Equal(want, list) {
			t.Errorf("%d entries: %s", n, cmp.Diff(want, list))
		}
		if string(a.Comment) != "a comment" || a.End != int64(len(b)) || a.Base != 0 || a.Ambiguous || a.Zip64 != (n > 65535) {
			t.Errorf("%d entries: %+v", n, a)
		}
		at := int64(0)
		for e := range a.Entries() {
			d, err := a.Locate(e)
			if err != nil || d.Disagreement != "" {
				t.Fatalf("%s: %v, %s", e.Name, err, d.Disagreement)
			}
			if d.Header != at { // archive/zip leaves no gaps, so each end is the next header
				t.Fatalf("%s begins at %d, the one before it ends at %d", e.Name, d.Header, at)
			}
			at = d.End
		}
		if at != a.Directory {
			t.Errorf("%d entries: the last one ends at %d, the directory begins at %d", n, at, a.Directory)
		}
	}
}

func TestPrefixes(t *testing.T) {
	plain := archive(t, 70_000, "")
	small := archive(t, 3, "")
	for name, b := range map[string][]byte{"zip64": plain, "small": small} {
		_, want, err := read(t, b)
		if err != nil {
			t.Fatal(err)
		}
		prefixed := append([]byte("#!/bin/sh\n"), b...)
		a, list, err := read(t, prefixed)
		if err != nil || a.Base != 10 {
			t.Fatalf("%s: %v, %+v", name, err, a)
		}
		if !slices.Equal(want, list) {
			t.Error(cmp.Diff(want, list))
		}
		for e := range a.Entries() {
			if _, err := a.Locate(e); err != nil {
				t.Fatal(err)
			}
		}
		a, _, err = read(t, append(bytes.Clone(b), "appended"...))
		if err != nil || a.End != int64(len(b)) {
			t.Errorf("%s with a tail: %v, %+v", name, err, a)
		}
	}
}

func TestAmbiguous(t *testing.T) {
	inner := archive(t, 1, "")
	// One archive as the comment of another: both end records lead somewhere.
	outer := archive(t, 2, string(inner))
	a, _, err := read(t, outer)
	if err != nil || !a.Ambiguous {
		t.Errorf("%v, %+v", err, a)
	}
	// An archive stored in another is a member, not an alternative.
	var b bytes.Buffer
	w := stdzip.NewWriter(&b)
	f, _ := w.CreateHeader(&stdzip.FileHeader{Name: "inner.zip", Method: Stored})
	f.Write(inner)
	w.Close()
	a, list, err := read(t, b.Bytes())
	if err != nil || a.Ambiguous || len(list) != 1 {
		t.Errorf("%v, %+v, %v", err, a, list)
	}
}

func TestBroken(t *testing.T) {
	whole := archive(t, 3, "")
	if _, _, err := read(t, whole[:len(whole)-1]); err == nil {
		t.Error("a cut archive was opened")
	}
	if _, _, err := read(t, nil); err == nil {
		t.Error("an empty file was opened")
	}
	lying := bytes.Clone(whole)
	binary.LittleEndian.PutUint16(lying[len(lying)-12:], 9) // entries in all
	if _, list, err := read(t, lying); err == nil || len(list) != 3 {
		t.Errorf("a wrong count gives %d entries and error %v", len(list), err)
	}
}

// Whatever the bytes are, reading ends, and what is found lies inside the file.
func FuzzOpen(f *testing.F) {
	f.Add(archive(f, 3, "comment"))
	f.Add(append([]byte("prefix"), archive(f, 1, "")...))
	f.Add(append(archive(f, 0, ""), "tail"...))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := Open(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return
		}
		if a.Directory < 0 || a.Directory+a.Length > a.Records || a.End > int64(len(b)) || a.Base < 0 {
			t.Fatalf("%+v", a)
		}
		n := 0
		for e, err := range a.Entries() {
			if err != nil {
				break
			}
			if n++; n > len(b)/centralSize {
				t.Fatal("more entries than the file has room for")
			}
			d, err := a.Locate(e)
			if err == nil && (d.Start < 0 || d.Length < 0 || d.Start+d.Length > int64(len(b))) {
				t.Fatalf("%+v", d)
			}
		}
	})
}
