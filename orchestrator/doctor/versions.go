package doctor

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// number is a release's version: its numbers, and for a candidate the number of the candidate.
type number struct {
	parts     [3]int
	candidate int // of "rc3"; 0 for the release itself
}

// versionPattern takes the numbers, and "rc" in the ways in which it is written: 1.0.0-rc93, 1.4.0-rc.3, 1.0.0~rc93.
// What distributions append (+ds1-1, -0ubuntu1) is theirs and not looked at.
var versionPattern = regexp.MustCompile(`^v?(\d+)\.(\d+)(?:\.(\d+))?(?:[-~.]?rc\.?(\d+))?`)

func parseVersion(text string) (n number, ok bool) {
	_, afterEpoch, cut := strings.Cut(text, ":")
	if cut {
		text = afterEpoch
	}
	m := versionPattern.FindStringSubmatch(text)
	if m == nil {
		return n, false
	}
	for i := range n.parts {
		n.parts[i], _ = strconv.Atoi(m[i+1]) // digits, or nothing: then 0
	}
	n.candidate, _ = strconv.Atoi(m[4])
	return n, true
}

// mustVersion is for versions in our own tables; a test parses them all.
func mustVersion(text string) number {
	n, ok := parseVersion(text)
	if !ok {
		panic("doctor: no version: " + text)
	}
	return n
}

func compareVersions(a, b number) int {
	if c := slices.Compare(a.parts[:], b.parts[:]); c != 0 {
		return c
	}
	rank := func(n number) int { // a candidate comes before its release
		if n.candidate == 0 {
			return 1 << 30
		}
		return n.candidate
	}
	return cmp.Compare(rank(a), rank(b))
}

// carries reports whether a release has a fix that came with these releases, one for each branch that got it: the
// branch of a release is its first two numbers, and every branch that began after the newest of them has it too.
func carries(v number, fixed []string) bool {
	newest := number{}
	for _, text := range fixed {
		f := mustVersion(text)
		if f.parts[0] == v.parts[0] && f.parts[1] == v.parts[1] {
			return compareVersions(v, f) >= 0
		}
		if compareVersions(f, newest) > 0 {
			newest = f
		}
	}
	return compareVersions(v, newest) > 0
}
