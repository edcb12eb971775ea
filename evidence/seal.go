package evidence

import (
	"fmt"
	"slices"
	"strings"

	"rea/evidence/fault"
)

// NoSubjectSentence is the first limitation of a record without subject and without a reason of its own. It is part
// of identity: never change a byte of it.
const NoSubjectSentence = "No artifact identity was available."

// PredicateCapture is the predicate of a process capture.
const PredicateCapture = "rea.process-capture"

const (
	idPrefix = "ev_"

	// maxCount is the largest count, size or offset: 2^53 - 1, what a double still tells from its neighbours.
	maxCount = 1<<53 - 1

	// maxIssues bounds how many faults of one document are named.
	maxIssues = 20
)

// Formats is the closed set of subject formats.
var Formats = []string{
	"hopper", "analysis-database", "mach-o", "mach-o-universal", "elf", "pe", "dos-mz", "dos-com", "zip", "ipa", "apk",
	"msix", "appx", "asar", "dmg", "pkg", "plist", "entitlements", "javascript", "javascript-bundle", "source-map",
	"directory", "file", "unknown",
	"hap", "tar", "gzip", "bzip2", "xz", "zstd", "ar", "deb", "rpm", "7z", "iso9660", "squashfs",
	"cpio", "lzma", "pbzx", "xar", "cab", "crx",
	"appimage", "ole", "msi", "hfs-plus", "apfs", "udf",
}

var (
	architectures = []string{"", "x86", "x86_64", "arm", "arm64", "mips"}
	isolations    = []string{"none", "process", "container", "virtual-machine"}
	confidences   = []Confidence{Observed, Derived, Inferred}
	authorities   = []Authority{ShippedArtifact, ControlledReplay, HistoricalReference, ExternalService, AnalystInference}
)

// Issue is one fault of a document: where, and what kind.
type Issue struct {
	Path     []any  `json:"path"` // member names and array indexes
	Reason   Reason `json:"reason"`
	Message  string `json:"message,omitempty"`
	Expected string `json:"expected,omitempty"`
}

// Reason is the kind of an Issue.
type Reason string

// The closed set of reasons.
const (
	UnknownArgument Reason = "unknown_argument"
	MissingArgument Reason = "missing_argument"
	InvalidType     Reason = "invalid_type"
	OutOfRange      Reason = "out_of_range"
	InvalidValue    Reason = "invalid_value"
	InvalidFormat   Reason = "invalid_format"
)

// issues collects what is wrong with one document, up to maxIssues.
type issues []Issue

func (is *issues) add(reason Reason, expected string, path ...any) {
	if len(*is) < maxIssues {
		*is = append(*is, Issue{Path: path, Reason: reason, Expected: expected})
	}
}

// Seal completes a record that its producer has built: it fills in the defaults of the contract, puts the reason of
// an absent subject first among the limitations, drops repeated links, validates everything that an import validates
// and computes ID. A record that already has an ID is not changed but verified. Seal reads every payload once.
func (r *Record) Seal() error {
	if r.ID != "" {
		return r.Verify()
	}
	r.setDefaults()
	if p := r.AnalysisProfile; p != nil && p.SHA256 == "" {
		digest, err := p.digest()
		if err != nil {
			return fmt.Errorf("digest of the analysis profile: %w", err)
		}
		sealed := *p
		sealed.SHA256 = digest
		r.AnalysisProfile = &sealed
	}
	if err := r.checkShape(); err != nil {
		return err
	}
	if err := r.checkProfile(); err != nil {
		return err
	}
	id, err := r.identity()
	if err != nil {
		return fmt.Errorf("identity of a record of %s: %w", r.Operation, err)
	}
	r.ID, r.sealedID = id, id
	return nil
}

func (r *Record) setDefaults() {
	if r.PredicateType == "" {
		r.PredicateType = PredicateAnalysis
	}
	if r.Confidence == "" {
		r.Confidence = Observed
	}
	if r.Authority == "" {
		r.Authority = ShippedArtifact
	}
	if r.Parameters.IsNull() {
		r.Parameters = CanonicalPayload([]byte("{}"))
	}
	if p := r.AnalysisProfile; p != nil && p.Parameters.IsNull() {
		profile := *p
		profile.Parameters = CanonicalPayload([]byte("{}"))
		r.AnalysisProfile = &profile
	}
	if r.Subject == nil {
		reason := r.NoSubject
		if reason == "" {
			reason = NoSubjectSentence
		}
		r.Limitations = append([]string{reason}, r.Limitations...)
	} else if r.Subject.Name == "" {
		named := *r.Subject
		named.Name = "artifact"
		r.Subject = &named
	}
	r.Links = distinct(r.Links)
}

func distinct(list []string) []string {
	seen := make(map[string]bool, len(list))
	out := make([]string, 0, len(list))
	for _, s := range list {
		if !seen[s] {
			seen[s] = true
			out = append(out, s)
		}
	}
	return out
}

// Verify checks a finished record as an import does: shape, vocabulary, profile and identity. It reads every payload
// once. A wrong shape is invalid_request with issues, a wrong identity evidence_integrity_mismatch.
func (r *Record) Verify() error {
	if err := r.checkShape(); err != nil {
		return err
	}
	if err := r.checkProfile(); err != nil {
		return err
	}
	return r.checkIdentity()
}

func (r *Record) checkShape() error {
	var is issues
	r.validate(&is)
	return is.fault()
}

func (r *Record) checkIdentity() error {
	if !ValidID(r.ID) {
		return (issues{{Path: []any{"evidence_id"}, Reason: InvalidFormat, Expected: "ev_ and 64 lowercase hexadecimal digits"}}).fault()
	}
	id, err := r.identity()
	if err != nil {
		return fmt.Errorf("identity of %s: %w", r.ID, err)
	}
	if id != r.ID {
		return integrity("evidence_id", "the identity recomputed from the record's content is another")
	}
	r.sealedID = id
	return nil
}

