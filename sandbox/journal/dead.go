package journal

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/go-json-experiment/json"

	"rea/evidence/fault"
)

// Grace is how long the entry of an unconfirmed create outlives its owner: an engine that was asked before the owner
// died may still make what it was asked for.
const Grace = 10 * time.Minute

// Record says who an owner is. It explains; the lock decides.
type Record struct {
	Owner   string    `json:"owner"`
	Machine string    `json:"machine"` // machine-id(5), "" where there is none
	Boot    string    `json:"boot"`    // random id of the boot
	PID     int       `json:"pid"`
	Start   uint64    `json:"start"` // the process's start in clock ticks after boot, proc_pid_stat(5) field 22
	UID     int       `json:"uid"`
	At      time.Time `json:"at"`
}

// Dead is an owner whose process has ended, with its lock held by us until Finish or Close.
type Dead struct {
	Record
	dir, runs string
	lock      *os.File
	journal   *os.File
	book      *ledger
	held      map[uint64]bool // unconfirmed, looked for and not found, still within Grace
	state     string          // id of the state directory
	damage    string          // of the journal, "" for none
	keep      bool            // see Keep
	now       func() time.Time
}

// DeadOwners returns the owners of this machine whose lock is free, each locked by us. Owners of another machine are
// left alone, and so is one that somebody else is sweeping. Of a damaged journal the readable lines stand, and Damage
// says that there is more to look for. An owner whose files cannot be read at all is left alone and reported in the
// error, beside the others.
func DeadOwners(ctx context.Context, state string) ([]*Dead, error) {
	dir, stateID, err := prepare(ctx, state)
	if err != nil {
		return nil, err
	}
	ids, err := owners(dir)
	if err != nil {
		return nil, err
	}
	var dead []*Dead
	var problems []error
	for _, id := range ids {
		if ctx.Err() != nil {
			problems = append(problems, context.Cause(ctx))
			break
		}
		switch d, err := bury(dir, id, time.Now); {
		case err != nil:
			problems = append(problems, failed("read the journal of owner "+id, err))
		case d != nil:
			d.state = stateID
			dead = append(dead, d)
		}
	}
	return dead, errors.Join(problems...)
}

// owners lists the owner directories.
func owners(state string) ([]string, error) {
	list, err := os.ReadDir(filepath.Join(state, ownersDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, failed("list its owners", err)
	}
	var ids []string
	for _, e := range list {
		if e.IsDir() && idForm.MatchString(e.Name()) {
			ids = append(ids, e.Name())
		}
	}
	return ids, nil
}

// bury takes the lock of an owner if it is free. It returns nil for an owner that is alive, is another machine's, is
// being made, or has just gone.
func bury(state, id string, now func() time.Time) (_ *Dead, err error) {
	d := &Dead{
		dir: filepath.Join(state, ownersDir, id), runs: filepath.Join(state, runsDir, id),
		held: map[uint64]bool{}, now: now,
	}
	defer func() {
		if err != nil {
			d.Close()
		}
	}()
	path := filepath.Join(d.dir, lockName)
	d.lock, err = os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, unborn(d.dir, d.runs, now())
	}
	if err != nil {
		return nil, err
	}
	if err := hold(d.lock, path); err != nil {
		d.Close()
		if errors.Is(err, errTaken) {
			return nil, nil
		}
		return nil, err
	}
	if d.Record, err = record(d.dir); errors.Is(err, fs.ErrNotExist) {
		return nil, d.finishRemoval()
	}
	if err != nil {
		return nil, err
	}
	if d.Machine != machine() {
		d.Close()
		return nil, nil
	}
	d.Owner = id // labels and directories carry this one, whatever the record says
	return d, d.load()
}

// finishRemoval removes what is left of an owner whose removal was cut off by the remover's death: the record, which
// goes after the journal, is gone, and so there is nothing that anybody would have to sweep.
func (d *Dead) finishRemoval() error {
	defer d.Close()
	if !d.lacksJournal() {
		return errors.New("it has a journal and no record")
	}
	return removeOwner(d.dir, d.runs)
}

// lacksJournal reports whether the journal is not there.
func (d *Dead) lacksJournal() bool {
	_, err := os.Lstat(filepath.Join(d.dir, journalName))
	return errors.Is(err, fs.ErrNotExist)
}

// unborn removes an owner directory without a lock file: its maker died before it could journal anything. One that is
// younger than Grace may still be being made.
func unborn(dir, runs string, now time.Time) error {
	fi, err := os.Lstat(dir)
	if err != nil || now.Sub(fi.ModTime()) < Grace {
		return nil
	}
	return removeOwner(dir, runs)
}

