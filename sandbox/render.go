package sandbox

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/opencontainers/runtime-spec/specs-go"

	"rea/evidence/fault"
)

const (
	// ociVersion is what runc 1.1 takes; nothing that a rendering uses is newer.
	ociVersion = "1.0.2"
	// hostname is the same in every run: a host's name is nobody's business inside.
	hostname = "rea"
	// oomScoreAdj makes the host, when it is itself out of memory, end a run before the core.
	oomScoreAdj = 500
	// leafMemoryMargin is how far the container's own memory limit lies above the run's: programs inside size
	// themselves by it, and the run's limit is still the one that trips (equal limits would be a race).
	leafMemoryMargin = 1 << 20
	// cpuPeriod is the kernel's default accounting period in microseconds.
	cpuPeriod = 100_000
	// minCPUQuota is the least quota that the kernel accepts, in microseconds a period.
	minCPUQuota = 1_000
	// smallTmpfs holds a file system that carries mount points and device nodes only.
	smallTmpfs = "size=65536"
)

// Channel is how a driver hands the control channel to the first process. It is told by the argument --channel=…,
// which the driver puts directly behind Spec.Args[0].
type Channel string

// The closed set of channels.
const (
	ChannelFD3   Channel = "fd3"   // a connected unix socket as descriptor 3
	ChannelStdio Channel = "stdio" // frames on standard input and output
)

// Args returns args with the channel's argument behind the program.
func (c Channel) Args(args []string) []string {
	return slices.Insert(slices.Clone(args), 1, "--channel="+string(c))
}

// HostPaths are the places and choices of one driver on one host that a rendering needs and a Spec does not know.
// None of them is part of the digest.
type HostPaths struct {
	RootFS   string   // directory of the unpacked root file system
	Targets  []string // source of each of Spec.Targets, in that order
	Evidence string   // source of the evidence mount
	Cgroup   string   // cgroup path of the container itself, below the run's own cgroup
	Channel  Channel
	// UserNS maps the run's ids to the host's in a user namespace of its own; nil is the host's namespace.
	UserNS *IDMap
}

// IDMap is the mapping of a user namespace.
type IDMap struct{ UIDs, GIDs []specs.LinuxIDMapping }

// Lines is the mapping of users as proofs record it; empty, not nil, without a mapping.
func (m *IDMap) Lines() []string {
	if m == nil {
		return []string{}
	}
	return MapLines(m.UIDs)
}

// MapLines writes a mapping in the form of user_namespaces(7), columns one blank apart.
func MapLines(ids []specs.LinuxIDMapping) []string {
	lines := make([]string, len(ids))
	for i, m := range ids {
		lines[i] = fmt.Sprintf("%d %d %d", m.ContainerID, m.HostID, m.Size)
	}
	return lines
}

// placeholders stand for everything that belongs to a host, a driver or one run, so that equal Specs digest equally.
func placeholders(s Spec) HostPaths {
	h := HostPaths{RootFS: "<rootfs>", Evidence: "<evidence>", Cgroup: "<cgroup>", Channel: "<channel>"}
	for i := range s.Targets {
		h.Targets = append(h.Targets, "<target "+strconv.Itoa(i)+">")
	}
	return h
}

// Digest is the SHA-256, in hex, of the rendering's canonical JSON (RFC 8785) with placeholders for host paths, the
// run's id and what differs between drivers. Runs with equal digests were asked to be contained alike.
func Digest(s Spec) (string, error) {
	s.Image.WorkerFile = "<worker>"
	rendered, err := Render(s, placeholders(s))
	if err != nil {
		return "", err
	}
	data, err := json.Marshal(rendered)
	if err != nil {
		return "", fmt.Errorf("encode the rendered spec: %w", err)
	}
	canonical := jsontext.Value(data)
	if err := canonical.Canonicalize(); err != nil {
		return "", fmt.Errorf("canonicalize the rendered spec: %w", err)
	}
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:]), nil
}

