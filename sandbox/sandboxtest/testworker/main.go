// Command testworker is a worker whose conduct is written by a test: it stands in for analyses, and for what a hostile
// target could make of them. It shares the frame of the real worker and is never shipped.
//
// Its one operation, script of provider test, does the behaviours of its parameters one after the other:
//
//	{"behaviours":[{"do":"file","path":"a","bytes":4096},{"do":"tamper","path":"a"},{"do":"result","text":"{}"}]}
//
// The result is {"ok":true,"reports":[…]}, one report for each behaviour that gives one, unless a behaviour wrote the
// result itself. The table in actions names every behaviour. What a container lets a process do is the business of the
// probe beside this package; here is what a worker can do to the core.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/go-json-experiment/json"

	"rea/providers/worker"
)

// behaviour is one step of a script. Which members are meant depends on Do.
type behaviour struct {
	Do    string `json:"do"`
	Op    string `json:"op,omitzero"`
	Path  string `json:"path,omitzero"`
	Text  string `json:"text,omitzero"`
	Count int64  `json:"count,omitzero"`
	Bytes int64  `json:"bytes,omitzero"`
}

// report is what a behaviour found out. Its members are in the order of canonical JSON.
type report struct {
	Count int64  `json:"count"`
	Do    string `json:"do"`
	Text  string `json:"text"`
}

// step is the state that a script's behaviours share.
type step struct {
	behaviour
	call    *worker.Call
	process *worker.Process
	reports *[]report
	written *bool // a behaviour wrote the result
}

func (s step) report(count int64, text string) {
	*s.reports = append(*s.reports, report{count, s.Do, text})
}

// actions are the behaviours. Those that end the call return an error; those that never return say so.
var actions = map[string]func(context.Context, step) error{
	// Honest work.
	"result": writeResult, // append text to result.json
	"file":   writeFile,   // files/<path> of bytes bytes
	"wait":   wait,        // until the call is cancelled

	// Too much.
	"memory": eatMemory,  // touch bytes bytes and keep them
	"child":  eatInChild, // let a child touch bytes bytes; report what became of it
	"fork":   fork,       // start count processes that sleep; report how many, and the first error
	"fill":   fill,       // write until the volume is full; op bytes or inodes
	"stderr": stderr,     // bytes bytes to standard error
	"stdout": stdout,     // bytes bytes to what the container has as standard output, without a line's end
	"hang":   hang,       // for ever, deaf to cancellation
	"storm":  storm,      // count progress frames (0: without end), as fast as they go

	// Lies.
	"done":    done,    // send a done for the call with a made-up digest
	"hello":   hello,   // say hello again
	"tamper":  tamper,  // change a byte of files/<path>, which an earlier behaviour wrote
	"replace": replace, // put op (symlink, hardlink, setuid, sparse, missing) in place of files/<path>
	"litter":  litter,  // leave count files that no manifest names
	"swap":    swap,    // for ever, in the background: files/<path> is now a file, now a link

	// Ends.
	"exit":    exit,    // with code count, nothing sealed
	"panic":   panics,  // in the handler
	"orphan":  orphan,  // leave a grandchild that holds whatever channel it can get at
	"signals": signals, // a child sends every signal to PID 1; report how many it could send
}

func main() {
	if len(os.Args) > 2 && os.Args[1] == "child" {
		child(os.Args[2:])
		return
	}
	p, err := worker.Start(os.Args[1:], worker.Options{Version: "testworker"})
	if err != nil {
		fmt.Fprintln(os.Stderr, "testworker:", err)
		os.Exit(2)
	}
	script := func(ctx context.Context, c *worker.Call) error { return play(ctx, p, c) }
	os.Exit(p.Serve(worker.Providers{
		"selftest": worker.Selftest(),
		"test":     {"script": script},
	}))
}

func play(ctx context.Context, p *worker.Process, c *worker.Call) error {
	var params struct {
		Behaviours []behaviour `json:"behaviours"`
	}
	if err := json.Unmarshal(c.Params, &params, json.RejectUnknownMembers(true)); err != nil {
		return err
	}
	reports, written := []report{}, false
	for _, b := range params.Behaviours {
		act := actions[b.Do]
		if act == nil {
			return fmt.Errorf("no behaviour %q", b.Do)
		}
		if err := act(ctx, step{b, c, p, &reports, &written}); err != nil {
			return err
		}
	}
	if written {
		return nil
	}
	return errors.Join(json.MarshalWrite(c.Result(), map[string]any{"ok": true, "reports": reports}, json.Deterministic(true)), c.Result().Close())
}
