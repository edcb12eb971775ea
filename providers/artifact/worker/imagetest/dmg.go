package imagetest

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// Run is a number of sectors of a partition, and how an image has them.
type Run struct {
	Kind    uint32
	Sectors uint64
	Stored  []byte
}

// Partition is a partition of a disk image.
type Partition struct {
	Name string
	Data []byte // what it decodes to: its checksum is made of this
	Runs []Run
}

// DMG makes a UDIF disk image.
func DMG(partitions ...Partition) []byte {
	var out, list bytes.Buffer
	sector := uint64(0)
	for i, p := range partitions {
		be := binary.BigEndian
		var rows []byte
		at := uint64(0)
		for _, r := range p.Runs {
			rows = be.AppendUint32(rows, r.Kind)
			rows = be.AppendUint32(rows, 0)
			for _, v := range []uint64{at, r.Sectors, uint64(out.Len()), uint64(len(r.Stored))} {
				rows = be.AppendUint64(rows, v)
			}
			out.Write(r.Stored)
			at += r.Sectors
		}
		rows = be.AppendUint32(rows, 0xffffffff)
		rows = be.AppendUint32(rows, 0)
		for _, v := range []uint64{at, 0, uint64(out.Len()), 0} {
			rows = be.AppendUint64(rows, v)
		}
		head := make([]byte, 204)
		copy(head, "mish")
		be.PutUint32(head[4:], 1)
		be.PutUint64(head[8:], sector)
		be.PutUint64(head[16:], at)
		be.PutUint32(head[32:], 0x808)
		be.PutUint32(head[36:], uint32(i))
		be.PutUint32(head[64:], 2)
		be.PutUint32(head[68:], 32)
		be.PutUint32(head[72:], crc32.ChecksumIEEE(p.Data))
		be.PutUint32(head[200:], uint32(len(p.Runs)+1))
		fmt.Fprintf(&list, "<dict><key>Attributes</key><string>0x0050</string><key>CFName</key><string>%[1]s</string>"+
			"<key>Data</key><data>\n\t%[2]s\n</data><key>ID</key><string>%[3]d</string><key>Name</key><string>%[1]s</string></dict>\n",
			p.Name, base64.StdEncoding.EncodeToString(append(head, rows...)), i)
		sector += at
	}
	xml := "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE plist PUBLIC \"-//Apple//DTD PLIST 1.0//EN\" \"http://www.apple.com/DTDs/PropertyList-1.0.dtd\">\n" +
		"<plist version=\"1.0\"><dict><key>resource-fork</key><dict><key>blkx</key><array>\n" + list.String() +
		"</array><key>plst</key><array><dict><key>Attributes</key><string>0x0050</string><key>Data</key><data>AAAA</data><key>ID</key><string>0</string><key>Name</key><string></string></dict></array></dict></dict></plist>\n"
	data := out.Len()
	out.WriteString(xml)
	t := make([]byte, 512)
	be := binary.BigEndian
	copy(t, "koly")
	be.PutUint32(t[4:], 4)
	be.PutUint32(t[8:], 512)
	be.PutUint32(t[12:], 1)
	be.PutUint64(t[32:], uint64(data))
	be.PutUint32(t[56:], 1)
	be.PutUint32(t[60:], 1)
	be.PutUint64(t[216:], uint64(data))
	be.PutUint64(t[224:], uint64(len(xml)))
	be.PutUint32(t[488:], 1)
	be.PutUint64(t[492:], sector)
	out.Write(t)
	return out.Bytes()
}

// Packed cuts data into runs of so many sectors, each stored by pack. Data has whole sectors.
func Packed(data []byte, sectors int, kind uint32, pack func([]byte) []byte) []Run {
	var runs []Run
	for size := sectors * 512; len(data) > 0; {
		n := min(size, len(data))
		runs = append(runs, Run{kind, uint64(n / 512), pack(data[:n])})
		data = data[n:]
	}
	return runs
}
