package docker

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/docker/docker/api/types/system"
	"github.com/docker/docker/api/types/versions"

	"rea/evidence/fault"
	"rea/sandbox"
	"rea/sandbox/cgroup"
	"rea/sandbox/staging"
)

const (
	// leastAPI is the oldest API that has everything a run asks for: private cgroup namespaces came with 1.41.
	leastAPI = "1.41"
	// defaultRuntime runs a Spec that names no runtime class.
	defaultRuntime = "runc"
)

// engine is what the engine says of itself.
type engine struct {
	version, api       string
	cgroupDriver       string
	cgroupVersion      string
	runtimes           map[string]string // name to version, "" where the engine does not say
	seccomp            bool
	rootless           bool
	remapped           bool
	remapUID, remapGID uint32 // host id of the container's root where remapped, 0 when it is not known
	dataRoot           string
}

// ask asks the engine about itself.
func (d *Driver) ask(ctx context.Context) (*engine, error) {
	info, err := d.cli.Info(ctx)
	if err != nil {
		return nil, d.failed(ctx, err, "be asked about itself")
	}
	e := newEngine(info, d.cli.ClientVersion())
	if version, err := d.cli.ServerVersion(ctx); err == nil {
		for _, c := range version.Components {
			if _, known := e.runtimes[c.Name]; known {
				e.runtimes[c.Name] = c.Version
			}
		}
	}
	if versions.LessThan(e.api, leastAPI) {
		return nil, unavailable("api "+leastAPI,
			"The container engine speaks API "+e.api+" only; runs need "+leastAPI+" (Docker 20.10) or newer.",
			"Install a newer engine (Debian and Ubuntu: apt-get install docker.io).")
	}
	return e, nil
}

func newEngine(info system.Info, api string) *engine {
	e := &engine{
		version: info.ServerVersion, api: api,
		cgroupDriver: info.CgroupDriver, cgroupVersion: info.CgroupVersion,
		runtimes: map[string]string{}, dataRoot: info.DockerRootDir,
	}
	for name := range info.Runtimes {
		e.runtimes[name] = ""
	}
	for _, option := range info.SecurityOptions {
		for field := range strings.SplitSeq(option, ",") {
			switch field {
			case "name=seccomp":
				e.seccomp = true
			case "name=rootless":
				e.rootless = true
			case "name=userns":
				e.remapped = true
			}
		}
	}
	if e.remapped {
		e.remapUID, e.remapGID = remapBase(e.dataRoot)
	}
	return e
}

// remapBase takes the host's ids of a container's root from the data root of a remapped engine, whose last element is
// "uid.gid".
func remapBase(dataRoot string) (uid, gid uint32) {
	u, g, _ := strings.Cut(filepath.Base(dataRoot), ".")
	uid64, errU := strconv.ParseUint(u, 10, 32)
	gid64, errG := strconv.ParseUint(g, 10, 32)
	if errU != nil || errG != nil {
		return 0, 0
	}
	return uint32(uid64), uint32(gid64)
}

// placement says who makes what for a run here.
type placement struct {
	mounts   bool     // evidence volume and target mounts are ours
	group    bool     // the cgroup that holds the limits is ours
	unproved []string // what that leaves unproved, for people
}

// place decides it, from the engine and from what this process may do.
func (d *Driver) place(e *engine) placement {
	privileged := !d.ordinary && !e.rootless && staging.Privileged()
	obstacle, _ := e.manager().Obstacle()
	p := placement{mounts: privileged, group: privileged && obstacle == ""}
	if !p.mounts {
		p.unproved = append(p.unproved,
			"The target is bound by path, without mounts nested in it: that the container sees what was opened follows from its digest alone.",
			"The engine made the evidence volume: it ends with the container, so nothing can be read from it after a crash.")
	}
	switch {
	case p.group:
	case privileged:
		p.unproved = append(p.unproved, "A run cannot have a cgroup of its own here ("+obstacle+
			"), so its limits are on the container's own cgroup: its last counters are read before it ends and may be missing after a crash.")
	default:
		p.unproved = append(p.unproved,
			"This process may not make cgroups for the engine, so the run's limits are on the container's own cgroup: its last counters are read before it ends, and that no process is left is the engine's word.")
	}
	return p
}

// manager is who makes cgroups for this engine: only what was made by the same one is a parent that it takes.
func (e *engine) manager() cgroup.Manager { return cgroup.Manager(e.cgroupDriver) }

// Probe asks the engine what it is. An engine that is absent, too old or not ours to use is a fact, not an error.
func (d *Driver) Probe(ctx context.Context) (sandbox.Facts, error) {
	facts := sandbox.Facts{Driver: driverName, CgroupMode: string(cgroup.Detect().Mode), Runtimes: map[string]string{}, Missing: []string{}}
	e, err := d.ask(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return facts, fault.From(context.Cause(ctx))
		}
		var f *fault.Error
		if errors.As(err, &f) {
			facts.Reason, facts.Action = f.Message, f.Action
		}
		return facts, nil
	}
	facts.EngineVersion, facts.CgroupDriver = e.version, e.cgroupDriver
	facts.Runtimes, facts.Rootless, facts.UserNSRemap = maps.Clone(e.runtimes), e.rootless, e.remapped
	place := d.place(e)
	facts.Privileged = place.mounts && place.group
	facts.Missing = append(facts.Missing, place.unproved...)
	if facts.Reason, facts.Action = e.unusable(""); facts.Reason == "" {
		facts.Available = true
	}
	return facts, nil
}

// unusable says why no run of a runtime class can be started here, "" when it can.
func (e *engine) unusable(class string) (reason, action string) {
	if class == "" {
		class = defaultRuntime
	}
	if !e.seccomp {
		return "The container engine was built or started without seccomp, so a run could not be confined.",
			"Use an engine and a kernel with seccomp (Debian and Ubuntu: apt-get install docker.io)."
	}
	if _, known := e.runtimes[class]; !known {
		return "The container engine has no runtime " + strconv.Quote(class) + "; it has " +
				strings.Join(slices.Sorted(maps.Keys(e.runtimes)), ", ") + ".",
			"Install that runtime and name it under runtimes in /etc/docker/daemon.json, or ask for another runtime class."
	}
	if e.remapped && e.remapUID == 0 {
		return "The container engine remaps user ids and its data root does not tell how.",
			"Start the engine without userns-remap, or use the oci driver."
	}
	return "", ""
}
