package clients

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"rea/evidence/fault"
)

// home is a user of whom nothing is known but an empty home.
func home(t testing.TB) User {
	return User{OS: "linux", Home: t.TempDir(), Getenv: func(string) string { return "" }}
}

// put writes a client's file.
func put(t testing.TB, u User, id, text string) string {
	t.Helper()
	c, ok := Find(id)
	if !ok {
		t.Fatal(id)
	}
	path := c.Path(u)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
	return path
}

// planned is what a client's file would hold.
func planned(t *testing.T, id, before string, setup bool) string {
	t.Helper()
	u := home(t)
	put(t, u, id, before)
	var p Plan
	var err error
	if setup {
		p, err = PlanSetup(u, program, []string{id})
	} else {
		p, err = PlanRemoval(u, []string{id})
	}
	if err != nil {
		t.Fatal(err)
	}
	if p.Changes[0].Action == None {
		t.Fatal("nothing is planned")
	}
	return string(p.Changes[0].text)
}

func codeOf(err error) fault.Code {
	if err == nil {
		return ""
	}
	return fault.From(err).Code
}

// The places are those that the clients document.
func TestPaths(t *testing.T) {
	paths := func(u User) map[string]string {
		out := map[string]string{}
		for _, c := range All() {
			out[c.ID] = c.Path(u)
		}
		return out
	}
	none := func(string) string { return "" }
	linux := map[string]string{
		"claude-code": "/h/.claude.json", "claude-desktop": "/h/.config/Claude/claude_desktop_config.json", "codex": "/h/.codex/config.toml",
		"cursor": "/h/.cursor/mcp.json", "gemini-cli": "/h/.gemini/settings.json", "windsurf": "/h/.codeium/windsurf/mcp_config.json",
		"vscode": "/h/.config/Code/User/mcp.json",
	}
	if diff := cmp.Diff(linux, paths(User{"linux", "/h", none})); diff != "" {
		t.Errorf("linux (-want +got):\n%s", diff)
	}
	mac := paths(User{"darwin", "/h", none})
	for id, want := range map[string]string{
		"claude-desktop": "/h/Library/Application Support/Claude/claude_desktop_config.json",
		"vscode":         "/h/Library/Application Support/Code/User/mcp.json", "codex": "/h/.codex/config.toml",
	} {
		if mac[id] != want {
			t.Errorf("darwin: %s is at %s, want %s", id, mac[id], want)
		}
	}
	moved := paths(User{"linux", "/h", func(name string) string {
		return map[string]string{"XDG_CONFIG_HOME": "/c", "CODEX_HOME": "/x", "CLAUDE_CONFIG_DIR": "/k", "GEMINI_CLI_HOME": "relative"}[name]
	}})
	for id, want := range map[string]string{
		"claude-code": "/k/.claude.json", "codex": "/x/config.toml", "vscode": "/c/Code/User/mcp.json", "gemini-cli": "/h/.gemini/settings.json",
	} {
		if moved[id] != want {
			t.Errorf("moved: %s is at %s, want %s", id, moved[id], want)
		}
	}
}

func TestStates(t *testing.T) {
	dir := t.TempDir()
	exe := filepath.Join(dir, "rea")
	other := filepath.Join(dir, "other")
	link := filepath.Join(dir, "link")
	if err := errors.Join(os.WriteFile(exe, nil, 0o755), os.WriteFile(other, nil, 0o755), os.Symlink(exe, link)); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		entry   string
		state   State
		command []string
	}{
		"the program":         {`{"command": "` + exe + `", "args": ["mcp"]}`, Aligned, []string{exe, "mcp"}},
		"flags of its user":   {`{"command": "` + exe + `", "args": ["mcp", "--driver", "oci"], "env": {"A": "b"}}`, Aligned, []string{exe, "mcp", "--driver", "oci"}},
		"by a link":           {`{"command": "` + link + `", "args": ["mcp"]}`, Aligned, []string{link, "mcp"}},
		"another program":     {`{"command": "` + other + `", "args": ["mcp"]}`, Stale, []string{other, "mcp"}},
		"a program that left": {`{"command": "/nowhere/rea", "args": ["mcp"]}`, Stale, []string{"/nowhere/rea", "mcp"}},
		"no arguments":        {`{"command": "` + exe + `"}`, Stale, []string{exe}},
		"another command":     {`{"command": "` + exe + `", "args": ["mcp", "doctor"]}`, Stale, []string{exe, "mcp", "doctor"}},
		"a runner":            {`{"command": "npx", "args": ["-y", "rea"]}`, Stale, []string{"npx", "-y", "rea"}},
		"remote":              {`{"url": "https://example.com"}`, Invalid, []string{}},
		"remote by type":      {`{"type": "sse", "command": "` + exe + `"}`, Invalid, []string{}},
		"numbers":             {`{"command": 1}`, Invalid, []string{}},
		"no object":           {`"rea"`, Invalid, []string{}},
		"another case":        {`{"Command": "` + exe + `"}`, Invalid, []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			u := home(t)
			path := put(t, u, "cursor", `{"mcpServers": {"rea": `+c.entry+`}}`)
			want := Registration{Client: "cursor", Name: "Cursor", Path: path, Format: JSON, Installed: true, State: c.state, Command: c.command}
			for _, got := range Inspect(u, Command(exe)) {
				switch {
				case got.Client != "cursor" && (got.State != Missing || got.Installed):
					t.Errorf("%+v", got)
				case got.Client == "cursor":
					if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Registration{}), cmpopts.IgnoreFields(Registration{}, "Reason")); diff != "" {
						t.Errorf("(-want +got):\n%s", diff)
					}
					if (got.Reason == "") != (c.state == Aligned) {
						t.Errorf("reason %q", got.Reason)
					}
				}
			}
		})
	}
}

