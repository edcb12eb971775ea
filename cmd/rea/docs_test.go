package main

import (
	"encoding/json"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/viper"
)

const repository = "../.."

// sources visits every Go file of the repository.
func sources(t *testing.T, visit func(path, text string)) {
	t.Helper()
	err := filepath.WalkDir(repository, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), ".") && d.Name() != ".." {
			return fs.SkipDir
		}
		if filepath.Ext(path) != ".go" {
			return nil
		}
		raw, err := os.ReadFile(path)
		if err == nil {
			visit(path, string(raw))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func document(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(repository, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// Every test that the documents name is there.
func TestDocumentsNameRealTests(t *testing.T) {
	var all strings.Builder
	sources(t, func(_, text string) { all.WriteString(text) })
	code := all.String()
	named := regexp.MustCompile("`(Conformance/|)((?:Test|Fuzz)?[A-Z][A-Za-z0-9]+)`")
	for _, name := range []string{"docs/security.md", "docs/add-a-provider.md"} {
		for _, m := range named.FindAllStringSubmatch(document(t, name), -1) {
			var want string
			switch {
			case m[1] != "":
				want = `{"` + m[2] + `", `
			case strings.HasPrefix(m[2], "Test"), strings.HasPrefix(m[2], "Fuzz"):
				want = "func " + m[2] + "("
			default:
				continue
			}
			if !strings.Contains(code, want) {
				t.Errorf("%s names %s, which is not there", name, m[0])
			}
		}
	}
}

// Every module that is imported has its line, and every line a module.
func TestDependenciesAreListed(t *testing.T) {
	listed := document(t, "docs/dependencies.md")
	var modules []string
	for _, m := range regexp.MustCompile(`(?m)^\s*(?:require )?([a-z0-9.]+\.[a-z]+/\S+) v`).FindAllStringSubmatch(document(t, "go.mod"), -1) {
		modules = append(modules, m[1])
	}
	imported := map[string]bool{}
	sources(t, func(path, text string) {
		f, err := parser.ParseFile(token.NewFileSet(), path, text, parser.ImportsOnly)
		if err != nil {
			return // not a file of ours to judge
		}
		for _, i := range f.Imports {
			p, _ := strconv.Unquote(i.Path.Value) // the parser has read it
			best := ""
			for _, m := range modules {
				if (p == m || strings.HasPrefix(p, m+"/")) && len(m) > len(best) {
					best = m
				}
			}
			if best != "" {
				imported[best] = true
			}
		}
	})
	if len(imported) < 10 {
		t.Fatalf("only %d modules were found to be imported", len(imported))
	}
	for m := range imported {
		if !strings.Contains(listed, "`"+m+"`") {
			t.Errorf("docs/dependencies.md does not list %s", m)
		}
	}
	for _, m := range regexp.MustCompile("`([a-z0-9.]+\\.[a-z]+/[^`]+)`").FindAllStringSubmatch(listed, -1) {
		if !imported[m[1]] {
			t.Errorf("docs/dependencies.md lists %s, which nothing imports", m[1])
		}
	}
}

// The guide has every command, setting and finding, and README every client.
func TestGuideIsComplete(t *testing.T) {
	guide := document(t, "docs/guide.md")
	a := &app{}
	a.root = a.command()
	for _, c := range a.commands() {
		if !strings.Contains(guide, "`rea "+c) {
			t.Errorf("the guide lacks rea %s", c)
		}
	}
	for _, s := range append(settings(), configSetting) {
		for _, word := range []string{s.key, s.env, "--" + s.flag} {
			if word != "" && !strings.Contains(guide, "`"+word+"`") {
				t.Errorf("the guide lacks %s", word)
			}
		}
	}
}

// Each client's configuration is whole, and starts the server.
func TestClientConfigurations(t *testing.T) {
	dir := filepath.Join(repository, "deploy", "clients")
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	readme := document(t, "deploy/clients/README.md")
	seen := 0
	for _, e := range entries {
		if e.Name() == "README.md" {
			continue
		}
		seen++
		v := viper.New()
		v.SetConfigFile(filepath.Join(dir, e.Name()))
		if err := v.ReadInConfig(); err != nil {
			t.Fatalf("%s: %v", e.Name(), err)
		}
		var command string
		var args []string
		for _, table := range []string{"mcpServers", "mcp_servers", "servers"} {
			if v.IsSet(table + ".rea.command") {
				command, args = v.GetString(table+".rea.command"), v.GetStringSlice(table+".rea.args")
			}
		}
		if filepath.Base(command) != name || !slices.Equal(args, []string{"mcp"}) {
			t.Errorf("%s starts %q %q", e.Name(), command, args)
		}
		if !strings.Contains(readme, "`"+e.Name()+"`") {
			t.Errorf("deploy/clients/README.md does not say where %s belongs", e.Name())
		}
	}
	if seen < 7 {
		t.Errorf("%d configurations", seen)
	}
}

// Links between documents lead somewhere.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#]+)\)`)
	for _, name := range []string{"README.md", "docs/guide.md", "docs/architecture.md", "docs/security.md", "docs/dependencies.md", "docs/add-a-provider.md", "docs/regrets.md"} {
		for _, m := range link.FindAllStringSubmatch(document(t, name), -1) {
			if _, err := os.Stat(filepath.Join(repository, filepath.Dir(name), m[1])); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// TestLinterRulesHold gives the linter code that breaks the trust boundary and the layers: the rules must find it.
func TestLinterRulesHold(t *testing.T) {
	linter := golangci(t)
	dir := t.TempDir()
	for path, text := range map[string]string{
		"go.mod":                      "module rea\n\ngo 1.26.0\n",
		"providers/demo/worker/w.go":  "package worker\n\nimport _ \"archive/zip\"\n",
		"providers/worker/w.go":       "package worker\n",
		"orchestrator/parse.go":       "package orchestrator\n\nimport _ \"archive/zip\"\n",
		"orchestrator/link.go":        "package orchestrator\n\nimport _ \"rea/providers/worker\"\n",
		"evidence/up.go":              "package evidence\n\nimport _ \"rea/orchestrator\"\n",
		"providers/demo/start.go":     "package demo\n\nimport _ \"os/exec\"\n",
		"orchestrator/print/print.go": "package print\n\nimport (\n\t\"fmt\"\n\t\"os\"\n)\n\n// Bad prints and ends.\nfunc Bad() {\n\tfmt.Println(1)\n\tos.Exit(1)\n}\n",
	} {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	copyFile(t, filepath.Join(repository, ".golangci.yml"), filepath.Join(dir, ".golangci.yml"), 0o644)
	cmd := exec.Command(linter, "run", "--output.json.path", "stdout", "--show-stats=false", "--allow-parallel-runners", "./...")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
	out, _ := cmd.Output() // findings are a failure of the linter's
	var report struct {
		Issues []struct {
			FromLinter string
			Text       string
			Pos        struct{ Filename string }
		}
	}
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatalf("%v: %.2000s", err, out)
	}
	found := map[string]int{}
	for _, i := range report.Issues {
		found[i.FromLinter+" "+i.Pos.Filename]++
	}
	for _, want := range []string{"depguard orchestrator/parse.go", "depguard orchestrator/link.go", "depguard evidence/up.go", "depguard providers/demo/start.go", "forbidigo orchestrator/print/print.go"} {
		if found[want] == 0 {
			t.Errorf("no finding of %s; there are %v", want, found)
		}
	}
	if found["depguard providers/demo/worker/w.go"] > 0 {
		t.Error("a worker may not parse")
	}
}

// golangci builds the linter that the repository pins, or takes the one that REA_TEST_LINTER names.
func golangci(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("REA_TEST_LINTER"); path != "" {
		return path
	}
	path := filepath.Join(t.TempDir(), "golangci-lint")
	cmd := exec.Command("go", "build", "-modfile", ".ci/tools.mod", "-o", path, "github.com/golangci/golangci-lint/v2/cmd/golangci-lint")
	cmd.Dir = repository
	if out, err := cmd.CombinedOutput(); err != nil {
		if required() {
			t.Fatalf("%v: %s", err, out)
		}
		t.Skip("the linter cannot be built here")
	}
	return path
}
