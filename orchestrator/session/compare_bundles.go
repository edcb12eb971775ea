package session

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"rea/evidence"
	"rea/evidence/fault"
	"rea/orchestrator/catalog"
	"rea/orchestrator/schema"
)

// BundleComparison is the input of compare_bundles.
type BundleComparison struct {
	Left  BundleSource `json:"left"`
	Right BundleSource `json:"right"`
	Pairs []RecordPair `json:"record_pairs"`
}

// BundleSource is a bundle as an input: in a file, or in place.
type BundleSource struct {
	Kind   string         `json:"kind"` // file or inline
	Path   string         `json:"path"`
	Bundle jsontext.Value `json:"bundle"`
}

// RecordPair names two records that are to be held against each other although their ids differ.
type RecordPair struct {
	Left  string `json:"left_evidence_id"`
	Right string `json:"right_evidence_id"`
}

// comparisonProvider makes comparisons of bundles.
var comparisonProvider = evidence.Provider{ID: "rea-bundle-comparison", Name: "REA bundle comparison", Version: "1"}

// comparisonNotice stands in every comparison of bundles. It is part of identity.
const comparisonNotice = "Compares what the bundles record; records that only one of them holds were not looked for elsewhere."

// CompareBundles compares two bundles and retains the comparison. Both are verified as an import verifies them;
// nothing of them enters the session.
func (s *Session) CompareBundles(ctx context.Context, in BundleComparison) (*evidence.Record, error) {
	if err := acquire(ctx, s.work, 1); err != nil {
		return nil, err
	}
	defer s.work.Release(1)
	staging := s.analyzer.Retainer()
	r, err := s.compareBundles(ctx, in, staging)
	if rerr := staging.Release(); err == nil && rerr != nil {
		err = rerr
	}
	if err != nil {
		return nil, ended(ctx, err)
	}
	return s.retain(ctx, r)
}

func (s *Session) compareBundles(ctx context.Context, in BundleComparison, staging evidence.Retainer) (*evidence.Record, error) {
	c := bundleComparer{pairs: in.Pairs}
	for i, src := range []BundleSource{in.Left, in.Right} {
		b, err := s.readSource(ctx, src, staging)
		if err != nil {
			return nil, err
		}
		h := sha256.New()
		if _, err := evidence.WriteBundle(ctx, h, b.Records, b.Unknowns); err != nil {
			return nil, err
		}
		c.sides[i] = indexBundle(b, hex.EncodeToString(h.Sum(nil)))
	}
	if err := c.checkPairs(); err != nil {
		return nil, err
	}
	c.records()
	c.unknowns()
	return c.record()
}

func (s *Session) readSource(ctx context.Context, src BundleSource, staging evidence.Retainer) (*evidence.Bundle, error) {
	if src.Kind == "file" {
		return ReadBundleFile(ctx, src.Path, s.analyzer.Spooler(), staging)
	}
	return evidence.ReadBundle(ctx, bytes.NewReader(src.Bundle), s.analyzer.Spooler(), staging)
}

// indexedBundle is one side.
type indexedBundle struct {
	sha256    string
	records   map[string]*evidence.Record
	histories map[string][]evidence.Unknown
	revisions int
}

func indexBundle(b *evidence.Bundle, sum string) indexedBundle {
	side := indexedBundle{sha256: sum, records: map[string]*evidence.Record{}, histories: map[string][]evidence.Unknown{}, revisions: len(b.Unknowns)}
	for _, r := range b.Records {
		side.records[r.ID] = r
	}
	for _, u := range b.Unknowns {
		side.histories[u.ID] = append(side.histories[u.ID], u)
	}
	return side
}

func (b indexedBundle) project() map[string]any {
	return map[string]any{"bundle_sha256": b.sha256, "records": len(b.records), "unknowns": len(b.histories), "unknown_revisions": b.revisions}
}

// comparedRow is one difference.
type comparedRow struct {
	Entity         string  `json:"entity"`
	Classification string  `json:"classification"`
	Conclusion     string  `json:"conclusion"`
	LeftID         *string `json:"left_id"`
	RightID        *string `json:"right_id"`
	Operation      *string `json:"operation"`
	LeftRevision   *int    `json:"left_revision"`
	RightRevision  *int    `json:"right_revision"`
}

