package docker

import (
	"fmt"
	"sync"
)

// captureHalf bounds each of the two parts that are kept of a container's diagnostics.
const captureHalf = 32 << 10

// capture keeps the first and the last part of what is written to it.
type capture struct {
	mu      sync.Mutex
	head    []byte
	tail    []byte // ring, once it is full
	at      int    // where the ring's oldest byte is
	dropped int64
}

// Write never fails and never blocks for long.
func (c *capture) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	rest := p
	if room := captureHalf - len(c.head); room > 0 {
		n := min(room, len(rest))
		c.head = append(c.head, rest[:n]...)
		rest = rest[n:]
	}
	if skip := len(rest) - captureHalf; skip > 0 {
		c.dropped += int64(skip)
		rest = rest[skip:]
	}
	c.keep(rest)
	return len(p), nil
}

// keep puts at most captureHalf bytes into the ring.
func (c *capture) keep(p []byte) {
	if room := captureHalf - len(c.tail); room > 0 {
		n := min(room, len(p))
		c.tail = append(c.tail, p[:n]...)
		p = p[n:]
	}
	c.dropped += int64(len(p))
	for len(p) > 0 {
		n := copy(c.tail[c.at:], p)
		c.at = (c.at + n) % captureHalf
		p = p[n:]
	}
}

// bytes returns what was kept, with a line that says how much is missing between the two parts.
func (c *capture) bytes() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	kept := append([]byte{}, c.head...)
	if c.dropped > 0 {
		kept = fmt.Appendf(kept, "\n[%d bytes left out]\n", c.dropped)
	}
	kept = append(kept, c.tail[c.at:]...)
	return append(kept, c.tail[:c.at]...)
}
