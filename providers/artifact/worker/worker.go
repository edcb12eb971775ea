package worker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/sys/unix"

	"rea/evidence/fault"
	"rea/evidence/target"
	"rea/evidence/volume"
	"rea/providers/artifact"
	frame "rea/providers/worker"
)

// Name is the worker's name in the list of linked-in workers.
const Name = "artifact"

// Handlers gives the operations of the artifact provider.
func Handlers() map[string]frame.Handler {
	return map[string]frame.Handler{
		artifact.OpIdentify:  func(ctx context.Context, c *frame.Call) error { return inventory(ctx, artifact.OpIdentify, callOf(c)) },
		artifact.OpInventory: func(ctx context.Context, c *frame.Call) error { return inventory(ctx, artifact.OpInventory, callOf(c)) },
		artifact.OpExtract:   func(ctx context.Context, c *frame.Call) error { return extract(ctx, callOf(c)) },
	}
}

// call is what the operations use of a frame's call.
type call struct {
	params   []byte
	target   string // directory that holds the target
	result   func() io.Writer
	file     func(name string) (io.WriteCloser, error)
	scratch  func() (string, error)
	progress func(phase, path string, entries, bytes int64)
	seen     func(volume.TargetSeen)
	mark     string                                    // of the target's file as the core has it open, "" for none
	digest   func(ctx context.Context) (string, error) // waits for the core's digest of that file
}

func callOf(c *frame.Call) call {
	return call{
		params: c.Params, target: c.Target, result: func() io.Writer { return c.Result() }, file: c.File,
		scratch: c.Scratch, progress: c.Progress, seen: c.SetTarget, mark: c.Mark, digest: c.Digest,
	}
}

// params are the parameters of both operations. Selected belongs to the extraction: occurrence ids, or null for all.
type params struct {
	Policy   artifact.Policy `json:"integrity_policy"`
	Name     string          `json:"name"` // base name of the target, as the graph may show it
	Selected []string        `json:"selected"`
}

func decodeParams(operation string, raw []byte) (params, error) {
	var p params
	err := json.Unmarshal(raw, &p, json.RejectUnknownMembers(true))
	if err == nil && !p.Policy.Known() {
		err = fmt.Errorf("integrity_policy %q is none", p.Policy)
	}
	if err == nil && p.Selected != nil && (operation != artifact.OpExtract || len(p.Selected) == 0) {
		err = errors.New("selected is empty or does not belong here")
	}
	if err != nil {
		return p, fault.New(fault.InvalidRequest, "The worker was called with parameters that the operation does not have.",
			"Use a core and a worker of the same build.").With("operation", operation).Because(err)
	}
	return p, nil
}

// inventory does inventory_artifact, and identify_artifact, which looks into no file.
func inventory(ctx context.Context, operation string, c call) error {
	p, err := decodeParams(operation, c.params)
	if err != nil {
		return err
	}
	w := newWalk(ctx, operation, p.Policy, c)
	if err := w.run(c, p.Name); err != nil {
		return err
	}
	w.conclude()
	_, err = w.graph.Finish(ctx, c.result())
	return err
}

func newWalk(ctx context.Context, operation string, policy artifact.Policy, c call) *walk {
	return &walk{
		ctx: ctx, operation: operation, policy: policy, scratch: c.scratch, progress: c.progress, stderr: os.Stderr,
		seed: maphash.MakeSeed(), folded: map[uint64]uint64{}, closedKind: map[artifact.Format]bool{},
	}
}

// run walks the whole target and says what was seen of it.
func (w *walk) run(c call, name string) error {
	root, companion, err := openTarget(w.operation, c.target)
	if err != nil {
		return err
	}
	defer root.Close()
	if companion != nil {
		defer companion.Close()
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(root.Fd()), &st); err != nil {
		return ioFault(w.operation, err)
	}
	var seen volume.TargetSeen
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		w.begin(artifact.Root{Format: artifact.FormatDirectory})
		w.scope()
		seen, err = w.directory(root)
	} else {
		seen, err = w.file(c, root, companion, name)
	}
	if err != nil {
		return err
	}
	c.seen(seen)
	return nil
}

// begin makes the graph, unless this walk writes files.
func (w *walk) begin(r artifact.Root) {
	if w.extract == nil {
		w.graph = artifact.NewBuilder(r)
		w.graph.OnPulse(func() { w.pulse(rootPath, 0) })
	}
}

func (w *walk) scope() {
	if w.graph != nil {
		w.graph.SetScope(artifact.ScopeEntries)
	}
}

// openTarget opens the target and its companion directory, nil where there is none.
func openTarget(operation, dir string) (root, companion *os.File, err error) {
	open := func(name string, flags int) (*os.File, error) {
		path := filepath.Join(dir, name)
		fd, err := unix.Open(path, flags|unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		return os.NewFile(uintptr(fd), name), nil
	}
	if root, err = open(target.MainName, 0); err != nil {
		return nil, nil, ioFault(operation, err)
	}
	companion, err = open(target.CompanionName, unix.O_DIRECTORY)
	if err != nil && !errors.Is(err, unix.ENOENT) {
		root.Close()
		return nil, nil, ioFault(operation, err)
	}
	return root, companion, nil
}

func ioFault(operation string, err error) error {
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		return fault.New(fault.AccessDenied, "The target is not readable for the user of the run.",
			"Give that user permission to read it.").
			WithAll(fault.Details{"operation": operation, "system_code": "EACCES", "boundary": "filesystem-read"}).Because(err)
	}
	return fault.New(fault.ArtifactOperationFailed, "The target cannot be opened: "+reason(err)+".",
		"Check that it exists and is a file or directory.").
		WithAll(fault.Details{"operation": operation, "reason": "io", "logical_path": rootPath}).Because(err)
}

