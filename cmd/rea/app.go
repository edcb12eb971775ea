package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"rea/evidence"
	"rea/evidence/fault"
	"rea/orchestrator"
	"rea/orchestrator/catalog"
	"rea/orchestrator/report"
	"rea/orchestrator/session"
)

// streams are the standard streams of one invocation.
type streams struct{ in, out, err *os.File }

// Formats of the answer on standard output.
const (
	formatText = "text"
	formatJSON = "json"
)

// app is one invocation of the command line.
type app struct {
	streams
	started time.Time
	root    *cobra.Command
	config  Config
	format  string
	json    bool // --json
	begun   bool // a command's own work has begun: what fails from here on is not the command line's syntax
	code    int  // exit code of work that was done
}

// answer is what a command prints: the same thing as one JSON value or for people.
type answer struct {
	json func(w io.Writer) error
	text func(w io.Writer, style report.Style) error
	code int // exit code: fault.ExitDone, or what a policy or a check says
}

// execute is the whole command line; it returns the exit code.
func execute(started time.Time, args []string, s streams) int {
	interrupt, ctx := watchSignals(context.Background())
	defer interrupt.stop()
	a := &app{streams: s, started: started}
	a.root = a.command()
	a.root.SetArgs(args)
	a.root.SetIn(s.in)
	a.root.SetOut(quiet{s.out})
	a.root.SetErr(quiet{s.err})
	err := a.root.ExecuteContext(ctx)
	if err == nil {
		return a.code
	}
	if !a.begun {
		err = a.misuse(err, args)
	}
	return a.fail(err, interrupt)
}

// misuse is the failure of a command line that does not parse.
func (a *app) misuse(err error, args []string) error {
	if slices.Contains(args, "--json") || slices.Contains(args, "--format=json") || slices.Index(args, formatJSON) > 0 && slices.Contains(args, "--format") {
		a.format = formatJSON // the flags were not read to their end
	}
	var f *fault.Error
	if errors.As(err, &f) {
		return err
	}
	return usage("%s", err)
}

// usage is the failure of a command line that means nothing.
func usage(format string, args ...any) *fault.Error {
	message := fmt.Sprintf(format, args...)
	return fault.New(fault.InvalidRequest, "The command line cannot be understood: "+message+".", "Run rea help, or the command with --help.").WithAll(fault.Details{
		"operation": "command_line", "issues": []map[string]any{{"path": []string{}, "reason": "invalid_value", "message": strings.ToValidUTF8(message, "\uFFFD")}},
	})
}

// fail reports a failure and returns its exit code. A signal that ended the work decides the code, unless something
// was left behind.
func (a *app) fail(err error, interrupt *interrupt) int {
	f := fault.From(err)
	if a.format == formatJSON && a.root != nil {
		_ = a.print(func(w io.Writer) error { return writeJSON(w, map[string]any{"error": f.Project()}) }) // nobody reads it: the code still tells
	}
	style := report.Style{Color: a.colour(a.err)}
	_, _ = fmt.Fprintf(a.err, "%s %s\n     %s\n", style.Bad("rea:"), report.Printable(f.Message), report.Printable(f.Project().Remediation.Action))
	if code, interrupted := interrupt.exitCode(); interrupted && f.Code == fault.Cancelled {
		return code
	}
	return f.ExitCode()
}

// work wraps a command's work: configuration, host, answer. Everything that the work started has ended when the answer
// is printed, so that there is one answer or one failure and never both.
func (a *app) work(do func(ctx context.Context, h *orchestrator.Host, args []string) (answer, error)) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := a.begin(cmd); err != nil {
			return err
		}
		h := a.host(nil)
		out, err := do(cmd.Context(), h, args)
		if cerr := h.Close(context.WithoutCancel(cmd.Context())); cerr != nil {
			err = errors.Join(cerr, err)
		}
		if err != nil {
			return err
		}
		return a.answer(out)
	}
}

