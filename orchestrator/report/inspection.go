package report

import (
	"context"
	"io"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"rea/evidence"
)

// probe is a next step that an inspection proposes.
type probe struct {
	Operation string `json:"operation"`
	Rationale string `json:"rationale"`
}

// Inspection writes what stands in a target and what to look at next, from inspection Evidence and the inventory that
// it stands on.
func Inspection(ctx context.Context, w io.Writer, style Style, inspection, inventory *evidence.Record) error {
	if err := Inventory(ctx, w, style, inventory); err != nil {
		return err
	}
	var probes []probe
	var hypotheses []struct {
		Statement  string `json:"statement"`
		Confidence string `json:"confidence"`
	}
	err := members(ctx, inspection.NormalizedResult, map[string]func(*jsontext.Decoder) error{
		"next_probes": func(d *jsontext.Decoder) error { return json.UnmarshalDecode(d, &probes) },
		"hypotheses":  func(d *jsontext.Decoder) error { return json.UnmarshalDecode(d, &hypotheses) },
	})
	if err != nil {
		return err
	}
	p := &page{w: w, style: style}
	p.line("Evidence %s (inspection)", inspection.ID)
	if len(hypotheses)+len(probes) > 0 {
		p.line("")
		p.line("%s", style.Bold("Next"))
	}
	for _, h := range hypotheses {
		p.line("  - %s (%s confidence)", Printable(h.Statement), Printable(h.Confidence))
	}
	for _, n := range probes {
		p.line("  - %s: %s", Printable(n.Operation), Printable(n.Rationale))
	}
	return p.err
}
