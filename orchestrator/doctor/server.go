package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"rea/orchestrator/catalog"
	"rea/orchestrator/report"
)

// ServerDeadline bounds the whole examination of a server, from its start to its end.
const ServerDeadline = 30 * time.Second

// stopGrace is what a server gets to end in once it was told to, before it is killed.
const stopGrace = 2 * time.Second

// protocolVersion is the version of MCP that is asked for.
const protocolVersion = "2025-06-18"

// adapter says how the server was talked to: as its clients do it.
const adapter = "production-stdio"

// ServerOptions say which server is examined, and what it is held against. All but Env is required.
type ServerOptions struct {
	Command     []string // program and arguments
	Env         []string // NAME=VALUE on top of this process's environment; may hold secrets
	Tools       []string // names that it must serve, no more
	Prompts     []string
	Digest      string // of the catalog, combined
	Version     string // of the package
	CommandPath string
}

// ServerReport is the examination of a server.
type ServerReport struct {
	Healthy     bool              `json:"healthy"`
	Adapter     string            `json:"adapter"`
	Server      ServerFacts       `json:"server"`
	Inventory   Inventory         `json:"inventory"`
	Identity    jsontext.Value    `json:"identity"`     // server_identity of binary_session, null where it did not come
	RequestFlow []Exchange        `json:"request_flow"` // what was asked, in order
	Checks      []ServerCheck     `json:"checks"`
	Diagnostics ServerDiagnostics `json:"diagnostics"`
}

// ServerFacts is what the server says about itself, and how it was started.
type ServerFacts struct {
	Command         []string `json:"command"`
	Name            string   `json:"name"`
	Version         string   `json:"version"`
	ProtocolVersion string   `json:"protocol_version"`
}

// Inventory holds the tools that the server lists against those that it should have.
type Inventory struct {
	Expected   int      `json:"expected"`
	Observed   int      `json:"observed"`
	Missing    []string `json:"missing"`
	Unexpected []string `json:"unexpected"`
	Duplicates []string `json:"duplicates"`
}

// Exchange is one request with its answer.
type Exchange struct {
	Method    string `json:"method"`
	OK        bool   `json:"ok"` // answered, and not by an error
	ElapsedMS int64  `json:"elapsed_ms"`
}

// ServerCheck is one thing that was looked at.
type ServerCheck struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
}

// ServerDiagnostics is what is known of the process beside its answers.
type ServerDiagnostics struct {
	Stderr   string `json:"stderr"`    // the last of it, bounded
	ExitCode *int   `json:"exit_code"` // null where it did not start, or a signal ended it
	Signal   string `json:"signal"`
}

// unreached is the detail of a check that an earlier failure kept from being made.
const unreached = "Not reached."

// ExamineServer starts a server as a client does, shakes hands, reads what it offers, asks it who it is, and closes its
// input. Everything that goes wrong is a finding. It returns when the process has ended, at the latest soon after
// ServerDeadline or the end of ctx.
func ExamineServer(ctx context.Context, o ServerOptions) ServerReport {
	ctx, cancel := context.WithTimeoutCause(ctx, ServerDeadline, errors.New("no end within the deadline of 30 s"))
	defer cancel()
	r := ServerReport{
		Adapter: adapter, Server: ServerFacts{Command: o.Command}, Identity: jsontext.Value("null"), RequestFlow: []Exchange{}, Checks: []ServerCheck{},
		Inventory: Inventory{Expected: len(o.Tools), Missing: []string{}, Unexpected: []string{}, Duplicates: []string{}},
	}
	e := &examination{o: o, r: &r}
	steps := []struct {
		name string
		do   func(context.Context) (string, error)
	}{
		{"start", e.start}, {"initialize", e.initialize}, {"tools_list", e.listTools}, {"prompts_list", e.listPrompts},
		{"binary_session", e.session}, {"identity", e.identity}, {"close", e.close},
	}
	reached := true
	for _, s := range steps {
		c := ServerCheck{Name: s.name, Detail: unreached}
		if reached {
			detail, err := s.do(ctx)
			c.OK, c.Detail = err == nil, detail
			if err != nil {
				c.Detail = e.failure(ctx, err)
			}
			reached = err == nil || !fatal(err)
		}
		r.Checks = append(r.Checks, c)
	}
	e.end()
	r.Healthy = !slices.ContainsFunc(r.Checks, func(c ServerCheck) bool { return !c.OK })
	return r
}

// deviation is a finding after which the conversation can go on.
type deviation string

func (d deviation) Error() string { return string(d) }

func fatal(err error) bool {
	var d deviation
	return !errors.As(err, &d)
}

