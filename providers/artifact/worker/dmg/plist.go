package dmg

import (
	"bytes"
	"encoding/base64"
	"encoding/xml"
	"fmt"
	"io"
)

// listed is a partition as the property list has it.
type listed struct {
	name []byte
	data []byte
}

// readList finds the partitions in the property list: the dictionaries of the array blkx in the dictionary resource-fork.
// Everything else is passed over.
func readList(r io.Reader) ([]listed, error) {
	l := &lister{d: xml.NewDecoder(r)}
	l.d.Strict = false
	for {
		t, err := l.d.Token()
		if err == io.EOF {
			return l.found, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%w: its property list: %w", ErrFormat, err)
		}
		if err := l.token(t); err != nil {
			return nil, err
		}
	}
}

type lister struct {
	d     *xml.Decoder
	found []listed
	path  []string // keys of the open dictionaries and arrays
	key   string   // the last one read
	text  bytes.Buffer
	own   listed
}

const maxNesting = 32

func (l *lister) token(t xml.Token) error {
	switch t := t.(type) {
	case xml.StartElement:
		l.text.Reset()
		if t.Name.Local == "dict" || t.Name.Local == "array" {
			if len(l.path) == maxNesting {
				return fmt.Errorf("%w: its property list is nested more than %d deep", ErrFormat, maxNesting)
			}
			l.path = append(l.path, l.key)
			l.key = ""
			l.own = listed{}
		}
	case xml.CharData:
		l.text.Write(t)
	case xml.EndElement:
		return l.end(t.Name.Local)
	}
	return nil
}

func (l *lister) end(element string) error {
	switch element {
	case "dict", "array":
		if len(l.path) == 0 {
			return fmt.Errorf("%w: its property list", ErrFormat)
		}
		if element == "dict" && l.partition() && l.own.data != nil {
			l.found = append(l.found, l.own)
			l.own = listed{}
		}
		l.path = l.path[:len(l.path)-1]
		l.key = ""
	case "key":
		l.key = l.text.String()
	case "string":
		if l.partition() && l.key == "Name" {
			l.own.name = bytes.Clone(l.text.Bytes())
		}
	case "data":
		if l.partition() && l.key == "Data" {
			b, err := base64.StdEncoding.DecodeString(string(removeSpace(l.text.Bytes())))
			if err != nil {
				return fmt.Errorf("%w: the table of a partition: %w", ErrFormat, err)
			}
			l.own.data = b
		}
	}
	return nil
}

// partition reports whether the reader is right inside a dictionary of the array blkx.
func (l *lister) partition() bool {
	n := len(l.path)
	return n >= 3 && l.path[n-2] == "blkx" && l.path[n-3] == "resource-fork"
}

func removeSpace(b []byte) []byte {
	kept := b[:0]
	for _, c := range b {
		if c > ' ' {
			kept = append(kept, c)
		}
	}
	return kept
}
