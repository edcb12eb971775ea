package doctor

import (
	"fmt"
	"io"
	"strings"

	"rea/orchestrator/report"
)

// WriteText writes the examination for people: every check with its finding, and for what could be better its cost and
// its remedy.
func (r Report) WriteText(w io.Writer, style report.Style) error {
	var err error
	line := func(format string, args ...any) {
		if err == nil {
			_, err = fmt.Fprintf(w, format+"\n", args...)
		}
	}
	line("rea %s on %s", report.Printable(r.Version), r.Platform)
	line("")
	for _, c := range r.Checks {
		line("%s  %-18s %s", mark(style, c.Status), c.Name, report.Printable(c.Detail))
		if c.Cost != "" {
			line("          %s", report.Printable(c.Cost))
		}
		if c.Remedy != "" {
			line("          → %s", report.Printable(c.Remedy))
		}
	}
	first := true
	for _, a := range r.Advisories {
		if a.Verdict == Fixed {
			continue
		}
		if first {
			line("")
			line("%s", style.Bold("Advisories that are not known to be fixed here"))
			first = false
		}
		line("  %s  %s %s: %s", a.ID, a.Component, report.Printable(a.Installed), a.Verdict)
		line("      %s", a.Summary)
		line("      %s", report.Printable(a.Basis))
		line("      against it: %s", a.Exposure)
	}
	r.writeRegistrations(line, style)
	line("")
	if r.Healthy {
		line("%s Runs are made by the %s driver.", style.Good("healthy."), r.Driver)
	} else {
		line("%s What failed above keeps rea from working.", style.Bad("unhealthy."))
	}
	return err
}

func mark(style report.Style, s Status) string {
	text := fmt.Sprintf("%-7s", s)
	switch s {
	case OK:
		return style.Good(text)
	case Failed:
		return style.Bad(text)
	}
	return style.Warn(text)
}

// writeRegistrations writes what clients start.
func (r Report) writeRegistrations(line func(string, ...any), style report.Style) {
	first := true
	for _, one := range r.Registrations {
		if len(one.Command) == 0 {
			continue
		}
		if first {
			line("")
			line("%s", style.Bold("What MCP clients start"))
			first = false
		}
		line("  %-14s %-8s %s", one.Name, one.State, report.Printable(strings.Join(one.Command, " ")))
	}
}
