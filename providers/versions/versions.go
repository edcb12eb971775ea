// Package versions assembles the one record that says how two versions of an application differ, from the comparisons
// that both admit. It is pure: each family of comparison is made elsewhere and handed in as Evidence, so that a new
// family is a new constant here and nothing else. Package versions must not know how a comparison is made.
package versions

import (
	"fmt"
	"slices"

	"rea/evidence"
	"rea/evidence/fault"
)

// Operation is the operation of the record.
const Operation = "compare_versions"

// Identity of the record's producer.
const (
	ProviderID      = "rea-version-comparison"
	ProviderName    = "REA version comparison"
	ProviderVersion = "1"
)

// Family names what a comparison looks at.
type Family string

// The families, in the order in which a record lists them.
const (
	Artifact   Family = "artifact"
	Native     Family = "native"
	JavaScript Family = "javascript"
	Behavior   Family = "behavior"
)

var families = []Family{Artifact, Native, JavaScript, Behavior}

// Statuses that a comparison and the record can have.
const (
	Unchanged     = "unchanged"
	Changed       = "changed"
	Unknown       = "unknown"
	Contradiction = "contradiction"
	Truncated     = "truncated"
)

// ranks is the order in which the record's status is chosen: the first that any comparison has. Whole additions and
// removals are changes.
var ranks = []struct {
	status string
	of     []string
}{
	{Contradiction, []string{Contradiction}},
	{Changed, []string{Changed, "added", "removed"}},
	{Truncated, []string{Truncated}},
	{Unknown, []string{Unknown}},
}

// Sentences of every record.
const (
	twoSubjects   = "The record compares two versions and has no single subject."
	limitFamilies = "Only what the listed comparisons look at was compared."
)

// Comparison is one comparison that was made.
type Comparison struct {
	Family   Family
	Status   string           // the comparison's own
	Evidence *evidence.Record // complete and sealed
}

// Version identifies one side.
type Version struct {
	RootFormat string `json:"root_format"`
	RootSHA256 string `json:"root_sha256"`
}

// VersionOf takes a side's identity from the subject of Evidence about it.
func VersionOf(s *evidence.Subject) Version {
	return Version{RootFormat: s.Format, RootSHA256: s.SHA256}
}

// Compare makes the record. No host path enters it. The comparisons are put into the order of their families; the
// result is a rope around their Evidence, which is not copied. A family that is unknown or repeated, or no comparison
// at all, is an error of the caller.
func Compare(left, right Version, comparisons []Comparison) (*evidence.Record, error) {
	comparisons = slices.Clone(comparisons)
	slices.SortStableFunc(comparisons, func(a, b Comparison) int {
		return slices.Index(families, a.Family) - slices.Index(families, b.Family)
	})
	if err := check(comparisons); err != nil {
		return nil, err
	}
	list, links := make([]evidence.Payload, len(comparisons)), make([]string, len(comparisons))
	for i, c := range comparisons {
		links[i] = c.Evidence.ID
		list[i] = evidence.ObjectPayload(
			evidence.Member{Key: "family", Value: evidence.StringPayload(string(c.Family))},
			evidence.Member{Key: "status", Value: evidence.StringPayload(c.Status)},
			evidence.Member{Key: "evidence", Value: c.Evidence.Payload()},
		)
	}
	limitations := []string{limitFamilies}
	members := []evidence.Member{{Key: "comparisons", Value: evidence.ArrayPayload(list...)}}
	for key, value := range map[string]any{
		"status": Status(comparisons), "left": left, "right": right, "limitations": limitations,
	} {
		p, err := evidence.PayloadOf(value)
		if err != nil {
			return nil, err
		}
		members = append(members, evidence.Member{Key: key, Value: p})
	}
	r := &evidence.Record{
		Provider:  evidence.Provider{ID: ProviderID, Name: ProviderName, Version: ProviderVersion},
		Operation: Operation, NormalizedResult: evidence.ObjectPayload(members...), Confidence: evidence.Derived,
		Authority: evidence.ShippedArtifact, NoSubject: twoSubjects, Limitations: limitations, Links: links,
	}
	return r, r.Seal()
}

func check(comparisons []Comparison) error {
	reason := ""
	for i, c := range comparisons {
		switch {
		case !slices.Contains(families, c.Family):
			reason = fmt.Sprintf("there is no family %q", c.Family)
		case i > 0 && comparisons[i-1].Family == c.Family:
			reason = fmt.Sprintf("the family %s is compared twice", c.Family)
		}
	}
	if len(comparisons) == 0 {
		reason = "no comparison was made"
	}
	if reason == "" {
		return nil
	}
	return fault.New(fault.ExecutionFailure, "The version comparison cannot be assembled: "+reason+".",
		"Report it: the list of comparisons is made by rea itself.")
}

// Status is the record's status: the first of contradiction, changed, truncated and unknown that a comparison has, else
// unchanged.
func Status(comparisons []Comparison) string {
	for _, r := range ranks {
		if slices.ContainsFunc(comparisons, func(c Comparison) bool { return slices.Contains(r.of, c.Status) }) {
			return r.status
		}
	}
	return Unchanged
}
