package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/client"

	"rea/evidence/fault"
)

// failed turns an error of the engine's client into one of the taxonomy; doing completes "could not …". It tells an
// engine that is not there from one that went away, and both from one that answered and refused.
func (d *Driver) failed(ctx context.Context, err error, doing string) error {
	var f *fault.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &f):
		return f
	case ctx.Err() != nil:
		return fault.From(context.Cause(ctx))
	case client.IsErrConnectionFailed(err) || isBroken(err):
		return d.unreachable(err)
	}
	return fault.New(fault.ProviderUnavailable,
		fmt.Sprintf("The container engine could not %s.", doing),
		"Look at the engine's log (journalctl -u docker) and at rea doctor, then repeat the call.").Because(err)
}

// unreachable says why the engine does not answer and what to do about it.
func (d *Driver) unreachable(err error) error {
	d.mu.Lock()
	known := d.engine != nil
	d.engine = nil // it may come back as another one
	d.mu.Unlock()
	if known {
		return fault.New(fault.ProviderUnavailable, "The container engine went away.",
			"Start it again (systemctl start docker), then repeat the call.").Because(err)
	}
	message, action := d.absence(err)
	return fault.New(fault.CapabilityUnavailable, message, action).Because(err).
		WithAll(fault.Details{"engine": driverName, "image": nil, "feature": "engine"})
}

// absence explains an engine that was never reached, from its socket.
func (d *Driver) absence(err error) (message, action string) {
	switch _, stat := os.Stat(d.socket); {
	case errors.Is(err, syscall.EACCES) || errors.Is(err, fs.ErrPermission) || errors.Is(stat, fs.ErrPermission):
		return "This user may not talk to the container engine.",
			"Add the user to the engine's group (usermod -aG docker USER) and log in again; its members are as powerful as root."
	case errors.Is(stat, fs.ErrNotExist):
		return "No container engine was found at " + d.socket + ".",
			"Install one (Debian and Ubuntu: apt-get install docker.io) and start it (systemctl start docker)."
	}
	return "The container engine at " + d.socket + " does not answer.",
		"Start it (systemctl start docker) and repeat the call."
}

// isBroken reports a connection that ended before the answer.
func isBroken(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.ECONNREFUSED) ||
		errors.Is(err, io.EOF)
}

// unavailable is the error for something that the engine lacks.
func unavailable(feature, message, action string) *fault.Error {
	return fault.New(fault.CapabilityUnavailable, message, action).
		WithAll(fault.Details{"engine": driverName, "image": nil, "feature": feature})
}

func isGone(err error) bool { return errdefs.IsNotFound(err) }
