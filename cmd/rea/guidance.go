package main

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"rea/evidence"
	"rea/orchestrator/catalog"
	"rea/orchestrator/guidance"
	"rea/orchestrator/report"
	"rea/orchestrator/schema"
)

// guidanceCommands are about how to use the program; they look at no target.
func (a *app) guidanceCommands() []*cobra.Command {
	return []*cobra.Command{
		a.workflowsCommand(), a.guidanceCommand(),
		group("skill", "The skill for agents that belongs to this version", a.skillInstallCommand()),
	}
}

// plain wraps the work of a command that needs no machinery.
func (a *app) plain(do func() (answer, error)) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		if err := a.begin(cmd); err != nil {
			return err
		}
		out, err := do()
		if err != nil {
			return err
		}
		return a.answer(out)
	}
}

// serving is the catalog that the settings leave.
func (a *app) serving() *catalog.Catalog {
	scope := catalog.Scope{Profile: schema.Profile(a.config.MCP.InputSchemaProfile)}
	if a.config.MCP.ToolFamilies != allFamilies {
		scope.Families, _ = catalog.ParseFamilies(a.config.MCP.ToolFamilies) // checked with the other settings
	}
	return catalog.Builtin().Scoped(scope)
}

func (a *app) workflowsCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "guided-workflows", Short: "List guided investigations, or write one out for a question", Args: cobra.NoArgs}
	action := cmd.Flags().String("action", "list", "what to do: `list` or render")
	id := cmd.Flags().String("workflow-id", "", "`id` of the workflow to render")
	arguments := cmd.Flags().String("arguments-json", "", "`JSON` object of the workflow's arguments")
	cmd.RunE = a.plain(func() (answer, error) { return a.workflows(*action, *id, *arguments) })
	return cmd
}

func (a *app) workflows(action, id, arguments string) (answer, error) {
	in := map[string]any{"action": action}
	if id != "" {
		in["workflow_id"] = id
	}
	if arguments != "" {
		raw, err := readJSON(arguments)
		if err != nil {
			return answer{}, err
		}
		in["arguments"] = raw
	}
	raw, err := json.Marshal(in)
	if err != nil {
		return answer{}, usage("the arguments cannot be read")
	}
	contract, _ := catalog.Builtin().Lookup(catalog.GuidedWorkflows)
	if err := contract.Validate(raw); err != nil {
		return answer{}, err
	}
	done, err := guidance.For(a.serving()).Guided(raw)
	if err != nil {
		return answer{}, err
	}
	return result(done, func(w io.Writer, style report.Style) error { return writeWorkflows(w, style, done) }), nil
}

func writeWorkflows(w io.Writer, style report.Style, done any) error {
	lines := textLines{w: w}
	switch done := done.(type) {
	case guidance.Rendered:
		writeMarkdown(&lines, done.Text)
	case map[string]any:
		for _, f := range done["workflows"].([]guidance.Workflow) {
			lines.add("%s  %s", style.Bold(f.ID), f.Description)
			for _, arg := range f.Arguments {
				need := ""
				if arg.Required {
					need = " (required)"
				}
				lines.add("    %s%s: %s", arg.Name, need, arg.Description)
			}
		}
	}
	return lines.err
}

// writeMarkdown prints our own text around what a caller gave, which a terminal must not obey.
func writeMarkdown(lines *textLines, text string) {
	for line := range strings.Lines(text) {
		lines.add("%s", report.Printable(strings.TrimSuffix(line, "\n")))
	}
}

func (a *app) guidanceCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "guidance", Short: "Search the guidance of this version by the words of a question, or read a section", Args: cobra.NoArgs}
	action := cmd.Flags().String("action", "search", "what to do: `search` or read")
	query := cmd.Flags().String("query", "", "`words` to look for")
	offset := cmd.Flags().Int("offset", 0, "matches to pass over")
	limit := cmd.Flags().Int("limit", guidance.MaxMatches, "matches to show at most, up to 20")
	locator := cmd.Flags().String("locator", "", "`locator` of the section to read")
	cmd.RunE = a.plain(func() (answer, error) {
		switch {
		case *action == "read" && *locator != "" && *query == "":
			return readGuidance(*locator), nil
		case *action == "search" && *query != "" && *locator == "":
			return searchGuidance(*query, *offset, *limit)
		}
		return answer{}, usage("guidance takes --query, or --action read with --locator")
	})
	return cmd
}

