package worker

import (
	"fmt"
	"io"
	"iter"
	"os"
	"slices"

	"rea/evidence/target"
	"rea/evidence/volume"
	"rea/providers/artifact"
)

// directory reads a target that is a directory: every file once, for the graph and for the target's digest.
type directory struct {
	c          *container
	root       *os.File
	tree       *target.Tree
	unreadable []string
}

func (w *walk) directory(root *os.File) (volume.TargetSeen, error) {
	d := &directory{root: root, tree: target.NewTree(), c: &container{w: w, path: rootPath, number: w.opened}}
	w.opened++
	if err := d.c.each(d.members()); err != nil {
		return volume.TargetSeen{}, err
	}
	slices.Sort(d.unreadable)
	return volume.TargetSeen{SHA256: d.tree.Sum(), Unreadable: d.unreadable}, nil
}

func (d *directory) members() iter.Seq2[*member, error] {
	return func(yield func(*member, error) bool) {
		v := &visitor{d: d, yield: yield}
		if err := target.Walk(d.c.w.ctx, d.root, v); err != nil && err != errStopped {
			yield(nil, err)
		}
	}
}

// visitor turns entries of the tree into members. It runs beside the goroutine that commits, so what it tells the
// digest goes through finish, in order.
type visitor struct {
	d     *directory
	yield func(*member, error) bool
}

func (v *visitor) give(m *member, path []byte) error {
	m.plain, m.compressed = true, -1
	v.d.c.add(m, split(path))
	if !v.yield(m, nil) {
		return errStopped
	}
	return nil
}

// Dir implements target.Visitor.
func (v *visitor) Dir(path []byte) error {
	path = slices.Clone(path)
	return v.give(&member{kind: artifact.EntryDirectory, finish: func() error { v.d.tree.Dir(path); return nil }}, path)
}

// File implements target.Visitor.
func (v *visitor) File(path []byte, f *target.File) error {
	path = slices.Clone(path)
	m := &member{executable: f.Info.Exec, section: f, declared: f.Info.Size}
	m.open = func() (io.ReadCloser, error) { return io.NopCloser(io.NewSectionReader(f, 0, f.Info.Size+1)), nil }
	m.check = func(m *member) string {
		if m.content.Size != f.Info.Size {
			m.fatal = target.Changed(target.Escape(path), "it gave more or fewer bytes than its size")
		}
		return ""
	}
	m.resolve = func(m *member) { v.d.c.w.rootBytes += f.Info.Size }
	m.finish = func() error {
		if m.read {
			v.d.tree.File(path, f.Info.Size, m.content.SHA256, f.Info.Exec)
		}
		return f.Close()
	}
	m.blob(path)
	if hasSuffix(string(path), ".asar") {
		m.companions = below(v.d.root, append(path[:len(path):len(path)], companionSuffix...))
	}
	return v.give(m, path)
}

// Link implements target.Visitor.
func (v *visitor) Link(path, to []byte) error {
	path, to = slices.Clone(path), slices.Clone(to)
	return v.give(&member{kind: artifact.EntrySymlink, link: to, declared: -1, finish: func() error { v.d.tree.Link(path, to); return nil }}, path)
}

// Special implements target.Visitor. The entry is no occurrence.
func (v *visitor) Special(path []byte, kind target.Kind) error {
	path = slices.Clone(path)
	m := &member{omitted: kind, finish: func() error { v.d.tree.Special(path, kind); return nil }}
	return v.give(m, path)
}

// Unreadable implements target.Visitor.
func (v *visitor) Unreadable(path []byte, dir bool) error {
	path = slices.Clone(path)
	m := &member{problem: "It is not readable for the user of the run.", closed: true, declared: -1}
	if dir {
		m.kind = artifact.EntryDirectory
	}
	m.finish = func() error {
		v.d.tree.Unreadable(path)
		v.d.unreadable = append(v.d.unreadable, target.Escape(path))
		return nil
	}
	return v.give(m, path)
}

// omit names an entry that is no occurrence because it is never opened.
func (w *walk) omit(path string, kind target.Kind) {
	if w.graph == nil {
		return
	}
	w.graph.Limit(fmt.Sprintf("Not opened: %s (%s).", quote([]byte(path)), kind))
	w.graph.Incomplete()
}
