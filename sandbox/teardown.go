package sandbox

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"rea/evidence/fault"
	"rea/sandbox/journal"
)

// DriverKey is the member of a journal entry's details that names the driver which made the resource.
const DriverKey = "driver"

// Teardown removes what a journal lists of runs, whether their owner lives or not. Its funcs are the driver's;
// all must be set.
type Teardown struct {
	Driver  string                                             // whose entries are swept
	Timeout time.Duration                                      // of one run: a removal that was begun is not cut off with its caller
	End     func(ctx context.Context, e []journal.Entry) error // ends every process of the run; nothing is removed while it fails
	Remove  func(ctx context.Context, e journal.Entry) error   // makes one resource not exist; what is not there is no error
	Gone    func(e journal.Entry) error                        // strikes an entry out
	Action  string                                             // what a person does about what remains
}

// Run ends a run and removes its resources from the last made to the first. What one failure leaves is only what it
// concerns. The error is cleanup_incomplete when something remains.
func (t Teardown) Run(ctx context.Context, entries []journal.Entry) (Receipt, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.Timeout)
	defer cancel()
	receipt := Receipt{Made: []Resource{}, Remains: []Resource{}}
	for _, e := range entries {
		receipt.Made = append(receipt.Made, Resource{Kind: e.Kind, Name: e.Name})
	}
	if err := t.End(ctx, entries); err != nil {
		receipt.Remains, receipt.Reason = slices.Clone(receipt.Made), err.Error()
		return receipt, t.incomplete(receipt)
	}
	for _, e := range slices.Backward(entries) {
		err := t.Remove(ctx, e)
		if err == nil {
			err = t.Gone(e)
		}
		if err != nil {
			receipt.Remains = append(receipt.Remains, Resource{Kind: e.Kind, Name: e.Name})
			receipt.Reason = fmt.Sprintf("%s %s: %v", e.Kind, e.Name, err)
		}
	}
	return receipt, t.incomplete(receipt)
}

// Sweep is Run for every run of the driver in a journal, with one receipt for all.
func (t Teardown) Sweep(ctx context.Context, entries []journal.Entry) (Receipt, error) {
	total := Receipt{Made: []Resource{}, Remains: []Resource{}}
	for _, run := range runsOf(t.Driver, entries) {
		if err := context.Cause(ctx); err != nil {
			return total, fault.From(err)
		}
		receipt, _ := t.Run(ctx, run) // what remains of all runs is told as one error
		total.Made = append(total.Made, receipt.Made...)
		total.Remains = append(total.Remains, receipt.Remains...)
		if receipt.Reason != "" {
			total.Reason = receipt.Reason
		}
	}
	return total, t.incomplete(total)
}

// runsOf groups a driver's entries by run. A run belongs to one driver, which marks all that it makes.
func runsOf(driver string, entries []journal.Entry) [][]journal.Entry {
	runs := map[string][]journal.Entry{}
	var order []string
	for _, e := range entries {
		if e.Detail[DriverKey] != driver {
			continue
		}
		if runs[e.Run] == nil {
			order = append(order, e.Run)
		}
		runs[e.Run] = append(runs[e.Run], e)
	}
	list := make([][]journal.Entry, len(order))
	for i, run := range order {
		list[i] = runs[run]
	}
	return list
}

// Inside refuses a path that does not lie below a directory: a journal's owner cannot have made it.
func Inside(dir, path string) error {
	rel, err := filepath.Rel(dir, path)
	if err != nil || rel == "." || !filepath.IsLocal(rel) {
		return errors.New("it does not lie in the owner's directory")
	}
	return nil
}

// incomplete is the error for a receipt with remains, nil for one without.
func (t Teardown) incomplete(r Receipt) error {
	if r.Complete() {
		return nil
	}
	var kinds []string
	for _, remains := range r.Remains {
		if !slices.Contains(kinds, remains.Kind) {
			kinds = append(kinds, remains.Kind)
		}
	}
	return fault.New(fault.CleanupIncomplete, "Resources of a sandbox could not be removed: "+strings.Join(kinds, ", ")+".", t.Action).
		WithAll(fault.Details{"cleanup": "incomplete", "resources": kinds, "cleanup_reason": r.Reason})
}
