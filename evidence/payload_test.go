package evidence

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// testBlob is content whose announced size may be a lie.
type testBlob struct {
	content string
	size    int64
}

func (b testBlob) SHA256() string { return DigestBytes([]byte(b.content)) }
func (b testBlob) Size() int64    { return b.size }
func (b testBlob) Open() (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader(b.content)), nil
}

func TestPayloadComposition(t *testing.T) {
	big := strings.Repeat("x", 2*maxMerged)
	blob := BlobPayload(testBlob{`["` + big + `"]`, int64(len(big)) + 4})
	p := ObjectPayload(
		Member{"z", ArrayPayload()},
		Member{"\U0001f600", Payload{}},
		Member{"\ufb33", StringPayload("a\"b")},
		Member{"big", ArrayPayload(blob, CanonicalPayload([]byte("1")), blob)},
		Member{"empty", ObjectPayload()},
	)
	want := `{"big":[["` + big + `"],1,["` + big + `"]],"empty":{},"z":[],"` + "\U0001f600" + `":null,"` + "\ufb33" + `":"a\"b"}`
	var b bytes.Buffer
	if n, err := p.WriteTo(&b); err != nil || n != p.Size() || b.String() != want {
		t.Errorf("%d of %d bytes, %v: %s", n, p.Size(), err, b.String())
	}
	r := p.Reader()
	if err := iotest.TestReader(r, []byte(want)); err != nil {
		t.Error(err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if sum, err := p.SHA256(); err != nil || sum != DigestBytes([]byte(want)) {
		t.Errorf("%s, %v", sum, err)
	}
	if got, err := p.Bytes(p.Size()); err != nil || string(got) != want {
		t.Errorf("bytes: %v", err)
	}
	if _, err := p.Bytes(p.Size() - 1); err == nil {
		t.Error("a limit is not held")
	}
	if n := len(p.segments); n != 5 {
		t.Errorf("%d segments, want the two blobs and what lies around them", n)
	}
}

func TestNullPayload(t *testing.T) {
	var zero Payload
	null, err := NewPayload([]byte(" null "))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []Payload{zero, null, Concat(zero)} {
		if b, err := p.Bytes(4); !p.IsNull() || p.Size() != 4 || err != nil || string(b) != "null" {
			t.Errorf("%q, size %d, %v", b, p.Size(), err)
		}
		if b, err := io.ReadAll(p.Reader()); err != nil || string(b) != "null" {
			t.Errorf("%q, %v", b, err)
		}
	}
	if StringPayload("null").IsNull() {
		t.Error("a string is null")
	}
}

// Merging must not write into bytes that belong to someone else.
func TestConcatLeavesItsPartsAlone(t *testing.T) {
	room := make([]byte, 3, 64)
	copy(room, `[1,`)
	a := CanonicalPayload(room)
	Concat(a, CanonicalPayload([]byte(`2]`)))
	other := Concat(a, CanonicalPayload([]byte(`3]`)))
	if got := string(room[:5]); got != "[1,\x00\x00" {
		t.Errorf("the part's array now holds %q", got)
	}
	if b, _ := other.Bytes(10); string(b) != "[1,3]" {
		t.Errorf("got %s", b)
	}
}

func TestShortBlob(t *testing.T) {
	for _, lie := range []int64{4, 6} {
		p := BlobPayload(testBlob{"[1,2]", lie})
		if _, err := p.WriteTo(io.Discard); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%d: written: %v", lie, err)
		}
		if _, err := io.Copy(io.Discard, p.Reader()); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%d: read: %v", lie, err)
		}
	}
}

func TestMemorySpoolRefusesOtherForms(t *testing.T) {
	for in, ok := range map[string]bool{`{"a":1}`: true, `{"a": 1}`: false, `{"a":1`: false, ``: false} {
		p, err := Memory{}.Spool(t.Context(), func(w io.Writer) error {
			_, err := io.WriteString(w, in)
			return err
		})
		if (err == nil) != ok || ok && p.Size() != int64(len(in)) {
			t.Errorf("%q: %v", in, err)
		}
	}
}
