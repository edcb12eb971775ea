package report

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"rea/evidence"
	"rea/orchestrator/session"
	"rea/providers/artifact"
	"rea/providers/versions"
)

// shownRows bounds each list of a comparison: what fits a few screens. The Evidence has them all.
const shownRows = 100

// classes is the order of a comparison's lists: what is wrong, what is not known, what differs.
var classes = []struct {
	class   artifact.Classification
	heading string
}{
	{artifact.Contradicted, "Contradictions: bytes that are not those their container declares"},
	{artifact.Unknown, "Unknown: could not be compared"},
	{artifact.Changed, "Changed"},
	{artifact.Added, "Added"},
	{artifact.Removed, "Removed"},
	{artifact.Moved, "Moved"},
}

// Versions writes the summary of a comparison of two versions.
func Versions(ctx context.Context, w io.Writer, style Style, v session.Versions) error {
	p := &page{w: w, style: style}
	p.line("old  %s", subject(v.Old))
	p.line("new  %s", subject(v.New))
	p.line("")
	p.line("%s %s", style.Bold("Verdict:"), verdict(style, versions.Status(v.Comparisons)))
	for _, c := range v.Comparisons {
		if err := comparison(ctx, p, c, v.Old, v.New); err != nil {
			return err
		}
	}
	p.line("")
	p.line("Evidence %s", v.Record.ID)
	return p.err
}

// Comparison writes the summary of one artifact comparison. left and right are the inventories that it compares.
func Comparison(ctx context.Context, w io.Writer, style Style, c, left, right *evidence.Record) error {
	p := &page{w: w, style: style}
	p.line("left   %s", subject(left))
	p.line("right  %s", subject(right))
	p.line("")
	f, err := artifact.ComparisonFacts(ctx, c)
	if err != nil {
		return err
	}
	p.line("%s %s", style.Bold("Verdict:"), verdict(style, string(f.Status)))
	err = comparison(ctx, p, versions.Comparison{Family: versions.Artifact, Status: string(f.Status), Evidence: c}, left, right)
	p.line("")
	p.line("Evidence %s", c.ID)
	if err != nil {
		return err
	}
	return p.err
}

// subject names what a record is about.
func subject(r *evidence.Record) string {
	s := r.Subject
	if s == nil {
		return "no subject"
	}
	return fmt.Sprintf("%s (%s, sha256 %s)", Printable(s.Name), s.Format, s.SHA256)
}

func verdict(style Style, status string) string {
	switch status {
	case versions.Unchanged:
		return style.Good(status)
	case versions.Contradiction:
		return style.Bad(status)
	}
	return style.Warn(status)
}

// rows are the rows of a comparison that are shown, and the numbers of all.
type rows struct {
	shown  map[artifact.Classification][]artifact.Row
	all    map[artifact.Classification]int64
	hidden int64 // changed directories that differ by what they hold alone
}

func (r *rows) add(row artifact.Row) {
	c := row.Classification
	r.all[c]++
	if c == artifact.Changed && onlyByContent(row) {
		r.hidden++
		return
	}
	if len(r.shown[c]) < shownRows {
		r.shown[c] = append(r.shown[c], row)
	}
}

// onlyByContent reports whether a directory differs by what it holds and by nothing else: its entries say it all.
func onlyByContent(row artifact.Row) bool {
	if row.Left.Format != artifact.FormatDirectory || row.Right.Format != artifact.FormatDirectory {
		return false
	}
	return !slices.ContainsFunc(row.Dimensions, func(d artifact.Dimension) bool {
		return d != artifact.DimensionContent && d != artifact.DimensionRelations && d != artifact.DimensionSize
	})
}

func comparison(ctx context.Context, p *page, c versions.Comparison, left, right *evidence.Record) error {
	f, err := factsOf(ctx, c)
	if err != nil {
		return err
	}
	r := rows{shown: map[artifact.Classification][]artifact.Row{}, all: map[artifact.Classification]int64{}}
	if err := artifact.Rows(ctx, c.Evidence, left, right, func(row artifact.Row) bool { r.add(row); return ctx.Err() == nil }); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	p.line("  %s", counts(r, f))
	for _, list := range classes {
		p.list(list.heading, list.class, r)
	}
	p.arrangements(f.ContainerDifferences)
	p.notes("Limits and notes", f.Limitations)
	return nil
}

