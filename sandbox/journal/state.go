package journal

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"rea/evidence/fault"
)

// Setting is the configuration variable that names the state directory.
const Setting = "REA_STATE_DIR"

const (
	ownersDir   = "owners"
	runsDir     = "runs"
	idName      = "id"
	ownerName   = "owner.json"
	lockName    = "lock"
	journalName = "journal.ndjson"
)

// maxSmallFile bounds owner.json and the state id, which are a few hundred bytes.
const maxSmallFile = 4 << 10

// idForm is the form of owner, run and state ids.
var idForm = regexp.MustCompile(`^[0-9a-f]{16}$`)

// remote lists file systems whose locks are not a proof of life on this machine: they are shared with other
// machines, emulated in user space, or silently local. Magic numbers are those of statfs(2).
var remote = map[int64]string{
	unix.NFS_SUPER_MAGIC:  "NFS",
	unix.CIFS_SUPER_MAGIC: "CIFS",
	unix.SMB_SUPER_MAGIC:  "SMB",
	unix.SMB2_SUPER_MAGIC: "SMB",
	unix.FUSE_SUPER_MAGIC: "FUSE",
	unix.V9FS_MAGIC:       "9p",
	unix.AFS_SUPER_MAGIC:  "AFS",
	unix.CEPH_SUPER_MAGIC: "Ceph",
	unix.CODA_SUPER_MAGIC: "Coda",
}

// NewID returns a fresh id of the form that runs, owners and state directories use: 16 lower-case hex digits.
func NewID() string {
	var b [8]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// unusable is the error for a state directory that cannot be used. The path itself is not repeated: a setting's
// value never is.
func unusable(constraint, action string) *fault.Error {
	return fault.New(fault.ConfigurationInvalid, "The state directory cannot be used: "+constraint+".", action).
		With("settings", []map[string]string{{"setting": Setting, "constraint": constraint}})
}

// prepare checks the state directory, makes what is missing of it, and returns its canonical path and its id.
func prepare(ctx context.Context, state string) (dir, id string, err error) {
	if err := ctx.Err(); err != nil {
		return "", "", context.Cause(ctx)
	}
	elsewhere := "Set " + Setting + " to a directory of your own on a local disk."
	if !filepath.IsAbs(state) || !utf8.ValidString(state) || strings.ContainsRune(state, 0) {
		return "", "", unusable("it must be an absolute path in UTF-8", elsewhere)
	}
	if err := os.MkdirAll(state, 0o700); err != nil {
		return "", "", unusable("it cannot be made", elsewhere).Because(err)
	}
	if dir, err = filepath.EvalSymlinks(state); err != nil {
		return "", "", unusable("it cannot be resolved", elsewhere).Because(err)
	}
	if err := check(dir); err != nil {
		return "", "", err
	}
	for _, d := range []string{ownersDir, runsDir} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", "", unusable("it cannot be written to", elsewhere).Because(err)
		}
	}
	id, err = stateID(dir)
	return dir, id, err
}

// Usable reports why a state directory that exists cannot be used, with the error that Open would give, nil where it
// can. It writes nothing.
func Usable(state string) error {
	elsewhere := "Set " + Setting + " to a directory of your own on a local disk."
	dir, err := filepath.EvalSymlinks(state)
	if err != nil {
		return unusable("it cannot be resolved", elsewhere).Because(err)
	}
	if err := check(dir); err != nil {
		return err
	}
	switch err := unix.Faccessat(unix.AT_FDCWD, dir, unix.W_OK|unix.X_OK, unix.AT_EACCESS); {
	case errors.Is(err, unix.EROFS):
		return unusable("its file system is read-only", elsewhere).Because(err)
	case errors.Is(err, unix.ENOTDIR):
		return unusable("it is not a directory", elsewhere).Because(err)
	case err != nil:
		return unusable("it cannot be written to", elsewhere).Because(err)
	}
	return nil
}

// check refuses a directory whose locks prove nothing, and one that somebody else could put a journal into: a
// sweep removes what a journal names, with the rights of whoever sweeps.
func check(dir string) error {
	var sf unix.Statfs_t
	var st unix.Stat_t
	err := unix.Statfs(dir, &sf)
	if err == nil {
		err = unix.Stat(dir, &st)
	}
	if err != nil {
		return unusable("it cannot be examined", "Set "+Setting+" to a readable directory.").Because(err)
	}
	if name, bad := remote[int64(sf.Type)&0xffffffff]; bad {
		return unusable("it is on "+name+", where a file lock does not prove that its holder lives",
			"Set "+Setting+" to a directory on a local file system.")
	}
	if int(st.Uid) != os.Geteuid() {
		return unusable("it belongs to another user",
			"Set "+Setting+" to a directory of the user that runs rea; under sudo, use one of root's.")
	}
	if st.Mode&0o022 != 0 {
		return unusable("its group or others may write to it", "Take the write permission away (chmod go-w), or set "+Setting+".")
	}
	return nil
}

// stateID reads the id of the state directory and makes it the first time. Two processes that start together agree:
// a link to a complete file appears at once or not at all.
func stateID(dir string) (string, error) {
	path := filepath.Join(dir, idName)
	for range 2 {
		b, err := readSmall(path)
		if err == nil {
			if id := strings.TrimSuffix(string(b), "\n"); idForm.MatchString(id) {
				return id, nil
			}
			return "", unusable("its file "+idName+" is damaged", "Stop every rea process, then remove that file.")
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", unusable("its file "+idName+" cannot be read", "Correct the permissions of that file.").Because(err)
		}
		fresh := NewID()
		temp := filepath.Join(dir, "."+idName+"-"+fresh)
		if err := os.WriteFile(temp, []byte(fresh+"\n"), 0o600); err != nil {
			return "", unusable("it cannot be written to", "Free some space there, or set "+Setting+".").Because(err)
		}
		err = os.Link(temp, path)
		os.Remove(temp)
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return "", unusable("it does not take hard links", "Set "+Setting+" to a directory on a local file system.").Because(err)
		}
	}
	return "", unusable("its file "+idName+" vanishes", "Stop whatever clears that directory, or set "+Setting+".")
}

// readSmall reads a file of ours that is known to be small.
func readSmall(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := make([]byte, maxSmallFile+1)
	n, err := f.ReadAt(b, 0)
	if n > maxSmallFile {
		return nil, fmt.Errorf("%s is longer than %d bytes", filepath.Base(path), maxSmallFile)
	}
	if n > 0 || err == nil {
		return b[:n], nil
	}
	return nil, err
}
