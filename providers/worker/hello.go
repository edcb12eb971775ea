package worker

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"rea/evidence/volume"
	"rea/providers/wire"
)

const (
	// nonceSize is the length of the nonce file: 32 bytes in hex.
	nonceSize = 64
	// maxMountInfo bounds what is read of the mount table; a container has some twenty mounts.
	maxMountInfo = 1 << 20
)

// greet collects what the core needs to see before it names a target.
func (w *Process) greet() (*wire.Hello, error) {
	nonce, err := readNonce(filepath.Join(w.options.Evidence, volume.NonceName))
	if err != nil {
		return nil, err
	}
	mount, err := describe(w.options.Evidence)
	if err != nil {
		return nil, err
	}
	return &wire.Hello{
		Version: wire.Version, Worker: wire.Truncate(w.options.Version, 64), PID: os.Getpid(), UID: os.Getuid(), GID: os.Getgid(),
		Nonce: nonce, Evidence: mount,
	}, nil
}

// readNonce reads what the core put into the volume. A volume without it is not the core's: the hello then says so,
// with an empty nonce, and the core decides.
func readNonce(name string) (string, error) {
	f, err := os.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the nonce of the evidence volume: %w", err)
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, nonceSize+1))
	if err != nil {
		return "", fmt.Errorf("read the nonce of the evidence volume: %w", err)
	}
	if len(raw) != nonceSize {
		return "", fmt.Errorf("the nonce of the evidence volume has %d bytes, want %d", len(raw), nonceSize)
	}
	return string(raw), nil
}

// describe says what is mounted at dir: type by the mount table (statfs(2) knows numbers only), capacity and flags by
// statfs. A directory that is not a mount of its own has no type.
func describe(dir string) (wire.Volume, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return wire.Volume{}, fmt.Errorf("examine the evidence volume: %w", err)
	}
	table, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return wire.Volume{}, fmt.Errorf("examine the mounts: %w", err)
	}
	defer table.Close()
	kind, err := mountType(table, dir)
	if err != nil {
		return wire.Volume{}, err
	}
	return wire.Volume{
		Type:   kind,
		Bytes:  int64(st.Blocks) * st.Bsize,
		Inodes: int64(st.Files),
		NoSUID: st.Flags&unix.ST_NOSUID != 0,
		NoDev:  st.Flags&unix.ST_NODEV != 0,
		NoExec: st.Flags&unix.ST_NOEXEC != 0,
	}, nil
}

// mountType finds the type of what is mounted at dir, the last mount there if several lie on each other, in a table
// of the form that proc_pid_mountinfo(5) gives; "" if there is none.
func mountType(table io.Reader, dir string) (string, error) {
	kind := ""
	lines := bufio.NewScanner(io.LimitReader(table, maxMountInfo))
	for lines.Scan() {
		mount, fs, ok := strings.Cut(lines.Text(), " - ")
		fields := strings.Fields(mount)
		if !ok || len(fields) < 5 || unescape(fields[4]) != dir {
			continue
		}
		kind, _, _ = strings.Cut(fs, " ")
	}
	if err := lines.Err(); err != nil {
		return "", fmt.Errorf("read the mounts: %w", err)
	}
	return kind, nil
}

// unescape undoes the table's octal escapes of blank, tab, newline and backslash.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if v, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(v))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
