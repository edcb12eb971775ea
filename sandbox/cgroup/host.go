package cgroup

// Mode is how a host arranges its control groups.
type Mode string

// The closed set of modes.
const (
	V1     Mode = "v1"
	Hybrid Mode = "hybrid" // v1 controllers, and a v2 tree beside them
	V2     Mode = "v2"
	None   Mode = "none"
)

// Host says what this process finds. Whether an engine manages its groups through systemd cannot be known from here:
// ask the engine. Where it does, a group made here is not a parent that the engine takes.
type Host struct {
	Mode        Mode
	Controllers []string // controllers of the v2 tree, sorted
	Usable      bool     // this process may make groups with all limits
	Reason      string   // why not, "" when Usable
	Action      string   // what to do about it, "" when Usable
	Ceiling     int64    // bytes of memory that all runs of this host share, 0 when unknown
}

// Detect examines the host and makes nothing.
func Detect() Host { return Host{Mode: None} }
