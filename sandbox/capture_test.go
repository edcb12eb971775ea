package sandbox

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
)

// The expected value is made by slicing the whole stream.
func TestCapture(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, size := range []int{0, 1, captureSize, captureSize + 1, 2 * captureSize, 2*captureSize + 1, 5*captureSize + 17} {
		whole := make([]byte, size)
		for i := range whole {
			whole[i] = byte(random.UintN(256))
		}
		var c Capture
		for rest := whole; len(rest) > 0; {
			n := min(len(rest), 1+random.IntN(3*captureSize))
			if random.IntN(2) == 0 {
				n = min(n, 100)
			}
			c.Write(rest[:n])
			rest = rest[n:]
		}
		want := whole
		if size > 2*captureSize {
			note := fmt.Sprintf("\n[%d bytes left out]\n", size-2*captureSize)
			want = bytes.Join([][]byte{whole[:captureSize], []byte(note), whole[size-captureSize:]}, nil)
		}
		if got := c.Bytes(); !bytes.Equal(got, want) {
			t.Errorf("%d bytes: kept %d bytes that differ from both ends of the stream", size, len(got))
		}
	}
}
