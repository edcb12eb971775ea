package journal

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Info describes one owner for a listing.
type Info struct {
	Record
	Alive   bool    // its lock is held: by itself, or by a sweep at this moment
	Foreign bool    // it belongs to another machine; Alive says nothing then
	Entries []Entry // live entries
	Problem string  // why Record or Entries could not be read, or not all of them, "" otherwise
}

// Owners lists the owners of a state directory and changes nothing. A state directory that does not exist has none.
func Owners(state string) ([]Info, error) {
	ids, err := owners(state)
	if err != nil {
		return nil, err
	}
	infos := make([]Info, 0, len(ids))
	for _, id := range ids {
		if info, there := describe(state, id); there {
			infos = append(infos, info)
		}
	}
	return infos, nil
}

// describe examines one owner; there is false when it went away meanwhile or is being made.
func describe(state, id string) (info Info, there bool) {
	dir := filepath.Join(state, ownersDir, id)
	lock, err := os.Open(filepath.Join(dir, lockName))
	if err != nil {
		return info, false
	}
	defer lock.Close()
	// A shared lock is given back at once: it only asks. Whoever wants the exclusive one meanwhile tries again later.
	info.Alive = errors.Is(unix.Flock(int(lock.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
	if !info.Alive {
		defer func() { _ = unix.Flock(int(lock.Fd()), unix.LOCK_UN) }() // closing gives it back too
	}
	r, err := record(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return info, false
	}
	book, readErr := read(filepath.Join(dir, journalName))
	if err := errors.Join(err, readErr); err != nil {
		info.Problem = err.Error()
	}
	info.Record, info.Owner = r, id
	info.Foreign = err == nil && r.Machine != machine()
	if readErr == nil {
		if info.Problem == "" {
			info.Problem = book.damage
		}
		info.Entries = book.entries(nil)
	}
	return info, true
}

// self describes this process.
func self(id string) Record {
	return Record{Owner: id, Machine: machine(), Boot: boot(), PID: os.Getpid(), Start: startTime(), UID: os.Getuid(), At: time.Now().UTC()}
}

// machine is this machine's id by machine-id(5), "" where the host has none.
func machine() string {
	for _, path := range []string{"/etc/machine-id", "/var/lib/dbus/machine-id"} {
		if b, err := readSmall(path); err == nil {
			if id := strings.TrimSpace(string(b)); id != "" {
				return id
			}
		}
	}
	return ""
}

// boot is the kernel's random id of this boot.
func boot() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// startTime is field 22 of proc_pid_stat(5). The name before it may hold anything but ends at the last parenthesis.
func startTime() uint64 {
	b, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	const startField = 22 - 3 // fields[0] is field 3
	if len(fields) <= startField {
		return 0
	}
	n, _ := strconv.ParseUint(fields[startField], 10, 64)
	return n
}
