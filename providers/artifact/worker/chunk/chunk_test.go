package chunk

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
)

func TestCacheDecodesOnceAndForgetsTheOldest(t *testing.T) {
	c := New(3 << 10)
	var decoded atomic.Int64
	get := func(key int64) {
		b, err := c.Get(key, func() ([]byte, error) {
			decoded.Add(1)
			b := make([]byte, 1000)
			b[0] = byte(key)
			return b, nil
		})
		if err != nil || len(b) != 1000 || b[0] != byte(key) {
			t.Errorf("piece %d: %d bytes, %v", key, len(b), err)
		}
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { get(1) })
	}
	all.Wait()
	if decoded.Load() != 1 {
		t.Errorf("one piece was decoded %d times", decoded.Load())
	}
	get(2)
	get(3) // 3 x (1000 + 128) is more than 3072: the first one goes
	get(2)
	if decoded.Load() != 3 {
		t.Errorf("%d pieces were decoded, want 3", decoded.Load())
	}
	get(1)
	if decoded.Load() != 4 {
		t.Errorf("the oldest piece was kept")
	}
}

func TestCacheKeepsFailures(t *testing.T) {
	c := New(1 << 10)
	bad := errors.New("bad")
	tries := 0
	for range 2 {
		if _, err := c.Get(7, func() ([]byte, error) { tries++; return nil, bad }); !errors.Is(err, bad) {
			t.Errorf("error %v", err)
		}
	}
	if tries != 1 {
		t.Errorf("%d tries", tries)
	}
	func() {
		defer func() { recover() }()
		_, _ = c.Get(8, func() ([]byte, error) { panic("decoder") })
	}()
	if b, err := c.Get(8, func() ([]byte, error) { return []byte("x"), nil }); err == nil {
		t.Errorf("a piece whose decoder panicked gives %q", b)
	}
}
