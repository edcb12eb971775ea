package doctor

import (
	"context"
	"slices"

	"rea/orchestrator"
	"rea/sandbox"
)

// Components that are judged.
const (
	runc       = "runc"
	containerd = "containerd"
	docker     = "docker"
)

// Verdict says whether a published weakness is there.
type Verdict string

// The verdicts.
const (
	Fixed     Verdict = "fixed"
	Affected  Verdict = "affected"
	Undecided Verdict = "unknown" // a distribution may have fixed it under an older version, and its revision is not in the table
)

// Advisory is the judgement about one published weakness of one component.
type Advisory struct {
	ID        string   `json:"id"`
	Component string   `json:"component"`
	Installed string   `json:"installed"` // version that runs here
	Verdict   Verdict  `json:"verdict"`
	Basis     string   `json:"basis"` // what decided
	Summary   string   `json:"summary"`
	Exposure  string   `json:"exposure"` // what of rea's own controls stands against it
	FixedIn   []string `json:"fixed_in"` // upstream releases, one for each branch
}

// weakness is a published way out of a container, or past the engine's own checks.
type weakness struct {
	id, component, summary, exposure string
	since                            string // first release that has it, "" for all
	fixed                            []string
	revisions                        []revision
}

// revision is the first revision of a distribution's package that carries a fix under an older version's number.
type revision struct{ distribution, release, pkg, version string }

// weaknesses is the table. Releases are those that the projects' advisories name; revisions are those that the
// distributions' changelogs name. What is not known is left out and comes out as unknown, never as fixed.
var weaknesses = []weakness{
	{
		id: "CVE-2019-5736", component: runc, fixed: []string{"1.0.0-rc7"},
		summary:  "a process that is root in the container overwrites the host's runc through /proc/self/exe",
		exposure: "nothing in a run is root, the root file system is read-only and no capability is left",
	},
	{
		id: "CVE-2021-30465", component: runc, fixed: []string{"1.0.0-rc95"},
		summary:  "a symlink swapped into a mount's destination while a container starts mounts the host's file system",
		exposure: "no writable directory is shared by two runs, and no destination lies in one",
	},
	{
		id: "CVE-2024-21626", component: runc, since: "1.0.0-rc93", fixed: []string{"1.1.12"},
		summary:   "a leaked descriptor lets the working directory lie on the host",
		exposure:  "runs begin in / and their images are made by rea itself",
		revisions: []revision{{"debian", "12", runc, "1.1.5+ds1-1+deb12u1"}},
	},
	{
		id: "CVE-2025-31133", component: runc, fixed: []string{"1.2.8", "1.3.3", "1.4.0-rc.3"},
		summary:  "a /dev/null replaced while a container starts turns masked paths into writable ones of the host",
		exposure: "images are made by rea itself, /dev is the runtime's own, and no mount is shared with another run",
	},
	{
		id: "CVE-2025-52565", component: runc, since: "1.0.0-rc3", fixed: []string{"1.2.8", "1.3.3", "1.4.0-rc.3"},
		summary:  "the mount of /dev/console can be led to a file of the host's /proc",
		exposure: "runs have no terminal, so there is no /dev/console",
	},
	{
		id: "CVE-2025-52881", component: runc, fixed: []string{"1.2.8", "1.3.3", "1.4.0-rc.3"},
		summary:  "writes of the runtime to /proc are led to other files through mounts that a second container shares",
		exposure: "no mount is shared by two runs",
	},
	{
		id: "CVE-2024-40635", component: containerd, fixed: []string{"1.6.38", "1.7.27", "2.0.4"},
		summary:   "a user id beyond 32 bits in an image runs as root",
		exposure:  "the user of a run is a fixed number that rea sends itself",
		revisions: []revision{{"debian", "12", containerd, "1.6.20~ds1-1+deb12u2"}},
	},
	{
		id: "CVE-2024-25621", component: containerd, fixed: []string{"1.7.29", "2.0.7", "2.1.5", "2.2.0"},
		summary:   "directories of containerd are open to every user of the host",
		exposure:  "a matter of the host's users: a target has no part in it",
		revisions: []revision{{"debian", "12", containerd, "1.6.20~ds1-1+deb12u2"}},
	},
	{
		id: "CVE-2024-41110", component: docker, fixed: []string{"23.0.15", "25.0.6", "26.1.5", "27.1.1"},
		summary:   "a request without a body passes by an authorization plugin",
		exposure:  "a matter of hosts with such a plugin: a target cannot reach the engine",
		revisions: []revision{{"debian", "12", "docker.io", "20.10.24+dfsg1-1+deb12u1"}},
	},
	{
		id: "CVE-2026-34040", component: docker, fixed: []string{"29.3.1"},
		summary:  "a request that is too long passes by an authorization plugin",
		exposure: "a matter of hosts with such a plugin: a target cannot reach the engine",
	},
}

// installed is one component as it runs here.
type installed struct {
	component, version string
	origin             *origin // the distribution's package that it comes from, nil where that is not known or there is none
}

// judge holds what runs here against the table.
func judge(ctx context.Context, drivers []sandbox.Facts) []Advisory {
	list := []Advisory{}
	for _, have := range inventory(ctx, drivers) {
		for _, w := range weaknesses {
			if w.component == have.component {
				list = append(list, w.judge(ctx, have))
			}
		}
	}
	return list
}

// inventory finds the versions that run here.
func inventory(ctx context.Context, drivers []sandbox.Facts) []installed {
	var list []installed
	add := func(component, version, program string) {
		if version == "" || slices.ContainsFunc(list, func(i installed) bool { return i.component == component && i.version == version }) {
			return
		}
		list = append(list, installed{component, version, originOf(ctx, program, version)})
	}
	for _, f := range drivers {
		if f.Driver == orchestrator.DriverDocker && f.EngineVersion != "" {
			add(docker, f.EngineVersion, "dockerd")
			add(containerd, programVersion(ctx, containerd), containerd)
		}
		add(runc, f.Runtimes[runc], runc)
	}
	return list
}

func (w weakness) judge(ctx context.Context, have installed) Advisory {
	a := Advisory{ID: w.id, Component: w.component, Installed: have.version, Summary: w.summary, Exposure: w.exposure, FixedIn: w.fixed}
	v, ok := parseVersion(have.version)
	switch {
	case !ok:
		a.Verdict, a.Basis = Undecided, "the version is not one of the project's"
	case w.since != "" && compareVersions(v, mustVersion(w.since)) < 0:
		a.Verdict, a.Basis = Fixed, "this release never had it"
	case carries(v, w.fixed):
		a.Verdict, a.Basis = Fixed, "this release has the fix"
	case have.origin == nil:
		a.Verdict, a.Basis = Affected, "this release does not have the fix"
	default:
		a.Verdict, a.Basis = have.origin.judge(ctx, w.revisions)
	}
	return a
}
