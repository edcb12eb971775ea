package worker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sys/unix"

	"rea/evidence/fault"
	"rea/evidence/volume"
	"rea/providers/wire"
)

const (
	// progressPause is the least time between two progress frames of one phase: half of what the core passes on.
	progressPause = 100 * time.Millisecond
	// manifestSlack is what a manifest may need besides its file list: error, target and the fixed members.
	manifestSlack = volume.MaxFailure + volume.MaxTargetSeen + 4<<10
	// fileOverhead is what a file costs in the manifest besides its path: names, digest, size, punctuation.
	fileOverhead = 128
)

// Call is one operation under way. Its methods may be called from several goroutines until the handler returns.
type Call struct {
	Seq       uint64
	Provider  string
	Operation string
	Params    jsontext.Value // canonical JSON, as the core sent it
	Target    string         // directory that holds the read-only target
	Mark      string         // of the target's file as the core has it open, see target.Mark; "" for none

	process *Process
	digest  <-chan string // gives the core's digest of the target's file, where there is a mark
	folder  string        // directory of this call's answer
	reserve *os.File      // the manifest, with its room allocated

	resultOnce sync.Once
	result     *output

	mu       sync.Mutex
	sealed   bool
	outputs  map[string]*output // open ones, by path
	files    []volume.File      // closed ones
	listed   int                // bytes that files needs in the manifest
	target   *volume.TargetSeen
	full     volume.Quota
	scratch  string
	phase    string    // of the last progress frame
	reported time.Time // when it was sent
}

// newCall makes the folder of the answer and, while there is room, keeps room for its manifest.
func (w *Process) newCall(req *wire.Call) (*Call, error) {
	c := &Call{
		Seq: req.Seq, Provider: req.Provider, Operation: req.Operation, Params: req.Params, Target: w.options.Target,
		Mark: req.Mark, process: w, folder: filepath.Join(w.options.Evidence, volume.Folder(req.Seq)), outputs: map[string]*output{},
	}
	if err := os.Mkdir(c.folder, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of call %d: %w", req.Seq, err)
	}
	var err error
	c.reserve, err = reserveManifest(filepath.Join(c.folder, volume.ManifestName))
	if err != nil {
		return nil, fmt.Errorf("reserve room for the manifest of call %d: %w", req.Seq, err)
	}
	return c, nil
}

// Result is the normalized result, result.json: canonical JSON, written from one goroutine. Every call returns the
// same writer. Closing it says that it is whole; a handler that fails without closing it leaves no result, one that
// succeeds need not close it.
func (c *Call) Result() io.WriteCloser {
	c.resultOnce.Do(func() {
		c.result = c.create(volume.ResultName)
		c.mu.Lock()
		c.outputs[volume.ResultName] = c.result // also where it could not be made: sealing then sees why
		c.mu.Unlock()
	})
	return c.result
}

// File makes files/<name>, Raw makes raw/<name>: new files, whole when they are closed. Names are as volume.CheckPath
// allows; handlers number what they take from a target and never use its names. A full volume is a *fault.Error,
// resource_constraint, from here or from Write.
func (c *Call) File(name string) (io.WriteCloser, error) {
	return c.open(volume.FilesDir + "/" + name)
}

// Raw makes raw/<name>, for what an engine itself printed; see File.
func (c *Call) Raw(name string) (io.WriteCloser, error) {
	return c.open(volume.RawDir + "/" + name)
}

func (c *Call) open(path string) (io.WriteCloser, error) {
	if err := volume.CheckPath(path); err != nil {
		return nil, err
	}
	o := c.create(path)
	if o.err != nil {
		return nil, o.err
	}
	return o, nil
}

