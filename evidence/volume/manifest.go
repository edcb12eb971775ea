// Package volume defines what a worker leaves in its evidence volume and reads it back as hostile input.
//
// The worker writes <seq>/manifest.json last and commits to its SHA-256 on the control channel. The core reads the
// manifest once, then copies exactly the files that it names, once each, hashing while it copies; nothing is read
// twice and no path comes from anywhere but the core's own counter and the committed manifest. Package volume must
// not interpret what a result means.
package volume

import "rea/evidence/fault"

// Names inside the folder of one call.
const (
	ManifestName = "manifest.json"
	ResultName   = "result.json" // the normalized result, canonical JSON
	RawDir       = "raw"         // what an engine itself printed, where that differs
	FilesDir     = "files"       // blobs: extracted members, screenshots, recordings
	NonceName    = "nonce"       // at the volume's root: 64 hex digits that the core wrote
)

// Manifest is the content of manifest.json, canonical JSON. Strict: an unknown member is refused.
type Manifest struct {
	Nonce         string      `json:"nonce"`          // the core's nonce of this volume
	Seq           uint64      `json:"seq"`            // which call this answers
	RequestSHA256 string      `json:"request_sha256"` // SHA-256 of the call's canonical params
	Outcome       Outcome     `json:"outcome"`
	Error         *Failure    `json:"error"`     // null unless Outcome is failed or cancelled
	Target        *TargetSeen `json:"target"`    // null where the operation read no target
	Files         []File      `json:"files"`     // everything else in the folder, sorted by Path
	Exhausted     Quota       `json:"exhausted"` // the volume was full; Outcome is then failed or cancelled
}

// Quota names a quota of the volume.
type Quota string

// The quotas, and none.
const (
	ExhaustedNone   Quota = ""
	ExhaustedBytes  Quota = "bytes"
	ExhaustedInodes Quota = "inodes"
)

// Outcome is how the worker says that the call ended.
type Outcome string

// The closed set of outcomes.
const (
	Completed Outcome = "completed" // result.json is the whole result
	Failed    Outcome = "failed"    // Error says why; result.json, if listed, is partial
	Cancelled Outcome = "cancelled" // the call was cancelled; result.json, if listed, is partial
)

// Failure is an error as a worker reports it. The core checks it against the taxonomy before it uses it.
type Failure struct {
	Code    fault.Code    `json:"code"`
	Message string        `json:"message"`
	Action  string        `json:"action"`
	Details fault.Details `json:"details"`
}

// TargetSeen is the worker's own digest of the target: a claim that the core compares with its own (package target).
type TargetSeen struct {
	SHA256     string   `json:"sha256"`     // target digest, hex
	Unreadable []string `json:"unreadable"` // paths below the target that the worker could not read, escaped, sorted
	Omitted    int64    `json:"omitted"`    // how many more of them there were than are listed
}

// File names one file of the folder.
type File struct {
	Path   string `json:"path"` // below the folder, slash-separated, ASCII
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}
