// Package wire is the control channel between the core and a worker: the one protocol that both speak.
//
// The channel carries frames: a 4-byte big-endian length and one JSON object of that length. No result travels on
// it; results go to the evidence volume, and Done commits to them by digest. Frames from a worker are hostile input:
// they are bounded before they are allocated, and decoded strictly into the types of this file, which hold no
// free-form value. Package wire must not know what a provider does.
package wire

import "github.com/go-json-experiment/json/jsontext"

// Version is the protocol's version; both sides must speak the same one.
const Version = 1

// Limits of the channel.
const (
	// MaxWorkerFrame bounds a frame from the worker: control messages are small, results never travel here.
	MaxWorkerFrame = 64 << 10
	// MaxCoreFrame bounds a frame from the core: parameters of one call.
	MaxCoreFrame = 4 << 20
	// MaxText bounds the text of a progress message in bytes.
	MaxText = 512
	// MaxReason bounds the reason of a Fatal in bytes.
	MaxReason = 1 << 10
)

// FromCore is a frame from the core; exactly one member is set.
type FromCore struct {
	Call    *Call    `json:"call,omitzero"`
	Cancel  *Cancel  `json:"cancel,omitzero"`
	Digest  *Digest  `json:"digest,omitzero"`
	Release *Release `json:"release,omitzero"`
}

// FromWorker is a frame from the worker; exactly one member is set.
type FromWorker struct {
	Hello    *Hello    `json:"hello,omitzero"`
	Progress *Progress `json:"progress,omitzero"`
	Done     *Done     `json:"done,omitzero"`
	Fatal    *Fatal    `json:"fatal,omitzero"`
}

// Hello is the worker's first frame: it proves that the evidence volume that it sees is the one that the core made.
type Hello struct {
	Version  int    `json:"version"`
	Worker   string `json:"worker"`   // build version of the worker
	PID      int    `json:"pid"`      // must be 1
	UID      int    `json:"uid"`      // as seen inside
	GID      int    `json:"gid"`      // as seen inside
	Nonce    string `json:"nonce"`    // content of /evidence/nonce, 64 hex digits
	Evidence Volume `json:"evidence"` // what /evidence is, by statfs and mountinfo
	Landlock int    `json:"landlock"` // ABI enforced on the worker, 0 when not available
}

// Volume is what a mount looks like from inside.
type Volume struct {
	Type   string `json:"type"`   // file-system type, "tmpfs" expected
	Bytes  int64  `json:"bytes"`  // capacity in bytes
	Inodes int64  `json:"inodes"` // capacity in inodes
	NoSUID bool   `json:"nosuid"`
	NoDev  bool   `json:"nodev"`
	NoExec bool   `json:"noexec"`
}

// Call asks for one operation. Its results go to /evidence/<seq>.
type Call struct {
	Seq        uint64         `json:"seq"`
	Provider   string         `json:"provider"`
	Operation  string         `json:"operation"`
	Params     jsontext.Value `json:"params"`      // the operation's parameters, canonical JSON
	DeadlineMS int64          `json:"deadline_ms"` // the run's remaining time; 0 for none
	// Mark is that of the target's file as the core has it open (see target.Mark), "" for none. With a mark a Digest
	// follows, as soon as the core has read the file.
	Mark string `json:"mark,omitzero"`
}

// Digest is the core's own digest of the target's file, for call Seq: a worker that finds the same mark on its file need
// not read it for a digest as well.
type Digest struct {
	Seq    uint64 `json:"seq"`
	SHA256 string `json:"sha256"` // hex; "" where the core could not read the file
}

// Cancel asks the worker to stop call Seq and to seal what it has.
type Cancel struct {
	Seq uint64 `json:"seq"`
}

// Release tells the worker that the core has copied the folder of call Seq: it may free it, and a worker of a static
// run ends.
type Release struct {
	Seq uint64 `json:"seq"`
}

// Progress is one observation of work that goes on. Text is target text: bounded, and escaped where it is shown.
type Progress struct {
	Seq     uint64 `json:"seq"`
	Phase   string `json:"phase"`
	Text    string `json:"text"`
	Entries int64  `json:"entries"` // entries handled so far
	Bytes   int64  `json:"bytes"`   // bytes read so far
}

// Done commits to the manifest of call Seq. The folder follows from Seq, never from the message.
type Done struct {
	Seq            uint64 `json:"seq"`
	ManifestSHA256 string `json:"manifest_sha256"`
	ManifestBytes  int64  `json:"manifest_bytes"`
}

// Fatal says why the worker cannot go on; it ends after it.
type Fatal struct {
	Reason string `json:"reason"`
}
