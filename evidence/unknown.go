package evidence

// Unknown is one revision of a residual unknown, as a bundle carries it. The registry that makes revisions and the
// rules between them are not here.
type Unknown struct {
	ID                  string               `json:"unknown_id"` // "unk_" + hex64
	Revision            int                  `json:"revision"`   // from 1
	PreviousDigest      *string              `json:"previous_revision_digest"`
	Digest              string               `json:"revision_digest"` // over the record without this member
	ScopeDigest         *string              `json:"scope_digest"`
	Question            string               `json:"question"`
	Status              string               `json:"status"`   // open, investigating, blocked, contradicted, resolved
	Severity            string               `json:"severity"` // low, medium, high, critical
	Domain              string               `json:"domain"`
	Supporting          []string             `json:"supporting_evidence_ids"`
	Contradicting       []string             `json:"contradicting_evidence_ids"`
	RequiredAuthority   *Authority           `json:"required_authority"`
	RequiredConfidence  Confidence           `json:"required_confidence"`
	RequiredEnvironment *RequiredEnvironment `json:"required_environment"`
	Probes              []Probe              `json:"recommended_probes"`
	Relationships       []Relationship       `json:"relationships"`
	Resolution          *Resolution          `json:"resolution"`
	Mutations           []string             `json:"mutation_evidence_ids"`
}

// RequiredEnvironment restricts where an unknown can be resolved; null means any.
type RequiredEnvironment struct {
	ID           *string `json:"id"`
	Platform     *string `json:"platform"`
	Architecture *string `json:"architecture"`
	Isolation    *string `json:"isolation"`
}

// Probe is a recommended next step.
type Probe struct {
	Operation string `json:"operation"`
	Rationale string `json:"rationale"`
}

// Relationship ties one unknown to another: depends-on, related-to or contradicts.
type Relationship struct {
	Type      string `json:"type"`
	UnknownID string `json:"unknown_id"`
}

// Resolution says how an unknown ended: verified, withdrawn or out-of-scope.
type Resolution struct {
	Disposition string   `json:"disposition"`
	Rationale   string   `json:"rationale"`
	EvidenceIDs []string `json:"evidence_ids"`
}
