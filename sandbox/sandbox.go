// Package sandbox says what a contained run needs and what became of it, in types that every driver shares.
//
// A Spec is rendered once, to an OCI runtime spec, and every driver runs that same rendering: package docker through
// the Docker Engine, package oci by executing an OCI runtime. Closed by default: what a Spec does not ask for, the
// run does not have. Package sandbox must not know what runs inside, nor read what it leaves.
package sandbox

import (
	"context"
	"io"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/opencontainers/runtime-spec/specs-go"

	"rea/evidence/volume"
	"rea/sandbox/journal"
)

// Prefix begins every name and label that a run makes, so that a person can tell what is ours.
const Prefix = "rea"

// Labels on every resource that can carry one. They explain; the owner's journal and lock decide.
const (
	LabelRun   = "rea.run"   // run id
	LabelOwner = "rea.owner" // journal owner id
	LabelState = "rea.state" // id of the state directory; containers of another one are foreign, never removed
)

// Paths inside every container.
const (
	WorkerPath   = "/rea/rea-worker"
	TargetDir    = "/target"
	TargetPath   = "/target/artifact" // the target: a file or a directory
	EvidencePath = "/evidence"
	ScratchPath  = "/tmp"
)

// RunUID is the uid and gid of everything in a static or engine run.
const RunUID = 10001

// Spec is what one run needs. The driver adds nothing to it but the host's paths.
type Spec struct {
	ID       string   // run id: 16 lower-case hex digits, never reused
	Image    Image    // what the root file system is, by digest
	Args     []string // program and arguments; Args[0] is absolute; the driver puts --channel=… behind it (Channel)
	Env      []string // the complete environment, NAME=value
	User     User     // numeric, never 0 for static and engine runs
	Targets  []Target // read-only mounts below TargetDir
	Evidence Evidence // quotas and nonce of the evidence volume
	Scratch  []Tmpfs  // writable, private, gone with the run
	Limits   Limits
	Seccomp  Profile
	Runtime  string            // runtime class: "" is the driver's default (runc); a missing class is refused
	Labels   map[string]string // added to the labels of this package
}

// Image is a root file system known by content.
type Image struct {
	Name       string                        // reference for people, "rea/static:<digest12>"
	Digest     string                        // "sha256:<hex>": the image's config digest, what a run is started by
	Manifest   string                        // "sha256:<hex>": the manifest digest, the ID in an engine that keeps images in containerd; "" if unknown
	RootFS     string                        // oci driver: directory that holds the unpacked root file system
	Archive    func() (io.ReadCloser, error) // docker driver: `docker load` archive, read only when the engine lacks Digest
	HasWorker  bool                          // the worker is inside at WorkerPath; otherwise it is bound in from WorkerFile
	WorkerFile string                        // host path of the worker binary, for images without it
}

// User is who the processes of the run are.
type User struct{ UID, GID uint32 }

// Target is one read-only input. File is an open O_PATH descriptor of the checked source, which is what is mounted
// where the core may mount; Path is used only where it may not, and is then proved from inside by digest.
type Target struct {
	File        FD     // open descriptor of the source; owned by the caller, alive until Destroy
	Path        string // canonical host path, for engines that we cannot hand a mount to
	Destination string // absolute path inside, below TargetDir
	Dir         bool
	OwnerUID    uint32 // owner of the source
	Private     bool   // others may not read it: map its owner to the run's uid
}

// FD is an open file descriptor; *os.File has it.
type FD interface{ Fd() uintptr }

// Evidence describes the volume that results come out through.
type Evidence struct {
	Bytes  int64  // hard quota in bytes, charged to the run's memory
	Inodes int64  // hard quota in inodes
	Nonce  string // 64 hex digits, written to volume.NonceName before start
}

// Tmpfs is a private, size- and inode-capped file system; nosuid, nodev and noexec always.
type Tmpfs struct {
	Destination   string
	Bytes, Inodes int64
}

// Limits are hard. Memory is for everything: the program's share plus the evidence quota plus every tmpfs; there is
// no swap.
type Limits struct {
	Memory   int64   `json:"memory"`    // bytes
	PIDs     int64   `json:"pids"`      // tasks, threads counted
	CPU      float64 `json:"cpu"`       // cores
	NoFile   uint64  `json:"nofile"`    // RLIMIT_NOFILE
	FileSize uint64  `json:"file_size"` // RLIMIT_FSIZE in bytes
}

// Profile is a seccomp filter with the name under which it is recorded.
type Profile struct {
	Name   string
	Filter *specs.LinuxSeccomp // nil only for a runtime that has its own kernel
}

// Runtime is a driver: it makes sandboxes.
type Runtime interface {
	// Name is the driver's name: "docker" or "oci".
	Name() string
	// Probe says what the driver finds on this host. It makes nothing.
	Probe(ctx context.Context) (Facts, error)
	// Create journals and makes everything that the run needs, up to a container that is not started. What it made
	// before an error it has removed again or left in the journal; the error is a *fault.Error.
	Create(ctx context.Context, s Spec, own *journal.Owner) (Sandbox, error)
	// Sweep removes what a dead owner's journal still lists. The caller holds that owner's lock.
	Sweep(ctx context.Context, dead *journal.Dead) (Receipt, error)
}

