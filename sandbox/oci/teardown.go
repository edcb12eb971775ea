package oci

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"rea/evidence/fault"
	"rea/sandbox"
	"rea/sandbox/cgroup"
	"rea/sandbox/journal"
	"rea/sandbox/staging"
	"rea/sandbox/userns"
)

const (
	// driverKey marks this driver's entries in the journal's details.
	driverKey = "driver"
	// teardownDeadline bounds a teardown, which takes milliseconds: beyond it something hangs in the kernel.
	teardownDeadline = 20 * time.Second
)

// Destroy ends the run and removes everything that Create made, in the reverse order. It does so even when ctx is
// cancelled. Its error is cleanup_incomplete when something remains; a later call tries again.
func (b *box) Destroy(ctx context.Context) (sandbox.Receipt, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), teardownDeadline)
	defer cancel()
	b.destroying.Lock()
	defer b.destroying.Unlock()
	if b.receipt != nil && b.receipt.Complete() {
		return *b.receipt, nil
	}
	t := teardown{runs: b.own.RunsDir(), gone: b.own.Gone}
	if b.group != nil {
		t.end = b.end
		t.group = b.group
	}
	receipt := t.run(ctx, b.own.RunEntries(b.spec.ID))
	receipt.Made = slices.Clone(b.made)
	b.receipt = &receipt
	return receipt, incomplete(receipt)
}

// end kills the run and then closes what would keep its memory alive: a descriptor that was sent over the channel and
// never read holds the evidence volume even after it was unmounted.
func (b *box) end(ctx context.Context) error {
	if err := b.Kill(ctx); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.channel != nil {
		_ = b.channel.Close() // usually closed by its user already; either way it is closed then
	}
	if b.evidence != nil {
		_ = b.evidence.Close() // read-only, nothing to lose
		b.evidence = nil
	}
	return nil
}

// Sweep removes what this driver's entries in a dead owner's journal name, run by run. See sandbox.Runtime.
func (d *Driver) Sweep(ctx context.Context, dead *journal.Dead) (sandbox.Receipt, error) {
	total := sandbox.Receipt{Made: []sandbox.Resource{}, Remains: []sandbox.Resource{}}
	t := teardown{runs: dead.RunsDir(), gone: dead.Gone}
	for _, entries := range ours(dead.Entries()) {
		if err := context.Cause(ctx); err != nil {
			return total, fault.From(err)
		}
		receipt := t.sweep(ctx, entries)
		total.Made = append(total.Made, receipt.Made...)
		total.Remains = append(total.Remains, receipt.Remains...)
		if receipt.Reason != "" {
			total.Reason = receipt.Reason
		}
	}
	return total, incomplete(total)
}

// sweep is run with a deadline of its own: a run whose removal was begun is removed.
func (t teardown) sweep(ctx context.Context, entries []journal.Entry) sandbox.Receipt {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), teardownDeadline)
	defer cancel()
	return t.run(ctx, entries)
}

// ours groups by run the entries that this driver made. A run's directory carries no driver's mark: it is ours when
// no other driver has anything in that run.
func ours(entries []journal.Entry) [][]journal.Entry {
	var order []string
	runs, foreign := map[string][]journal.Entry{}, map[string]bool{}
	for _, e := range entries {
		driver := e.Detail[driverKey]
		if driver != DriverName && (driver != "" || e.Kind != sandbox.KindRunDirectory) {
			foreign[e.Run] = true
			continue
		}
		if _, known := runs[e.Run]; !known {
			order = append(order, e.Run)
		}
		runs[e.Run] = append(runs[e.Run], e)
	}
	var out [][]journal.Entry
	for _, run := range order {
		list := runs[run]
		if foreign[run] {
			list = slices.DeleteFunc(list, func(e journal.Entry) bool { return e.Kind == sandbox.KindRunDirectory })
		}
		if len(list) > 0 {
			out = append(out, list)
		}
	}
	return out
}

// teardown removes the resources of one run.
type teardown struct {
	runs  string                      // directory of the owner's run directories; nothing outside it is touched
	gone  func(journal.Entry) error   // strikes an entry out
	end   func(context.Context) error // ends the run; nil: by its cgroup's path
	group *cgroup.Group               // the run's, nil: by its path
}