// create makes an output; where it cannot, the output's error waits for the first Write.
func (c *Call) create(path string) *output {
	o := &output{call: c, path: path, sum: sha256.New()}
	if o.err = c.admit(path); o.err != nil {
		return o
	}
	if err := o.create(); err != nil {
		o.err = c.filled(err)
		return o
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.outputs[path] = o
	return o
}

// admit keeps room for a file in the manifest.
func (c *Call) admit(path string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sealed {
		return fmt.Errorf("%s: the call is sealed: %w", path, os.ErrClosed)
	}
	if c.listed+len(path)+fileOverhead > volume.MaxManifest-manifestSlack {
		return fault.New(fault.ResourceConstraint, "The result has more files than an answer may have.",
			"Select fewer members.").WithAll(fault.Details{"resource": "storage", "reason": "files of one answer"})
	}
	c.listed += len(path) + fileOverhead
	return nil
}

// filled records that the volume is full and says so as an error of the taxonomy; other errors pass.
func (c *Call) filled(err error) error {
	if !isFull(err) {
		return err
	}
	quota := volume.ExhaustedBytes
	var st unix.Statfs_t
	if unix.Statfs(c.folder, &st) == nil && st.Ffree == 0 {
		quota = volume.ExhaustedInodes
	}
	c.mu.Lock()
	if c.full == volume.ExhaustedNone {
		c.full = quota
	}
	c.mu.Unlock()
	return fullError(quota).Because(err)
}

// isFull reports whether err is a quota's: the volume's bytes or inodes, or the run's limit on one file.
func isFull(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EFBIG)
}

func fullError(q volume.Quota) *fault.Error {
	return fault.New(fault.ResourceConstraint, "The result does not fit into the run's evidence volume.",
		"Select less of the target, or raise the run's evidence quota.").
		WithAll(fault.Details{"resource": "storage", "reason": "evidence " + string(q) + " exhausted"})
}

// Progress tells the core how far the work is. It never blocks for long and may drop what it is told: at most ten
// frames a second in one phase. Phase is a lower-case word; text may be target text and is cut to wire.MaxText bytes.
func (c *Call) Progress(phase, text string, entries, bytes int64) {
	now := time.Now()
	c.mu.Lock()
	drop := c.sealed || phase == c.phase && now.Sub(c.reported) < progressPause
	if !drop {
		c.phase, c.reported = phase, now
	}
	c.mu.Unlock()
	if drop {
		return
	}
	// An error means that the core is gone, which the leash sees too, or a phase that is no word, which tests see.
	_, _ = c.process.conn.TrySend(wire.FromWorker{Progress: &wire.Progress{
		Seq: c.Seq, Phase: phase, Text: wire.Truncate(text, wire.MaxText), Entries: max(entries, 0), Bytes: max(bytes, 0),
	}})
}

// SetTarget says what the handler saw of the target. Of the unreadable paths as many are kept as a manifest may hold;
// the rest is counted.
func (c *Call) SetTarget(t volume.TargetSeen) {
	size := 0
	for i, path := range t.Unreadable {
		quoted, err := jsontext.AppendQuote(nil, path)
		size += len(quoted) + 1
		if err != nil || size > volume.MaxTargetSeen-4<<10 {
			t.Omitted += int64(len(t.Unreadable) - i)
			t.Unreadable = t.Unreadable[:i]
			break
		}
	}
	c.mu.Lock()
	c.target = &t
	c.mu.Unlock()
}

// Digest waits for the core's own digest of the target's file, in hex; "" says that the core could not read it. It comes
// once, and only to a call with a mark.
func (c *Call) Digest(ctx context.Context) (string, error) {
	select {
	case sum := <-c.digest:
		return sum, nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// Scratch is a directory of this call's own for what does not belong into the answer. It is made on first use and
// removed when the handler returns.
func (c *Call) Scratch() (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.scratch != "" {
		return c.scratch, nil
	}
	dir, err := os.MkdirTemp(c.process.options.Scratch, "call-")
	if err != nil {
		return "", fault.New(fault.ResourceConstraint, "The run has no scratch space.",
			"Report it with the output of rea doctor.").With("resource", "storage").Because(err)
	}
	c.scratch = dir
	return dir, nil
}

func (c *Call) dropScratch() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.scratch != "" {
		os.RemoveAll(c.scratch) // what stays counts against the scratch quota and goes with the container
		c.scratch = ""
	}
}

// requestDigest is the digest of the parameters as they came.
func (c *Call) requestDigest() string {
	sum := sha256.Sum256(c.Params)
	return hex.EncodeToString(sum[:])
}
