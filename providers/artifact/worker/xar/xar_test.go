package xar

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"testing"
)

// Parents stand before their files and none is its own, offsets are no negative numbers, and reading ends.
func FuzzTable(f *testing.F) {
	f.Add([]byte(`<?xml version="1.0"?><xar><toc><file id="1"><name>d</name><type>directory</type><file id="2"><data><length>1</length><offset>2</offset><size>3</size>` +
		`<encoding style="x"/><extracted-checksum style="SHA1">AB</extracted-checksum></data><name enctype="base64">YQ==</name><link>t</link><mode>0755</mode></file></file></toc></xar>`))
	f.Add([]byte(`<file><name>no table</name></file>`))
	f.Fuzz(func(t *testing.T, table []byte) {
		var packed bytes.Buffer
		z := zlib.NewWriter(&packed)
		z.Write(table)
		z.Close()
		be := binary.BigEndian
		b := be.AppendUint16(be.AppendUint16([]byte(magic), headSize), 1)
		b = be.AppendUint32(be.AppendUint64(be.AppendUint64(b, uint64(packed.Len())), uint64(len(table))), 0)
		b = append(b, packed.Bytes()...)
		a, err := Open(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			t.Fatal(err)
		}
		for i, file := range a.Files {
			if file.Parent >= i || file.Offset < 0 || file.Length < 0 || file.Size < none || len(file.Name) > maxText {
				t.Fatalf("%d: %+v", i, file)
			}
		}
	})
}
