package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"rea/evidence"
	"rea/evidence/fault"
	"rea/orchestrator"
	"rea/orchestrator/catalog"
	"rea/orchestrator/report"
	"rea/orchestrator/session"
	"rea/providers/artifact"
)

// policyFlag adds --integrity-policy.
func policyFlag(cmd *cobra.Command) *string {
	return cmd.Flags().String("integrity-policy", string(artifact.PolicyFail),
		"what a wrong declared digest does: `fail`, or record-and-continue")
}

// policyOf reads --integrity-policy.
func policyOf(text string) (artifact.Policy, error) {
	p := artifact.Policy(text)
	if !p.Known() {
		return "", usage("--integrity-policy is fail or record-and-continue")
	}
	return p, nil
}

func (a *app) compareCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "compare OLD NEW", Short: "Compare two versions of an application", Args: cobra.ExactArgs(2),
		Long: `Compare takes stock of OLD and NEW, files or directories, side by side, each in a container of its own, and says
what differs. Differences alone are not a failure: --fail-on makes a policy of them.`,
	}
	policy := policyFlag(cmd)
	failOn := cmd.Flags().String("fail-on", "", "comma-separated `findings` that fail: changed, added, removed, contradiction, unknown, truncated")
	output := cmd.Flags().String("output", "", "new `directory` for the bundle of Evidence and the run records")
	cmd.RunE = a.work(func(ctx context.Context, h *orchestrator.Host, args []string) (answer, error) {
		return a.compare(ctx, h, args, *policy, *failOn, *output)
	})
	return cmd
}

func (a *app) compare(ctx context.Context, h *orchestrator.Host, args []string, policyText, failOn, output string) (out answer, err error) {
	policy, err := policyOf(policyText)
	if err != nil {
		return answer{}, err
	}
	findings, err := report.ParsePolicy(failOn)
	if err != nil {
		return answer{}, err
	}
	if output != "" {
		if err := report.CheckExport(output); err != nil {
			return answer{}, err
		}
	}
	oldPath, err := absolute(args[0])
	if err != nil {
		return answer{}, err
	}
	newPath, err := absolute(args[1])
	if err != nil {
		return answer{}, err
	}
	s := a.session(h)
	defer closing(ctx, s, &err)
	display := a.display("old", "new")
	v, err := s.CompareVersions(ctx, oldPath, newPath, policy, display.side)
	display.clear()
	if err != nil {
		return answer{}, err
	}
	if output != "" {
		if err := export(ctx, h, output, v); err != nil {
			return answer{}, err
		}
	}
	out = record(v.Record, func(w io.Writer, style report.Style) error { return report.Versions(ctx, w, style, v) })
	out.code, err = findings.ExitCode(ctx, v)
	return out, err
}

func export(ctx context.Context, h *orchestrator.Host, dir string, v session.Versions) error {
	st, err := h.Store()
	if err != nil {
		return err
	}
	return report.Export(ctx, dir, v, st)
}

func (a *app) inspectCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "inspect-artifact PATH", Short: "Take stock of a file or directory, and say what to look at next", Args: cobra.ExactArgs(1)}
	policy := policyFlag(cmd)
	cmd.RunE = a.work(func(ctx context.Context, h *orchestrator.Host, args []string) (answer, error) {
		return a.inspect(ctx, h, args[0], *policy)
	})
	return cmd
}

func (a *app) inspect(ctx context.Context, h *orchestrator.Host, operand, policyText string) (out answer, err error) {
	policy, err := policyOf(policyText)
	if err != nil {
		return answer{}, err
	}
	path, err := absolute(operand)
	if err != nil {
		return answer{}, err
	}
	s := a.session(h)
	defer closing(ctx, s, &err)
	display := a.display("inspect")
	inspection, err := s.InspectArtifact(ctx, session.InspectInput{Path: path, Policy: policy}, display.only)
	display.clear()
	if err != nil {
		return answer{}, err
	}
	return record(inspection, func(w io.Writer, style report.Style) error {
		inventory, err := artifact.InventoryOf(ctx, inspection, h.Spooler())
		if err != nil {
			return err
		}
		return report.Inspection(ctx, w, style, inspection, inventory)
	}), nil
}

