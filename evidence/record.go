package evidence

// Confidence ranks how a statement was reached: observed above derived above inferred.
type Confidence string

// The closed set of confidences.
const (
	Observed Confidence = "observed"
	Derived  Confidence = "derived"
	Inferred Confidence = "inferred"
)

// Authority is where the truth of a statement comes from.
type Authority string

// The closed set of authorities.
const (
	ShippedArtifact     Authority = "shipped-artifact"
	ControlledReplay    Authority = "controlled-replay"
	HistoricalReference Authority = "historical-reference"
	ExternalService     Authority = "external-service"
	AnalystInference    Authority = "analyst-inference"
)

// PredicateAnalysis is the default kind of statement.
const PredicateAnalysis = "rea.analysis"

// Record is one Evidence record. Build it, Seal it, then treat it as immutable. Its canonical JSON has exactly the
// fifteen keys of the runtime contract.
type Record struct {
	ID               string // "ev_" + hex64, set by Seal
	Subject          *Subject
	Provider         Provider
	AnalysisProfile  *AnalysisProfile
	PredicateType    string
	Operation        string
	Parameters       Payload // an object
	RawResult        Payload
	NormalizedResult Payload
	Confidence       Confidence
	Authority        Authority
	Environment      *Environment
	Limitations      []string
	Locations        []Location
	Links            []string // evidence_links

	// NoSubject is why there is no subject. It is not a member of the record: Seal puts it first among the
	// limitations of a record without subject, or a fixed sentence where it is "".
	NoSubject string

	sealedID string // the ID that Seal or Parse computed
}

// Sealed reports whether the ID is the one that was computed when the record was finished. It does not see a later
// change of another field; Verify does.
func (r *Record) Sealed() bool { return r.ID != "" && r.ID == r.sealedID }

// Subject is the artifact that a record is about. Name and LocalPath are for display: they are not part of identity.
type Subject struct {
	Name         string
	SHA256       string // hex64
	Format       string
	Architecture string // "" for null
	LocalPath    string
}

// Provider says who produced an observation.
type Provider struct {
	ID, Name string
	Version  string // "" for null
}

// AnalysisProfile is the concrete configuration of an analysis.
type AnalysisProfile struct {
	Provider   Provider // Version is not ""
	Parameters Payload  // an object
	SHA256     string   // digest over {"parameters":…,"provider":…}
}

// Environment is where a run-time observation was made.
type Environment struct {
	ID           string `json:"id"`
	Platform     string `json:"platform"`
	Architecture string `json:"architecture"`
	Isolation    string `json:"isolation"` // none, process, container, virtual-machine
}

// Location is a place in the subject. Kind says which other fields are meant.
type Location struct {
	Kind    string // address, address-range, artifact-path, file-offset, file-offset-range
	Address string // address
	Path    string // artifact-path
	Start   string // address-range
	End     string // address-range
	Offset  int64  // file-offset; start of file-offset-range
	Limit   int64  // end of file-offset-range
}
