package images

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"rea/evidence/fault"
)

const (
	// rootDir is the unpacked root file system inside the directory of an image.
	rootDir = "rootfs"
	// markerFile holds the digest that the directory was unpacked from. It is written last.
	markerFile = "digest"
)

// RootFS returns the directory that holds the image's root file system, <stateDir>/images/<hex>/rootfs, and unpacks
// it there at the first use. Every run of the image shares the directory, read-only. What is already there is checked
// against the image, every entry and the worker's digest, and replaced if it differs. Several processes may call it
// at once: an unpacked image appears whole, by one rename.
func (i *Image) RootFS(stateDir string) (string, error) {
	home := i.home(stateDir)
	root := filepath.Join(home, rootDir)
	if i.verify(home) == nil {
		return root, nil
	}
	if err := i.unpack(home); err != nil {
		return "", fault.New(fault.ResourceConstraint,
			fmt.Sprintf("The image %s could not be unpacked into the state directory.", i.Reference),
			"Free space there, or set REA_STATE_DIR to a directory that this user may write.").Because(err)
	}
	if err := i.verify(home); err != nil {
		return "", fault.New(fault.ExecutionFailure,
			fmt.Sprintf("The unpacked image %s does not match its digest.", i.Reference),
			"Remove the images folder of the state directory and repeat the call.").Because(err)
	}
	return root, nil
}

// home is the image's directory below the state directory.
func (i *Image) home(stateDir string) string {
	return filepath.Join(stateDir, "images", strings.TrimPrefix(i.Digest, "sha256:"))
}

// unpack writes the image beside its final place and moves it there. What stands there already failed verification,
// unless another process has just put it there: then that one is as good as ours.
func (i *Image) unpack(home string) (err error) {
	parent := filepath.Dir(home)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return err
	}
	temp, err := os.MkdirTemp(parent, ".unpack-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
	if err := i.write(temp); err != nil {
		return err
	}
	if err := os.Chmod(temp, 0o755); err != nil {
		return err
	}
	if err := os.Rename(temp, home); err == nil || i.verify(home) == nil {
		return nil
	}
	if err := os.RemoveAll(home); err != nil {
		return err
	}
	return os.Rename(temp, home)
}

// write fills an empty directory: the root file system, then the marker.
func (i *Image) write(home string) error {
	root := filepath.Join(home, rootDir)
	if err := os.Mkdir(root, 0o755); err != nil {
		return err
	}
	for _, e := range skeleton {
		if err := e.write(root, blob(nil)); err != nil {
			return err
		}
	}
	if err := workerEntry.write(root, i.layer.body); err != nil {
		return err
	}
	return entry{path: markerFile, mode: 0o444}.write(home, blob(i.Digest))
}

// write makes the entry below root. Files are synced: a crash must not leave an empty worker behind a whole name.
func (e entry) write(root string, data content) (err error) {
	path := filepath.Join(root, e.path)
	if e.dir {
		if err := os.Mkdir(path, 0o700); err != nil {
			return err
		}
		return os.Chmod(path, e.fileMode())
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := io.Copy(f, data.reader()); err != nil {
		return err
	}
	if err := f.Chmod(e.fileMode()); err != nil {
		return err
	}
	if data.size() == 0 {
		return nil
	}
	return f.Sync()
}

// fileMode gives the entry's permissions as package os writes them.
func (e entry) fileMode() fs.FileMode {
	mode := fs.FileMode(e.mode) & fs.ModePerm
	if e.mode&0o1000 != 0 {
		mode |= fs.ModeSticky
	}
	return mode
}

// verify reports how the directory differs from the image, nil if it does not.
func (i *Image) verify(home string) error {
	marker, err := os.ReadFile(filepath.Join(home, markerFile))
	if err != nil {
		return err
	}
	if string(marker) != i.Digest {
		return fmt.Errorf("marker of another image: %q", marker)
	}
	root := filepath.Join(home, rootDir)
	for _, e := range skeleton {
		if err := e.verify(root, 0); err != nil {
			return err
		}
	}
	if err := workerEntry.verify(root, i.layer.body.size()); err != nil {
		return err
	}
	return i.verifyWorker(filepath.Join(root, workerEntry.path))
}

func (e entry) verify(root string, size int64) error {
	info, err := os.Lstat(filepath.Join(root, e.path))
	if err != nil {
		return err
	}
	want := e.fileMode()
	if e.dir {
		want |= fs.ModeDir
	}
	if info.Mode() != want || (!e.dir && info.Size() != size) {
		return fmt.Errorf("%s: mode %v size %d, want mode %v size %d", e.path, info.Mode(), info.Size(), want, size)
	}
	return nil
}

func (i *Image) verifyWorker(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, io.LimitReader(f, i.layer.body.size()+1)); err != nil {
		return err
	}
	if sum := hex.EncodeToString(h.Sum(nil)); sum != i.WorkerSHA256 {
		return fmt.Errorf("worker has digest %s, want %s", sum, i.WorkerSHA256)
	}
	return nil
}
