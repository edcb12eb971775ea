package worker

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"rea/evidence/fault"
	"rea/evidence/target"
	"rea/evidence/volume"
	"rea/providers/artifact"
)

// An extraction walks twice. The first walk is the inventory: it finds every reason to refuse before a byte is written,
// and gives the occurrences their identities. The second one writes each selected content once, under a number, and
// compares it with what the first one saw.

// recording is what the first walk keeps for the second.
type recording struct {
	files   []recorded
	opened  map[place]opened
	parents []place // by container number; the root's is meaningless
}

// recorded is one regular file or slice of the first walk.
type recorded struct {
	place   place
	ref     artifact.Ref
	path    string
	problem string
	sum     [32]byte // of the content, where there is one
	flags   uint8
}

const (
	isAwkward    uint8 = 1 << iota // its name is not plain
	isLocked                       // it is encrypted
	isMissing                      // its bytes lie elsewhere and are not there
	isUnreadable                   // permissions keep it closed
	hasOwn                         // its bytes stand in its place, and not behind a hard link
)

// opened is a container that the first walk went into.
type opened struct {
	number uint32
	format artifact.Format
}

func (r *recording) add(m *member, ref artifact.Ref) {
	if m.kind != artifact.EntryFile && m.kind != artifact.EntrySlice {
		return
	}
	f := recorded{place: m.place, ref: ref, path: m.path, problem: m.problem, sum: m.content.SHA256}
	if m.known != nil {
		f.sum = m.known.SHA256
	}
	for flag, on := range map[uint8]bool{
		isAwkward: m.awkward, isLocked: m.encrypted, isMissing: m.missing, isUnreadable: m.closed, hasOwn: m.read,
	} {
		if on {
			f.flags |= flag
		}
	}
	r.files = append(r.files, f)
}

func (r *recording) enter(m *member, number uint32, format artifact.Format) {
	r.opened[m.place] = opened{number, format}
	for uint32(len(r.parents)) <= number {
		r.parents = append(r.parents, place{})
	}
	r.parents[number] = m.place
}

// extract does extract_artifact.
func extract(ctx context.Context, c call) error {
	p, err := decodeParams(artifact.OpExtract, c.params)
	if err != nil {
		return err
	}
	first := newWalk(ctx, artifact.OpExtract, p.Policy, c)
	first.record = &recording{opened: map[place]opened{}, parents: []place{{}}}
	if err := first.run(c, p.Name); err != nil {
		return err
	}
	if first.first != nil {
		return first.first.fault(artifact.OpExtract)
	}
	files, awkward, err := first.choose(p.Selected)
	if err != nil {
		return err
	}
	if awkward > 0 {
		first.graph.Limit(fmt.Sprintf("%d files were not written: their recorded names are not plain relative paths.", awkward))
	}
	first.conclude()
	if _, err := first.graph.Seal(ctx); err != nil {
		return err
	}
	written, wanted := first.assign(files)
	second := newWalk(ctx, artifact.OpExtract, p.Policy, c)
	second.rootBytes = first.rootBytes
	second.extract = &extraction{wanted: wanted, numbers: first.record.needed(wanted), file: c.file}
	c.seen = func(volume.TargetSeen) {} // said by the first walk
	if err := second.run(c, p.Name); err != nil {
		return err
	}
	if missed := len(wanted) - second.extract.count; missed != 0 {
		return target.Changed(rootPath, fmt.Sprintf("%d files were not found again", missed))
	}
	return first.graph.FinishExtraction(ctx, c.result(), written)
}

// choose gives the files to write, in path order, and how many were left out for their names. Without a selection these
// are all that have plain names. Any that cannot be written is an error.
func (w *walk) choose(selected []string) (files []recorded, awkward int, err error) {
	if selected != nil {
		files, err = w.selected(selected)
	} else {
		files = slices.DeleteFunc(slices.Clone(w.record.files), func(f recorded) bool { return f.flags&isAwkward != 0 })
		awkward = len(w.record.files) - len(files)
	}
	if err == nil && len(files) == 0 {
		err = fault.New(fault.ArtifactOperationFailed, "The artifact holds no file that can be written.",
			"Inspect the artifact to see what it holds.").
			WithAll(fault.Details{"operation": artifact.OpExtract, "reason": "path", "logical_path": rootPath})
	}
	if err != nil {
		return nil, 0, err
	}
	for _, f := range files {
		if err := f.refused(); err != nil {
			return nil, 0, err
		}
	}
	slices.SortStableFunc(files, func(a, b recorded) int {
		return cmp.Or(strings.Compare(a.path, b.path), cmp.Compare(a.ref, b.ref))
	})
	return files, awkward, nil
}

// selected finds files by occurrence id, which needs the sealed graph.
func (w *walk) selected(ids []string) ([]recorded, error) {
	w.conclude()
	if _, err := w.graph.Seal(w.ctx); err != nil {
		return nil, err
	}
	missing := make(map[string]bool, len(ids))
	for _, id := range ids {
		missing[id] = true
	}
	var files []recorded
	for _, f := range w.record.files {
		if id := w.graph.OccurrenceID(f.ref); missing[id] {
			delete(missing, id)
			files = append(files, f)
		}
	}
	for _, id := range ids {
		if missing[id] {
			return nil, fault.New(fault.ArtifactOperationFailed, "The selection names no regular file of the artifact: "+quote([]byte(id))+".",
				"Select files by the occurrence ids of an inspection of the same artifact.").
				WithAll(fault.Details{"operation": artifact.OpExtract, "reason": "path", "occurrence_id": id})
		}
	}
	return files, nil
}

