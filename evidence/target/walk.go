package target

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"rea/evidence/fault"
)

const (
	// maxOpenDirs bounds the directory handles that one walk holds open; deeper levels are reopened through "..", and
	// checked to be the same directory, on the way back.
	maxOpenDirs = 64
	// direntBuffer holds one batch of directory entries.
	direntBuffer = 64 << 10
	// MaxPath is the longest path below the root that a walk opens, in bytes: Linux programs cannot name a longer one at
	// once, and a tree of unlimited depth would cost the square of its depth.
	MaxPath = 4096
	// maxLink bounds a link's recorded target: PATH_MAX of Linux.
	maxLink = 4096
	// openRetries bounds repetitions of openat2 after EAGAIN (a rename elsewhere on the file system) and EINTR.
	openRetries = 64
)

// Info is what the walk knows of an entry from its open descriptor.
type Info struct {
	Size int64
	Exec bool // any execute bit
}

// File is an open regular file of the walk. Whoever receives it reads it and closes it; Close says whether the file
// changed meanwhile. It is a bare descriptor: trees have very many files, and nothing here needs the runtime's poller.
type File struct {
	fd   int
	st   unix.Stat_t
	path []byte // for errors
	Info Info
}

// Read reads on from the file's offset.
func (f *File) Read(p []byte) (int, error) {
	return f.read(p, func() (int, error) { return unix.Read(f.fd, p) })
}

// ReadAt reads at an offset; as io.ReaderAt asks, fewer bytes than p holds come with an error.
func (f *File) ReadAt(p []byte, off int64) (int, error) {
	total := 0
	for total < len(p) {
		n, err := f.read(p[total:], func() (int, error) { return unix.Pread(f.fd, p[total:], off+int64(total)) })
		total += n
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

func (f *File) read(p []byte, call func() (int, error)) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		n, err := call()
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return 0, ioFailure("read", Escape(f.path), err)
		case n == 0:
			return 0, io.EOF
		}
		return n, nil
	}
}

// Check compares the open file's device, inode, size, modification and change time with those at its opening. A
// difference is artifact_changed.
func (f *File) Check() error {
	var now unix.Stat_t
	if err := unix.Fstat(f.fd, &now); err != nil {
		return ioFailure("examine", Escape(f.path), err)
	}
	if !same(&f.st, &now) {
		return Changed(Escape(f.path), "its size, times or inode changed while it was read")
	}
	return nil
}

// Close checks as Check does and closes the file.
func (f *File) Close() error {
	err := f.Check()
	unix.Close(f.fd)
	return err
}

// Visitor receives the entries of a tree in walk order, from one goroutine. Paths are raw bytes relative to the root
// and valid only during the call. An error ends the walk and is returned by it.
type Visitor interface {
	// Dir comes before the content of the directory; the root itself is not reported.
	Dir(path []byte) error
	// File hands over an open file, which the visitor closes, at once or later.
	File(path []byte, f *File) error
	// Link reports a symbolic link, never followed, with its recorded target.
	Link(path, target []byte) error
	// Special reports an entry that was not opened.
	Special(path []byte, kind Kind) error
	// Unreadable reports a file or directory that permissions keep closed. A directory's Dir is not called then.
	Unreadable(path []byte, dir bool) error
}

// Walk visits the tree below root (an open directory, O_PATH allowed), names sorted bytewise in each directory, a
// directory before its content. It never follows a link, never leaves root, never opens what is not a regular file or
// a directory, and holds at most a fixed number of handles however deep the tree is. An entry that vanishes or is
// exchanged between its listing and its opening, and a directory that changes while it is walked, are
// artifact_changed.
func Walk(ctx context.Context, root *os.File, v Visitor) error {
	return (&walker{ctx: ctx, v: v, buf: make([]byte, direntBuffer)}).run(root)
}

type walker struct {
	ctx   context.Context
	v     Visitor
	skip  func(path []byte) bool // entries to treat as unreadable; nil for none
	stack []level
	path  []byte
	buf   []byte
}

