// Package userns gives each run a few user and group ids of the host that nobody else has, for a user namespace of its
// own: what breaks out of a run is then nobody, and no two runs share the kernel's quotas for one user.
//
// A range is taken by a symbolic link in a directory of this host that names the run. The link is made at once or not
// at all, so that processes which do not know each other never take the same range, and it outlives its maker: ids
// that a dead owner's volume still carries are not given out again before the sweep has removed it. The caller
// journals a range before it takes it. Package userns makes no namespace; an OCI runtime does, from the map.
package userns

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"rea/sandbox"
)

const (
	// first is the lowest id that is given out. It lies above what useradd, systemd's containers (to 0x6fffffff) and
	// directory services (usually to 2000200000) use.
	first = 0x78000000
	// perRun is how many ids a run takes: its namespace's root, whom nothing is but the runtime needs, and the run.
	perRun = 2
	// ranges ends below 0x7ffe0000, from where systemd uses ids again.
	ranges = 1 << 20
	// attempts is how many ranges are tried; with so many free, a second one is rare.
	attempts = 64
)

// Home is the directory of this host where ranges are taken. It goes with the machine's run time, as every process and
// mount does, and everybody may pass through it to the root file systems that Root names.
const Home = "/run/" + sandbox.Prefix

const (
	rangesDir = Home + "/ids"
	rootsDir  = Home + "/roots"
)

// Obstacle says why runs cannot have a user namespace here, "" where they can.
func Obstacle() string {
	if _, err := os.Stat("/proc/self/ns/user"); err != nil {
		return "this kernel has no user namespaces"
	}
	if limit, err := os.ReadFile("/proc/sys/user/max_user_namespaces"); err == nil && strings.TrimSpace(string(limit)) == "0" {
		return "user namespaces are switched off (user.max_user_namespaces is 0)"
	}
	own, err := os.ReadFile("/proc/self/uid_map")
	if err != nil || !covers(string(own), first, first+ranges*perRun-1) {
		return "this process is in a user namespace itself, which has no ids to give to runs"
	}
	return ""
}

// covers reports whether a map in the format of user_namespaces(7) has all ids from low to high in one line.
func covers(idMap string, low, high uint64) bool {
	for line := range strings.Lines(idMap) {
		var inside, outside, size uint64
		if n, _ := fmt.Sscan(line, &inside, &outside, &size); n == 3 && inside <= low && high < inside+size {
			return true
		}
	}
	return false
}

// Range is the ids of one run.
type Range struct {
	root uint32 // id of the namespace's uid and gid 0; the run's follows it
	path string
}

// Candidates are ranges that may be free, for one run, in the order in which to try them. The first one follows from
// the run's random id, so that ids are not used again soon.
func Candidates(run string) []Range {
	h := fnv.New64a()
	h.Write([]byte(run))
	start := h.Sum64()
	list := make([]Range, attempts)
	for i := range list {
		n := uint32((start + uint64(i)) % ranges)
		list[i] = Range{root: first + n*perRun, path: filepath.Join(rangesDir, strconv.FormatUint(uint64(n), 10))}
	}
	return list
}

// Path is the link that takes the range: the name of its journal entry.
func (r Range) Path() string { return r.path }

// Take takes the range for a run. The error has fs.ErrExist in its chain when somebody has it.
func (r Range) Take(run string) error {
	if err := makeHome(); err != nil {
		return err
	}
	return os.Symlink(run, r.path)
}

// Release gives up what Take took for a run, by its path. What another run has, or nobody, is left alone.
func Release(path, run string) error {
	if filepath.Dir(path) != rangesDir {
		return errors.New("it does not lie in the directory of id ranges")
	}
	holder, err := os.Readlink(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && holder != run {
		return nil
	}
	if err != nil {
		return err
	}
	return os.Remove(path)
}

// Run is the host's id, user and group alike, of the run.
func (r Range) Run() uint32 { return r.root + 1 }

// Map maps the namespace's root and the user of a run to the host: nothing else exists inside.
func (r Range) Map(user sandbox.User) *sandbox.IDMap {
	ids := func(id uint32) []specs.LinuxIDMapping {
		return []specs.LinuxIDMapping{{ContainerID: 0, HostID: r.root, Size: 1}, {ContainerID: id, HostID: r.Run(), Size: 1}}
	}
	return &sandbox.IDMap{UIDs: ids(user.UID), GIDs: ids(user.GID)}
}

// Root is where the root file system of a run is mounted: the root of a namespace, unlike the host's, may not pass
// through the state directory.
func Root(run string) string { return filepath.Join(rootsDir, run) }

// makeHome makes the directories, once a boot. What somebody else made there is refused.
func makeHome() error {
	for _, dir := range []struct {
		path string
		mode os.FileMode
	}{{Home, 0o711}, {rangesDir, 0o700}, {rootsDir, 0o711}} {
		err := os.Mkdir(dir.path, dir.mode)
		if err == nil {
			err = os.Chmod(dir.path, dir.mode) // whatever the umask is
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := ours(dir.path); err != nil {
			return err
		}
	}
	return nil
}

// ours refuses a directory that is a link, belongs to somebody else, or can be written to by others.
func ours(dir string) error {
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != unix.Geteuid() || st.Mode&0o022 != 0 {
		return fmt.Errorf("%s is not a directory of this user that only it may write to", dir)
	}
	return nil
}
