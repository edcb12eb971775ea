package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"rea/evidence"
	"rea/evidence/fault"
	"rea/evidence/portable"
	"rea/orchestrator"
	"rea/orchestrator/catalog"
	"rea/orchestrator/report"
	"rea/orchestrator/schema"
	"rea/orchestrator/session"
	"rea/orchestrator/view"
)

// evidenceCommands work on Evidence that was made before. None of them opens a target or starts a container.
func (a *app) evidenceCommands() []*cobra.Command {
	return []*cobra.Command{
		a.viewCommand(), a.inspectBundleCommand(), a.compareBundlesCommand(), a.exportCommand(), a.importCommand(),
	}
}

func (a *app) viewCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "inspect-analysis-view EVIDENCE", Short: "Look at a part of Evidence that was made before", Args: cobra.ExactArgs(1),
		Long: `Inspect-analysis-view selects from one Evidence record, given as a JSON file or inline: a summary by default, or what
--view asks for, for example {"kind":"inventory","collection":"occurrences","offset":64,"limit":64}.`,
	}
	request := cmd.Flags().String("view", `{"kind":"`+view.KindSummary+`"}`, "`JSON` of the view, or a file with it")
	cmd.RunE = a.work(func(ctx context.Context, h *orchestrator.Host, args []string) (answer, error) {
		return a.view(ctx, h, args[0], *request)
	})
	return cmd
}

func (a *app) view(ctx context.Context, h *orchestrator.Host, operand, request string) (out answer, err error) {
	r, err := readEvidence(ctx, h.Spooler(), operand)
	if err != nil {
		return answer{}, err
	}
	asked, err := readJSON(request)
	if err != nil {
		return answer{}, err
	}
	if issues := view.Builtin().Input().Validate(asked); len(issues) > 0 {
		return answer{}, schema.Reject(view.Operation, schema.Below("view", issues)...)
	}
	s := a.session(h)
	defer closing(ctx, s, &err)
	made, err := s.InspectView(ctx, session.Source{Record: r}, asked)
	if err != nil {
		return answer{}, err
	}
	return record(made, outline(made.NormalizedResult)), nil
}

// maxRequest bounds a JSON argument that is a request and not Evidence.
const maxRequest = 1 << 20

// readJSON reads a JSON argument: the text itself, or the file that holds it.
func readJSON(arg string) (jsontext.Value, error) {
	text := arg
	if !strings.HasPrefix(strings.TrimSpace(arg), "{") {
		f, err := openArgument(arg)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		raw, err := io.ReadAll(io.LimitReader(f, maxRequest+1))
		if err != nil {
			return nil, usage("the file %s cannot be read", report.Printable(arg)).With("input_path", inputPath(arg)).With("input_reason", "read-failed")
		}
		text = string(raw)
	}
	v := jsontext.Value(text)
	switch {
	case len(text) > maxRequest:
		return nil, usage("a request takes at most %d bytes of JSON", maxRequest).With("input_path", inputPath(arg)).With("input_reason", "too-large")
	case !v.IsValid(jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true)):
		return nil, usage("an argument is not JSON").With("input_path", inputPath(arg)).With("input_reason", "invalid-json")
	}
	return v, nil
}

// maxOutline bounds what is shown to a person; machines ask for JSON.
const maxOutline = 16 << 20

// outline shows a value for people: indented JSON, with what a terminal could obey escaped.
func outline(document io.WriterTo) func(io.Writer, report.Style) error {
	return func(w io.Writer, _ report.Style) error {
		var b strings.Builder
		if _, err := document.WriteTo(&limited{w: &b, left: maxOutline}); err != nil {
			if errors.Is(err, errTooLong) {
				err = fault.New(fault.ResourceConstraint, "The answer is too long to be shown as text.", "Use --format json, or ask for a smaller part.").
					WithAll(fault.Details{"resource": "memory", "reason": "text form", "reported_limits": map[string]any{"bytes": maxOutline}})
			}
			return err
		}
		v := jsontext.Value(b.String())
		if err := v.Indent(jsontext.AllowInvalidUTF8(true), jsontext.WithIndent("  ")); err != nil {
			return err
		}
		lines := textLines{w: w}
		for line := range strings.Lines(string(v)) {
			text := strings.TrimSuffix(line, "\n")
			content := strings.TrimLeft(text, " ")
			lines.add("%s%s", text[:len(text)-len(content)], report.Printable(content))
		}
		return lines.err
	}
}

var errTooLong = errors.New("too long")

// limited refuses what goes beyond a limit.
type limited struct {
	w    io.Writer
	left int
}

