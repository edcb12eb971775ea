package session

import (
	"bytes"
	"context"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"golang.org/x/text/unicode/norm"

	"rea/evidence"
	"rea/orchestrator/guidance"
	"rea/orchestrator/schema"
	"rea/providers/artifact"
)

// maxSuggestions is the limit of the protocol for one reply.
const maxSuggestions = 100

// Suggestions are values for an argument of a prompt.
type Suggestions struct {
	Values  []string `json:"values"`
	Total   int      `json:"total"` // of all that match
	HasMore bool     `json:"hasMore"`
}

// Guide is the guidance that belongs to the session's catalog.
func (s *Session) Guide() *guidance.Guide { return s.guide }

// Complete suggests values for an argument of a prompt that begin with prefix. It looks at the session as it is now,
// caches nothing and starts nothing; no suggestions prove nothing about the target. Issues name a prompt or an
// argument that is not served.
func (s *Session) Complete(ctx context.Context, prompt, argument, prefix string) (Suggestions, []schema.Issue) {
	none := Suggestions{Values: []string{}}
	p, ok := s.guide.Prompt(prompt)
	if !ok {
		return none, []schema.Issue{{Path: []any{"ref", "name"}, Reason: schema.InvalidValue, Expected: "a prompt that prompts/list names"}}
	}
	a, ok := p.Argument(argument)
	if !ok {
		return none, []schema.Issue{{Path: []any{"argument", "name"}, Reason: schema.InvalidValue, Expected: "an argument of " + p.Name}}
	}
	var match []string
	folded := fold(prefix)
	for _, v := range s.candidates(ctx, a.Completion) {
		if strings.HasPrefix(fold(v), folded) {
			match = append(match, v)
		}
	}
	slices.Sort(match)
	match = slices.Compact(match)
	shown := append([]string{}, match[:min(len(match), maxSuggestions)]...)
	return Suggestions{shown, len(match), len(match) > len(shown)}, nil
}

// fold is the form in which suggestions are compared.
func fold(s string) string { return strings.ToLower(norm.NFKC.String(s)) }

// candidates are the values of one family. Documents and procedures are those of an analysis engine that is ready, and
// captures those whose result was validated; this build has neither.
func (s *Session) candidates(ctx context.Context, from guidance.Completion) []string {
	var out []string
	switch from {
	case guidance.CompleteProvider:
		out = append(out, "auto")
	case guidance.CompleteEvidence:
		for _, r := range s.ledger.All() {
			out = append(out, r.ID)
		}
	case guidance.CompleteUnknown:
		for _, u := range s.unknowns.Heads() {
			if u.Status != evidence.StatusResolved {
				out = append(out, u.ID)
			}
		}
	case guidance.CompleteManifest:
		for _, r := range s.inventories() {
			out = append(out, manifestOf(ctx, r)...)
		}
	case guidance.CompleteOccurrence:
		for _, r := range s.inventories() {
			out = append(out, occurrencesOf(ctx, r)...)
		}
	}
	return out
}

func (s *Session) inventories() []*evidence.Record {
	return slices.DeleteFunc(s.ledger.All(), func(r *evidence.Record) bool {
		return r.Operation != artifact.OpInspect && r.Operation != artifact.OpInventory
	})
}

// maxSummary bounds the summary of an inventory, which is a few hundred bytes beside its limitations.
const maxSummary = 16 << 20

// manifestOf is the manifest of an inventory that is valid, and nothing of another.
func manifestOf(ctx context.Context, r *evidence.Record) []string {
	v, err := artifact.ViewSummary(ctx, r)
	if err != nil {
		return nil
	}
	raw, err := v.NormalizedResult.Bytes(maxSummary)
	if err != nil {
		return nil
	}
	var view struct {
		Summary struct {
			ManifestID string `json:"manifest_id"`
		} `json:"summary"`
	}
	if json.Unmarshal(raw, &view) != nil || view.Summary.ManifestID == "" {
		return nil
	}
	return []string{view.Summary.ManifestID}
}

// occurrencesOf are the occurrences of an inventory that is valid.
func occurrencesOf(ctx context.Context, r *evidence.Record) []string {
	var ids occurrenceIDs
	page := artifact.Page{Collection: artifact.CollectionOccurrences, Limit: 1<<53 - 1}
	if _, err := artifact.ViewPage(ctx, r, page, &ids); err != nil {
		return nil
	}
	return ids.found
}

// occurrenceIDs takes the ids out of the rows of a page, as they are written.
type occurrenceIDs struct {
	rest  []byte
	found []string
}

// inRow matches the id of a row in canonical JSON. No string of a target can hold this text: its quotes are escaped.
var inRow = regexp.MustCompile(`"occurrence_id":"(occ_[a-f0-9]{64})"`)

// longestMatch is as much as a match can be cut by the end of a write.
const longestMatch = len(`"occurrence_id":"occ_"`) + 64

// Spool implements evidence.Spooler; a repeated attempt begins again.
func (o *occurrenceIDs) Spool(ctx context.Context, write func(w io.Writer) error) (evidence.Payload, error) {
	o.rest, o.found = nil, nil
	return evidence.Payload{}, write(evidence.ContextWriter(ctx, o))
}

// Write implements io.Writer.
func (o *occurrenceIDs) Write(p []byte) (int, error) {
	text := append(o.rest, p...)
	end := 0
	for _, m := range inRow.FindAllSubmatchIndex(text, -1) {
		o.found = append(o.found, string(text[m[2]:m[3]]))
		end = m[1]
	}
	o.rest = bytes.Clone(text[max(end, len(text)-longestMatch):])
	return len(p), nil
}