// Render gives the one OCI runtime spec of a run: what runc gets as config.json, and what the Docker driver asks the
// engine for, field by field. Mount points that the image must have, because its root is read-only: /proc, /dev, /sys,
// /target, /evidence, every Scratch destination outside /dev (with mode 1777) and, without HasWorker, WorkerPath.
// The mount points below /target are made in a small read-only tmpfs, since a target is a file or a directory.
// A Spec that is not closed is an execution_failure that names what is wrong.
func Render(s Spec, h HostPaths) (*specs.Spec, error) {
	if err := s.check(h); err != nil {
		return nil, fault.New(fault.ExecutionFailure, "The run's sandbox specification is refused: "+err.Error()+".",
			"This is a defect of rea: report it with the output of rea doctor.").Because(err)
	}
	return &specs.Spec{
		Version:  ociVersion,
		Root:     &specs.Root{Path: h.RootFS, Readonly: true},
		Hostname: hostname,
		Process:  renderProcess(s, h),
		Mounts:   renderMounts(s, h),
		Linux:    renderLinux(s, h),
	}, nil
}

func renderProcess(s Spec, h HostPaths) *specs.Process {
	adj := oomScoreAdj
	none := []string{}
	return &specs.Process{
		Args:            h.Channel.Args(s.Args),
		Env:             s.Env,
		Cwd:             "/",
		User:            specs.User{UID: s.User.UID, GID: s.User.GID},
		NoNewPrivileges: true,
		OOMScoreAdj:     &adj,
		Capabilities: &specs.LinuxCapabilities{
			Bounding: none, Effective: none, Inheritable: none, Permitted: none, Ambient: none,
		},
		Rlimits: []specs.POSIXRlimit{
			{Type: "RLIMIT_CORE", Soft: 0, Hard: 0},
			{Type: "RLIMIT_NOFILE", Soft: s.Limits.NoFile, Hard: s.Limits.NoFile},
			{Type: "RLIMIT_FSIZE", Soft: s.Limits.FileSize, Hard: s.Limits.FileSize},
		},
	}
}

func renderMounts(s Spec, h HostPaths) []specs.Mount {
	closed := []string{"nosuid", "nodev", "noexec"}
	with := func(options ...string) []string { return slices.Concat(closed, options) }
	mounts := []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: closed},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs",
			Options: []string{"nosuid", "noexec", "strictatime", "mode=755", smallTmpfs}},
		{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: with("ro")},
		// Programs inside size their heaps by the limits that they read here.
		{Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup", Options: with("ro")},
		{Destination: EvidencePath, Type: "bind", Source: h.Evidence, Options: with("bind", "rprivate", "rw")},
	}
	if len(s.Targets) > 0 {
		mounts = append(mounts, specs.Mount{Destination: TargetDir, Type: "tmpfs", Source: "tmpfs",
			Options: with("ro", "mode=755", smallTmpfs)})
	}
	for i, t := range s.Targets {
		mounts = append(mounts, specs.Mount{Destination: t.Destination, Type: "bind", Source: h.Targets[i],
			Options: with("rbind", "rprivate", "ro")})
	}
	for _, f := range s.Scratch {
		mounts = append(mounts, specs.Mount{Destination: f.Destination, Type: "tmpfs", Source: "tmpfs",
			Options: with("mode=1777", fmt.Sprintf("size=%d", f.Bytes), fmt.Sprintf("nr_inodes=%d", f.Inodes))})
	}
	if !s.Image.HasWorker {
		mounts = append(mounts, specs.Mount{Destination: WorkerPath, Type: "bind", Source: s.Image.WorkerFile,
			Options: []string{"nosuid", "nodev", "bind", "rprivate", "ro"}})
	}
	return mounts
}

func renderLinux(s Spec, h HostPaths) *specs.Linux {
	linux := &specs.Linux{
		Namespaces: []specs.LinuxNamespace{
			{Type: specs.PIDNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace},
			{Type: specs.MountNamespace}, {Type: specs.NetworkNamespace}, {Type: specs.CgroupNamespace},
		},
		RootfsPropagation: "rprivate",
		MaskedPaths:       slices.Clone(maskedPaths),
		ReadonlyPaths:     slices.Clone(readonlyPaths),
		CgroupsPath:       h.Cgroup,
		Resources:         renderResources(s.Limits),
		Seccomp:           s.Seccomp.Filter,
	}
	if h.UserNS != nil {
		linux.Namespaces = append(linux.Namespaces, specs.LinuxNamespace{Type: specs.UserNamespace})
		linux.UIDMappings, linux.GIDMappings = h.UserNS.UIDs, h.UserNS.GIDs
	}
	return linux
}