// A whole life of a registration on disk, mode kept, with a backup that is the file as it was.
func TestApply(t *testing.T) {
	u := home(t)
	text := "{\n  \"mcpServers\": {\n    \"a\": {}\n  }\n}\n"
	path := put(t, u, "cursor", text)
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(path, 12345, 54321); err != nil {
			t.Fatal(err)
		}
	}
	now := func() time.Time { return time.Date(2030, 1, 2, 3, 4, 5, 6e6, time.UTC) }
	p, err := PlanSetup(u, program, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Changes) != 1 {
		t.Fatalf("%d changes, want the one of the client that is there", len(p.Changes))
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != text {
		t.Fatalf("a plan alone changed the file: %q, %v", got, err)
	}
	got := p.Apply(context.Background(), now)[0]
	want := Change{Client: "cursor", Name: "Cursor", Path: path, Action: Add, Before: []string{}, After: program, Applied: true,
		Backup: path + ".rea-backup-20300102T030405.006Z"}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Change{})); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
	for _, file := range []string{path, got.Backup} {
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		stat := info.Sys().(*syscall.Stat_t)
		if info.Mode().Perm() != 0o640 || os.Geteuid() == 0 && (stat.Uid != 12345 || stat.Gid != 54321) {
			t.Errorf("%s has mode %v and owner %d:%d", file, info.Mode(), stat.Uid, stat.Gid)
		}
	}
	if kept, err := os.ReadFile(got.Backup); err != nil || string(kept) != text {
		t.Errorf("backup %q, %v", kept, err)
	}
	again, err := PlanSetup(u, program, nil)
	if err != nil || again.Changes[0].Action != None {
		t.Errorf("a second setup plans %+v, %v", again, err)
	}
	removal, err := PlanRemoval(u, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := removal.Apply(context.Background(), time.Now)[0]; !got.Applied {
		t.Fatalf("%+v", got)
	}
	if after, err := os.ReadFile(path); err != nil || string(after) != text {
		t.Errorf("after removal %q, %v", after, err)
	}
	requireFiles(t, filepath.Dir(path), 3) // the file and two backups
}

// requireFiles counts what a directory holds: nothing that was staged is left.
func requireFiles(t *testing.T, dir string, want int) {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != want {
		t.Errorf("%s holds %v, want %d files", dir, list, want)
	}
}

