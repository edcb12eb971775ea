package tar

import (
	stdtar "archive/tar"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

type facts struct {
	Name, Link string
	Type       byte
	Mode, Size int64
	Content    string
}

func ours(r *Reader) (list []facts, err error) {
	for {
		m, err := r.Next()
		if err != nil {
			return list, err
		}
		b, err := io.ReadAll(r)
		list = append(list, facts{string(m.Name), string(m.Link), m.Type, m.Mode, m.Size, string(b)})
		if err != nil {
			return list, err
		}
	}
}

var headers = []stdtar.Header{
	{Name: "plain.txt", Mode: 0o644, Size: 5}, {Name: "exec", Mode: 0o755, Size: 513}, {Name: "dir/", Typeflag: stdtar.TypeDir, Mode: 0o755},
	{Name: "link", Typeflag: stdtar.TypeSymlink, Linkname: "plain.txt", Mode: 0o777}, {Name: "hard", Typeflag: stdtar.TypeLink, Linkname: "plain.txt", Mode: 0o644},
	{Name: "fifo", Typeflag: stdtar.TypeFifo, Mode: 0o600}, {Name: "empty", Mode: 0o600},
	{Name: strings.Repeat("long/", 18) + "name.txt", Mode: 0o644, Size: 3},
}

func build(t testing.TB, format stdtar.Format, more ...stdtar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := stdtar.NewWriter(&b)
	for _, h := range append(append([]stdtar.Header(nil), headers...), more...) {
		h.Format = format
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		io.CopyN(w, strings.NewReader(strings.Repeat("0123456789", 100)), h.Size)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Members agree with archive/tar in each form that it writes.
func TestAgainstStandardLibrary(t *testing.T) {
	long := stdtar.Header{Name: strings.Repeat("very", 100), Linkname: strings.Repeat("target", 50), Typeflag: stdtar.TypeSymlink, Mode: 0o777}
	unicode := stdtar.Header{Name: "ünïcode", Mode: 0o644, Size: 2}
	for format, more := range map[stdtar.Format][]stdtar.Header{stdtar.FormatUSTAR: nil, stdtar.FormatGNU: {long, unicode}, stdtar.FormatPAX: {long, unicode}} {
		b := build(t, format, more...)
		var want []facts
		r := stdtar.NewReader(bytes.NewReader(b))
		for {
			h, err := r.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			content, _ := io.ReadAll(r)
			want = append(want, facts{h.Name, h.Linkname, h.Typeflag, h.Mode, h.Size, string(content)})
		}
		for name, own := range map[string]*Reader{"stream": NewReader(bytes.NewReader(b)), "section": NewSection(io.NewSectionReader(bytes.NewReader(b), 0, int64(len(b))))} {
			got, err := ours(own)
			if err != io.EOF || !own.Ended || own.Offset() != int64(len(b)) {
				t.Errorf("%v %s: %v, ended %v at %d of %d", format, name, err, own.Ended, own.Offset(), len(b))
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%v %s: %s", format, name, diff)
			}
		}
	}
}

func TestNumbers(t *testing.T) {
	for field, want := range map[string]int64{
		"0000644\x00": 0o644, "  755 \x00": 0o755, "\x00\x00\x00\x00": 0, "77777777": 0o77777777,
		"\x80\x00\x00\x00\x00\x00\x01\x02": 258, "\xff\xff\xff\xff\xff\xff\xff\xff": -1, "0009\x00": -1, "-1\x00\x00": -1,
		"\x80\x00\x00\x00\x7f\xff\xff\xff\xff\xff\xff\xff": -1, // leaves no room for padding
	} {
		n, ok := number([]byte(field))
		if ok != (want >= 0) || ok && n != want {
			t.Errorf("%q is %d, %v; want %d", field, n, ok, want)
		}
	}
}

func TestBroken(t *testing.T) {
	b := build(t, stdtar.FormatUSTAR)
	if _, err := ours(NewReader(bytes.NewReader(b[:700]))); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("cut in a member: %v", err)
	}
	b[512+512+20] ^= 1 // a name in the second header
	list, err := ours(NewReader(bytes.NewReader(b)))
	if !errors.Is(err, ErrFormat) || len(list) != 1 || !strings.Contains(err.Error(), "byte 1024") {
		t.Errorf("%d members, error %v", len(list), err)
	}
}

// Reading ends, takes no more than there is, and both ways of reading agree.
func FuzzReader(f *testing.F) {
	for _, format := range []stdtar.Format{stdtar.FormatUSTAR, stdtar.FormatGNU, stdtar.FormatPAX} {
		f.Add(build(f, format))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		stream := NewReader(bytes.NewReader(b))
		got, err := ours(stream)
		if err == nil || stream.Offset() > int64(len(b)) {
			t.Fatalf("error %v at %d of %d", err, stream.Offset(), len(b))
		}
		section := NewSection(io.NewSectionReader(bytes.NewReader(b), 0, int64(len(b))))
		again, _ := ours(section)
		if diff := cmp.Diff(got, again); diff != "" {
			t.Fatal(diff)
		}
	})
}
