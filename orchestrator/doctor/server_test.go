package doctor

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"rea/orchestrator/report"
)

// serverMode makes the test binary a server that behaves in one way.
const serverMode = "REA_TEST_SERVER"

// pipeVariable names the pipe on which the silent server tells the process that it leaves behind.
const pipeVariable = "REA_TEST_PIPE"

func TestMain(m *testing.M) {
	if mode := os.Getenv(serverMode); mode != "" {
		os.Exit(scripted(mode))
	}
	os.Exit(m.Run())
}

// scripted is a server whose answers are written out here, so that nothing of the product's own server is needed.
func scripted(mode string) int {
	tools := `{"name":"a"},{"name":"binary_session"}`
	groups := `{"names":["a","binary_session"]}`
	state := `"aligned","reasons":[]`
	switch mode {
	case "dies":
		fmt.Fprintln(os.Stderr, "cannot\x1b[2J start")
		return 3
	case "missing":
		tools, groups = `{"name":"binary_session"},{"name":"b"}`, `{"names":["b","binary_session"]}`
	case "twice":
		tools += `,{"name":"a"}`
	case "ungrouped":
		groups = `{"names":["a"]}`
	case "another":
		state = `"mcp_server_restart_required","reasons":["catalog_digest_mismatch"]`
	case "chatty":
		fmt.Println("listening")
	}
	answers := map[string]string{
		"initialize":   `{"protocolVersion":"2025-06-18","serverInfo":{"name":"rea","version":"7"},"capabilities":{},"instructions":"Look."}`,
		"tools/list":   `{"tools":[` + tools + `]}`,
		"prompts/list": `{"prompts":[{"name":"p"}]}`,
		"tools/call":   `{"content":[],"structuredContent":{"result":{"server_identity":{"alignment":{"state":` + state + `}},"tool_availability":{"groups":[` + groups + `]}}}}`,
	}
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		if err := json.Unmarshal(in.Bytes(), &m); err != nil {
			return 9
		}
		switch {
		case m.ID == nil:
			continue
		case mode == "fails" && m.Method == "prompts/list":
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32603,"message":"no"}}`+"\n", m.ID)
			continue
		case mode == "silent" && m.Method == "tools/list":
			child := exec.Command("sleep", "1000") // in a session of its own it holds our output open when we are gone
			child.Stdout, child.SysProcAttr = os.Stdout, &syscall.SysProcAttr{Setsid: true}
			if child.Start() != nil || os.WriteFile(os.Getenv(pipeVariable), []byte(strconv.Itoa(child.Process.Pid)), 0) != nil {
				return 9
			}
			continue
		case mode == "mute" && m.Method == "tools/list":
			return 0
		}
		if m.Method == "tools/list" {
			fmt.Println(`{"jsonrpc":"2.0","method":"notifications/message","params":{}}`)
		}
		fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", m.ID, answers[m.Method])
	}
	switch mode {
	case "late":
		fmt.Println("{}")
	case "code":
		return 5
	}
	return 0
}

func serverOptions(mode string) ServerOptions {
	return ServerOptions{
		Command: []string{os.Args[0], "mcp"}, Env: []string{serverMode + "=" + mode},
		Tools: []string{"a", "binary_session"}, Prompts: []string{"p"}, Digest: strings.Repeat("0", 64), Version: "7", CommandPath: os.Args[0],
	}
}

// Each way in which a server can be wrong fails the check that it belongs to, and no other that was reached.
func TestExamineServer(t *testing.T) {
	const rest = "initialize tools_list prompts_list binary_session identity close"
	for mode, c := range map[string]struct {
		failed, unreached, says string
	}{
		"good":      {"", "", "version, catalog and path"},
		"dies":      {"initialize", "tools_list prompts_list binary_session identity close", "initialize"},
		"missing":   {"tools_list", "", "missing: a; unexpected: b"},
		"twice":     {"tools_list", "", "listed more than once: a"},
		"ungrouped": {"binary_session", "", "missing: binary_session"},
		"another":   {"identity", "", "catalog_digest_mismatch"},
		"chatty":    {"initialize", "tools_list prompts_list binary_session identity close", "other than a frame"},
		"fails":     {"prompts_list", "binary_session identity close", "-32603"},
		"mute":      {"tools_list", "prompts_list binary_session identity close", "output ended"},
		"late":      {"close", "", "follows the last answer"},
		"code":      {"close", "", "exit status 5"},
	} {
		t.Run(mode, func(t *testing.T) {
			r := ExamineServer(context.Background(), serverOptions(mode))
			var failed, skipped, details []string
			for _, check := range r.Checks {
				details = append(details, check.Detail)
				switch {
				case !check.OK && check.Detail == unreached:
					skipped = append(skipped, check.Name)
				case !check.OK:
					failed = append(failed, check.Name)
				}
			}
			if diff := cmp.Diff([]string{c.failed, c.unreached}, []string{strings.Join(failed, " "), strings.Join(skipped, " ")}); diff != "" {
				t.Errorf("failed and not reached (-want +got):\n%s%v", diff, details)
			}
			if !strings.Contains(strings.Join(details, "\n"), c.says) {
				t.Errorf("%q does not say %q", details, c.says)
			}
			if r.Healthy != (c.failed == "") || len(r.Checks) != len(strings.Fields(rest))+1 {
				t.Errorf("healthy %v with checks %+v", r.Healthy, r.Checks)
			}
			if mode == "dies" && (r.Diagnostics.ExitCode == nil || *r.Diagnostics.ExitCode != 3 || !strings.Contains(r.Diagnostics.Stderr, "start")) {
				t.Errorf("%+v", r.Diagnostics)
			}
		})
	}
}

// The keys are those of the contract, and an inventory counts.
func TestServerReportKeys(t *testing.T) {
	raw, err := json.Marshal(ExamineServer(context.Background(), serverOptions("missing")))
	if err != nil {
		t.Fatal(err)
	}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(raw, &keys); err != nil {
		t.Fatal(err)
	}
	var names []string
	for k := range keys {
		names = append(names, k)
	}
	slices.Sort(names)
	if diff := cmp.Diff([]string{"adapter", "checks", "diagnostics", "healthy", "identity", "inventory", "request_flow", "server"}, names); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	want := `{"expected":2,"observed":2,"missing":["a"],"unexpected":["b"],"duplicates":[]}`
	if got := string(keys["inventory"]); got != want {
		t.Errorf("inventory %s, want %s", got, want)
	}
}

// A server that does not answer is ended with the time that there is, also while a program that it has left behind
// holds its output open.
func TestExamineSilentServer(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	left := make(chan int, 1)
	go func() {
		raw, _ := os.ReadFile(pipe) // returns when the server has written
		pid, _ := strconv.Atoi(string(raw))
		left <- pid
		cancel(errors.New("the test has seen enough"))
	}()
	o := serverOptions("silent")
	o.Env = append(o.Env, pipeVariable+"="+pipe)
	r := ExamineServer(ctx, o)
	if pid := <-left; pid > 0 {
		_ = syscall.Kill(pid, syscall.SIGKILL) // the test's own
	} else {
		t.Error("the server left nothing behind")
	}
	if r.Healthy || r.Diagnostics.Signal == "" || !strings.Contains(r.Checks[2].Detail, "seen enough") {
		t.Errorf("%+v", r)
	}
}

func TestNoServer(t *testing.T) {
	o := serverOptions("good")
	o.Command = []string{"/nowhere/rea", "mcp"}
	r := ExamineServer(context.Background(), o)
	if r.Healthy || r.Checks[0].OK || r.Diagnostics.ExitCode != nil || string(r.Identity) != "null" {
		t.Errorf("%+v", r)
	}
}

func TestServerText(t *testing.T) {
	var b strings.Builder
	if err := ExamineServer(context.Background(), serverOptions("dies")).WriteText(&b, report.Style{}); err != nil {
		t.Fatal(err)
	}
	if got := b.String(); strings.Contains(got, "\x1b") || !strings.Contains(got, `cannot\x1b[2J start`) || !strings.Contains(got, "unhealthy") {
		t.Errorf("%q", got)
	}
}
