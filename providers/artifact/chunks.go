package artifact

// chunkBits sets the length of a chunk: long enough to make the list of chunks short, short enough that a small graph
// costs little.
const chunkBits = 10

// chunks is a list that grows without copying, so that its peak is its size. The zero value is empty.
type chunks[T any] struct {
	list [][]T
	n    int
}

// add appends v and returns its index.
func (c *chunks[T]) add(v T) int {
	if c.n>>chunkBits == len(c.list) {
		size := 1 << chunkBits
		if c.n == 0 {
			size = 16 // most graphs are small, and append grows the first chunk
		}
		c.list = append(c.list, make([]T, 0, size))
	}
	last := &c.list[c.n>>chunkBits]
	*last = append(*last, v)
	c.n++
	return c.n - 1
}

// at gives the element i, which stays where it is only while c does not grow past the first chunk: do not keep it over
// an add.
func (c *chunks[T]) at(i int) *T { return &c.list[i>>chunkBits][i&(1<<chunkBits-1)] }

// len is the number of elements.
func (c *chunks[T]) len() int { return c.n }
