package docker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"

	"rea/evidence/fault"
	"rea/sandbox"
	"rea/sandbox/cgroup"
	"rea/sandbox/journal"
	"rea/sandbox/staging"
)

// driverKey marks this driver's entries in the journal's details.
const driverKey = "driver"

// Destroy ends the run and removes everything that Create made, in the reverse order, also when ctx is cancelled. Its
// error is cleanup_incomplete when something remains; a later call tries again.
func (b *box) Destroy(ctx context.Context) (sandbox.Receipt, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	b.destroying.Lock()
	defer b.destroying.Unlock()
	if b.receipt != nil && b.receipt.Complete() {
		return *b.receipt, nil
	}
	t := teardown{d: b.d, owner: b.own.ID(), runs: b.own.RunsDir(), gone: b.own.Gone, group: b.group, ended: b.end, mayAppear: true}
	receipt := t.run(ctx, b.own.RunEntries(b.spec.ID))
	b.mu.Lock()
	receipt.Made = slices.Clone(b.made)
	b.mu.Unlock()
	b.receipt = &receipt
	return receipt, incomplete(receipt)
}

// end stops what this process does for the run: the channel, the wait, and the open volume. A descriptor that the run
// sent somewhere could keep the volume's memory, so the channel goes before the volume is unmounted.
func (b *box) end() {
	b.mu.Lock()
	control, stop := b.control, b.stop
	b.mu.Unlock()
	if control != nil {
		control.end()
	}
	if stop != nil {
		stop()
		<-b.ended
	}
	if b.root != nil {
		_ = b.root.Close() // read-only; a second close is an error that says nothing
	}
}

