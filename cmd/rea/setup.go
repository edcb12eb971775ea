package main

import (
	"bufio"
	"context"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rea/evidence/fault"
	"rea/orchestrator/clients"
	"rea/orchestrator/report"
)

// planFlags are the flags of the commands that edit clients' files.
type planFlags struct {
	clients []string
	yes     bool
	dryRun  bool
}

func (f *planFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.clients, "client", nil, "`client`, repeat for more; every one that is found without it: "+strings.Join(clients.IDs(), ", "))
	cmd.Flags().BoolVarP(&f.yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "change nothing, and print the plan")
}

func (a *app) setupCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "setup", Short: "Register this program with the MCP clients of this user", Args: cobra.NoArgs,
		Long: `Setup adds the server rea to the files of MCP clients: those that are found, or those that --client names. It prints
its plan and asks before it changes anything. Everything else in a file stays as it is, and the file as it was before
is kept beside it. A client starts the server when it is started the next time.`,
	}
	var flags planFlags
	flags.add(cmd)
	cmd.RunE = a.hostless(func(ctx context.Context, _ []string) (answer, error) {
		return a.change(ctx, flags, func(u clients.User) (clients.Plan, error) {
			return clients.PlanSetup(u, a.registered(), flags.clients)
		})
	})
	return cmd
}

func (a *app) uninstallCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "uninstall", Short: "Remove this program's registration from the MCP clients of this user", Args: cobra.NoArgs,
		Long: `Uninstall removes the server rea from the files of MCP clients, and nothing else: every client's, or those that
--client names. It prints its plan and asks before it changes anything; the file as it was before is kept beside it.`,
	}
	var flags planFlags
	flags.add(cmd)
	cmd.RunE = a.hostless(func(ctx context.Context, _ []string) (answer, error) {
		return a.change(ctx, flags, func(u clients.User) (clients.Plan, error) { return clients.PlanRemoval(u, flags.clients) })
	})
	return cmd
}

// hostless wraps a command's work that needs the configuration and no host.
func (a *app) hostless(do func(ctx context.Context, args []string) (answer, error)) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := a.begin(cmd); err != nil {
			return err
		}
		out, err := do(cmd.Context(), args)
		if err != nil {
			return err
		}
		return a.answer(out)
	}
}

// clientUser is the user whose clients are looked at.
func clientUser() (clients.User, error) {
	home := userHome()
	if home == "" {
		return clients.User{}, fault.New(fault.ConfigurationInvalid, "This user has no home directory, where clients keep their files.", "Set HOME to the user's home directory.").
			With("settings", []problem{{"HOME", "an absolute path"}})
	}
	return clients.User{OS: runtime.GOOS, Home: home, Getenv: os.Getenv}, nil
}

// registered is the vector that clients are to start.
func (a *app) registered() []string { return clients.Command(a.server().CommandPath) }

// change makes a plan, asks, and carries it out.
func (a *app) change(ctx context.Context, flags planFlags, plan func(clients.User) (clients.Plan, error)) (answer, error) {
	u, err := clientUser()
	if err != nil {
		return answer{}, err
	}
	p, err := plan(u)
	if err != nil {
		return answer{}, err
	}
	if flags.dryRun {
		return changeAnswer(p.Changes, true), nil
	}
	if !flags.yes && todo(p.Changes) {
		if err := a.confirm(ctx, p.Changes); err != nil {
			return answer{}, err
		}
	}
	return changeAnswer(p.Apply(ctx, time.Now), false), nil
}

// todo reports whether a plan changes anything.
func todo(changes []clients.Change) bool {
	for _, c := range changes {
		if c.Action != clients.None && c.Action != clients.Skip {
			return true
		}
	}
	return false
}

// confirm shows the plan and waits for a yes. Plan and question go to standard error: standard output is the answer's.
func (a *app) confirm(ctx context.Context, changes []clients.Change) error {
	if err := writeChanges(a.err, report.Style{Color: a.colour(a.err)}, changes, true); err != nil {
		return err
	}
	_, _ = io.WriteString(a.err, "Change these files? [y/N] ")
	reply := make(chan string, 1)
	go func() { // a read of a terminal cannot be interrupted: where a signal comes first, it ends with the process
		line, _ := bufio.NewReader(io.LimitReader(a.in, maxReply)).ReadString('\n')
		reply <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case line := <-reply:
		if line == "y" || line == "yes" {
			return nil
		}
	}
	return fault.New(fault.Cancelled, "Nothing was changed: the plan was not confirmed.", "Answer yes, or repeat the command with --yes.")
}

// maxReply bounds what is read of an answer.
const maxReply = 1 << 10

// changeAnswer is what was planned, or done. What could not be done decides the exit code.
func changeAnswer(changes []clients.Change, planned bool) answer {
	out := result(map[string]any{"dry_run": planned, "changes": changes}, func(w io.Writer, style report.Style) error {
		return writeChanges(w, style, changes, planned)
	})
	for _, c := range changes {
		if f := c.Fault(); f != nil {
			out.code = max(out.code, f.ExitCode())
		}
	}
	return out
}

func writeChanges(w io.Writer, style report.Style, changes []clients.Change, planned bool) error {
	lines := textLines{w: w}
	if len(changes) == 0 {
		lines.add("No MCP client was found; --client names one: %s.", strings.Join(clients.IDs(), ", "))
	}
	for _, c := range changes {
		lines.add("%s %-14s %s", didWhat(style, c, planned), c.Name, report.Printable(c.Path))
		switch {
		case c.Error != nil:
			lines.add("    %s", report.Printable(c.Error.Message))
			lines.add("    → %s", report.Printable(c.Error.Remediation.Action))
			continue
		case c.Action == clients.None:
			continue
		}
		if len(c.Before) > 0 {
			lines.add("    now   %s", vector(c.Before))
		}
		if len(c.After) > 0 {
			lines.add("    then  %s", vector(c.After))
		}
		if c.Backup != "" {
			lines.add("    kept  %s", report.Printable(filepath.Base(c.Backup)))
		}
	}
	return lines.err
}

// didWhat is the action as a word of the plan, or of what was done.
func didWhat(style report.Style, c clients.Change, planned bool) string {
	words := map[clients.Action][2]string{
		clients.Add: {"add      ", "added    "}, clients.Update: {"update   ", "updated  "}, clients.Replace: {"replace  ", "replaced "},
		clients.Remove: {"remove   ", "removed  "}, clients.None: {"nothing  ", "nothing  "}, clients.Skip: {"cannot   ", "failed   "},
	}
	word := words[c.Action][1]
	if planned {
		word = words[c.Action][0]
	}
	switch c.Action {
	case clients.Skip:
		return style.Bad(word)
	case clients.None:
		return word
	}
	return style.Good(word)
}

// vector is a command and its arguments for people.
func vector(command []string) string {
	var words []string
	for _, w := range command {
		if w == "" || strings.ContainsAny(w, " \t'\"\\$") {
			w = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
		words = append(words, report.Printable(w))
	}
	return strings.Join(words, " ")
}
