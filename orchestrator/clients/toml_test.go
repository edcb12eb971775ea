package clients

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

const ours = "[mcp_servers.rea]\ncommand = \"/opt/rea/rea\"\nargs = [\"mcp\"]\n"

// The expected texts were written by hand.
func TestTOMLEdits(t *testing.T) {
	for name, c := range map[string]struct{ before, want string }{
		"empty file":        {"", ours},
		"keys":              {"model = \"o9\" # best\n", "model = \"o9\" # best\n\n" + ours},
		"no last line end":  {"a = 1", "a = 1\n\n" + ours},
		"another server":    {"[mcp_servers.a]\ncommand = 'x'\n", "[mcp_servers.a]\ncommand = 'x'\n\n" + ours},
		"other system":      {"a = 1\r\n", "a = 1\r\n\r\n[mcp_servers.rea]\r\ncommand = \"/opt/rea/rea\"\r\nargs = [\"mcp\"]\r\n"},
		"a stale entry":     {"[mcp_servers.rea]\n# mine\ncommand = \"/old\"\nargs = [\n  \"mcp\", # x\n]\nstartup_timeout_sec = 30\n\n[mcp_servers.rea.env]\nA = \"b\"\n", "[mcp_servers.rea]\n# mine\ncommand = \"/opt/rea/rea\"\nargs = [\"mcp\"]\nstartup_timeout_sec = 30\n\n[mcp_servers.rea.env]\nA = \"b\"\n"},
		"arguments missing": {"[mcp_servers.rea]\ncommand = \"/old\"\n# end\n[x]\n", "[mcp_servers.rea]\nargs = [\"mcp\"]\ncommand = \"/opt/rea/rea\"\n# end\n[x]\n"},
		"of another kind":   {"[mcp_servers.rea]\nurl = \"https://example.com\"\n[x]\ny = 1\n", "[x]\ny = 1\n\n" + ours},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, planned(t, "codex", c.before, true)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestTOMLRoundTrip(t *testing.T) {
	for name, text := range map[string]string{
		"keys": "a = 1\n", "blank lines": "a = 1\n\n\n", "a table": "[x]\ny = '''\n[mcp_servers.rea]\n'''\n", "comment": "# [mcp_servers.rea]\n",
		"other system": "a = 1\r\n", "list of tables": "[[x]]\n[[x]]\n",
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(text, planned(t, "codex", planned(t, "codex", text, true), false)); diff != "" {
				t.Errorf("(-before +after):\n%s", diff)
			}
		})
	}
}

func TestTOMLRemovals(t *testing.T) {
	for name, c := range map[string]struct{ before, want string }{
		"with its tables": {"a = 1\n[mcp_servers.rea]\ncommand = \"x\"\n# inside\n[mcp_servers.rea.env]\nA = \"b\"\n\n# of c\n[c]\n", "a = 1\n\n# of c\n[c]\n"},
		"apart":           {"[mcp_servers.rea]\ncommand = \"x\"\n[c]\nd = 1\n[mcp_servers.rea.env]\nA = \"b\"\n", "[c]\nd = 1\n"},
		"inline":          {"[mcp_servers]\nrea = { command = \"x\" } # mine\nb = { command = \"y\" }\n", "[mcp_servers]\nb = { command = \"y\" }\n"},
		"dotted":          {"mcp_servers.rea.command = \"x\"\nmcp_servers.rea.args = [\n 'mcp',\n]\nz = 1\n", "z = 1\n"},
		"quoted":          {"[\"mcp_servers\".'rea']\ncommand = \"x\"\n[ b ]\n", "[ b ]\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, planned(t, "codex", c.before, false)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// What is written in a form that is not edited, or is no TOML, is left alone, with an error.
func TestTOMLRefusals(t *testing.T) {
	for name, text := range map[string]string{
		"inline servers": "mcp_servers = { a = { command = \"x\" } }\n",
		"stale inline":   "[mcp_servers]\nrea = { command = \"x\" }\n",
		"no TOML":        "a = \n", "a key twice": "a = 1\na = 2\n", "not UTF-8": "a = \"\xff\"\n",
	} {
		t.Run(name, func(t *testing.T) {
			u := home(t)
			put(t, u, "codex", text)
			if p, err := PlanSetup(u, program, []string{"codex"}); err == nil {
				t.Errorf("planned %q", p.Changes[0].text)
			}
		})
	}
}