// begin reads the configuration. Until it returns, failures are those of the command line or of a setting.
func (a *app) begin(cmd *cobra.Command) (err error) {
	if err := a.chooseFormat(); err != nil {
		return err
	}
	a.begun = true
	a.config, err = loadConfig(cmd.Flags())
	return err
}

func (a *app) chooseFormat() error {
	if a.json {
		if a.root.PersistentFlags().Changed("format") && a.format != formatJSON {
			return usage("--json and --format %s contradict each other", a.format)
		}
		a.format = formatJSON
	}
	if a.format != formatText && a.format != formatJSON {
		return usage("--format is text or json")
	}
	return nil
}

// host makes the machinery; it touches nothing until something needs it.
func (a *app) host(log func(string)) *orchestrator.Host {
	return orchestrator.New(orchestrator.Config{
		Driver: a.config.Sandbox.Driver, Runtime: a.config.Sandbox.Runtime, EngineHost: a.config.Engine.Host, StateDir: a.config.StateDir,
		Keeper: keeperArgs(a.config.Engine.Host), Log: log,
	})
}

// session opens a session on a host. The command line is not restricted to families of tools.
func (a *app) session(h *orchestrator.Host) *session.Session {
	return a.sessionWith(h, catalog.Builtin())
}

func (a *app) sessionWith(h session.Analyzer, c *catalog.Catalog) *session.Session {
	return session.New(session.Options{Analyzer: h, Catalog: c, Provider: a.config.Analysis.Provider, Server: a.server()})
}

// answer prints what was done, and remembers its exit code.
func (a *app) answer(out answer) error {
	a.code = out.code
	if a.format == formatJSON {
		return a.print(out.json)
	}
	return a.print(func(w io.Writer) error { return out.text(w, report.Style{Color: a.colour(a.out)}) })
}

// print writes to standard output. A reader that went away is its own affair; anything else that keeps the answer from
// being written is a failure.
func (a *app) print(write func(io.Writer) error) error {
	var to io.Writer = a.out
	if a.format == formatJSON && isTerminal(a.out) {
		to = &escaper{w: a.out}
	}
	w := bufio.NewWriterSize(to, 64<<10)
	err := write(w)
	if err == nil {
		err = w.Flush()
	}
	var path *os.PathError
	switch {
	case err == nil, errors.Is(err, syscall.EPIPE):
		return nil
	case errors.As(err, &path) && path.Path == a.out.Name():
		return fault.New(fault.ExecutionFailure, "The answer could not be written to standard output: "+path.Err.Error()+".",
			"Redirect standard output to a place that takes it, and repeat the command.").Because(err)
	}
	return err
}

// writeJSON writes one canonical JSON value and a newline.
func writeJSON(w io.Writer, v any) error {
	raw, err := evidence.Canonical(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(raw, '\n'))
	return err
}

// record is the answer of a command that ends with Evidence.
func record(r *evidence.Record, text func(w io.Writer, style report.Style) error) answer {
	return answer{text: text, json: func(w io.Writer) error {
		if _, err := r.Payload().WriteTo(w); err != nil {
			return err
		}
		_, err := io.WriteString(w, "\n")
		return err
	}}
}

// result is the answer of a command about the host: one object with the key result.
func result(v any, text func(w io.Writer, style report.Style) error) answer {
	return answer{text: text, json: func(w io.Writer) error { return writeJSON(w, map[string]any{"result": v}) }}
}

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// colour reports whether a stream gets colours: a terminal that can show them, of a user who wants them.
func (a *app) colour(f *os.File) bool {
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && isTerminal(f)
}

// quiet is where help goes: nobody to read it is no failure.
type quiet struct{ w io.Writer }

// Write implements io.Writer.
func (q quiet) Write(p []byte) (int, error) {
	n, err := q.w.Write(p)
	if errors.Is(err, syscall.EPIPE) {
		return len(p), nil
	}
	return n, err
}
