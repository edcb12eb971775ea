// Package script is what the conformance suite and the probe inside a sandbox say to each other: one JSON object a
// line. It holds types only.
package script

// What a Task can ask for.
const (
	Write           = "write"             // Text to the file Path
	Read            = "read"              // the file Path, at most 1 MiB, as Text
	Fill            = "fill"              // the file Path until the volume is full: bytes as Number
	Files           = "files"             // empty files in the directory Path until the volume is full: how many
	Calls           = "calls"             // system calls that must or must not work; Path is a socket in the target
	Look            = "look"              // at what surrounds the probe
	Attack          = "attack"            // the target's file Path, in every way: error number by way
	Escalate        = "escalate"          // to another user, to a program of the run's own: error number by way
	Plant           = "plant"             // in the directory Path, what a reader must refuse: error number by kind, and two counts
	Allocate        = "allocate"          // Number bytes, touched and kept
	AllocateInChild = "allocate-in-child" // the same in a child, which may be killed for it
	Fork            = "fork"              // Number children that wait forever: how many it could start
	Daemonize       = "daemonize"         // a grandchild in a session of its own, whose parent has ended
	Flood           = "flood"             // Number bytes on standard error
	Stubborn        = "stubborn"          // from now on, outlive the end of the channel
	Exit            = "exit"              // with the code Number
)

// Task asks the probe for one thing.
type Task struct {
	Do     string
	Path   string
	Text   string
	Number int
}

// Answer is what became of it. Errno is the error's number, 0 for success, -1 for an error without one.
type Answer struct {
	Facts  *Facts         // the first answer only, which nobody asked for
	Text   string         // what was read
	Number int            // what was counted
	Errno  int            //
	Calls  map[string]int // error number by call
	Around *Surroundings  // to Look
}

// Facts is what the probe sees of itself.
type Facts struct {
	PID, UID, GID int
	UIDMap        []string          // lines of /proc/self/uid_map, one blank between numbers
	Status        map[string]string // lines of /proc/self/status
	Limits        map[string]uint64 // hard limits: "core", "nofile", "fsize"
	OOMScoreAdj   string
	Hostname      string
	Dir           string
	Args, Env     []string
	Interfaces    []string // names of network interfaces
	Mounts        []Mount
	Nonce         string // content of the evidence volume's nonce file, "" when it cannot be read
	Evidence      Volume
	Masked        map[string]int // bytes or entries found at each masked path that is there
}

// Mount is one line of mountinfo.
type Mount struct {
	Path, Type string
	Options    []string
}

// Volume is what statfs(2) says.
type Volume struct {
	Type          int64 // magic number
	Bytes, Inodes uint64
}

// Surroundings is what the probe sees around itself.
type Surroundings struct {
	Namespaces      map[string]string // by kind, as /proc/self/ns names them
	Devices         []string          // below /dev: "c 1:3"; anything else there but links and directories as "file"
	SetID           []string          // files with set-user-id or set-group-id
	Routes          []string          // beyond the loopback
	AbstractSockets []string
	Engine          []string          // sockets of container engines that are there
	Cgroup          map[string]string // "memory", "swap", "pids", "cpu": as the kernel's file says, where it can be seen
	CgroupWritable  []string
	Masks           map[string]string // what hides each masked path
	Shared          []string          // mounts that hand on to others
}