// Entities and conclusions of a comparison.
const (
	entityRecord     = "evidence"
	entityUnknown    = "residual_unknown"
	observedChange   = "observed_change"
	contradiction    = "contradiction"
	unresolvedBranch = "unresolved_branch"
)

type bundleComparer struct {
	sides   [2]indexedBundle
	pairs   []RecordPair
	rows    []comparedRow
	summary struct {
		RecordsUnchanged  int `json:"records_unchanged"`
		RecordsAdded      int `json:"records_added"`
		RecordsRemoved    int `json:"records_removed"`
		RecordsChanged    int `json:"records_changed"`
		RecordsUnknown    int `json:"records_unknown"`
		UnknownsUnchanged int `json:"unknowns_unchanged"`
		UnknownsAdded     int `json:"unknowns_added"`
		UnknownsRemoved   int `json:"unknowns_removed"`
		UnknownsAdvanced  int `json:"unknowns_advanced"`
		UnknownsDiverged  int `json:"unknowns_diverged"`
		Unresolved        int `json:"unresolved"`
	}
}

// checkPairs refuses pairs that are not one to one, or name what is not there.
func (c *bundleComparer) checkPairs() error {
	var seen [2]map[string]bool
	for i, p := range c.pairs {
		for side, id := range []string{p.Left, p.Right} {
			if seen[side] == nil {
				seen[side] = map[string]bool{}
			}
			member, which := []string{"left_evidence_id", "right_evidence_id"}[side], []string{"left", "right"}[side]
			issue := schema.Issue{Path: []any{"record_pairs", i, member}, Reason: schema.InvalidValue}
			switch {
			case c.sides[side].records[id] == nil:
				issue.Expected = "a record of the " + which + " bundle"
			case seen[side][id]:
				issue.Expected = "a record that no other pair names"
			default:
				seen[side][id] = true
				continue
			}
			return schema.Reject(catalog.CompareBundles, issue)
		}
	}
	return nil
}

// records compares Evidence: by id, and in the pairs that the caller made.
func (c *bundleComparer) records() {
	left, right := c.sides[0].records, c.sides[1].records
	paired := [2]map[string]bool{{}, {}}
	for _, p := range c.pairs {
		paired[0][p.Left], paired[1][p.Right] = true, true
		c.pair(left[p.Left], right[p.Right])
	}
	for id, r := range left {
		switch {
		case paired[0][id]:
		case right[id] != nil:
			c.summary.RecordsUnchanged++
		default:
			c.summary.RecordsRemoved++
			c.rows = append(c.rows, comparedRow{Entity: entityRecord, Classification: "removed", Conclusion: observedChange, LeftID: &id, Operation: &r.Operation})
		}
	}
	for id, r := range right {
		if !paired[1][id] && left[id] == nil {
			c.summary.RecordsAdded++
			c.rows = append(c.rows, comparedRow{Entity: entityRecord, Classification: "added", Conclusion: observedChange, RightID: &id, Operation: &r.Operation})
		}
	}
}

// pair compares two records. Two that say different things about the same bytes, asked the same way, contradict each
// other; two of different operations cannot be compared.
func (c *bundleComparer) pair(l, r *evidence.Record) {
	row := comparedRow{Entity: entityRecord, Classification: "changed", Conclusion: observedChange, LeftID: &l.ID, RightID: &r.ID, Operation: &r.Operation}
	switch {
	case l.ID == r.ID:
		c.summary.RecordsUnchanged++
		return
	case l.Operation != r.Operation || l.PredicateType != r.PredicateType:
		row.Classification, row.Conclusion = "unknown", unresolvedBranch
		c.summary.RecordsUnknown++
	default:
		c.summary.RecordsChanged++
		if sameQuestion(l, r) {
			row.Conclusion = contradiction
		}
	}
	c.rows = append(c.rows, row)
}

