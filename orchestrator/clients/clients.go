// Package clients knows where MCP clients keep the servers that they start, and what rea's registration there looks
// like: it reads registrations, says whether they start the running program, and plans and carries out their addition
// and removal.
//
// A client's file is the user's: it is read with a limit, edited in place so that every byte outside our own entry
// stays, checked before it replaces the old one, and replaced as a whole with a backup beside it. Package clients must
// not start a client or a server, and must not touch an entry of another server.
package clients

import (
	"path/filepath"
	"slices"
	"strings"

	"rea/evidence/fault"
)

// ServerName is the name under which rea is registered in every client.
const ServerName = "rea"

// Format is the syntax of a client's file.
type Format string

// The formats.
const (
	JSON Format = "json"
	TOML Format = "toml"
)

// Client is an MCP client that starts servers by itself.
type Client struct {
	ID       string // for --client
	Name     string // for people
	Format   Format
	Key      string // member of the file's root that holds the servers by name
	Comments bool   // the client reads comments and trailing commas in its JSON
	Typed    bool   // entries say by a member type that the server is started, and not reached over a network

	path string // place of the file
	mark string // place of a directory that is there where the client is; "" for the file's own
}

// all is the data of the package. A place begins with {home}, with {config}, which is where programs of that system
// keep their configuration, or with a variable and the place that stands in for it where the variable is not set.
var all = []Client{
	{ID: "claude-code", Name: "Claude Code", Format: JSON, Key: "mcpServers", Typed: true,
		path: "{CLAUDE_CONFIG_DIR|home}/.claude.json", mark: "{CLAUDE_CONFIG_DIR|home/.claude}"},
	{ID: "claude-desktop", Name: "Claude Desktop", Format: JSON, Key: "mcpServers",
		path: "{config}/Claude/claude_desktop_config.json"},
	{ID: "codex", Name: "Codex", Format: TOML, Key: "mcp_servers",
		path: "{CODEX_HOME|home/.codex}/config.toml"},
	{ID: "cursor", Name: "Cursor", Format: JSON, Key: "mcpServers",
		path: "{home}/.cursor/mcp.json"},
	{ID: "gemini-cli", Name: "Gemini CLI", Format: JSON, Key: "mcpServers", Comments: true,
		path: "{GEMINI_CLI_HOME|home}/.gemini/settings.json"},
	{ID: "windsurf", Name: "Windsurf", Format: JSON, Key: "mcpServers",
		path: "{home}/.codeium/windsurf/mcp_config.json"},
	{ID: "vscode", Name: "VS Code", Format: JSON, Key: "servers", Comments: true, Typed: true,
		path: "{config}/Code/User/mcp.json", mark: "{config}/Code"},
}

// All lists the clients, in the order in which they are shown. The caller does not change them.
func All() []Client { return all }

// IDs names the clients.
func IDs() []string {
	ids := make([]string, len(all))
	for i, c := range all {
		ids[i] = c.ID
	}
	return ids
}

// Find finds a client by its id.
func Find(id string) (Client, bool) {
	i := slices.IndexFunc(all, func(c Client) bool { return c.ID == id })
	if i < 0 {
		return Client{}, false
	}
	return all[i], true
}

// User says whose clients are looked at.
type User struct {
	OS     string // as runtime.GOOS
	Home   string // absolute
	Getenv func(string) string
}

// Path is the file that holds the client's servers.
func (c Client) Path(u User) string { return u.place(c.path) }

// dir is the directory whose presence says that the client is there.
func (c Client) dir(u User) string {
	if c.mark == "" {
		return filepath.Dir(c.Path(u))
	}
	return u.place(c.mark)
}

// place resolves a place.
func (u User) place(place string) string {
	base, rest, _ := strings.Cut(strings.TrimPrefix(place, "{"), "}")
	variable, usual, replaced := strings.Cut(base, "|")
	if !replaced {
		return filepath.Join(u.base(base), rest)
	}
	if dir := u.Getenv(variable); filepath.IsAbs(dir) {
		return filepath.Join(dir, rest)
	}
	name, below, _ := strings.Cut(usual, "/")
	return filepath.Join(u.base(name), below, rest)
}

// base is a directory of the user: the home, or where programs keep their configuration.
func (u User) base(name string) string {
	if name != "config" {
		return u.Home
	}
	variable, usual := "XDG_CONFIG_HOME", ".config"
	switch u.OS {
	case "darwin":
		variable, usual = "", filepath.Join("Library", "Application Support")
	case "windows":
		variable, usual = "APPDATA", filepath.Join("AppData", "Roaming")
	}
	if variable != "" {
		if dir := u.Getenv(variable); filepath.IsAbs(dir) {
			return dir
		}
	}
	return filepath.Join(u.Home, usual)
}

// unknownClient is the failure of an id that is not in the list.
func unknownClient(id string) *fault.Error {
	return fault.New(fault.InvalidRequest, "There is no client "+strings.ToValidUTF8(id, "\uFFFD")+".", "Name one of "+strings.Join(IDs(), ", ")+".").
		WithAll(fault.Details{"operation": "setup", "issues": []map[string]any{{"path": []string{"client"}, "reason": "invalid_value", "expected": IDs()}}})
}
