package clients

import (
	"bytes"
	"context"
	"errors"
	"reflect"
	"time"
	"unicode/utf8"

	"rea/evidence/fault"
)

// Action is what is done to a client's file.
type Action string

// The actions.
const (
	Add     Action = "add"     // a new entry
	Update  Action = "update"  // command and arguments of an entry that is there; its other members stay
	Replace Action = "replace" // an entry that cannot be used
	Remove  Action = "remove"
	None    Action = "none" // nothing to do
	Skip    Action = "skip" // cannot be done; Error says why
)

// Change is what is planned for one client, and what became of it.
type Change struct {
	Client  string            `json:"client"`
	Name    string            `json:"display_name"`
	Path    string            `json:"path"`
	Action  Action            `json:"action"`
	Before  []string          `json:"before"`  // the vector that is registered now, empty for none
	After   []string          `json:"after"`   // the vector afterwards, empty for none
	Applied bool              `json:"applied"` // it was done, and read back
	Backup  string            `json:"backup"`  // the file as it was before, "" where there was none or nothing was done
	Error   *fault.Projection `json:"error"`   // why it cannot be, or was not, done

	client Client
	file   snapshot
	text   []byte // what the file will hold
	fault  *fault.Error
}

// Plan is a list of changes. Nothing has happened yet.
type Plan struct{ Changes []Change }

// PlanSetup plans the registration of a command in the clients that are named, or in all that are there. A client that
// was named and cannot be edited is an error; one that was found is skipped, with its error in the plan.
func PlanSetup(u User, command, ids []string) (Plan, error) {
	if !utf8.ValidString(command[0]) {
		return Plan{}, fault.New(fault.ConfigurationInvalid, "The path of this program is not valid UTF-8, so no client's file can name it.", "Move the program to another path.")
	}
	return plan(u, command, ids, func(c *Change, state State) error { return c.planSetup(state, command) })
}

// PlanRemoval plans the removal of rea's entry from the clients that are named, or from all. Nothing else is removed.
func PlanRemoval(u User, ids []string) (Plan, error) {
	return plan(u, nil, ids, func(c *Change, _ State) error { return c.planRemoval() })
}

func plan(u User, command, ids []string, edit func(*Change, State) error) (Plan, error) {
	p := Plan{Changes: []Change{}}
	named := map[string]bool{}
	for _, id := range ids {
		if _, ok := Find(id); !ok {
			return p, unknownClient(id)
		}
		named[id] = true
	}
	for _, client := range all {
		if len(ids) > 0 && !named[client.ID] {
			continue
		}
		r, file, err := client.inspect(u, judged(command))
		if len(ids) == 0 && !r.Installed {
			continue
		}
		c := Change{Client: r.Client, Name: r.Name, Path: r.Path, Action: None, Before: r.Command, After: r.Command, client: client, file: file}
		if err == nil {
			err = edit(&c, r.State)
		}
		if err != nil && len(ids) > 0 {
			return p, err
		}
		c.fail(err)
		p.Changes = append(p.Changes, c)
	}
	return p, nil
}

// judged is a vector to hold registrations against; a removal has none of its own.
func judged(command []string) []string {
	if command == nil {
		return Command("")
	}
	return command
}

// fail notes why a change cannot be, or was not, done.
func (c *Change) fail(err error) {
	if err == nil {
		return
	}
	c.fault = fault.From(err)
	projected := c.fault.Project()
	c.Action, c.After, c.Error = Skip, c.Before, &projected
}

// Fault is Error as a failure, nil for none.
func (c Change) Fault() *fault.Error { return c.fault }

func (c *Change) planSetup(state State, command []string) error {
	switch state {
	case Aligned:
		return nil
	case Missing:
		c.Action = Add
	case Stale:
		c.Action = Update
	case Invalid:
		c.Action = Replace
	}
	c.After = command
	d, err := c.client.parse(c.file)
	if err != nil {
		return err
	}
	if c.text = c.client.edited(d, c.Action, command); c.text == nil {
		return c.byHand()
	}
	return c.check()
}

func (c *Change) planRemoval() error {
	d, err := c.client.parse(c.file)
	if err != nil {
		return err
	}
	if _, found, err := d.entry(c.client); err != nil || !found {
		return err
	}
	c.Action, c.After = Remove, []string{}
	if d.toml != nil {
		c.text = d.toml.remove(c.client.Key, ServerName)
	} else {
		servers, _, err := d.json.child(d.json.root, c.client.Key)
		if err != nil {
			return err
		}
		c.text = d.json.remove(servers, ServerName)
	}
	return c.check()
}

// entry is what is written for rea into a JSON file.
type entry struct {
	Type    string   `json:"type,omitempty"`
	Command string   `json:"command"`
	Args    []string `json:"args"`
}