// Sandbox is one contained run. Its methods may be called from several goroutines; Destroy ends it and is always
// called, whatever failed before.
type Sandbox interface {
	// Start starts the container and returns the control channel. Closing it cuts the leash.
	Start(ctx context.Context) (io.ReadWriteCloser, error)
	// Wait returns when the container has ended.
	Wait(ctx context.Context) (Exit, error)
	// Evidence gives the volume for reading. Where Proof().Live is set it exists only while the container runs, and
	// must be read before Kill; elsewhere it is read after Kill.
	Evidence(ctx context.Context) (volume.Source, error)
	// Usage reads the run's cgroup: current after Start, final after Kill and until Destroy.
	Usage(ctx context.Context) (Usage, error)
	// Kill ends every process of the run and proves that its cgroup is empty.
	Kill(ctx context.Context) error
	// Destroy removes everything that Create made and says what is gone and what remains.
	Destroy(ctx context.Context) (Receipt, error)
	// Proof says how this run is contained: the rendered spec's digest and what could not be proved.
	Proof() Proof
	// Output returns the first and last part of what the container wrote outside the channel, for diagnostics.
	Output() []byte
}

// Exit is how the container's first process ended.
type Exit struct {
	Code   int // exit code, 128 plus signal where a signal ended it
	At     time.Time
	Engine string // what the engine said, for diagnostics
}

// Usage is what the run consumed and which limits it met, from the kernel's counters. A nil pointer is a figure that
// this host does not give: unknown, never zero.
type Usage struct {
	CPU          *time.Duration `json:"-"`           // user and system; cpu_ns in JSON, nanoseconds
	MemoryPeak   *int64         `json:"memory_peak"` // bytes
	PIDsPeak     *int64         `json:"pids_peak"`
	OOMKills     *int64         `json:"oom_kills"`     // kills by the run's own memory limit
	PIDsRefused  *bool          `json:"pids_refused"`  // the pids limit was reached
	EvidenceFree *Free          `json:"evidence_free"` // nil where the volume could not be examined
	Processes    *int64         `json:"processes"`     // now
}

// MarshalJSON writes the processor time as cpu_ns.
func (u Usage) MarshalJSON() ([]byte, error) {
	type plain Usage
	return json.Marshal(struct {
		plain
		CPU *int64 `json:"cpu_ns"`
	}{plain(u), (*int64)(u.CPU)})
}

// Free is what is left of the evidence volume's quotas.
type Free struct {
	Bytes  int64 `json:"bytes"`
	Inodes int64 `json:"inodes"`
}

// Proof says how a run is contained. Unproved lists, in words for people, each control or figure that this
// host or user could not give; an empty list means that all were verified.
type Proof struct {
	Driver       string   `json:"driver"`
	Runtime      string   `json:"runtime"`     // "runc 1.1.5+ds1"
	SpecSHA256   string   `json:"spec_sha256"` // digest of the rendered OCI spec, host paths left out
	ImageDigest  string   `json:"image_digest"`
	OwnKernel    bool     `json:"own_kernel"` // the runtime has a kernel of its own in user space below the run
	UserNS       bool     `json:"user_namespace"`
	UIDMap       []string `json:"uid_map"`       // lines of user_namespaces(7): id inside, id on the host, how many; empty without a namespace of its own
	OwnCgroup    bool     `json:"own_cgroup"`    // a cgroup of ours holds the limits
	EvidenceKind string   `json:"evidence_kind"` // "host-tmpfs", "engine-tmpfs"
	Live         bool     `json:"-"`             // the evidence volume dies with the container
	TargetBound  string   `json:"target_bound"`  // "descriptor", "path"
	Seccomp      string   `json:"seccomp"`
	Unproved     []string `json:"unproved"`
}

// Resource kinds of a run, as receipts and errors name them.
const (
	KindContainer    = "container"
	KindCgroup       = "cgroup"
	KindEvidence     = "evidence_volume"
	KindTargetMount  = "mount"
	KindRunDirectory = "temporary_directory"
	KindIDRange      = "id_range" // user and group ids of this host
)

// UnprovedOwner is in the proof of a run that reads a private target as its owner.
const UnprovedOwner = "The target is readable by its owner alone, who cannot be mapped to the run here: on this host the run is that owner, and shares its kernel quotas."

// UnprovedOwnKernel is in the proof of a run whose runtime has a kernel of its own.
const UnprovedOwnKernel = "The runtime has a kernel of its own, which confines the run in place of the seccomp profile: what is closed inside is that kernel's word, and the flags of the evidence volume hold on the host, where the run is not."

// Receipt lists what a run made and what became of it.
type Receipt struct {
	Made    []Resource `json:"made"`
	Remains []Resource `json:"remains"` // empty when teardown is complete
	Reason  string     `json:"reason"`  // why something remains, "" otherwise
}

// Complete reports whether nothing remains.
func (r Receipt) Complete() bool { return len(r.Remains) == 0 }

// Resource is one thing on the host that a run made.
type Resource struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
}

// Facts is what a driver finds on its host, for doctor and for admission.
type Facts struct {
	Driver        string            `json:"driver"`
	Available     bool              `json:"available"`
	Reason        string            `json:"reason"` // why not, "" when available
	Action        string            `json:"action"` // how to get it, "" when available
	EngineVersion string            `json:"engine_version"`
	Runtimes      map[string]string `json:"runtimes"`      // name to version
	CgroupMode    string            `json:"cgroup_mode"`   // "v1", "hybrid", "v2"
	CgroupDriver  string            `json:"cgroup_driver"` // "cgroupfs", "systemd"
	Rootless      bool              `json:"rootless"`
	Privileged    bool              `json:"privileged"` // this process may make mounts and cgroups
	UserNSRemap   bool              `json:"userns_remap"`
	Missing       []string          `json:"missing"` // controls and proofs that runs will lack here, for people
}
