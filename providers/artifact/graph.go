package artifact

// Operation names of this family.
const (
	OpInventory = "inventory_artifact"
	OpExtract   = "extract_artifact"
	OpInspect   = "inspect_artifact"
	OpCompare   = "compare_artifacts"
)

// Limits of a graph. Builder, check and comparison share them.
const (
	// MaxEntries bounds the occurrences of one inventory, implied directories included: the guard of the contract.
	MaxEntries = 1_000_000
	// MaxPath bounds a logical path in bytes: a name of 4,096 bytes, each escaped to three.
	MaxPath = 3 * 4096
	// MaxPathBytes bounds all logical paths of one inventory together, so that deep names cannot multiply: 268 bytes for
	// each of MaxEntries, about four times what real trees of that size have.
	MaxPathBytes = 256 << 20
	// MaxElement bounds one element of a result (a node, an occurrence, a limitation) in bytes of JSON, so that a
	// stream is never held as one value.
	MaxElement = 1 << 20
	// MaxLimitations and MaxLimitationBytes bound the limitations of one inventory; they are the one list that stands
	// in memory whole, because an Evidence record repeats it.
	MaxLimitations     = 100_000
	MaxLimitationBytes = 16 << 20
	// MaxKept bounds the contradictions that an Inventory holds and an inspection repeats. The inventory has them all.
	MaxKept = 4096
	// MaxInteger is the largest count or size that JSON numbers carry exactly.
	MaxInteger = 1<<53 - 1
)

// Manifest identifies a graph and says how large it is.
type Manifest struct {
	EdgeCount       int64  `json:"edge_count"`
	GraphSHA256     string `json:"graph_sha256"`
	ManifestID      string `json:"manifest_id"` // "agm_" + hex64
	NodeCount       int64  `json:"node_count"`
	OccurrenceCount int64  `json:"occurrence_count"`
	RootArtifactID  string `json:"root_artifact_id"` // "art_" + hex64
	RootFormat      Format `json:"root_format"`
	RootSHA256      string `json:"root_sha256"`
}

// Range is a byte range inside the container.
type Range struct {
	Length int64 `json:"length"`
	Offset int64 `json:"offset"`
}

// Node is one distinct content.
type Node struct {
	Architecture *string      `json:"architecture"`
	ArtifactID   string       `json:"artifact_id"`
	ContentState ContentState `json:"content_state"`
	Format       Format       `json:"format"`
	Limitations  []string     `json:"limitations"`
	MediaType    *string      `json:"media_type"`
	SHA256       string       `json:"sha256"`
	Size         int64        `json:"size"`
}

// Occurrence is one place where content stands.
type Occurrence struct {
	ArtifactFormat     Format     `json:"artifact_format"`
	ArtifactID         *string    `json:"artifact_id"` // null when content is unavailable
	ArtifactKind       Kind       `json:"artifact_kind"`
	CompressedSize     *int64     `json:"compressed_size"`
	DeclaredSize       *int64     `json:"declared_size"`
	Encrypted          bool       `json:"encrypted"`
	EntryKind          EntryKind  `json:"entry_kind"`
	Executable         bool       `json:"executable"`
	HashStatus         HashStatus `json:"hash_status"`
	Limitations        []string   `json:"limitations"`
	LogicalPath        string     `json:"logical_path"` // "." is the root
	OccurrenceID       string     `json:"occurrence_id"`
	Ordinal            *int64     `json:"ordinal,omitzero"` // only where path and entry kind stand more than once
	ParentOccurrenceID *string    `json:"parent_occurrence_id"`
	SourceLocation     *Range     `json:"source_location"`
}

// Edge relates an occurrence to the artifact that it stands in or belongs to.
type Edge struct {
	EdgeID           string   `json:"edge_id"`
	OccurrenceID     string   `json:"occurrence_id"`
	Ordinal          int64    `json:"ordinal"`
	ParentArtifactID string   `json:"parent_artifact_id"`
	Producer         *string  `json:"producer"`
	Relation         Relation `json:"relation"`
}

// Contradiction is a declared digest that the observed bytes do not have.
type Contradiction struct {
	ContradictionID  string    `json:"contradiction_id"` // "ic_" + hex64
	DeclaredSHA256   string    `json:"declared_sha256"`
	EntryKind        EntryKind `json:"entry_kind"` // file or slice
	Limitations      []string  `json:"limitations"`
	LogicalPath      string    `json:"logical_path"`
	ObservedSHA256   string    `json:"observed_sha256"`
	OccurrenceID     string    `json:"occurrence_id"`
	ParentArtifactID string    `json:"parent_artifact_id"`
	Provenance       string    `json:"provenance"`
	Trust            string    `json:"trust"`
	Unpacked         bool      `json:"unpacked"`
}

// Fixed values of every contradiction.
const (
	ContradictionTrust      = "observed-untrusted"
	ContradictionProvenance = "container-integrity-metadata-versus-observed-bytes"
)

// Provenance is one tool that took part.
type Provenance struct {
	Arguments        []string `json:"arguments"`
	Effects          []string `json:"effects"` // read, write, mount
	ExecutableSHA256 *string  `json:"executable_sha256"`
	ExitCode         *int64   `json:"exit_code"`
	Tool             string   `json:"tool"`
	ToolVersion      *string  `json:"tool_version"`
}

// Effects of a tool.
const (
	EffectRead  = "read"
	EffectWrite = "write"
	EffectMount = "mount"
)

// Region roles of a container.
const (
	RegionPrefix = "prefix"
	RegionGap    = "gap"
	RegionTail   = "tail"
)

// Region is a byte range of a container that belongs to no entry.
type Region struct {
	Length int64  `json:"length"`
	Offset int64  `json:"offset"`
	Role   string `json:"role"` // prefix, gap, tail
	SHA256 string `json:"sha256"`
}

// Container says how an expanded container arranges its members. It is outside graph_sha256.
type Container struct {
	CommentSHA256     *string  `json:"comment_sha256"`
	MemberOrderSHA256 string   `json:"member_order_sha256"` // of the canonical JSON list of member paths, in order
	MethodsSHA256     string   `json:"methods_sha256"`      // of the canonical JSON list of [path, method], sorted
	OccurrenceID      string   `json:"occurrence_id"`
	Regions           []Region `json:"regions"` // by offset
}

// Scope is what an inventory set out to see.
type Scope string

// The scopes.
const (
	ScopeRoot    Scope = "root"              // the root alone
	ScopeEntries Scope = "container-entries" // the entries of a container or a directory
)

// Status says whether everything in scope was seen.
type Status string

// The coverage statuses.
const (
	CoverageComplete Status = "complete"
	CoverageUnknown  Status = "unknown"
)

// Coverage is the typed statement of what was seen. It never follows from the wording of limitations in records that
// carry it.
type Coverage struct {
	Scope  Scope  `json:"scope"`
	Status Status `json:"status"`
}

// Legacy gives coverage_status, the form for old clients.
func (c Coverage) Legacy() string {
	if c.Status == CoverageComplete {
		return "complete"
	}
	return "partial"
}
