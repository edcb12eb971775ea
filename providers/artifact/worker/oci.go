package worker

import (
	"bytes"
	"encoding/hex"

	"rea/providers/artifact"
)

// Images of containers are tar archives, or directories, whose layers are tar archives too and are read like any other
// archive inside: the layout of the OCI image specification, and what docker save writes, which is one as well. Two
// things of theirs say more than their bytes do: a blob is named after its digest, and a layer takes a file of the
// layers below away by a name.

const whiteout = ".wh."

// opaqueWhiteout takes everything away that the layers below have in its directory.
const opaqueWhiteout = ".wh..wh..opq"

// image says of a tar member what its name means in an image.
func (t *tarReader) image(m *member, name []byte) {
	if m.kind == artifact.EntryDirectory {
		return
	}
	base := name[bytes.LastIndexByte(name, '/')+1:]
	switch {
	case string(base) == opaqueWhiteout:
		m.notes = append(m.notes, "It has the name of a whiteout: as part of an image's layer it takes away what the layers below have in its directory.")
	case bytes.HasPrefix(base, []byte(whiteout)) && len(base) > len(whiteout):
		m.notes = append(m.notes, "It has the name of a whiteout: as part of an image's layer it takes "+quote(base[len(whiteout):])+" of the layers below away.")
	}
	m.blob(name)
}

// blob takes the digest that the name of a blob of an OCI image layout states (image layout, "blobs") for a declared one.
func (m *member) blob(name []byte) {
	digits, ok := bytes.CutPrefix(name, []byte("blobs/sha256/"))
	if !ok || len(digits) != hex.EncodedLen(len(artifact.Declared{}.SHA256)) || m.kind != "" && m.kind != artifact.EntryFile {
		return
	}
	var d artifact.Declared
	if _, err := hex.Decode(d.SHA256[:], digits); err == nil && bytes.Equal(bytes.ToLower(digits), digits) {
		m.digest = &d
	}
}
