package orchestrator

import (
	"context"
	"io"

	"rea/images"
	"rea/sandbox"
	"rea/sandbox/journal"
)

// Owners lists the processes of rea that this state directory knows, alive and dead, with what each has made and not
// removed yet. It changes nothing.
func (h *Host) Owners() ([]journal.Info, error) { return journal.Owners(h.config.StateDir) }

// StateDir is the directory of store, journal and locks.
func (h *Host) StateDir() string { return h.config.StateDir }

// Images says of every image of this build where it is present.
func (h *Host) Images(ctx context.Context) ([]images.Info, error) {
	hosts, err := h.imageHosts(ctx)
	if err != nil {
		return nil, err
	}
	defer hosts.close()
	return images.List(ctx, hosts.engine, h.config.StateDir)
}

// BuildImage makes an image ready before its first run, wherever the configured drivers can run it.
func (h *Host) BuildImage(ctx context.Context, name string) (images.Info, error) {
	hosts, err := h.imageHosts(ctx)
	if err != nil {
		return images.Info{}, err
	}
	defer hosts.close()
	if hosts.engine == nil && !hosts.unpacked {
		return images.Info{}, noDriver(hosts.missing)
	}
	return images.Build(ctx, name, hosts.engine, h.config.StateDir, hosts.unpacked)
}

// imageHosts are the places that images are kept in.
type imageHosts struct {
	engine   images.Engine // nil without an engine that answers
	unpacked bool          // an OCI runtime can start an unpacked root
	missing  []sandbox.Facts
	close    func()
}

func (h *Host) imageHosts(ctx context.Context) (hosts imageHosts, err error) {
	drivers, err := h.Drivers()
	if err != nil {
		return hosts, err
	}
	hosts.close = func() { closeDrivers(drivers) }
	for _, d := range drivers {
		facts, err := d.Probe(ctx)
		if err != nil {
			hosts.close()
			return hosts, err
		}
		engine, ok := d.(images.Engine)
		switch {
		case !facts.Available:
			hosts.missing = append(hosts.missing, facts)
		case ok:
			hosts.engine = engine
		default:
			hosts.unpacked = true
		}
	}
	return hosts, nil
}

// closeDrivers lets go of the connections of drivers that no run uses.
func closeDrivers(drivers []sandbox.Runtime) {
	for _, d := range drivers {
		if c, ok := d.(io.Closer); ok {
			_ = c.Close() // idle connections: nothing is lost with them
		}
	}
}
