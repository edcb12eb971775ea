package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"rea/evidence"
	"rea/evidence/fault"
	"rea/evidence/volume"
	"rea/orchestrator/run"
	"rea/orchestrator/session"
	"rea/providers/artifact"
	"rea/sandbox/journal"
)

// fileSink opens where one file of a run goes to.
type fileSink func(ctx context.Context, name string) (volume.Sink, error)

// Extract runs extract_artifact on path and places the verified files in a directory that did not exist before: all of
// them or none. Nothing is overwritten, no link is followed or made.
func (h *Host) Extract(ctx context.Context, target string, o session.ExtractOptions, progress func(run.Progress)) (record *evidence.Record, err error) {
	in, err := h.openInput(target)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	selected, bound, err := h.selection(ctx, in, o, progress)
	if err != nil {
		return nil, err
	}
	m, err := h.open(ctx)
	if err != nil {
		return nil, err
	}
	out, err := newOutput(m.owner, o.To)
	if err != nil {
		return nil, err
	}
	defer func() { err = out.close(err) }()
	result, err := h.run(ctx, in, artifact.OpExtract, artifact.Params{IntegrityPolicy: o.Policy, Name: in.name(), Selected: selected}, out.sink, progress)
	if err != nil {
		return nil, err
	}
	if bound != "" && bound != result.Target.Bound {
		return nil, fault.New(fault.ArtifactChanged, "The target changed between the look that resolved the selection and the extraction.",
			"Repeat the call when nothing writes to the target.").With("operation", artifact.OpExtract).With("boundary", "stable-artifact-read").With("path", in.displayPath())
	}
	x, ok := result.Summary.Detail.(artifact.Extraction)
	if !ok {
		return nil, fmt.Errorf("the check of %s returned a %T", artifact.OpExtract, result.Summary.Detail)
	}
	if err := sameFile(in, artifact.OpExtract, x.Manifest.RootSHA256, result); err != nil {
		return nil, err
	}
	if err := out.place(ctx, result); err != nil {
		return nil, err
	}
	cleanup, err := out.publish()
	if err != nil {
		return nil, err
	}
	record, err = artifact.ExtractionRecord(ctx, in.subject(x.Inventory),
		artifact.ExtractionRequest{Policy: o.Policy, LogicalPaths: o.LogicalPaths, OccurrenceIDs: o.OccurrenceIDs}, result.Payload, x,
		artifact.Destination{OutputRoot: display(out.final), ContainmentVerified: true, Cleanup: cleanup}, h.Spooler())
	if err != nil {
		return nil, err
	}
	return record, h.keep(ctx, record, result.Record)
}

// selection gives the occurrences to extract, nil for all. Logical paths are looked up in an inventory of the same
// bytes, whose digest is returned.
func (h *Host) selection(ctx context.Context, in *input, o session.ExtractOptions, progress func(run.Progress)) (selected []string, bound string, err error) {
	if o.LogicalPaths == nil {
		selected = slices.Clone(o.OccurrenceIDs)
		slices.Sort(selected)
		return slices.Compact(selected), "", nil
	}
	record, _, result, err := h.inventory(ctx, in, artifact.PolicyRecord, progress)
	if err != nil {
		return nil, "", err
	}
	selected, err = artifact.Select(ctx, record.NormalizedResult, o.LogicalPaths)
	if err != nil {
		return nil, "", err
	}
	selected = append(selected, o.OccurrenceIDs...)
	slices.Sort(selected)
	return slices.Compact(selected), result.Target.Bound, nil
}

// kindStaging is a directory beside an extraction's destination in which it is put together.
const kindStaging = "staging_directory"

// stagingPrefix begins the name of every staging directory; sweeping removes nothing else.
const stagingPrefix = ".rea-staging-"

// Names inside the staging directory.
const (
	stagedFiles = "files" // as they come out of the volume, by number
	stagedTree  = "tree"  // as they will stand in the destination
)

// output is an extraction's destination while it is put together.
type output struct {
	final     string // absolute
	staging   string // absolute, in the same directory
	root      *os.Root
	owner     *journal.Owner
	entry     journal.Entry
	placed    map[string]string // where each file of the volume went first, by its number
	published bool
	unmade    bool // the staging directory could not be made
}

