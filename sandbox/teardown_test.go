package sandbox

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"rea/evidence/fault"
	"rea/sandbox/journal"
)

// What is whose is written down beside each entry.
func TestRunsOf(t *testing.T) {
	mine, other := map[string]string{DriverKey: "mine"}, map[string]string{DriverKey: "other"}
	var got [][]uint64
	for _, run := range runsOf("mine", []journal.Entry{
		{Seq: 1, Run: "a", Kind: KindRunDirectory, Detail: mine}, {Seq: 2, Run: "b", Kind: KindRunDirectory, Detail: other},
		{Seq: 3, Run: "a", Kind: KindContainer, Detail: mine},    // with 1: a whole run of ours
		{Seq: 4, Run: "b", Kind: KindCgroup, Detail: other},      // with 2: somebody else's
		{Seq: 5, Run: "c", Kind: KindRunDirectory, Detail: mine}, // all else of it is gone
		{Seq: 6, Run: "d", Kind: KindContainer},                  // nobody's mark
		{Seq: 7, Kind: "staging"},                                // no run's
	}) {
		var list []uint64
		for _, e := range run {
			list = append(list, e.Seq)
		}
		got = append(got, list)
	}
	if diff := cmp.Diff([][]uint64{{1, 3}, {5}}, got); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
}

func TestTeardown(t *testing.T) {
	entries := []journal.Entry{{Seq: 1, Run: "a", Kind: KindRunDirectory, Name: "dir"}, {Seq: 2, Run: "a", Kind: KindCgroup, Name: "group"},
		{Seq: 3, Run: "a", Kind: KindEvidence, Name: "volume"}}
	for seq := range entries {
		entries[seq].Detail = map[string]string{DriverKey: "mine"}
	}
	busy := errors.New("busy")
	for _, tt := range []struct {
		name            string
		end, remove     error // of the end, and of the removal of the group
		removed, struck []string
		remains         []Resource
	}{
		{name: "all goes, the last made first", removed: []string{"volume", "group", "dir"}, struck: []string{"volume", "group", "dir"}},
		{name: "one remains", remove: busy, removed: []string{"volume", "group", "dir"}, struck: []string{"volume", "dir"},
			remains: []Resource{{KindCgroup, "group"}}},
		{name: "nothing is touched while it lives", end: busy,
			remains: []Resource{{KindRunDirectory, "dir"}, {KindCgroup, "group"}, {KindEvidence, "volume"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cancelled, cancel := context.WithCancel(context.Background())
			cancel()
			var removed, struck []string
			td := Teardown{Driver: "mine", Timeout: time.Minute, Action: "sweep",
				End: func(ctx context.Context, _ []journal.Entry) error { return errors.Join(tt.end, ctx.Err()) },
				Remove: func(_ context.Context, e journal.Entry) error {
					removed = append(removed, e.Name)
					if e.Kind == KindCgroup {
						return tt.remove
					}
					return nil
				},
				Gone: func(e journal.Entry) error { struck = append(struck, e.Name); return nil },
			}
			receipt, err := td.Run(cancelled, entries) // a teardown does not end with its caller
			if diff := cmp.Diff([][]string{tt.removed, tt.struck}, [][]string{removed, struck}); diff != "" {
				t.Errorf("removed and struck out (-want +got):\n%s", diff)
			}
			if len(receipt.Made) != 3 || !cmp.Equal(append([]Resource{}, tt.remains...), receipt.Remains) {
				t.Errorf("receipt %+v, want remains %+v", receipt, tt.remains)
			}
			var f *fault.Error
			if incomplete := errors.As(err, &f) && f.Code == fault.CleanupIncomplete; incomplete != (tt.remains != nil) {
				t.Errorf("error %v", err)
			}
			if _, err := td.Sweep(cancelled, entries); fault.From(err).Code != fault.Cancelled {
				t.Errorf("a cancelled sweep began with another run: %v", err)
			}
		})
	}
}

func TestInside(t *testing.T) {
	for path, want := range map[string]bool{"/s/runs/o/r": true, "/s/runs/o/r/x": true, "/s/runs/o": false, "/s/runs/o/../p": false, "/": false, "r": false, "/s/runs/other": false} {
		if got := Inside("/s/runs/o", path) == nil; got != want {
			t.Errorf("Inside(%q) is %v, want %v", path, got, want)
		}
	}
}
