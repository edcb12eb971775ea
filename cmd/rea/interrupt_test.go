package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"rea/orchestrator"
	"rea/sandbox"
	"rea/sandbox/cgroup"
	"rea/sandbox/journal"
)

// build builds the program as users have it.
func build(t *testing.T) string {
	t.Helper()
	exe := filepath.Join(t.TempDir(), name)
	if out, err := exec.Command("go", "build", "-o", exe, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return exe
}

// endless is a target that takes longer to hash than any test waits.
func endless(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "endless")
	if err := errors.Join(os.WriteFile(path, nil, 0o644), os.Truncate(path, 64<<30)); err != nil {
		t.Fatal(err)
	}
	return path
}

// made is what a program's journal names while it runs: resources by their kind.
func made(t *testing.T, state string) map[string][]string {
	t.Helper()
	owners, err := journal.Owners(state)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	for _, o := range owners {
		for _, e := range o.Entries {
			out[e.Kind] = append(out[e.Kind], e.Name)
		}
	}
	return out
}

// left lists what is there of what was made. It asks the kernel and the engine, and not the journal.
func left(t *testing.T, driver string, resources map[string][]string) []string {
	t.Helper()
	var there []string
	for _, path := range resources[sandbox.KindCgroup] {
		if g, err := cgroup.Open(path); err == nil {
			if n, err := g.Procs(); !errors.Is(err, os.ErrNotExist) {
				there = append(there, fmt.Sprintf("%s %s with %d processes (%v)", sandbox.KindCgroup, path, n, err))
			}
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{sandbox.KindEvidence, sandbox.KindTargetMount} {
		for _, path := range resources[kind] {
			if strings.Contains(string(mounts), " "+path+" ") {
				there = append(there, kind+" "+path)
			}
		}
	}
	if driver == orchestrator.DriverDocker {
		for _, id := range resources[sandbox.KindContainer] {
			if code := askEngine(t, "/containers/"+url.PathEscape(id)+"/json"); code != http.StatusNotFound {
				there = append(there, fmt.Sprintf("%s %s (%d)", sandbox.KindContainer, id, code))
			}
		}
	}
	return there
}

// kinds are the kinds of what is left, each once.
func kinds(there []string) []string {
	var out []string
	for _, one := range there {
		kind, _, _ := strings.Cut(one, " ")
		out = append(out, kind)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// requireRunning holds the check for what is left against a run that goes on: it must see all of it.
func requireRunning(t *testing.T, driver string, resources map[string][]string) {
	t.Helper()
	var want []string
	for kind := range resources {
		switch kind {
		case sandbox.KindCgroup, sandbox.KindEvidence, sandbox.KindTargetMount:
			want = append(want, kind)
		case sandbox.KindContainer:
			if driver == orchestrator.DriverDocker {
				want = append(want, kind)
			}
		}
	}
	slices.Sort(want)
	if diff := gocmp.Diff(want, kinds(left(t, driver, resources))); diff != "" || len(want) < 2 {
		t.Errorf("seen while the run goes on (-made +seen):\n%s%v", diff, resources)
	}
}

func requireGone(t *testing.T, driver string, resources map[string][]string) {
	t.Helper()
	if there := left(t, driver, resources); there != nil {
		t.Errorf("left: %v", there)
	}
}

// askEngine makes a request of the engine without the driver's client.
func askEngine(t *testing.T, path string) int {
	t.Helper()
	socket := strings.TrimPrefix(os.Getenv("DOCKER_HOST"), "unix://")
	if socket == "" {
		socket = "/var/run/docker.sock"
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	answer, err := client.Get("http://engine" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	return answer.StatusCode
}

// TestBuiltProgram stops the program as users have it, by signals and by the protocol, while its containers work.
func TestBuiltProgram(t *testing.T) {
	exe := build(t)
	t.Run("signal", func(t *testing.T) { signalLeavesNothing(t, exe) })
	t.Run("cancel", func(t *testing.T) { cancelReachesTheContainer(t, exe) })
}

// signalLeavesNothing ends the program by a signal. What the journal named before is looked for afterwards.
func signalLeavesNothing(t *testing.T, exe string) {
	for _, c := range []struct {
		driver string
		signal syscall.Signal
		code   int
	}{
		{orchestrator.DriverDocker, syscall.SIGINT, 130}, {orchestrator.DriverDocker, syscall.SIGTERM, 143},
		{orchestrator.DriverOCI, syscall.SIGINT, 130}, {orchestrator.DriverOCI, syscall.SIGTERM, 143},
	} {
		t.Run(c.driver+"/"+c.signal.String(), func(t *testing.T) {
			requireDriver(t, c.driver)
			near, far := terminal(t)
			state := t.TempDir()
			cmd := program(t, exe, state, "inventory-artifact", endless(t), "--driver", c.driver)
			cmd.Stderr = far
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			_ = far.Close()
			waitFor(t, near, "analyze")
			resources := made(t, state)
			requireRunning(t, c.driver, resources)
			if err := cmd.Process.Signal(c.signal); err != nil {
				t.Fatal(err)
			}
			drain(near)
			var exit *exec.ExitError
			if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != c.code {
				t.Errorf("%v, want exit code %d", err, c.code)
			}
			requireGone(t, c.driver, resources)
			requireNothing(t, state)
		})
	}
}

// client speaks raw lines with the built server.
type client struct {
	t   *testing.T
	in  io.WriteCloser
	out *bufio.Scanner
}

func (c *client) send(line string) {
	c.t.Helper()
	if _, err := io.WriteString(c.in, line+"\n"); err != nil {
		c.t.Fatal(err)
	}
}

// until reads frames until one holds one of the texts.
func (c *client) until(texts ...string) string {
	c.t.Helper()
	for c.out.Scan() {
		for _, text := range texts {
			if strings.Contains(c.out.Text(), text) {
				return c.out.Text()
			}
		}
	}
	c.t.Fatalf("the server ended before it said one of %q: %v", texts, c.out.Err())
	return ""
}

// cancelReachesTheContainer cancels a call of the server by the protocol's notification: the control group empties, the
// call has no answer, and the connection goes on.
func cancelReachesTheContainer(t *testing.T, exe string) {
	for _, driver := range []string{orchestrator.DriverDocker, orchestrator.DriverOCI} {
		t.Run(driver, func(t *testing.T) {
			requireDriver(t, driver)
			if host := cgroup.Detect(); !host.Usable {
				t.Skip("no control group can be made: " + host.Reason)
			}
			state := t.TempDir()
			cmd := program(t, exe, state, "mcp", "--driver", driver)
			c := startServer(t, cmd)
			target, err := json.Marshal(endless(t))
			if err != nil {
				t.Fatal(err)
			}
			c.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"inspect_artifact","arguments":{"path":` + string(target) + `},"_meta":{"progressToken":"p"}}}`)
			// Of updates closer together than a tenth of a second the latest wins: the worker's own phase may hide the run's.
			c.until(`"message":"analyze: `, `"message":"inventory: `)
			resources := made(t, state)
			c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`)
			awaitEmpty(t, resources[sandbox.KindCgroup])
			c.send(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"get_evidence_bundle","arguments":{"detail":"summary"}}}`)
			c.until(`"id":3,"result"`)
			if err := c.in.Close(); err != nil {
				t.Fatal(err)
			}
			for c.out.Scan() {
				if strings.Contains(c.out.Text(), `"id":2`) || strings.Contains(c.out.Text(), "notifications/progress") {
					t.Errorf("after the cancellation: %s", c.out.Text())
				}
			}
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
			requireGone(t, driver, resources)
			requireNothing(t, state)
		})
	}
}

// startServer starts a server and shakes hands.
func startServer(t *testing.T, cmd *exec.Cmd) *client {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // it has ended, where the test went well
	c := &client{t, in, bufio.NewScanner(out)}
	c.out.Buffer(nil, 16<<20)
	c.send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`)
	c.until(`"id":1,"result"`)
	c.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return c
}

// awaitEmpty waits until no control group holds a process, or all are gone.
func awaitEmpty(t *testing.T, names []string) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for _, name := range names {
		g, err := cgroup.Open(name)
		if err != nil {
			continue // it is gone
		}
		for {
			if n, err := g.Procs(); n == 0 || errors.Is(err, os.ErrNotExist) {
				break
			}
			<-tick.C
		}
	}
}
