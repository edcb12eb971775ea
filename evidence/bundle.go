package evidence

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"

	"rea/evidence/fault"
)

// WriteBundle writes the bundle of these records and unknown revisions as canonical JSON and returns its length in
// bytes. Order of the arguments does not matter. Memory holds the manifests and no payload. When ctx ends, the write
// fails with its cause; w then holds a part.
func WriteBundle(ctx context.Context, w io.Writer, records []*Record, unknowns []Unknown) (int64, error) {
	records = sortedByID(slices.Clone(records))
	for i, r := range records {
		if i > 0 && records[i-1].ID == r.ID {
			return 0, fault.New(fault.EvidenceIntegrityMismatch, fmt.Sprintf("Two records of one bundle have the ID %s.", r.ID),
				"Pass each record once.").With("reason", "repeated record")
		}
	}
	revisions, err := revisionPayloads(unknowns)
	if err != nil {
		return 0, err
	}
	m := manifestsOf(records)
	b := &bundleWriter{w: bufio.NewWriterSize(ContextWriter(ctx, w), 64<<10)}
	b.list("{", "artifacts", listed(m.artifacts))
	b.list(",", "captures", listed(m.captures))
	b.list(",", "environments", listed(m.environments))
	b.list(",", "providers", listed(m.providers))
	b.list(",", "records", func(yield func(Payload) bool) {
		for _, r := range records {
			if !yield(r.Payload()) {
				return
			}
		}
	})
	b.list(",", "scenarios", listed(m.scenarios))
	b.list(",", "unknowns", slices.Values(revisions))
	b.text("}")
	if b.err == nil {
		b.err = b.w.Flush()
	}
	return b.n, b.err
}

// bundleWriter keeps the first error.
type bundleWriter struct {
	w   *bufio.Writer
	n   int64
	err error
}

func (b *bundleWriter) text(s string) { b.payload(CanonicalPayload([]byte(s))) }

func (b *bundleWriter) payload(p Payload) {
	if b.err != nil {
		return
	}
	var n int64
	n, b.err = p.WriteTo(b.w)
	b.n += n
}

func (b *bundleWriter) list(before, key string, elements func(yield func(Payload) bool)) {
	b.text(before + `"` + key + `":[`)
	sep := ""
	for e := range elements {
		b.text(sep)
		b.payload(e)
		if sep = ","; b.err != nil {
			return
		}
	}
	b.text("]")
}

// manifests are sets of canonical texts, all pure functions of the records.
type manifests struct {
	artifacts, captures, environments, providers, scenarios map[string]bool
}

func manifestsOf(records []*Record) manifests {
	m := manifests{map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}}
	for _, r := range records {
		m.providers[string(appendProvider(nil, r.Provider))] = true
		if r.Subject != nil {
			m.artifacts[string(appendSubject(nil, r.Subject, false))] = true
		}
		if r.Environment != nil {
			m.environments[string(appendEnvironment(nil, r.Environment))] = true
		}
		if r.Authority == ControlledReplay {
			e := AppendString([]byte(`{"authority":"controlled-replay","evidence_id":`), r.ID)
			e = AppendString(append(e, `,"operation":`...), r.Operation)
			m.scenarios[string(e)+"}"] = true
		}
		if r.PredicateType == PredicateCapture {
			e := AppendString([]byte(`{"evidence_id":`), r.ID)
			e = AppendString(append(e, `,"predicate_type":`...), r.PredicateType)
			m.captures[string(e)+"}"] = true
		}
	}
	return m
}

// listed yields a manifest in the order of our exports: code points of the canonical text.
func listed(set map[string]bool) func(yield func(Payload) bool) {
	return func(yield func(Payload) bool) {
		for _, text := range slices.Sorted(maps.Keys(set)) {
			if !yield(CanonicalPayload([]byte(text))) {
				return
			}
		}
	}
}

// revisionPayloads encodes unknowns by ID, then revision.
func revisionPayloads(unknowns []Unknown) ([]Payload, error) {
	unknowns = slices.Clone(unknowns)
	slices.SortFunc(unknowns, compareRevisions)
	out := make([]Payload, 0, len(unknowns))
	for _, u := range unknowns {
		p, err := PayloadOf(u)
		if err != nil {
			return nil, fmt.Errorf("encode revision %d of %s: %w", u.Revision, u.ID, err)
		}
		out = append(out, p)
	}
	return out, nil
}

func compareRevisions(a, b Unknown) int {
	return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Revision, b.Revision))
}
