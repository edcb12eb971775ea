package worker

import (
	"rea/providers/artifact"
	"rea/providers/artifact/worker/asar"
)

// readerOf lists what can be looked into; nil for everything else. A reader gives the members of c to the walk. An
// error that is no *fault.Error says why the container cannot be opened at all; of a container that can be read in part
// the reader gives what it can, says so with c.partial, and returns nil.
func readerOf(f artifact.Format) func(c *container) error {
	switch f {
	case artifact.FormatAppImage:
		return readAppImage
	case artifact.FormatAr, artifact.FormatDeb:
		return readAr
	case artifact.FormatASAR:
		return readASAR
	case artifact.FormatBzip2:
		return readBzip2
	case artifact.FormatCab:
		return readCab
	case artifact.FormatCpio:
		return readCpio
	case artifact.FormatCRX:
		return readCRX
	case artifact.FormatGzip:
		return readGzip
	case artifact.FormatDMG:
		return readDMG
	case artifact.FormatHFSPlus:
		return readHFSPlus
	case artifact.FormatISO9660:
		return readISO
	case artifact.FormatLZMA:
		return readLZMA
	case artifact.FormatMachOUniversal:
		return readFat
	case artifact.FormatOLE:
		return readOLE
	case artifact.FormatSquashFS:
		return readSquashFS
	case artifact.FormatPbzx:
		return readPbzx
	case artifact.FormatRPM:
		return readRPM
	case artifact.Format7z:
		return readSevenZip
	case artifact.FormatTar:
		return readTar
	case artifact.FormatXar, artifact.FormatPkg:
		return readXar
	case artifact.FormatXZ:
		return readXZ
	case artifact.FormatZip:
		return readZip
	case artifact.FormatZstd:
		return readZstd
	}
	return nil
}

// hasReader reports whether a member can be looked into. The path matters for one case: what is called an ASAR and
// begins as one is tried even if its header is inconsistent.
func hasReader(path string, f artifact.Format, head []byte) bool {
	return readerOf(readAs(path, f, head)) != nil
}

// readAs is the format of the reader for a member.
func readAs(path string, f artifact.Format, head []byte) artifact.Format {
	if f == artifact.FormatFile && hasSuffix(path, ".asar") && asar.Claims(head) {
		return artifact.FormatASAR
	}
	return f
}
