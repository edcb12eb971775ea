package journal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/sys/unix"

	"rea/evidence/fault"
)

// Point names a moment at which a fault can be injected.
type Point string

// The moments: each after its journal line is written and before the call returns.
const (
	AfterMake    Point = "make"    // listed, not made yet
	AfterConfirm Point = "confirm" // listed and made
	AfterGone    Point = "gone"    // struck out
)

// Failpoint is called at each Point of this process's own journal when it is set. It exists for tests that kill the
// process there; set it before Open and never in a program.
var Failpoint func(Point, Entry)

// Owner is this process's journal. It is made by Open, is safe for concurrent use, and ends with Close.
type Owner struct {
	id, state string
	dir       string // <state>/owners/<id>
	runs      string // <state>/runs/<id>
	lock      *os.File

	mu      sync.Mutex
	book    ledger
	journal *os.File
	broken  error // a torn write that could not be taken back: nothing may follow it
	closed  bool
}

// Open makes a journal for this process in the state directory and takes its lock. The error is configuration_invalid
// naming REA_STATE_DIR where the directory is on a network or user-space file system, is someone else's, or cannot be
// written.
func Open(ctx context.Context, state string) (*Owner, error) {
	dir, stateID, err := prepare(ctx, state)
	if err != nil {
		return nil, err
	}
	// A sweeper may take the lock of a directory that is being made, and then removes it: start again with a new id.
	const attempts = 8
	for range attempts {
		o, err := open(dir, stateID)
		if err == nil {
			return o, nil
		}
		if !errors.Is(err, errTaken) {
			return nil, unusable("it cannot be written to", "Free some space there, correct its permissions, or set "+Setting+".").Because(err)
		}
	}
	return nil, unusable("its files vanish while they are made", "Stop whatever clears that directory, or set "+Setting+".")
}

// errTaken says that a sweeper was faster than the lock.
var errTaken = errors.New("the lock was taken")

// open makes one owner directory. The record comes before the lock, so that whoever gets a free lock knows whose it is.
func open(state, stateID string) (o *Owner, err error) {
	id := NewID()
	o = &Owner{id: id, state: stateID, dir: filepath.Join(state, ownersDir, id), runs: filepath.Join(state, runsDir, id)}
	defer func() {
		if err != nil {
			o.release()
			if !errors.Is(err, errTaken) {
				_ = removeOwner(o.dir, o.runs) // what failed before it is told
			}
		}
	}()
	if err := os.Mkdir(o.dir, 0o700); err != nil {
		return o, err
	}
	record, err := json.Marshal(self(id))
	if err != nil {
		return o, err
	}
	if err := os.WriteFile(filepath.Join(o.dir, ownerName), append(record, '\n'), 0o600); err != nil {
		return o, taken(err)
	}
	path := filepath.Join(o.dir, lockName)
	if o.lock, err = os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600); err != nil {
		return o, taken(err)
	}
	if err := hold(o.lock, path); err != nil {
		return o, err
	}
	if err := os.Mkdir(o.runs, 0o700); err != nil {
		return o, err
	}
	o.journal, err = os.OpenFile(filepath.Join(o.dir, journalName), os.O_CREATE|os.O_EXCL|os.O_APPEND|os.O_WRONLY, 0o600)
	return o, err
}

// taken turns the disappearance of a directory that we just made into errTaken.
func taken(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return errTaken
	}
	return err
}

// hold locks a lock file without waiting and proves that the locked file is still the one at that path: between
// open and lock somebody may have removed it, and then two processes would hold "the" lock.
func hold(f *os.File, path string) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return errTaken
	}
	if err != nil {
		return fmt.Errorf("lock %s: %w", filepath.Base(path), err)
	}
	held, err := f.Stat()
	if err != nil {
		return err
	}
	named, err := os.Lstat(path)
	if err != nil || !os.SameFile(held, named) {
		return errTaken
	}
	return nil
}

// release gives up the lock and the files.
func (o *Owner) release() {
	if o.journal != nil {
		o.journal.Close()
	}
	if o.lock != nil {
		o.lock.Close()
	}
}

// ID is this owner's id: 16 hex digits, the value of the owner label.
func (o *Owner) ID() string { return o.id }

// StateID is the id of the state directory, the value of the state label.
func (o *Owner) StateID() string { return o.state }

// RunsDir is the directory that holds this owner's run directories.
func (o *Owner) RunsDir() string { return o.runs }

// RunDir returns the run's directory, 0700, below RunsDir. The first call journals it under KindRunDirectory, makes
// it and confirms it; whoever removes it calls Gone with the entry that RunEntries lists. Detail says what a sweeper needs.
func (o *Owner) RunDir(run string, detail map[string]string) (string, error) {
	if !idForm.MatchString(run) {
		return "", fault.New(fault.ExecutionFailure, "A run id is not 16 hex digits.", "Report this: rea makes these ids itself.")
	}
	dir := filepath.Join(o.runs, run)
	e, err := o.Make(run, KindRunDirectory, dir, detail)
	if err != nil {
		return "", err
	}
	if e.Confirmed {
		return dir, nil
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", errors.Join(failed("make the run directory", err), o.Gone(e))
	}
	return dir, o.Confirm(e)
}

// failed is the error for a file operation in the state directory that did not work.
func failed(what string, err error) *fault.Error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return fault.New(fault.ResourceConstraint, "The state directory is full: rea could not "+what+".",
			"Free some space there, or set "+Setting+" to another directory.").With("resource", "storage").Because(err)
	}
	return fault.New(fault.ExecutionFailure, "rea could not "+what+" in its state directory.",
		"Check the permissions and the free space of the state directory ("+Setting+").").Because(err)
}

