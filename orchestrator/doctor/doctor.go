// Package doctor examines a host: whether contained runs can start here, how well they are contained, what is missing,
// what each missing thing costs and how to get it.
//
// It asks the drivers, the kernel and the host's package manager, and starts no container. What it judges by versions
// is data (advisories.go). It also examines a server as a client meets it, by starting one (server.go). Package doctor
// must not repair anything.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"rea/evidence/fault"
	"rea/evidence/store"
	"rea/images"
	"rea/orchestrator"
	"rea/orchestrator/clients"
	"rea/orchestrator/report"
	"rea/orchestrator/session"
	"rea/sandbox"
	"rea/sandbox/cgroup"
	"rea/sandbox/journal"
)

// Status is what a check found.
type Status string

// The statuses. Only Failed makes a host unhealthy.
const (
	OK      Status = "ok"
	Warning Status = "warning" // works, with less than there could be
	Unknown Status = "unknown" // could not be found out
	Failed  Status = "failed"
)

// Check is one thing that was looked at.
type Check struct {
	Name   string `json:"name"`
	Status Status `json:"status"`
	Detail string `json:"detail"`
	Cost   string `json:"cost"`   // what it costs that this is not better, "" for nothing
	Remedy string `json:"remedy"` // how to get it, "" for nothing
}

// Report is the examination of a host.
type Report struct {
	Healthy    bool            `json:"healthy"` // a contained run can start, its Evidence can be kept, and the target, if one was named, can be opened
	Version    string          `json:"version"`
	Platform   string          `json:"platform"`
	Driver     string          `json:"driver"` // what runs would be made by, "" for nothing
	Checks     []Check         `json:"checks"`
	Advisories []Advisory      `json:"advisories"`
	Drivers    []sandbox.Facts `json:"drivers"`
	Images     []images.Info   `json:"images"`
	Store      *store.Report   `json:"store"` // null where it cannot be opened

	Registrations []Registration `json:"registrations"` // one for each client that can be set up
}

// Options say what is examined.
type Options struct {
	Version string // of this program
	Target  string // absolute path to check against the rule by which targets are opened, "" for none

	Registrations []clients.Registration // of the user's MCP clients
}

// Examine examines the host. Its error is a context's end or a setting that cannot be used; everything else is a
// finding.
func Examine(ctx context.Context, h *orchestrator.Host, o Options) (Report, error) {
	r := Report{
		Version: o.Version, Platform: runtime.GOOS + "/" + runtime.GOARCH,
		Checks: []Check{}, Advisories: []Advisory{}, Drivers: []sandbox.Facts{}, Images: []images.Info{}, Registrations: []Registration{},
	}
	if err := r.drivers(ctx, h); err != nil {
		return r, err
	}
	r.program()
	r.kernel()
	r.cgroups()
	r.privileges()
	r.advisories(ctx)
	if err := r.images(ctx, h); err != nil {
		return r, err
	}
	r.store(ctx, h)
	r.stateDirectory(h)
	r.leftovers(h)
	r.registrations(o.Registrations)
	if o.Target != "" {
		r.target(o.Target)
	}
	r.Healthy = !slices.ContainsFunc(r.Checks, func(c Check) bool { return c.Status == Failed })
	return r, ctx.Err()
}

func (r *Report) add(c Check) { r.Checks = append(r.Checks, c) }

// costs says what a host loses without a driver.
var costs = map[string]string{
	orchestrator.DriverDocker: "Without a container engine only root can make containers, through an OCI runtime.",
	orchestrator.DriverOCI:    "Without an OCI runtime of its own rea depends on the container engine, and a run takes about three times as long.",
}

func (r *Report) drivers(ctx context.Context, h *orchestrator.Host) error {
	drivers, err := h.Drivers()
	if err != nil {
		return err
	}
	for _, d := range drivers {
		facts, err := d.Probe(ctx)
		if err != nil {
			return err
		}
		r.Drivers = append(r.Drivers, facts)
		if facts.Available && r.Driver == "" {
			r.Driver = facts.Driver
		}
	}
	for _, f := range r.Drivers {
		c := Check{Name: "driver " + f.Driver, Status: OK, Detail: describe(f)}
		if !f.Available {
			c.Status, c.Detail, c.Cost, c.Remedy = Warning, f.Reason, costs[f.Driver], f.Action
			if r.Driver == "" {
				c.Status = Failed
			}
		}
		r.add(c)
	}
	return nil
}

// describe is one line about a driver that can be used.
func describe(f sandbox.Facts) string {
	var parts []string
	if f.Driver == orchestrator.DriverDocker {
		parts = append(parts, "engine "+f.EngineVersion)
	}
	names := make([]string, 0, len(f.Runtimes))
	for name, v := range f.Runtimes {
		names = append(names, strings.TrimSpace(name+" "+v))
	}
	slices.Sort(names)
	if len(names) > 0 {
		parts = append(parts, "runtimes: "+strings.Join(names, ", "))
	}
	if f.Rootless {
		parts = append(parts, "rootless")
	}
	if f.UserNSRemap {
		parts = append(parts, "user ids remapped")
	}
	return strings.Join(parts, "; ")
}

