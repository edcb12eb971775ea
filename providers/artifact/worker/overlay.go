package worker

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"

	"rea/providers/artifact"
)

// A program may carry an archive behind what its own headers describe, and an archive may be cut into volumes. Neither
// is looked into; both are named, so that nobody takes what was read for all that there is.

// forms are what stands behind a program's own bytes, by how it begins, or by what stands near its begin.
var forms = []struct{ mark, name string }{
	{"7z\xbc\xaf\x27\x1c", "a 7z archive"},
	{";!@Install@!UTF-8!", "the settings of a 7z archive that installs itself"},
	{"PK\x03\x04", "a zip archive"},
	{"Rar!\x1a\x07", "a RAR archive"},
	{"MSCF\x00\x00\x00\x00", "a cabinet"},
	{"\xef\xbe\xad\xdeNullsoftInst", "an NSIS installer"},
	{"idska32\x1a", "an Inno Setup installer"},
	{"zlb\x1a", "an Inno Setup installer"},
	{"hsqs", "a squashfs image"},
	{"\x1f\x8b\x08", "a gzip stream"},
	{"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "a compound file"},
}

// formNear is how far behind the begin of an overlay its mark may stand: NSIS has four bytes before its own.
const formNear = 16

// carries says what follows a program's own bytes, "" where nothing that is known does. src may be nil.
func carries(src *source, f artifact.Format) string {
	if src == nil {
		return ""
	}
	end := int64(0)
	switch f {
	case artifact.FormatPE:
		end = peEnd(src)
	case artifact.FormatELF:
		end = elfFileEnd(src)
	case artifact.FormatFile:
		return scriptCarries(src)
	}
	if end <= 0 || end >= src.size {
		return ""
	}
	b := make([]byte, 64)
	n, _ := src.ReadAt(b, end)
	for _, form := range forms {
		if i := bytes.Index(b[:n], []byte(form.mark)); i >= 0 && i <= formNear {
			return fmt.Sprintf("Behind its own bytes, from %d on, stands what begins as %s; it was not looked into.", end, form.name)
		}
	}
	return ""
}

// peEnd is where the last section of a PE image ends in the file.
func peEnd(src *source) (end int64) {
	const headers, section, maxSections = 24, 40, 512
	le := binary.LittleEndian
	var b [headers]byte
	if n, _ := src.ReadAt(b[:4], 0x3c); n < 4 {
		return 0
	}
	at := int64(le.Uint32(b[:]))
	if n, _ := src.ReadAt(b[:], at); n < len(b) || string(b[:4]) != "PE\x00\x00" {
		return 0
	}
	count := int64(min(le.Uint16(b[6:]), maxSections))
	table := make([]byte, count*section)
	if n, _ := src.ReadAt(table, at+headers+int64(le.Uint16(b[20:]))); n < len(table) {
		return 0
	}
	for ; len(table) > 0; table = table[section:] {
		if size := int64(le.Uint32(table[16:])); size > 0 {
			end = max(end, int64(le.Uint32(table[20:]))+size)
		}
	}
	return end
}

// elfFileEnd is where an ELF file's section headers end; 0 for a file without any, whose end nothing tells.
func elfFileEnd(src *source) int64 {
	var head [64]byte
	if n, _ := src.ReadAt(head[:], 0); n < len(head) {
		return 0
	}
	return elfEnd(head[:])
}

// scriptCarries knows the scripts of makeself, which unpack what follows them.
func scriptCarries(src *source) string {
	b := make([]byte, min(src.size, 1<<10))
	n, _ := src.ReadAt(b, 0)
	if b = b[:n]; bytes.HasPrefix(b, []byte("#!")) && bytes.Contains(b, []byte("generated using Makeself")) {
		return "It is a script of makeself that unpacks an archive behind it; that was not looked into."
	}
	return ""
}

// isVolume reports whether a name is one that programs give to the parts of a split archive: NAME.001, NAME.z01,
// NAME.r00, NAME.part1.rar.
func isVolume(name string) bool {
	name = strings.ToLower(name)
	stem, last, ok := cutLast(name)
	if !ok {
		return false
	}
	if last == "rar" {
		_, last, ok = cutLast(stem)
		number, is := strings.CutPrefix(last, "part")
		return ok && is && digits(number)
	}
	return len(last) == 3 && (digits(last) || (last[0] == 'z' || last[0] == 'r') && digits(last[1:]))
}

func cutLast(name string) (stem, last string, ok bool) {
	i := strings.LastIndexByte(name, '.')
	if i < 0 {
		return name, "", false
	}
	return name[:i], name[i+1:], true
}

func digits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// oneOfSeveral is said of a root whose name is that of a volume.
const oneOfSeveral = "Its name is that of one volume of an archive in several; the others were not read."
