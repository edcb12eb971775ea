package dmg

import (
	"bytes"
	"compress/bzip2"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zlib"
	"github.com/xi2/xz"

	"rea/providers/artifact/worker/lzfse"
)

// decoded gives the bytes of a compressed run, whose lengths were held against maxRun.
func (im *Image) decoded(r run) ([]byte, error) {
	return im.cache.Get(r.at, func() ([]byte, error) {
		raw := make([]byte, r.stored)
		if n, err := im.r.ReadAt(raw, r.at); int64(n) < r.stored {
			return nil, noEOF(err)
		}
		b, err := decode(r.kind, raw, int(r.length))
		if err != nil {
			return nil, noEOF(err)
		}
		if int64(len(b)) != r.length {
			return nil, fmt.Errorf("%w: a run has %d bytes where %d belong", ErrFormat, len(b), r.length)
		}
		return b, nil
	})
}

// decode decodes a run into at most limit bytes, and one more where there are more.
func decode(kind uint32, raw []byte, limit int) ([]byte, error) {
	var r io.Reader
	var err error
	switch kind {
	case kindADC:
		return adc(raw, limit)
	case kindLZFSE:
		return lzfse.Decode(raw, limit)
	case kindZlib:
		r, err = zlib.NewReader(bytes.NewReader(raw))
	case kindBzip2:
		r = bzip2.NewReader(bytes.NewReader(raw))
	case kindXZ:
		r, err = xz.NewReader(bytes.NewReader(raw), maxRun)
	}
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	_, err = b.ReadFrom(io.LimitReader(r, int64(limit)+1))
	return b.Bytes(), err
}

var errADC = errors.New("its ADC data is broken")

// adc decodes Apple Data Compression: runs of literals, and matches of two forms.
func adc(src []byte, limit int) ([]byte, error) {
	var dst []byte
	for len(src) > 0 {
		c := int(src[0])
		var literals, match, distance, size int
		switch {
		case c >= 0x80:
			literals, size = c&0x7f+1, 1
		case c >= 0x40:
			match, size = c&0x3f+4, 3
		default:
			match, size = c>>2&0xf+3, 2
		}
		if size > len(src) || literals > len(src)-size || literals+match > limit-len(dst) {
			return nil, errADC
		}
		switch size {
		case 2:
			distance = c&3<<8 | int(src[1])
		case 3:
			distance = int(src[1])<<8 | int(src[2])
		}
		if match > 0 && distance+1 > len(dst) {
			return nil, errADC
		}
		dst = append(dst, src[size:size+literals]...)
		for range match {
			dst = append(dst, dst[len(dst)-distance-1])
		}
		src = src[size+literals:]
	}
	return dst, nil
}