// examination is a server under examination.
type examination struct {
	o      ServerOptions
	r      *ServerReport
	cmd    *exec.Cmd
	talk   *conversation
	stderr tail
	state  struct {
		ServerIdentity   jsontext.Value `json:"server_identity"`
		ToolAvailability struct {
			Groups []struct {
				Names []string `json:"names"`
			} `json:"groups"`
		} `json:"tool_availability"`
	}
	tools  []string
	forget func() bool // of what closes our end of the output when ctx ends
	waited bool
}

// failure tells why a step failed; the end of the time comes first, since it makes everything else fail.
func (e *examination) failure(ctx context.Context, err error) string {
	if ctx.Err() != nil {
		return "Ended: " + context.Cause(ctx).Error() + "."
	}
	return err.Error()
}

func (e *examination) start(ctx context.Context) (string, error) {
	cmd := exec.CommandContext(ctx, e.o.Command[0], e.o.Command[1:]...)
	cmd.Env = append(os.Environ(), e.o.Env...)
	cmd.Stderr = &e.stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // with what it starts itself, and apart from the terminal's signals
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = stopGrace
	in, err := cmd.StdinPipe()
	if err != nil {
		return "", fmt.Errorf("the server's input could not be made: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", fmt.Errorf("the server's output could not be made: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return "", fmt.Errorf("the server could not be started: %w", err)
	}
	e.cmd, e.talk = cmd, newConversation(in, out)
	// A program that the server has started could hold the output open, and our read would never end.
	e.forget = context.AfterFunc(ctx, func() { _ = out.Close() })
	return fmt.Sprintf("process %d", cmd.Process.Pid), nil
}

// ask makes one request and decodes its result.
func (e *examination) ask(method string, params, result any) error {
	began := time.Now()
	raw, err := e.talk.call(method, params)
	if err == nil {
		if derr := json.Unmarshal(raw, result); derr != nil {
			err = fmt.Errorf("the answer to %s is not of its form", method)
		}
	}
	e.r.RequestFlow = append(e.r.RequestFlow, Exchange{method, err == nil, time.Since(began).Milliseconds()})
	return err
}

func (e *examination) initialize(context.Context) (string, error) {
	var answer struct {
		ProtocolVersion string `json:"protocolVersion"`
		ServerInfo      struct {
			Name    string `json:"name"`
			Version string `json:"version"`
		} `json:"serverInfo"`
		Instructions string `json:"instructions"`
	}
	err := e.ask("initialize", map[string]any{
		"protocolVersion": protocolVersion, "capabilities": map[string]any{},
		"clientInfo": map[string]any{"name": "rea mcp doctor", "version": e.o.Version},
	}, &answer)
	if err != nil {
		return "", err
	}
	e.r.Server.Name, e.r.Server.Version, e.r.Server.ProtocolVersion = answer.ServerInfo.Name, answer.ServerInfo.Version, answer.ProtocolVersion
	if err := e.talk.notify("notifications/initialized"); err != nil {
		return "", err
	}
	if answer.Instructions == "" {
		return "", deviation("It gives no instructions.")
	}
	return fmt.Sprintf("%s %s, protocol %s", answer.ServerInfo.Name, answer.ServerInfo.Version, answer.ProtocolVersion), nil
}

// named is an entry of a list.
type named struct {
	Name string `json:"name"`
}

func (e *examination) listTools(context.Context) (string, error) {
	var answer struct {
		Tools []named `json:"tools"`
	}
	if err := e.ask("tools/list", map[string]any{}, &answer); err != nil {
		return "", err
	}
	i := &e.r.Inventory
	e.tools = namesOf(answer.Tools)
	i.Observed = len(e.tools)
	i.Missing, i.Unexpected, i.Duplicates = differences(e.o.Tools, e.tools)
	return fmt.Sprintf("%d tools", i.Observed), deviate("The tools", i.Missing, i.Unexpected, i.Duplicates)
}

func (e *examination) listPrompts(context.Context) (string, error) {
	var answer struct {
		Prompts []named `json:"prompts"`
	}
	if err := e.ask("prompts/list", map[string]any{}, &answer); err != nil {
		return "", err
	}
	names := namesOf(answer.Prompts)
	missing, unexpected, duplicates := differences(e.o.Prompts, names)
	return fmt.Sprintf("%d prompts", len(names)), deviate("The prompts", missing, unexpected, duplicates)
}

func (e *examination) session(context.Context) (string, error) {
	var answer struct {
		IsError bool `json:"isError"`
		Content []struct {
			Text string `json:"text"`
		} `json:"content"`
		StructuredContent struct {
			Result jsontext.Value `json:"result"`
		} `json:"structuredContent"`
	}
	err := e.ask("tools/call", map[string]any{"name": catalog.BinarySession, "arguments": map[string]any{
		"expected_package_version": e.o.Version, "expected_catalog_digest": e.o.Digest, "expected_server_path": e.o.CommandPath,
	}}, &answer)
	switch {
	case err != nil:
		return "", err
	case answer.IsError:
		return "", errors.New("binary_session failed")
	}
	if err := json.Unmarshal(answer.StructuredContent.Result, &e.state); err != nil {
		return "", errors.New("the result of binary_session is not of its form")
	}
	if e.state.ServerIdentity.Kind() == jsontext.KindBeginObject {
		e.r.Identity = e.state.ServerIdentity
	}
	var grouped []string
	for _, g := range e.state.ToolAvailability.Groups {
		grouped = append(grouped, g.Names...)
	}
	missing, unexpected, duplicates := differences(e.tools, grouped)
	return fmt.Sprintf("%d tools in %d groups", len(grouped), len(e.state.ToolAvailability.Groups)), deviate("The groups of tools", missing, unexpected, duplicates)
}

// identity asks whether the server is the program that this one believes it to be.
func (e *examination) identity(context.Context) (string, error) {
	var identity struct {
		Alignment struct {
			State   string   `json:"state"`
			Reasons []string `json:"reasons"`
		} `json:"alignment"`
	}
	if err := json.Unmarshal(e.r.Identity, &identity); err != nil || identity.Alignment.State == "" {
		return "", deviation("It does not say who it is.")
	}
	if identity.Alignment.State != "aligned" {
		return "", deviation("It is another one than this program: " + strings.Join(identity.Alignment.Reasons, ", ") + ".")
	}
	return "version, catalog and path are this program's", nil
}

func (e *examination) close(ctx context.Context) (string, error) {
	said := e.talk.close()
	err := e.wait()
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case err != nil:
		return "", fmt.Errorf("the server did not end well: %w", err)
	}
	return "ended by itself", said
}

// end ends a server that is still there, and notes how it went.
func (e *examination) end() {
	if e.cmd == nil {
		return
	}
	if !e.waited {
		_ = e.talk.in.Close()
		_ = e.cmd.Cancel() // it may have ended
		_ = e.wait()
	}
	d := &e.r.Diagnostics
	d.Stderr = e.stderr.text()
	if status, ok := e.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		d.Signal = status.Signal().String()
		return
	}
	code := e.cmd.ProcessState.ExitCode()
	d.ExitCode = &code
}

