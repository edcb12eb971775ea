package report

import (
	"errors"
	"testing"

	"rea/evidence/fault"
	"rea/providers/artifact"
)

// The rows restate the rule for exit codes: a named difference or contradiction is 1, else a named unknown or cut is
// 2, else 0; changed covers added, removed and moved, unknown covers truncated.
func TestPolicy(t *testing.T) {
	unchanged := artifact.Facts{Status: artifact.VerdictUnchanged, Summary: artifact.Summary{Unchanged: 3}}
	changed := artifact.Facts{Status: artifact.VerdictChanged, Summary: artifact.Summary{Changed: 1}}
	added := artifact.Facts{Status: artifact.VerdictChanged, Summary: artifact.Summary{Added: 1}}
	removed := artifact.Facts{Status: artifact.VerdictChanged, Summary: artifact.Summary{Removed: 1}}
	moved := artifact.Facts{Status: artifact.VerdictChanged, Summary: artifact.Summary{Added: 1, Removed: 1}, Moved: 1}
	contradiction := artifact.Facts{Status: artifact.VerdictContradiction, Summary: artifact.Summary{Contradiction: 1}}
	unknown := artifact.Facts{Status: artifact.VerdictUnknown, Summary: artifact.Summary{Unknown: 2}}
	unknownRows := artifact.Facts{Status: artifact.VerdictContradiction, Summary: artifact.Summary{Contradiction: 1, Unknown: 1}}
	truncated := artifact.Facts{Status: artifact.VerdictTruncated}
	for _, c := range []struct {
		policy string
		facts  artifact.Facts
		want   int
	}{
		{"", changed, 0}, {"", contradiction, 0},
		{"changed", unchanged, 0}, {"changed", changed, 1}, {"changed", added, 1}, {"changed", removed, 1}, {"changed", moved, 1},
		{"changed", unknown, 0}, {"changed", contradiction, 0},
		{"added", added, 1}, {"added", moved, 1}, {"added", changed, 0}, {"added", removed, 0},
		{"removed", removed, 1}, {"removed", moved, 1}, {"removed", added, 0},
		{"contradiction", contradiction, 1}, {"contradiction", changed, 0},
		{"unknown", unknown, 2}, {"unknown", truncated, 2}, {"unknown", unknownRows, 2}, {"unknown", changed, 0},
		{"truncated", truncated, 2}, {"truncated", unknown, 0},
		{"unknown,contradiction", unknownRows, 1}, {" changed , unknown ", unknown, 2}, {"unknown,changed", changed, 1},
	} {
		p, err := ParsePolicy(c.policy)
		if err != nil {
			t.Fatal(err)
		}
		found := map[Finding]bool{}
		facts{c.facts}.mark(found)
		if got := p.judge(found); got != c.want {
			t.Errorf("--fail-on %q of %+v: %d, want %d", c.policy, c.facts, got, c.want)
		}
	}
}

func TestPolicyRefusesWhatItDoesNotKnow(t *testing.T) {
	for _, text := range []string{"nonsense", "changed,", ",", "changed;unknown", "Changed", "moved"} {
		_, err := ParsePolicy(text)
		var f *fault.Error
		if !errors.As(err, &f) || f.Code != fault.InvalidRequest {
			t.Errorf("%q: %v", text, err)
		}
	}
}
