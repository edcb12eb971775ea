package worker

import (
	"bytes"
	"encoding/binary"
	"strings"

	"rea/providers/artifact"
	"rea/providers/artifact/worker/asar"
	"rea/providers/artifact/worker/cpio"
	"rea/providers/artifact/worker/dmg"
	"rea/providers/artifact/worker/fat"
	"rea/providers/artifact/worker/tar"
	"rea/providers/artifact/worker/zip"
)

// marks are formats that their first bytes, or bytes at a fixed offset, show.
var marks = []struct {
	at     int
	bytes  string
	format artifact.Format
}{
	{0, "PK\x03\x04", artifact.FormatZip},
	{0, "PK\x05\x06", artifact.FormatZip},
	{0, "PK\x07\x08", artifact.FormatZip},
	{0, "bplist00", artifact.FormatPlist},
	{0, "\xfe\xed\xfa\xce", artifact.FormatMachO},
	{0, "\xfe\xed\xfa\xcf", artifact.FormatMachO},
	{0, "\xce\xfa\xed\xfe", artifact.FormatMachO},
	{0, "\xcf\xfa\xed\xfe", artifact.FormatMachO},
	{0, "\x7fELF", artifact.FormatELF},
	{0, "\x1f\x8b\x08", artifact.FormatGzip},
	{0, "\xfd7zXZ\x00", artifact.FormatXZ},
	{0, "\x28\xb5\x2f\xfd", artifact.FormatZstd},
	{0, "!<arch>\ndebian-binary", artifact.FormatDeb},
	{0, "!<arch>\n", artifact.FormatAr},
	{0, "!<thin>\n", artifact.FormatAr},
	{0, "\xed\xab\xee\xdb", artifact.FormatRPM},
	{0, "7z\xbc\xaf\x27\x1c", artifact.Format7z},
	{0, "hsqs", artifact.FormatSquashFS},
	{0, "sqsh", artifact.FormatSquashFS},
	{0, "\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", artifact.FormatOLE},
	{0, encryptedDMG, artifact.FormatDMG},
	{32, "NXSB", artifact.FormatAPFS},
	{1024, "H+\x00\x04", artifact.FormatHFSPlus},
	{1024, "HX\x00\x05", artifact.FormatHFSPlus},
	{0x8001, "CD001", artifact.FormatISO9660},
	{0x8001, "BEA01", artifact.FormatUDF},
	{0, "xar!", artifact.FormatXar},
	{0, "pbzx", artifact.FormatPbzx},
	{0, "MSCF\x00\x00\x00\x00", artifact.FormatCab},
	{0, "Cr24\x02\x00\x00\x00", artifact.FormatCRX},
	{0, "Cr24\x03\x00\x00\x00", artifact.FormatCRX},
}

// contentFormat recognises a format by bytes alone: head holds the first headSize bytes, or all of a shorter content.
// Equal bytes have equal formats wherever they stand.
func contentFormat(head []byte, size int64) artifact.Format {
	if isAppImage(head) {
		return artifact.FormatAppImage
	}
	for _, m := range marks {
		if len(head) >= m.at+len(m.bytes) && string(head[m.at:m.at+len(m.bytes)]) == m.bytes {
			return m.format
		}
	}
	switch {
	case fat.Looks(head):
		return artifact.FormatMachOUniversal
	case len(head) >= 2 && head[0] == 'M' && head[1] == 'Z':
		return dosFormat(head, size)
	case isBzip2(head):
		return artifact.FormatBzip2
	case asar.Looks(head):
		return artifact.FormatASAR
	case isXMLPlist(head):
		return artifact.FormatPlist
	case tar.Looks(head):
		return artifact.FormatTar
	case cpio.Looks(head):
		return artifact.FormatCpio
	case isLZMA(head):
		return artifact.FormatLZMA
	}
	return artifact.FormatFile
}

// dosFormat tells what begins with MZ: a PE image, a consistent DOS program, or neither.
func dosFormat(head []byte, size int64) artifact.Format {
	const (
		dosHeader = 28
		peOffset  = 0x3c
		page      = 512
		paragraph = 16
	)
	le := binary.LittleEndian
	if len(head) >= peOffset+4 {
		at := int64(le.Uint32(head[peOffset:]))
		if at+4 <= int64(len(head)) && string(head[at:at+4]) == "PE\x00\x00" {
			return artifact.FormatPE
		}
	}
	if len(head) < dosHeader {
		return artifact.FormatUnknown
	}
	last, pages, header := int64(le.Uint16(head[2:])), int64(le.Uint16(head[4:])), int64(le.Uint16(head[8:]))*paragraph
	length := pages * page
	if last > 0 {
		length += last - page
	}
	if last < page && pages > 0 && header >= dosHeader && header <= length && length <= size {
		return artifact.FormatDOSMZ
	}
	return artifact.FormatUnknown
}