func searchGuidance(query string, offset, limit int) (answer, error) {
	raw, err := evidence.Canonical(map[string]any{"query": query, "offset": offset, "limit": limit})
	if err != nil {
		return answer{}, usage("the query is not a text")
	}
	contract, _ := catalog.Builtin().Lookup(catalog.SearchGuidance)
	if err := contract.Validate(raw); err != nil {
		return answer{}, err
	}
	found := guidance.Search(guidance.Skill(), query, offset, limit)
	return result(found.Project(), func(w io.Writer, style report.Style) error {
		lines := textLines{w: w}
		if found.Status != guidance.StatusOK {
			lines.add("%s", found.Reason)
		}
		for _, m := range found.Matches {
			lines.add("%s  %s", style.Bold(strings.Join(m.HeadingPath, " / ")), m.Path)
			lines.add("    %s", m.Locator)
		}
		if found.Status == guidance.StatusOK {
			lines.add("%d of %d matches.", len(found.Matches), found.Total)
		}
		return lines.err
	}), nil
}

func readGuidance(locator string) answer {
	section := guidance.Read(guidance.Skill(), locator)
	return result(section, func(w io.Writer, _ report.Style) error {
		lines := textLines{w: w}
		if section.Status != guidance.StatusOK {
			lines.add("%s", section.Reason)
		}
		writeMarkdown(&lines, section.Content)
		return lines.err
	})
}

func (a *app) skillInstallCommand() *cobra.Command {
	var ids []string
	for _, c := range guidance.Clients() {
		ids = append(ids, c.ID)
	}
	cmd := &cobra.Command{
		Use: "install", Short: "Put the skill where clients look for skills", Args: cobra.NoArgs,
		Long: `Install copies the skill of this version to where clients of this user look: for the clients that are named, else for
those that have a directory in the home. An earlier copy is replaced; nothing else is touched.`,
	}
	clients := cmd.Flags().StringArray("client", nil, "`client` to install for: "+strings.Join(ids, ", ")+"; repeat for more")
	to := cmd.Flags().String("to", "", "`directory` of skills to install into, in place of those of clients")
	cmd.RunE = a.plain(func() (answer, error) { return skillInstall(*clients, *to) })
	return cmd
}

func skillInstall(clients []string, to string) (answer, error) {
	dirs, err := skillDirs(clients, to)
	if err != nil {
		return answer{}, err
	}
	done := []guidance.Installed{}
	for _, dir := range dirs {
		one, err := guidance.Install(dir)
		if err != nil {
			return answer{}, err
		}
		done = append(done, one)
	}
	return result(map[string]any{"installed": done}, func(w io.Writer, _ report.Style) error {
		lines := textLines{w: w}
		for _, one := range done {
			did := "Installed"
			if one.Replaced {
				did = "Replaced"
			}
			lines.add("%s %d files in %s.", did, one.Files, report.Printable(one.Path))
		}
		return lines.err
	}), nil
}

// skillDirs are the directories to install into.
func skillDirs(clients []string, to string) ([]string, error) {
	if to != "" {
		if len(clients) > 0 {
			return nil, usage("--to and --client exclude each other")
		}
		dir, err := absolute(to)
		return []string{dir}, err
	}
	home := userHome()
	if home == "" {
		return nil, usage("this user has no home directory; name one with --to")
	}
	var dirs []string
	for _, c := range guidance.Clients() {
		wanted := slices.Contains(clients, c.ID)
		if len(clients) == 0 {
			info, err := os.Stat(filepath.Join(home, c.Home))
			wanted = err == nil && info.IsDir()
		}
		if wanted {
			dirs = append(dirs, filepath.Join(home, c.Skills))
		}
	}
	if len(dirs) < len(clients) {
		return nil, usage("--client names a client whose place for skills is not known")
	}
	if len(dirs) == 0 {
		return nil, usage("no client of this user was found; name one with --client, or a directory with --to")
	}
	return dirs, nil
}