// newOutput makes the staging area of an extraction to a directory that must not exist, or to a fresh one.
func newOutput(owner *journal.Owner, to string) (*output, error) {
	id := journal.NewID()
	if to == "" {
		to = filepath.Join(os.TempDir(), "rea-extract-"+id)
	}
	final, err := filepath.Abs(to)
	if err != nil {
		return nil, destinationFault("missing", to, err)
	}
	if _, err := os.Lstat(final); err == nil {
		return nil, destinationFault("exists", final, fs.ErrExist)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, destinationFault("io", final, err)
	}
	// Looked at before anything is journalled: what was never made must not stand in a journal as something that remains.
	if err := unix.Access(filepath.Dir(final), unix.W_OK|unix.X_OK); err != nil {
		return nil, destinationFault("io", final, err)
	}
	o := &output{final: final, staging: filepath.Join(filepath.Dir(final), stagingPrefix+id), owner: owner, placed: map[string]string{}}
	if o.entry, err = owner.Make(id, kindStaging, o.staging, nil); err != nil {
		return nil, err
	}
	if err := o.make(); err != nil {
		return nil, errors.Join(destinationFault("io", final, err), o.remove())
	}
	return o, nil
}

func (o *output) make() error {
	if err := os.Mkdir(o.staging, 0o700); err != nil {
		o.unmade = true
		return err
	}
	if err := o.owner.Confirm(o.entry); err != nil {
		return err
	}
	root, err := os.OpenRoot(o.staging)
	if err != nil {
		return err
	}
	o.root = root
	return errors.Join(root.Mkdir(stagedFiles, 0o700), root.Mkdir(stagedTree, 0o755))
}

// destinationFault is EvidenceFile's catalogue for a directory that is written.
func destinationFault(reason, path string, cause error) error {
	switch {
	case errors.Is(cause, fs.ErrPermission):
		return fault.New(fault.AccessDenied, fmt.Sprintf("The destination %s cannot be written.", path), "Name a directory in a place that this user may write to.").
			With("operation", artifact.OpExtract).With("path", path).Because(cause)
	case errors.Is(cause, fs.ErrNotExist), errors.Is(cause, unix.ENOTDIR):
		reason = "missing"
	case errors.Is(cause, unix.ENOSPC), errors.Is(cause, unix.EDQUOT):
		return fault.New(fault.ResourceConstraint, "The destination's file system is full.", "Free space there, or name a destination elsewhere.").
			WithAll(fault.Details{"operation": artifact.OpExtract, "resource": "storage", "reason": "no space left", "reported_limits": nil}).Because(cause)
	case reason == "io":
		return fault.New(fault.ExecutionFailure, fmt.Sprintf("The destination %s could not be written.", path), "Look at the file system of the destination.").
			With("operation", "write").With("reason", reason).With("path", path).Because(cause)
	}
	text, action := "exists already", "Name a directory that does not exist yet; nothing is ever overwritten."
	if reason == "missing" {
		text, action = "has no parent directory", "Make the parent directory first."
	}
	return fault.New(fault.InvalidRequest, fmt.Sprintf("The destination %s %s.", path, text), action).
		With("operation", "write").With("reason", reason).With("path", path).Because(cause)
}

// sink is a fileSink into the staging area. Names are decimal digits, as the check of the result demands.
func (o *output) sink(_ context.Context, name string) (volume.Sink, error) {
	f, err := o.root.OpenFile(path.Join(stagedFiles, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, destinationFault("io", o.final, err)
	}
	return &stagedSink{File: f, o: o}, nil
}

type stagedSink struct {
	*os.File
	o    *output
	size int64
	done bool
}

// Write implements io.Writer.
func (s *stagedSink) Write(p []byte) (int, error) {
	n, err := s.File.Write(p)
	s.size += int64(n)
	if err != nil {
		err = destinationFault("io", s.o.final, err)
	}
	return n, err
}

// Commit keeps the file. Its digest was computed by whoever wrote it; place compares it.
func (s *stagedSink) Commit() (evidence.Blob, error) {
	s.done = true
	if err := s.File.Close(); err != nil {
		return nil, destinationFault("io", s.o.final, err)
	}
	return stagedFile{size: s.size}, nil
}

// Abort drops the file with the staging area.
func (s *stagedSink) Abort() {
	if !s.done {
		s.done = true
		_ = s.File.Close() // the file is removed with its directory
	}
}

// stagedFile stands for content that lies in the staging area and nowhere else.
type stagedFile struct{ size int64 }

func (stagedFile) SHA256() string               { return "" }
func (f stagedFile) Size() int64                { return f.size }
func (stagedFile) Open() (io.ReadCloser, error) { return nil, errors.ErrUnsupported }

// place moves the files from their numbers to their paths in the tree. What the result names and what the manifest
// verified must be the same files.
func (o *output) place(ctx context.Context, result *run.Result) error {
	err := artifact.ExtractedFiles(ctx, result.Payload, func(f artifact.ExtractedEntry) error {
		verified, ok := result.Verified[volume.FilesDir+"/"+f.File]
		if !ok || verified.SHA256 != f.SHA256 || verified.Size != f.Size {
			return fault.New(fault.EvidenceIntegrityMismatch, "The extraction's result and its files disagree.", "Report it with the output of rea doctor.").
				With("operation", artifact.OpExtract).With("reason", "digest").With("entry", f.File)
		}
		return o.placeFile(f)
	})
	if err == nil && len(o.placed) != len(result.Files) {
		err = fault.New(fault.EvidenceIntegrityMismatch, "The extraction wrote files that its result does not name.", "Report it with the output of rea doctor.").
			With("operation", artifact.OpExtract).With("reason", "unlisted")
	}
	return err
}

// placeFile gives a file its path and mode. The worker writes equal contents once: from the second place on that has
// them they are copied, because each place has a mode of its own.
func (o *output) placeFile(f artifact.ExtractedEntry) error {
	from, to := path.Join(stagedFiles, f.File), path.Join(stagedTree, f.RelativePath)
	if err := o.root.MkdirAll(path.Dir(to), 0o755); err != nil {
		return o.placeFault(f, err)
	}
	mode := fs.FileMode(0o644)
	if f.Executable {
		mode = 0o755
	}
	if first, again := o.placed[f.File]; again {
		return o.placeFault(f, o.copyFile(first, to, mode))
	}
	o.placed[f.File] = to
	if err := o.root.Chmod(from, mode); err != nil {
		return o.placeFault(f, err)
	}
	// A link fails where the name is taken, also by another spelling on a file system that ignores case; a rename would
	// replace that file.
	err := o.root.Link(from, to)
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, unix.EPERM) {
		if _, serr := o.root.Lstat(to); serr == nil {
			return o.placeFault(f, fs.ErrExist)
		}
		return o.placeFault(f, o.root.Rename(from, to))
	}
	if err == nil {
		err = o.root.Remove(from)
	}
	return o.placeFault(f, err)
}

