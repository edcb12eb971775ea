package clients

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var program = Command("/opt/rea/rea")

// The expected texts were written by hand.
func TestJSONEdits(t *testing.T) {
	for name, c := range map[string]struct {
		client string
		before string
		want   string
	}{
		"empty file": {"cursor", "", `{
  "mcpServers": {
    "rea": {
      "command": "/opt/rea/rea",
      "args": [
        "mcp"
      ]
    }
  }
}
`},
		"empty object": {"cursor", "{}", `{
  "mcpServers": {
    "rea": {
      "command": "/opt/rea/rea",
      "args": [
        "mcp"
      ]
    }
  }
}`},
		"another server, tabs, numbers and escapes stay": {"claude-code", "{\n\t\"n\": 1.0e+2, \"big\": 123456789012345678901234567890,\n\t\"s\": \"\\u00e9\\/\",\n\t\"mcpServers\": {\n\t\t\"a\": {\"command\": \"x\"}\n\t},\n\t\"z\": null\n}\n",
			"{\n\t\"n\": 1.0e+2, \"big\": 123456789012345678901234567890,\n\t\"s\": \"\\u00e9\\/\",\n\t\"mcpServers\": {\n\t\t\"a\": {\"command\": \"x\"},\n\t\t\"rea\": {\n\t\t\t\"type\": \"stdio\",\n\t\t\t\"command\": \"/opt/rea/rea\",\n\t\t\t\"args\": [\n\t\t\t\t\"mcp\"\n\t\t\t]\n\t\t}\n\t},\n\t\"z\": null\n}\n"},
		"one line": {"windsurf", `{"mcpServers":{"a":{"command":"x"}}}`,
			"{\"mcpServers\":{\"a\":{\"command\":\"x\"}, \"rea\": {\n  \"command\": \"/opt/rea/rea\",\n  \"args\": [\n    \"mcp\"\n  ]\n}}}"},
		"comments and a trailing comma": {"vscode", "// mine\n{\n    \"servers\": {\n        \"a\": { \"command\": \"x\", }, // the first, \"really\"\n        /* end */\n    },\n}\n",
			"// mine\n{\n    \"servers\": {\n        \"a\": { \"command\": \"x\", }, // the first, \"really\"\n        /* end */\n        \"rea\": {\n            \"type\": \"stdio\",\n            \"command\": \"/opt/rea/rea\",\n            \"args\": [\n                \"mcp\"\n            ]\n        },\n    },\n}\n"},
		"a comment behind the last value": {"gemini-cli", "{\n  \"theme\": \"dark\" // not light\n}\n",
			"{\n  \"theme\": \"dark\", // not light\n  \"mcpServers\": {\n    \"rea\": {\n      \"command\": \"/opt/rea/rea\",\n      \"args\": [\n        \"mcp\"\n      ]\n    }\n  }\n}\n"},
		"a stale entry keeps its own members": {"cursor", "{\"mcpServers\": {\"rea\": {\"env\": {\"REA_SANDBOX_DRIVER\": \"oci\"}, \"command\": \"/old/rea\", \"args\": [\"mcp\"], \"disabled\": false}}}\n",
			"{\"mcpServers\": {\"rea\": {\"env\": {\"REA_SANDBOX_DRIVER\": \"oci\"}, \"command\": \"/opt/rea/rea\", \"args\": [\n  \"mcp\"\n], \"disabled\": false}}}\n"},
		"an entry of another kind is replaced": {"vscode", "{\n  \"servers\": {\n    \"rea\": {\"type\": \"http\", \"url\": \"https://example.com\"}\n  }\n}",
			"{\n  \"servers\": {\n    \"rea\": {\n      \"type\": \"stdio\",\n      \"command\": \"/opt/rea/rea\",\n      \"args\": [\n        \"mcp\"\n      ]\n    }\n  }\n}"},
		"line ends of another system": {"cursor", "{\r\n  \"a\": 1\r\n}\r\n",
			"{\r\n  \"a\": 1,\r\n  \"mcpServers\": {\r\n    \"rea\": {\r\n      \"command\": \"/opt/rea/rea\",\r\n      \"args\": [\r\n        \"mcp\"\r\n      ]\r\n    }\r\n  }\r\n}\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			got := planned(t, c.client, c.before, true)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// What was added goes away without a trace where the object that it went into was there before.
func TestJSONRoundTrip(t *testing.T) {
	for name, c := range map[string]struct{ client, text string }{
		"pretty":                 {"cursor", "{\n  \"mcpServers\": {\n    \"a\": {}\n  }\n}\n"},
		"one line":               {"cursor", `{"x": [1, 2], "mcpServers": {"a": {}}}`},
		"trailing comma":         {"vscode", "{\n\t\"servers\": {\n\t\t\"a\": {},\n\t},\n}\n"},
		"comment behind":         {"vscode", "{\n\t\"servers\": {\n\t\t\"a\": {} // , \" {\n\t}\n}\n"},
		"comment behind a comma": {"vscode", "{\n\t\"servers\": {\n\t\t\"a\": {}, // x\n\t\t// y\n\t}\n}\n"},
		"empty, two lines":       {"cursor", "{\n  \"mcpServers\": {\n  }\n}\n"},
		"byte order mark":        {"vscode", "\uFEFF{\n  \"servers\": {\n    \"a\": {}\n  }\n}\n"},
	} {
		t.Run(name, func(t *testing.T) {
			with := planned(t, c.client, c.text, true)
			if with == c.text {
				t.Fatal("nothing was added")
			}
			if diff := cmp.Diff(c.text, planned(t, c.client, with, false)); diff != "" {
				t.Errorf("(-before +after):\n%s\nbetween:\n%s", diff, with)
			}
		})
	}
}

func TestJSONRemovals(t *testing.T) {
	for name, c := range map[string]struct{ client, before, want string }{
		"first":                  {"cursor", "{\"mcpServers\": {\"rea\": {}, \"b\": 1}}", "{\"mcpServers\": { \"b\": 1}}"},
		"between":                {"cursor", "{\"mcpServers\": {\"a\": 0, \"rea\": {}, \"b\": 1}}", "{\"mcpServers\": {\"a\": 0, \"b\": 1}}"},
		"last":                   {"cursor", "{\"mcpServers\": {\"a\": 0, \"rea\": {}}}", "{\"mcpServers\": {\"a\": 0}}"},
		"only":                   {"cursor", "{\"mcpServers\": {\"rea\": {}}, \"x\": \"rea\"}", "{\"mcpServers\": {}, \"x\": \"rea\"}"},
		"comments of others":     {"vscode", "{\"servers\": {\n  \"a\": 0, // of a\n  // of rea\n  \"rea\": {}, // too\n  \"b\": 1\n}}", "{\"servers\": {\n  \"a\": 0, // of a\n  // of rea // too\n  \"b\": 1\n}}"},
		"last behind a comment":  {"vscode", "{\"servers\": {\n  \"a\": 0, // of a\n  \"rea\": {}\n}}", "{\"servers\": {\n  \"a\": 0 // of a\n}}"},
		"a name that is escaped": {"cursor", "{\"mcpServers\": {\"\\u0072ea\": {}, \"b\": 1}}", "{\"mcpServers\": { \"b\": 1}}"},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, planned(t, c.client, c.before, false)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestJSONRefusals(t *testing.T) {
	for name, c := range map[string]struct{ client, text string }{
		"cut":                      {"cursor", `{"mcpServers": {`},
		"comment where none is":    {"cursor", "{} // x"},
		"trailing comma":           {"claude-code", `{"a": 1,}`},
		"the same name twice":      {"cursor", `{"mcpServers": {}, "mcpServers": {}}`},
		"two documents":            {"cursor", `{} {}`},
		"a list":                   {"cursor", `[]`},
		"servers are a list":       {"cursor", `{"mcpServers": []}`},
		"servers are null":         {"cursor", `{"mcpServers": null}`},
		"not UTF-8":                {"cursor", "{\"a\": \"\xff\"}"},
		"a comment without an end": {"vscode", "{} /* "},
		"commas alone":             {"vscode", "{,}x"},
		"too deep":                 {"cursor", strings.Repeat(`{"a":`, 20000) + "1" + strings.Repeat("}", 20000)},
	} {
		t.Run(name, func(t *testing.T) {
			u := home(t)
			put(t, u, c.client, c.text)
			for _, r := range Inspect(u, program) {
				if r.Client == c.client && (r.State != Invalid || r.Reason == "") {
					t.Errorf("%+v, want it to be invalid", r)
				}
			}
			if p, err := PlanSetup(u, program, []string{c.client}); err == nil {
				t.Errorf("planned %q", p.Changes[0].text)
			}
		})
	}
}