func (a *app) inventoryCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "inventory-artifact PATH", Short: "List everything that stands in a file or directory, with digests", Args: cobra.ExactArgs(1)}
	policy := policyFlag(cmd)
	cmd.RunE = a.work(func(ctx context.Context, h *orchestrator.Host, args []string) (answer, error) {
		return a.inventory(ctx, h, args[0], *policy)
	})
	return cmd
}

func (a *app) inventory(ctx context.Context, h *orchestrator.Host, operand, policyText string) (answer, error) {
	policy, err := policyOf(policyText)
	if err != nil {
		return answer{}, err
	}
	path, err := absolute(operand)
	if err != nil {
		return answer{}, err
	}
	display := a.display("inventory")
	inventory, _, err := h.Inventory(ctx, path, policy, display.only)
	display.clear()
	if err != nil {
		return answer{}, err
	}
	return record(inventory, func(w io.Writer, style report.Style) error { return report.Inventory(ctx, w, style, inventory) }), nil
}

func (a *app) extractCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "extract-artifact PATH", Short: "Extract files of an archive or bundle into a new directory", Args: cobra.ExactArgs(1),
		Long: `Extract writes the selected regular files, all of them by default, into a directory that must not exist yet, all or
none. Links, devices and empty directories are not made; nothing is overwritten.`,
	}
	policy := policyFlag(cmd)
	selected := cmd.Flags().StringArray("select", nil, "logical `path` or occurrence id to extract; repeat for more")
	to := cmd.Flags().String("to", "", "new `directory` to extract into; a fresh temporary one without it")
	cmd.RunE = a.work(func(ctx context.Context, h *orchestrator.Host, args []string) (answer, error) {
		if cmd.Flags().Changed("to") && *to == "" {
			return answer{}, usage("--to needs a directory")
		}
		return a.extract(ctx, h, args[0], *policy, *selected, *to)
	})
	return cmd
}

// occurrencePrefix begins the identity of an occurrence; no logical path has the form of one by chance.
const occurrencePrefix = "occ_"

func (a *app) extract(ctx context.Context, h *orchestrator.Host, operand, policyText string, selected []string, to string) (out answer, err error) {
	policy, err := policyOf(policyText)
	if err != nil {
		return answer{}, err
	}
	in := session.ExtractInput{Policy: policy, To: to}
	if in.Path, err = absolute(operand); err != nil {
		return answer{}, err
	}
	for _, one := range selected {
		if isOccurrence(one) {
			in.OccurrenceIDs = append(in.OccurrenceIDs, one)
		} else {
			in.LogicalPaths = append(in.LogicalPaths, one)
		}
	}
	s := a.session(h)
	defer closing(ctx, s, &err)
	display := a.display("extract")
	extraction, err := s.ExtractArtifact(ctx, in, display.only)
	display.clear()
	if err != nil {
		return answer{}, err
	}
	return record(extraction, func(w io.Writer, style report.Style) error { return report.Extraction(ctx, w, style, extraction) }), nil
}

func isOccurrence(s string) bool {
	digits, ok := strings.CutPrefix(s, occurrencePrefix)
	return ok && len(digits) == 64 && strings.Trim(digits, "0123456789abcdef") == ""
}

func (a *app) compareArtifactsCommand() *cobra.Command {
	return &cobra.Command{
		Use: "compare-artifacts LEFT RIGHT", Short: "Compare two inventories that were taken before", Args: cobra.ExactArgs(2),
		Long: `Compare-artifacts compares the Evidence of two inventories or inspections, each given as a JSON file or inline. It
opens no target and starts no container.`,
		RunE: a.work(a.compareArtifacts),
	}
}

