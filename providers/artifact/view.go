package artifact

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"rea/evidence"
	"rea/evidence/fault"
)

// Identity of views' producer and kind, as Evidence carries them.
const (
	ViewOperation       = "inspect_analysis_view"
	ViewProviderID      = "rea-analysis-view"
	ViewProviderName    = "REA analysis view"
	ViewProviderVersion = "1"
	ViewPredicate       = "rea.analysis-view"
	viewKind            = "artifact-inventory"
)

// Collections that a page can show.
const (
	CollectionNodes          = "nodes"
	CollectionOccurrences    = "occurrences"
	CollectionEdges          = "edges"
	CollectionContradictions = "integrity_contradictions"
)

var collections = []string{CollectionNodes, CollectionOccurrences, CollectionEdges, CollectionContradictions}

// DefaultPage is the length of a page for which no limit was given.
const DefaultPage = 64

// Page is the view of a part of one collection.
type Page struct {
	Collection   string
	Offset       int64    // rows to pass over
	Limit        int64    // rows to show, at least 1
	LogicalPaths []string // occurrences at exactly these paths only; nil for all, empty for none
}

// ViewSummary makes the summary view of an inspection or an inventory: what the manifest promises, what is there, which
// kinds of entries occur, and the coverage. It reads stored Evidence only. The record is sealed.
func ViewSummary(ctx context.Context, parent *evidence.Record) (*evidence.Record, error) {
	v, err := newView(ctx, parent, map[string]any{"kind": "summary"})
	if err != nil {
		return nil, err
	}
	if err := v.read(); err != nil {
		return nil, err
	}
	m := v.inv.Manifest
	return v.record(object{"examined": 1, "exhausted": true, "next_offset": nil, "status": "complete-within-view", "total": 1},
		evidence.Member{}, object{
			"root_format": m.RootFormat, "manifest_id": m.ManifestID,
			"expected":               object{"nodes": m.NodeCount, "occurrences": m.OccurrenceCount, "edges": m.EdgeCount},
			"present":                v.counts,
			"entry_kinds":            v.inv.Entries,
			"inventory_evidence_ids": []string{v.inventoryID},
			"coverage":               v.inv.Coverage,
			"source_complete":        v.complete,
		})
}

// ViewPage makes the view of one page of a collection. Rows are those of the stored inventory, byte for byte; they go
// through sp. The record is sealed.
func ViewPage(ctx context.Context, parent *evidence.Record, page Page, sp evidence.Spooler) (*evidence.Record, error) {
	effective := map[string]any{"kind": "inventory", "collection": page.Collection, "offset": page.Offset, "limit": page.Limit}
	if page.LogicalPaths != nil {
		effective["logical_paths"] = page.LogicalPaths
	}
	v, err := newView(ctx, parent, effective)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(collections, page.Collection) || page.Offset < 0 || page.Limit < 1 ||
		page.LogicalPaths != nil && page.Collection != CollectionOccurrences {
		return nil, fault.New(fault.InvalidRequest, "An inventory page of this form does not exist.",
			"Name one of the collections nodes, occurrences, edges, integrity_contradictions, an offset from 0 and a limit from 1; logical_paths goes with occurrences only.").
			With("operation", ViewOperation)
	}
	p := pager{Page: page, view: v}
	items, err := p.read(sp)
	if err != nil {
		return nil, err
	}
	return v.record(p.coverage(), evidence.Member{Key: "items", Value: items}, nil)
}

// view is one view while it is made.
type view struct {
	ctx         context.Context
	parent      *evidence.Record
	effective   map[string]any
	inventoryID string
	source      func() (io.ReadCloser, error) // reads the inventory's result
	inv         Inventory
	counts      map[string]int64
	complete    bool // every graph check is satisfied
}

func newView(ctx context.Context, parent *evidence.Record, effective map[string]any) (*view, error) {
	v := &view{ctx: ctx, parent: parent, effective: effective, inventoryID: parent.ID}
	switch parent.Operation {
	case OpInventory:
		v.source = func() (io.ReadCloser, error) { return parent.NormalizedResult.Reader(), nil }
	case OpInspect:
		at, err := locate(parent.NormalizedResult)
		if err != nil {
			return nil, v.refuse(err)
		}
		v.inventoryID = at.id
		v.source = func() (io.ReadCloser, error) { return at.result.reader(parent.NormalizedResult) }
	default:
		return nil, fault.New(fault.UnsupportedTarget, fmt.Sprintf("Evidence of %.64q has no inventory views.", parent.Operation),
			"Pass Evidence of inspect_artifact or inventory_artifact.").With("operation", ViewOperation)
	}
	return v, nil
}

// refuse gives a flaw in the stored result its code.
func (v *view) refuse(err error) error {
	var f *flaw
	if !errors.As(err, &f) {
		return err
	}
	return fault.New(fault.EvidenceIntegrityMismatch, "The stored inventory is not what its contract allows: "+f.Error()+".",
		"Inspect the artifact again.").With("reason", f.Error()).With("evidence_id", v.parent.ID).Because(err)
}

// rules are what a stored inventory may be, the strictest first.
var rules = []rule{{}, {foreign: true}, {foreign: true, partial: true}}

// read verifies the inventory as far as it goes.
func (v *view) read() error {
	err := error(errPartial)
	for _, rl := range rules {
		err = v.attempt(rl, func(*scan, string, []byte) {})
		if !errors.Is(err, errForeign) && !errors.Is(err, errPartial) {
			break
		}
	}
	return v.refuse(err)
}

