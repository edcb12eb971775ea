package worker

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"rea/evidence/target"
	"rea/providers/artifact"
)

// Images of file systems are listed by sub-packages in the same way: entries with the components of their paths, and
// directories that could be read in part only.

// troubles collects what could not be listed of an image. It is filled where members are listed and told afterwards,
// since only the goroutine that commits may touch the graph.
type troubles struct {
	named []string
	count int64
}

// add keeps why a directory was not read to its end.
func (t *troubles) add(names [][]byte, err error) {
	if t.count++; len(t.named) < maxNamed {
		path := bytes.Join(names, []byte("/"))
		t.named = append(t.named, fmt.Sprintf("%s (%s)", quote(path[:min(len(path), maxPath)]), reason(err)))
	}
}

// tell says of a container what could not be listed.
func (t *troubles) tell(c *container) {
	if t.count > 0 {
		c.partial("Directories that were not read to their end: " + listed(t.named, t.count) + ".")
	}
}

// unread makes an error that says that a sound container is of a form that no reader knows a limitation of it; any other
// error it gives back.
func (c *container) unread(err, unsupported error) error {
	if !errors.Is(err, unsupported) {
		return err
	}
	c.partial("It was not looked into: " + reason(err) + ".")
	return nil
}

// special makes m an entry that is no occurrence because it is never opened.
func (m *member) special(k target.Kind) { m.omitted, m.declared = k, -1 }

// symlink makes m a symbolic link.
func (m *member) symlink(to []byte) {
	m.kind, m.link, m.declared, m.executable = artifact.EntrySymlink, bytes.Clone(to), -1, false
}

// from says that m's bytes come from a reader that open makes.
func (m *member) from(open func() io.Reader) {
	m.open = func() (io.ReadCloser, error) { return io.NopCloser(open()), nil }
}