// sameQuestion reports whether two records were made by the same provider, configured alike, with the same parameters
// on the same bytes.
func sameQuestion(l, r *evidence.Record) bool {
	if l.Subject == nil || r.Subject == nil || l.Subject.SHA256 != r.Subject.SHA256 || l.Provider != r.Provider {
		return false
	}
	profile := func(e *evidence.Record) string {
		if e.AnalysisProfile == nil {
			return ""
		}
		return e.AnalysisProfile.SHA256
	}
	a, aerr := l.Parameters.SHA256()
	b, berr := r.Parameters.SHA256()
	return aerr == nil && berr == nil && a == b && profile(l) == profile(r)
}

// unknowns compares histories of open questions.
func (c *bundleComparer) unknowns() {
	left, right := c.sides[0].histories, c.sides[1].histories
	for id, l := range left {
		c.histories(id, l, right[id])
	}
	for id, r := range right {
		if left[id] == nil {
			c.histories(id, nil, r)
		}
	}
}

func (c *bundleComparer) histories(id string, l, r []evidence.Unknown) {
	row := comparedRow{Entity: entityUnknown, Conclusion: observedChange}
	head := func(h []evidence.Unknown) (*string, *int) {
		if h == nil {
			return nil, nil
		}
		return &id, &h[len(h)-1].Revision
	}
	row.LeftID, row.LeftRevision = head(l)
	row.RightID, row.RightRevision = head(r)
	common := min(len(l), len(r))
	switch {
	case l == nil:
		c.summary.UnknownsAdded++
		row.Classification = "added"
	case r == nil:
		c.summary.UnknownsRemoved++
		row.Classification = "removed"
	case l[common-1].Digest != r[common-1].Digest:
		c.summary.UnknownsDiverged++
		row.Classification, row.Conclusion = "history_diverged", contradiction
	case len(l) == len(r):
		c.summary.UnknownsUnchanged++
		return
	default:
		c.summary.UnknownsAdvanced++
		row.Classification = "history_advanced"
	}
	longer := l
	if len(r) > len(l) {
		longer = r
	}
	if row.Conclusion == observedChange && longer[len(longer)-1].Status != evidence.StatusResolved {
		row.Conclusion = unresolvedBranch // the question that differs is open
	}
	c.rows = append(c.rows, row)
}

// record assembles the Evidence of the comparison.
func (c *bundleComparer) record() (*evidence.Record, error) {
	id := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	slices.SortFunc(c.rows, func(a, b comparedRow) int {
		return cmp.Or(cmp.Compare(a.Entity, b.Entity), cmp.Compare(cmp.Or(id(a.LeftID), id(a.RightID)), cmp.Or(id(b.LeftID), id(b.RightID))), cmp.Compare(id(a.RightID), id(b.RightID)))
	})
	status := "unchanged"
	for _, r := range c.rows {
		switch {
		case r.Conclusion != observedChange:
			status = "unknown"
		case status == "unchanged":
			status = "changed"
		}
		if r.Conclusion == unresolvedBranch {
			c.summary.Unresolved++
		}
	}
	links := []string{}
	for _, p := range c.pairs {
		links = append(links, p.Left, p.Right)
	}
	parameters, err := evidence.PayloadOf(map[string]any{"left_bundle_sha256": c.sides[0].sha256, "right_bundle_sha256": c.sides[1].sha256, "record_pairs": append([]RecordPair{}, c.pairs...)})
	if err != nil {
		return nil, err
	}
	result, err := evidence.PayloadOf(map[string]any{"status": status, "left": c.sides[0].project(), "right": c.sides[1].project(),
		"summary": c.summary, "rows": append([]comparedRow{}, c.rows...), "limitations": []string{comparisonNotice}})
	if err != nil {
		return nil, err
	}
	r := &evidence.Record{Provider: comparisonProvider, Operation: catalog.CompareBundles, Parameters: parameters, NormalizedResult: result,
		Confidence: evidence.Derived, Authority: evidence.AnalystInference, Limitations: []string{comparisonNotice}, Links: links,
		NoSubject: fmt.Sprintf("Compares two bundles of %d and %d records, not an artifact.", len(c.sides[0].records), len(c.sides[1].records))}
	if err := r.Seal(); err != nil {
		return nil, fault.From(err)
	}
	return r, nil
}
