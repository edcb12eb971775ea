// Package asar reads the header of an ASAR archive (Electron's format): a Chromium pickle that holds a JSON tree of
// files, directories and links, followed by the packed bytes.
//
// Input is hostile: the header is read as a stream and never allocated by its claimed length, its depth is bounded,
// names are kept as bytes and may repeat. Package asar must not read members' bytes, nor decide what an odd entry
// means.
package asar

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

const (
	// HeadSize is the fixed part: pickle size (4), header size, payload size, string length; each u32 little-endian.
	HeadSize = 16
	// maxDepth bounds nested directories: a path of 4096 bytes, the longest that is kept, has no more components.
	maxDepth = 2048
	// readBuffer is how much of the header is read at once.
	readBuffer = 64 << 10
)

// ErrFormat says that a file is not an ASAR archive or that its header is broken.
var ErrFormat = errors.New("not a readable ASAR header")

// Head is the fixed part of the archive.
type Head struct {
	HeaderSize uint32 // of the header pickle, which begins at byte 8
	JSONLength uint32
}

// DataOffset is where packed bytes begin.
func (h Head) DataOffset() int64 { return 8 + int64(h.HeaderSize) }

// Looks reports whether the first bytes of a file are the head of an ASAR archive followed by a JSON object.
func Looks(b []byte) bool {
	if len(b) < HeadSize+1 {
		return false
	}
	h, ok := parse(b)
	return ok && h.HeaderSize >= 8 && uint64(h.JSONLength) <= uint64(h.HeaderSize)-8 && b[HeadSize] == '{'
}

// Claims reports whether the first bytes begin as an ASAR archive begins, consistent or not.
func Claims(b []byte) bool { return len(b) >= HeadSize && binary.LittleEndian.Uint32(b) == 4 }

func parse(b []byte) (Head, bool) {
	le := binary.LittleEndian
	h := Head{HeaderSize: le.Uint32(b[4:]), JSONLength: le.Uint32(b[12:])}
	return h, le.Uint32(b) == 4 && le.Uint32(b[8:]) == h.HeaderSize-4
}

// ReadHead reads and checks the fixed part against the file's size. Errors wrap ErrFormat and name both figures.
func ReadHead(r io.ReaderAt, size int64) (Head, error) {
	var b [HeadSize]byte
	if n, err := r.ReadAt(b[:], 0); n < len(b) {
		if err == io.EOF {
			return Head{}, fmt.Errorf("%w: the file has %d bytes", ErrFormat, size)
		}
		return Head{}, err
	}
	h, ok := parse(b[:])
	switch {
	case h.DataOffset() > size:
		return h, fmt.Errorf("%w: it claims a header of %d bytes and the file has %d", ErrFormat, h.HeaderSize, size)
	case !ok || h.HeaderSize < 8 || uint64(h.JSONLength) > uint64(h.HeaderSize)-8:
		return h, fmt.Errorf("%w: its pickle sizes contradict each other (header %d, string %d)", ErrFormat, h.HeaderSize, h.JSONLength)
	}
	return h, nil
}

// Kind is what an entry of the header is.
type Kind uint8

// The kinds.
const (
	File Kind = iota
	Directory
	Link
)

// Entry is one entry of the header.
type Entry struct {
	Names      [][]byte // components of its path, which may themselves hold slashes; valid until the next entry
	Kind       Kind
	Size       int64 // -1 where it is absent or not a whole number from 0 to 2^63-1
	Offset     int64 // of packed bytes behind DataOffset; -1 where it is absent or not such a number
	Unpacked   bool  // bytes lie in the companion directory
	Executable bool
	Target     []byte // of a link, as recorded
	Integrity  *Integrity
}

// Integrity is a declared digest that counts: algorithm SHA256, 64 hex digits.
type Integrity struct {
	SHA256    [32]byte
	BlockSize int64      // 0 where absent or not positive
	Blocks    [][32]byte // nil where absent or one of them is not a digest
}

// Walk reads the header's JSON and calls visit for every entry in order, a directory before its content. An error of
// visit ends the walk and is returned as it is; a broken header is an error that wraps ErrFormat, and the entries
// before it stand.
func Walk(r io.ReaderAt, h Head, visit func(*Entry) error) error {
	src := io.NewSectionReader(r, HeadSize, int64(h.JSONLength))
	w := &walker{
		dec:   jsontext.NewDecoder(bufio.NewReaderSize(src, readBuffer), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)),
		visit: visit,
	}
	err := w.run()
	var own visitError
	if errors.As(err, &own) {
		return own.error
	}
	if err != nil && !errors.Is(err, ErrFormat) {
		err = fmt.Errorf("%w: at byte %d of its JSON: %w", ErrFormat, w.dec.InputOffset(), err)
	}
	return err
}

