package lzfse

import (
	"bytes"
	"strings"
	"testing"

	"rea/providers/artifact/worker/imagetest"
)

// samples are texts with few and with many matches. That what imagetest makes of them is LZFSE and LZVN is established
// by 7-Zip: see the test of disk images.
func samples() map[string][]byte {
	noise := make([]byte, 70_000)
	seed := uint64(7)
	for i := range noise {
		seed = seed*6364136223846793005 + 1442695040888963407
		noise[i] = byte(seed >> 56)
	}
	words := strings.Repeat("the quick brown fox jumps over the lazy dog, and the dog does not mind; ", 2000)
	return map[string][]byte{
		"short": []byte("hello, hello, hello, hello"), "words": []byte(words), "zeros": make([]byte, 100_000), "noise": noise,
		"mixed": append(append([]byte(words[:50_000]), noise[:20_000]...), words[100:40_000]...),
	}
}

func TestDecode(t *testing.T) {
	for name, want := range samples() {
		for form, packed := range map[string][]byte{"lzfse": imagetest.LZFSE(want), "lzvn": imagetest.InLZVN(want), "plain": imagetest.Plain(want)} {
			got, err := Decode(packed, len(want))
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s as %s (%d of %d bytes): %d bytes, %v", name, form, len(packed), len(want), len(got), err)
			}
			if _, err := Decode(packed, len(want)-1); err == nil {
				t.Errorf("%s as %s passes a limit below its size", name, form)
			}
			for _, cut := range []int{0, 3, 11, len(packed) / 2, len(packed) - 1} {
				if _, err := Decode(packed[:cut], len(want)); err == nil {
					t.Errorf("%s as %s, cut at %d, decodes", name, form, cut)
				}
			}
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, s := range samples() {
		f.Add(imagetest.LZFSE(s[:min(len(s), 3000)]))
		f.Add(imagetest.InLZVN(s[:min(len(s), 3000)]))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		const limit = 1 << 16
		if got, _ := Decode(b, limit); len(got) > limit {
			t.Fatalf("%d bytes, the limit is %d", len(got), limit)
		}
	})
}
