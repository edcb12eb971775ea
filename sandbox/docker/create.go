package docker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"unicode/utf8"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/mount"
	dockervolume "github.com/docker/docker/api/types/volume"
	"golang.org/x/sys/unix"

	"rea/evidence/fault"
	"rea/evidence/volume"
	"rea/sandbox"
	"rea/sandbox/cgroup"
	"rea/sandbox/journal"
	"rea/sandbox/staging"
)

// Names inside the run's directory.
const (
	evidenceDir  = "evidence"
	targetPrefix = "target-" // followed by the target's position
	nonceFile    = "nonce"
)

// Create makes everything up to a container that is not started, and compares what the engine says of it with what
// was asked. Errors: capability_unavailable (no engine, runtime class or control), provider_unavailable (the engine
// went away or refused), resource_constraint (from package cgroup), access_denied and target_unavailable (a target
// that cannot be bound).
func (d *Driver) Create(ctx context.Context, s sandbox.Spec, own *journal.Owner) (sandbox.Sandbox, error) {
	e, err := d.contact(ctx)
	if err != nil {
		return nil, err
	}
	if reason, action := e.unusable(s.Runtime); reason != "" {
		return nil, unavailable("runtime "+runtimeClass(s.Runtime), reason, action)
	}
	b := &box{d: d, e: e, own: own, spec: s, place: d.place(e), ended: make(chan struct{})}
	if ownKernel(s.Runtime) {
		b.place.unproved = append(b.place.unproved, sandbox.UnprovedOwnKernel)
	}
	if err := b.create(ctx); err != nil {
		return nil, b.abandon(ctx, fault.From(err))
	}
	return b, nil
}

// abandon removes what was made before a failure. What cannot be removed takes precedence, and names the failure.
func (b *box) abandon(ctx context.Context, failure *fault.Error) error {
	_, err := b.Destroy(ctx)
	var cleanup *fault.Error
	if !errors.As(err, &cleanup) {
		return failure
	}
	return cleanup.InCategory(failure.Category).With("execution_failure", string(failure.Code)).Because(failure)
}

// create makes the parts in the order in which they depend on each other.
func (b *box) create(ctx context.Context) error {
	if err := b.chooseUser(); err != nil {
		return err
	}
	image, err := b.d.ensureImage(ctx, b.spec.Image)
	if err != nil {
		return err
	}
	if err := b.makeDirectory(); err != nil {
		return err
	}
	if err := b.makeGroup(ctx); err != nil {
		return err
	}
	mounts, err := b.makeMounts(ctx)
	if err != nil {
		return err
	}
	o := order{spec: b.spec, imageID: image.ID, imageEnv: image.Config.Env, mounts: mounts, labels: b.labels(image.Config.Labels)}
	if b.group != nil {
		o.parent = b.group.Parent()
	}
	if o.rendered, err = sandbox.Render(b.spec, b.hostPaths(mounts, o.parent)); err != nil {
		return err
	}
	if err := b.prove(image.ID); err != nil {
		return err
	}
	return b.makeContainer(ctx, o)
}

// chooseUser gives the run the uid of a target that only its owner may read, where the engine binds the target by its
// path, the owner is this user, and nothing can be mapped. A run never becomes uid 0.
func (b *box) chooseUser() error {
	if b.place.mounts {
		return nil
	}
	us := uint32(os.Geteuid())
	for i, t := range b.spec.Targets {
		if !utf8.ValidString(t.Path) {
			return fault.New(fault.TargetUnavailable, "The target's path is not valid UTF-8, and the container engine cannot be told such a path.",
				"Rename the target, or run rea as root.").WithAll(fault.Details{"path": strconv.QuoteToASCII(t.Path), "reason": "name"})
		}
		switch {
		case !t.Private:
		case t.OwnerUID == us && us != 0 && !b.e.remapped && !b.e.rootless: // else that id is somebody else's inside
			b.spec.User.UID = us // its group adds nothing to that
			b.place.unproved = append(b.place.unproved, sandbox.UnprovedOwner)
		default:
			b.place.unproved = append(b.place.unproved, fmt.Sprintf(
				"Target %d is not readable by everyone, and the run cannot be its owner here: what the run may not read of it stays unknown.", i+1))
		}
	}
	return nil
}