// attempt reads the inventory under one rule and shows every element that passed to tap.
func (v *view) attempt(rl rule, tap func(s *scan, list string, raw []byte)) error {
	r, err := v.source()
	if err != nil {
		return err
	}
	defer r.Close()
	s := newScan(v.ctx, r, rl)
	v.counts = map[string]int64{}
	for _, c := range collections {
		v.counts[c] = 0
	}
	s.tap = func(list string, raw []byte) {
		if _, ok := v.counts[list]; ok {
			v.counts[list]++
		}
		tap(s, list, raw)
	}
	err = s.head()
	for err == nil && !s.done {
		_, err = s.next()
	}
	if err == nil && v.parent.Subject != nil && v.parent.Subject.SHA256 != s.inv.Manifest.RootSHA256 {
		err = &flaw{at: "subject", reason: "its digest is not root_sha256", identity: true}
	}
	v.inv, v.complete = s.inv, !rl.partial
	return err
}

// pager picks the rows of a page.
type pager struct {
	Page
	view         *view
	wanted       map[string]bool
	total, shown int64
}

// read spools the rows. An attempt that has to be made again begins a new list.
func (p *pager) read(sp evidence.Spooler) (evidence.Payload, error) {
	if p.LogicalPaths != nil {
		p.wanted = map[string]bool{}
		for _, path := range p.LogicalPaths {
			p.wanted[path] = true
		}
	}
	var items evidence.Payload
	err := error(errPartial)
	for _, rl := range rules {
		p.total, p.shown = 0, 0
		items, err = sp.Spool(p.view.ctx, func(w io.Writer) error {
			e := newEncoder(p.view.ctx, w)
			e.text("[")
			if err := p.view.attempt(rl, func(s *scan, list string, raw []byte) { p.row(e, s, list, raw) }); err != nil {
				return err
			}
			return e.text("]").flush()
		})
		if !errors.Is(err, errForeign) && !errors.Is(err, errPartial) {
			break
		}
	}
	return items, p.view.refuse(err)
}

func (p *pager) row(e *encoder, s *scan, list string, raw []byte) {
	if list != p.Collection || p.wanted != nil && !p.wanted[s.occ.path] {
		return
	}
	p.total++
	if p.total <= p.Offset || p.shown >= p.Limit {
		return
	}
	if p.shown > 0 {
		e.text(",")
	}
	p.shown++
	e.buf = append(e.buf, raw...)
	e.next()
}

// coverage says which part of the selected rows the page shows.
func (p *pager) coverage() object {
	end := p.Offset + p.shown
	c := object{"examined": p.shown, "exhausted": end >= p.total, "next_offset": nil, "status": "page", "total": p.total}
	switch p.shown {
	case 0:
		c["status"] = "empty"
	case p.total:
		c["status"] = "complete-within-view"
	}
	if end < p.total {
		c["next_offset"] = end
	}
	return c
}

// record assembles the Evidence of a view: a page has items, a summary has summary.
func (v *view) record(coverage object, items evidence.Member, summary object) (*evidence.Record, error) {
	limitations := append([]string{}, v.inv.Limitations...)
	unknowns := []string{}
	if v.inv.Coverage.Status != CoverageComplete {
		unknowns = append(unknowns, "The inventory did not see everything in its scope.")
	}
	if !v.complete {
		unknowns = append(unknowns, "Graph members are missing; the last page says nothing about what was not returned.")
	}
	subject := object{"path": "", "sha256": v.inv.Manifest.RootSHA256}
	if v.parent.Subject != nil {
		subject["path"] = v.parent.Subject.LocalPath
	}
	values := object{
		"kind": viewKind, "view": v.effective, "parent_evidence_id": v.parent.ID, "parent_operation": v.parent.Operation,
		"parent_digest": v.parent.ID[len("ev_"):], "artifact": subject, "coverage": coverage, "limitations": limitations, "unknowns": unknowns,
	}
	var members []evidence.Member
	if summary != nil {
		values["summary"] = summary
	} else {
		values["source_complete"] = v.complete
		members = append(members, items)
	}
	for key, value := range values {
		p, err := evidence.PayloadOf(value)
		if err != nil {
			return nil, err
		}
		members = append(members, evidence.Member{Key: key, Value: p})
	}
	digest, err := evidence.ObjectPayload(members...).SHA256()
	if err != nil {
		return nil, err
	}
	members = append(members, evidence.Member{Key: "view_digest", Value: evidence.StringPayload(digest)})
	parameters, err := evidence.PayloadOf(object{"parent_evidence_id": v.parent.ID, "view": v.effective})
	if err != nil {
		return nil, err
	}
	r := &evidence.Record{
		Subject: v.parent.Subject, Provider: evidence.Provider{ID: ViewProviderID, Name: ViewProviderName, Version: ViewProviderVersion},
		PredicateType: ViewPredicate, Operation: ViewOperation, Parameters: parameters, NormalizedResult: evidence.ObjectPayload(members...),
		Confidence: evidence.Derived, Authority: v.parent.Authority, Limitations: limitations,
		Locations: []evidence.Location{{Kind: "artifact-path", Path: rootPath}}, Links: []string{v.parent.ID},
	}
	return r, seal(r)
}