// checkProfile compares the profile with the provider and with its own digest.
func (r *Record) checkProfile() error {
	p := r.AnalysisProfile
	if p == nil {
		return nil
	}
	if p.Provider != r.Provider {
		return integrity("analysis_profile.provider", "the profile names another provider than the record")
	}
	digest, err := p.digest()
	if err != nil {
		return fmt.Errorf("digest of the analysis profile: %w", err)
	}
	if digest != p.SHA256 {
		return integrity("analysis_profile.digest", "the digest recomputed from the profile's content is another")
	}
	return nil
}

func integrity(path, reason string) error {
	return fault.New(fault.EvidenceIntegrityMismatch,
		fmt.Sprintf("An Evidence record is not authentic: at %s, %s.", path, reason),
		"Use the record as its producer delivered it, or run the producer again.").
		WithAll(fault.Details{"path": path, "reason": reason})
}

// fault is nil when nothing was found.
func (is issues) fault() error {
	if len(is) == 0 {
		return nil
	}
	return fault.New(fault.InvalidRequest, "An Evidence record does not have the shape of its contract.",
		"Use the record as its producer delivered it; the details name each place that differs.").
		With("issues", []Issue(is))
}

// ValidID reports whether id has the form of an Evidence ID.
func ValidID(id string) bool {
	return strings.HasPrefix(id, idPrefix) && validSHA256(id[len(idPrefix):])
}

func validSHA256(s string) bool {
	return len(s) == 64 && strings.Trim(s, lowerHex) == ""
}

func (r *Record) validate(is *issues) {
	validateSubject(is, r.Subject)
	validateProvider(is, r.Provider, "provider")
	if p := r.AnalysisProfile; p != nil {
		validateProvider(is, p.Provider, "analysis_profile", "provider")
		if p.Provider.Version == "" {
			is.add(InvalidType, "string", "analysis_profile", "provider", "version")
		}
		if !validSHA256(p.SHA256) {
			is.add(InvalidFormat, "64 lowercase hexadecimal digits", "analysis_profile", "digest")
		}
		validateObject(is, p.Parameters, "analysis_profile", "parameters")
	}
	is.text(r.PredicateType, true, "predicate_type")
	is.text(r.Operation, true, "operation")
	validateObject(is, r.Parameters, "parameters")
	oneOf(is, confidences, r.Confidence, "confidence")
	oneOf(is, authorities, r.Authority, "authority")
	if e := r.Environment; e != nil {
		is.text(e.ID, true, "environment", "id")
		is.text(e.Platform, true, "environment", "platform")
		is.text(e.Architecture, true, "environment", "architecture")
		oneOf(is, isolations, e.Isolation, "environment", "isolation")
	}
	for i, l := range r.Limitations {
		is.text(l, false, "limitations", i)
	}
	for i, l := range r.Locations {
		validateLocation(is, l, "locations", i)
	}
	for i, l := range r.Links {
		if !ValidID(l) {
			is.add(InvalidFormat, "ev_ and 64 lowercase hexadecimal digits", "evidence_links", i)
		}
	}
}

func validateSubject(is *issues, s *Subject) {
	if s == nil {
		return
	}
	is.text(s.Name, true, "subject", "name")
	is.text(s.LocalPath, false, "subject", "local_path")
	if !validSHA256(s.SHA256) {
		is.add(InvalidFormat, "64 lowercase hexadecimal digits", "subject", "digest", "sha256")
	}
	oneOf(is, Formats, s.Format, "subject", "format")
	oneOf(is, architectures, s.Architecture, "subject", "architecture")
}

func validateProvider(is *issues, p Provider, path ...any) {
	is.text(p.ID, true, append(slices.Clone(path), "id")...)
	is.text(p.Name, true, append(slices.Clone(path), "name")...)
	is.text(p.Version, false, append(slices.Clone(path), "version")...)
}

func validateObject(is *issues, p Payload, path ...any) {
	if b, err := p.first(); err == nil && b != '{' { // a blob that cannot be read shows in the digest
		is.add(InvalidType, "object", path...)
	}
}

func validateLocation(is *issues, l Location, path ...any) {
	at := func(key string) []any { return append(slices.Clone(path), key) }
	switch l.Kind {
	case "address":
		is.text(l.Address, false, at("address")...)
	case "address-range":
		is.text(l.Start, false, at("start")...)
		is.text(l.End, false, at("end")...)
	case "artifact-path":
		is.text(l.Path, false, at("path")...)
	case "file-offset":
		is.offset(l.Offset, at("offset")...)
	case "file-offset-range":
		is.offset(l.Offset, at("start")...)
		is.offset(l.Limit, at("end")...)
	default:
		is.add(InvalidValue, "address, address-range, artifact-path, file-offset or file-offset-range", at("kind")...)
	}
}

func (is *issues) text(s string, filled bool, path ...any) {
	switch {
	case filled && s == "":
		is.add(OutOfRange, "at least one character", path...)
	case !ValidString(s):
		is.add(InvalidFormat, "valid UTF-8", path...)
	}
}

func (is *issues) offset(n int64, path ...any) {
	if n < 0 || n > maxCount {
		is.add(OutOfRange, "integer from 0 to 9007199254740991", path...)
	}
}

func oneOf[T ~string](is *issues, set []T, v T, path ...any) {
	if slices.Contains(set, v) {
		return
	}
	words := make([]string, 0, len(set))
	for _, s := range set {
		if s == "" {
			s = "null"
		}
		words = append(words, string(s))
	}
	is.add(InvalidValue, "one of "+strings.Join(words, ", "), path...)
}
