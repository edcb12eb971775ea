package orchestrator

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"rea/evidence/fault"
	"rea/sandbox"
	"rea/sandbox/cgroup"
	"rea/sandbox/journal"
	"rea/sandbox/oci"
	"rea/sandbox/staging"
)

// labeller is a driver that can be asked for the containers of an owner; the docker driver is one.
type labeller interface {
	Labelled(ctx context.Context, owner, state string) (map[string]string, error)
}

// salvage looks on the host for what a damaged journal may have named, and writes it down as this owner's: containers
// that carry its labels, and for each of its run directories the cgroup, the directory and the mounts below it. What
// the readable lines name already is not written again. The error is that of a place that could not be searched; an
// engine that does not answer is one.
func salvage(ctx context.Context, d *journal.Dead, drivers []sandbox.Runtime) error {
	containers := map[string]string{} // by run
	var unsearched error
	for _, driver := range drivers {
		l, ok := driver.(labeller)
		if !ok {
			continue
		}
		found, err := l.Labelled(ctx, d.ID(), d.StateID())
		if err != nil {
			unsearched = err
			continue
		}
		for run, name := range found {
			containers[run] = name
		}
	}
	runs, err := runDirectories(d)
	if err != nil {
		return errors.Join(unsearched, err)
	}
	for run := range containers {
		if _, known := runs[run]; !known {
			runs[run] = ""
		}
	}
	groups := cgroup.List()
	for run, dir := range runs {
		if err := salvageRun(d, run, dir, containers[run], groups); err != nil {
			return errors.Join(unsearched, err)
		}
	}
	return unsearched
}

// runDirectories finds the directories of an owner's runs, by run.
func runDirectories(d *journal.Dead) (map[string]string, error) {
	list, err := os.ReadDir(d.RunsDir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fault.New(fault.ExecutionFailure, "The run directories of a dead process cannot be listed.", "Look at the state directory.").Because(err)
	}
	runs := map[string]string{}
	for _, e := range list {
		if e.IsDir() && sandbox.ValidID(e.Name()) {
			runs[e.Name()] = filepath.Join(d.RunsDir(), e.Name())
		}
	}
	return runs, nil
}

// salvageRun writes down what is there of one run, in the order in which a run is made: the sweep goes backwards.
func salvageRun(d *journal.Dead, run, dir, container string, groups []string) error {
	driver := map[string]string{sandbox.DriverKey: DriverDocker}
	if container == "" && dir != "" && oci.Made(dir) {
		driver[sandbox.DriverKey] = DriverOCI
	}
	var errs []error
	adopt := func(kind, name string) {
		if !listed(d, run, name) {
			errs = append(errs, d.Adopt(run, kind, name, driver))
		}
	}
	if dir != "" {
		adopt(sandbox.KindRunDirectory, dir)
	}
	for _, group := range groups {
		if strings.Contains(filepath.Base(group), run) {
			adopt(sandbox.KindCgroup, group)
		}
	}
	if dir != "" {
		mounts, err := staging.Below(dir)
		errs = append(errs, err)
		for _, at := range mounts {
			adopt(sandbox.KindTargetMount, at)
		}
	}
	if container != "" {
		adopt(sandbox.KindContainer, container)
	}
	return errors.Join(errs...)
}

// listed reports whether the journal's readable lines name a resource of a run, of whatever kind.
func listed(d *journal.Dead, run, name string) bool {
	for _, e := range d.Entries() {
		if e.Run == run && e.Name == name {
			return true
		}
	}
	return false
}
