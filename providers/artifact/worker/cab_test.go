package worker

import (
	"bytes"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"rea/evidence/target"
	"rea/providers/artifact"
)

// Cabinets that gcab and bsdtar make; cabextract agrees on what the first hold.
func TestCabOfOtherPrograms(t *testing.T) {
	for name, options := range map[string]string{"stored": "-c", "mszip": "-c -z"} {
		t.Run(name, func(t *testing.T) {
			dir, want := packed(t, "sh", "-c", "rm -r deep; find . -type f -printf '%P\\n' | sort | xargs -d '\\n' gcab "+options+" ../out")
			for path := range want {
				if strings.HasPrefix(path, "deep/") {
					delete(want, path)
				}
			}
			r := wantBelow(t, dir, "a.cab", "", want)
			r.wantFiles(t, want)
			if len(r.Containers[0].Regions) > 0 || len(r.one(t, ".").Limitations) > 0 {
				t.Errorf("%+v %q", r.Containers, r.one(t, ".").Limitations)
			}
			out := t.TempDir()
			run(t, out, "cabextract", "-q", filepath.Join(dir, target.MainName))
			for path, sum := range want {
				if got, err := os.ReadFile(filepath.Join(out, path)); err != nil || sha(got) != sum {
					t.Errorf("%s: %v", path, err)
				}
			}
		})
	}
}

// cabFile is one file of a cabinet by hand.
type cabFile struct {
	name         string
	size, offset uint32
	folder       uint16
}

// cabinet writes a cabinet of one folder: blocks are pairs of packed bytes and unpacked size.
func cabinet(kind uint16, files []cabFile, blocks ...any) []byte {
	le := binary.LittleEndian
	var list, data []byte
	for _, f := range files {
		list = le.AppendUint32(le.AppendUint32(list, f.size), f.offset)
		list = append(append(le.AppendUint16(list, f.folder), 0, 0, 0, 0, 0x20, 0), f.name...)
		list = append(list, 0)
	}
	for i := 0; i < len(blocks); i += 2 {
		packed := blocks[i].([]byte)
		data = le.AppendUint16(le.AppendUint16(append(data, 0, 0, 0, 0), uint16(len(packed))), uint16(blocks[i+1].(int)))
		data = append(data, packed...)
	}
	b := append([]byte("MSCF"), make([]byte, 32)...)
	at := uint32(36 + 8 + len(list))
	le.PutUint32(b[8:], at+uint32(len(data)))
	le.PutUint32(b[16:], 36+8)
	b[24], b[25] = 3, 1
	le.PutUint16(b[26:], 1)
	le.PutUint16(b[28:], uint16(len(files)))
	b = le.AppendUint16(le.AppendUint16(le.AppendUint32(b, at), uint16(len(blocks)/2)), kind)
	return append(append(b, list...), data...)
}

func TestCabDamage(t *testing.T) {
	good := []cabFile{{"dir\\a.txt", 4, 0, 0}, {"b.txt", 3, 4, 0}}
	content := cabinet(0, good, []byte("data123"), 7)
	want := map[string]string{"dir/a.txt": sha([]byte("data")), "b.txt": sha([]byte("123"))}
	inventoryOf(t, "a.cab", content).wantFiles(t, want)
	r := inventoryOf(t, "a.cab", append(bytes.Clone(content), "signature"...))
	if g := r.Containers[0].Regions; len(g) != 1 || g[0].Role != artifact.RegionTail || g[0].SHA256 != sha([]byte("signature")) {
		t.Errorf("%+v", g)
	}

	r = inventoryOf(t, "a.cab", cabinet(0, append(good, cabFile{"again", 5, 2, 0}, cabFile{"long", 100, 0, 0}, cabFile{"next", 1, 0, 0xfffe}), []byte("data123"), 7))
	want["again"] = sha([]byte("ta123"))
	r.wantFiles(t, want)
	wantSays(t, "long", r.one(t, "long").Limitations, "ends early")
	wantSays(t, "next", r.one(t, "next").Limitations, "another cabinet")

	sum := bytes.Clone(content)
	sum[len(sum)-7-8] = 1
	wantSays(t, "sum", inventoryOf(t, "a.cab", sum).one(t, "b.txt").Limitations, "checksum")
	wantSays(t, "quantum", inventoryOf(t, "a.cab", cabinet(2, good, []byte("x"), 7)).one(t, "b.txt").Limitations, "quantum")
	wantSays(t, "method", inventoryOf(t, "a.cab", cabinet(9, good, []byte("x"), 7)).one(t, "b.txt").Limitations, "method-9")
	wantSays(t, "window", inventoryOf(t, "a.cab", cabinet(3, good, []byte("x"), 7)).one(t, "b.txt").Limitations, "2^0")
	wantSays(t, "mark", inventoryOf(t, "a.cab", cabinet(1, good, []byte("x"), 7)).one(t, "b.txt").Limitations, "mark")

	short := bytes.Clone(content)
	short[28] = 200 // files
	r = inventoryOf(t, "a.cab", short)
	r.wantCoverage(t, artifact.CoverageUnknown)
	wantSays(t, "list", r.one(t, ".").Limitations, "breaks off")
	r = inventoryOf(t, "a.cab", content[:len(content)-2])
	wantSays(t, "cut", r.one(t, ".").Limitations, "cut")
	r.one(t, "dir/a.txt")
}

