package worker

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/landlock-lsm/go-landlock/landlock"
	landlocksys "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"

	"rea/providers/wire"
)

// The ways to reach the core.
const (
	channelSocket = "fd3"   // a unix socket as descriptor 3, from a runtime that we execute
	channelStdio  = "stdio" // standard input and output, from an engine that we attach to
)

const (
	socketFD = 3
	// firstFD keeps the channel away from the numbers that a child's standard streams and passed files get.
	firstFD = 10
)

// takeChannel moves the channel to descriptors that no child inherits and puts /dev/null where it was. A child that
// held the channel could keep it open after the core's death, and the leash would never be cut.
func takeChannel(kind string) (*wire.Worker, error) {
	var in, out *os.File
	var err error
	switch kind {
	case channelSocket:
		if in, err = moveAway(socketFD); err != nil {
			return nil, err
		}
		if _, err := unix.GetsockoptInt(int(in.Fd()), unix.SOL_SOCKET, unix.SO_TYPE); err != nil {
			return nil, fmt.Errorf("descriptor %d is not a socket: %w", socketFD, err)
		}
		unix.Close(socketFD)
		out = in
		err = nullify(unix.Stdin)
	case channelStdio:
		in, err = moveAway(unix.Stdin)
		if err == nil {
			out, err = moveAway(unix.Stdout)
		}
		if err == nil {
			err = errors.Join(nullify(unix.Stdin), nullify(unix.Stdout))
		}
	default:
		err = fmt.Errorf("--channel must be %s or %s", channelSocket, channelStdio)
	}
	if err != nil {
		return nil, err
	}
	return wire.NewWorker(io.Reader(in), out), nil
}

func moveAway(fd int) (*os.File, error) {
	moved, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, firstFD)
	if err != nil {
		return nil, fmt.Errorf("take over descriptor %d: %w", fd, err)
	}
	return os.NewFile(uintptr(moved), "channel"), nil
}

func nullify(fd int) error {
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", os.DevNull, err)
	}
	defer unix.Close(null)
	if err := unix.Dup3(null, fd, 0); err != nil {
		return fmt.Errorf("replace descriptor %d: %w", fd, err)
	}
	return nil
}

// pin makes the process fit to be the leash: PID 1, not to be traced or written to by processes of its own uid, not to
// be ended by their signals, unable to gain privileges.
func pin(unpinned bool) error {
	unix.Umask(0o077)
	// A peer of the same uid could otherwise write this process's memory, or re-open its channel, through /proc.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("mark the worker not dumpable: %w", err)
	}
	if unpinned {
		return nil
	}
	if os.Getpid() != 1 {
		return errors.New("the worker is not PID 1: what it starts would outlive it")
	}
	nnp, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	if err != nil || nnp != 1 {
		return errors.New("no_new_privs is not set on the worker")
	}
	catchSignals()
	return nil
}

// catchSignals keeps a peer's signal from ending PID 1: the Go runtime has handlers for most, so the kernel does not
// protect it. They are caught and not ignored, because an ignored signal stays ignored in a child.
func catchSignals() {
	caught := make(chan os.Signal, 1)
	signal.Notify(caught)
	// SIGURG is the runtime's own, sent at each preemption; not caught, it does nothing.
	signal.Reset(syscall.SIGURG)
	// Nobody reads the channel: os/signal drops what does not fit.
}

// confine applies Landlock to every thread of the process, as far as the kernel has it, and returns the ABI in force,
// 0 for none: the target is read-only and its sockets and pipes are dead ends, the network is closed, only the
// evidence volume and the scratch space can be written. It is a second line: the container holds without it.
func confine(o Options) int {
	abi, err := landlocksys.LandlockGetABIVersion()
	if err != nil || abi <= 0 {
		return 0
	}
	err = landlock.V11.BestEffort().RestrictPaths(
		landlock.RODirs(append([]string{o.Target, "/proc/self"}, o.Readable...)...).IgnoreIfMissing(),
		landlock.ROFiles("/proc/self/exe").IgnoreIfMissing(),
		landlock.RWDirs(o.Evidence, o.Scratch).IgnoreIfMissing(),
		landlock.RWFiles(os.DevNull).IgnoreIfMissing(),
	)
	if err != nil {
		fmt.Fprintln(os.Stderr, "rea-worker: landlock:", err)
		return 0
	}
	return abi
}
