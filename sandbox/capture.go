package sandbox

import (
	"bytes"
	"fmt"
	"sync"
)

// captureSize is how much of each end of an output stream is kept, in bytes: enough to read what went wrong, too
// little for a flood to matter.
const captureSize = 32 << 10

// Capture is a writer that takes everything and keeps the first and the last 32 KiB of it. The zero value is ready; it
// is safe for concurrent use.
type Capture struct {
	mu    sync.Mutex
	head  []byte
	tail  []byte // ring once it is full
	next  int    // where the ring's oldest byte is
	total int64
}

// Write keeps what must be kept of p; it never fails.
func (c *Capture) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(p)
	c.total += int64(n)
	if room := captureSize - len(c.head); room > 0 {
		take := min(room, len(p))
		c.head = append(c.head, p[:take]...)
		p = p[take:]
	}
	if len(p) > captureSize {
		p = p[len(p)-captureSize:]
	}
	if room := captureSize - len(c.tail); room > 0 {
		take := min(room, len(p))
		c.tail = append(c.tail, p[:take]...)
		p = p[take:]
	}
	for len(p) > 0 {
		copied := copy(c.tail[c.next:], p)
		p = p[copied:]
		c.next = (c.next + copied) % captureSize
	}
	return n, nil
}

// Bytes returns what was kept, with a note where something is left out.
func (c *Capture) Bytes() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out bytes.Buffer
	out.Write(c.head)
	if left := c.total - int64(len(c.head)) - int64(len(c.tail)); left > 0 {
		fmt.Fprintf(&out, "\n[%d bytes left out]\n", left)
	}
	out.Write(c.tail[c.next:])
	out.Write(c.tail[:c.next])
	return out.Bytes()
}
