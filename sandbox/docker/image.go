package docker

import (
	"context"
	"fmt"
	"io"

	"github.com/docker/docker/api/types/image"

	"rea/evidence/fault"
	"rea/sandbox"
)

// HasImage reports whether the engine holds the image under one of its digests.
func (d *Driver) HasImage(ctx context.Context, i sandbox.Image) (bool, error) {
	found, err := d.findImage(ctx, i)
	return found != nil, err
}

// LoadImage loads the image if the engine does not hold it. It never pulls.
func (d *Driver) LoadImage(ctx context.Context, i sandbox.Image) error {
	_, err := d.ensureImage(ctx, i)
	return err
}

// findImage looks an image up by digest, never by a name that could be moved: the engine knows it by the digest of
// its configuration, or, where it keeps images in containerd, by that of its manifest. It returns nil where the image
// is not there.
func (d *Driver) findImage(ctx context.Context, i sandbox.Image) (*image.InspectResponse, error) {
	for _, digest := range []string{i.Digest, i.Manifest} {
		if digest == "" {
			continue
		}
		found, err := d.cli.ImageInspect(ctx, digest)
		if isGone(err) {
			continue
		}
		if err != nil {
			return nil, d.failed(ctx, err, "look for the image "+i.Name)
		}
		if found.ID != digest {
			return nil, fault.New(fault.EvidenceIntegrityMismatch,
				fmt.Sprintf("The container engine answers for the image %s with another digest.", i.Name),
				"Remove that image from the engine and repeat the call.")
		}
		return &found, nil
	}
	return nil, nil
}

// ensureImage returns what the engine holds under the image's digest, after loading it where it was absent. An image
// whose own settings would give a run something that it did not ask for is refused.
func (d *Driver) ensureImage(ctx context.Context, i sandbox.Image) (*image.InspectResponse, error) {
	found, err := d.findImage(ctx, i)
	if err != nil {
		return nil, err
	}
	if found == nil {
		if found, err = d.loadImage(ctx, i); err != nil {
			return nil, err
		}
	}
	if found.Config == nil || len(found.Config.Volumes) > 0 || len(found.Config.OnBuild) > 0 {
		return nil, unavailable("image without volumes",
			fmt.Sprintf("The image %s declares volumes or build triggers of its own.", i.Name),
			"Use an image that rea has built: rea images build.").With("image", i.Name)
	}
	return found, nil
}

func (d *Driver) loadImage(ctx context.Context, i sandbox.Image) (*image.InspectResponse, error) {
	d.loading.Lock()
	defer d.loading.Unlock()
	if found, err := d.findImage(ctx, i); err != nil || found != nil {
		return found, err
	}
	if i.Archive == nil {
		return nil, unavailable("image", fmt.Sprintf("The container engine does not hold the image %s.", i.Name),
			"Build it: rea images build.").With("image", i.Name)
	}
	if err := d.load(ctx, i); err != nil {
		return nil, err
	}
	found, err := d.findImage(ctx, i)
	if err != nil {
		return nil, err
	}
	if found == nil {
		return nil, fault.New(fault.EvidenceIntegrityMismatch,
			fmt.Sprintf("The container engine loaded the image %s under another digest than it has.", i.Name),
			"Report this with the output of rea doctor; the oci driver needs no engine.")
	}
	return found, nil
}

// maxLoadReply bounds what is read of the engine's report of a load.
const maxLoadReply = 1 << 20

func (d *Driver) load(ctx context.Context, i sandbox.Image) error {
	archive, err := i.Archive()
	if err != nil {
		return fault.From(err)
	}
	defer archive.Close()
	reply, err := d.cli.ImageLoad(ctx, archive)
	if err != nil {
		return d.failed(ctx, err, "load the image "+i.Name)
	}
	defer reply.Body.Close()
	// The report is progress for people; reading it to its end is what waits for the load.
	if _, err := io.Copy(io.Discard, io.LimitReader(reply.Body, maxLoadReply)); err != nil {
		return d.failed(ctx, err, "load the image "+i.Name)
	}
	return nil
}
