package images

import (
	"context"
	"os"

	"rea/evidence/fault"
	"rea/sandbox"
)

// Engine is a container engine that images are loaded into; the docker driver is one.
type Engine interface {
	// HasImage reports whether the engine holds the image under its digest.
	HasImage(ctx context.Context, i sandbox.Image) (bool, error)
	// LoadImage loads the image if the engine does not hold it.
	LoadImage(ctx context.Context, i sandbox.Image) error
}

// Info is one image for people and for `rea images list`.
type Info struct {
	Name         string `json:"name"`
	Reference    string `json:"reference"`
	Digest       string `json:"digest"`
	Size         int64  `json:"size"` // bytes, uncompressed
	WorkerSHA256 string `json:"worker_sha256"`
	InEngine     *bool  `json:"in_engine"` // null where no engine was asked
	Unpacked     bool   `json:"unpacked"`  // in the state directory, for OCI runtimes
}

// Names lists the images that this build can make, sorted.
func Names() []string { return []string{StaticName} }

// Get returns the image of that name. An unknown name is invalid_request.
func Get(name string) (*Image, error) {
	if name == StaticName {
		return Static()
	}
	return nil, fault.New(fault.InvalidRequest, "This build has no image of that name.",
		"Use a name that rea images list shows.").With("known", Names())
}

// List says of every image where it is present. engine may be nil: then presence in an engine stays unknown.
func List(ctx context.Context, engine Engine, stateDir string) ([]Info, error) {
	var list []Info
	for _, name := range Names() {
		image, err := Get(name)
		if err != nil {
			return nil, err
		}
		info, err := image.info(ctx, engine, stateDir)
		if err != nil {
			return nil, err
		}
		list = append(list, info)
	}
	return list, nil
}

// Build makes an image ready to run before its first run: loaded into the engine where there is one (engine may be
// nil), and unpacked where unpack says so, as OCI runtimes need it.
func Build(ctx context.Context, name string, engine Engine, stateDir string, unpack bool) (Info, error) {
	image, err := Get(name)
	if err != nil {
		return Info{}, err
	}
	if err := image.build(ctx, engine, stateDir, unpack); err != nil {
		return Info{}, err
	}
	return image.info(ctx, engine, stateDir)
}

func (i *Image) build(ctx context.Context, engine Engine, stateDir string, unpack bool) error {
	if engine != nil {
		if err := engine.LoadImage(ctx, i.Sandbox("")); err != nil {
			return err
		}
	}
	if !unpack {
		return nil
	}
	_, err := i.RootFS(stateDir)
	return err
}

func (i *Image) info(ctx context.Context, engine Engine, stateDir string) (Info, error) {
	info := Info{Name: i.Name, Reference: i.Reference, Digest: i.Digest, Size: i.Size, WorkerSHA256: i.WorkerSHA256}
	if _, err := os.Lstat(i.home(stateDir)); err == nil {
		info.Unpacked = i.verify(i.home(stateDir)) == nil
	}
	if engine == nil {
		return info, nil
	}
	present, err := engine.HasImage(ctx, i.Sandbox(""))
	if err != nil {
		return Info{}, err
	}
	info.InEngine = &present
	return info, nil
}