// wordBits writes bits as LZX has them: words of 16, the highest bit first.
type wordBits struct{ bits []byte }

func (w *wordBits) put(value uint32, n int) *wordBits {
	for i := n - 1; i >= 0; i-- {
		w.bits = append(w.bits, byte(value>>i&1))
	}
	return w
}

func (w *wordBits) align() *wordBits { return w.put(0, 16-len(w.bits)%16) }

func (w *wordBits) bytes() []byte {
	bits := append(bytes.Clone(w.bits), make([]byte, -len(w.bits)&15)...)
	b := make([]byte, len(bits)/8)
	for i, bit := range bits {
		b[i/16*2+1-i%16/8] |= bit << (7 - i%8)
	}
	return b
}

// An LZX cabinet by hand from [MS-PATCH]: an uncompressed block of odd size, then a verbatim block whose main code has
// eight bits for the first sixteen literals and nine for everything else, so that it is complete.
// cabextract, where it is here, says that it is what it is meant to be.
func TestLZX(t *testing.T) {
	const slots = 30 // of a window of 2^15
	plain := "An odd number of bytes that are not compressed: "
	w := (&wordBits{}).put(0, 1).put(3, 3).put(uint32(len(plain)), 24).align()
	le := binary.LittleEndian
	frame := w.bytes()
	for range 3 {
		frame = le.AppendUint32(frame, 1)
	}
	frame = append(frame, plain...)
	frame = append(frame, make([]byte, len(plain)&1)...)

	text := plain
	w = &wordBits{}
	literal := func(s string) {
		for i := range len(s) {
			w.put(uint32(s[i])+16, 9)
		}
		text += s
	}
	// 256 literals come first, then eight lengths of each of the 30 slots. Words of nine bits follow 16 of eight.
	match := func(slot, length int, extra uint32, bits, distance int) {
		w.put(uint32(256+8*slot+length-2)+16, 9).put(extra, bits)
		for range length {
			text += text[len(text)-distance : len(text)-distance+1]
		}
	}
	const rest = 3 + 5 + 5 + 4 + 3 + 8
	w.put(1, 3).put(rest, 24)
	for _, n := range []int{256, 8 * slots} { // the pretree has the words 0 for 8, which makes a length of 9, and 1 for 9
		for s := range 20 {
			w.put(map[bool]uint32{true: 1}[s == 8 || s == 9], 4)
		}
		for i := range n {
			w.put(map[bool]uint32{true: 1}[n == 256 && i < 16], 1)
		}
	}
	for s := range 20 { // no length tree: zeros
		w.put(map[bool]uint32{true: 1}[s == 0 || s == 1], 4)
	}
	for range 249 {
		w.put(0, 1)
	}
	literal("xyz")
	match(5, 5, 1, 1, 5)  // 6-2+1
	match(0, 5, 0, 0, 5)  // recent
	match(7, 4, 3, 2, 13) // 12-2+3
	match(1, 3, 0, 0, 5)  // the one before
	match(3, 8, 0, 0, 1)  // 3-2
	content := cabinet(3|15<<8, []cabFile{{"text", uint32(len(text)), 0, 0}}, append(frame, w.bytes()...), len(text))
	inventoryOf(t, "a.cab", content).wantFiles(t, map[string]string{"text": sha([]byte(text))})
	if path, err := exec.LookPath("cabextract"); err == nil {
		dir := t.TempDir()
		write(t, dir+"/a.cab", string(content))
		if out, err := exec.Command(path, "-p", "-q", dir+"/a.cab").CombinedOutput(); err != nil || string(out) != text {
			t.Errorf("cabextract: %v\n%q\nwant\n%q", err, out, text)
		}
	}
}
