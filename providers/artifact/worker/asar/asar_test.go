package asar

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func framed(header string) []byte {
	le := binary.LittleEndian
	var b []byte
	for _, v := range []int{4, 8 + len(header), 4 + len(header), len(header)} {
		b = le.AppendUint32(b, uint32(v))
	}
	return append(b, header...)
}

func walk(t testing.TB, b []byte) (lines []string, err error) {
	t.Helper()
	h, err := ReadHead(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return nil, err
	}
	err = Walk(bytes.NewReader(b), h, func(e *Entry) error {
		line := fmt.Sprintf("%d %q %d %d", e.Kind, bytes.Join(e.Names, []byte("|")), e.Size, e.Offset)
		if e.Integrity != nil {
			line += fmt.Sprintf(" %x %d", e.Integrity.SHA256[:2], len(e.Integrity.Blocks))
		}
		lines = append(lines, line+fmt.Sprintf(" %v %v %s", e.Unpacked, e.Executable, e.Target))
		return nil
	})
	return lines, err
}

func TestWalk(t *testing.T) {
	digest := strings.Repeat("ab", 32)
	header := `{"files":{"a":{"files":{"b.txt":{"size":3,"offset":"12","executable":true},"c":{"link":"b.txt"}}},
		"u":{"size":1e2,"unpacked":true,"integrity":{"algorithm":"SHA256","hash":"` + strings.ToUpper(digest) + `","blockSize":4,"blocks":["` + digest + `","` + digest + `"]}},
		"weak":{"size":1,"offset":"0","integrity":{"algorithm":"MD5","hash":"` + digest + `"}},
		"big":{"size":9007199254740993,"offset":"9223372036854775807"},"neg":{"size":-1,"offset":"-1"},"\u00fc\ud83d\ude00\"":{"size":0.5}}}`
	lines, err := walk(t, framed(header))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`1 "a" -1 -1 false false `, `0 "a|b.txt" 3 12 false true `, `2 "a|c" -1 -1 false false b.txt`,
		`0 "u" 100 -1 abab 2 true false `, `0 "weak" 1 0 false false `, `0 "big" 9007199254740993 9223372036854775807 false false `,
		`0 "neg" -1 -1 false false `, `0 "ü😀\"" -1 -1 false false `,
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Error(diff)
	}
}

func TestUnquote(t *testing.T) {
	for in, want := range map[string]string{
		`"a\n\t\r\b\f\/\\\""`: "a\n\t\r\b\f/\\\"", `"\u00e9"`: "é", `"\ud83d\ude00"`: "😀", `"\ud800x"`: "\xed\xa0\x80x", "\"\xff\"": "\xff", `true`: "true",
	} {
		if got := string(unquote([]byte(in))); got != want {
			t.Errorf("%s gives %q, want %q", in, got, want)
		}
	}
}

func TestBroken(t *testing.T) {
	deep := strings.Repeat(`{"files":{"d":`, maxDepth+10)
	for name, b := range map[string][]byte{
		"deep": framed(deep), "cut": framed(`{"files":{"a":{"size":1}`), "list": framed(`[]`), "short": framed(`{}`)[:10],
		"header beyond the file": append(binary.LittleEndian.AppendUint32([]byte{4, 0, 0, 0}, 1<<30), make([]byte, 100)...),
	} {
		if _, err := walk(t, b); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	stop := errors.New("stop")
	b := framed(`{"files":{"a":{},"b":{}}}`)
	h, _ := ReadHead(bytes.NewReader(b), int64(len(b)))
	if err := Walk(bytes.NewReader(b), h, func(*Entry) error { return stop }); err != stop {
		t.Errorf("error %v, want the caller's own", err)
	}
}

func FuzzWalk(f *testing.F) {
	f.Add(framed(`{"files":{"a":{"files":{"b":{"size":3,"offset":"0"}}},"l":{"link":"a"}}}`))
	f.Add(framed(`{"files":{"u":{"size":1,"unpacked":true,"integrity":{"algorithm":"SHA256","hash":"` + strings.Repeat("0", 64) + `","blocks":[1,"x"]}}}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		lines, _ := walk(t, b)
		if len(lines) > len(b) {
			t.Fatal("more entries than bytes")
		}
	})
}
