package worker

import (
	"cmp"
	"slices"

	"rea/providers/artifact"
)

// outside digests the byte ranges that no extent covers: before the first one, between them and behind the last one. It
// sorts the extents, and returns how many begin inside another.
func (c *container) outside(used []extent) (overlaps int, err error) {
	slices.SortFunc(used, func(x, y extent) int { return cmp.Or(cmp.Compare(x.start, y.start), cmp.Compare(x.end, y.end)) })
	at := int64(0)
	role := artifact.RegionPrefix
	for _, u := range used {
		if u.start > at {
			if err := c.region(role, at, u.start); err != nil {
				return overlaps, err
			}
		}
		if u.start < at && at > 0 {
			overlaps++
		}
		at, role = max(at, u.end), artifact.RegionGap
	}
	return overlaps, c.region(artifact.RegionTail, at, c.src.size)
}
