// Package chunk keeps the last decoded pieces of a compressed image (blocks of a file system, chunks of a disk image),
// so that neighbours are not decoded again. It must not know what the pieces hold.
package chunk

import (
	"errors"
	"sync"
)

// errBroken is what a piece has whose decoder panicked.
var errBroken = errors.New("its decoder failed")

// Cache keeps decoded pieces up to a number of bytes. It may be used by several goroutines; a piece that two of them
// want is decoded once.
type Cache struct {
	mu     sync.Mutex
	limit  int64
	held   int64
	pieces map[int64]*piece
	order  []*piece // oldest first
}

type piece struct {
	key  int64
	once sync.Once
	data []byte
	err  error
}

// New makes a cache that keeps at most limit bytes, and one piece more while it is being added.
func New(limit int64) *Cache {
	return &Cache{limit: limit, pieces: map[int64]*piece{}}
}

// Get gives the piece with that key, by decode where it is not kept. The bytes must not be changed. An error is kept
// like a piece.
func (c *Cache) Get(key int64, decode func() ([]byte, error)) ([]byte, error) {
	c.mu.Lock()
	p, ok := c.pieces[key]
	if !ok {
		p = &piece{key: key}
		c.pieces[key] = p
	}
	c.mu.Unlock()
	p.once.Do(func() {
		defer c.settle(p) // also where decode panics
		p.data, p.err = nil, errBroken
		p.data, p.err = decode()
	})
	return p.data, p.err
}

// settle counts a decoded piece and lets the oldest ones go.
func (c *Cache) settle(p *piece) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.order = append(c.order, p)
	c.held += cost(p)
	for c.held > c.limit && len(c.order) > 1 {
		old := c.order[0]
		c.order[0] = nil
		c.order = c.order[1:]
		c.held -= cost(old)
		delete(c.pieces, old.key)
	}
}

// cost is what a piece takes, its record included.
func cost(p *piece) int64 {
	const record = 128
	return int64(len(p.data)) + record
}