// program checks what this program brings along.
func (r *Report) program() {
	c := Check{Name: "worker", Status: OK}
	if _, sha256, err := images.Worker(); err != nil {
		f := fault.From(err)
		c.Status, c.Detail, c.Cost, c.Remedy = Failed, f.Message, "No target can be read.", f.Action
	} else {
		c.Detail = "embedded, sha256 " + sha256
	}
	r.add(c)
	c = Check{Name: "seccomp profile", Status: OK, Detail: "for " + runtime.GOARCH}
	if _, err := sandbox.SeccompProfile(sandbox.SeccompStatic); err != nil {
		f := fault.From(err)
		c.Status, c.Detail, c.Cost, c.Remedy = Failed, f.Message, "No run can be confined.", f.Action
	}
	r.add(c)
}

// features are what newer kernels add to a run.
var features = []struct{ since, what string }{
	{"5.12", "id-mapped mounts: targets that only their owner may read are handed over without a copy"},
	{"5.13", "Landlock: the worker shuts itself off from all files but the target's"},
	{"5.14", "cgroup.kill: all processes of a run end at once"},
}

func (r *Report) kernel() {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		r.add(Check{Name: "kernel", Status: Unknown, Detail: "the kernel does not say what it is"})
		return
	}
	release := unix.ByteSliceToString(u.Release[:])
	c := Check{Name: "kernel", Status: OK, Detail: release}
	var missing []string
	for _, f := range features {
		if have, ok := parseVersion(release); ok && compareVersions(have, mustVersion(f.since)) < 0 {
			missing = append(missing, f.what+" (since "+f.since+")")
		}
	}
	if missing != nil {
		c.Status, c.Cost, c.Remedy = Warning, "Not there: "+strings.Join(missing, "; ")+".", "Run a newer kernel."
	}
	r.add(c)
}

func (r *Report) cgroups() {
	host := cgroup.Detect()
	c := Check{Name: "cgroups", Status: OK, Detail: string(host.Mode)}
	for _, f := range r.Drivers {
		if f.Available && f.Driver == orchestrator.DriverDocker {
			c.Detail += ", the engine's driver is " + f.CgroupDriver
		}
	}
	if host.Ceiling > 0 {
		c.Detail += ", " + report.Size(host.Ceiling) + " for all runs of this host"
	}
	if !host.Usable {
		c.Status, c.Detail = Warning, c.Detail+"; "+host.Reason
		c.Cost = "Limits are on the engine's own cgroup: what a run used and that nothing of it is left is the engine's word."
		c.Remedy = host.Action
	}
	r.add(c)
}

// privileges tells what runs of this user cannot prove here.
func (r *Report) privileges() {
	who := "ordinary user"
	if os.Geteuid() == 0 {
		who = "root"
	}
	for _, f := range r.Drivers {
		if f.Driver != r.Driver {
			continue
		}
		if len(f.Missing) == 0 {
			r.add(Check{Name: "privileges", Status: OK, Detail: who + ": every control can be proved"})
			return
		}
		r.add(Check{Name: "privileges", Status: Warning, Detail: who, Cost: strings.Join(f.Missing, " "),
			Remedy: "Nothing has to be done: runs work, and their receipts name what could not be proved. As root on a local engine everything can."})
	}
}

func (r *Report) advisories(ctx context.Context) {
	r.Advisories = judge(ctx, r.Drivers)
	c := Check{Name: "published escapes", Status: OK, Detail: "none known in the versions that run here"}
	var affected, unknown []string
	for _, a := range r.Advisories {
		switch a.Verdict {
		case Affected:
			affected = append(affected, a.ID+" ("+a.Component+" "+a.Installed+")")
		case Undecided:
			unknown = append(unknown, a.ID+" ("+a.Component+" "+a.Installed+")")
		}
	}
	if affected != nil || unknown != nil {
		c.Status, c.Detail = Unknown, ""
		if affected != nil {
			c.Status, c.Detail = Warning, "affected: "+strings.Join(affected, ", ")+". "
		}
		if unknown != nil {
			c.Detail += "not known whether fixed here: " + strings.Join(unknown, ", ") + "."
		}
		c.Cost = "A target that breaks the worker could try to leave its container by one of them; see the advisories for what stands against each."
		c.Remedy = "Install the distribution's security updates, or a newer runc, containerd or engine."
	}
	r.add(c)
}

