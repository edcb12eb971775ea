package report

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"rea/evidence"
	"rea/providers/artifact"
)

// shownEntries bounds the list of an inventory or an extraction.
const shownEntries = 1000

// Inventory writes what stands in a target, from its inventory Evidence. An unreadable result is an error.
func Inventory(ctx context.Context, w io.Writer, style Style, r *evidence.Record) error {
	p := &page{w: w, style: style}
	var l listing
	if err := l.read(ctx, r); err != nil {
		return err
	}
	p.line("%s", subject(r))
	coverage := style.Good(string(l.coverage.Status))
	if l.coverage.Status != artifact.CoverageComplete {
		coverage = style.Warn(string(l.coverage.Status))
	}
	p.line("%s %s, coverage %s", style.Bold("Inventory:"), plural(l.total, "entry"), coverage)
	p.line("")
	for _, o := range l.shown {
		p.line("  %12s  %-12s  %s", l.size(o), digest(o, l.nodes), entry(o))
	}
	p.more(l.total - int64(len(l.shown)))
	p.contradictions(l.contradictions, l.contradicted)
	p.notes("Limits and notes", l.limitations)
	p.line("")
	p.line("Evidence %s", r.ID)
	return p.err
}

// listing is the part of an inventory that is shown.
type listing struct {
	coverage       artifact.Coverage
	shown          []artifact.Occurrence
	total          int64
	nodes          map[string]artifact.Node // of what is shown
	contradictions []artifact.Contradiction
	contradicted   int64
	limitations    []string
}

// read reads the inventory twice: the entries first, because their contents stand before them.
func (l *listing) read(ctx context.Context, r *evidence.Record) error {
	wanted := map[string]bool{}
	err := members(ctx, r.NormalizedResult, map[string]func(*jsontext.Decoder) error{
		"coverage":    func(d *jsontext.Decoder) error { return json.UnmarshalDecode(d, &l.coverage) },
		"limitations": func(d *jsontext.Decoder) error { return json.UnmarshalDecode(d, &l.limitations) },
		"integrity_contradictions": elements(func(c artifact.Contradiction) {
			if l.contradicted++; l.contradicted <= shownRows {
				l.contradictions = append(l.contradictions, c)
			}
		}),
		"occurrences": elements(func(o artifact.Occurrence) {
			if l.total++; l.total <= shownEntries {
				l.shown = append(l.shown, o)
				if o.ArtifactID != nil {
					wanted[*o.ArtifactID] = true
				}
			}
		}),
	})
	if err != nil {
		return err
	}
	l.nodes = make(map[string]artifact.Node, len(wanted))
	return members(ctx, r.NormalizedResult, map[string]func(*jsontext.Decoder) error{
		"nodes": elements(func(n artifact.Node) {
			if wanted[n.ArtifactID] {
				l.nodes[n.ArtifactID] = n
			}
		}),
	})
}

// members gives the members of a JSON object that have a reader to it and skips the rest, as a stream.
func members(ctx context.Context, payload evidence.Payload, readers map[string]func(*jsontext.Decoder) error) error {
	r := payload.Reader()
	defer r.Close()
	d := jsontext.NewDecoder(r, jsontext.AllowInvalidUTF8(true))
	if _, err := d.ReadToken(); err != nil {
		return fmt.Errorf("read a result: %w", err)
	}
	for d.PeekKind() == '"' {
		name, err := d.ReadToken()
		if err != nil {
			return fmt.Errorf("read a result: %w", err)
		}
		read := readers[name.String()]
		if read == nil {
			read = (*jsontext.Decoder).SkipValue
		}
		if err := read(d); err != nil {
			return fmt.Errorf("read a result: %w", err)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// elements reads an array element by element.
func elements[T any](yield func(T)) func(*jsontext.Decoder) error {
	return func(d *jsontext.Decoder) error {
		if _, err := d.ReadToken(); err != nil {
			return err
		}
		for d.PeekKind() != ']' {
			var element T
			if err := json.UnmarshalDecode(d, &element); err != nil {
				return err
			}
			yield(element)
		}
		_, err := d.ReadToken()
		return err
	}
}

// size is what an entry weighs: its content where that is known, else what its container says.
func (l *listing) size(o artifact.Occurrence) string {
	if o.EntryKind == artifact.EntryDirectory || o.EntryKind == artifact.EntrySymlink {
		return ""
	}
	if o.ArtifactID != nil {
		if n, ok := l.nodes[*o.ArtifactID]; ok {
			return Size(n.Size)
		}
	}
	if o.DeclaredSize != nil {
		return "~" + Size(*o.DeclaredSize)
	}
	return "?"
}

// digest is the first part of a content's digest, or why there is none.
func digest(o artifact.Occurrence, nodes map[string]artifact.Node) string {
	if o.EntryKind == artifact.EntryDirectory || o.EntryKind == artifact.EntrySymlink {
		return string(o.EntryKind)
	}
	if o.HashStatus == artifact.HashVerified && o.ArtifactID != nil {
		if n, ok := nodes[*o.ArtifactID]; ok && len(n.SHA256) >= 12 {
			return n.SHA256[:12]
		}
	}
	return string(o.HashStatus)
}

// entry is an occurrence's path with what is special about it.
func entry(o artifact.Occurrence) string {
	format := o.ArtifactFormat
	if o.EntryKind == artifact.EntryDirectory {
		format = artifact.FormatDirectory
	}
	var marks []string
	if o.Executable && o.EntryKind != artifact.EntryDirectory {
		marks = append(marks, "executable")
	}
	if o.Encrypted {
		marks = append(marks, "encrypted")
	}
	if o.Ordinal != nil {
		marks = append(marks, fmt.Sprintf("number %d of this name", *o.Ordinal+1))
	}
	if !slices.Contains([]artifact.Format{artifact.FormatDirectory, artifact.FormatFile, artifact.FormatUnknown}, format) {
		marks = append(marks, string(format))
	}
	marks = append(marks, o.Limitations...)
	text := place(o.LogicalPath, format)
	if len(marks) > 0 {
		text += "  [" + Printable(strings.Join(marks, "; ")) + "]"
	}
	return text
}

func (p *page) contradictions(list []artifact.Contradiction, all int64) {
	if all == 0 {
		return
	}
	p.line("")
	p.line("%s (%s)", p.style.Bold("Contradictions: bytes that are not those their container declares"), Count(all))
	for _, c := range list {
		p.line("  %s  declared %.12s…, observed %.12s…", place(c.LogicalPath, ""), c.DeclaredSHA256, c.ObservedSHA256)
	}
	p.more(all - int64(len(list)))
}
