package dmg

import (
	"bytes"
	"compress/zlib"
	"io"
	"testing"

	"rea/providers/artifact/worker/imagetest"
)

const someBytes = 8 << 20

func readAll(t testing.TB, b []byte) (data int64, err error) {
	im, err := Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return 0, err
	}
	for _, p := range im.Partitions {
		if p.Problem != "" {
			continue
		}
		r := p.NewReader()
		n, err := io.Copy(io.Discard, io.LimitReader(r, someBytes-data))
		if data += n; err == nil && n != p.Size && data < someBytes {
			t.Errorf("a partition of %d bytes gives %d", p.Size, n)
		}
	}
	return data, nil
}

func packed(b []byte) []byte {
	var out bytes.Buffer
	w := zlib.NewWriter(&out)
	_, _ = w.Write(b)
	_ = w.Close()
	return out.Bytes()
}

func sample() []byte {
	data := bytes.Repeat([]byte("partition "), 512)
	same := func(b []byte) []byte { return b }
	return imagetest.DMG(
		imagetest.Partition{Name: "a", Data: data, Runs: append(imagetest.Packed(data[:2560], 2, kindZlib, packed), imagetest.Packed(data[2560:], 3, kindLZFSE, imagetest.LZFSE)...)},
		imagetest.Partition{Name: "b", Data: data, Runs: append(imagetest.Packed(data, 4, kindPlain, same), imagetest.Run{Kind: kindIgnore, Sectors: 7})},
	)
}

func TestDamage(t *testing.T) {
	b := sample()
	if data, err := readAll(t, b); err != nil || data != 2*5120+7*512 {
		t.Errorf("the whole image gives %d bytes, %v", data, err)
	}
	for at := 0; at < len(b); at += 3 {
		c := bytes.Clone(b)
		c[at] ^= 0xff
		_, _ = readAll(t, c)
	}
}

// Tables of runs that lie: each partition says why it is not read, and the others are.
func TestRunsThatLie(t *testing.T) {
	data := bytes.Repeat([]byte{1}, 1024)
	good := imagetest.Partition{Name: "good", Data: data, Runs: []imagetest.Run{{Kind: kindPlain, Sectors: 2, Stored: data}}}
	for name, run := range map[string]imagetest.Run{
		"of an unknown kind": {Kind: 0x80000099, Sectors: 2, Stored: data},
		"of too many bytes":  {Kind: kindZlib, Sectors: maxRun/sectorSize + 1, Stored: data},
		"stored in part":     {Kind: kindPlain, Sectors: 3, Stored: data},
		"beyond any disk":    {Kind: kindZero, Sectors: 1 << 60},
	} {
		b := imagetest.DMG(imagetest.Partition{Name: "bad", Runs: []imagetest.Run{run}}, good)
		im, err := Open(bytes.NewReader(b), int64(len(b)))
		if err != nil || len(im.Partitions) != 2 {
			t.Fatalf("%s: %v", name, err)
		}
		if im.Partitions[0].Problem == "" {
			t.Errorf("a run %s passes", name)
		}
		if got, err := io.ReadAll(im.Partitions[1].NewReader()); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: the other partition gives %d bytes, %v", name, len(got), err)
		}
	}
}

func FuzzDMG(f *testing.F) {
	f.Add(sample())
	f.Fuzz(func(t *testing.T, b []byte) { _, _ = readAll(t, b) })
}

// FuzzDecode: no kind of compressed run gives more than its limit and one byte.
func FuzzDecode(f *testing.F) {
	f.Add(uint8(0), []byte("\x80a\x04\x00"))
	f.Add(uint8(1), packed([]byte("abc")))
	f.Fuzz(func(t *testing.T, kind uint8, b []byte) {
		const limit = 4096
		if got, _ := decode(kindADC+uint32(kind)%5, b, limit); len(got) > limit+1 {
			t.Fatalf("%d bytes, the limit is %d", len(got), limit)
		}
	})
}