// maskedPaths and readonlyPaths are what container engines agree on, plus per-CPU interrupt and throttling counters,
// through which a run could time its neighbours.
var (
	maskedPaths = []string{
		"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
		"/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats",
		"/sys/devices/virtual/powercap", "/sys/firmware",
	}
	readonlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
)

// standardDevices are the character devices, major and minor, that every program may expect.
var standardDevices = [][2]int64{
	{1, 3}, // null
	{1, 5}, // zero
	{1, 7}, // full
	{1, 8}, // random
	{1, 9}, // urandom
	{5, 0}, // tty: the controlling terminal, of which there is none
}

func renderResources(l Limits) *specs.LinuxResources {
	memory, pids := l.Memory+leafMemoryMargin, l.PIDs
	period, quota := uint64(cpuPeriod), int64(l.CPU*cpuPeriod)
	devices := []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}}
	for _, d := range standardDevices {
		devices = append(devices, specs.LinuxDeviceCgroup{Allow: true, Type: "c", Major: &d[0], Minor: &d[1], Access: "rwm"})
	}
	return &specs.LinuxResources{
		Devices: devices,
		Memory:  &specs.LinuxMemory{Limit: &memory, Swap: &memory}, // equal: no swap
		Pids:    &specs.LinuxPids{Limit: &pids},
		CPU:     &specs.LinuxCPU{Period: &period, Quota: &quota},
	}
}

// check refuses a Spec that leaves something open.
func (s Spec) check(h HostPaths) error {
	return errors.Join(s.checkProcess(), s.checkLimits(), s.checkMounts(h))
}

func (s Spec) checkProcess() error {
	var errs []error
	if !ValidID(s.ID) {
		errs = append(errs, errors.New("the run id is not 16 lower-case hex digits"))
	}
	if len(s.Args) == 0 || !path.IsAbs(s.Args[0]) {
		errs = append(errs, errors.New("the program is not an absolute path"))
	}
	if s.User.UID == 0 || s.User.GID == 0 {
		errs = append(errs, errors.New("uid or gid is 0"))
	}
	if s.Seccomp.Filter == nil {
		errs = append(errs, errors.New("there is no seccomp filter"))
	}
	return errors.Join(errs...)
}

// checkLimits also holds the memory limit against what is charged to it: a full volume must be ENOSPC, not a kill.
func (s Spec) checkLimits() error {
	l, volumes := s.Limits, s.Evidence.Bytes
	closed := s.Evidence.Bytes > 0 && s.Evidence.Inodes > 0
	for _, f := range s.Scratch {
		closed = closed && f.Bytes > 0 && f.Inodes > 0
		volumes += f.Bytes
	}
	switch {
	case l.Memory <= 0 || l.PIDs <= 0 || l.CPU*cpuPeriod < minCPUQuota || l.NoFile == 0 || l.FileSize == 0:
		return errors.New("a limit is missing")
	case !closed:
		return errors.New("a volume has no quota")
	case volumes >= l.Memory:
		return errors.New("the memory limit does not cover the volumes that are charged to it")
	}
	return nil
}

func (s Spec) checkMounts(h HostPaths) error {
	if len(h.Targets) != len(s.Targets) {
		return fmt.Errorf("%d targets have %d sources", len(s.Targets), len(h.Targets))
	}
	seen := map[string]bool{"/": true, "/proc": true, "/dev": true, "/sys": true, "/sys/fs/cgroup": true, EvidencePath: true, TargetDir: true}
	claim := func(p string) error {
		if !path.IsAbs(p) || path.Clean(p) != p || seen[p] {
			return fmt.Errorf("mount destination %q is not a clean path of its own", p)
		}
		seen[p] = true
		return nil
	}
	for _, t := range s.Targets {
		if path.Dir(t.Destination) != TargetDir {
			return fmt.Errorf("target destination %q is not directly below %s", t.Destination, TargetDir)
		}
		if err := claim(t.Destination); err != nil {
			return err
		}
	}
	for _, f := range s.Scratch {
		if err := claim(f.Destination); err != nil {
			return err
		}
	}
	return nil
}

// ValidID reports whether id has the form of a run id: 16 lower-case hex digits. Names on the host are made of it.
func ValidID(id string) bool {
	return len(id) == 16 && strings.Trim(id, "0123456789abcdef") == ""
}