// A client that was named gets its file, and the directory for it.
func TestApplyWithoutAFile(t *testing.T) {
	u := home(t)
	p, err := PlanSetup(u, program, []string{"codex"})
	if err != nil {
		t.Fatal(err)
	}
	c := p.Apply(context.Background(), time.Now)[0]
	if !c.Applied || c.Backup != "" {
		t.Fatalf("%+v", c)
	}
	info, err := os.Stat(c.Path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if got, err := os.ReadFile(c.Path); err != nil || string(got) != ours {
		t.Errorf("%q, %v", got, err)
	}
	requireFiles(t, filepath.Dir(c.Path), 1)
}

// What may not or cannot be edited is left as it is, with an error of a code that says why.
func TestRefusedFiles(t *testing.T) {
	const text = "{}\n"
	for name, c := range map[string]struct {
		spoil func(t *testing.T, path string)
		code  fault.Code
	}{
		"link": {func(t *testing.T, path string) {
			must(t, os.Rename(path, path+".real"), os.Symlink(path+".real", path))
		}, fault.ConfigurationInvalid},
		"dangling link":   {func(t *testing.T, path string) { must(t, os.Remove(path), os.Symlink("nowhere", path)) }, fault.ConfigurationInvalid},
		"write-protected": {func(t *testing.T, path string) { must(t, os.Chmod(path, 0o444)) }, fault.AccessDenied},
		"directory":       {func(t *testing.T, path string) { must(t, os.Remove(path), os.Mkdir(path, 0o700)) }, fault.ConfigurationInvalid},
		"pipe":            {func(t *testing.T, path string) { must(t, os.Remove(path), syscall.Mkfifo(path, 0o600)) }, fault.ConfigurationInvalid},
		"too large":       {func(t *testing.T, path string) { must(t, os.Truncate(path, maxJSON+1)) }, fault.ConfigurationInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			u := home(t)
			path := put(t, u, "cursor", text)
			c.spoil(t, path)
			_, err := PlanSetup(u, program, []string{"cursor"})
			if codeOf(err) != c.code {
				t.Errorf("%v, want code %s", err, c.code)
			}
			// Found and not named, it is skipped with its error, and another client is still set up.
			put(t, u, "codex", "")
			p, err := PlanSetup(u, program, nil)
			if err != nil {
				t.Fatal(err)
			}
			done := map[string]Change{}
			for _, c := range p.Apply(context.Background(), time.Now) {
				done[c.Client] = c
			}
			if got := done["cursor"]; got.Action != Skip || codeOf(got.Fault()) != c.code || got.Error == nil {
				t.Errorf("%+v", got)
			}
			if !done["codex"].Applied {
				t.Errorf("%+v", done["codex"])
			}
		})
	}
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// A client that writes its file between plan and edit wins.
func TestChangedMeanwhile(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, path string){
		"rewritten": func(t *testing.T, path string) { must(t, os.WriteFile(path, []byte(`{"new": 1}`), 0o644)) },
		"replaced": func(t *testing.T, path string) {
			must(t, os.WriteFile(path+".new", []byte("{}\n"), 0o644), os.Rename(path+".new", path))
		},
		"removed": func(t *testing.T, path string) { must(t, os.Remove(path)) },
	} {
		t.Run(name, func(t *testing.T) {
			u := home(t)
			path := put(t, u, "cursor", "{}\n")
			p, err := PlanSetup(u, program, nil)
			must(t, err)
			change(t, path)
			want, _ := os.ReadFile(path)
			c := p.Apply(context.Background(), time.Now)[0]
			if c.Applied || c.Fault() == nil {
				t.Fatalf("%+v", c)
			}
			if got, _ := os.ReadFile(path); !bytes.Equal(got, want) {
				t.Errorf("the file holds %q, want %q", got, want)
			}
			list, err := os.ReadDir(filepath.Dir(path))
			must(t, err)
			for _, e := range list {
				if strings.Contains(e.Name(), ".rea-") {
					t.Errorf("%s is left", e.Name())
				}
			}
		})
	}
	t.Run("appeared", func(t *testing.T) {
		u := home(t)
		p, err := PlanSetup(u, program, []string{"cursor"})
		must(t, err)
		path := put(t, u, "cursor", "{}\n")
		if c := p.Apply(context.Background(), time.Now)[0]; c.Applied || codeOf(c.Fault()) != fault.ArtifactChanged {
			t.Errorf("%+v", c)
		}
		requireFiles(t, filepath.Dir(path), 1)
	})
}

// A broken file is named with its line, and without anything of what it holds.
func TestBrokenFileIsLocated(t *testing.T) {
	for id, text := range map[string]string{"cursor": "{\n\"token\": \"SECRET\",\n\"a\" 1}", "codex": "[a]\nb = 1\ntoken SECRET\n", "vscode": "{ // x\n/* y */\n\"SECRET\": ]}"} {
		u := home(t)
		put(t, u, id, text)
		_, err := PlanSetup(u, program, []string{id})
		raw, jerr := json.Marshal(fault.From(err).Project())
		must(t, jerr)
		if !bytes.Contains(raw, []byte("(line 3)")) || bytes.Contains(raw, []byte("SECRET")) {
			t.Errorf("%s: %s", id, raw)
		}
	}
}