// labels are what the image, the Spec and this package say, the later over the earlier: the engine adds an image's
// own labels in any case, so they are asked for.
func (b *box) labels(image map[string]string) map[string]string {
	labels := map[string]string{}
	maps.Copy(labels, image)
	maps.Copy(labels, b.spec.Labels)
	labels[sandbox.LabelRun], labels[sandbox.LabelOwner], labels[sandbox.LabelState] = b.spec.ID, b.own.ID(), b.own.StateID()
	return labels
}

// makeDirectory makes the run's directory; the journal writes and confirms its entry itself.
func (b *box) makeDirectory() (err error) {
	if b.dir, err = b.own.RunDir(b.spec.ID, map[string]string{sandbox.DriverKey: driverName}); err == nil {
		b.made = append(b.made, sandbox.Resource{Kind: sandbox.KindRunDirectory, Name: b.dir})
	}
	return err
}

// makeGroup makes the cgroup that holds the run's limits, where it may be ours.
func (b *box) makeGroup(ctx context.Context) error {
	if !b.place.group {
		return nil
	}
	l := b.spec.Limits
	manager := b.e.manager()
	return b.make(sandbox.KindCgroup, manager.PathOf(b.spec.ID), func() (err error) {
		b.group, err = manager.Create(ctx, b.spec.ID, cgroup.Limits{Memory: l.Memory, PIDs: l.PIDs, CPU: l.CPU})
		return err
	})
}

// makeMounts makes the evidence volume and the targets' mounts, and describes them for the engine.
func (b *box) makeMounts(ctx context.Context) ([]mount.Mount, error) {
	if !b.place.mounts {
		return b.engineMounts(ctx)
	}
	evidence := filepath.Join(b.dir, evidenceDir)
	mounts := []mount.Mount{bindMount(evidence, sandbox.EvidencePath, false, false)}
	for i, t := range b.spec.Targets {
		path := filepath.Join(b.dir, targetPrefix+strconv.Itoa(i))
		if err := b.bindTarget(t, path); err != nil {
			return nil, err
		}
		mounts = append(mounts, bindMount(path, t.Destination, true, true))
	}
	// The volume comes last: a target may have decided who the run is, and the run owns its volume.
	if err := b.makeEvidence(evidence); err != nil {
		return nil, err
	}
	return b.withWorker(mounts), nil
}

func (b *box) withWorker(mounts []mount.Mount) []mount.Mount {
	if b.spec.Image.HasWorker {
		return mounts
	}
	return append(mounts, bindMount(b.spec.Image.WorkerFile, sandbox.WorkerPath, true, false))
}

// makeEvidence makes the volume as a mount of ours, owned by the run, with the nonce in it.
func (b *box) makeEvidence(path string) error {
	uid, gid := b.hostUser()
	v := b.spec.Evidence
	err := b.make(sandbox.KindEvidence, path, func() error {
		return staging.Tmpfs(path, staging.TmpfsOptions{Bytes: v.Bytes, Inodes: v.Inodes, UID: uid, GID: gid, Mode: 0o700})
	})
	if err != nil {
		return err
	}
	if err := writeNonce(filepath.Join(path, volume.NonceName), v.Nonce); err != nil {
		return err
	}
	b.root, err = os.Open(path)
	return err
}

// hostUser is the run's user as the host counts ids.
func (b *box) hostUser() (uid, gid uint32) {
	return b.e.remapUID + b.spec.User.UID, b.e.remapGID + b.spec.User.GID
}

