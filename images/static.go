package images

import (
	"archive/tar"
	"encoding/json"
	"io"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/opencontainers/image-spec/specs-go"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"rea/sandbox"
)

// StaticName is the name of the image that is the worker alone.
const StaticName = "static"

// LabelImage is the label of an image of ours; its value is the image's name. Collection of old images goes by it.
const LabelImage = sandbox.Prefix + ".image"

// epoch is the time of everything in an image: the digest must depend on content alone.
var epoch = time.Unix(0, 0).UTC()

// entry is one file or directory of a root file system, owned by uid 0 and gid 0.
type entry struct {
	path string // relative, without a trailing slash
	mode int64  // permission bits, with 0o1000 for sticky
	dir  bool
}

// skeleton is the static image without the worker: what a container of it needs as mount points. The root is
// read-only in a run, so what is not here cannot be mounted; what follows below /target differs from run to run, and
// the driver or its runtime makes it. /evidence may be looked at and not passed through, so that a run whose volume was
// not mounted fails at its first file and not silently: newer runtimes open the place of a mount, and in a user
// namespace they are root over nothing of the image. /tmp is open to all because old runtimes give a tmpfs the mode of the directory below it.
var skeleton = []entry{
	{"dev", 0o755, true},
	{"etc", 0o755, true},
	{"etc/hostname", 0o644, false},
	{"etc/hosts", 0o644, false},
	{"etc/resolv.conf", 0o644, false},
	{strings.TrimPrefix(sandbox.EvidencePath, "/"), 0o444, true},
	{"proc", 0o555, true},
	{"rea", 0o755, true},
	{"sys", 0o555, true},
	{strings.TrimPrefix(sandbox.TargetDir, "/"), 0o755, true},
	{strings.TrimPrefix(sandbox.ScratchPath, "/"), 0o1777, true},
}

// workerEntry is the worker's place. It is the last entry of the layer, so that the layer is its headers followed by
// the binary, and the binary is never copied.
var workerEntry = entry{strings.TrimPrefix(sandbox.WorkerPath, "/"), 0o755, false}

// Image is an assembled image. Its fields and bytes do not change; its methods may be called concurrently.
type Image struct {
	Name         string // "static"
	Reference    string // "rea/static:<first twelve hex digits of Digest>", for people and so that a prune leaves it
	Digest       string // "sha256:<hex>" of the config: the image's ID in an engine, and what runs are started by
	Manifest     string // "sha256:<hex>" of the manifest: its ID in an engine that keeps images in containerd
	Size         int64  // bytes of the uncompressed layer
	WorkerSHA256 string // hex

	config, manifest []byte
	layer            tarball
	diffID           digest // of the layer
}

var assembleStatic = sync.OnceValues(func() (*Image, error) {
	binary, digest, err := Worker()
	if err != nil {
		return nil, err
	}
	return Assemble(StaticName, binary, digest)
})

// Static returns the static image of the embedded worker, assembled at the first call. Its error is that of Worker.
func Static() (*Image, error) { return assembleStatic() }

// Assemble makes an image that is one worker binary and the mount points of a run; workerSHA256 is its digest in hex.
// The binary is kept, not copied.
func Assemble(name string, worker []byte, workerSHA256 string) (*Image, error) {
	layer, err := newTarball(skeleton, workerEntry, worker)
	if err != nil {
		return nil, err
	}
	i := &Image{Name: name, Size: layer.size(), WorkerSHA256: workerSHA256, layer: layer}
	if i.diffID, err = layer.digest(); err != nil {
		return nil, err
	}
	if i.config, err = json.Marshal(imageConfig(name, workerSHA256, i.diffID)); err != nil {
		return nil, err
	}
	i.manifest, err = json.Marshal(v1.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2},
		MediaType: v1.MediaTypeImageManifest,
		Config:    descriptor(v1.MediaTypeImageConfig, digestOf(i.config), int64(len(i.config))),
		Layers:    []v1.Descriptor{descriptor(v1.MediaTypeImageLayer, i.diffID, layer.size())},
	})
	if err != nil {
		return nil, err
	}
	i.Digest, i.Manifest = digestOf(i.config).String(), digestOf(i.manifest).String()
	i.Reference = sandbox.Prefix + "/" + name + ":" + strings.TrimPrefix(i.Digest, "sha256:")[:12]
	return i, nil
}

// Sandbox describes the image for a sandbox.Spec. rootfs is what RootFS returned, or "" where no OCI runtime needs it.
func (i *Image) Sandbox(rootfs string) sandbox.Image {
	return sandbox.Image{
		Name: i.Reference, Digest: i.Digest, Manifest: i.Manifest,
		RootFS: rootfs, Archive: i.Archive, HasWorker: true,
	}
}

// Archive returns the image as an archive for `docker load`: the layout that engines since version 25 write
// themselves, an OCI image layout with the older manifest.json beside it, so that old and new engines take it.
func (i *Image) Archive() (io.ReadCloser, error) {
	outer, err := i.outer()
	if err != nil {
		return nil, err
	}
	return io.NopCloser(outer), nil
}

// imageConfig is the OCI image configuration: no volume, no environment, no health check; a run sets the rest anyway.
func imageConfig(name, workerSHA256 string, diffID digest) v1.Image {
	uid := strconv.Itoa(sandbox.RunUID)
	created := epoch
	return v1.Image{
		Created:  &created,
		Platform: v1.Platform{Architecture: runtime.GOARCH, OS: "linux"},
		Config: v1.ImageConfig{
			User:       uid + ":" + uid,
			Entrypoint: []string{sandbox.WorkerPath},
			WorkingDir: "/",
			Labels:     map[string]string{LabelImage: name, sandbox.Prefix + ".worker": workerSHA256},
		},
		RootFS:  v1.RootFS{Type: "layers", DiffIDs: []digest{diffID}},
		History: []v1.History{{Created: &created, CreatedBy: "rea"}},
	}
}

// header gives the entry's tar header: uid and gid 0, the epoch, nothing else, so that equal content is equal bytes.
func (e entry) header(size int64) *tar.Header {
	h := &tar.Header{Name: e.path, Mode: e.mode, Size: size, ModTime: epoch, Typeflag: tar.TypeReg, Format: tar.FormatUSTAR}
	if e.dir {
		h.Name, h.Typeflag = e.path+"/", tar.TypeDir
	}
	return h
}