// The end of the context ends the edits.
func TestApplyCancelled(t *testing.T) {
	u := home(t)
	path := put(t, u, "cursor", "{}\n")
	p, err := PlanSetup(u, program, nil)
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if c := p.Apply(ctx, time.Now)[0]; c.Applied || codeOf(c.Fault()) != fault.Cancelled {
		t.Errorf("%+v", c)
	}
	requireFiles(t, filepath.Dir(path), 1)
}

func TestUnknownClient(t *testing.T) {
	if _, err := PlanSetup(home(t), program, []string{"emacs"}); codeOf(err) != fault.InvalidRequest {
		t.Error(err)
	}
}

// TOML is read by recursion: nothing that is read exhausts the stack, neither at the bound nor beyond it.
func TestDeepTOML(t *testing.T) {
	u := home(t)
	for _, n := range []int{maxNesting - 1, maxTOML - 4} {
		put(t, u, "codex", "a = "+strings.Repeat("[", n))
		if _, err := PlanSetup(u, program, []string{"codex"}); codeOf(err) != fault.ConfigurationInvalid {
			t.Error(err)
		}
		put(t, u, "codex", strings.Repeat("a.", n/2)+"a = 1\n")
		_, _ = PlanSetup(u, program, []string{"codex"}) // it ends
	}
}

// FuzzEdits edits any text that parses: the rest stays, and a removal after it takes away what was added.
func FuzzEdits(f *testing.F) {
	f.Add("vscode", "{\n\t\"servers\": {\n\t\t\"a\": {}, // x\n\t}\n}\n")
	f.Add("codex", "[mcp_servers]\na = { b = [1,\n2] } # x\n[[c]]\n")
	f.Add("claude-code", `{"mcpServers": {"rea": {"command": "x"}}}`)
	f.Fuzz(func(t *testing.T, id, text string) {
		c, ok := Find(id)
		if !ok || len(text) > 1<<12 {
			return
		}
		u := User{OS: "linux", Home: "/nowhere", Getenv: func(string) string { return "" }}
		r := Registration{State: Missing}
		s := snapshot{path: c.Path(u), text: []byte(text)}
		if err := r.read(c, s, program); err != nil {
			return
		}
		change := Change{client: c, file: s, Path: s.path}
		if err := change.planSetup(r.State, program); err != nil {
			return
		}
		if change.Action == None {
			return
		}
		with := change.text
		removal := Change{client: c, file: snapshot{path: s.path, text: with}, Path: s.path}
		if err := removal.planRemoval(); err != nil {
			t.Fatalf("%q became %q, which cannot be undone: %v", text, with, err)
		}
	})
}

// The examples that are shipped are registrations of the form that setup writes, one for each client.
func TestExamples(t *testing.T) {
	dir := filepath.Join("..", "..", "deploy", "clients")
	files := map[string]string{
		"claude-code": "claude-code.mcp.json", "claude-desktop": "claude-desktop.json", "codex": "codex.toml", "cursor": "cursor.mcp.json",
		"gemini-cli": "gemini.settings.json", "vscode": "vscode.mcp.json", "windsurf": "windsurf.mcp_config.json",
	}
	requireFiles(t, dir, len(All())+1) // and a README
	readme, err := os.ReadFile(filepath.Join(dir, "README.md"))
	must(t, err)
	for _, c := range All() {
		s, err := load(filepath.Join(dir, files[c.ID]), c.Format.limit())
		if err != nil || s.info == nil {
			t.Fatalf("%s: %v", c.ID, err)
		}
		var r Registration
		if err := r.read(c, s, program); err != nil || len(r.Command) != 2 || filepath.Base(r.Command[0]) != "rea" || r.Command[1] != "mcp" {
			t.Errorf("%s: %+v, %v", c.ID, r, err)
		}
		d, err := c.parse(s)
		must(t, err)
		raw, _, err := d.entry(c)
		must(t, err)
		if typed := bytes.Contains(raw, []byte(`"type"`)); typed != c.Typed {
			t.Errorf("%s: its type is given: %v, setup gives it: %v", c.ID, typed, c.Typed)
		}
		for _, word := range []string{files[c.ID], c.Name, filepath.Base(c.Path(home(t)))} {
			if !bytes.Contains(readme, []byte(word)) {
				t.Errorf("the README of the examples does not name %s", word)
			}
		}
	}
}