// writeNonce writes what the worker shows to prove that it sees the volume of this run.
func writeNonce(path, nonce string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if _, err = f.WriteString(nonce); err == nil {
		err = f.Chmod(0o444) // the run's user is not ours, and the umask must not decide
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}

// bindTarget clones the target's open descriptor to a mount of ours.
func (b *box) bindTarget(t sandbox.Target, path string) error {
	source, owner, err := reopen(t.File)
	if err != nil {
		return err
	}
	defer source.Close()
	return b.make(sandbox.KindTargetMount, path, func() error { return b.bind(source, owner, t.Private, path) })
}

// bind shows the owner of a private target as the run's user. Where that cannot be done the run becomes the owner,
// whose group adds nothing; it never becomes root, and under a remapped engine it cannot become anybody of the host.
func (b *box) bind(source *os.File, owner *unix.Stat_t, private bool, path string) error {
	uid, gid := b.hostUser()
	o := staging.BindOptions{
		RunUID: uid, RunGID: gid,
		Map: private && owner.Uid != uid, MapUID: owner.Uid, MapGID: owner.Gid,
	}
	unproved, err := staging.Bind(source, path, o)
	if errors.Is(err, staging.ErrNoIDMap) && owner.Uid != 0 && !b.e.remapped {
		o.Map = false
		b.spec.User.UID = owner.Uid
		b.place.unproved = append(b.place.unproved, sandbox.UnprovedOwner)
		unproved, err = staging.Bind(source, path, o)
	}
	if errors.Is(err, staging.ErrNoIDMap) {
		return fault.New(fault.AccessDenied, "The target can be read by its owner alone, and this host cannot show its owner as the run's user.",
			"Make the target readable for others, or copy it to a file system that supports id-mapped mounts.").
			WithAll(fault.Details{"system_code": "EACCES", "boundary": "filesystem-read"}).Because(err)
	}
	b.place.unproved = append(b.place.unproved, unproved...)
	return err
}

// reopen duplicates the caller's descriptor and says who owns what is behind it.
func reopen(fd sandbox.FD) (*os.File, *unix.Stat_t, error) {
	dup, err := unix.FcntlInt(fd.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("duplicate the target's descriptor: %w", err)
	}
	f := os.NewFile(uintptr(dup), "target")
	var stat unix.Stat_t
	if err := unix.Fstat(dup, &stat); err != nil {
		f.Close()
		return nil, nil, fmt.Errorf("look at the target: %w", err)
	}
	return f, &stat, nil
}

// engineMounts lets the engine make the volume and binds the targets by path. A tmpfs volume does not exist before its
// container starts, so the nonce cannot be put into it; it is a file of this host, bound over the volume's nonce
// instead. That proves what matters here: the engine sees this host's files, and the run is this one. That the volume
// has its quotas is what the engine says of the volume and what the worker sees of the mount.
func (b *box) engineMounts(ctx context.Context) ([]mount.Mount, error) {
	nonce := filepath.Join(b.dir, nonceFile)
	if err := writeNonce(nonce, b.spec.Evidence.Nonce); err != nil {
		return nil, err
	}
	b.volume = containerName(b.spec.ID)
	if err := b.makeVolume(ctx); err != nil {
		return nil, err
	}
	mounts := []mount.Mount{
		volumeMount(b.volume, sandbox.EvidencePath),
		bindMount(nonce, sandbox.EvidencePath+"/"+volume.NonceName, true, false),
	}
	for _, t := range b.spec.Targets {
		mounts = append(mounts, bindMount(t.Path, t.Destination, true, false))
	}
	return b.withWorker(mounts), nil
}

// makeVolume makes the engine's volume: a memory file system with quotas, owned by the run.
func (b *box) makeVolume(ctx context.Context) error {
	uid, gid := b.hostUser()
	v := b.spec.Evidence
	want := dockervolume.CreateOptions{
		Name: b.volume, Driver: "local", Labels: b.labels(nil),
		DriverOpts: map[string]string{
			"type": "tmpfs", "device": "tmpfs",
			"o": fmt.Sprintf("size=%d,nr_inodes=%d,uid=%d,gid=%d,mode=0700,nosuid,nodev,noexec", v.Bytes, v.Inodes, uid, gid),
		},
	}
	var got dockervolume.Volume
	err := b.make(sandbox.KindEvidence, b.volume, func() (err error) {
		detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), createTimeout)
		defer cancel()
		if got, err = b.d.cli.VolumeCreate(detached, want); err != nil {
			return b.answer(detached, err, "make the evidence volume")
		}
		return nil
	})
	if err == nil && (got.Driver != want.Driver || !maps.Equal(got.Options, want.DriverOpts) || !maps.Equal(got.Labels, want.Labels)) {
		return unavailable("volume options", "The container engine did not make the evidence volume as it was asked to.",
			"Install a newer engine, or run rea as root.")
	}
	return err
}