// Sweep removes what this driver's entries in a dead owner's journal name, run by run. The caller holds that owner's
// lock. A container that carries other labels than the journal says is somebody else's and is left alone.
func (d *Driver) Sweep(ctx context.Context, dead *journal.Dead) (sandbox.Receipt, error) {
	total := sandbox.Receipt{Made: []sandbox.Resource{}, Remains: []sandbox.Resource{}}
	t := teardown{d: d, owner: dead.ID(), runs: dead.RunsDir(), gone: dead.Gone}
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

// ours groups by run the entries of the runs that no other driver has a part in. A run's directory carries no driver's
// mark, so a run of which nothing else was made yet is anybody's.
func ours(entries []journal.Entry) [][]journal.Entry {
	runs, foreign := map[string][]journal.Entry{}, map[string]bool{}
	var order []string
	for _, e := range entries {
		if _, known := runs[e.Run]; !known {
			order = append(order, e.Run)
		}
		runs[e.Run] = append(runs[e.Run], e)
		if by := e.Detail[driverKey]; by != driverName && (by != "" || e.Kind != sandbox.KindRunDirectory) {
			foreign[e.Run] = true
		}
	}
	var list [][]journal.Entry
	for _, run := range order {
		if !foreign[run] {
			list = append(list, runs[run])
		}
	}
	return list
}

// teardown removes the resources of one run.
type teardown struct {
	d         *Driver
	owner     string                    // owner of the journal: containers must carry it
	runs      string                    // directory of the owner's run directories; no path outside it is touched
	gone      func(journal.Entry) error // strikes an entry out
	group     *cgroup.Group             // the run's, nil: by its path
	ended     func()                    // called when the run is killed, before anything is removed; may be nil
	dead      bool                      // every process of the run was killed
	mayAppear bool                      // an unconfirmed container that is not there may yet appear, and its entry stays
}

func (t teardown) sweep(ctx context.Context, entries []journal.Entry) sandbox.Receipt {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	return t.run(ctx, entries)
}

// run kills the run's cgroup, if it has one, then removes entries from the last made to the first. What is left after
// a failure is only what the failure concerns: mounts and cgroup of a dead run go also where the engine is gone.
func (t teardown) run(ctx context.Context, entries []journal.Entry) sandbox.Receipt {
	receipt := sandbox.Receipt{Made: []sandbox.Resource{}, Remains: []sandbox.Resource{}}
	for _, e := range entries {
		receipt.Made = append(receipt.Made, sandbox.Resource{Kind: e.Kind, Name: e.Name})
	}
	killed := t.kill(ctx, entries)
	t.dead = slices.ContainsFunc(entries, func(e journal.Entry) bool { return e.Kind == sandbox.KindCgroup })
	if t.ended != nil {
		t.ended()
	}
	if killed != nil {
		receipt.Remains, receipt.Reason = slices.Clone(receipt.Made), killed.Error()
		return receipt
	}
	for _, e := range slices.Backward(entries) {
		err := t.remove(ctx, e)
		if err == nil {
			err = t.gone(e)
		}
		if err != nil {
			receipt.Remains = append(receipt.Remains, sandbox.Resource{Kind: e.Kind, Name: e.Name})
			receipt.Reason = fmt.Sprintf("%s %s: %v", e.Kind, e.Name, err)
		}
	}
	return receipt
}

// kill ends the run through the cgroup that the journal names. A container without one is killed by its removal.
func (t teardown) kill(ctx context.Context, entries []journal.Entry) error {
	for _, e := range entries {
		if e.Kind != sandbox.KindCgroup {
			continue
		}
		group, err := t.open(e.Name)
		if err == nil && group != nil {
			err = group.Kill(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// open finds the run's cgroup; nil where there is none any more.
func (t teardown) open(path string) (*cgroup.Group, error) {
	if t.group != nil {
		return t.group, nil
	}
	group, err := cgroup.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return group, err
}

// remove makes one journalled resource not exist. What is not there is no error.
func (t teardown) remove(ctx context.Context, e journal.Entry) error {
	switch e.Kind {
	case sandbox.KindContainer:
		return t.removeContainer(ctx, e)
	case sandbox.KindCgroup:
		group, err := t.open(e.Name)
		if err != nil || group == nil {
			return err
		}
		return group.Delete(ctx)
	case sandbox.KindEvidence, sandbox.KindTargetMount:
		if !filepath.IsAbs(e.Name) {
			return t.removeVolume(ctx, e)
		}
		if err := t.inside(e.Name); err != nil {
			return err
		}
		return staging.Unmount(e.Name)
	case sandbox.KindRunDirectory:
		if err := t.inside(e.Name); err != nil {
			return err
		}
		return removeDirectory(e.Name)
	}
	return errors.New("no such kind of resource")
}

// removeContainer removes a container by the id that its name and labels lead to, with its anonymous volumes.
func (t teardown) removeContainer(ctx context.Context, e journal.Entry) error {
	got, err := t.d.cli.ContainerInspect(ctx, e.Name)
	if isGone(err) {
		return t.absent(e)
	}
	if err != nil {
		return t.d.failed(ctx, err, "look for the container")
	}
	if got.Config == nil || !t.carries(got.Config.Labels, e) {
		return errors.New("the container of that name carries other labels")
	}
	if got.State != nil && got.State.Running {
		end := t.d.endContainer
		if t.dead {
			end = t.d.awaitEnd
		}
		if err := end(ctx, got.ID); err != nil {
			return err
		}
	}
	err = t.d.cli.ContainerRemove(ctx, got.ID, container.RemoveOptions{Force: true, RemoveVolumes: true})
	if errdefs.IsConflict(err) { // somebody is removing it: wait for that
		results, failures := t.d.cli.ContainerWait(ctx, got.ID, container.WaitConditionRemoved)
		select {
		case <-results:
			return nil
		case err = <-failures:
		}
	}
	if isGone(err) {
		return nil
	}
	return t.d.failed(ctx, err, "remove the container")
}

// removeVolume removes a volume of the engine's.
func (t teardown) removeVolume(ctx context.Context, e journal.Entry) error {
	got, err := t.d.cli.VolumeInspect(ctx, e.Name)
	if isGone(err) {
		return t.absent(e)
	}
	if err != nil {
		return t.d.failed(ctx, err, "look for the evidence volume")
	}
	if !t.carries(got.Labels, e) {
		return errors.New("the volume of that name carries other labels")
	}
	if err := t.d.cli.VolumeRemove(ctx, e.Name, false); err != nil && !isGone(err) {
		return t.d.failed(ctx, err, "remove the evidence volume")
	}
	return nil
}

// absent decides about something that is not there: its create may still be on its way.
func (t teardown) absent(e journal.Entry) error {
	if t.mayAppear && !e.Confirmed {
		return errors.New("the engine's answer was not seen, so it may still appear")
	}
	return nil
}

// carries reports whether the labels are those of the entry's run and owner.
func (t teardown) carries(labels map[string]string, e journal.Entry) bool {
	return labels[sandbox.LabelRun] == e.Run && labels[sandbox.LabelOwner] == t.owner
}

// inside refuses a path that the journal's owner cannot have made.
func (t teardown) inside(path string) error {
	rel, err := filepath.Rel(t.runs, path)
	if err != nil || rel == "." || !filepath.IsLocal(rel) {
		return errors.New("it does not lie in the owner's directory")
	}
	return nil
}

// removeDirectory removes a run's directory and the one file of ours in it. A mount that could not be undone, or
// anything else unexpected, makes it fail and is left alone.
func removeDirectory(dir string) error {
	for _, path := range []string{filepath.Join(dir, nonceFile), dir} {
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
		"Start the container engine if it is down, and run rea sandbox sweep.").WithAll(fault.Details{
		"cleanup": "incomplete", "resources": kinds, "cleanup_reason": r.Reason,
	})
}
