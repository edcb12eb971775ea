package oci

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"rea/evidence/fault"
	"rea/evidence/volume"
	"rea/sandbox"
	"rea/sandbox/cgroup"
	"rea/sandbox/journal"
)

const (
	// outputDrain is how long output is still read after runc has ended; only a process that escaped could hold it.
	outputDrain = 2 * time.Second
	// startCleanup bounds the killing of a container that did not start properly.
	startCleanup = 10 * time.Second
)

// box is one contained run.
type box struct {
	driver       *Driver
	spec         sandbox.Spec   // User may differ from what was asked: become
	host         sandbox.User   // who the run is on the host
	idmap        *sandbox.IDMap // of the run's own user namespace, nil where there is none
	rootfs       string         // of the image, where the runtime finds it
	own          *journal.Owner
	runc         *program
	dir          rundir
	group        *cgroup.Group
	runtimeGroup string // directory of the cgroup that runc itself runs in, "" where there is no v2 tree
	digest       string
	unproved     []string
	made         []sandbox.Resource
	out, errs    sandbox.Capture
	ended        chan struct{} // closed when runc has ended; exit and waitErr are set before

	exit    sandbox.Exit
	waitErr error

	mu       sync.Mutex // guards what follows
	started  bool
	over     bool // killed or destroyed: nothing starts any more
	channel  net.Conn
	evidence *os.File // root of the evidence volume, nil before it is made and after Destroy

	destroying sync.Mutex // one Destroy at a time; guards receipt
	receipt    *sandbox.Receipt
}

var _ sandbox.Sandbox = (*box)(nil)

// Start runs the container, waits for the first sign of life on its channel, and verifies from outside that the
// process behind it is contained as asked. What the worker said is left on the channel.
func (b *box) Start(ctx context.Context) (io.ReadWriteCloser, error) {
	conn, err := b.launch()
	if err != nil {
		return nil, asFault("starting the container", err)
	}
	err = b.admit(ctx, conn)
	if err == nil {
		return conn, nil
	}
	failure := b.explain(ctx, err)
	cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), startCleanup)
	defer cancel()
	if err := b.Kill(cleanup); err != nil {
		return nil, errors.Join(failure, err)
	}
	return nil, failure
}

// launch starts runc with one end of a fresh socket pair as the container's descriptor 3. A socket, unlike a pipe,
// cannot be opened again through /proc by a process inside.
func (b *box) launch() (net.Conn, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.started || b.over {
		return nil, errors.New("a sandbox starts once, and not after it was killed")
	}
	conn, peer, err := socketpair()
	if err != nil {
		return nil, err
	}
	defer peer.Close()
	cmd := exec.Command(b.runc.path, b.arguments()...)
	cmd.Env = []string{}
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &b.out, &b.errs, outputDrain
	if b.runc.channel() == sandbox.ChannelStdio {
		cmd.Stdin, cmd.Stdout = peer, peer
	} else {
		cmd.ExtraFiles = []*os.File{peer}
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // a terminal's interrupt is ours to handle
	if b.runtimeGroup != "" {
		group, err := os.Open(b.runtimeGroup)
		if err != nil {
			conn.Close()
			return nil, err
		}
		defer group.Close()
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(group.Fd())
	}
	if err := cmd.Start(); err != nil {
		conn.Close()
		return nil, err
	}
	b.started, b.channel = true, conn
	go b.reap(cmd)
	return conn, nil
}

// arguments are the runtime's.
func (b *box) arguments() []string {
	args := append([]string{"--root", b.dir.state(), "--log", b.dir.log(), "--log-format", "json"}, b.runc.options...)
	if b.group.Manager() == cgroup.Systemd {
		args = append(args, "--systemd-cgroup")
	}
	args = append(args, "run", "--bundle", b.dir.bundle())
	if b.runc.channel() == sandbox.ChannelFD3 {
		args = append(args, "--preserve-fds", "1")
	}
	return append(args, containerID(b.spec.ID))
}

// reap waits for runc; Destroy waits for it in turn.
func (b *box) reap(cmd *exec.Cmd) {
	defer close(b.ended)
	err := cmd.Wait()
	b.exit = sandbox.Exit{At: time.Now(), Code: -1}
	if err != nil && cmd.ProcessState == nil {
		b.waitErr = err
		return
	}
	b.exit.Engine = b.runc.kind + ": " + cmd.ProcessState.String()
	status := cmd.ProcessState.Sys().(syscall.WaitStatus)
	b.exit.Code = status.ExitStatus() // runc passes its container's on, 128 plus signal included
	if status.Signaled() {
		b.exit.Code = 128 + int(status.Signal())
	}
}

// admit waits for the worker and checks how it is contained.
func (b *box) admit(ctx context.Context, conn net.Conn) error {
	pid, err := firstSender(ctx, conn)
	if err != nil {
		return err
	}
	if b.runc.ownKernel {
		err = verifyKernel(pid)
	} else {
		err = verifyProcess(pid, b.host, b.idmap)
	}
	if err != nil {
		return err
	}
	return b.group.Verify(ctx, pid)
}

// explain says why a container did not start: the context's end, or runc's own words, which are in its log and never
// in the container's output.
func (b *box) explain(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return fault.From(cause)
	}
	var f *fault.Error
	if errors.As(err, &f) {
		return f
	}
	failure := broken("starting the container", err)
	if reason := lastError(b.dir.log()); reason != "" {
		failure.With("reason", reason)
		failure.Message = fmt.Sprintf("The container could not be started: %s.", reason)
	}
	return failure
}