// answer tells a refusal of the engine from an answer that was never seen.
func (b *box) answer(ctx context.Context, err error, doing string) error {
	typed := b.d.failed(ctx, err, doing)
	if errdefs.IsInvalidArgument(err) || errdefs.IsNotFound(err) || errdefs.IsConflict(err) || errdefs.IsPermissionDenied(err) ||
		errdefs.IsInternal(err) || errdefs.IsUnavailable(err) {
		return typed
	}
	return &lostAnswer{typed}
}

// hostPaths gives the rendering the places that this driver uses.
func (b *box) hostPaths(mounts []mount.Mount, parent string) sandbox.HostPaths {
	h := sandbox.HostPaths{Evidence: mounts[0].Source, Cgroup: parent, Channel: sandbox.ChannelStdio}
	for _, t := range b.spec.Targets {
		h.Targets = append(h.Targets, t.Path)
	}
	return h
}

// prove records how the run is contained, as far as it is known before it starts.
func (b *box) prove(imageID string) error {
	digest, err := sandbox.Digest(b.spec)
	if err != nil {
		return err
	}
	b.proof = sandbox.Proof{
		Driver: driverName, Runtime: runtimeVersion(b.e, b.spec.Runtime), SpecSHA256: digest, ImageDigest: b.spec.Image.Digest,
		OwnKernel: ownKernel(b.spec.Runtime), UserNS: b.e.remapped || b.e.rootless, OwnCgroup: b.group != nil, EvidenceKind: "host-tmpfs", TargetBound: "descriptor",
		Seccomp: b.spec.Seccomp.Name, Unproved: b.place.unproved, UIDMap: []string{},
	}
	if !b.place.mounts {
		b.proof.EvidenceKind, b.proof.TargetBound, b.proof.Live = "engine-tmpfs", "path", true
	}
	return nil
}

// makeContainer makes the container and reads back what the engine made of the request.
func (b *box) makeContainer(ctx context.Context, o order) error {
	want, err := newRequest(o)
	if err != nil {
		return err
	}
	name := containerName(b.spec.ID)
	err = b.make(sandbox.KindContainer, name, func() error {
		detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), createTimeout)
		defer cancel()
		made, err := b.d.cli.ContainerCreate(detached, &want.config, &want.host, nil, nil, name)
		if err != nil {
			return b.answer(detached, b.explain(err, o.mounts), "make the container")
		}
		b.id = made.ID
		return nil
	})
	if err != nil {
		return err
	}
	got, err := b.d.cli.ContainerInspect(ctx, b.id)
	if err != nil {
		return b.d.failed(ctx, err, "say what it made")
	}
	return readBack(want, got)
}

// explain finds the usual reason why an engine refuses a mount: it does not see the files of this host.
func (b *box) explain(err error, mounts []mount.Mount) error {
	if !errdefs.IsInvalidArgument(err) {
		return err
	}
	for _, m := range mounts {
		if _, missing := os.Lstat(m.Source); m.Type == mount.TypeBind && missing != nil {
			return fault.New(fault.TargetUnavailable, "The target went away while its container was made.",
				"Check that it exists and repeat the call.").WithAll(fault.Details{"path": strconv.QuoteToASCII(m.Source), "reason": "missing"}).Because(err)
		}
	}
	return unavailable("local files",
		"The container engine refused the run's mounts: it may run on another machine, or in a virtual machine or container that does not see this host's files.",
		"Use an engine that runs on this host itself, and look at the engine's log.").Because(err)
}
