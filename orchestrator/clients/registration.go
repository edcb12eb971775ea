package clients

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/pelletier/go-toml/v2"

	"rea/evidence/fault"
)

// State says how a registration stands to the running program.
type State string

// The states.
const (
	Aligned State = "aligned" // starts the running program as a server
	Stale   State = "stale"   // starts something else
	Missing State = "missing" // not registered
	Invalid State = "invalid" // the file, or the entry in it, cannot be used
)

// Registration is what a client knows of rea.
type Registration struct {
	Client    string   `json:"client"`
	Name      string   `json:"display_name"`
	Path      string   `json:"path"` // of the client's file
	Format    Format   `json:"format"`
	Installed bool     `json:"installed"` // the client's directory is there
	State     State    `json:"state"`
	Command   []string `json:"command"` // the vector that the client starts, empty where none is registered
	Reason    string   `json:"reason"`  // why it is stale or invalid, "" otherwise

	env map[string]string // values may be secrets: it goes to a server that is started, and is never shown
}

// Env is the environment that the client adds for the server, as NAME=VALUE. It may hold secrets.
func (r Registration) Env() []string {
	var out []string
	for k, v := range r.env {
		out = append(out, k+"="+v)
	}
	slices.Sort(out)
	return out
}

// Inspect reads the registrations of every client, and holds each against the command that the running program would
// register. It changes nothing and does not fail: what cannot be read is invalid, with the reason.
func Inspect(u User, command []string) []Registration {
	out := make([]Registration, len(all))
	for i, c := range all {
		out[i], _, _ = c.inspect(u, command)
	}
	return out
}

// InspectOne is Inspect for one client.
func InspectOne(u User, command []string, id string) (Registration, error) {
	c, ok := Find(id)
	if !ok {
		return Registration{}, unknownClient(id)
	}
	r, _, _ := c.inspect(u, command) // what is wrong with the file is in r
	return r, nil
}

// document is a client's file, read: one of the two is set.
type document struct {
	json *jsonText
	toml *tomlText
}

// inspect reads one client's file. Its error is why the file, and not only the entry in it, is invalid.
func (c Client) inspect(u User, command []string) (Registration, snapshot, error) {
	r := Registration{Client: c.ID, Name: c.Name, Path: c.Path(u), Format: c.Format, State: Missing, Command: []string{}}
	info, err := os.Stat(c.dir(u))
	r.Installed = err == nil && info.IsDir()
	s, err := load(r.Path, c.Format.limit())
	if err == nil && s.info != nil {
		r.Installed = true
		err = r.read(c, s, command)
	}
	if err != nil {
		r.State, r.Reason = Invalid, fault.From(err).Message
	}
	return r, s, err
}

// read finds the entry. Its error is one of the document.
func (r *Registration) read(c Client, s snapshot, command []string) error {
	d, err := c.parse(s)
	if err != nil {
		return err
	}
	raw, found, err := d.entry(c)
	if err != nil || !found {
		return err
	}
	var e struct {
		Type    *string           `json:"type"`
		Command *string           `json:"command"`
		Args    []string          `json:"args"`
		Env     map[string]string `json:"env"`
	}
	switch err := json.Unmarshal(raw, &e); {
	case err != nil:
		r.State, r.Reason = Invalid, "The entry "+ServerName+" is not of the form that the client starts servers from."
	case e.Type != nil && *e.Type != "stdio":
		r.State, r.Reason = Invalid, "The entry "+ServerName+" is not of a server that the client starts."
	case e.Command == nil || *e.Command == "":
		r.State, r.Reason = Invalid, "The entry "+ServerName+" names no command."
	default:
		r.Command, r.env = append([]string{*e.Command}, e.Args...), e.Env
		r.State, r.Reason = judge(r.Command, command)
	}
	return nil
}

// parse reads a document; its error tells where it is broken and nothing of what it holds.
func (c Client) parse(s snapshot) (document, error) {
	var d document
	var err error
	if c.Format == TOML {
		d.toml, err = parseTOML(s.text)
	} else {
		d.json, err = parseJSON(s.text, c.Comments)
	}
	if err != nil {
		return d, unusable(s.path, "is not valid "+strings.ToUpper(string(c.Format))+atLine(err, s.text), "Correct the file in an editor, and repeat the command.").Because(err)
	}
	return d, nil
}

// atLine tells the line of a syntax error, where the reader knows it. What stands there may be a secret and is not told.
func atLine(err error, text []byte) string {
	var j *jsontext.SyntacticError
	var t *toml.DecodeError
	line := 0
	switch {
	case errors.As(err, &j):
		line = 1 + bytes.Count(text[:min(int(j.ByteOffset), len(text))], []byte("\n"))
	case errors.As(err, &t):
		line, _ = t.Position()
	}
	if line == 0 {
		return ""
	}
	return fmt.Sprintf(" (line %d)", line)
}

// entry is the entry of rea as JSON.
func (d document) entry(c Client) (raw []byte, found bool, err error) {
	if d.toml != nil {
		value, ok := d.toml.entry(c.Key, ServerName)
		if !ok {
			return nil, false, nil
		}
		if raw, err = json.Marshal(value); err != nil {
			return []byte("false"), true, nil // infinity and the like: no entry has them
		}
		return raw, true, nil
	}
	if d.json.root.end == 0 {
		return nil, false, nil
	}
	servers, ok, err := d.json.child(d.json.root, c.Key)
	if err != nil {
		return nil, false, fault.New(fault.ConfigurationInvalid, "The member "+c.Key+" of the file is not an object.",
			"Correct the file in an editor, and repeat the command.")
	}
	m, found := servers.member(ServerName)
	if !ok || !found {
		return nil, false, nil
	}
	return d.json.raw(m.value), true, nil
}

// serveArg is the command of rea that serves.
const serveArg = "mcp"

// Command is the vector that is registered for a program.
func Command(program string) []string { return []string{program, serveArg} }

// judge holds a registered vector against the one that the running program would register. Flags behind the command are
// its user's.
func judge(have, want []string) (State, string) {
	switch {
	case len(have) < 2 || have[1] != serveArg || len(have) > 2 && !strings.HasPrefix(have[2], "-"):
		return Stale, "The command does not start a server of rea."
	case have[0] == want[0]:
		return Aligned, ""
	}
	program, err := exec.LookPath(have[0])
	if err != nil {
		return Stale, "The program that it names cannot be started."
	}
	a, err := os.Stat(program)
	b, err2 := os.Stat(want[0])
	if err != nil || err2 != nil || !os.SameFile(a, b) {
		return Stale, "The program that it names is not the one that runs now."
	}
	return Aligned, ""
}
