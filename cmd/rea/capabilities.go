package main

import (
	"context"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"rea/orchestrator"
	"rea/orchestrator/report"
	"rea/orchestrator/session"
)

func (a *app) capabilitiesCommand() *cobra.Command {
	return &cobra.Command{
		Use: "capabilities", Short: "Say what this build can do on this host, operation by operation and tool by tool", Args: cobra.NoArgs,
		RunE: a.work(func(ctx context.Context, h *orchestrator.Host, _ []string) (answer, error) {
			s := a.sessionWith(h, a.serving())
			o, err := s.Offer(ctx)
			if err != nil {
				return answer{}, err
			}
			sets := []session.CapabilitySet{}
			for _, p := range o.Providers {
				sets = append(sets, p.Capabilities...)
			}
			all := map[string]any{"capabilities": sets, "tool_availability": o.Tools, "catalog": o.Catalog}
			return result(all, func(w io.Writer, style report.Style) error { return writeCapabilities(w, style, o, sets) }), s.Close(ctx)
		}),
	}
}

func (a *app) providersCommand() *cobra.Command {
	return &cobra.Command{
		Use: "providers", Short: "List the providers of this build, and whether each can be used on this host", Args: cobra.NoArgs,
		RunE: a.work(func(ctx context.Context, h *orchestrator.Host, _ []string) (answer, error) {
			s := a.sessionWith(h, a.serving())
			o, err := s.Offer(ctx)
			if err != nil {
				return answer{}, err
			}
			all := map[string]any{"providers": o.Providers, "analysis_provider_candidates": o.Candidates, "catalog": o.Catalog}
			return result(all, func(w io.Writer, style report.Style) error { return writeProviders(w, style, o) }), s.Close(ctx)
		}),
	}
}

func writeCapabilities(w io.Writer, style report.Style, o session.Offer, sets []session.CapabilitySet) error {
	lines := textLines{w: w}
	for _, set := range sets {
		lines.add("%s", style.Bold(report.Printable(set.Provider.ID)))
		for _, g := range set.Groups {
			lines.add("  %s  %s", available(style, g.Available), strings.Join(g.Operations, ", "))
			if g.Reason != nil {
				lines.add("      %s", report.Printable(*g.Reason))
			}
		}
	}
	lines.add("")
	lines.add("%s", style.Bold("tools"))
	for _, g := range o.Tools.Groups {
		lines.add("  %s  %s", available(style, g.Available), strings.Join(g.Names, ", "))
		if g.Remediation != nil {
			lines.add("      %s", report.Printable(*g.Remediation))
		}
	}
	lines.add("")
	lines.catalog(o.Catalog)
	return lines.err
}

func writeProviders(w io.Writer, style report.Style, o session.Offer) error {
	lines := textLines{w: w}
	for _, p := range o.Providers {
		lines.add("%s  %-20s %s %s", available(style, p.Availability.Status == session.StatusAvailable), report.Printable(p.Provider.ID),
			report.Printable(p.Provider.Name), report.Printable(p.Provider.Version))
		if p.Availability.Reason != nil {
			lines.add("      %s", report.Printable(*p.Availability.Reason))
		}
	}
	lines.add("")
	lines.catalog(o.Catalog)
	return lines.err
}

func available(style report.Style, yes bool) string {
	if yes {
		return style.Good("yes")
	}
	return style.Bad("no ")
}

// catalog is the identity of what is served.
func (l *textLines) catalog(c session.CatalogIdentity) {
	l.add("catalog %s: %d commands, %d tools, %d prompts", c.Digests.Combined, c.Counts.Commands, c.Counts.Tools, c.Counts.Prompts)
}