// Wait returns when runc, and with it the container, has ended.
func (b *box) Wait(ctx context.Context) (sandbox.Exit, error) {
	if !b.wasStarted() {
		return sandbox.Exit{}, asFault("waiting for the container", errors.New("it was not started"))
	}
	select {
	case <-b.ended:
		return b.exit, asFault("waiting for the container", b.waitErr)
	case <-ctx.Done():
		return sandbox.Exit{}, fault.From(context.Cause(ctx))
	}
}

func (b *box) wasStarted() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.started
}

// Evidence gives the volume, which exists until Destroy.
func (b *box) Evidence(context.Context) (volume.Source, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.evidence == nil {
		return nil, asFault("reading the evidence volume", errors.New("the sandbox was destroyed"))
	}
	return volume.Dir(b.evidence), nil
}

// Usage reads the cgroup's counters and what is left of the evidence quota.
func (b *box) Usage(ctx context.Context) (sandbox.Usage, error) {
	u := b.group.Usage()
	usage := sandbox.Usage{
		CPU: u.CPU, MemoryPeak: u.MemoryPeak, PIDsPeak: u.PIDsPeak, OOMKills: u.OOMKills,
		PIDsRefused: u.PIDsReached, Processes: u.Processes,
	}
	source, err := b.Evidence(ctx)
	if err != nil {
		return usage, err
	}
	free, err := source.Free(ctx)
	if err == nil && free != nil {
		usage.EvidenceFree = &sandbox.Free{Bytes: free.Bytes, Inodes: free.Inodes}
	}
	return usage, nil
}

// Kill ends everything in the run's cgroup, runc included, and returns when it is empty and runc was reaped.
func (b *box) Kill(ctx context.Context) error {
	b.mu.Lock()
	b.over = true
	started := b.started
	b.mu.Unlock()
	if err := b.group.Kill(ctx); err != nil {
		return asFault("ending the container", err)
	}
	if !started {
		return nil
	}
	select {
	case <-b.ended:
		return nil
	case <-ctx.Done():
		return fault.New(fault.CleanupIncomplete, "The OCI runtime did not end with its container.",
			"Run rea sandbox sweep.").WithAll(fault.Details{"cleanup": "incomplete",
			"resources": []string{sandbox.KindContainer}, "cleanup_reason": "runc is still there"}).
			Because(context.Cause(ctx))
	}
}

// Proof says how this run is contained.
func (b *box) Proof() sandbox.Proof {
	return sandbox.Proof{
		Driver: DriverName, Runtime: b.runc.String(), SpecSHA256: b.digest, ImageDigest: b.spec.Image.Digest,
		OwnKernel: b.runc.ownKernel, UserNS: b.idmap != nil, UIDMap: b.idmap.Lines(), OwnCgroup: true, EvidenceKind: "host-tmpfs", TargetBound: "descriptor", Seccomp: b.spec.Seccomp.Name,
		Unproved: append([]string{}, b.unproved...),
	}
}

// Output returns both ends of the container's standard output and standard error.
func (b *box) Output() []byte {
	return bytes.Join([][]byte{b.out.Bytes(), b.errs.Bytes()}, nil)
}
