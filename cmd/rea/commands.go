package main

import (
	"context"
	"os"
	"path/filepath"
	"runtime/debug"

	"github.com/spf13/cobra"

	"rea/orchestrator/session"
)

// name is the program's and the server's name.
const name = "rea"

// command is the tree of commands.
func (a *app) command() *cobra.Command {
	root := &cobra.Command{
		Use:   name,
		Short: "Take applications apart and compare their versions, each opened in a container of its own",
		Long: `rea takes applications apart and compares their versions. Every byte of a target is parsed inside a container
that is made for that one run: read-only target, no network, no capabilities, hard limits. What a command
says is Evidence: content-addressed, with coverage, unknowns and contradictions as data.

Exit codes: 0 done; 1 and 2 what --fail-on names was found; 3 the request, a setting or the target cannot be
used; 4 the work could not be done; 130 and 143 ended by a signal.`,
		SilenceUsage: true, SilenceErrors: true,
	}
	flags := root.PersistentFlags()
	flags.StringVar(&a.format, "format", formatText, "`format` of the answer on standard output: text or json")
	flags.BoolVar(&a.json, "json", false, "the same as --format json")
	flags.String(configSetting.flag, "", configSetting.usage+" ("+configSetting.env+")")
	addSettings(flags, everywhere...)
	root.AddCommand(
		a.compareCommand(), a.inspectCommand(), a.inventoryCommand(), a.extractCommand(), a.compareArtifactsCommand(),
		a.mcpCommand(), a.setupCommand(), a.uninstallCommand(), a.doctorCommand(),
		a.capabilitiesCommand(), a.providersCommand(), a.sandboxCommand(), a.imagesCommand(), a.gcCommand(), a.versionCommand(),
	)
	root.AddCommand(a.evidenceCommands()...)
	root.AddCommand(a.guidanceCommands()...)
	root.AddCommand(a.generateCommand())
	return root
}

// groupMark is the annotation of a command that does nothing itself.
const groupMark = "group"

// group is a command that is nothing without one of its subcommands.
func group(use, short string, sub ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Args: cobra.ArbitraryArgs, Annotations: map[string]string{groupMark: ""}, RunE: func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		return usage("%s has no command %q", cmd.CommandPath(), args[0])
	}}
	c.AddCommand(sub...)
	return c
}

// server says what this program is.
func (a *app) server() session.Server {
	exe, err := os.Executable()
	if err != nil {
		exe = os.Args[0]
	}
	s := session.Server{Name: name, Version: version, CommandPath: exe, RootPath: filepath.Dir(exe), Started: a.started, Commands: a.commands()}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, setting := range info.Settings {
			if setting.Key == "vcs.revision" {
				s.BuildCommit = setting.Value
			}
		}
	}
	return s
}

// commands names the commands of the command line, subcommands by their path.
func (a *app) commands() []string {
	var names []string
	var walk func(prefix string, c *cobra.Command)
	walk = func(prefix string, c *cobra.Command) {
		for _, sub := range c.Commands() {
			if sub.Hidden || sub.Name() == "help" || sub.Name() == "completion" {
				continue
			}
			if _, nothing := sub.Annotations[groupMark]; !nothing {
				names = append(names, prefix+sub.Name())
			}
			walk(prefix+sub.Name()+" ", sub)
		}
	}
	walk("", a.root)
	return names
}

// absolute is a path operand as an absolute path; nothing is looked up.
func absolute(path string) (string, error) {
	if path == "" {
		return "", usage("a path is empty")
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", usage("%s has no absolute form: %v", path, err)
	}
	return abs, nil
}

// closing closes a session; its records stay in the store.
func closing(ctx context.Context, s *session.Session, err *error) {
	if cerr := s.Close(context.WithoutCancel(ctx)); cerr != nil && *err == nil {
		*err = cerr
	}
}