// isBzip2 wants the signature, a block size, and the mark of a first block or of an empty stream.
func isBzip2(head []byte) bool {
	if len(head) < 10 || string(head[:3]) != "BZh" || head[3] < '1' || head[3] > '9' {
		return false
	}
	mark := string(head[4:10])
	return mark == "\x31\x41\x59\x26\x53\x59" || mark == "\x17\x72\x45\x38\x50\x90"
}

// isXMLPlist looks for the root element or its document type near the start of an XML text.
func isXMLPlist(head []byte) bool {
	const near = 1024
	text := bytes.TrimLeft(bytes.TrimPrefix(head, []byte("\xef\xbb\xbf")), " \t\r\n")
	text = text[:min(len(text), near)]
	if !bytes.HasPrefix(text, []byte("<?xml")) && !bytes.HasPrefix(text, []byte("<!DOCTYPE plist")) && !bytes.HasPrefix(text, []byte("<plist")) {
		return false
	}
	return bytes.Contains(text, []byte("<plist")) || bytes.Contains(text, []byte("<!DOCTYPE plist"))
}

// rootFormats recognises the target itself: what its content is, and what its name makes of that. The rules are those
// of the contract's table: some formats need their suffix.
func rootFormats(name string, src *source) (root, content artifact.Format, err error) {
	head := make([]byte, min(src.size, headSize))
	if n, err := src.ReadAt(head, 0); n < len(head) {
		return "", "", err
	}
	content = contentFormat(head, src.size)
	if hasSuffix(name, ".dmg") && underTrailer(content) && isDMG(src) {
		content = artifact.FormatDMG
	}
	switch content {
	case artifact.FormatDMG:
		if !hasSuffix(name, ".dmg") {
			content = artifact.FormatFile
		}
	case artifact.FormatASAR:
		if !hasSuffix(name, ".asar") {
			content = artifact.FormatFile
		}
	case artifact.FormatPlist:
		if !hasSuffix(name, ".plist", ".entitlements") {
			return artifact.FormatFile, content, nil
		}
	case artifact.FormatFile, artifact.FormatUnknown:
		content = bySuffix(name, head, src, content)
	}
	switch content {
	case artifact.FormatASAR, artifact.FormatPkg, artifact.FormatDMG:
		return content, content, nil
	}
	return artifact.OccurrenceFormat(name, content), content, nil
}

// bySuffix recognises what is not shown by first bytes alone.
func bySuffix(name string, head []byte, src *source, content artifact.Format) artifact.Format {
	switch {
	case hasSuffix(name, ".asar") && asar.Claims(head):
		return artifact.FormatASAR
	case hasSuffix(name, ".tar") && len(head) > 262 && string(head[257:262]) == "ustar":
		return artifact.FormatTar
	case src.size == 0:
		return artifact.FormatUnknown
	}
	if content == artifact.FormatFile {
		if _, err := zip.Open(src, src.size); err == nil {
			return artifact.FormatZip
		}
	}
	return content
}

func isDMG(src *source) bool {
	var mark [4]byte
	if src.size < dmg.TrailerSize {
		return false
	}
	n, _ := src.ReadAt(mark[:], src.size-dmg.TrailerSize)
	return n == len(mark) && string(mark[:]) == "koly"
}

// underTrailer reports whether bytes that show a format may be those of a disk image, whose trailer decides: an image
// that is stored as it is begins as its first partition does.
func underTrailer(f artifact.Format) bool {
	switch f {
	case artifact.FormatFile, artifact.FormatUnknown, artifact.FormatHFSPlus, artifact.FormatAPFS, artifact.FormatISO9660:
		return true
	}
	return false
}

// hasSuffix compares without regard to case.
func hasSuffix(name string, suffixes ...string) bool {
	for _, s := range suffixes {
		if len(name) >= len(s) && strings.EqualFold(name[len(name)-len(s):], s) {
			return true
		}
	}
	return false
}