// load reads the journal, cuts off a torn last line, and notes the time of death the first time.
func (d *Dead) load() error {
	path := filepath.Join(d.dir, journalName)
	book, err := read(path)
	if err != nil {
		return err
	}
	d.book, d.damage = book, book.damage
	if _, err := os.Lstat(d.runs); err == nil && d.lacksJournal() { // a remover takes the run directories first
		d.damage = "its journal is missing"
	}
	if d.journal, err = os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		return err
	}
	if err := d.journal.Truncate(book.whole); err != nil {
		return err
	}
	if book.died.IsZero() {
		return d.append(line{Op: opDead, At: d.now().UTC()})
	}
	return nil
}

func (d *Dead) append(n line) error {
	size, err := appendLine(d.journal, d.book.whole, n)
	if err != nil {
		return err
	}
	d.book.whole = size
	return d.book.apply(n)
}

// record reads owner.json.
func record(dir string) (Record, error) {
	var r Record
	b, err := readSmall(filepath.Join(dir, ownerName))
	if err != nil {
		return r, err
	}
	err = json.Unmarshal(b, &r, json.RejectUnknownMembers(true))
	return r, err
}

// ID is the dead owner's id.
func (d *Dead) ID() string { return d.Owner }

// StateID is the id of the state directory, the value of the state label.
func (d *Dead) StateID() string { return d.state }

// Damage says what of the owner's journal cannot be read, "" for nothing. What the lost lines named must be looked for
// on the host, and written down with Adopt.
func (d *Dead) Damage() string { return d.damage }

// Adopt writes down a resource that was found on the host and is this owner's, as if the owner had made and confirmed
// it. One that is listed already is not listed again.
func (d *Dead) Adopt(run, kind, name string, detail map[string]string) error {
	for _, e := range d.book.live {
		if e.Run == run && e.Kind == kind && e.Name == name {
			return nil
		}
	}
	n := line{Op: opMake, Seq: d.book.next + 1, Run: run, Kind: kind, Name: name, Detail: detail, At: d.now().UTC()}
	err := d.append(n)
	if err == nil {
		err = d.append(line{Op: opConfirm, Seq: n.Seq})
	}
	if err != nil {
		return failed("write the journal of a dead owner", err)
	}
	return nil
}

// Keep lets the owner's files stay after Finish: something could not be looked for, and a later sweep does it.
func (d *Dead) Keep() { d.keep = true }

// RunsDir is the directory that holds the dead owner's run directories. A path of the journal that does not lie below
// it must not be unmounted or removed.
func (d *Dead) RunsDir() string { return d.runs }

// Entries returns what the dead owner left, in the order in which it was made, without what Held lists.
func (d *Dead) Entries() []Entry {
	return d.book.entries(func(e Entry) bool { return !d.held[e.Seq] })
}

// Held returns the unconfirmed entries that Gone was called for before Grace was over. They stay in the journal for a
// later sweep.
func (d *Dead) Held() []Entry {
	return d.book.entries(func(e Entry) bool { return d.held[e.Seq] })
}

// Gone strikes out a resource that does not exist, or no longer. One that was never confirmed may yet appear: it is
// held until Grace has passed since the owner was found dead.
func (d *Dead) Gone(e Entry) error {
	i := d.book.find(e.Seq)
	if i < 0 {
		return nil
	}
	if !d.book.live[i].Confirmed && d.now().Sub(d.book.died) < Grace {
		d.held[e.Seq] = true
		return nil
	}
	if err := d.append(line{Op: opGone, Seq: e.Seq}); err != nil {
		return failed("write the journal of a dead owner", err)
	}
	return nil
}

// Finish ends the sweep of this owner and releases its lock. When nothing is left the owner's directories go, the lock
// file last. When only held entries are left the journal stays, without an error. Otherwise it stays and the error is
// cleanup_incomplete with what remains.
func (d *Dead) Finish() error {
	defer d.Close()
	if left := d.Entries(); len(left) > 0 {
		return remain(left)
	}
	if len(d.held) > 0 || d.keep {
		return nil
	}
	return removeOwner(d.dir, d.runs)
}

// Close releases the lock and keeps the journal for a later sweep.
func (d *Dead) Close() {
	for _, f := range []*os.File{d.journal, d.lock} {
		if f != nil {
			f.Close()
		}
	}
	d.journal, d.lock = nil, nil
}

// Read returns the live entries of an owner, dead or alive, without taking its lock: for the keeper, which must act at
// once. An owner that is not there has none.
func Read(state, owner string) ([]Entry, error) {
	if !idForm.MatchString(owner) {
		return nil, fault.New(fault.ExecutionFailure, "An owner id is not 16 hex digits.", "Report this: rea makes these ids itself.")
	}
	book, err := read(filepath.Join(state, ownersDir, owner, journalName))
	if err != nil {
		return nil, failed("read the journal of owner "+owner, err)
	}
	return book.entries(nil), nil
}