// wait waits for the process. After a while of its being told to end it is killed, by the time that cmd was given.
func (e *examination) wait() error {
	e.waited = true
	e.forget()
	return e.cmd.Wait()
}

func namesOf(list []named) []string {
	names := make([]string, len(list))
	for i, n := range list {
		names[i] = n.Name
	}
	return names
}

// differences holds a list of names against another: each name once, sorted.
func differences(want, have []string) (missing, unexpected, duplicates []string) {
	missing, unexpected, duplicates = []string{}, []string{}, []string{}
	count := map[string]int{}
	for _, n := range have {
		if count[n]++; count[n] == 2 {
			duplicates = append(duplicates, n)
		}
		if count[n] == 1 && !slices.Contains(want, n) {
			unexpected = append(unexpected, n)
		}
	}
	for _, n := range want {
		if count[n] == 0 {
			missing = append(missing, n)
		}
	}
	slices.Sort(missing)
	slices.Sort(unexpected)
	slices.Sort(duplicates)
	return missing, unexpected, duplicates
}

func deviate(what string, missing, unexpected, duplicates []string) error {
	if len(missing)+len(unexpected)+len(duplicates) == 0 {
		return nil
	}
	var says []string
	for _, part := range []struct {
		is    string
		names []string
	}{{"missing", missing}, {"unexpected", unexpected}, {"listed more than once", duplicates}} {
		if len(part.names) > 0 {
			says = append(says, part.is+": "+strings.Join(part.names, ", "))
		}
	}
	return deviation(what + " are not those of this program; " + strings.Join(says, "; ") + ".")
}

// WriteText writes the examination for people.
func (r ServerReport) WriteText(w io.Writer, style report.Style) error {
	var err error
	line := func(format string, args ...any) {
		if err == nil {
			_, err = fmt.Fprintf(w, format+"\n", args...)
		}
	}
	for _, c := range r.Checks {
		status := OK
		if !c.OK {
			status = Failed
		}
		line("%s  %-15s %s", mark(style, status), c.Name, report.Printable(c.Detail))
	}
	line("")
	if r.Healthy {
		line("%s The server answers as it should.", style.Good("healthy."))
		return err
	}
	line("%s", style.Bad("unhealthy."))
	for text := range strings.Lines(r.Diagnostics.Stderr) {
		line("    %s", report.Printable(strings.TrimRight(text, "\r\n")))
	}
	return err
}
