package budget

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"
)

// document is JSON text that can be written again and again.
type document string

func (d document) WriteTo(w io.Writer) (int64, error) {
	n, err := io.WriteString(w, string(d))
	return int64(n), err
}

// The runtime contract (5.1) gives the sizes of the envelope: 60 bytes around a success, 39 around a failure, 15 for
// isError, 77 for the marker. They are counted there on the published form, not by this code.
func TestEnvelopeSizes(t *testing.T) {
	for _, c := range []struct {
		piece     string
		got, want int
	}{
		{"success", successBytes, 60}, {"failure", failureBytes, 39}, {"isError", isErrorBytes, 15}, {"marker", markerBytes, 77},
	} {
		if c.got != c.want {
			t.Errorf("%s: %d bytes, the contract says %d", c.piece, c.got, c.want)
		}
	}
}

var documents = map[string]document{
	"empty":      `{}`,
	"quotes":     `{"a":"say \"b\" \\ c","n":[1,2,null]}`,
	"control":    `{"a":"\u0000\b\n"}`,
	"html":       `{"a":"<b>&amp;</b>"}`,
	"lines":      "{\"a\":\"\u2028\u2029\x7f\"}",
	"astral":     `{"a":"😀é€"}`,
	"surrogate":  `{"a":"\ud800 lone"}`,
	"long":       document(`{"a":"` + strings.Repeat(`\"x`, 20_000) + `"}`),
	"multi-byte": document(`{"a":"` + strings.Repeat("é😀", 10_000) + `"}`),
}

// What a client reads is checked with encoding/json; the counted size is checked against the bytes that were written.
func TestAnswer(t *testing.T) {
	for name, doc := range documents {
		for _, a := range []Answer{{Document: []byte(doc)}, {Document: []byte(doc), Marked: true}, {Document: []byte(doc), Failed: true}, {Document: []byte(doc), Failed: true, Marked: true}} {
			var b bytes.Buffer
			n, err := a.WriteTo(&b)
			if err != nil || n != int64(b.Len()) {
				t.Fatalf("%s: WriteTo = %d, %v; wrote %d", name, n, err, b.Len())
			}
			var got struct {
				Content           []map[string]string
				StructuredContent json.RawMessage
				IsError           *bool
				Meta              json.RawMessage `json:"_meta"`
			}
			d := json.NewDecoder(bytes.NewReader(b.Bytes()))
			d.DisallowUnknownFields()
			if err := d.Decode(&got); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if diff := cmp.Diff([]map[string]string{{"type": "text", "text": string(doc)}}, got.Content); diff != "" {
				t.Errorf("%s: content differs (-want +got):\n%s", name, diff)
			}
			if a.Failed != (got.IsError != nil && *got.IsError) || a.Failed != (got.StructuredContent == nil) || a.Marked != (got.Meta != nil) {
				t.Errorf("%s: failed %v, marked %v gave isError %v, structured %d bytes, meta %s", name, a.Failed, a.Marked, got.IsError, len(got.StructuredContent), got.Meta)
			}
			if !a.Failed && string(got.StructuredContent) != string(doc) {
				t.Errorf("%s: structured content is not the document's own bytes", name)
			}
			if counted := counted(t, doc, a); counted != n {
				t.Errorf("%s: counted %d bytes, written %d", name, counted, n)
			}
		}
	}
}

// counted finds the smallest budget that admits the answer.
func counted(t *testing.T, doc document, a Answer) int64 {
	t.Helper()
	low, high := int64(0), int64(1<<24)
	for low < high {
		mid := (low + high) / 2
		if fits(doc, a, mid) {
			high = mid
		} else {
			low = mid + 1
		}
	}
	return low
}

func fits(doc document, a Answer, bytes int64) bool {
	l := Limit{receiveBuffer: bytes + EnvelopeReserve}
	if a.Failed {
		return l.Failure(doc, a.Marked) == nil
	}
	return l.Success(doc, a.Marked) == nil
}

func TestDefaults(t *testing.T) {
	for _, l := range []Limit{{}, NewLimit(0), NewLimit(1), NewLimit(DefaultReceiveBuffer)} {
		if l.Bytes() != 10_484_736 { // the contract's figure
			t.Errorf("budget %d", l.Bytes())
		}
	}
	if got := NewLimit(20 << 20).Bytes(); got != 20<<20-1024 {
		t.Errorf("raised budget %d", got)
	}
	if MaxStringUnits != 536_869_864 { // the contract's figure
		t.Errorf("string limit %d", MaxStringUnits)
	}
}

// endless never ends by itself: an answer must be refused without being written to its end.
type endless struct{ written int }

func (e *endless) WriteTo(w io.Writer) (int64, error) {
	for {
		n, err := w.Write([]byte(`"0123456789",`))
		e.written += n
		if err != nil {
			return int64(e.written), err
		}
	}
}

func TestExcessStopsCounting(t *testing.T) {
	e := &endless{}
	err := NewLimit(0).Success(e, true)
	var x *Excess
	if !errors.As(err, &x) || x.Constraint != ReceiveBuffer || x.Bytes <= x.Budget {
		t.Fatalf("got %v", err)
	}
	if e.written > int(x.Budget) {
		t.Errorf("%d bytes were written of an answer that does not fit %d", e.written, x.Budget)
	}
}

func TestUnits(t *testing.T) {
	for name, doc := range documents {
		c := &counter{budget: 1 << 30}
		if err := c.count(doc); err != nil {
			t.Fatal(err)
		}
		quoted := strings.NewReplacer(`"`, `\"`, `\`, `\\`).Replace(string(doc))
		if want := int64(len(utf16.Encode([]rune(quoted)))); c.units != want {
			t.Errorf("%s: %d code units, want %d", name, c.units, want)
		}
	}
}

// A document that cannot be read is its own error, not an excess.
func TestUnreadableDocument(t *testing.T) {
	want := errors.New("gone")
	if err := NewLimit(0).Success(failing{want}, true); !errors.Is(err, want) {
		t.Errorf("got %v", err)
	}
}

type failing struct{ err error }

func (f failing) WriteTo(io.Writer) (int64, error) { return 0, f.err }

func BenchmarkSuccess(b *testing.B) {
	doc := documents["long"]
	b.SetBytes(int64(len(doc)))
	for b.Loop() {
		_ = NewLimit(0).Success(doc, true)
	}
}