// level is one directory on the way down. fd is -1 while the handle is given up.
type level struct {
	fd    int
	st    unix.Stat_t
	names names
	next  int
	path  int // length of the directory's path
}

// names holds directory entries compactly: all names in one buffer.
type names struct {
	text []byte
	ends []uint32 // end of each name in text, in listing order; then sorted through order
	kind []byte   // d_type of each name
	sort []uint32
}

func (n *names) at(i int) ([]byte, byte) {
	k := n.sort[i]
	start := uint32(0)
	if k > 0 {
		start = n.ends[k-1]
	}
	return n.text[start:n.ends[k]], n.kind[k]
}

func (w *walker) run(root *os.File) (err error) {
	fd, err := openDirSelf(int(root.Fd()))
	if err != nil {
		return ioFailure("open", ".", err)
	}
	defer func() {
		for _, l := range w.stack {
			if l.fd >= 0 {
				unix.Close(l.fd)
			}
		}
	}()
	if err := w.push(fd); err != nil {
		return err
	}
	for len(w.stack) > 0 {
		if err := context.Cause(w.ctx); err != nil {
			return err
		}
		top := &w.stack[len(w.stack)-1]
		if top.next == len(top.names.ends) {
			if err := w.pop(); err != nil {
				return err
			}
			continue
		}
		name, kind := top.names.at(top.next)
		top.next++
		w.path = w.path[:top.path]
		if len(w.path) > 0 {
			w.path = append(w.path, '/')
		}
		w.path = append(w.path, name...)
		if err := w.entry(top.fd, string(name), kind); err != nil {
			return err
		}
	}
	return nil
}

// push takes ownership of fd, lists it and makes it the current directory.
func (w *walker) push(fd int) error {
	l := level{fd: fd, path: len(w.path)}
	if err := unix.Fstat(fd, &l.st); err != nil {
		unix.Close(fd)
		return ioFailure("examine", Escape(w.path), err)
	}
	if err := w.list(&l); err != nil {
		unix.Close(fd)
		return ioFailure("list", Escape(w.path), err)
	}
	if i := len(w.stack) - maxOpenDirs; i >= 0 && w.stack[i].fd >= 0 {
		unix.Close(w.stack[i].fd)
		w.stack[i].fd = -1
	}
	w.stack = append(w.stack, l)
	return nil
}

// pop leaves the current directory, after a check that it did not change, and reopens its parent where that was given
// up.
func (w *walker) pop() error {
	top := w.stack[len(w.stack)-1]
	w.stack = w.stack[:len(w.stack)-1]
	defer unix.Close(top.fd)
	path := Escape(w.path[:top.path])
	var now unix.Stat_t
	if err := unix.Fstat(top.fd, &now); err != nil {
		return ioFailure("examine", path, err)
	}
	if !same(&top.st, &now) {
		return Changed(path, "the directory changed while it was read")
	}
	if len(w.stack) == 0 || w.stack[len(w.stack)-1].fd >= 0 {
		return nil
	}
	parent := &w.stack[len(w.stack)-1]
	fd, err := unix.Openat(top.fd, "..", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return ioFailure("reopen", path, err)
	}
	parent.fd = fd
	if err := unix.Fstat(fd, &now); err != nil {
		return ioFailure("examine", path, err)
	}
	if !same(&parent.st, &now) {
		return Changed(path, "a directory above it was moved or changed while it was read")
	}
	return nil
}

// entry reports one name of the open directory dir. kind is the type that the listing gave, DT_UNKNOWN included.
func (w *walker) entry(dir int, name string, kind byte) error {
	if len(w.path) > MaxPath {
		return w.v.Special(w.path, TooLong)
	}
	if kind == unix.DT_UNKNOWN {
		var st unix.Stat_t
		if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return w.vanished(err)
		}
		kind = byte(st.Mode & unix.S_IFMT >> 12)
	}
	switch kind {
	case unix.DT_REG, unix.DT_DIR:
		return w.open(dir, name, kind)
	case unix.DT_LNK:
		return w.link(dir, name)
	case unix.DT_FIFO:
		return w.v.Special(w.path, FIFO)
	case unix.DT_SOCK:
		return w.v.Special(w.path, Socket)
	case unix.DT_BLK:
		return w.v.Special(w.path, Block)
	case unix.DT_CHR:
		return w.v.Special(w.path, Char)
	}
	return w.v.Special(w.path, Unknown)
}