// Make writes down a resource that is about to be made, with one append. Kind and name are never empty and a name is
// never used twice; asking again for an entry that is still live returns that entry. After an error nothing may be made.
func (o *Owner) Make(run, kind, name string, detail map[string]string) (Entry, error) {
	if kind == "" || name == "" {
		return Entry{}, fault.New(fault.ExecutionFailure, "A resource without kind or name cannot be journalled.", "Report this: it is a defect of rea.")
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range o.book.live {
		if e.Run == run && e.Kind == kind && e.Name == name {
			return e, nil
		}
	}
	n := line{Op: opMake, Seq: o.book.next + 1, Run: run, Kind: kind, Name: name, Detail: detail, At: time.Now().UTC()}
	return o.write(n, AfterMake)
}

// Confirm records that the resource was seen to exist: a sweep that does not find it then need not wait for it.
func (o *Owner) Confirm(e Entry) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, err := o.write(line{Op: opConfirm, Seq: e.Seq}, AfterConfirm)
	return err
}

// Gone strikes out a resource that was seen not to exist any more. It may be called twice.
func (o *Owner) Gone(e Entry) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.book.find(e.Seq) < 0 {
		return nil
	}
	_, err := o.write(line{Op: opGone, Seq: e.Seq}, AfterGone)
	return err
}

// write appends one line and applies it. It returns the entry that the line is about.
func (o *Owner) write(n line, at Point) (Entry, error) {
	if o.closed {
		return Entry{}, failed("write its journal", fs.ErrClosed)
	}
	if o.broken != nil {
		return Entry{}, failed("write its journal", o.broken)
	}
	var e Entry
	if i := o.book.find(n.Seq); i >= 0 {
		e = o.book.live[i]
	}
	size, err := appendLine(o.journal, o.book.whole, n)
	if err != nil {
		if errors.Is(err, errTorn) {
			o.broken = err
		}
		return Entry{}, failed("write its journal", err)
	}
	if err := o.book.apply(n); err != nil {
		return Entry{}, failed("write its journal", err)
	}
	o.book.whole = size
	o.compact()
	if i := o.book.find(n.Seq); i >= 0 {
		e = o.book.live[i]
	}
	if Failpoint != nil {
		Failpoint(at, e)
	}
	return e, nil
}

// compactAt is the length at which a journal that lists nothing is emptied: long enough to be rare, short enough that
// a server that runs for months keeps a small file.
const compactAt = 1 << 20

// compact empties a long journal in which nothing is live. When that fails the journal is only long.
func (o *Owner) compact() {
	if len(o.book.live) == 0 && o.book.whole > compactAt && o.journal.Truncate(0) == nil {
		o.book.whole = 0
	}
}

// errTorn says that half a line is in the journal and could not be taken back.
var errTorn = errors.New("a journal line was written in part")

// appendLine writes one line with one write and returns the journal's new length. A short write (a full disk) is
// taken back, so that the next line does not continue it.
func appendLine(f *os.File, size int64, n line) (int64, error) {
	text, err := json.Marshal(n, json.Deterministic(true))
	if err != nil {
		return size, err
	}
	text = append(text, '\n')
	if len(text) > maxLine {
		return size, fmt.Errorf("a journal line of %d bytes is longer than %d", len(text), maxLine)
	}
	if _, err := f.Write(text); err != nil {
		if cut := f.Truncate(size); cut != nil {
			return size, errors.Join(errTorn, err, cut)
		}
		return size, err
	}
	return size + int64(len(text)), nil
}

// Live returns everything that is journalled and not gone, in the order in which it was made.
func (o *Owner) Live() []Entry {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.book.entries(nil)
}

// RunEntries is Live for one run.
func (o *Owner) RunEntries(run string) []Entry {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.book.entries(func(e Entry) bool { return e.Run == run })
}

// Close gives up the lock. When nothing is live the owner's directories go with it; otherwise they stay for a sweep,
// and the error is cleanup_incomplete with what remains. A second Close does nothing.
func (o *Owner) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return nil
	}
	o.closed = true
	defer o.release()
	if len(o.book.live) > 0 {
		return remain(o.book.live)
	}
	return removeOwner(o.dir, o.runs)
}

// remain is the error for resources that nobody has removed yet.
func remain(entries []Entry) *fault.Error {
	const listed = 32 // enough to see what is wrong; `rea sandbox list` has the rest
	names := make([]string, 0, min(len(entries), listed))
	for _, e := range entries[:min(len(entries), listed)] {
		names = append(names, e.Kind+" "+e.Name)
	}
	return fault.New(fault.CleanupIncomplete, fmt.Sprintf("%d resources of rea's runs remain on this host.", len(entries)),
		"Run rea sandbox sweep; rea sandbox list shows what remains.").With("resources", names)
}

// removeOwner removes an owner's directories. The caller holds the lock; the lock file goes last, so that a directory
// with anything in it can still be locked. What is not ours to remove (a run directory with content) is an error.
func removeOwner(dir, runs string) error {
	if err := os.Remove(runs); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return failed("remove the run directories of a finished owner", err)
	}
	for _, name := range []string{journalName, ownerName, lockName, ""} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return failed("remove the journal of a finished owner", err)
		}
	}
	return nil
}
