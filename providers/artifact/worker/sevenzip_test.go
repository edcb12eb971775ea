package worker

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"rea/evidence/fault"
	"rea/evidence/target"
	"rea/providers/artifact"
)

// sevenZipped lets 7z pack the sample tree and a file that looks like machine code of many kinds.
func sevenZipped(t *testing.T, options string) (dir string, want map[string]string) {
	t.Helper()
	code := machineCode()
	dir = t.TempDir()
	write(t, dir+"/code", string(code))
	dir, want = packed(t, "sh", "-c", "cp "+dir+"/code code.bin && 7z a "+options+" ../out.7z . >/dev/null && mv ../out.7z ../out")
	want["code.bin"] = sha(code)
	return dir, want
}

// machineCode is bytes in which calls, jumps and page addresses of all the architectures are frequent. The seed is fixed.
func machineCode() []byte {
	r := rand.New(rand.NewPCG(1, 2))
	le := binary.LittleEndian
	var b []byte
	for i := range uint32(60000) {
		switch near := r.Uint32N(1 << 16); r.Uint32N(9) {
		case 0:
			b = le.AppendUint32(append(b, 0xe8), near-i)
		case 1:
			b = le.AppendUint32(append(b, 0xe9), near)
		case 2:
			b = le.AppendUint32(append(b, 0x0f, 0x80|byte(near&15)), near)
		case 3:
			b = append(b, make([]byte, -len(b)&3)...)
			b = le.AppendUint32(b, 0x94000000|near)
		case 4:
			b = append(b, make([]byte, -len(b)&3)...)
			b = le.AppendUint32(b, 0x90000000|near&3<<29|near>>2<<5&0xffffe0|near&31)
		case 5:
			b = append(b, make([]byte, -len(b)&3)...)
			b = le.AppendUint32(b, 0xeb000000|near)
		case 6:
			b = append(b, make([]byte, -len(b)&3)...)
			b = binary.BigEndian.AppendUint32(b, 0x48000001|near<<2)
		case 7:
			b = append(b, make([]byte, -len(b)&1)...)
			b = append(b, byte(near), 0xf0|byte(near>>8&7), byte(near), 0xf8|byte(near>>8&7))
		default:
			b = append(b, 0x0f, 0xe8, 0xff, 0xe9, byte(near))
		}
	}
	return b
}

func TestSevenZipOf7z(t *testing.T) {
	for _, options := range []string{
		"", "-m0=LZMA", "-m0=LZMA -mx=9", "-ms=off", "-mhc=off", "-m0=Copy", "-m0=BZip2", "-m0=Deflate", "-m0=Deflate64", "-mx=9", "-mx=1",
		"-m0=BCJ -m1=LZMA2", "-m0=BCJ2 -m1=LZMA2", "-m0=BCJ2 -m1=LZMA:d25 -m2=LZMA:d19 -m3=LZMA:d19 -mb0:1 -mb0s1:2 -mb0s2:3", "-m0=BCJ -m1=Copy",
		"-m0=Delta:4 -m1=LZMA", "-m0=ARM -m1=LZMA", "-m0=ARMT -m1=LZMA", "-m0=ARM64 -m1=LZMA", "-m0=PPC -m1=LZMA", "-m0=SPARC -m1=LZMA", "-m0=IA64 -m1=LZMA2",
	} {
		t.Run(options, func(t *testing.T) {
			dir, want := sevenZipped(t, options)
			r := wantBelow(t, dir, "a.7z", "", want)
			r.wantFiles(t, want)
			if r.Manifest.RootFormat != artifact.Format7z || len(r.Containers[0].Regions) > 0 {
				t.Errorf("%+v %+v", r.Manifest, r.Containers)
			}
		})
	}
}

// What is not read is named: the method, the encryption, the encrypted header.
func TestSevenZipNotRead(t *testing.T) {
	dir, want := sevenZipped(t, "-m0=PPMd")
	r := mustInventory(t, dir, "a.7z")
	o := r.one(t, "a.txt")
	wantSays(t, "ppmd", o.Limitations, "ppmd")
	if len(r.Occurrences) < len(want) || o.HashStatus != artifact.HashUnavailable {
		t.Errorf("%d occurrences, %+v", len(r.Occurrences), o)
	}
	r.wantFiles(t, map[string]string{"empty": sha(nil)})

	dir, _ = sevenZipped(t, "-psecret")
	r = mustInventory(t, dir, "a.7z")
	if o := r.one(t, "dir/b.txt"); !o.Encrypted || o.HashStatus != artifact.HashUnavailable || *o.DeclaredSize != 25000 {
		t.Errorf("%+v", o)
	}
	_, err := tryExtract(t, dir, "a.7z", artifact.PolicyFail)
	wantFault(t, err, fault.UnsupportedTarget, map[string]any{"reason": "encrypted"})

	dir, _ = sevenZipped(t, "-psecret -mhe=on")
	r = mustInventory(t, dir, "a.7z")
	wantSays(t, "header", r.one(t, ".").Limitations, "header is encrypted")
	r.wantCoverage(t, artifact.CoverageUnknown)
}