// Write implements io.Writer.
func (l *limited) Write(p []byte) (int, error) {
	if l.left -= len(p); l.left < 0 {
		return 0, errTooLong
	}
	return l.w.Write(p)
}

func (a *app) inspectBundleCommand() *cobra.Command {
	return &cobra.Command{
		Use: "inspect-evidence-bundle JSON", Short: "Verify an Evidence bundle and show it, complete or as a summary", Args: cobra.ExactArgs(1),
		Long: `Inspect-evidence-bundle verifies every identity in a bundle file and shows what get_evidence_bundle would. JSON is
inline or a file: {"path":"/work/evidence.json","detail":"summary","filters":{"operation":"inspect_artifact"}}.`,
		RunE: a.work(a.inspectBundle),
	}
}

func (a *app) inspectBundle(ctx context.Context, h *orchestrator.Host, args []string) (answer, error) {
	const operation = "inspect_evidence_bundle"
	raw, err := readJSON(args[0])
	if err != nil {
		return answer{}, err
	}
	if issues := bundleRequest().Validate(raw); len(issues) > 0 {
		return answer{}, schema.Reject(operation, issues...)
	}
	var in struct {
		Path string `json:"path"`
		session.BundleInput
	}
	if err := json.Unmarshal(raw, &in); err != nil {
		return answer{}, usage("the request cannot be read")
	}
	// The records lie in the store while they are shown.
	var document strings.Builder
	err = withBundle(ctx, h, in.Path, func(b *evidence.Bundle) error {
		projected, err := session.ProjectBundle(ctx, operation, b, in.BundleInput)
		if err != nil {
			return err
		}
		_, err = projected.WriteTo(&limited{w: &document, left: maxShownBundle})
		return err
	})
	if errors.Is(err, errTooLong) {
		err = fault.New(fault.ResourceConstraint, "The complete bundle is too large to be shown.", `Ask for {"detail":"summary"}, or read the file itself: it was verified.`).
			WithAll(fault.Details{"operation": operation, "resource": "memory", "reason": "complete bundle",
				"reported_limits": map[string]any{"input_path": in.Path, "projected_value_bytes": maxShownBundle}})
	}
	if err != nil {
		return answer{}, err
	}
	shown := evidence.CanonicalPayload([]byte(`{"result":` + document.String() + `}`))
	return answer{text: outline(shown), json: func(w io.Writer) error {
		if _, err := shown.WriteTo(w); err != nil {
			return err
		}
		_, err := io.WriteString(w, "\n")
		return err
	}}, nil
}

// maxShownBundle bounds a complete bundle on standard output.
const maxShownBundle = 256 << 20

// bundleRequest is the input of get_evidence_bundle with the path of a file.
func bundleRequest() *schema.Shape {
	tool, _ := catalog.Builtin().Lookup(catalog.GetEvidenceBundle)
	s := *tool.Input
	s.Properties = append([]schema.Property{schema.Need("path", schema.Formatted(schema.AbsolutePath, "Absolute path of the bundle file."))}, s.Properties...)
	return &s
}

// withBundle reads and verifies a bundle file; its records are held in the store until do returns.
func withBundle(ctx context.Context, h *orchestrator.Host, path string, do func(*evidence.Bundle) error) error {
	keep := h.Retainer()
	b, err := session.ReadBundleFile(ctx, path, h.Spooler(), keep)
	if err == nil {
		err = do(b)
	}
	return errors.Join(err, keep.Release())
}

func (a *app) compareBundlesCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "compare-bundles LEFT RIGHT", Short: "Compare two Evidence bundles, record by record and unknown by unknown", Args: cobra.ExactArgs(2)}
	pairs := cmd.Flags().StringArray("pair", nil, "`LEFT_ID=RIGHT_ID` of two records to hold against each other; repeat for more")
	cmd.RunE = a.work(func(ctx context.Context, h *orchestrator.Host, args []string) (answer, error) {
		return a.compareBundles(ctx, h, args, *pairs)
	})
	return cmd
}

func (a *app) compareBundles(ctx context.Context, h *orchestrator.Host, args, pairs []string) (out answer, err error) {
	in := session.BundleComparison{Left: session.BundleSource{Kind: "file"}, Right: session.BundleSource{Kind: "file"}}
	if in.Left.Path, err = absolute(args[0]); err != nil {
		return answer{}, err
	}
	if in.Right.Path, err = absolute(args[1]); err != nil {
		return answer{}, err
	}
	for _, p := range pairs {
		left, right, ok := strings.Cut(p, "=")
		if !ok || !evidence.ValidID(left) || !evidence.ValidID(right) {
			return answer{}, usage("--pair is two evidence ids joined by =")
		}
		in.Pairs = append(in.Pairs, session.RecordPair{Left: left, Right: right})
	}
	s := a.session(h)
	defer closing(ctx, s, &err)
	comparison, err := s.CompareBundles(ctx, in)
	if err != nil {
		return answer{}, err
	}
	return record(comparison, outline(comparison.NormalizedResult)), nil
}