// refused says why a file cannot be written.
func (f recorded) refused() error {
	name := quote([]byte(f.path))
	details := fault.Details{"operation": artifact.OpExtract, "logical_path": f.path}
	fail := func(reason, message, action string) *fault.Error {
		details["reason"] = reason
		return fault.New(fault.ArtifactOperationFailed, message, action).WithAll(details)
	}
	switch {
	case f.flags&isAwkward != 0:
		return fail("path", "The recorded name of "+name+" is not a plain relative path, so it is never written.", "Leave it out of the selection.")
	case f.flags&isLocked != 0:
		details["reason"] = "encrypted"
		return fault.New(fault.UnsupportedTarget, "The member "+name+" is encrypted.", "Leave it out of the selection.").WithAll(details)
	case f.flags&isMissing != 0:
		return fail("unavailable", "The bytes of "+name+" are not there. "+f.problem, "Put the missing file in its place, or leave it out of the selection.").InCategory(fault.CategoryUnavailable)
	case f.flags&isUnreadable != 0:
		return fail("io", "The file "+name+" is not readable for the user of the run.", "Give that user permission to read it, or leave it out of the selection.")
	case f.problem != "":
		return fail("format", "The member "+name+" cannot be read. "+f.problem, "Leave it out of the selection.")
	}
	return nil
}

// assign gives every file its place below the output root, and every content that must be written a number.
func (w *walk) assign(files []recorded) ([]artifact.ExtractedFile, map[place]wantedFile) {
	source := map[[32]byte]place{} // by content: where its bytes stand
	for _, f := range w.record.files {
		if _, ok := source[f.sum]; !ok && f.flags&hasOwn != 0 {
			source[f.sum] = f.place
		}
	}
	numbers := map[[32]byte]string{}
	wanted := map[place]wantedFile{}
	paths := relativePaths(files)
	written := make([]artifact.ExtractedFile, len(files))
	for i, f := range files {
		number, ok := numbers[f.sum]
		if !ok {
			number = strconv.Itoa(len(numbers))
			numbers[f.sum] = number
			wanted[source[f.sum]] = wantedFile{number, f.sum}
		}
		written[i] = artifact.ExtractedFile{Ref: f.ref, File: number, RelativePath: paths[i]}
	}
	return written, wanted
}

// relativePaths gives distinct paths below the output root. A path stays what it is where it can. What stands inside a
// file that is written too (a member of a nested archive) goes into a directory beside it, named after it with an
// exclamation mark; a path that is taken gets a tilde and a number.
func relativePaths(files []recorded) []string {
	l := layout{isFile: make(map[string]bool, len(files)), dirs: map[string]string{"": ""}, taken: map[string]bool{}}
	for _, f := range files {
		l.isFile[f.path] = true
	}
	for _, f := range files { // all directories before any file, so that none loses its name to a file
		l.directory(parentOf(f.path))
	}
	paths := make([]string, len(files))
	for i, f := range files {
		base := join(l.directory(parentOf(f.path)), f.path[strings.LastIndexByte(f.path, '/')+1:])
		paths[i] = base
		for n := 1; l.taken[paths[i]]; n++ {
			paths[i] = base + "~" + strconv.Itoa(n)
		}
		l.taken[paths[i]] = true
	}
	return paths
}

// layout is what relativePaths has decided so far.
type layout struct {
	isFile map[string]bool   // logical paths that are written as files
	dirs   map[string]string // relative paths of directories, by logical path
	taken  map[string]bool   // relative paths that are used
}

// directory gives the relative path of a directory, or of a container, of the graph.
func (l *layout) directory(path string) string {
	var open []string
	for {
		if _, ok := l.dirs[path]; ok {
			break
		}
		open = append(open, path)
		path = parentOf(path)
	}
	for _, p := range slices.Backward(open) {
		own := join(l.dirs[path], strings.TrimPrefix(p[len(path):], "/"))
		if l.isFile[p] {
			own += "!"
		}
		for l.isFile[own] {
			own += "!"
		}
		l.dirs[p], l.taken[own] = own, true
		path = p
	}
	return l.dirs[path]
}

func parentOf(path string) string { return path[:max(strings.LastIndexByte(path, '/'), 0)] }

func join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

// needed gives the containers that the second walk goes into: those above wanted files.
func (r *recording) needed(wanted map[place]wantedFile) map[place]opened {
	need := map[place]opened{}
	for p := range wanted {
		for p.container != 0 {
			p = r.parents[p.container]
			if _, ok := need[p]; ok {
				break
			}
			need[p] = r.opened[p]
		}
	}
	return need
}

// extraction is what the second walk does.
type extraction struct {
	wanted  map[place]wantedFile
	numbers map[place]opened
	file    func(name string) (io.WriteCloser, error)
	count   int
}

// wantedFile is one content to write.
type wantedFile struct {
	number string
	sum    [32]byte
}

func (x *extraction) create(m *member) (io.WriteCloser, error) {
	return x.file(x.wanted[m.place].number)
}

// commit checks a file that was written, and goes into a container that holds wanted files.
func (x *extraction) commit(c *container, m *member) error {
	if m.skip {
		return nil
	}
	if m.write {
		if !m.read || m.content.SHA256 != x.wanted[m.place].sum {
			return target.Changed(target.Escape([]byte(m.path)), "its bytes are not those of the inventory a moment ago")
		}
		x.count++
		c.w.advance(m)
	}
	into, ok := x.numbers[m.place]
	if !ok {
		return nil
	}
	sub, err := c.open(m, 0, into.number)
	if err != nil {
		return err
	}
	if sub == nil {
		return target.Changed(target.Escape([]byte(m.path)), "it cannot be opened again")
	}
	err = sub.read(into.format)
	if sub.src != m.spooled {
		sub.src.release()
	}
	return err
}