// open opens what the listing called a file or a directory. The descriptor is examined before it is believed: a name
// exchanged in between for anything else ends the walk. O_NONBLOCK keeps a FIFO that took the name from blocking.
func (w *walker) open(dir int, name string, kind byte) error {
	if w.skip != nil && w.skip(w.path) {
		return w.v.Unreadable(w.path, kind == unix.DT_DIR)
	}
	flags := uint64(unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC)
	if kind == unix.DT_DIR {
		flags |= unix.O_DIRECTORY
	}
	fd, err := openBeneath(dir, name, flags)
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		return w.v.Unreadable(w.path, kind == unix.DT_DIR)
	}
	if err != nil {
		return w.vanished(err)
	}
	if kind == unix.DT_DIR {
		if err := w.v.Dir(w.path); err != nil {
			unix.Close(fd)
			return err
		}
		return w.push(fd)
	}
	f, err := newFile(fd, slices.Clone(w.path))
	if err != nil {
		return err
	}
	return w.v.File(w.path, f)
}

func (w *walker) link(dir int, name string) error {
	buf := make([]byte, maxLink)
	n, err := unix.Readlinkat(dir, name, buf)
	if err != nil {
		return w.vanished(err)
	}
	return w.v.Link(w.path, buf[:n])
}

// vanished turns the error of a name that was listed a moment ago into the fault that it means.
func (w *walker) vanished(err error) error {
	path := Escape(w.path)
	for _, e := range []error{unix.ENOENT, unix.ENOTDIR, unix.ELOOP, unix.EINVAL, unix.EXDEV, unix.ENXIO, unix.ESTALE} {
		if errors.Is(err, e) {
			return Changed(path, "the entry was removed or exchanged while the tree was read").Because(err)
		}
	}
	return ioFailure("open", path, err)
}

// list reads all names of l's directory and sorts them bytewise.
func (w *walker) list(l *level) error {
	for {
		if err := context.Cause(w.ctx); err != nil {
			return err
		}
		n, err := unix.ReadDirent(l.fd, w.buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		if n <= 0 {
			break
		}
		l.names.parse(w.buf[:n])
	}
	n := &l.names
	n.sort = make([]uint32, len(n.ends))
	for i := range n.sort {
		n.sort[i] = uint32(i)
	}
	name := func(k uint32) []byte {
		if k == 0 {
			return n.text[:n.ends[0]]
		}
		return n.text[n.ends[k-1]:n.ends[k]]
	}
	slices.SortFunc(n.sort, func(a, b uint32) int { return bytes.Compare(name(a), name(b)) })
	return nil
}

// direntHeader is the size of what stands before the name in struct linux_dirent64: ino, off, reclen, type.
const direntHeader = 8 + 8 + 2 + 1

// parse takes the names from what getdents64 returned, without "." and "..".
func (n *names) parse(buf []byte) {
	for len(buf) > direntHeader {
		size := int(buf[16]) | int(buf[17])<<8
		if size < direntHeader || size > len(buf) {
			return
		}
		name := buf[direntHeader:size]
		if i := bytes.IndexByte(name, 0); i >= 0 {
			name = name[:i]
		}
		if s := string(name); s != "." && s != ".." {
			n.text = append(n.text, name...)
			n.ends = append(n.ends, uint32(len(n.text)))
			n.kind = append(n.kind, buf[18])
		}
		buf = buf[size:]
	}
}

// openBeneath opens one name of a directory, following nothing.
func openBeneath(dir int, name string, flags uint64) (int, error) {
	how := unix.OpenHow{
		Flags:   flags,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	}
	for range openRetries {
		fd, err := unix.Openat2(dir, name, &how)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			continue
		}
		if errors.Is(err, unix.ENOSYS) {
			// A seccomp filter that does not know openat2, or a kernel before 5.6. One component with O_NOFOLLOW
			// cannot leave the directory either.
			return unix.Openat(dir, name, int(flags), 0)
		}
		return fd, err
	}
	return -1, unix.EAGAIN
}

