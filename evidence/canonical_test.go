package evidence

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

// contractVectors are the vectors of the runtime contract 1.2: sizes and digests come from there.
var contractVectors = []struct {
	name, in string
	size     int
	sha256   string
}{
	{"empty object", `{}`, 2, "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"},
	{"empty array", `[]`, 2, "4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945"},
	{"order", ` { "b" : 1 , "a" : [ true , null , "x" ] } `, 27, "54a65415ad370228851a1da4b31b6fd42dc58b19a50d35cae759325f7388ce64"},
	{"numbers", `{"n":[0,-0,1,1.0,1e21,1e-7,0.1,123456789012345680000,5e-324,4.35,-1.5e+300,9007199254740993]}`, 91, "e6f42d1dcaa9cebd1d400106a457cb3b4d269ca5e79da47fd4fcf3aa3f187e7f"},
	{"key order", `{"\u20ac":1,"\r":2,"\ufb33":3,"1":4,"\ud83d\ude00":5,"\u0080":6,"\u00f6":7}`, 53, "0d922ac8e15a6d17d5d50fab064983e86009ebae7b5998cbfc4ed172e6ff74a9"},
	{"strings", `{"s":"\u0000\u0007\b\t\n\f\r\"\\\/\u003c\u003e\u0026\u2028\u2029\u007f \u00e9 \ud83d\ude00"}`, 53, "f3579bb5c7b06fa36caace113152a93127cc415ec4c93e5c9250a2105a03be3a"},
	{"lone surrogate", `"\uD800 lone"`, 13, "d8db11db8462e25d208030fe8db4a08b4e409e50f5596eae130fe239bd6f6e44"},
}

func TestCanonicalizeContractVectors(t *testing.T) {
	for _, v := range contractVectors {
		t.Run(v.name, func(t *testing.T) {
			got, err := Canonicalize([]byte(v.in))
			if err != nil {
				t.Fatal(err)
			}
			if len(got) != v.size || DigestBytes(got) != v.sha256 {
				t.Errorf("got %s: %d bytes, %s", got, len(got), DigestBytes(got))
			}
		})
	}
}

