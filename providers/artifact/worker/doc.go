// Package worker is the container side of the artifact provider: it reads what stands in a target and feeds the
// artifact graph.
//
// One walk serves both operations. A reader (one file for each format, listed in registry.go) names the members of a
// container; the walk reads their bytes through the guards, recognises containers among them and goes into those.
// Nothing that a target says is believed before it is checked against the bytes: sizes, digests and counts are
// observed, and each disagreement is a limitation at its place while the siblings go on.
//
// Package worker runs inside the container only. It must not be imported by the core, follow a link of the target, or
// use a name from a target as a path.
package worker
