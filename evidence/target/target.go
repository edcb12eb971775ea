// Package target says what identifies the bytes of a target, so that the core, which may only hash them, and the
// worker, which reads them, can compare what they saw.
//
// A file's digest is the SHA-256 of its bytes. A tree's digest is the SHA-256 over one record per entry, in walk order
// (names sorted bytewise in each directory, a directory before its content): see Tree. Package target must not
// interpret content.
package target

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"strconv"
	"strings"
)

// Kind names an entry that is never opened: neither file, directory nor link, or out of reach.
type Kind string

// The kinds of special entries.
const (
	FIFO    Kind = "fifo"
	Socket  Kind = "socket"
	Block   Kind = "block-device"
	Char    Kind = "character-device"
	Unknown Kind = "unknown"
	TooLong Kind = "path-too-long" // a file or directory whose path exceeds MaxPath
)

// Tree is the streaming digest of a tree. Entries are added in walk order; paths are raw bytes relative to the root,
// slash-separated. Each entry becomes one record: a letter, its facts, and its path (and link target) as netstrings
// (length, colon, bytes), ended by a newline, so that no name can imitate another entry. The zero value is not usable:
// NewTree.
//
//	d 3:lib,
//	f 6 x 5891b5b5…be03 9:lib/a.txt,
//	l 4:link, 7:lib/a.t,
//	s fifo 4:pipe,
//	u 6:secret,
type Tree struct {
	h       hash.Hash
	line    []byte
	entries int64
}

// NewTree returns the digest of an empty tree.
func NewTree() *Tree { return &Tree{h: sha256.New()} }

// Dir adds a directory.
func (t *Tree) Dir(path []byte) {
	t.line = append(t.line[:0], 'd')
	t.end(path)
}

// File adds a regular file: its size in bytes, the SHA-256 of its content, and whether any execute bit is set.
func (t *Tree) File(path []byte, size int64, sum [sha256.Size]byte, exec bool) {
	t.line = append(t.line[:0], 'f', ' ')
	t.line = strconv.AppendInt(t.line, size, 10)
	if exec {
		t.line = append(t.line, " x "...)
	} else {
		t.line = append(t.line, " - "...)
	}
	t.line = hex.AppendEncode(t.line, sum[:])
	t.end(path)
}

// Link adds a symbolic link with its recorded target, which is never followed.
func (t *Tree) Link(path, target []byte) {
	t.line = append(t.line[:0], 'l')
	t.line = netstring(t.line, path)
	t.end(target)
}

// Special adds an entry that is never opened.
func (t *Tree) Special(path []byte, kind Kind) {
	t.line = append(t.line[:0], 's', ' ')
	t.line = append(t.line, kind...)
	t.end(path)
}

// Unreadable adds a file or directory whose content could not be read for lack of permission. What stands below such
// a directory is not part of the digest.
func (t *Tree) Unreadable(path []byte) {
	t.line = append(t.line[:0], 'u')
	t.end(path)
}

// Entries is the number of entries added.
func (t *Tree) Entries() int64 { return t.entries }

// Sum is the digest in hex of what was added so far.
func (t *Tree) Sum() string { return hex.EncodeToString(t.h.Sum(nil)) }

func (t *Tree) end(path []byte) {
	t.line = netstring(t.line, path)
	t.line = append(t.line, '\n')
	t.h.Write(t.line)
	t.entries++
}

func netstring(line, s []byte) []byte {
	line = append(line, ' ')
	line = strconv.AppendInt(line, int64(len(s)), 10)
	line = append(line, ':')
	line = append(line, s...)
	return append(line, ',')
}

// Escape renders a raw path as printable ASCII without loss: every byte below 0x21, above 0x7e, and the percent sign
// is written %XX. It is the form in which paths travel in a worker's manifest.
func Escape(path []byte) string {
	var b strings.Builder
	b.Grow(len(path))
	for _, c := range path {
		if c < 0x21 || c > 0x7e || c == '%' {
			const digits = "0123456789ABCDEF"
			b.WriteByte('%')
			b.WriteByte(digits[c>>4])
			b.WriteByte(digits[c&15])
			continue
		}
		b.WriteByte(c)
	}
	return b.String()
}
