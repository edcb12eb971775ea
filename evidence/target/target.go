// Package target says what identifies the bytes of a target, so that the core, which may only hash them, and the
// worker, which reads them, can compare what they saw.
//
// A file's digest is the SHA-256 of its bytes. A tree's digest is the SHA-256 over one line per entry, in walk order
// (names sorted bytewise in each directory, a directory before its content): see Tree. Package target must not
// interpret content.
package target
