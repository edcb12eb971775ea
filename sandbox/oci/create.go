package oci

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
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
	"rea/sandbox/userns"
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
	b := &box{driver: d, spec: s, own: own, runc: runc, ended: make(chan struct{})}
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
	return remains.InCategory(first.Category).With("execution_failure", string(first.Code)).Because(failure)
}

func (b *box) create(ctx context.Context) error {
	dir, err := b.own.RunDir(b.spec.ID, map[string]string{sandbox.DriverKey: DriverName})
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
		{"the run's user ids", b.takeIDs},
		{"the image", b.mountRoot},
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
	entry, err := b.own.Make(b.spec.ID, kind, name, map[string]string{sandbox.DriverKey: DriverName})
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
// count against the run's limits while it waits; on a hybrid host the v2 tree carries no limits. Where systemd makes
// the groups the place is a plain directory in the run's slice: it holds no limit that systemd could take back.
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

// takeIDs takes ids of this host for the run, which nobody else has, for a user namespace of its own. Where there can
// be none the run has the ids of its Spec on the host too, and the proof says so.
func (b *box) takeIDs(context.Context) error {
	b.host = b.spec.User
	if b.runc.ownKernel {
		b.unproved = append(b.unproved, sandbox.UnprovedOwnKernel)
		return nil
	}
	if obstacle := b.driver.noUserNS(); obstacle != "" {
		b.unproved = append(b.unproved, "The run has no user namespace of its own: "+obstacle+
			". Runs share one user of this host, and that user's kernel quotas.")
		return nil
	}
	for _, ids := range userns.Candidates(b.spec.ID) {
		err := b.make(sandbox.KindIDRange, ids.Path(), func() error { return ids.Take(b.spec.ID) })
		if errors.Is(err, fs.ErrExist) {
			continue // the journal's entry does no harm: what it names says whose it is
		}
		if err != nil {
			return err
		}
		b.host = sandbox.User{UID: ids.Run(), GID: ids.Run()}
		b.idmap = ids.Map(b.spec.User)
		return nil
	}
	return errors.New("every range of ids that was tried is taken")
}

// mountRoot shows the image at a place that the root of a user namespace may pass through to.
func (b *box) mountRoot(context.Context) error {
	b.rootfs = b.spec.Image.RootFS
	if b.idmap == nil {
		return nil
	}
	b.rootfs = userns.Root(b.spec.ID)
	return b.make(sandbox.KindTargetMount, b.rootfs, func() error {
		source, err := os.Open(b.spec.Image.RootFS)
		if err != nil {
			return err
		}
		defer source.Close()
		_, err = staging.Bind(source, b.rootfs, staging.BindOptions{Exec: true})
		return err
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
// target's owner instead, but never root. What others may read needs no mapping: whoever owns it, it is nobody's inside.
func (b *box) bind(source *os.File, path string, private bool) error {
	var stat unix.Stat_t
	if err := unix.Fstat(int(source.Fd()), &stat); err != nil {
		return os.NewSyscallError("fstat", err)
	}
	options := staging.BindOptions{
		RunUID: b.host.UID, RunGID: b.host.GID,
		Map: private && stat.Uid != b.host.UID, MapUID: stat.Uid, MapGID: stat.Gid,
	}
	unproved, err := staging.Bind(source, path, options)
	if errors.Is(err, staging.ErrNoIDMap) && stat.Uid != 0 {
		options.Map = false
		b.become(stat.Uid)
		unproved, err = staging.Bind(source, path, options)
	}
	b.unproved = append(b.unproved, unproved...)
	return err
}

// become gives the run the uid of a target's owner on the host; the owner's group would add nothing to that. In a user
// namespace it is the same user as ever, seen from inside.
func (b *box) become(owner uint32) {
	b.host.UID = owner
	if b.idmap != nil {
		b.idmap.UIDs[len(b.idmap.UIDs)-1].HostID = owner
	} else {
		b.spec.User.UID = owner
	}
	b.unproved = append(b.unproved, sandbox.UnprovedOwner)
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
	path, user, quota := b.dir.evidence(), b.host, b.spec.Evidence
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

// cgroupsPath names the container's own cgroup, below the run's, as runc wants it from each manager: as a path, or as
// the parts of the scope rea-<run>.scope in the run's slice.
func (b *box) cgroupsPath() string {
	if b.group.Manager() == cgroup.Systemd {
		return b.group.Parent() + ":" + sandbox.Prefix + ":" + b.spec.ID
	}
	return b.group.Path() + "/" + leaf
}

// writeBundle renders the spec. From then on the journal lists a container, so that a sweep looks for one.
func (b *box) writeBundle(context.Context) error {
	host := sandbox.HostPaths{
		RootFS: b.rootfs, Evidence: b.dir.evidence(), Cgroup: b.cgroupsPath(), Channel: b.runc.channel(), UserNS: b.idmap,
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
