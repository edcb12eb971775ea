package oci

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"time"

	"rea/sandbox"
	"rea/sandbox/cgroup"
	"rea/sandbox/journal"
	"rea/sandbox/staging"
	"rea/sandbox/userns"
)

// teardownDeadline bounds the teardown of a run, which takes milliseconds: beyond it something hangs in the kernel.
const teardownDeadline = 20 * time.Second

// Destroy ends the run and removes everything that Create made, in the reverse order. It does so even when ctx is
// cancelled. Its error is cleanup_incomplete when something remains; a later call tries again.
func (b *box) Destroy(ctx context.Context) (sandbox.Receipt, error) {
	b.destroying.Lock()
	defer b.destroying.Unlock()
	if b.receipt != nil && b.receipt.Complete() {
		return *b.receipt, nil
	}
	r := removal{runs: b.own.RunsDir(), group: b.group}
	t := r.teardown(b.own.Gone)
	if b.group != nil {
		t.End = func(ctx context.Context, _ []journal.Entry) error { return b.end(ctx) }
	}
	receipt, err := t.Run(ctx, b.own.RunEntries(b.spec.ID))
	receipt.Made = slices.Clone(b.made)
	b.receipt = &receipt
	return receipt, err
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
	return removal{runs: dead.RunsDir()}.teardown(dead.Gone).Sweep(ctx, dead.Entries())
}

// removal knows how to remove the resources of one owner's runs.
type removal struct {
	runs  string        // directory of the owner's run directories; nothing outside it is touched
	group *cgroup.Group // the run's, nil: by its path
}

func (r removal) teardown(gone func(journal.Entry) error) sandbox.Teardown {
	return sandbox.Teardown{
		Driver: DriverName, Timeout: teardownDeadline, End: r.end, Remove: r.remove, Gone: gone, Action: "Run rea sandbox sweep.",
	}
}

// end kills the run's cgroup, if the journal says that there is one.
func (r removal) end(ctx context.Context, entries []journal.Entry) error {
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
func (r removal) remove(ctx context.Context, e journal.Entry) error {
	switch e.Kind {
	case sandbox.KindContainer:
		return nil // ended with the cgroup; what runc wrote down lies in the run directory
	case sandbox.KindCgroup:
		return r.removeCgroup(ctx, e.Name)
	case sandbox.KindIDRange:
		return userns.Release(e.Name, e.Run)
	case sandbox.KindEvidence, sandbox.KindTargetMount:
		if err := sandbox.Inside(r.runs, e.Name); err != nil && !rootOf(e) {
			return err
		}
		return staging.Unmount(e.Name)
	case sandbox.KindRunDirectory:
		if err := sandbox.Inside(r.runs, e.Name); err != nil {
			return err
		}
		return rundir(e.Name).remove()
	}
	return errors.New("no such kind of resource")
}

// rootOf reports whether an entry is its run's root file system, the one mount outside the run's directory.
func rootOf(e journal.Entry) bool { return sandbox.ValidID(e.Run) && e.Name == userns.Root(e.Run) }

func (r removal) removeCgroup(ctx context.Context, path string) error {
	group := r.group
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

// Made reports whether a run's directory is one that this driver fills.
func Made(dir string) bool {
	_, err := os.Lstat(rundir(dir).bundle())
	return err == nil
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