func (a *app) exportCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "evidence-export PATH EVIDENCE...", Short: "Write Evidence files and bundles into one bundle", Args: cobra.MinimumNArgs(2),
		Long: `Evidence-export writes one bundle that holds every record and unknown of the given files, each an Evidence record or a
bundle. The file appears complete or not at all.`,
	}
	overwrite := cmd.Flags().Bool("overwrite", false, "replace a file that is there")
	cmd.RunE = a.work(func(ctx context.Context, h *orchestrator.Host, args []string) (answer, error) {
		return a.export(ctx, h, args[0], args[1:], *overwrite)
	})
	return cmd
}

func (a *app) export(ctx context.Context, h *orchestrator.Host, operand string, from []string, overwrite bool) (out answer, err error) {
	path, err := absolute(operand)
	if err != nil {
		return answer{}, err
	}
	keep := h.Retainer()
	defer func() { err = errors.Join(err, keep.Release()) }()
	all := evidence.NewRegistry(evidence.NewLedger(keep))
	for _, arg := range from {
		b, err := readPart(ctx, h, keep, arg)
		if err != nil {
			return answer{}, err
		}
		if _, err := all.Import(ctx, b); err != nil {
			return answer{}, err
		}
	}
	records, unknowns := all.Snapshot()
	receipt, err := session.WriteBundleFile(ctx, session.ExportInput{Path: path, Overwrite: overwrite}, &evidence.Bundle{Records: records, Unknowns: unknowns})
	if err != nil {
		return answer{}, err
	}
	done := session.Exported{Path: receipt.Path, Bytes: receipt.Bytes, Records: len(records), Unknowns: len(unknowns)}
	return result(done, func(w io.Writer, _ report.Style) error {
		_, err := fmt.Fprintf(w, "Wrote %d records and %d revisions of unknowns, %s, to %s.\n", done.Records, done.Unknowns, report.Size(done.Bytes), report.Printable(done.Path))
		return err
	}), nil
}

// readPart reads a bundle, or a record as a bundle of one.
func readPart(ctx context.Context, h *orchestrator.Host, keep evidence.Retainer, arg string) (*evidence.Bundle, error) {
	if path, ok := bundleArgument(arg); ok {
		return session.ReadBundleFile(ctx, path, h.Spooler(), keep)
	}
	r, err := readEvidence(ctx, h.Spooler(), arg)
	if err != nil {
		return nil, err
	}
	return &evidence.Bundle{Records: []*evidence.Record{r}}, nil
}

// bundleArgument reports whether an argument is a file that holds a bundle.
func bundleArgument(arg string) (string, bool) {
	if strings.HasPrefix(strings.TrimSpace(arg), "{") {
		return "", false
	}
	f, err := portable.Open(arg)
	if err != nil {
		return "", false // reading it as a record says what is wrong
	}
	defer f.Close()
	return arg, evidence.IsBundle(f)
}

func (a *app) importCommand() *cobra.Command {
	return &cobra.Command{
		Use: "evidence-import PATH", Short: "Verify a bundle and put its records into the local store", Args: cobra.ExactArgs(1),
		Long: `Evidence-import verifies every identity in a bundle and puts its records into the store, where they fall under its
budget. Unknowns stay in the bundle. An MCP session sees what a bundle holds after its own import_evidence_bundle.`,
		RunE: a.work(a.importBundle),
	}
}

// importedBundle says what evidence-import did.
type importedBundle struct {
	Path     string `json:"path"`
	Imported int    `json:"imported"`       // records that are in the store now
	Unknowns int    `json:"unknowns_added"` // always none: the store keeps no unknowns
	Found    int    `json:"unknowns_found"` // revisions in the bundle, verified
}

func (a *app) importBundle(ctx context.Context, h *orchestrator.Host, args []string) (answer, error) {
	path, err := absolute(args[0])
	if err != nil {
		return answer{}, err
	}
	done := importedBundle{Path: path}
	err = withBundle(ctx, h, path, func(b *evidence.Bundle) error {
		done.Imported, done.Found = len(b.Records), len(b.Unknowns)
		return nil
	})
	if err != nil {
		return answer{}, err
	}
	return result(done, func(w io.Writer, _ report.Style) error {
		_, err := fmt.Fprintf(w, "%s holds %d records, which are in the store now, and %d revisions of unknowns, which stay in it.\n", report.Printable(path), done.Imported, done.Found)
		return err
	}), nil
}
