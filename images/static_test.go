package images

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"rea/evidence/fault"
)

// program stands for a worker; its length is no multiple of a tar block, so that padding is exercised.
var program = bytes.Repeat([]byte("worker!"), 1000)

func sum(data []byte) string {
	s := sha256.Sum256(data)
	return hex.EncodeToString(s[:])
}

func assemble(t *testing.T, worker []byte) *Image {
	t.Helper()
	i, err := Assemble(StaticName, worker, sum(worker))
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func archive(t *testing.T, i *Image) []byte {
	t.Helper()
	r, err := i.Archive()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// untar reads a tar with the standard library's reader, which demands padding, order and the end of the file.
func untar(t *testing.T, data []byte) (map[string][]byte, map[string]tar.Header) {
	t.Helper()
	files, headers := map[string][]byte{}, map[string]tar.Header{}
	r := tar.NewReader(bytes.NewReader(data))
	for {
		h, err := r.Next()
		if err == io.EOF {
			return files, headers
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name], headers[h.Name] = content, *h
	}
}

func TestAssembleIsDeterministic(t *testing.T) {
	a, b := assemble(t, program), assemble(t, bytes.Clone(program))
	if a.Digest != b.Digest || a.Manifest != b.Manifest {
		t.Errorf("equal workers gave %s and %s", a.Digest, b.Digest)
	}
	if !bytes.Equal(archive(t, a), archive(t, b)) || !bytes.Equal(archive(t, a), archive(t, a)) {
		t.Error("equal images gave different archives")
	}
	if c := assemble(t, append(bytes.Clone(program), 1)); c.Digest == a.Digest {
		t.Error("another worker gave the same digest")
	}
}

// TestArchive checks the archive against its two specifications with a tar reader and digests of its own: every blob
// is named by its digest, and config, manifest, index and manifest.json refer to each other.
func TestArchive(t *testing.T) {
	image := assemble(t, program)
	files, _ := untar(t, archive(t, image))
	var legacy []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	var index struct {
		Manifests []struct {
			Digest      string
			Annotations map[string]string
		}
	}
	var manifest struct {
		Config struct{ Digest string }
		Layers []struct {
			Digest string
			Size   int64
		}
	}
	var config struct {
		Created string
		Config  map[string]any
		RootFS  struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	decode := func(name string, into any) {
		t.Helper()
		if err := json.Unmarshal(files[name], into); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	decode("manifest.json", &legacy)
	decode("index.json", &index)
	decode("blobs/sha256/"+index.Manifests[0].Digest[7:], &manifest)
	decode(legacy[0].Config, &config)
	layer := files[legacy[0].Layers[0]]
	for name, content := range files {
		if dir, base := filepath.Split(name); dir == "blobs/sha256/" && base != sum(content) {
			t.Errorf("%s has digest %s", name, sum(content))
		}
	}
	got := []string{
		legacy[0].Config, legacy[0].Layers[0], legacy[0].RepoTags[0], index.Manifests[0].Digest,
		manifest.Config.Digest, manifest.Layers[0].Digest, config.RootFS.DiffIDs[0], config.Created,
	}
	want := []string{
		"blobs/sha256/" + image.Digest[7:], "blobs/sha256/" + sum(layer), "rea/static:" + image.Digest[7:19], image.Manifest,
		image.Digest, "sha256:" + sum(layer), "sha256:" + sum(layer), "1970-01-01T00:00:00Z",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("references (-want +got):\n%s", diff)
	}
	if manifest.Layers[0].Size != int64(len(layer)) || image.Size != int64(len(layer)) {
		t.Errorf("layer of %d bytes is said to have %d and %d", len(layer), manifest.Layers[0].Size, image.Size)
	}
	for _, forbidden := range []string{"Volumes", "Env", "Healthcheck", "OnBuild", "ExposedPorts"} {
		if _, set := config.Config[forbidden]; set {
			t.Errorf("the image sets %s", forbidden)
		}
	}
}

// TestLayer holds the layer against a list written by hand: what a run mounts over, and nothing else.
func TestLayer(t *testing.T) {
	image := assemble(t, program)
	data, err := io.ReadAll(image.layer.reader())
	if err != nil {
		t.Fatal(err)
	}
	files, headers := untar(t, data)
	got := map[string]int64{}
	for name, h := range headers {
		got[name] = h.Mode
		if h.Uid != 0 || h.Gid != 0 || h.ModTime.Unix() != 0 || h.Uname != "" {
			t.Errorf("%s: uid %d gid %d time %v", name, h.Uid, h.Gid, h.ModTime)
		}
	}
	want := map[string]int64{
		"dev/": 0o755, "etc/": 0o755, "etc/hostname": 0o644, "etc/hosts": 0o644, "etc/resolv.conf": 0o644,
		"evidence/": 0o444, "proc/": 0o555, "rea/": 0o755, "rea/rea-worker": 0o755, "sys/": 0o555, "target/": 0o755, "tmp/": 0o1777,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("layer (-want +got):\n%s", diff)
	}
	if !bytes.Equal(files["rea/rea-worker"], program) {
		t.Error("the layer's worker is not the worker")
	}
}

func TestRootFS(t *testing.T) {
	image := assemble(t, program)
	damage := map[string]func(root string) error{
		"nothing":        func(string) error { return nil },
		"worker bytes":   func(root string) error { return rewrite(root+"/rea/rea-worker", bytes.ToUpper(program)) },
		"worker mode":    func(root string) error { return os.Chmod(root+"/rea/rea-worker", 0o644) },
		"marker":         func(root string) error { return os.Remove(root + "/../digest") },
		"entry missing":  func(root string) error { return os.Remove(root + "/evidence") },
		"evidence open":  func(root string) error { return os.Chmod(root+"/evidence", 0o777) },
		"link for a dir": func(root string) error { return errors.Join(os.Remove(root+"/tmp"), os.Symlink("/tmp", root+"/tmp")) },
	}
	for name, harm := range damage {
		t.Run(name, func(t *testing.T) {
			state := t.TempDir()
			root, err := image.RootFS(state)
			if err != nil {
				t.Fatal(err)
			}
			if err := harm(root); err != nil {
				t.Fatal(err)
			}
			again, err := image.RootFS(state)
			if err != nil || again != root {
				t.Fatalf("second use: %q, %v", again, err)
			}
			checkRoot(t, root)
			left, err := filepath.Glob(filepath.Join(state, "images", ".unpack-*"))
			if err != nil || len(left) != 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}

// checkRoot looks at the directory with the file system's own calls.
func checkRoot(t *testing.T, root string) {
	t.Helper()
	got, err := os.ReadFile(filepath.Join(root, "rea/rea-worker"))
	if err != nil || !bytes.Equal(got, program) {
		t.Errorf("worker: %d bytes, %v", len(got), err)
	}
	for name, want := range map[string]fs.FileMode{
		"rea/rea-worker": 0o755, "evidence": fs.ModeDir | 0o444, "tmp": fs.ModeDir | fs.ModeSticky | 0o777, "target": fs.ModeDir | 0o755,
	} {
		info, err := os.Lstat(filepath.Join(root, name))
		if err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v; want %v", name, info, err, want)
		}
	}
}

func rewrite(path string, data []byte) error { return os.WriteFile(path, data, 0o755) }

func TestRootFSWithoutRoom(t *testing.T) {
	state := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(state, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := assemble(t, program).RootFS(state)
	var f *fault.Error
	if !errors.As(err, &f) || f.Code != fault.ResourceConstraint {
		t.Errorf("got %v", err)
	}
}

func TestReadWorker(t *testing.T) {
	w, err := readWorker(fstest.MapFS{workerFile: {Data: program}})
	if err != nil || w.sha256 != sum(program) {
		t.Errorf("got %s, %v", w.sha256, err)
	}
	for name, tree := range map[string]fstest.MapFS{"absent": {}, "empty": {workerFile: {}}} {
		_, err := readWorker(tree)
		var f *fault.Error
		if !errors.As(err, &f) {
			t.Fatalf("%s: %v", name, err)
		}
		want := fault.Details{"engine": nil, "image": "static", "feature": "worker"}
		if f.Code != fault.CapabilityUnavailable || !cmp.Equal(f.Details, want) {
			t.Errorf("%s: %v %v", name, f.Code, f.Details)
		}
	}
}