// counts is one line with the number of entries of each class.
func counts(r rows, f facts) string {
	var parts []string
	for _, list := range classes {
		if n := r.all[list.class]; n > 0 {
			parts = append(parts, Count(n)+" "+string(list.class))
		}
	}
	if rest := f.Summary.Unknown - r.all[artifact.Unknown]; rest > 0 {
		parts = append(parts, Count(rest)+" not covered")
	}
	return strings.Join(append(parts, Count(f.Summary.Unchanged)+" unchanged"), ", ")
}

func (p *page) list(heading string, class artifact.Classification, r rows) {
	shown, all := r.shown[class], r.all[class]
	hidden := int64(0)
	if class == artifact.Changed {
		hidden = r.hidden
	}
	if all == 0 {
		return
	}
	p.line("")
	p.line("%s (%s)", p.style.Bold(heading), Count(all))
	width := 0
	for _, row := range shown {
		width = max(width, min(utf8.RuneCountInString(where(row)), maxColumn))
	}
	for _, row := range shown {
		p.line("%s", strings.TrimRight(fmt.Sprintf("  %-*s  %s", width, where(row), what(row)), " "))
	}
	p.more(all - hidden - int64(len(shown)))
	if hidden > 0 {
		p.line("  (and %s, by what is inside alone)", plural(hidden, "directory"))
	}
}

// maxColumn is the widest column of paths; longer ones push their own line only.
const maxColumn = 60

// where is a row's place for people.
func where(row artifact.Row) string {
	path := place(row.Path, row.Right.Format)
	if row.Right.Format == "" {
		path = place(row.Path, row.Left.Format)
	}
	if row.Classification == artifact.Moved {
		return Printable(row.From) + " → " + path
	}
	return path
}

func place(path string, format artifact.Format) string {
	if path == "." {
		return ". (the target itself)"
	}
	if format == artifact.FormatDirectory {
		path += "/"
	}
	return Printable(path)
}

// what is what a row says of its place: sizes, and in which respects it differs.
func what(row artifact.Row) string {
	parts := []string{}
	if text := sizes(row); text != "" {
		parts = append(parts, text)
	}
	if row.Classification != artifact.Added && row.Classification != artifact.Removed && row.Classification != artifact.Moved {
		parts = append(parts, dimensions(row.Dimensions))
	}
	return strings.Join(parts, "  ")
}

// sizes tells the sizes of a row's content, "" for a directory.
func sizes(row artifact.Row) string {
	if row.Left.Format == artifact.FormatDirectory || row.Right.Format == artifact.FormatDirectory {
		return ""
	}
	left, right := Size(row.Left.Size), Size(row.Right.Size)
	switch {
	case !row.Left.Present:
		return right
	case !row.Right.Present, row.Left.Size == row.Right.Size:
		return left
	case left == right:
		return fmt.Sprintf("%s → %s (%+d B)", left, right, row.Right.Size-row.Left.Size)
	}
	return left + " → " + right
}

// dimensions names the respects in which a row differs. Other content means other relations: that goes without saying.
func dimensions(list []artifact.Dimension) string {
	var names []string
	for _, d := range list {
		if d == artifact.DimensionRelations && slices.Contains(list, artifact.DimensionContent) {
			continue
		}
		names = append(names, string(d))
	}
	return strings.Join(names, ", ")
}

// arrangements tells how containers differ beside their members.
func (p *page) arrangements(list []artifact.ContainerDifference) {
	if len(list) == 0 {
		return
	}
	p.line("")
	p.line("%s", p.style.Bold("Containers arranged differently"))
	for _, d := range list[:min(len(list), shownRows)] {
		p.line("  %s  %s", place(d.LogicalPath, ""), strings.Join(d.Aspects, ", "))
	}
	p.more(int64(len(list) - shownRows))
}