// OpenBeneath opens a regular file below the open directory root without following any link and without ever opening
// anything else. A path that leads nowhere, or not to a regular file, is an error that os.IsNotExist or
// errors.Is(err, ErrNotRegular) recognises. The path is raw bytes, slash-separated, relative.
func OpenBeneath(root *os.File, path []byte) (*File, error) {
	fd, err := openBeneath(int(root.Fd()), string(path), unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC)
	if err != nil {
		return nil, &os.PathError{Op: "openat2", Path: Escape(path), Err: err}
	}
	return newFile(fd, path)
}

// ErrNotRegular says that a name does not stand for a regular file.
var ErrNotRegular = errors.New("not a regular file")

// Open reopens the file behind root (a descriptor of a regular file, O_PATH allowed) for reading, with an offset of its
// own.
func Open(root *os.File) (*File, error) {
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", root.Fd()), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, ioFailure("open", ".", err)
	}
	return newFile(fd, []byte("."))
}

// newFile takes ownership of fd and keeps path. What it holds must be a regular file.
func newFile(fd int, path []byte) (*File, error) {
	f := &File{fd: fd, path: path}
	if err := unix.Fstat(fd, &f.st); err != nil {
		unix.Close(fd)
		return nil, ioFailure("examine", Escape(path), err)
	}
	if f.st.Mode&unix.S_IFMT != unix.S_IFREG {
		unix.Close(fd)
		return nil, Changed(Escape(path), "the entry is no longer a regular file").Because(ErrNotRegular)
	}
	f.Info = Info{Size: f.st.Size, Exec: f.st.Mode&0o111 != 0}
	return f, nil
}

// openDirSelf opens the directory behind fd, which may be an O_PATH descriptor, for listing.
func openDirSelf(fd int) (int, error) {
	return unix.Openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
}

func same(a, b *unix.Stat_t) bool {
	return a.Dev == b.Dev && a.Ino == b.Ino && a.Size == b.Size && a.Mtim == b.Mtim && a.Ctim == b.Ctim
}

// Changed is the failure of a target that did not stay as it was while it was read. Path is escaped.
func Changed(path, reason string) *fault.Error {
	return fault.New(fault.ArtifactChanged, fmt.Sprintf("The target changed while it was read: %s (%s).", path, reason),
		"Open the target again when nothing writes to it, and repeat the call.").
		WithAll(fault.Details{"path": path, "reason": reason, "boundary": "stable-artifact-read"})
}

// ioFailure is a failure of reading that is not a change.
func ioFailure(verb, path string, err error) error {
	if f := (*fault.Error)(nil); errors.As(err, &f) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		code := "EACCES"
		if errors.Is(err, unix.EPERM) {
			code = "EPERM"
		}
		return fault.New(fault.AccessDenied, fmt.Sprintf("Permission to %s %s of the target was denied.", verb, path),
			"Give the user that runs rea permission to read it.").
			WithAll(fault.Details{"path": path, "system_code": code, "boundary": "filesystem-read"}).Because(err)
	}
	return fault.New(fault.ArtifactOperationFailed, fmt.Sprintf("The attempt to %s %s of the target failed: %v.", verb, path, rootCause(err)),
		"Check the file system that holds the target, and repeat the call.").
		WithAll(fault.Details{"reason": "io", "logical_path": path}).Because(err)
}

// rootCause gives the system's own words without any host path.
func rootCause(err error) error {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return errno
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return io.ErrUnexpectedEOF
	}
	return errors.New("input/output error")
}
