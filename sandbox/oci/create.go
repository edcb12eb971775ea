package oci

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"rea/evidence/fault"
	"rea/evidence/volume"
	"rea/sandbox"
	"rea/sandbox/cgroup"
	"rea/sandbox/journal"
	"rea/sandbox/staging"
)

// leaf is the container's own cgroup, below the run's.
const leaf = "box"

// rundir is the layout of a run's directory. Mounts lie in it, so it is never removed recursively as a whole.
type rundir string

func (d rundir) evidence() string    { return filepath.Join(string(d), "evidence") }
func (d rundir) target(i int) string { return filepath.Join(string(d), "target"+strconv.Itoa(i)) }
func (d rundir) bundle() string      { return filepath.Join(string(d), "bundle") } // config.json
func (d rundir) state() string       { return filepath.Join(string(d), "runc") }   // runc's --root
func (d rundir) log() string         { return filepath.Join(string(d), "runc.log") }

// Create makes the run's cgroup, mounts and bundle, each journalled first. See sandbox.Runtime.
func (d *Driver) Create(ctx context.Context, s sandbox.Spec, own *journal.Owner) (sandbox.Sandbox, error) {
	if !sandbox.ValidID(s.ID) {
		_, err := sandbox.Digest(s) // says what is wrong
		return nil, err
	}
	runc, err := d.usable(ctx, s.Runtime)
	if err != nil {
		return nil, err
	}
	b := &box{spec: s, own: own, runc: runc, ended: make(chan struct{}), out: newCapture(), errs: newCapture()}
	if err := b.create(ctx); err != nil {
		return nil, b.abandon(ctx, err)
	}
	return b, nil
}

// abandon removes what a failed create made. What then remains overrides the failure, as the error algebra wants it.
func (b *box) abandon(ctx context.Context, failure error) error {
	_, err := b.Destroy(ctx)
	var remains *fault.Error
	if !errors.As(err, &remains) {
		return failure
	}
	first := fault.From(failure)
	remains.Message = first.Message + " " + remains.Message
	return remains.As(first.Category).With("execution_failure", string(first.Code)).Because(failure)
}

func (b *box) create(ctx context.Context) error {
	dir, err := b.own.RunDir(b.spec.ID)
	if err != nil {
		return asFault("the run directory", err)
	}
	b.dir = rundir(dir)
	b.made = append(b.made, sandbox.Resource{Kind: sandbox.KindRunDirectory, Name: dir})
	for _, step := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"the control group", b.makeCgroup},
		{"binding the target", b.bindTargets},
		{"the evidence volume", b.mountEvidence},
		{"the container's bundle", b.writeBundle},
	} {
		if err := context.Cause(ctx); err != nil {
			return fault.From(err)
		}
		if err := step.do(ctx); err != nil {
			return asFault(step.what, err)
		}
	}
	return nil
}

// make journals a resource, makes it and confirms it.
func (b *box) make(kind, name string, do func() error) error {
	entry, err := b.own.Make(b.spec.ID, kind, name, map[string]string{driverKey: DriverName})
	if err != nil {
		return err
	}
	b.made = append(b.made, sandbox.Resource{Kind: kind, Name: name})
	if err := do(); err != nil {
		return err
	}
	return b.own.Confirm(entry)
}

// makeCgroup makes the run's group with its limits and, inside it, a place for runc itself: whoever kills the run's
// group then also ends a runc that is about to make a container. On a pure v2 host runc's few threads and megabytes
// count against the run's limits while it waits; on a hybrid host the v2 tree carries no limits.
func (b *box) makeCgroup(ctx context.Context) error {
	return b.make(sandbox.KindCgroup, cgroup.PathOf(b.spec.ID), func() error {
		l := b.spec.Limits
		group, err := cgroup.Create(ctx, b.spec.ID, cgroup.Limits{Memory: l.Memory, PIDs: l.PIDs, CPU: l.CPU})
		if err != nil {
			return err
		}
		b.group = group
		tree, ok := unifiedTree()
		if !ok {
			b.unproved = append(b.unproved, unprovedRuntime)
			return nil
		}
		b.runtimeGroup = filepath.Join(tree, group.Path(), "runtime")
		return os.Mkdir(b.runtimeGroup, 0o755)
	})
}

// bindTargets comes before the evidence volume, because a target may decide whose uid the run has.
func (b *box) bindTargets(context.Context) error {
	for i, t := range b.spec.Targets {
		path := b.dir.target(i)
		err := b.make(sandbox.KindTargetMount, path, func() error {
			source, err := duplicate(t.File)
			if err != nil {
				return err
			}
			defer source.Close()
			return b.bind(source, path, t.Private)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// bind shows a target that others may not read as the run's own; where it cannot be mapped the run becomes the
// target's owner instead, but never root.
func (b *box) bind(source *os.File, path string, private bool) error {
	var stat unix.Stat_t
	if err := unix.Fstat(int(source.Fd()), &stat); err != nil {
		return os.NewSyscallError("fstat", err)
	}
	user := b.spec.User
	options := staging.BindOptions{
		RunUID: user.UID, RunGID: user.GID,
		Map: private && stat.Uid != user.UID, MapUID: stat.Uid, MapGID: stat.Gid,
	}
	unproved, err := staging.Bind(source, path, options)
	if errors.Is(err, staging.ErrNoIDMap) && stat.Uid != 0 {
		options.Map = false
		b.spec.User.UID = stat.Uid // the owner's group adds nothing to that
		unproved, err = staging.Bind(source, path, options)
	}
	b.unproved = append(b.unproved, unproved...)
	return err
}

// duplicate gives a file of its own for a descriptor that belongs to the caller.
func duplicate(f sandbox.FD) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(fd), "target"), nil
}

func (b *box) mountEvidence(context.Context) error {
	path, user, quota := b.dir.evidence(), b.spec.User, b.spec.Evidence
	return b.make(sandbox.KindEvidence, path, func() error {
		err := staging.Tmpfs(path, staging.TmpfsOptions{
			Bytes: quota.Bytes, Inodes: quota.Inodes, UID: user.UID, GID: user.GID, Mode: 0o700,
		})
		if err != nil {
			return err
		}
		if b.evidence, err = os.Open(path); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(path, volume.NonceName), []byte(quota.Nonce), 0o444)
	})
}

// writeBundle renders the spec. From then on the journal lists a container, so that a sweep looks for one.
func (b *box) writeBundle(context.Context) error {
	host := sandbox.HostPaths{
		RootFS: b.spec.Image.RootFS, Evidence: b.dir.evidence(),
		Cgroup: b.group.Path() + "/" + leaf, Channel: sandbox.ChannelFD3,
	}
	for i := range b.spec.Targets {
		host.Targets = append(host.Targets, b.dir.target(i))
	}
	rendered, err := sandbox.Render(b.spec, host)
	if err != nil {
		return err
	}
	if b.digest, err = sandbox.Digest(b.spec); err != nil {
		return err
	}
	config, err := json.Marshal(rendered)
	if err != nil {
		return fmt.Errorf("encode config.json: %w", err)
	}
	return b.make(sandbox.KindContainer, containerID(b.spec.ID), func() error {
		if err := os.Mkdir(b.dir.bundle(), 0o700); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(b.dir.bundle(), "config.json"), config, 0o600)
	})
}
