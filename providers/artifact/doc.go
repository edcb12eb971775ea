// Package artifact is the artifact graph: what stands in an archive, a directory or an application bundle, under
// which identities, and what differs between two of them.
//
// Both sides of the trust boundary use it. The worker feeds a Builder, which orders, links and identifies what the
// readers found and writes it as canonical JSON. The core checks that result as a stream, makes Evidence of it and
// compares two inventories; it never sees target bytes. Package artifact must not parse a target format, open a file
// or start anything: readers live in package worker below it, runs in package orchestrator/run.
//
// A symbolic link is an occurrence without content, so the contract's table would call every pair of links unknown and
// no tree that has one unchanged. What a link is, is where it leads; readers record that whole or say that they did not
// (see [LinkTarget]), and a comparison goes by it.
//
// Inventories may have a million entries, so nothing here holds one as a whole. The bounds in memory are those of
// [Builder], [CheckInventory] and [Compare].
package artifact