func (r *Report) images(ctx context.Context, h *orchestrator.Host) error {
	infos, err := h.Images(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		f := fault.From(err)
		r.add(Check{Name: "images", Status: Unknown, Detail: f.Message, Remedy: f.Action})
		return nil
	}
	r.Images = infos
	var parts []string
	for _, i := range infos {
		state := "made at the first run"
		if i.Unpacked || i.InEngine != nil && *i.InEngine {
			state = "ready"
		}
		parts = append(parts, i.Reference+" "+state)
	}
	r.add(Check{Name: "images", Status: OK, Detail: strings.Join(parts, ", ")})
	return nil
}

func (r *Report) store(ctx context.Context, h *orchestrator.Host) {
	st, err := h.Store()
	var usage store.Report
	if err == nil {
		usage, err = st.GC(ctx, true)
	}
	if err != nil {
		f := fault.From(err)
		r.add(Check{Name: "store", Status: Failed, Detail: f.Message, Cost: "Evidence cannot be kept, so nothing can be analysed.", Remedy: f.Action})
		return
	}
	r.Store = &usage
	r.add(Check{Name: "store", Status: OK, Detail: fmt.Sprintf("%s: %s of at most %s, %s free on its file system",
		h.StateDir(), report.Size(usage.Before), report.Size(usage.Ceiling), report.Size(usage.Free))})
}

// leastSpace is what a run keeps at the least beside its image: the result of a large archive, written once and kept
// once. What runs need in memory is no matter of this directory.
const leastSpace = 128 << 20

// stateDirectory checks what every run asks of the state directory before it begins.
func (r *Report) stateDirectory(h *orchestrator.Host) {
	c := Check{Name: "state directory", Status: OK, Detail: h.StateDir()}
	need := int64(leastSpace)
	for _, i := range r.Images {
		need += i.Size
	}
	if err := journal.Usable(h.StateDir()); err != nil {
		f := fault.From(err)
		c.Status, c.Detail, c.Cost, c.Remedy = Failed, f.Message, "Every run would be refused.", f.Action
	} else if r.Store != nil && r.Store.Free < need {
		c.Status, c.Detail = Warning, fmt.Sprintf("%s: %s free on its file system", h.StateDir(), report.Size(r.Store.Free))
		c.Cost = fmt.Sprintf("An image and a large result take %s: runs may end for lack of space.", report.Size(need))
		c.Remedy = "Free some space there, run rea gc, or set " + journal.Setting + " to a directory on another file system."
	}
	r.add(c)
}

// leftovers tells what dead processes left.
func (r *Report) leftovers(h *orchestrator.Host) {
	owners, err := h.Owners()
	if err != nil {
		f := fault.From(err)
		r.add(Check{Name: "leftovers", Status: Unknown, Detail: f.Message, Remedy: f.Action})
		return
	}
	dead, things := 0, 0
	damaged := []string{}
	for _, o := range owners {
		if o.Problem != "" && !o.Foreign {
			damaged = append(damaged, o.Owner)
		}
		if !o.Alive && !o.Foreign && len(o.Entries) > 0 {
			dead++
			things += len(o.Entries)
		}
	}
	if len(damaged) > 0 {
		r.add(Check{Name: "journals", Status: Warning, Detail: "damaged: " + strings.Join(damaged, ", "),
			Cost: "What the damaged lines named may be left on this host.", Remedy: "Run rea sandbox sweep, which searches the host for it; rea sandbox list says what is damaged."})
	}
	if dead == 0 {
		r.add(Check{Name: "leftovers", Status: OK, Detail: "nothing of dead processes"})
		return
	}
	r.add(Check{Name: "leftovers", Status: Warning, Detail: fmt.Sprintf("%d resources of %d dead processes", things, dead),
		Cost: "They take memory and disk.", Remedy: "Run rea sandbox sweep; the next run does it too."})
}

// target applies the rule by which open_binary admits a target.
func (r *Report) target(path string) {
	c := Check{Name: "target", Status: OK, Detail: path}
	err := session.AdmitTarget(path)
	if err == nil {
		err = readable(path)
	}
	if err != nil {
		f := fault.From(err)
		c.Status, c.Detail, c.Remedy = Failed, f.Message, f.Action
		c.Cost = "It cannot be opened as a target."
	}
	r.add(c)
}

// readable tries whether this user may read a target; nothing is read.
func readable(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err == nil {
		return unix.Close(fd)
	}
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		return fault.New(fault.AccessDenied, fmt.Sprintf("%s may not be read by this user.", path), "Give this user read access to it.").
			With("path", strings.ToValidUTF8(path, "\uFFFD")).Because(err)
	}
	return fault.New(fault.TargetUnavailable, fmt.Sprintf("%s cannot be opened.", path), "Name a file or directory that is there.").
		With("path", strings.ToValidUTF8(path, "\uFFFD")).Because(err)
}
