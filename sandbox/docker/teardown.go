package docker

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"

	"rea/sandbox"
	"rea/sandbox/cgroup"
	"rea/sandbox/journal"
	"rea/sandbox/staging"
)

// Destroy ends the run and removes everything that Create made, in the reverse order, also when ctx is cancelled. Its
// error is cleanup_incomplete when something remains; a later call tries again.
func (b *box) Destroy(ctx context.Context) (sandbox.Receipt, error) {
	b.destroying.Lock()
	defer b.destroying.Unlock()
	if b.receipt != nil && b.receipt.Complete() {
		return *b.receipt, nil
	}
	r := &removal{d: b.d, owner: b.own.ID(), runs: b.own.RunsDir(), group: b.group, ended: b.end, mayAppear: true}
	receipt, err := r.teardown(b.own.Gone).Run(ctx, b.own.RunEntries(b.spec.ID))
	b.mu.Lock()
	receipt.Made = slices.Clone(b.made)
	b.mu.Unlock()
	b.receipt = &receipt
	return receipt, err
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
	r := &removal{d: d, owner: dead.ID(), runs: dead.RunsDir()}
	return r.teardown(dead.Gone).Sweep(ctx, dead.Entries())
}

// removal knows how to remove the resources of one owner's runs.
type removal struct {
	d         *Driver
	owner     string        // owner of the journal: containers must carry it
	runs      string        // directory of the owner's run directories; no path outside it is touched
	group     *cgroup.Group // the run's, nil: by its path
	ended     func()        // called when the run is killed, before anything is removed; may be nil
	dead      bool          // every process of the run at hand was killed
	mayAppear bool          // an unconfirmed container that is not there may yet appear, and its entry stays
}

func (r *removal) teardown(gone func(journal.Entry) error) sandbox.Teardown {
	return sandbox.Teardown{
		Driver: driverName, Timeout: cleanupTimeout, End: r.end, Remove: r.remove, Gone: gone,
		Action: "Start the container engine if it is down, and run rea sandbox sweep.",
	}
}

// end ends a run through the cgroup that the journal names. A container without one is killed by its removal. Mounts
// and cgroup of a dead run go also where the engine is gone.
func (r *removal) end(ctx context.Context, entries []journal.Entry) error {
	killed := r.kill(ctx, entries)
	r.dead = slices.ContainsFunc(entries, func(e journal.Entry) bool { return e.Kind == sandbox.KindCgroup })
	if r.ended != nil {
		r.ended()
	}
	return killed
}

func (r *removal) kill(ctx context.Context, entries []journal.Entry) error {
	for _, e := range entries {
		if e.Kind != sandbox.KindCgroup {
			continue
		}
		group, err := r.open(e.Name)
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
func (r *removal) open(path string) (*cgroup.Group, error) {
	if r.group != nil {
		return r.group, nil
	}
	group, err := cgroup.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return group, err
}

// remove makes one journalled resource not exist. What is not there is no error.
func (r *removal) remove(ctx context.Context, e journal.Entry) error {
	switch e.Kind {
	case sandbox.KindContainer:
		return r.removeContainer(ctx, e)
	case sandbox.KindCgroup:
		group, err := r.open(e.Name)
		if err != nil || group == nil {
			return err
		}
		return group.Delete(ctx)
	case sandbox.KindEvidence, sandbox.KindTargetMount:
		if !filepath.IsAbs(e.Name) {
			return r.removeVolume(ctx, e)
		}
		if err := sandbox.Inside(r.runs, e.Name); err != nil {
			return err
		}
		return staging.Unmount(e.Name)
	case sandbox.KindRunDirectory:
		if err := sandbox.Inside(r.runs, e.Name); err != nil {
			return err
		}
		return removeDirectory(e.Name)
	}
	return errors.New("no such kind of resource")
}

// removeContainer removes a container by the id that its name and labels lead to, with its anonymous volumes.
func (r *removal) removeContainer(ctx context.Context, e journal.Entry) error {
	got, err := r.d.cli.ContainerInspect(ctx, e.Name)
	if isGone(err) {
		return r.absent(e)
	}
	if err != nil {
		return r.d.failed(ctx, err, "look for the container")
	}
	if got.Config == nil || !r.carries(got.Config.Labels, e) {
		return errors.New("the container of that name carries other labels")
	}
	if got.State != nil && got.State.Running {
		end := r.d.endContainer
		if r.dead {
			end = r.d.awaitEnd
		}
		if err := end(ctx, got.ID); err != nil {
			return err
		}
	}
	err = r.d.cli.ContainerRemove(ctx, got.ID, container.RemoveOptions{Force: true, RemoveVolumes: true})
	if errdefs.IsConflict(err) { // somebody is removing it: wait for that
		results, failures := r.d.cli.ContainerWait(ctx, got.ID, container.WaitConditionRemoved)
		select {
		case <-results:
			return nil
		case err = <-failures:
		}
	}
	if isGone(err) {
		return nil
	}
	return r.d.failed(ctx, err, "remove the container")
}

// removeVolume removes a volume of the engine's.
func (r *removal) removeVolume(ctx context.Context, e journal.Entry) error {
	got, err := r.d.cli.VolumeInspect(ctx, e.Name)
	if isGone(err) {
		return r.absent(e)
	}
	if err != nil {
		return r.d.failed(ctx, err, "look for the evidence volume")
	}
	if !r.carries(got.Labels, e) {
		return errors.New("the volume of that name carries other labels")
	}
	if err := r.d.cli.VolumeRemove(ctx, e.Name, false); err != nil && !isGone(err) {
		return r.d.failed(ctx, err, "remove the evidence volume")
	}
	return nil
}

// absent decides about something that is not there: its create may still be on its way.
func (r *removal) absent(e journal.Entry) error {
	if r.mayAppear && !e.Confirmed {
		return errors.New("the engine's answer was not seen, so it may still appear")
	}
	return nil
}

// carries reports whether the labels are those of the entry's run and owner.
func (r *removal) carries(labels map[string]string, e journal.Entry) bool {
	return labels[sandbox.LabelRun] == e.Run && labels[sandbox.LabelOwner] == r.owner
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
