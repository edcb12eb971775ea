package oci

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"rea/evidence/fault"
	"rea/sandbox"
)

// unprovedRuntime is what a host without a v2 tree cannot give.
const unprovedRuntime = "the OCI runtime's own process is not in the run's control group (this host has no cgroup v2 tree)"

// unifiedTree gives the mount point of the v2 tree, at the places where systems put it.
func unifiedTree() (dir string, ok bool) {
	for _, dir := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		var s unix.Statfs_t
		if unix.Statfs(dir, &s) == nil && s.Type == unix.CGROUP2_SUPER_MAGIC {
			return dir, true
		}
	}
	return "", false
}

// socketpair gives our end of a fresh connection, which tells who sends, and the container's.
func socketpair() (net.Conn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	peer := os.NewFile(uintptr(fds[1]), "channel of the container")
	ours := os.NewFile(uintptr(fds[0]), "channel")
	defer ours.Close() // FileConn duplicates it
	if err := unix.SetsockoptInt(fds[0], unix.SOL_SOCKET, unix.SO_PASSCRED, 1); err != nil {
		peer.Close()
		return nil, nil, os.NewSyscallError("setsockopt", err)
	}
	conn, err := net.FileConn(ours)
	if err != nil {
		peer.Close()
		return nil, nil, err
	}
	return conn, peer, nil
}

// errSilent says that the container closed its channel, or ended, before it sent anything.
var errSilent = errors.New("the container ended before it said anything")

// firstSender waits until something can be read, leaves it there, and returns the process that wrote it, by the
// kernel's word and in our pid namespace. A worker speaks first, so this is also the moment from which it runs.
func firstSender(ctx context.Context, conn net.Conn) (pid int, err error) {
	// Cancellation interrupts the read by a deadline in the past, which is taken back afterwards.
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(interrupted)
		_ = conn.SetReadDeadline(time.Unix(1, 0)) // fails on a closed connection only, which ends the read as well
	})
	defer func() {
		if !stop() {
			<-interrupted
		}
		err = errors.Join(err, conn.SetReadDeadline(time.Time{}))
	}()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, err
	}
	var peekErr error
	err = raw.Read(func(fd uintptr) bool {
		pid, peekErr = peekSender(int(fd))
		return !errors.Is(peekErr, unix.EAGAIN) && !errors.Is(peekErr, unix.EINTR)
	})
	if err == nil {
		err = peekErr
	}
	return pid, err
}

// peekSender looks at the first byte and its sender. The control buffer holds exactly one set of credentials, so that
// descriptors that a hostile worker sends along find no room and are never installed here.
func peekSender(fd int) (int, error) {
	var first [1]byte
	control := make([]byte, unix.CmsgSpace(unix.SizeofUcred))
	n, controlLen, _, _, err := unix.Recvmsg(fd, first[:], control, unix.MSG_PEEK|unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return 0, err
	}
	if n == 0 {
		return 0, errSilent
	}
	messages, err := unix.ParseSocketControlMessage(control[:controlLen])
	if err != nil {
		return 0, os.NewSyscallError("recvmsg", err)
	}
	for _, m := range messages {
		if cred, err := unix.ParseUnixCredentials(&m); err == nil && cred.Pid > 0 {
			return int(cred.Pid), nil
		}
	}
	return 0, errors.New("the kernel does not tell who sent the first message")
}

// maxStatus bounds /proc/<pid>/status, which is about 1.5 KiB.
const maxStatus = 16 << 10

// verifyProcess holds what the kernel says about the container's process against what every run is: nothing that runs
// inside can forge it. A difference is a refusal that names the line. user is who the process is on the host; ids is
// the map of its own user namespace, nil for none.
func verifyProcess(pid int, user sandbox.User, ids *sandbox.IDMap) error {
	if err := verifyMaps(pid, ids); err != nil {
		return err
	}
	status, err := readBounded(fmt.Sprintf("/proc/%d/status", pid), maxStatus)
	if err != nil {
		return err
	}
	adj, err := readBounded(fmt.Sprintf("/proc/%d/oom_score_adj", pid), maxStatus)
	if err != nil {
		return err
	}
	return checkStatus(string(status)+"OOMScoreAdj:\t"+string(adj), user)
}