// copyFile copies a file that was placed already to a second place.
func (o *output) copyFile(from, to string, mode fs.FileMode) (err error) {
	in, err := o.root.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := o.root.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if _, err := io.Copy(out, in); err != nil {
		return err
	}
	return out.Chmod(mode)
}

func (o *output) placeFault(f artifact.ExtractedEntry, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, fs.ErrExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ENAMETOOLONG) || errors.Is(err, unix.EINVAL) {
		return fault.New(fault.ArtifactOperationFailed, fmt.Sprintf("The destination's file system cannot hold %q beside the other files.", f.RelativePath),
			"Extract to another file system, or select fewer files.").
			WithAll(fault.Details{"operation": artifact.OpExtract, "reason": "path", "logical_path": f.RelativePath}).Because(err)
	}
	return destinationFault("io", o.final, err)
}

// publish gives the finished tree its final name and removes the rest of the staging area.
func (o *output) publish() (artifact.Cleanup, error) {
	err := unix.Renameat2(unix.AT_FDCWD, filepath.Join(o.staging, stagedTree), unix.AT_FDCWD, o.final, unix.RENAME_NOREPLACE)
	if err != nil {
		return artifact.Cleanup{}, destinationFault(publishReason(err), o.final, err)
	}
	o.published = true
	cleanup := artifact.Cleanup{Attempted: true, Verified: true, ResidualPaths: []string{}}
	if err := o.remove(); err != nil {
		cleanup.Verified, cleanup.ResidualPaths = false, []string{display(o.staging)}
	}
	return cleanup, nil
}

func publishReason(err error) string {
	if errors.Is(err, fs.ErrExist) {
		return "exists"
	}
	return "io"
}

// remove removes the staging area and strikes it out of the journal.
func (o *output) remove() error {
	if o.root != nil {
		_ = o.root.Close() // opened for reading names only
		o.root = nil
	}
	if !o.unmade {
		if err := removeStaging(o.staging); err != nil {
			return err
		}
	}
	return o.owner.Gone(o.entry)
}

// removeStaging removes a staging directory and what is below it, without following links.
func removeStaging(dir string) error {
	if !filepath.IsAbs(dir) || !strings.HasPrefix(filepath.Base(dir), stagingPrefix) {
		return fmt.Errorf("%q is not a staging directory", dir)
	}
	return os.RemoveAll(dir)
}

// close removes what is left of the staging area. A failure to do so is told in err's place.
func (o *output) close(err error) error {
	if o.root == nil && o.published {
		return err
	}
	rerr := o.remove()
	if rerr == nil {
		return err
	}
	f := fault.New(fault.CleanupIncomplete, "An extraction left its staging directory behind.", "Remove the directory, or run rea sandbox sweep.").
		WithAll(fault.Details{"operation": artifact.OpExtract, "cleanup": "incomplete", "resources": []string{kindStaging}, "cleanup_reason": rerr.Error()})
	if o.published {
		f.WithAll(fault.Details{"published": true, "published_path": display(o.final)})
	}
	if err != nil {
		p := fault.From(err)
		f.InCategory(p.Category).With("execution_failure", string(p.Code)).Because(err)
	}
	return f
}
