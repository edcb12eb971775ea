package hfsplus

import (
	"encoding/binary"
	"fmt"
	"io"

	"rea/providers/artifact/worker/chunk"
)

// btree is one of the volume's B-trees (TN1150, "B-Trees").
type btree struct {
	f     *Fork
	nodes *chunk.Cache
	own   int64 // distinguishes its nodes from those of other trees
	size  int64 // of a node
	count int64 // of nodes in the fork
	root  uint32
}

const (
	descriptor = 14
	minNode    = 512
	maxNode    = 32 << 10
	maxHeight  = 16
	leafNode   = 0xff
	indexNode  = 0
	headerNode = 1
)

func (v *Volume) tree(nodes *chunk.Cache, id uint32, fork []byte) (*btree, error) {
	f, err := v.fork(fork, id, dataFork)
	if err != nil {
		return nil, err
	}
	head := make([]byte, descriptor+106)
	if n, _ := f.ReadAt(head, 0); n < len(head) || head[8] != headerNode {
		return nil, fmt.Errorf("%w: B-tree %d has no head", ErrFormat, id)
	}
	be := binary.BigEndian
	t := &btree{f: f, nodes: nodes, own: int64(id) << 56, root: be.Uint32(head[16:]), size: int64(be.Uint16(head[32:]))}
	if t.size < minNode || t.size > maxNode || t.size&(t.size-1) != 0 {
		return nil, fmt.Errorf("%w: B-tree nodes of %d bytes", ErrFormat, t.size)
	}
	t.count = f.Size / t.size
	return t, nil
}

// node is a node's bytes. Records are found by the offsets at its end, from the last one backwards.
type node []byte

func (t *btree) node(number uint32) (node, error) {
	if int64(number) >= t.count {
		return nil, fmt.Errorf("%w: B-tree node %d of %d", ErrFormat, number, t.count)
	}
	b, err := t.nodes.Get(t.own|int64(number), func() ([]byte, error) {
		b := make([]byte, t.size)
		if n, err := t.f.ReadAt(b, int64(number)*t.size); n < len(b) {
			return nil, err
		}
		return b, nil
	})
	return b, err
}

func (n node) kind() byte   { return n[8] }
func (n node) next() uint32 { return binary.BigEndian.Uint32(n) }

// records is the number of records, as far as the node has room for their offsets.
func (n node) records() int {
	return min(int(binary.BigEndian.Uint16(n[10:])), (len(n)-descriptor)/2-1)
}

// record gives a record's key without its length, and what follows it.
func (n node) record(i int) (key, data []byte, err error) {
	be := binary.BigEndian
	start, end := int(be.Uint16(n[len(n)-2*(i+1):])), int(be.Uint16(n[len(n)-2*(i+2):]))
	if start < descriptor || start+2 > end || end > len(n) {
		return nil, nil, fmt.Errorf("%w: record %d of a B-tree node leaves it", ErrFormat, i)
	}
	b := n[start:end]
	length := int(be.Uint16(b))
	if b = b[2:]; length > len(b) {
		return nil, nil, fmt.Errorf("%w: a B-tree key of %d bytes leaves its record", ErrFormat, length)
	}
	return b[:length], b[min(length+length&1, len(b)):], nil
}

// find gives a cursor at the first record that compare, which says how a key stands to what is looked for, does not call
// smaller.
func (t *btree) find(compare func(key []byte) int) (*cursor, error) {
	number := t.root
	for range maxHeight {
		if number == 0 { // an empty tree
			return &cursor{}, nil
		}
		n, err := t.node(number)
		if err != nil {
			return nil, err
		}
		switch n.kind() {
		case leafNode:
			i, err := n.lowest(compare)
			return &cursor{t: t, n: n, i: i, left: t.count}, err
		case indexNode:
			if number, err = n.child(compare); err != nil {
				return nil, err
			}
		default:
			return nil, fmt.Errorf("%w: node %d of a B-tree is neither index nor leaf", ErrFormat, number)
		}
	}
	return nil, fmt.Errorf("%w: a B-tree is more than %d nodes high", ErrFormat, maxHeight)
}

// lowest is the first record that is not smaller.
func (n node) lowest(compare func(key []byte) int) (int, error) {
	low, high := 0, n.records()
	for low < high {
		middle := (low + high) / 2
		key, _, err := n.record(middle)
		if err != nil {
			return 0, err
		}
		if compare(key) < 0 {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low, nil
}

// child is the node below the last record that is not above what is looked for, or below the first record.
func (n node) child(compare func(key []byte) int) (uint32, error) {
	i, err := n.lowest(compare)
	if err != nil {
		return 0, err
	}
	if i == n.records() {
		i--
	} else if key, _, err := n.record(i); err != nil {
		return 0, err
	} else if i > 0 && compare(key) > 0 {
		i--
	}
	if i < 0 {
		return 0, fmt.Errorf("%w: an index node without records", ErrFormat)
	}
	_, data, err := n.record(i)
	if err != nil || len(data) < 4 {
		return 0, fmt.Errorf("%w: an index record without a node", ErrFormat)
	}
	return binary.BigEndian.Uint32(data), nil
}

// cursor reads records in order, over the links between leaves.
type cursor struct {
	t    *btree
	n    node
	i    int
	left int64 // leaves that may follow
}

// next gives the next record; io.EOF is the end of the tree.
func (c *cursor) next() (key, data []byte, err error) {
	for c.n != nil && c.i >= c.n.records() {
		next := c.n.next()
		if next == 0 {
			break
		}
		if c.left--; c.left < 0 {
			return nil, nil, fmt.Errorf("%w: the leaves of a B-tree go round in a circle", ErrFormat)
		}
		n, err := c.t.node(next)
		if err != nil {
			return nil, nil, err
		}
		if n.kind() != leafNode || n.records() == 0 {
			return nil, nil, fmt.Errorf("%w: node %d of a B-tree is no leaf with records", ErrFormat, next)
		}
		c.n, c.i = n, 0
	}
	if c.n == nil || c.i >= c.n.records() {
		return nil, nil, io.EOF
	}
	c.i++
	return c.n.record(c.i - 1)
}
