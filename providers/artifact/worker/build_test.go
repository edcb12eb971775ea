package worker

import (
	"bytes"
	"compress/flate"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/crc32"
)

// Writers of small archives with every field under the test's control. They are made from the formats' descriptions
// and share nothing with the readers.

func sha(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// zipWriter writes a zip archive.
type zipWriter struct {
	b       []byte
	dir     []byte
	n       int
	prefix  int
	shifted bool // recorded offsets count the prefix
	comment string
}

// zipEntry is one entry; zero fields are what an honest stored file has.
type zipEntry struct {
	name     string
	data     []byte
	method   uint16
	flags    uint16
	raw      []byte // compressed bytes; nil for what method makes of data
	mode     uint32 // Unix mode; 0 is 0100644
	size     uint32 // declared; 0 is the data's
	crc      uint32 // declared; 0 is the data's
	local    string // name in the local header; "" is name
	skipData bool   // the entry shares the local header of the one before it
	extra    []byte // in both headers
}

func newZip(prefix string, shifted bool) *zipWriter {
	return &zipWriter{b: []byte(prefix), prefix: len(prefix), shifted: shifted}
}

func deflated(b []byte) []byte {
	var out bytes.Buffer
	w, _ := flate.NewWriter(&out, 9)
	w.Write(b)
	w.Close()
	return out.Bytes()
}

func (z *zipWriter) add(e zipEntry) *zipWriter {
	le := binary.LittleEndian
	if e.raw == nil {
		e.raw = e.data
		if e.method == 8 {
			e.raw = deflated(e.data)
		}
	}
	if e.mode == 0 {
		e.mode = 0o100644
	}
	if e.size == 0 {
		e.size = uint32(len(e.data))
	}
	if e.crc == 0 {
		e.crc = crc32.ChecksumIEEE(e.data)
	}
	if e.local == "" {
		e.local = e.name
	}
	offset := uint32(len(z.b))
	if !z.shifted {
		offset -= uint32(z.prefix)
	}
	common := func(name string) []byte {
		h := make([]byte, 26)
		le.PutUint16(h, 20)
		le.PutUint16(h[2:], e.flags)
		le.PutUint16(h[4:], e.method)
		le.PutUint16(h[8:], 0x21)
		le.PutUint32(h[10:], e.crc)
		le.PutUint32(h[14:], uint32(len(e.raw)))
		le.PutUint32(h[18:], e.size)
		le.PutUint16(h[22:], uint16(len(name)))
		le.PutUint16(h[24:], uint16(len(e.extra)))
		return h
	}
	if !e.skipData {
		z.b = append(z.b, "PK\x03\x04"...)
		z.b = append(append(append(append(z.b, common(e.local)...), e.local...), e.extra...), e.raw...)
	}
	z.dir = append(z.dir, "PK\x01\x02\x14\x03"...)
	z.dir = append(z.dir, common(e.name)...)
	tail := make([]byte, 14)
	le.PutUint32(tail[6:], e.mode<<16)
	le.PutUint32(tail[10:], offset)
	z.dir = append(append(append(z.dir, tail...), e.name...), e.extra...)
	z.n++
	return z
}

func (z *zipWriter) file(name, data string) *zipWriter {
	return z.add(zipEntry{name: name, data: []byte(data)})
}

func (z *zipWriter) bytes() []byte {
	le := binary.LittleEndian
	offset := uint32(len(z.b))
	if !z.shifted {
		offset -= uint32(z.prefix)
	}
	end := make([]byte, 22)
	copy(end, "PK\x05\x06")
	le.PutUint16(end[8:], uint16(z.n))
	le.PutUint16(end[10:], uint16(z.n))
	le.PutUint32(end[12:], uint32(len(z.dir)))
	le.PutUint32(end[16:], offset)
	le.PutUint16(end[20:], uint16(len(z.comment)))
	return append(append(append(bytes.Clone(z.b), z.dir...), end...), z.comment...)
}

// tarHeader is one ustar header.
func tarHeader(name string, size int, typ byte, link string, mode int) []byte {
	h := make([]byte, 512)
	copy(h, name)
	copy(h[100:], fmt.Sprintf("%07o\x00", mode))
	copy(h[108:], "0000000\x000000000\x00")
	copy(h[124:], fmt.Sprintf("%011o\x00%011o\x00", size, 0))
	h[156] = typ
	copy(h[157:257], link)
	copy(h[257:], "ustar\x0000")
	copy(h[148:], "        ")
	sum := 0
	for _, c := range h {
		sum += int(c)
	}
	copy(h[148:], fmt.Sprintf("%06o\x00 ", sum))
	return h
}

func tarMember(name, data string, typ byte, link string) []byte {
	return append(append(tarHeader(name, len(data), typ, link, 0o644), data...), make([]byte, -len(data)&511)...)
}

func tarFile(name, data string) []byte { return tarMember(name, data, '0', "") }

var tarEnd = make([]byte, 1024)

// storedGzip is one gzip member with a single stored deflate block, so that its bytes depend on no compressor.
func storedGzip(b []byte) []byte {
	le := binary.LittleEndian
	out := append([]byte("\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff\x01"), 0, 0, 0, 0)
	le.PutUint16(out[11:], uint16(len(b)))
	le.PutUint16(out[13:], ^uint16(len(b)))
	out = append(out, b...)
	out = le.AppendUint32(out, crc32.ChecksumIEEE(b))
	return le.AppendUint32(out, uint32(len(b)))
}

// object is a JSON object that keeps the order of its members.
type object []field

type field struct {
	name  string
	value any
}

// MarshalJSON implements json.Marshaler.
func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		name, _ := json.Marshal(m.name)
		value, err := json.Marshal(m.value)
		if err != nil {
			return nil, err
		}
		b.Write(append(append(name, ':'), value...))
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

func files(members ...field) object { return object{{"files", object(members)}} }

func asarFile(data string, offset int) object {
	return object{{"size", len(data)}, {"offset", fmt.Sprint(offset)}, {"integrity", integrity(data)}}
}

func asarUnpacked(data string) object {
	return object{{"size", len(data)}, {"unpacked", true}, {"integrity", integrity(data)}}
}

func integrity(data string) object {
	return object{{"algorithm", "SHA256"}, {"hash", sha([]byte(data))}, {"blockSize", 4 << 20}, {"blocks", []string{sha([]byte(data))}}}
}

// asarArchive frames a header, given as a value or as JSON text, and packed bytes.
func asarArchive(header any, body string) []byte {
	text, ok := header.(string)
	if !ok {
		b, err := json.Marshal(header)
		if err != nil {
			panic(err)
		}
		text = string(b)
	}
	le := binary.LittleEndian
	padded := (len(text) + 3) &^ 3
	var b []byte
	b = le.AppendUint32(b, 4)
	b = le.AppendUint32(b, uint32(8+padded))
	b = le.AppendUint32(b, uint32(4+padded))
	b = le.AppendUint32(b, uint32(len(text)))
	b = append(append(b, text...), make([]byte, padded-len(text))...)
	return append(b, body...)
}

func crcOf(b []byte) uint32 { return crc32.ChecksumIEEE(b) }
