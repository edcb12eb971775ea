package worker

import (
	"bufio"
	"compress/bzip2"
	"encoding/binary"
	"fmt"
	"io"
	"strconv"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz/lzma"
	"github.com/xi2/xz"

	"rea/providers/artifact/worker/inflate64"
	"rea/providers/artifact/worker/zip"
)

// Compression methods of zip members beside stored and deflated (APPNOTE.TXT, 4.4.5). methodAES marks members that
// WinZip's AES encryption wraps; their real method is hidden.
const (
	methodDeflate64 = 9
	methodBzip2     = 12
	methodLZMA      = 14
	methodOldZstd   = 20
	methodZstd      = 93
	methodXZ        = 95
	methodAES       = 99
)

// methodNames are how methods are named; all others go by their number.
var methodNames = map[uint16]string{
	zip.Stored: "stored", 1: "shrunk", 6: "imploded", zip.Deflated: "deflated", methodDeflate64: "deflate64", methodBzip2: "bzip2",
	methodLZMA: "lzma", methodOldZstd: "zstd", methodZstd: "zstd", methodXZ: "xz", 98: "ppmd", methodAES: "aes",
}

func methodName(method uint16) string {
	if name, ok := methodNames[method]; ok {
		return name
	}
	return "method-" + strconv.Itoa(int(method))
}

// hasMethod reports whether members of a method are read.
func hasMethod(method uint16) bool {
	switch method {
	case zip.Stored, zip.Deflated, methodDeflate64, methodBzip2, methodLZMA, methodOldZstd, methodZstd, methodXZ:
		return true
	}
	return false
}

// unreadMethod says that members of a method are not read.
func unreadMethod(method uint16) string {
	if name, ok := methodNames[method]; ok {
		return fmt.Sprintf("Compression method %d (%s) is not read.", method, name)
	}
	return fmt.Sprintf("Compression method %d is not read.", method)
}

// openMethod begins to decode data of one of the rarer methods.
func openMethod(e zip.Entry, raw io.Reader) (io.ReadCloser, error) {
	const input = 64 << 10
	in := bufio.NewReaderSize(raw, input)
	var r io.Reader
	var err error
	switch e.Method {
	case methodDeflate64:
		r = inflate64.NewReader(in)
	case methodBzip2:
		r = bzip2.NewReader(in)
	case methodLZMA:
		r, err = openZipLZMA(e, in)
	case methodXZ:
		r, err = xz.NewReader(in, maxDictionary)
	default:
		var d *zstd.Decoder
		if d, err = newZstd(in); err == nil {
			return d.IOReadCloser(), nil
		}
	}
	if err != nil {
		return nil, noEOF(err)
	}
	return io.NopCloser(r), nil
}

// openZipLZMA reads the head of LZMA data (APPNOTE.TXT, 5.8.8): a version, and properties with their length.
func openZipLZMA(e zip.Entry, in *bufio.Reader) (io.Reader, error) {
	const endMarked = 1 << 1 // of the general purpose flags
	var head [4 + lzmaProperties]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return nil, err
	}
	if n := binary.LittleEndian.Uint16(head[2:]); n != lzmaProperties {
		return nil, fmt.Errorf("LZMA properties of %d bytes", n)
	}
	size := int64(e.Size)
	if e.Flags&endMarked != 0 {
		size = -1
	}
	return openLZMA(head[4:], size, maxDictionary, in)
}

// lzmaProperties is the length of the properties of raw LZMA data.
const lzmaProperties = 5

// openLZMA decodes raw LZMA data. size is that of its content; a negative one is not known, and an end mark follows it.
// No dictionary larger than the content, or than limit, is made.
func openLZMA(properties []byte, size, limit int64, in *bufio.Reader) (io.Reader, error) {
	le := binary.LittleEndian
	var head [lzmaHeader]byte
	copy(head[:], properties[:lzmaProperties])
	if dictionary := int64(le.Uint32(head[1:])); size >= 0 && dictionary > size {
		le.PutUint32(head[1:], uint32(max(size, lzma.MinDictCap)))
	}
	le.PutUint64(head[lzmaProperties:], uint64(size))
	return lzma.ReaderConfig{DictCap: int(limit)}.NewReader(&prefixed{head[:], in})
}

// prefixed is a stream behind a head. It reads single bytes where the decoder asks for them, and so no byte too many.
type prefixed struct {
	head []byte
	*bufio.Reader
}

// Read implements io.Reader.
func (p *prefixed) Read(b []byte) (int, error) {
	if len(p.head) > 0 {
		n := copy(b, p.head)
		p.head = p.head[n:]
		return n, nil
	}
	return p.Reader.Read(b)
}

// ReadByte implements io.ByteReader.
func (p *prefixed) ReadByte() (byte, error) {
	if len(p.head) > 0 {
		b := p.head[0]
		p.head = p.head[1:]
		return b, nil
	}
	return p.Reader.ReadByte()
}
