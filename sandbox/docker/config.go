package docker

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/strslice"
	"github.com/opencontainers/runtime-spec/specs-go"

	"rea/sandbox"
)

// request is what the engine is asked for. It is also what its answer is compared with, so it leaves nothing to a
// default: where zero is meant, zero is what the engine must say.
type request struct {
	config container.Config
	host   container.HostConfig
}

// order is everything a request is made from.
type order struct {
	spec     sandbox.Spec
	rendered *specs.Spec // of spec: process, paths, limits and filter are taken from it
	imageID  string
	imageEnv []string // what the image would add to the environment
	mounts   []mount.Mount
	parent   string // cgroup of ours, "" where the engine makes the only one
	labels   map[string]string
}

// newRequest translates the rendered spec into the engine's terms.
func newRequest(o order) (*request, error) {
	filter, err := json.Marshal(o.rendered.Linux.Seccomp)
	if err != nil {
		return nil, fmt.Errorf("encode the seccomp filter: %w", err)
	}
	p := o.rendered.Process
	noTimeout := 0
	config := container.Config{
		Hostname:        o.rendered.Hostname,
		User:            fmt.Sprintf("%d:%d", p.User.UID, p.User.GID),
		AttachStdin:     true,
		AttachStdout:    true,
		AttachStderr:    true,
		OpenStdin:       true,
		StdinOnce:       true, // the engine closes standard input when we are gone: the leash
		Env:             environment(p.Env, o.imageEnv),
		Cmd:             strslice.StrSlice(p.Args[1:]),
		Healthcheck:     &container.HealthConfig{Test: []string{"NONE"}},
		Image:           o.imageID,
		WorkingDir:      p.Cwd,
		Entrypoint:      strslice.StrSlice(p.Args[:1]),
		NetworkDisabled: true,
		Labels:          o.labels,
		StopSignal:      "SIGKILL",
		StopTimeout:     &noTimeout,
	}
	host := container.HostConfig{
		LogConfig:      container.LogConfig{Type: "none"},
		NetworkMode:    "none",
		RestartPolicy:  container.RestartPolicy{Name: container.RestartPolicyDisabled},
		CapDrop:        strslice.StrSlice{"ALL"},
		CgroupnsMode:   container.CgroupnsModePrivate,
		IpcMode:        container.IPCModeNone, // a namespace of its own, and no /dev/shm
		OomScoreAdj:    *p.OOMScoreAdj,
		ReadonlyRootfs: true,
		SecurityOpt:    []string{"no-new-privileges", "seccomp=" + string(filter)},
		Tmpfs:          scratch(o.spec.Scratch),
		ShmSize:        unusedShm,
		Runtime:        runtimeClass(o.spec.Runtime),
		Resources:      o.resources(),
		Mounts:         o.mounts,
		MaskedPaths:    o.rendered.Linux.MaskedPaths,
		ReadonlyPaths:  o.rendered.Linux.ReadonlyPaths,
		Init:           new(bool),
	}
	return &request{config, host}, nil
}

// unusedShm is a size for the /dev/shm that a run does not have; asked for nothing, the engine notes its default.
const unusedShm = 1 << 20

// resources are the limits of the container's own cgroup. Below a cgroup of ours they are those of the rendered spec,
// whose memory is a little above the run's, so that ours is the limit that trips; where the engine makes the only
// cgroup, they are the run's own.
func (o order) resources() container.Resources {
	l := o.spec.Limits
	memory, pids := l.Memory, l.PIDs
	if o.parent != "" {
		memory = *o.rendered.Linux.Resources.Memory.Limit
	}
	r := container.Resources{
		Memory:         memory,
		MemorySwap:     memory, // equal: no swap
		NanoCPUs:       int64(l.CPU * 1e9),
		CgroupParent:   o.parent,
		OomKillDisable: new(bool),
		PidsLimit:      &pids,
	}
	for _, limit := range o.rendered.Process.Rlimits {
		r.Ulimits = append(r.Ulimits, &container.Ulimit{
			Name: strings.ToLower(strings.TrimPrefix(limit.Type, "RLIMIT_")), Soft: int64(limit.Soft), Hard: int64(limit.Hard),
		})
	}
	return r
}

// environment is the run's complete environment. A bare name takes away what the image or the engine would set.
func environment(env, imageEnv []string) []string {
	set := map[string]bool{}
	complete := append([]string{}, env...)
	for _, v := range env {
		name, _, _ := strings.Cut(v, "=")
		set[name] = true
	}
	for _, v := range append([]string{"PATH", "HOSTNAME"}, imageEnv...) {
		if name, _, _ := strings.Cut(v, "="); !set[name] {
			set[name] = true
			complete = append(complete, name)
		}
	}
	return complete
}

// scratch renders the run's own memory file systems; the engine's mount list knows no inode quota.
func scratch(list []sandbox.Tmpfs) map[string]string {
	m := map[string]string{}
	for _, t := range list {
		m[t.Destination] = fmt.Sprintf("rw,nosuid,nodev,noexec,size=%d,nr_inodes=%d,mode=1777", t.Bytes, t.Inodes)
	}
	return m
}

func runtimeClass(class string) string {
	if class == "" {
		return defaultRuntime
	}
	return class
}

// bindMount binds a path of this host. It never makes a missing source, and nothing in the path is interpreted.
func bindMount(source, target string, readOnly, nested bool) mount.Mount {
	return mount.Mount{
		Type: mount.TypeBind, Source: source, Target: target, ReadOnly: readOnly,
		BindOptions: &mount.BindOptions{Propagation: mount.PropagationRPrivate, NonRecursive: !nested},
	}
}

// volumeMount mounts a volume of the engine, without copying what the image has at that place into it.
func volumeMount(name, target string) mount.Mount {
	return mount.Mount{
		Type: mount.TypeVolume, Source: name, Target: target,
		VolumeOptions: &mount.VolumeOptions{NoCopy: true},
	}
}