// visitError carries an error of the caller's function through the walk unchanged.
type visitError struct{ error }

// walker reads the tree with a stack of its own: a frame for each object that is an entry.
type walker struct {
	dec   *jsontext.Decoder
	visit func(*Entry) error
	text  []byte // names of the stack's entries, one after another
	names [][]byte
	stack []frame
}

// frame is one entry whose object is being read. In its "files" object the frame reads names of children.
type frame struct {
	entry Entry
	end   int  // of the entry's name in the walker's text
	files bool // inside "files"
	isDir bool // "files" was seen, and the directory reported
}

func (w *walker) run() error {
	if err := w.open(); err != nil {
		return err
	}
	w.stack = []frame{{entry: Entry{Size: -1, Offset: -1}}}
	for len(w.stack) > 0 {
		top := &w.stack[len(w.stack)-1]
		end, name, err := w.key()
		if err != nil {
			return err
		}
		switch {
		case end && top.files:
			top.files = false
		case end:
			if err := w.leave(); err != nil {
				return err
			}
		case top.files:
			err = w.child(name)
		default:
			err = w.attribute(top, string(name))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// open reads the start of an object.
func (w *walker) open() error {
	t, err := w.dec.ReadToken()
	if err != nil {
		return err
	}
	if t.Kind() != '{' {
		return errors.New("an object was expected")
	}
	return nil
}

// key reads the next name of the current object, or its end.
func (w *walker) key() (end bool, name []byte, err error) {
	if w.dec.PeekKind() == '}' {
		_, err := w.dec.ReadToken()
		return true, nil, err
	}
	v, err := w.dec.ReadValue()
	if err != nil {
		return false, nil, err
	}
	return false, unquote(v), nil
}

// child begins an entry of the current directory.
func (w *walker) child(name []byte) error {
	if len(w.stack) > maxDepth {
		return fmt.Errorf("directories are nested deeper than %d", maxDepth)
	}
	w.text = append(w.text[:w.stack[len(w.stack)-1].end], name...)
	f := frame{entry: Entry{Size: -1, Offset: -1}, end: len(w.text)}
	if w.dec.PeekKind() != '{' {
		// Not an entry: reported as a file without any facts, so that the name is not lost.
		if err := w.dec.SkipValue(); err != nil {
			return err
		}
		w.stack = append(w.stack, f)
		return w.leave()
	}
	if err := w.open(); err != nil {
		return err
	}
	w.stack = append(w.stack, f)
	return nil
}

// leave ends the current entry: what had no "files" is a file or a link, and is reported now.
func (w *walker) leave() error {
	f := &w.stack[len(w.stack)-1]
	var err error
	if len(w.stack) > 1 && !f.isDir {
		err = w.report(f)
	}
	w.stack = w.stack[:len(w.stack)-1]
	return err
}

// report hands over the entry of f, which is on top of the stack.
func (w *walker) report(f *frame) error {
	w.names = w.names[:0]
	for i := 1; i < len(w.stack); i++ {
		start, end := w.stack[i-1].end, w.stack[i].end
		w.names = append(w.names, w.text[start:end:end])
	}
	f.entry.Names = w.names
	if err := w.visit(&f.entry); err != nil {
		return visitError{err}
	}
	return nil
}

// attribute reads one member of an entry's object.
func (w *walker) attribute(f *frame, name string) error {
	kind := w.dec.PeekKind()
	switch {
	case name == "files" && kind == '{':
		if err := w.open(); err != nil {
			return err
		}
		f.files = true
		if !f.isDir && len(w.stack) > 1 {
			f.entry.Kind = Directory
			if err := w.report(f); err != nil {
				return err
			}
		}
		f.isDir = true
		return nil
	case name == "integrity" && kind == '{':
		return w.integrity(&f.entry)
	case kind == '{' || kind == '[':
		return w.dec.SkipValue()
	}
	v, err := w.dec.ReadValue()
	if err != nil {
		return err
	}
	switch name {
	case "size":
		f.entry.Size = whole(string(v))
	case "offset":
		f.entry.Offset = whole(strings.Trim(string(v), `"`))
	case "unpacked":
		f.entry.Unpacked = kind == 't'
	case "executable":
		f.entry.Executable = kind == 't'
	case "link":
		if kind == '"' {
			f.entry.Kind, f.entry.Target = Link, unquote(v)
		}
	}
	return nil
}

// integrity reads an integrity object; what does not count leaves the entry without one.
func (w *walker) integrity(e *Entry) error {
	if err := w.open(); err != nil {
		return err
	}
	var algorithm, hash string
	var in Integrity
	for {
		end, name, err := w.key()
		if err != nil {
			return err
		}
		if end {
			break
		}
		kind := w.dec.PeekKind()
		if string(name) == "blocks" && kind == '[' {
			if in.Blocks, err = w.blocks(); err != nil {
				return err
			}
			continue
		}
		if kind == '{' || kind == '[' {
			if err := w.dec.SkipValue(); err != nil {
				return err
			}
			continue
		}
		v, err := w.dec.ReadValue()
		if err != nil {
			return err
		}
		switch string(name) {
		case "algorithm":
			algorithm = string(unquote(v))
		case "hash":
			hash = string(unquote(v))
		case "blockSize":
			in.BlockSize = max(0, whole(string(v)))
		}
	}
	if algorithm == "SHA256" && digest(&in.SHA256, hash) {
		e.Integrity = &in
	}
	return nil
}

// blocks reads an array of digests. One element that is none makes the whole list not count.
func (w *walker) blocks() ([][32]byte, error) {
	if _, err := w.dec.ReadToken(); err != nil {
		return nil, err
	}
	var list [][32]byte
	good := true
	for w.dec.PeekKind() != ']' {
		if k := w.dec.PeekKind(); k == '{' || k == '[' {
			good = false
			if err := w.dec.SkipValue(); err != nil {
				return nil, err
			}
			continue
		}
		v, err := w.dec.ReadValue()
		if err != nil {
			return nil, err
		}
		var d [32]byte
		if good = good && digest(&d, string(unquote(v))); good {
			list = append(list, d)
		}
	}
	if !good {
		list = nil
	}
	_, err := w.dec.ReadToken()
	return list, err
}

func digest(d *[32]byte, s string) bool {
	if len(s) != 2*len(d) {
		return false
	}
	_, err := hex.Decode(d[:], []byte(s))
	return err == nil
}

// whole parses a whole number from 0 to 2^63-1, written plainly or as JavaScript writes large ones; -1 for anything
// else.
func whole(s string) int64 {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil && n >= 0 {
		return n
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || f < 0 || f >= math.MaxInt64 || f != math.Trunc(f) {
		return -1
	}
	return int64(f)
}

// unquote gives the bytes of a JSON string: invalid UTF-8 stays as it is, and a lone surrogate becomes the three bytes
// that UTF-8 would give it, which are no valid UTF-8. What is not a string gives its own text.
func unquote(v []byte) []byte {
	if len(v) < 2 || v[0] != '"' {
		return append([]byte(nil), v...)
	}
	v = v[1 : len(v)-1]
	out := make([]byte, 0, len(v))
	for i := 0; i < len(v); {
		if v[i] != '\\' || i+1 == len(v) {
			out = append(out, v[i])
			i++
			continue
		}
		switch c := v[i+1]; c {
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			var n int
			out, n = appendEscape(out, v[i:])
			i += n
			continue
		default:
			out = append(out, c)
		}
		i += 2
	}
	return out
}

// appendEscape decodes one \uXXXX, or a surrogate pair of them, at the start of v and returns the bytes consumed.
func appendEscape(out, v []byte) ([]byte, int) {
	unit := func(b []byte) (rune, bool) {
		if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
			return 0, false
		}
		n, err := strconv.ParseUint(string(b[2:6]), 16, 32)
		return rune(n), err == nil
	}
	r, ok := unit(v)
	if !ok {
		return append(out, v[0]), 1
	}
	if r < 0xd800 || r > 0xdfff {
		return utf8.AppendRune(out, r), 6
	}
	if low, ok := unit(v[6:]); ok && r < 0xdc00 && low >= 0xdc00 && low <= 0xdfff {
		return utf8.AppendRune(out, (r-0xd800)<<10|(low-0xdc00)+0x10000), 12
	}
	return append(out, 0xe0|byte(r>>12), 0x80|byte(r>>6&0x3f), 0x80|byte(r&0x3f)), 6
}
