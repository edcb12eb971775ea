package iso9660

import (
	"bytes"
	"encoding/binary"
)

// systemUse is what the system use fields of one record say.
type systemUse struct {
	m     *Image
	name  []byte
	named bool
	mode  uint32
	posix bool // it has a mode
	link  []byte
	slash bool  // the link's target goes on with a new component
	child int64 // block of a directory that was moved away, -1 for none
	moved bool  // the directory was moved here from elsewhere
	zf    bool  // its bytes are compressed (zisofs)

	taken int // bytes read
}

// read takes the fields of a record and of the areas that continue it.
func (s *systemUse) read(b []byte) {
	s.child = -1
	for range maxCE {
		next := s.fields(b)
		if next == nil {
			return
		}
		b = next
	}
}

// fields reads one area and gives the one that continues it, nil for none.
func (s *systemUse) fields(b []byte) (next []byte) {
	const head = 4
	for len(b) >= head {
		n := int(b[2])
		if n < head || n > len(b) {
			return next
		}
		f := b[:n]
		b = b[n:]
		switch string(f[:2]) {
		case "CE":
			next = s.continuation(f)
		case "ST":
			return next
		default:
			s.field(f)
		}
	}
	return next
}

func (s *systemUse) continuation(f []byte) []byte {
	if len(f) < 28 {
		return nil
	}
	le := binary.LittleEndian
	at := int64(le.Uint32(f[4:]))*s.m.block + int64(le.Uint32(f[12:]))
	n := int64(le.Uint32(f[20:]))
	if n == 0 || n > int64(maxSystem-s.taken) || at > s.m.size-n {
		return nil
	}
	b := make([]byte, n)
	if got, _ := s.m.r.ReadAt(b, at); int64(got) < n {
		return nil
	}
	s.taken += len(b)
	return b
}

func (s *systemUse) field(f []byte) {
	const small = 8
	le := binary.LittleEndian
	switch string(f[:2]) {
	case "PX":
		if len(f) >= small {
			s.mode, s.posix = le.Uint32(f[4:]), true
		}
	case "NM":
		if len(f) > 4 && f[4]&6 == 0 {
			s.name, s.named = append(s.name, f[5:]...), true
		}
	case "SL":
		if len(f) > 5 {
			s.target(f[5:])
		}
	case "CL":
		if len(f) >= small {
			s.child = int64(le.Uint32(f[4:]))
		}
	case "RE":
		s.moved = true
	case "ZF":
		s.zf = true
	}
}

// target adds the components of a link's target that one field has.
func (s *systemUse) target(b []byte) {
	const (
		more    = 1
		current = 2
		parent  = 4
		root    = 8
	)
	for len(b) >= 2 && len(s.link) <= maxPath {
		flags, n := b[0], int(b[1])
		if n > len(b)-2 {
			return
		}
		if s.slash && !bytes.HasSuffix(s.link, []byte("/")) {
			s.link = append(s.link, '/')
		}
		switch {
		case flags&current != 0:
			s.link = append(s.link, '.')
		case flags&parent != 0:
			s.link = append(s.link, ".."...)
		case flags&root != 0:
			s.link = append(s.link, '/')
		default:
			s.link = append(s.link, b[2:2+n]...)
		}
		s.slash = flags&more == 0
		b = b[2+n:]
	}
}
