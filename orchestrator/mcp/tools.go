package mcp

import (
	"context"
	"io"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"rea/evidence"
	"rea/evidence/fault"
	"rea/orchestrator/catalog"
	"rea/orchestrator/guidance"
	"rea/orchestrator/run"
	"rea/orchestrator/schema"
	"rea/orchestrator/session"
)

// input is one call with valid arguments.
type input struct {
	session    *session.Session
	arguments  jsontext.Value
	progress   func(run.Progress)
	connection session.Connection
}

// output is the document of a successful call, canonical JSON.
type output struct {
	document   io.WriterTo
	evidenceID string // of Evidence that is retained
}

// handler carries out one tool.
type handler func(ctx context.Context, in input) (output, error)

// handlers has one entry for each tool of the catalog.
var handlers = map[string]handler{
	catalog.OpenBinary:    openBinary,
	catalog.CloseBinary:   closeBinary,
	catalog.BinarySession: binarySession,

	catalog.GetEvidenceBundle:    getEvidenceBundle,
	catalog.ExportEvidenceBundle: exportEvidenceBundle,
	catalog.ImportEvidenceBundle: importEvidenceBundle,
	catalog.CompareBundles:       compareBundles,

	catalog.RecordUnknown:           recordUnknown,
	catalog.UpdateUnknown:           updateUnknown,
	catalog.ListUnknowns:            listUnknowns,
	catalog.VerifyUnknownResolution: verifyUnknownResolution,

	catalog.InspectArtifact:     inspectArtifact,
	catalog.ExtractArtifact:     extractArtifact,
	catalog.CompareArtifacts:    compareArtifacts,
	catalog.InspectAnalysisView: inspectAnalysisView,

	catalog.GuidedWorkflows:     guidedWorkflows,
	catalog.SearchGuidance:      searchGuidance,
	catalog.ReadGuidanceSection: readGuidanceSection,
}

// decode reads valid arguments. A failure means that a contract and its Go type differ.
func decode(arguments jsontext.Value, into any) error {
	// The contract has checked names and repeats; payloads inside may hold lone surrogates, which are kept.
	if err := json.Unmarshal(arguments, into, json.RejectUnknownMembers(true), jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true)); err != nil {
		return fault.New(fault.ExecutionFailure, "The arguments could not be read.", "Report this call to the maintainers of rea.").Because(err)
	}
	return nil
}

// record is the answer of a tool that produces Evidence.
func record(r *evidence.Record, err error) (output, error) {
	if err != nil {
		return output{}, err
	}
	return output{document: r, evidenceID: r.ID}, nil
}

// result wraps the answer of a session tool.
func result(v any, err error) (output, error) {
	if err != nil {
		return output{}, err
	}
	p, err := evidence.PayloadOf(map[string]any{"result": v})
	if err != nil {
		return output{}, err
	}
	return output{document: p}, nil
}

func openBinary(ctx context.Context, in input) (output, error) {
	var o session.OpenInput
	if err := decode(in.arguments, &o); err != nil {
		return output{}, err
	}
	return result(in.session.OpenBinary(ctx, o, in.progress))
}

func closeBinary(ctx context.Context, in input) (output, error) {
	var c session.CloseInput
	if err := decode(in.arguments, &c); err != nil {
		return output{}, err
	}
	return result(nil, in.session.CloseBinaryWith(ctx, c))
}

func binarySession(ctx context.Context, in input) (output, error) {
	var e session.Expectations
	if err := decode(in.arguments, &e); err != nil {
		return output{}, err
	}
	return result(in.session.BinarySession(ctx, e, in.connection))
}

func getEvidenceBundle(ctx context.Context, in input) (output, error) {
	var b session.BundleInput
	if err := decode(in.arguments, &b); err != nil {
		return output{}, err
	}
	d, err := in.session.EvidenceBundle(ctx, b)
	if err != nil {
		return output{}, err
	}
	return output{document: wrapped{d}}, nil
}

// wrapped writes a document as the one member of a session tool's answer.
type wrapped struct{ document io.WriterTo }

