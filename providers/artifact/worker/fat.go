package worker

import (
	"fmt"
	"iter"

	"rea/providers/artifact"
	"rea/providers/artifact/worker/fat"
)

// readFat reads the slices of a universal Mach-O file. A slice stands below the file under its architecture's name.
func readFat(c *container) error {
	slices, err := fat.Read(c.src, c.src.size)
	if err != nil {
		return err
	}
	return c.each(c.slices(slices))
}

func (c *container) slices(slices []fat.Slice) iter.Seq2[*member, error] {
	return func(yield func(*member, error) bool) {
		for _, s := range slices {
			m := &member{kind: artifact.EntrySlice, executable: true, declared: -1, compressed: -1, method: "slice",
				architecture: s.Name()}
			if s.Problem != "" {
				m.problem = fmt.Sprintf("It cannot be read: %s.", s.Problem)
			} else {
				m.declared = s.Length
				c.stored(m, s.Offset, s.Length)
			}
			c.add(m, [][]byte{[]byte(s.Name())})
			if !yield(m, nil) {
				return
			}
		}
	}
}