// file reads a target that is a file. Its digest comes from the core, which reads it beside us, if it is provably the
// same file in the same state; else it is computed here, beside the reading of the members.
func (w *walk) file(c call, root, companion *os.File, name string) (volume.TargetSeen, error) {
	f, err := target.Open(root)
	if err != nil {
		return volume.TargetSeen{}, err
	}
	defer func() { _ = f.Close() }() // opened for reading; Check says whether it changed
	w.rootBytes = f.Info.Size
	if w.extract != nil { // the first walk has seen to the digest
		return volume.TargetSeen{}, errors.Join(w.members(f, companion, name), f.Check())
	}
	ctx, cancel := context.WithCancelCause(w.ctx)
	defer cancel(nil)
	hashed := make(chan error, 1)
	var digest target.Digest
	go func() {
		var err error
		digest, err = w.digest(ctx, c, f, target.Parts(root, companion))
		hashed <- err
	}()
	err = w.members(f, companion, name)
	if err != nil {
		cancel(err)
	}
	if herr := <-hashed; err == nil {
		err = herr
	}
	if err == nil {
		err = f.Check()
	}
	if err != nil {
		return volume.TargetSeen{}, err
	}
	content := artifact.Content{Size: f.Info.Size}
	if _, err := hex.Decode(content.SHA256[:], []byte(digest.FileSHA256)); err != nil {
		return volume.TargetSeen{}, err
	}
	w.graph.SetContent(0, content)
	return volume.TargetSeen{SHA256: digest.SHA256, Unreadable: digest.Unreadable, Omitted: digest.Omitted}, nil
}

// digest gives the digest of a target whose first part is the file f. The core's is as good as our own while f has the
// mark that it had for the core; that it still has it, the caller checks at the end.
func (w *walk) digest(ctx context.Context, c call, f *target.File, parts []target.Root) (target.Digest, error) {
	progress := func(_, n int64) {
		if w.entries.Load() > 0 {
			n = 0 // the members' bytes are the measure
		}
		w.pulse(rootPath, n)
	}
	if c.mark != "" && c.mark == f.Mark() {
		sum, err := w.await(ctx, c)
		if err != nil {
			return target.Digest{}, err
		}
		var file [sha256.Size]byte
		if n, err := hex.Decode(file[:], []byte(sum)); err == nil && n == len(file) {
			return target.HashBound(ctx, parts, file, progress)
		}
	}
	return target.Hash(ctx, parts, progress)
}

// waitPulse is how often a worker that waits for the core says that it is alive.
const waitPulse = 5 * time.Second

// await waits for the core's digest.
func (w *walk) await(ctx context.Context, c call) (string, error) {
	for {
		some, cancel := context.WithTimeout(ctx, waitPulse)
		sum, err := c.digest(some)
		cancel()
		if err == nil || ctx.Err() != nil {
			return sum, err
		}
		w.pulse(rootPath, 0)
	}
}

// members recognises a file and reads its members, if it has a reader.
func (w *walk) members(f *target.File, companion *os.File, name string) error {
	src := &source{ReaderAt: f, size: f.Info.Size}
	format, content, err := rootFormats(name, src)
	if err != nil {
		return readError(w.operation, rootPath, err)
	}
	w.begin(artifact.Root{Format: format, Content: rootContent(format, content), Executable: f.Info.Exec})
	c := &container{w: w, src: src, path: rootPath, base: name, number: w.opened}
	w.opened++
	if w.operation == artifact.OpIdentify && content != artifact.FormatMachOUniversal { // whose slices are part of what it is
		return nil
	}
	if readerOf(content) == nil {
		if text := carries(src, content); text != "" {
			c.note(text)
		}
		if isVolume(name) {
			c.partial(oneOfSeveral)
		}
		return w.alone(content)
	}
	if companion != nil {
		c.companions = below(companion, nil)
	}
	w.scope()
	err = c.read(content)
	var h *hit
	switch {
	case err == nil:
		return nil
	case context.Cause(w.ctx) != nil:
		return context.Cause(w.ctx)
	case errors.As(err, &h):
		c.note(h.String())
		w.meet(h)
		return nil
	case isVolume(name) && w.graph != nil && closedError(w.ctx, err) != "":
		c.partial(oneOfSeveral + " It cannot be read alone: " + reason(err) + ".")
		return nil
	}
	return readError(w.operation, rootPath, err)
}

// rootContent is the content format of the root's node: its own format, except where that is a matter of its name.
func rootContent(format, content artifact.Format) artifact.Format {
	switch format {
	case artifact.FormatJavaScriptBundle, artifact.FormatSourceMap, artifact.FormatEntitlements, artifact.FormatFile:
		return content
	}
	return format
}

// alone says that a root has no entries to read.
func (w *walk) alone(content artifact.Format) error {
	if w.record != nil {
		return fault.New(fault.UnsupportedTarget, fmt.Sprintf("Nothing can be extracted from a target of format %s.", content),
			"Name a directory, or an archive of a format that can be read.").
			WithAll(fault.Details{"operation": w.operation, "reason": "no reader for its format", "format": string(content)})
	}
	if content.Container() {
		w.graph.Limit(fmt.Sprintf("Entries of a container of format %s cannot be read; only the root was inventoried.", content))
		return nil
	}
	w.graph.Limit("The selected root has no child entries.")
	return nil
}