func (w wrapped) WriteTo(to io.Writer) (int64, error) {
	var total int64
	for _, part := range []io.WriterTo{text(`{"result":`), w.document, text(`}`)} {
		n, err := part.WriteTo(to)
		total += n
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

type text string

func (t text) WriteTo(w io.Writer) (int64, error) {
	n, err := io.WriteString(w, string(t))
	return int64(n), err
}

func inspectArtifact(ctx context.Context, in input) (output, error) {
	var i session.InspectInput
	if err := decode(in.arguments, &i); err != nil {
		return output{}, err
	}
	return record(in.session.InspectArtifact(ctx, i, in.progress))
}

func extractArtifact(ctx context.Context, in input) (output, error) {
	var e session.ExtractInput
	if err := decode(in.arguments, &e); err != nil {
		return output{}, err
	}
	return record(in.session.ExtractArtifact(ctx, e, in.progress))
}

func compareArtifacts(ctx context.Context, in input) (output, error) {
	left, err := source(catalog.CompareArtifacts, in.arguments, "left")
	if err != nil {
		return output{}, err
	}
	right, err := source(catalog.CompareArtifacts, in.arguments, "right")
	if err != nil {
		return output{}, err
	}
	return record(in.session.CompareArtifacts(ctx, left, right))
}

// source reads an Evidence argument: the reference of a retained record, or a record of which every identity is
// recomputed.
func source(operation string, arguments jsontext.Value, name string) (session.Source, error) {
	raw := member(arguments, name)
	if member(raw, "kind") != nil {
		var reference struct {
			Kind       string `json:"kind"`
			EvidenceID string `json:"evidence_id"`
		}
		err := decode(raw, &reference)
		return session.Source{EvidenceID: reference.EvidenceID}, err
	}
	r, err := evidence.Parse(raw)
	if err != nil {
		return session.Source{}, schema.RejectEvidence(operation, name, err)
	}
	return session.Source{Record: r}, nil
}

// inspectAnalysisView reads a source whose inline form has a member of its own for the record.
func inspectAnalysisView(ctx context.Context, in input) (output, error) {
	given := member(in.arguments, "source")
	src := session.Source{EvidenceID: textOf(member(given, "evidence_id"))}
	if inline := member(given, "evidence"); inline != nil {
		r, err := evidence.Parse(inline)
		if err != nil {
			return output{}, schema.RejectEvidence(catalog.InspectAnalysisView, "source", err)
		}
		src = session.Source{Record: r}
	}
	return record(in.session.InspectView(ctx, src, member(in.arguments, "view")))
}

func exportEvidenceBundle(ctx context.Context, in input) (output, error) {
	var e session.ExportInput
	if err := decode(in.arguments, &e); err != nil {
		return output{}, err
	}
	return result(in.session.ExportBundle(ctx, e))
}

func importEvidenceBundle(ctx context.Context, in input) (output, error) {
	var i struct {
		Path string `json:"path"`
	}
	if err := decode(in.arguments, &i); err != nil {
		return output{}, err
	}
	return result(in.session.ImportBundle(ctx, i.Path))
}

func compareBundles(ctx context.Context, in input) (output, error) {
	var c session.BundleComparison
	if err := decode(in.arguments, &c); err != nil {
		return output{}, err
	}
	return record(in.session.CompareBundles(ctx, c))
}

func recordUnknown(ctx context.Context, in input) (output, error) {
	var u session.UnknownInput
	if err := decode(in.arguments, &u); err != nil {
		return output{}, err
	}
	return result(in.session.RecordUnknown(ctx, u))
}

func updateUnknown(ctx context.Context, in input) (output, error) {
	var u session.UnknownUpdate
	if err := decode(in.arguments, &u); err != nil {
		return output{}, err
	}
	return result(in.session.UpdateUnknown(ctx, u))
}

func listUnknowns(_ context.Context, in input) (output, error) {
	var q session.UnknownQuery
	if err := decode(in.arguments, &q); err != nil {
		return output{}, err
	}
	return result(in.session.ListUnknowns(q), nil)
}

func verifyUnknownResolution(_ context.Context, in input) (output, error) {
	return result(in.session.VerifyUnknown(textOf(member(in.arguments, "unknown_id"))))
}

func guidedWorkflows(_ context.Context, in input) (output, error) {
	return result(in.session.Guide().Guided(in.arguments))
}

func searchGuidance(_ context.Context, in input) (output, error) {
	q := struct {
		Query  string `json:"query"`
		Offset int    `json:"offset"`
		Limit  int    `json:"limit"`
	}{Limit: guidance.MaxMatches}
	if err := decode(in.arguments, &q); err != nil {
		return output{}, err
	}
	return result(guidance.Search(guidance.Skill(), q.Query, q.Offset, q.Limit).Project(), nil)
}

func readGuidanceSection(_ context.Context, in input) (output, error) {
	return result(guidance.Read(guidance.Skill(), textOf(member(in.arguments, "locator"))), nil)
}
