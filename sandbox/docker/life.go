package docker

import (
	"context"
	"io"
	"io/fs"
	"path"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"

	"rea/evidence/fault"
	"rea/sandbox"
)

// Start attaches to the container, starts it, and verifies its limits in the kernel's files before it hands out the
// control channel. It is called once. After an error the run is killed and destroyed as after success.
func (b *box) Start(ctx context.Context) (io.ReadWriteCloser, error) {
	// Attached first: what the container writes before anybody listens is lost.
	stream, err := b.d.cli.ContainerAttach(ctx, b.id, container.AttachOptions{Stream: true, Stdin: true, Stdout: true, Stderr: true})
	if err != nil {
		return nil, b.d.failed(ctx, err, "attach to the container")
	}
	control := newChannel(stream, &b.diag)
	b.mu.Lock()
	b.control = control
	b.mu.Unlock()
	if err := b.launch(ctx); err != nil {
		return nil, err
	}
	if err := b.verify(ctx); err != nil {
		return nil, err
	}
	return control, nil
}

// launch starts the container and the goroutine that waits for its end. The start is not cut off with the caller: an
// engine that was asked to start something does so whether or not anybody waits, and then it must be known.
func (b *box) launch(ctx context.Context) error {
	detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), createTimeout)
	defer cancel()
	if err := b.d.cli.ContainerStart(detached, b.id, container.StartOptions{}); err != nil {
		return b.d.failed(detached, err, "start the container")
	}
	waiting, stop := context.WithCancel(context.WithoutCancel(ctx))
	b.mu.Lock()
	b.stop = stop
	b.mu.Unlock()
	go b.watch(waiting)
	return nil
}

// watch waits for the container's end; Destroy ends it and waits for it.
func (b *box) watch(ctx context.Context) {
	defer close(b.ended)
	results, failures := b.d.cli.ContainerWait(ctx, b.id, container.WaitConditionNotRunning)
	select {
	case r := <-results:
		b.exit = sandbox.Exit{Code: int(r.StatusCode), At: time.Now().UTC()}
		if r.Error != nil {
			b.exit.Engine = r.Error.Message
		}
	case err := <-failures:
		b.lost = b.d.failed(ctx, err, "say how the container ended")
		return
	}
	if b.group == nil {
		b.readOOM(ctx)
	}
}

// Wait returns when the container has ended, or when that cannot be known any more.
func (b *box) Wait(ctx context.Context) (sandbox.Exit, error) {
	select {
	case <-b.ended:
		return b.exit, b.lost
	case <-ctx.Done():
		return sandbox.Exit{}, fault.From(context.Cause(ctx))
	}
}

// Kill ends every process of the run. With a cgroup of ours it needs no engine, and proves it from the kernel; else
// the engine kills the container and says that nothing of it runs.
func (b *box) Kill(ctx context.Context) error {
	if b.group != nil {
		return b.group.Kill(ctx)
	}
	b.sample()
	if b.id == "" {
		return nil
	}
	if err := b.d.endContainer(ctx, b.id); err != nil {
		return stillThere(err)
	}
	got, err := b.d.cli.ContainerInspect(ctx, b.id)
	switch {
	case isGone(err):
		return nil
	case err != nil:
		return stillThere(b.d.failed(ctx, err, "say that the container ended"))
	case got.State == nil || got.State.Running || got.State.Pid != 0:
		return stillThere(nil)
	}
	return b.settled(ctx)
}

// settled returns when the goroutine that waits for the end has read what the engine says about it.
func (b *box) settled(ctx context.Context) error {
	b.mu.Lock()
	watched := b.stop != nil
	b.mu.Unlock()
	if !watched {
		return nil
	}
	select {
	case <-b.ended:
		return nil
	case <-ctx.Done():
		return fault.From(context.Cause(ctx))
	}
}

// endContainer kills a container, which may have ended already, and returns when the engine has taken note of it.
func (d *Driver) endContainer(ctx context.Context, id string) error {
	err := d.cli.ContainerKill(ctx, id, "SIGKILL")
	if err != nil && !isGone(err) && !errdefs.IsConflict(err) { // a conflict is a container that does not run
		return d.failed(ctx, err, "end the container")
	}
	return d.awaitEnd(ctx, id)
}

// awaitEnd returns when the engine has taken note of a container's end. An engine that removes a container before that
// may list it for ever after.
func (d *Driver) awaitEnd(ctx context.Context, id string) error {
	results, failures := d.cli.ContainerWait(ctx, id, container.WaitConditionNotRunning)
	select {
	case <-results:
		return nil
	case err := <-failures:
		if isGone(err) {
			return nil
		}
		return d.failed(ctx, err, "say that the container ended")
	}
}

// stillThere is the error of a kill that was not proved.
func stillThere(cause error) error {
	return fault.New(fault.CleanupIncomplete, "It could not be proved that the container ended.",
		"Start the container engine if it is down, and run rea sandbox sweep.").
		WithAll(fault.Details{"cleanup": "incomplete", "resources": []string{sandbox.KindContainer}}).Because(cause)
}

// copyOut starts the engine's copy of one entry of its volume as a tar stream.
func (b *box) copyOut(ctx context.Context, name string) (io.ReadCloser, error) {
	stream, _, err := b.d.cli.CopyFromContainer(ctx, b.id, path.Join(sandbox.EvidencePath, name))
	if isGone(err) {
		return nil, &fs.PathError{Op: "copy", Path: name, Err: fs.ErrNotExist}
	}
	if err != nil {
		return nil, b.d.failed(ctx, err, "copy out of the evidence volume")
	}
	return stream, nil
}