// verifyKernel looks at the process of a runtime that is the run's kernel: whatever gets out of the run is inside that
// one, which must be confined itself and not be root.
func verifyKernel(pid int) error {
	status, err := readBounded(fmt.Sprintf("/proc/%d/status", pid), maxStatus)
	if err != nil {
		return err
	}
	want := map[string]string{"NoNewPrivs": "1", "Seccomp": "2"}
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		value = strings.Join(strings.Fields(value), " ")
		if name == "Uid" && strings.HasPrefix(value, "0 ") {
			return notContained(name, "is root's")
		}
		if want[name] == value {
			delete(want, name)
		}
	}
	for name := range want {
		return notContained(name, "of the runtime's own kernel is not set")
	}
	return nil
}

// verifyMaps compares the maps of the process's user namespace with those that were asked for.
func verifyMaps(pid int, ids *sandbox.IDMap) error {
	if ids == nil {
		return nil
	}
	for name, want := range map[string][]specs.LinuxIDMapping{"uid_map": ids.UIDs, "gid_map": ids.GIDs} {
		got, err := readBounded(fmt.Sprintf("/proc/%d/%s", pid, name), maxStatus)
		if err != nil {
			return err
		}
		if !slices.Equal(sandbox.MapLines(want), mapLines(string(got))) {
			return notContained(name, "is not the one that was asked for")
		}
	}
	return nil
}

// mapLines reads the format of user_namespaces(7), whose columns are padded.
func mapLines(text string) []string {
	var list []string
	for line := range strings.Lines(text) {
		list = append(list, strings.Join(strings.Fields(line), " "))
	}
	return list
}

// checkStatus reads the format of proc_pid_status(5), with a line for oom_score_adj added.
func checkStatus(status string, user sandbox.User) error {
	four := func(id uint32) string { return strings.Repeat(strconv.FormatUint(uint64(id), 10)+" ", 4) }
	const none = "0000000000000000"
	want := map[string]string{
		"Uid": four(user.UID), "Gid": four(user.GID), "Groups": "",
		"CapInh": none, "CapPrm": none, "CapEff": none, "CapBnd": none, "CapAmb": none,
		"NoNewPrivs": "1", "Seccomp": "2", "OOMScoreAdj": "500",
	}
	for line := range strings.Lines(status) {
		name, value, _ := strings.Cut(line, ":")
		value = strings.Join(strings.Fields(value), " ")
		if expected, checked := want[name]; checked {
			if strings.TrimSpace(expected) != value {
				return notContained(name, fmt.Sprintf("is %q and not %q", value, strings.TrimSpace(expected)))
			}
			delete(want, name)
		}
		// The last of the nested pids is the one inside: the leash must be the first process of its namespace.
		if pids := strings.Fields(value); name == "NSpid" && (len(pids) < 2 || pids[len(pids)-1] != "1") {
			return notContained(name, fmt.Sprintf("is %q, so it is not the first process of its own namespace", value))
		}
	}
	for name := range want {
		return notContained(name, "is not told by this kernel")
	}
	return nil
}

// notContained is the refusal of a run whose process is not what was asked for.
func notContained(line, difference string) *fault.Error {
	return unavailable("containment", fmt.Sprintf("The run was refused: %s of its process %s.", line, difference),
		"Run rea doctor: the OCI runtime of this host did not do what it was asked to do.")
}

const (
	maxLog    = 256 << 10 // runc writes a few lines
	maxReason = 500       // of a message, in bytes
)

// lastError gives the last error message in runc's JSON log, as printable ASCII, or "".
func lastError(path string) string {
	data, err := readBounded(path, maxLog)
	if err != nil {
		return ""
	}
	lines := bytes.Split(bytes.TrimSpace(data), []byte{'\n'})
	for i := len(lines) - 1; i >= 0; i-- {
		var entry struct {
			Level string `json:"level"`
			Msg   string `json:"msg"`
		}
		if json.Unmarshal(lines[i], &entry) != nil || entry.Level != "error" {
			continue
		}
		quoted := strconv.QuoteToASCII(entry.Msg[:min(len(entry.Msg), maxReason)])
		return strings.TrimRight(quoted[1:len(quoted)-1], ".")
	}
	return ""
}

func readBounded(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit))
}
