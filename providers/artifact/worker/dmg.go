package worker

import (
	"fmt"
	"io"
	"iter"

	"rea/providers/artifact/worker/dmg"
)

// readDMG reads an Apple disk image: each partition is a member, with its sectors as its bytes, and those that hold a
// file system with a reader are gone into.
func readDMG(c *container) error {
	var head [8]byte
	if n, _ := c.src.ReadAt(head[:], 0); string(head[:n]) == encryptedDMG {
		c.partial("It is encrypted; its partitions were not read.")
		return nil
	}
	im, err := dmg.Open(c.src, c.src.size)
	if err != nil {
		return c.unread(err, dmg.ErrOldForm)
	}
	if im.Segments > 1 {
		c.partial(fmt.Sprintf("It is part %d of an image in %d parts; what the other parts hold was not read.", im.Segment, im.Segments))
	}
	return c.each(c.partitions(im))
}

const (
	encryptedDMG   = "encrcdsa"
	wholePartition = "partition"
)

func (c *container) partitions(im *dmg.Image) iter.Seq2[*member, error] {
	return func(yield func(*member, error) bool) {
		for _, p := range im.Partitions {
			if !yield(c.partition(p), nil) {
				return
			}
		}
	}
}

func (c *container) partition(p *dmg.Partition) *member {
	m := &member{declared: exact(uint64(p.Size)), compressed: p.Stored, method: p.Method}
	if p.Holes {
		m.compressed = -1 // says nothing about how many bytes it stands for
	}
	name := p.Name
	if len(name) == 0 {
		name = []byte(wholePartition)
	}
	c.add(m, [][]byte{name})
	if p.Problem != "" {
		m.problem = "It cannot be read: " + p.Problem + "."
		return m
	}
	m.section = p
	m.open = func() (io.ReadCloser, error) {
		r := p.NewReader()
		m.check = func(*member) string {
			if p.HasCRC32 && r.Sum() != p.CRC32 {
				return fmt.Sprintf("Its declared CRC-32 is contradicted: %08x declared, %08x observed.", p.CRC32, r.Sum())
			}
			return ""
		}
		return io.NopCloser(r), nil
	}
	return m
}