func (a *app) compareArtifacts(ctx context.Context, h *orchestrator.Host, args []string) (out answer, err error) {
	analyzer := a.keeping(h)
	var sides [2]*evidence.Record
	for i, arg := range args {
		if sides[i], err = readEvidence(ctx, analyzer.Spooler(), arg); err != nil {
			return answer{}, ofSide(sideNames[i], arg, err)
		}
	}
	s := a.sessionWith(analyzer, catalog.Builtin())
	defer closing(ctx, s, &err)
	comparison, err := s.CompareArtifacts(ctx, session.Source{Record: sides[0]}, session.Source{Record: sides[1]})
	if err != nil {
		return answer{}, err
	}
	return record(comparison, func(w io.Writer, style report.Style) error {
		var inventories [2]*evidence.Record
		for i, side := range sides {
			if inventories[i], err = artifact.InventoryOf(ctx, side, analyzer.Spooler()); err != nil {
				return err
			}
		}
		return report.Comparison(ctx, w, style, comparison, inventories[0], inventories[1])
	}), nil
}

// sideNames are the operands of a comparison of Evidence.
var sideNames = [2]string{"LEFT", "RIGHT"}

// ofSide says which operand a failure is about.
func ofSide(side, arg string, err error) error {
	f := fault.From(err)
	f.Message = fmt.Sprintf("%s (%s): %s", side, report.Printable(inputPath(arg)), f.Message)
	return f.With("side", strings.ToLower(side))
}

// keeping returns what keeps the results of a command that opens no target: the host, or memory where the host's store
// cannot be opened, because such a command needs nothing of the host.
func (a *app) keeping(h *orchestrator.Host) session.Analyzer {
	if _, err := h.Store(); err != nil {
		return storeless{h}
	}
	return h
}

// storeless keeps in memory what a host keeps in its store.
type storeless struct{ *orchestrator.Host }

// Spooler implements session.Analyzer.
func (storeless) Spooler() evidence.Spooler { return evidence.Memory{} }

// Retainer implements session.Analyzer.
func (storeless) Retainer() evidence.Retainer { return evidence.Memory{} }

// readEvidence reads one record: JSON itself, or the file that holds it.
func readEvidence(ctx context.Context, spooler evidence.Spooler, arg string) (*evidence.Record, error) {
	var from io.Reader = strings.NewReader(arg)
	if !strings.HasPrefix(strings.TrimSpace(arg), "{") {
		f, err := openArgument(arg)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		from = f
	}
	r, err := evidence.ParseReader(ctx, from, spooler)
	if err == nil {
		return r, nil
	}
	f := fault.From(err)
	if f.Code == fault.Cancelled {
		return nil, f
	}
	return nil, f.With("input_path", inputPath(arg)).With("input_reason", "invalid-json")
}

// openArgument opens a file that an operand names: a regular file, so that nothing blocks.
func openArgument(path string) (*os.File, error) {
	unusable := func(code fault.Code, what string, err error) error {
		return fault.New(code, fmt.Sprintf("The file %s %s.", report.Printable(path), what), "Pass a readable JSON file, or the JSON itself.").WithAll(fault.Details{
			"operation": "read", "reason": "missing", "input_path": inputPath(path), "input_reason": "read-failed"}).Because(err)
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrPermission):
		return nil, unusable(fault.AccessDenied, "may not be read", err)
	case err != nil:
		return nil, unusable(fault.InvalidRequest, "cannot be opened", err)
	case !info.Mode().IsRegular():
		return nil, unusable(fault.InvalidRequest, "is not a regular file", err)
	}
	f, err := os.Open(path)
	if errors.Is(err, os.ErrPermission) {
		return nil, unusable(fault.AccessDenied, "may not be read", err)
	}
	if err != nil {
		return nil, unusable(fault.InvalidRequest, "cannot be opened", err)
	}
	return f, nil
}

// inputPath names an argument in an error: a path, and of inline JSON nothing.
func inputPath(arg string) string {
	if strings.HasPrefix(strings.TrimSpace(arg), "{") {
		return "inline"
	}
	return strings.ToValidUTF8(arg, "\uFFFD")
}
