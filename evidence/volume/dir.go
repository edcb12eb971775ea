package volume

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Dir is the source of a volume that is mounted, or lies, at an open directory of this host. The descriptor belongs to
// the caller and must stay open while the source is used; every access goes through it and no path is resolved
// outside it.
func Dir(root *os.File) Source { return dir{root} }

type dir struct{ root *os.File }

const (
	// openTries bounds the repetitions of an open that races with renames (EAGAIN) or is interrupted (EINTR).
	openTries = 64
	// beneath confines resolution to the volume: no way up, no link of any kind, no other mount.
	beneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV
)

// Open opens without waiting for a FIFO's writer, looks at what it has opened, and refuses everything that is not an
// ordinary file with one name on the volume's own file system.
func (d dir) Open(ctx context.Context, name string, limit int64) (io.ReadCloser, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	fd, err := d.openat(ctx, name, unix.O_RDONLY)
	if err != nil {
		return nil, openRefusal(name, err)
	}
	if err := d.examine(fd, name, limit); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

func (d dir) openat(ctx context.Context, name string, flags uint64) (int, error) {
	how := unix.OpenHow{
		Flags:   flags | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC | unix.O_NOFOLLOW,
		Resolve: beneath,
	}
	var err error
	for range openTries {
		if ctx.Err() != nil {
			return -1, stopped(ctx)
		}
		var fd int
		fd, err = unix.Openat2(int(d.root.Fd()), name, &how)
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
	return -1, err
}

func (d dir) examine(fd int, name string, limit int64) error {
	var root, st unix.Stat_t
	if err := unix.Fstat(int(d.root.Fd()), &root); err != nil {
		return fmt.Errorf("examine the volume's root: %w", err)
	}
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("examine %s: %w", Escape(name), err)
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return refuse(name, ReasonKind, fmt.Errorf("a %s", kindOf(st.Mode)))
	case st.Dev != root.Dev:
		return refuse(name, ReasonDevice, nil)
	case st.Nlink != 1:
		return refuse(name, ReasonLinks, fmt.Errorf("%d names", st.Nlink))
	case st.Mode&(unix.S_ISUID|unix.S_ISGID) != 0:
		return refuse(name, ReasonMode, nil)
	case st.Size > limit:
		return refuse(name, ReasonSize, fmt.Errorf("%d bytes, at most %d expected", st.Size, limit))
	}
	return nil
}

// openRefusal tells what the entry is at fault for from what the host is at fault for.
func openRefusal(name string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return refuse(name, ReasonMissing, err)
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENODEV), errors.Is(err, unix.EISDIR):
		return refuse(name, ReasonKind, err)
	case errors.Is(err, unix.EXDEV):
		return refuse(name, ReasonDevice, err)
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return refuse(name, ReasonAccess, err)
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		return refuse(name, ReasonUnstable, err)
	}
	return fmt.Errorf("open %s: %w", Escape(name), err)
}

// Free gives what the file system says is left for an ordinary user.
func (d dir) Free(context.Context) (*Free, error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(d.root.Fd()), &st); err != nil {
		return nil, fmt.Errorf("examine the volume's quotas: %w", err)
	}
	return &Free{Bytes: int64(st.Bavail) * st.Bsize, Inodes: int64(st.Ffree)}, nil
}

// readBatch is how many names of a directory are held at a time.
const readBatch = 256

// List opens each directory by its path from the root, one at a time, so that neither depth nor breadth costs
// descriptors; what cannot be examined is listed as unknown.
func (d dir) List(ctx context.Context, limits ListLimits) ([]Entry, error) {
	w := walk{dir: d, limits: limits, pending: []folder{{path: ".", depth: 1}}}
	for len(w.pending) > 0 {
		last := len(w.pending) - 1
		next := w.pending[last]
		w.pending = w.pending[:last]
		if err := w.enter(ctx, next); err != nil {
			return w.entries, err
		}
	}
	if w.cut {
		return w.entries, ErrListLimit
	}
	return w.entries, nil
}

type folder struct {
	path  string
	depth int
}

type walk struct {
	dir     dir
	limits  ListLimits
	entries []Entry
	pending []folder
	cut     bool // a directory was too deep, or could not be entered
}

func (w *walk) enter(ctx context.Context, at folder) error {
	fd, err := w.dir.openat(ctx, at.path, unix.O_RDONLY|unix.O_DIRECTORY)
	if ctx.Err() != nil {
		return stopped(ctx)
	}
	if err != nil {
		w.cut = true
		return nil
	}
	f := os.NewFile(uintptr(fd), at.path)
	defer f.Close()
	for {
		if ctx.Err() != nil {
			return stopped(ctx)
		}
		names, err := f.Readdirnames(readBatch)
		for _, name := range names {
			if len(w.entries) >= w.limits.Entries {
				return ErrListLimit
			}
			w.add(fd, at, name)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			w.cut = true
			return nil
		}
	}
}

func (w *walk) add(fd int, at folder, name string) {
	e := Entry{Path: name, Kind: KindUnknown}
	if at.path != "." {
		e.Path = at.path + "/" + name
	}
	var st unix.Stat_t
	if err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err == nil {
		e.Kind, e.Links = kindOf(st.Mode), uint64(st.Nlink)
		if e.Kind == KindFile {
			e.Size = st.Size
		}
	}
	w.entries = append(w.entries, e)
	if e.Kind != KindDirectory {
		return
	}
	if at.depth >= w.limits.Depth || len(e.Path) >= unix.PathMax {
		w.cut = true
		return
	}
	w.pending = append(w.pending, folder{e.Path, at.depth + 1})
}

func kindOf(mode uint32) Kind {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return KindFile
	case unix.S_IFDIR:
		return KindDirectory
	case unix.S_IFLNK:
		return KindSymlink
	case unix.S_IFIFO:
		return KindFIFO
	case unix.S_IFSOCK:
		return KindSocket
	case unix.S_IFCHR, unix.S_IFBLK:
		return KindDevice
	}
	return KindUnknown
}