// The expected texts are written by hand from RFC 8785 and ECMA-262.
func TestCanonicalize(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"last of repeated keys", `{"a":1,"b":2,"a":3}`, `{"a":3,"b":2}`},
		{"repeated key by escape", `{"a":1,"\u0061":{"z":1,"y":2}}`, `{"a":{"y":2,"z":1}}`},
		{"proto", `{"__proto__":1,"":0}`, `{"":0,"__proto__":1}`},
		{"nested order", `[{"b":{"d":1,"c":2},"a":[{"y":1,"x":2}]}]`, `[{"a":[{"x":2,"y":1}],"b":{"c":2,"d":1}}]`},
		{"prefix key first", `{"ab":1,"a":2,"":3}`, `{"":3,"a":2,"ab":1}`},
		{"pair before FB33", "{\"\ufb33\":1,\"\U0001f600\":2}", "{\"\U0001f600\":2,\"\ufb33\":1}"},
		{"pair after D7FF", "{\"\U0001f600\":2,\"\ud7ff\":1}", "{\"\ud7ff\":1,\"\U0001f600\":2}"},
		// D83D alone < D83D DE00 < D83D E000 as sequences of units.
		{"lone first half before its pair", "{\"\U0001f600\":1,\"\\ud83d\\ue000\":2,\"\\ud83d\":3}", "{\"\\ud83d\":3,\"\U0001f600\":1,\"\\ud83d\ue000\":2}"},
		{"two pairs", "{\"\U0001f601\":1,\"\U0001f600\":2}", "{\"\U0001f600\":2,\"\U0001f601\":1}"},
		{"escaped key sorts by its character", `{"\n":1,"\t":2,"!":3}`, `{"\t":2,"\n":1,"!":3}`},
		{"lone halves", `"\uDC00\uD800"`, `"\udc00\ud800"`},
		{"half before a pair", `"\ud800\ud83d\ude00"`, "\"\\ud800\U0001f600\""},
		{"slash", `"\/"`, `"/"`},
		{"controls", `"\u001F\u0008\u007f"`, "\"\\u001f\\b\x7f\""},
		{"separators raw", `"\u2028<&>"`, "\"\u2028<&>\""},
		{"white space", " \t\r\n[ 1 , 2 ] \n", "[1,2]"},
		{"underflow", `[1e-400,-1e-400]`, `[0,0]`},
		{"integers", `[-0,-1,10,123456789012345,-123456789012345,9007199254740993,1152921504606846976]`,
			`[0,-1,10,123456789012345,-123456789012345,9007199254740992,1152921504606847000]`},
		{"edges of plain decimals", `[0.000001,0.0000001,999999999999999900000,1000000000000000000000,1e20,123e-20]`,
			`[0.000001,1e-7,999999999999999900000,1e+21,100000000000000000000,1.23e-18]`},
		{"shortest", `[0.30000000000000004,333333333.33333329,2e-3,1e-10,-2.5e-100,1e100]`, `[0.30000000000000004,333333333.3333333,0.002,1e-10,-2.5e-100,1e+100]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Canonicalize([]byte(c.in))
			if err != nil || string(got) != c.want {
				t.Fatalf("got %s, %v; want %s", got, err, c.want)
			}
		})
	}
}

func TestCanonicalizeRejects(t *testing.T) {
	for _, in := range []string{
		``, ` `, `{`, `[`, `"`, `[1`, `[1,]`, `[,1]`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{a:1}`, `{1:1}`, `nul`, `nulll`, `true false`,
		`01`, `-`, `+1`, `.5`, `1.`, `1e`, `1e+`, `0x1`, `NaN`, `Infinity`, `-Infinity`, `1e309`, `-1e309`,
		"\"\x01\"", `"\x"`, `"\u12"`, `"\u12g4"`, `"\`, "\"\xff\"", "\"\xed\xa0\x80\"", "\"\xc0\x80\"", "\"\xf4\x90\x80\x80\"",
		"\xef\xbb\xbf{}", `[1}`, `{"a":1]`, `'a'`, `[1 2]`, `{"a" 1}`, "[1]\x00",
	} {
		if got, err := Canonicalize([]byte(in)); err == nil {
			t.Errorf("%q: got %s, want an error", in, got)
		} else if s := new(SyntaxError); !errors.As(err, &s) || s.Form() {
			t.Errorf("%q: %v is not an error of syntax", in, err)
		}
		if err := CheckCanonical(strings.NewReader(in)); err == nil {
			t.Errorf("the checker takes %q", in)
		}
	}
}

// The root is level 0 and 1000 is the deepest level: 1001 arrays, the innermost of them empty.
func TestDepth(t *testing.T) {
	for _, c := range []struct {
		arrays int
		inner  string
		ok     bool
	}{{1001, "", true}, {1000, "1", true}, {1001, "1", false}, {1002, "", false}, {100000, "", false}} {
		in := strings.Repeat("[", c.arrays) + c.inner + strings.Repeat("]", c.arrays)
		if _, err := Canonicalize([]byte(in)); (err == nil) != c.ok {
			t.Errorf("%d arrays around %q: %v", c.arrays, c.inner, err)
		}
		if err := CheckCanonical(strings.NewReader(in)); (err == nil) != c.ok {
			t.Errorf("checker, %d arrays around %q: %v", c.arrays, c.inner, err)
		}
	}
	in := strings.Repeat(`{"a":`, 1000) + "1" + strings.Repeat("}", 1000)
	if _, err := Canonicalize([]byte(in)); err != nil {
		t.Errorf("1000 objects: %v", err)
	}
	if _, err := NewPayload([]byte(in)); err == nil {
		t.Error("a payload of 1000 objects does not fit into a record, but is taken")
	}
	if _, err := NewPayloadChecker().Write([]byte(in)); err == nil {
		t.Error("the checker of payloads takes it")
	}
}

func TestCanonicalOfGoValues(t *testing.T) {
	got, err := Canonical(map[string]any{"z": []int(nil), "a": "<&>", "n": 1.5, "i": int64(1) << 53})
	if want := `{"a":"<&>","i":9007199254740992,"n":1.5,"z":[]}`; err != nil || string(got) != want {
		t.Errorf("got %s, %v; want %s", got, err, want)
	}
	for _, v := range []any{"\xff", math.NaN(), math.Inf(1), int64(1)<<53 + 1, uint64(math.MaxUint64), map[string]any{"a": "\xed\xa0\x80"}} {
		if got, err := Canonical(v); err == nil {
			t.Errorf("%v: got %s, want an error", v, got)
		}
	}
	if got, err := Canonical(1e300); err != nil || string(got) != "1e+300" {
		t.Errorf("a large float: %s, %v", got, err)
	}
}

func TestAppendString(t *testing.T) {
	for _, c := range []struct {
		in, want string
		valid    bool
	}{
		{"", `""`, true},
		{"a\"\\\x00\x1f\x7fé\u2028", "\"a\\\"\\\\\\u0000\\u001f\x7fé\u2028\"", true},
		{"\xed\xa0\xbd", `"\ud83d"`, true},
		{"\xed\xa0\xbd\xed\xb8\x80", "\"\U0001f600\"", true}, // both halves: one character
		{"\xed\xb8\x80\xed\xa0\xbd", `"\ude00\ud83d"`, true},
		{"a\xffb", "\"a\ufffdb\"", false},
		{"\ufffd", "\"\ufffd\"", true},
		{"\xed\xa0", "\"\ufffd\ufffd\"", false},
	} {
		if got := string(AppendString(nil, c.in)); got != c.want {
			t.Errorf("%q: got %s, want %s", c.in, got, c.want)
		}
		if got := ValidString(c.in); got != c.valid {
			t.Errorf("%q: valid %v", c.in, got)
		}
	}
}

// What the checker must refuse although Canonicalize takes it. The expected kind is by hand: each is valid JSON.
func TestCheckerRefusesOtherForms(t *testing.T) {
	for _, in := range []string{
		` 1`, `1 `, "{}\n", `[1, 2]`, `{"a" :1}`, `1.0`, `-0`, `1e21`, `1E+21`, `1e-07`, `9007199254740993`, `0.10`,
		`{"b":1,"a":2}`, `{"a":1,"a":2}`, `{"a":{"b":1},"a":{}}`, `"\/"`, `"\u0041"`, `"\u000A"`, `"\u000a"`, `"\u001F"`, `"\uD800"`,
		`"\ud83d\ude00"`, `{"\n":1,"\t":2}`, "{\"\ufb33\":1,\"\U0001f600\":2}", `"\u2028"`, `1111111111111111111111111111111111111111`,
	} {
		err := CheckCanonical(strings.NewReader(in))
		if s := new(SyntaxError); !errors.As(err, &s) || !s.Form() {
			t.Errorf("%s: %v, want an error of form", in, err)
		}
		if _, err := Canonicalize([]byte(in)); err != nil {
			t.Errorf("%s: %v", in, err)
		}
	}
}

func TestCheckerTakesCanonicalTextInAnyPieces(t *testing.T) {
	texts := [][]byte{
		[]byte(`{"":0,"a":[true,null,-1.5e+300,"é😀\ud800x\ud800\ud800\\"],"b":{"a":1,"aa":{},"b":[[],{}]},"\ud83d":3}`),
		[]byte("{\"\\ud83d\":3,\"\U0001f600\":1,\"\\ud83d\ue000\":2}"),
		[]byte(`5e-324`), []byte(`""`), []byte("\"\\ud800\ue000\\udc00\""),
	}
	for _, v := range contractVectors {
		c, err := Canonicalize([]byte(v.in))
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, c)
	}
	for _, text := range texts {
		if again, err := Canonicalize(text); err != nil || !bytes.Equal(again, text) {
			t.Fatalf("%s is not canonical: %s, %v", text, again, err)
		}
		for size := 1; size <= len(text); size++ {
			c := NewChecker()
			for rest := text; len(rest) > 0; rest = rest[min(size, len(rest)):] {
				if _, err := c.Write(rest[:min(size, len(rest))]); err != nil {
					t.Fatalf("%s in pieces of %d: %v", text, size, err)
				}
			}
			if err := c.Close(); err != nil {
				t.Fatalf("%s in pieces of %d: %v", text, size, err)
			}
		}
		for cut := range len(text) {
			if err := CheckCanonical(bytes.NewReader(text[:cut])); err == nil && !isAtom(text[:cut]) {
				t.Errorf("%s cut to %d bytes is taken", text, cut)
			}
		}
	}
}

// isAtom reports whether a cut text is a shorter value itself: 5e-324 cut to 5.
func isAtom(text []byte) bool { return len(text) > 0 && scanNumber(text) == len(text) }

// Keys of open objects are all that the checker holds, and that is bounded.
func TestCheckerBoundsHeldKeys(t *testing.T) {
	key := strings.Repeat("k", 1<<20)
	c := NewChecker()
	for range maxHeldKeys>>20 + 1 {
		if _, err := c.Write([]byte(`{"` + key + `":`)); err != nil {
			return
		}
	}
	t.Error("the checker held more keys than its limit")
}

func TestCheckCanonicalPassesReaderErrors(t *testing.T) {
	want := errors.New("disk on fire")
	if err := CheckCanonical(iotest.ErrReader(want)); !errors.Is(err, want) {
		t.Errorf("got %v", err)
	}
}

func TestDigest(t *testing.T) {
	// Digest of {} from the contract's table.
	got, err := Digest(struct{}{})
	if err != nil || got != contractVectors[0].sha256 {
		t.Errorf("got %s, %v", got, err)
	}
	if _, err := Digest("\xff"); err == nil {
		t.Error("invalid UTF-8 has a digest")
	}
}

// FuzzCanonicalize holds the result against itself, against the checker in two ways of cutting, and against the
// standard library's understanding of the same text.
func FuzzCanonicalize(f *testing.F) {
	for _, v := range contractVectors {
		f.Add([]byte(v.in))
	}
	f.Add([]byte(`{"a":1,"\u0061":2,"\ud83d":[{},[]],"b":"\ude00"}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := Canonicalize(raw)
		checked := CheckCanonical(bytes.NewReader(raw))
		if err != nil {
			if checked == nil {
				t.Fatalf("%q: refused (%v) but taken by the checker", raw, err)
			}
			return
		}
		if (checked == nil) != bytes.Equal(raw, got) {
			t.Fatalf("%q: canonical form %q, checker says %v", raw, got, checked)
		}
		again, err := Canonicalize(got)
		if err != nil || !bytes.Equal(again, got) {
			t.Fatalf("%q: not a fixed point: %q, %v", got, again, err)
		}
		if err := CheckCanonical(iotest.OneByteReader(bytes.NewReader(got))); err != nil {
			t.Fatalf("%q: %v", got, err)
		}
		var before, after any
		if err := json.Unmarshal(raw, &before); err != nil {
			t.Fatalf("%q: encoding/json refuses what was taken: %v", raw, err)
		}
		if err := json.Unmarshal(got, &after); err != nil || !reflect.DeepEqual(before, after) {
			// The library turns lone surrogates into U+FFFD, and with them different keys into one.
			if !bytes.Contains(got, []byte(`\ud`)) {
				t.Fatalf("%q means something else as %q: %v", raw, got, cmp.Diff(before, after))
			}
		}
	})
}

func FuzzChecker(f *testing.F) {
	f.Add([]byte(`{"a":[1,"\ud800é"],"b":{}}`), 3)
	f.Fuzz(func(t *testing.T, raw []byte, cut int) {
		whole := CheckCanonical(bytes.NewReader(raw))
		c := NewChecker()
		if len(raw) > 0 {
			cut = int(uint(cut) % uint(len(raw)))
			c.Write(raw[:cut]) // its error stays
			c.Write(raw[cut:])
		}
		if pieces := c.Close(); (whole == nil) != (pieces == nil) {
			t.Fatalf("%q: whole %v, cut at %d %v", raw, whole, cut, pieces)
		}
	})
}

func benchmarkInput() []byte {
	var b bytes.Buffer
	b.WriteString(`{"occurrences":[`)
	for i := range 20000 {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(`{"artifact_id":"art_a950389b19d54f4300ed4f346db72de986c74f54d8e3830a685addcbc99f9f2f","artifact_kind":"resource","byte_size":123456,"executable":false,"logical_path":"app/resources/größe/file.txt","parent":null}`)
	}
	b.WriteString(`]}`)
	return b.Bytes()
}

func BenchmarkCanonicalizeAndHash(b *testing.B) {
	raw := benchmarkInput()
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		c, err := Canonicalize(raw)
		if err != nil {
			b.Fatal(err)
		}
		DigestBytes(c)
	}
}

func BenchmarkChecker(b *testing.B) {
	raw := benchmarkInput()
	raw, _ = Canonicalize(raw)
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		c := NewChecker()
		if _, err := c.Write(raw); err != nil {
			b.Fatal(err)
		}
	}
}