// Links, modes, containers inside, and bytes around the archive.
func TestSevenZipDetails(t *testing.T) {
	dir, want := packed(t, "sh", "-c", "ln -s a.txt soft; chmod 755 a.txt; tar -cf inner.tar dir; 7z a -snl ../out.7z . >/dev/null && mv ../out.7z ../out")
	path := filepath.Join(dir, target.MainName)
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	r := inventoryOf(t, "a.7z", append(bytes.Clone(content), "behind"...))
	for path, sum := range want {
		if got := r.sum(r.one(t, path)); got != sum {
			t.Errorf("%s has %s", path, got)
		}
	}
	if got := r.sum(r.one(t, "inner.tar/dir/b.txt")); got != want["dir/b.txt"] {
		t.Errorf("in the tar archive: %s", got)
	}
	if o := r.one(t, "soft"); o.EntryKind != artifact.EntrySymlink || !says(o.Limitations, `"a.txt"`) {
		t.Errorf("%+v", o)
	}
	if !r.one(t, "a.txt").Executable || r.one(t, "dir/b.txt").Executable {
		t.Error("modes differ")
	}
	var g []artifact.Region
	for _, c := range r.Containers {
		if c.OccurrenceID == r.one(t, ".").OccurrenceID {
			g = c.Regions
		}
	}
	if len(g) != 1 || g[0].Role != artifact.RegionTail || g[0].SHA256 != sha([]byte("behind")) {
		t.Errorf("%+v", g)
	}

	// A damaged packed stream loses the members from there on, and no others.
	content[32+200] ^= 0xff
	r = inventoryOf(t, "a.7z", content)
	r.wantCoverage(t, artifact.CoverageUnknown)
	lost := 0
	for path := range want {
		if o := r.one(t, path); o.HashStatus != artifact.HashVerified {
			lost++
			if len(o.Limitations) == 0 {
				t.Errorf("%s is lost without a reason", path)
			}
		}
	}
	if lost == 0 || r.sum(r.one(t, "empty")) != sha(nil) {
		t.Errorf("%d lost", lost)
	}
}

// sevenHeader frames a header that is not packed, behind packed bytes.
func sevenHeader(packed, header []byte) []byte {
	le := binary.LittleEndian
	start := le.AppendUint64(nil, uint64(len(packed)))
	start = le.AppendUint64(start, uint64(len(header)))
	start = le.AppendUint32(start, crc32.ChecksumIEEE(header))
	b := append([]byte("7z\xbc\xaf\x27\x1c\x00\x04"), le.AppendUint32(nil, crc32.ChecksumIEEE(start))...)
	return append(append(append(b, start...), packed...), header...)
}

// Headers by hand from 7zFormat.txt: counts and sizes that lie end the archive with a reason, and take no memory.
func TestSevenZipLies(t *testing.T) {
	name := []byte("\x11\x05\x00x\x00\x00\x00")
	honest := append([]byte("\x01\x04\x06\x00\x01\x09\x04\x00\x07\x0b\x01\x00\x01\x01\x00\x0c\x04\x00\x00\x05\x01"), append(name, 0, 0)...)
	inventoryOf(t, "a.7z", sevenHeader([]byte("data"), honest)).wantFiles(t, map[string]string{"x": sha([]byte("data"))})
	for what, header := range map[string]string{
		"files":       "\x01\x05\xfe\xff\xff\xff\xff\xff\xff\x00\x00",
		"folders":     "\x01\x04\x06\x00\x01\x09\x04\x00\x07\x0b\xfe\xff\xff\xff\xff\xff\xff\x00",
		"packed":      "\x01\x04\x06\x00\x01\x09\x7f\x00\x07\x0b\x01\x00\x01\x01\x00\x0c\x04\x00\x00\x05\x01\x00\x00",
		"no streams":  "\x01\x05\x01\x11\x05\x00x\x00\x00\x00\x00\x00",
		"circle":      "\x01\x04\x06\x00\x01\x09\x04\x00\x07\x0b\x01\x00\x02\x01\x00\x01\x00\x00\x00\x0c\x04\x04\x00\x00\x00",
		"substreams":  "\x01\x04\x06\x00\x01\x09\x04\x00\x07\x0b\x01\x00\x01\x01\x00\x0c\x04\x00\x08\x0d\xf0\xff\xff\x7f\x00\x00\x00",
		"nothing":     "\x01",
		"other marks": "\x55\x55",
	} {
		r, err := tryInventory(t, placeFile(t, sevenHeader([]byte("data"), []byte(header))), "a.7z", artifact.PolicyFail)
		if err != nil {
			wantFault(t, err, fault.ArtifactOperationFailed, map[string]any{"reason": "format"})
		} else if r.Coverage.Status != artifact.CoverageUnknown {
			t.Errorf("%s: coverage %s, %q", what, r.Coverage.Status, r.paths())
		}
	}
}
