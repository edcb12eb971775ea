package docker

import (
	"context"
	"path/filepath"
	"strings"
	"sync"

	"github.com/docker/docker/client"

	"rea/evidence/fault"
	"rea/sandbox"
)

// driverName is this driver's name in settings, proofs and errors.
const driverName = "docker"

// Options configures a Driver. The zero value talks to the engine at its usual socket.
type Options struct {
	// Host is the engine's address in the form of DOCKER_HOST; "" is the usual socket. Only unix sockets are served.
	Host string
	// Ordinary makes the driver behave as it does for a user who may talk to the engine and nothing more, even where
	// this process could mount and make cgroups.
	Ordinary bool
}

// Driver runs sandboxes in one Docker Engine. It implements sandbox.Runtime; its methods may be called concurrently.
type Driver struct {
	cli      *client.Client
	socket   string
	ordinary bool

	mu     sync.Mutex
	engine *engine // what the engine said of itself; nil before the first contact and after contact was lost

	loading sync.Mutex // one image load at a time: parallel runs of a new image load it once
}

var _ sandbox.Runtime = (*Driver)(nil)

// New returns a driver. It does not talk to the engine: a missing engine is an error of the first call that needs it.
// An address that is not a unix socket is configuration_invalid.
func New(o Options) (*Driver, error) {
	host := o.Host
	if host == "" {
		host = client.DefaultDockerHost
	}
	path, local := strings.CutPrefix(host, "unix://")
	if !local || !filepath.IsAbs(path) {
		return nil, fault.New(fault.ConfigurationInvalid,
			"The container engine's address is not a local unix socket. A remote engine cannot be used: a target on this machine cannot be bound into a container on another.",
			"Unset DOCKER_HOST, or set it to unix:// followed by the absolute path of a local engine's socket.").
			With("settings", []map[string]string{{"setting": "DOCKER_HOST", "constraint": "unix:// and an absolute path"}})
	}
	cli, err := client.NewClientWithOpts(client.WithHost(host), client.WithAPIVersionNegotiation())
	if err != nil {
		return nil, fault.From(err)
	}
	return &Driver{cli: cli, socket: path, ordinary: o.Ordinary}, nil
}

// Name is "docker".
func (d *Driver) Name() string { return driverName }

// Close releases the connections to the engine. Sandboxes must have been destroyed.
func (d *Driver) Close() error { return d.cli.Close() }

// contact returns what the engine says of itself, asked once while contact holds.
func (d *Driver) contact(ctx context.Context) (*engine, error) {
	d.mu.Lock()
	known := d.engine
	d.mu.Unlock()
	if known != nil {
		return known, nil
	}
	e, err := d.ask(ctx)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.engine = e
	return e, nil
}