func (c Client) entry(command []string) entry {
	e := entry{Command: command[0], Args: command[1:]}
	if c.Typed {
		e.Type = "stdio"
	}
	return e
}

// edited is the document with the entry, nil where it is written in a form that is not edited.
func (c Client) edited(d document, action Action, command []string) []byte {
	if d.toml != nil {
		return c.editedTOML(d.toml, action, command)
	}
	j := d.json
	if j.root.end == 0 {
		empty, _ := parseJSON([]byte("{}\n"), false)
		return empty.insert(empty.root, c.Key, map[string]entry{ServerName: c.entry(command)})
	}
	servers, ok, err := j.child(j.root, c.Key)
	switch {
	case err != nil:
		return nil
	case !ok:
		return j.insert(j.root, c.Key, map[string]entry{ServerName: c.entry(command)})
	case action != Update:
		return j.set(servers, ServerName, c.entry(command))
	}
	text := j.text
	for _, field := range []struct {
		name  string
		value any
	}{{"command", command[0]}, {"args", command[1:]}} {
		// Each edit moves what stands behind it, so the document is read again.
		if j, err = parseJSON(text, c.Comments); err != nil {
			return nil
		}
		servers, _, err := j.child(j.root, c.Key)
		if err != nil {
			return nil
		}
		old, _, err := j.child(servers, ServerName)
		if err != nil {
			return nil
		}
		text = j.set(old, field.name, field.value)
	}
	return text
}

func (c Client) editedTOML(d *tomlText, action Action, command []string) []byte {
	switch action {
	case Update:
		text, ok := d.update(c.Key, ServerName, command)
		if !ok {
			return nil
		}
		return text
	case Replace:
		without, err := parseTOML(d.remove(c.Key, ServerName))
		if err != nil {
			return nil
		}
		d = without
	}
	return d.insert(c.Key, ServerName, command)
}

// check holds the planned text against the file: our entry is as it should be, and nothing else says anything else.
func (c *Change) check() error {
	if err := c.file.editable(); err != nil {
		return err
	}
	before, err := c.client.parse(c.file)
	if err != nil {
		return err
	}
	after, err := c.client.parse(snapshot{path: c.Path, text: c.text})
	if err != nil || !sameRest(before, after, c.client.Key) || !c.asPlanned(after) {
		return c.byHand()
	}
	return nil
}

func sameRest(before, after document, key string) bool {
	if before.toml != nil {
		return reflect.DeepEqual(before.toml.others(key, ServerName), after.toml.others(key, ServerName))
	}
	return sameOthers(before.json, after.json, key, ServerName)
}

// asPlanned reports whether a document has the entry that is planned, or none where none is.
func (c *Change) asPlanned(d document) bool {
	if len(c.After) == 0 {
		_, found, err := d.entry(c.client)
		return err == nil && !found
	}
	var r Registration
	err := r.read(c.client, snapshot{path: c.Path, text: c.text}, c.After)
	return err == nil && r.State == Aligned && reflect.DeepEqual(r.Command, c.After)
}

// byHand is the failure of a file whose form is left to its author.
func (c *Change) byHand() error {
	action := "Register it by hand: the command is " + c.client.describe(c.After) + "."
	if len(c.After) == 0 {
		action = "Remove the entry " + ServerName + " of " + c.client.Key + " by hand."
	}
	return unusable(c.Path, "is written in a form that is not edited automatically", action)
}

func (c Client) describe(command []string) string {
	return tomlString(clean(command[0])) + " with the argument " + tomlString(command[1])
}

// Apply carries out the plan, one client after the other, and reads each file back. What fails is noted in its change,
// with nothing written there; the rest goes on. When ctx ends, no further file is touched.
func (p Plan) Apply(ctx context.Context, now func() time.Time) []Change {
	out := append([]Change{}, p.Changes...)
	for i := range out {
		c := &out[i]
		if c.Action == None || c.Action == Skip {
			continue
		}
		if ctx.Err() != nil {
			c.fail(context.Cause(ctx))
			continue
		}
		if err := c.apply(now()); err != nil {
			c.fail(err)
		}
	}
	return out
}

func (c *Change) apply(now time.Time) error {
	backup, err := c.file.replace(c.text, now)
	c.Backup = backup
	if err != nil {
		return err
	}
	read, err := load(c.Path, c.client.Format.limit())
	if err == nil && !bytes.Equal(read.text, c.text) {
		err = errors.New("the file holds something else")
	}
	if err != nil {
		return fault.New(fault.ExecutionFailure, clean(c.Path)+" could not be read back as it was written.",
			"Look at the file; its backup, if there is one, stands beside it.").With("path", clean(c.Path)).Because(err)
	}
	c.Applied = true
	return nil
}
