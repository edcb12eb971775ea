package docker

import (
	"context"
	"errors"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"

	"rea/sandbox"
	"rea/sandbox/journal"
)

// End kills the containers that these journal entries of one owner name, and removes nothing: it is for a keeper,
// whose core has died and whose sweep comes later. A container that carries other labels is left alone, and one that
// is not there is no error.
func (d *Driver) End(ctx context.Context, owner string, entries []journal.Entry) error {
	r := removal{d: d, owner: owner}
	var errs []error
	for _, e := range entries {
		if e.Kind != sandbox.KindContainer || e.Detail[sandbox.DriverKey] != driverName {
			continue
		}
		got, err := d.cli.ContainerInspect(ctx, e.Name)
		if isGone(err) || err == nil && (got.Config == nil || !r.carries(got.Config.Labels, e)) {
			continue
		}
		if err == nil {
			err = d.endContainer(ctx, got.ID)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Labelled returns the runs of one owner of a state directory whose containers the engine holds, with the containers'
// names: for an owner whose journal is damaged. A container whose labels do not name a run is not one of ours.
func (d *Driver) Labelled(ctx context.Context, owner, state string) (map[string]string, error) {
	list, err := d.cli.ContainerList(ctx, container.ListOptions{All: true, Filters: filters.NewArgs(
		filters.Arg("label", sandbox.LabelOwner+"="+owner), filters.Arg("label", sandbox.LabelState+"="+state))})
	if err != nil {
		return nil, d.failed(ctx, err, "look for the containers of a dead process")
	}
	names := map[string]string{}
	for _, c := range list {
		if run := c.Labels[sandbox.LabelRun]; sandbox.ValidID(run) && len(c.Names) > 0 {
			names[run] = strings.TrimPrefix(c.Names[0], "/")
		}
	}
	return names, nil
}
