package docker

import (
	"context"
	"errors"

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