// run removes entries from the last made to the first. Nothing else is touched while a process of the run may live.
func (t teardown) run(ctx context.Context, entries []journal.Entry) sandbox.Receipt {
	receipt := sandbox.Receipt{Made: []sandbox.Resource{}, Remains: []sandbox.Resource{}}
	for _, e := range entries {
		receipt.Made = append(receipt.Made, resource(e))
	}
	if err := t.endRun(ctx, entries); err != nil {
		receipt.Remains, receipt.Reason = slices.Clone(receipt.Made), err.Error()
		return receipt
	}
	for _, e := range slices.Backward(entries) {
		err := t.remove(ctx, e)
		if err == nil {
			err = t.gone(e)
		}
		if err != nil {
			receipt.Remains = append(receipt.Remains, resource(e))
			receipt.Reason = fmt.Sprintf("%s %s: %v", e.Kind, e.Name, err)
		}
	}
	return receipt
}

func resource(e journal.Entry) sandbox.Resource { return sandbox.Resource{Kind: e.Kind, Name: e.Name} }

// endRun kills the run's cgroup, if the journal says that there is one.
func (t teardown) endRun(ctx context.Context, entries []journal.Entry) error {
	if t.end != nil {
		return t.end(ctx)
	}
	for _, e := range entries {
		if e.Kind != sandbox.KindCgroup {
			continue
		}
		group, err := cgroup.Open(e.Name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if err := group.Kill(ctx); err != nil {
			return err
		}
	}
	return nil
}

// remove makes one journalled resource not exist. What is not there is no error.
func (t teardown) remove(ctx context.Context, e journal.Entry) error {
	switch e.Kind {
	case sandbox.KindContainer:
		return nil // ended with the cgroup; what runc wrote down lies in the run directory
	case sandbox.KindCgroup:
		return t.removeCgroup(ctx, e.Name)
	case sandbox.KindIDRange:
		return userns.Release(e.Name, e.Run)
	case sandbox.KindEvidence, sandbox.KindTargetMount:
		if err := t.inside(e.Name); err != nil && !(sandbox.ValidID(e.Run) && e.Name == userns.Root(e.Run)) {
			return err
		}
		return staging.Unmount(e.Name)
	case sandbox.KindRunDirectory:
		if err := t.inside(e.Name); err != nil {
			return err
		}
		return rundir(e.Name).remove()
	}
	return fmt.Errorf("no such kind of resource")
}

func (t teardown) removeCgroup(ctx context.Context, path string) error {
	group := t.group
	if group == nil {
		var err error
		if group, err = cgroup.Open(path); errors.Is(err, fs.ErrNotExist) {
			return nil
		} else if err != nil {
			return err
		}
	}
	return group.Delete(ctx)
}

// inside refuses a path that the journal's owner cannot have made.
func (t teardown) inside(path string) error {
	rel, err := filepath.Rel(t.runs, path)
	if err != nil || rel == "." || !filepath.IsLocal(rel) {
		return fmt.Errorf("it does not lie in the owner's directory")
	}
	return nil
}

// remove removes a run directory. It goes down only into directories that nothing is ever mounted in; a mount that
// could not be undone, or anything else unexpected, makes it fail and is left alone.
func (d rundir) remove() error {
	for _, dir := range []string{d.bundle(), d.state()} {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	for _, path := range []string{d.log(), string(d)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// incomplete is the error for a receipt with remains, nil for one without.
func incomplete(r sandbox.Receipt) error {
	if r.Complete() {
		return nil
	}
	var kinds []string
	for _, remains := range r.Remains {
		if !slices.Contains(kinds, remains.Kind) {
			kinds = append(kinds, remains.Kind)
		}
	}
	return fault.New(fault.CleanupIncomplete, "Resources of a sandbox could not be removed: "+strings.Join(kinds, ", ")+".",
		"Run rea sandbox sweep.").WithAll(fault.Details{
		"cleanup": "incomplete", "resources": kinds, "cleanup_reason": r.Reason,
	})
}
