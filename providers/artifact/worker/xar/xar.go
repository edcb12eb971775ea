// Package xar reads the table of contents of xar archives (installer packages of macOS among them) as an observer: which
// files it names, and where in the heap their bytes lie.
//
// The table is XML. It is read as a stream of tokens, with a bound on its size and on its depth; what it says is not
// believed here. Package xar must not decode files.
package xar

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/klauspost/compress/zlib"
)

const (
	magic    = "xar!"
	headSize = 28
	// maxTable bounds the table: a million files of a few hundred bytes of XML would be larger, and so far none is.
	maxTable = 128 << 20
	// maxDepth bounds elements inside elements; a directory in a directory is one level.
	maxDepth = 256
	// maxText bounds the text of one element.
	maxText = 8 << 10
	none    = -1
)

// ErrFormat says that a file is no xar archive, or that its table is broken.
var ErrFormat = errors.New("not a xar archive")

// Checksum is a digest that the table declares.
type Checksum struct {
	Style string // sha1, sha256, sha512 or md5, in lower case
	Hex   string
}

// File is one file of the table.
type File struct {
	Name   []byte
	Parent int    // index of the directory that it stands in, -1 for none
	ID     string // what hard links call it
	Type   string // file, directory, symlink, hardlink, …
	Of     string // ID of the file that a hard link links to
	Link   []byte // target of a symbolic link
	Mode   uint32 // permission bits

	HasData  bool
	Offset   int64 // in the heap
	Length   int64 // in the heap
	Size     int64 // unpacked, -1 where that is not said
	Encoding string
	Sum      Checksum // of the unpacked bytes
}

// Archive is an archive whose table was read.
type Archive struct {
	Files []File
	Heap  int64 // first byte of the heap
	// Broken says why the table could not be read to its end, nil where it could.
	Broken error
}

// Open reads the table of a file of the given size.
func Open(r io.ReaderAt, size int64) (*Archive, error) {
	var h [headSize]byte
	if n, err := r.ReadAt(h[:], 0); n < headSize {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	be := binary.BigEndian
	head, packed := int64(be.Uint16(h[4:])), be.Uint64(h[8:])
	switch {
	case string(h[:4]) != magic || head < headSize:
		return nil, ErrFormat
	case head > size || packed > uint64(size-head):
		return nil, fmt.Errorf("its table of %d bytes reaches past the end of the file: %w", packed, io.ErrUnexpectedEOF)
	}
	a := &Archive{Heap: head + int64(packed)}
	z, err := zlib.NewReader(io.NewSectionReader(r, head, int64(packed)))
	if err != nil {
		return nil, fmt.Errorf("%w: its table is not compressed as it should be: %w", ErrFormat, err)
	}
	defer z.Close()
	bounded := &io.LimitedReader{R: z, N: maxTable}
	a.Broken = a.table(bounded)
	if bounded.N == 0 {
		a.Broken = fmt.Errorf("its table has more than %d bytes", maxTable)
	}
	return a, nil
}

// table reads elements. Each is known by its path below the file that it stands in.
func (a *Archive) table(r io.Reader) error {
	d := xml.NewDecoder(r)
	t := &reading{a: a, file: none}
	for {
		token, err := d.Token()
		switch {
		case err == io.EOF && len(t.open) == 0 && t.some:
			return nil
		case err == io.EOF:
			return io.ErrUnexpectedEOF
		case err != nil:
			return fmt.Errorf("its table is broken at byte %d: %w", d.InputOffset(), err)
		}
		switch e := token.(type) {
		case xml.StartElement:
			if len(t.open) == maxDepth {
				return fmt.Errorf("its table is deeper than %d elements", maxDepth)
			}
			t.start(e)
		case xml.EndElement:
			t.end()
		case xml.CharData:
			if len(t.text)+len(e) <= maxText {
				t.text = append(t.text, e...)
			}
		}
	}
}

// reading is where the table is being read.
type reading struct {
	a    *Archive
	open []element
	text []byte
	file int // innermost open one
	some bool
}

type element struct {
	name   string
	file   int // that encloses it
	base64 bool
}

func (t *reading) start(e xml.StartElement) {
	t.some = true
	t.text = t.text[:0]
	t.open = append(t.open, element{name: e.Name.Local, file: t.file})
	attribute := func(name string) string {
		for _, a := range e.Attr {
			if a.Name.Local == name {
				return strings.Clone(a.Value)
			}
		}
		return ""
	}
	if e.Name.Local == "file" && (t.file != none || t.below("xar", "toc")) {
		t.a.Files = append(t.a.Files, File{Parent: t.file, ID: attribute("id"), Size: none})
		t.file = len(t.a.Files) - 1
		return
	}
	if t.file == none {
		return
	}
	f := &t.a.Files[t.file]
	switch t.path() {
	case "name":
		t.open[len(t.open)-1].base64 = attribute("enctype") == "base64"
	case "type":
		f.Of = attribute("link")
	case "data":
		f.HasData = true
	case "data/encoding":
		f.Encoding = attribute("style")
	case "data/extracted-checksum":
		f.Sum.Style = strings.ToLower(attribute("style"))
	}
}

// below reports whether the element just opened stands in exactly these.
func (t *reading) below(names ...string) bool {
	if len(t.open) != len(names)+1 {
		return false
	}
	for i, n := range names {
		if t.open[i].name != n {
			return false
		}
	}
	return true
}

// path is that of the innermost open element below its file, "" where it is deeper than any that counts.
func (t *reading) path() string {
	const deepest = 2
	last := len(t.open) - 1
	var names []string
	for i := last; i > last-deepest && i >= 0; i-- {
		if t.open[i].name == "file" {
			break
		}
		names = append([]string{t.open[i].name}, names...)
	}
	if i := last - len(names); i < 0 || t.open[i].name != "file" {
		return ""
	}
	return strings.Join(names, "/")
}

// end takes the text of an element that closes.
func (t *reading) end() {
	e := t.open[len(t.open)-1]
	if t.file != none {
		t.value(&t.a.Files[t.file], e)
	}
	t.file = e.file
	t.open = t.open[:len(t.open)-1]
	t.text = t.text[:0]
}

func (t *reading) value(f *File, e element) {
	switch t.path() {
	case "name":
		f.Name = bytes.Clone(t.text)
		if e.base64 {
			if b, err := base64.StdEncoding.DecodeString(string(bytes.TrimSpace(t.text))); err == nil {
				f.Name = b
			}
		}
	case "type":
		f.Type = string(bytes.TrimSpace(t.text))
	case "link":
		f.Link = bytes.Clone(t.text)
	case "mode":
		if n, err := strconv.ParseUint(string(bytes.TrimSpace(t.text)), 8, 16); err == nil {
			f.Mode = uint32(n)
		}
	case "data/offset":
		f.Offset = t.number()
	case "data/length":
		f.Length = t.number()
	case "data/size":
		f.Size = t.number()
	case "data/extracted-checksum":
		f.Sum.Hex = strings.ToLower(string(bytes.TrimSpace(t.text)))
	}
}

// number is the text as a size; what is none is past the end of every file.
func (t *reading) number() int64 {
	n, err := strconv.ParseUint(string(bytes.TrimSpace(t.text)), 10, 62)
	if err != nil {
		return 1 << 62
	}
	return int64(n)
}
