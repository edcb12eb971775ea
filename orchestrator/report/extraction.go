package report

import (
	"context"
	"io"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"rea/evidence"
	"rea/providers/artifact"
)

// extracted is one file of an extraction.
type extracted struct {
	RelativePath string `json:"relative_path"`
	SHA256       string `json:"sha256"`
	BytesWritten int64  `json:"bytes_written"`
}

// Extraction writes what an extraction wrote and where, from its Evidence.
func Extraction(ctx context.Context, w io.Writer, style Style, r *evidence.Record) error {
	var root string
	var shown []extracted
	var total, bytes, contradicted int64
	var contradictions []artifact.Contradiction
	var limitations []string
	err := members(ctx, r.NormalizedResult, map[string]func(*jsontext.Decoder) error{
		"output_root": func(d *jsontext.Decoder) error { return json.UnmarshalDecode(d, &root) },
		"limitations": func(d *jsontext.Decoder) error { return json.UnmarshalDecode(d, &limitations) },
		"artifacts": elements(func(f extracted) {
			bytes += f.BytesWritten
			if total++; total <= shownEntries {
				shown = append(shown, f)
			}
		}),
		"integrity_contradictions": elements(func(c artifact.Contradiction) {
			if contradicted++; contradicted <= shownRows {
				contradictions = append(contradictions, c)
			}
		}),
	})
	if err != nil {
		return err
	}
	p := &page{w: w, style: style}
	p.line("%s", subject(r))
	p.line("%s %s, %s, to %s", style.Bold("Extracted:"), plural(total, "file"), Size(bytes), Printable(root))
	p.line("")
	for _, f := range shown {
		p.line("  %12s  %.12s  %s", Size(f.BytesWritten), f.SHA256, Printable(f.RelativePath))
	}
	p.more(total - int64(len(shown)))
	p.contradictions(contradictions, contradicted)
	p.notes("Limits and notes", limitations)
	p.line("")
	p.line("Evidence %s", r.ID)
	return p.err
}
