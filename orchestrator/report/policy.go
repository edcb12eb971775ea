package report

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"rea/evidence/fault"
	"rea/orchestrator/session"
	"rea/providers/artifact"
	"rea/providers/versions"
)

// Finding is something that a policy can name.
type Finding string

// The findings that --fail-on takes.
const (
	Changed       Finding = "changed" // also added, removed and moved
	Added         Finding = "added"
	Removed       Finding = "removed"
	Contradiction Finding = "contradiction"
	Unknown       Finding = "unknown" // also truncated
	Truncated     Finding = "truncated"
)

var findings = []Finding{Changed, Added, Removed, Contradiction, Unknown, Truncated}

// Policy says which findings make a finished comparison count as failed. The empty policy never does.
type Policy []Finding

// ParsePolicy reads a comma-separated list of findings; spaces around items, order and repeats do not matter.
func ParsePolicy(list string) (Policy, error) {
	if list == "" {
		return nil, nil
	}
	var p Policy
	for item := range strings.SplitSeq(list, ",") {
		f := Finding(strings.TrimSpace(item))
		if !slices.Contains(findings, f) {
			return nil, fault.New(fault.InvalidRequest, fmt.Sprintf("--fail-on does not know %q.", string(f)),
				"Name findings out of changed, added, removed, contradiction, unknown and truncated, separated by commas.").WithAll(fault.Details{
				"operation": versions.Operation,
				"issues":    []map[string]any{{"path": []string{"fail_on"}, "reason": "invalid_value", "expected": "changed, added, removed, contradiction, unknown, truncated"}},
			})
		}
		p = append(p, f)
	}
	return p, nil
}

// ExitCode judges every comparison by its own status and entries: fault.ExitDifference for a named difference or
// contradiction, else fault.ExitUnknown for a named unknown or cut, else fault.ExitDone.
func (p Policy) ExitCode(ctx context.Context, v session.Versions) (int, error) {
	found := map[Finding]bool{}
	for _, c := range v.Comparisons {
		facts, err := factsOf(ctx, c)
		if err != nil {
			return fault.ExitNotDone, err
		}
		facts.mark(found)
	}
	return p.judge(found), nil
}

func (p Policy) judge(found map[Finding]bool) int {
	code := fault.ExitDone
	for _, f := range p {
		switch {
		case !found[f]:
		case f == Unknown || f == Truncated:
			code = max(code, fault.ExitUnknown)
		default:
			return fault.ExitDifference
		}
	}
	return code
}

// facts are what a policy needs of one comparison, whatever its family.
type facts struct{ artifact.Facts }

// factsOf reads the facts of a comparison. A later family of comparison adds its reading here.
func factsOf(ctx context.Context, c versions.Comparison) (facts, error) {
	if c.Family != versions.Artifact {
		return facts{}, fmt.Errorf("no facts are known of comparisons of family %q", c.Family)
	}
	f, err := artifact.ComparisonFacts(ctx, c.Evidence)
	return facts{f}, err
}

// mark notes what the facts amount to.
func (f facts) mark(found map[Finding]bool) {
	is := func(finding Finding, holds bool) { found[finding] = found[finding] || holds }
	s := f.Summary
	is(Added, s.Added > 0 || f.Status == artifact.VerdictAdded)
	is(Removed, s.Removed > 0 || f.Status == artifact.VerdictRemoved)
	is(Changed, s.Changed+s.Added+s.Removed+f.Moved > 0 || f.Status == artifact.VerdictChanged || found[Added] || found[Removed])
	is(Contradiction, s.Contradiction > 0 || f.Status == artifact.VerdictContradiction)
	is(Truncated, f.Status == artifact.VerdictTruncated)
	is(Unknown, s.Unknown > 0 || f.Status == artifact.VerdictUnknown || found[Truncated])
}
