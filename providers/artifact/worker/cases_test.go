package worker

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"hash/crc32"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"rea/evidence/fault"
	"rea/evidence/target"
	"rea/providers/artifact"
)

// The cases of this file are small hostile inputs whose right answers were decided by hand from the formats: which
// members a person would find with a hex editor, and what of them cannot be known.

// An ASAR with unpacked companions: one missing, one signed after packing.
func TestASARCompanions(t *testing.T) {
	const a, s, g = "console.log('main')\n", "\x7fELF-as-packed", "\x7fELF-gone"
	header := files(
		field{"main.js", asarFile(a, 0)},
		field{"data", files(field{"readme.txt", asarFile("hi\n", len(a))})},
		field{"native", files(field{"gone.node", asarUnpacked(g)}, field{"signed.node", asarUnpacked(s)})},
	)
	dir := placeFile(t, asarArchive(header, a+"hi\n"))
	write(t, filepath.Join(dir, target.CompanionName, "native/signed.node"), s+"+signature")

	_, err := tryInventory(t, dir, "app.asar", artifact.PolicyFail)
	f := wantFault(t, err, fault.ArtifactIntegrityMismatch, map[string]any{
		"reason": "integrity", "logical_path": "native/signed.node", "unpacked": true,
		"declared_sha256": sha([]byte(s)), "calculated_sha256": sha([]byte(s + "+signature")),
	})
	if !strings.Contains(f.Message, "sign") || !strings.Contains(f.Action, "record-and-continue") {
		t.Errorf("the failure explains neither the usual cause nor what to do: %v; %s", f, f.Action)
	}

	r, err := tryInventory(t, dir, "app.asar", artifact.PolicyRecord)
	if err != nil {
		t.Fatal(err)
	}
	r.wantFiles(t, map[string]string{"main.js": sha([]byte(a)), "data/readme.txt": sha([]byte("hi\n")), "native/signed.node": sha([]byte(s + "+signature")), "native/gone.node": ""})
	r.wantCoverage(t, artifact.CoverageUnknown)
	gone, signed := r.one(t, "native/gone.node"), r.one(t, "native/signed.node")
	if gone.HashStatus != artifact.HashUnavailable || *gone.DeclaredSize != int64(len(g)) || !says(gone.Limitations, "unpacked") {
		t.Errorf("the missing companion: %+v", gone)
	}
	if signed.HashStatus != artifact.HashMismatched || r.one(t, "main.js").SourceLocation == nil || signed.SourceLocation != nil {
		t.Errorf("the signed companion: %+v", signed)
	}
	if len(r.Contradictions) != 1 || r.Contradictions[0].DeclaredSHA256 != sha([]byte(s)) || !r.Contradictions[0].Unpacked || !says(r.Contradictions[0].Limitations, "sign") {
		t.Errorf("contradictions: %+v", r.Contradictions)
	}

	_, err = tryExtract(t, dir, "app.asar", artifact.PolicyRecord)
	wantFault(t, err, fault.ArtifactOperationFailed, map[string]any{"reason": "unavailable", "logical_path": "native/gone.node"})
	x, err := tryExtract(t, dir, "app.asar", artifact.PolicyRecord, signed.OccurrenceID, r.one(t, "main.js").OccurrenceID)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"main.js": a, "native/signed.node": s + "+signature"}, x.files); diff != "" || len(x.contradictions) != 1 {
		t.Errorf("%s; contradictions %+v", diff, x.contradictions)
	}
}

// Links inside an ASAR are named and never followed.
func TestASARLinks(t *testing.T) {
	link := func(to string) object { return object{{"link", to}} }
	header := files(
		field{"main.txt", asarFile("main\n", 0)},
		field{"aa", files(field{"inside.txt", asarFile("inside\n", 5)})},
		field{"a", link("aa")}, field{"fine", link("main.txt")}, field{"hop", link("aa/../../escape.txt")},
		field{"up", link("../escape.txt")}, field{"absolute", link("/escape.txt")}, field{"self", link("self")},
	)
	dir := placeFile(t, asarArchive(header, "main\ninside\n"))
	r := mustInventory(t, dir, "links.asar")
	r.wantFiles(t, map[string]string{"main.txt": sha([]byte("main\n")), "aa/inside.txt": sha([]byte("inside\n"))})
	for path, to := range map[string]string{"a": "aa", "fine": "main.txt", "hop": "aa/../../escape.txt", "up": "../escape.txt", "absolute": "/escape.txt", "self": "self"} {
		o := r.one(t, path)
		if o.EntryKind != artifact.EntrySymlink || o.ArtifactID != nil {
			t.Errorf("%s: %+v", path, o)
		}
		wantSays(t, path, o.Limitations, `"`+to+`"`)
	}
	x, err := tryExtract(t, dir, "links.asar", artifact.PolicyFail)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"main.txt": "main\n", "aa/inside.txt": "inside\n"}, x.files); diff != "" {
		t.Error(diff)
	}
}

// Sizes in an ASAR header that lie.
func TestASARSizes(t *testing.T) {
	good := field{"good.txt", asarFile("good\n", 0)}
	entry := func(size, offset any) field { return field{"bad.txt", object{{"size", size}, {"offset", offset}}} }
	long := asarArchive(files(good), "good\n")
	binary.LittleEndian.PutUint32(long[4:], 0x7ffffff0)
	_, err := tryInventory(t, placeFile(t, long), "head-too-long.asar", artifact.PolicyFail)
	f := wantFault(t, err, fault.ArtifactOperationFailed, map[string]any{"reason": "format"})
	if !strings.Contains(f.Message, "2147483632") || !strings.Contains(f.Message, "bytes and the file has ") {
		t.Errorf("message %q does not name both lengths", f.Message)
	}
	for name, bad := range map[string]field{
		"entry-past-end": entry(5000, "2"), "offset-past-end": entry(1, "99999"), "huge": entry(int64(9007199254740991), "0"),
		"sum overflows": entry(int64(9007199254740991), "9223372036854775807"),
	} {
		t.Run(name, func(t *testing.T) {
			r := inventoryOf(t, name+".asar", asarArchive(files(good, bad), "good\n"))
			r.wantFiles(t, map[string]string{"good.txt": sha([]byte("good\n"))})
			o := r.one(t, "bad.txt")
			if o.HashStatus != artifact.HashUnavailable {
				t.Errorf("%+v", o)
			}
			wantSays(t, name, o.Limitations, "outside the file")
			r.wantCoverage(t, artifact.CoverageUnknown)
		})
	}
	r := inventoryOf(t, "empty-at-end.asar", asarArchive(files(good, field{"empty.txt", object{{"size", 0}, {"offset", "5"}}}), "good\n"))
	r.wantFiles(t, map[string]string{"good.txt": sha([]byte("good\n")), "empty.txt": sha(nil)})
	r.wantCoverage(t, artifact.CoverageComplete)
}

// Names that repeat.
func TestDuplicateNames(t *testing.T) {
	v := []string{"mode=a\n", "mode=b\n", "mode=c\n"}
	zipped := func(order ...int) []byte {
		z := newZip("", false)
		for _, i := range order {
			z.file("conf.txt", v[i])
		}
		return z.file("other.txt", "other\n").bytes()
	}
	var tarred []byte
	for _, s := range v {
		tarred = append(tarred, tarFile("conf.txt", s)...)
	}
	tarred = append(append(tarred, tarFile("other.txt", "other\n")...), tarEnd...)
	for _, c := range []struct {
		name    string
		content []byte
		order   []int
	}{{"dup.zip", zipped(0, 1, 2), []int{0, 1, 2}}, {"dup-order.zip", zipped(2, 1, 0), []int{2, 1, 0}}, {"dup.tar", tarred, []int{0, 1, 2}}} {
		t.Run(c.name, func(t *testing.T) {
			dir := placeFile(t, c.content)
			r := mustInventory(t, dir, c.name)
			found := r.at("conf.txt")
			if len(found) != 3 {
				t.Fatalf("%d occurrences of conf.txt", len(found))
			}
			for i, o := range found {
				if o.Ordinal == nil || *o.Ordinal != int64(i) || r.sum(o) != sha([]byte(v[c.order[i]])) {
					t.Errorf("occurrence %d: %+v", i, o)
				}
			}
			if r.sum(r.one(t, "other.txt")) != sha([]byte("other\n")) {
				t.Error("other.txt was not read")
			}
			x, err := tryExtract(t, dir, c.name, artifact.PolicyFail)
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]string{"conf.txt": v[c.order[0]], "conf.txt~1": v[c.order[1]], "conf.txt~2": v[c.order[2]], "other.txt": "other\n"}
			if diff := cmp.Diff(want, x.files); diff != "" {
				t.Error(diff)
			}
			x, err = tryExtract(t, dir, c.name, artifact.PolicyFail, found[1].OccurrenceID)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(map[string]string{"conf.txt": v[c.order[1]]}, x.files); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A zip behind other bytes, with offsets that count them and that do not.
func TestZipPrefix(t *testing.T) {
	const prefix = "#!/bin/sh\n# small start script, then a zip\nexec true\n"
	for name, z := range map[string]*zipWriter{"plain.zip": newZip("", false), "unadjusted.bin": newZip(prefix, false), "adjusted.bin": newZip(prefix, true)} {
		t.Run(name, func(t *testing.T) {
			r := inventoryOf(t, name, z.file("a.txt", "alpha\n").file("dir/b.txt", "beta\n").bytes())
			r.wantFiles(t, map[string]string{"a.txt": sha([]byte("alpha\n")), "dir/b.txt": sha([]byte("beta\n"))})
			r.wantCoverage(t, artifact.CoverageComplete)
			var want []artifact.Region
			if z.prefix > 0 {
				want = []artifact.Region{{Role: "prefix", Offset: 0, Length: 53, SHA256: "eb3546847e70e165b95a6f300a84d6dd8b0891f2fe2cd2152ba48560a118d9c6"}}
			}
			if diff := cmp.Diff(want, r.Containers[0].Regions, cmp.Transformer("nil", func(r []artifact.Region) []artifact.Region { return append([]artifact.Region{}, r...) })); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// An encryption flag that lies, beside one that does not.
func TestZipEncryption(t *testing.T) {
	cipher := make([]byte, 12+len("real secret"))
	for i := range cipher {
		cipher[i] = byte(i*37 + 11)
	}
	const manifest = "\x03\x00\x08\x00binary-manifest"
	z := newZip("", false).
		add(zipEntry{name: "AndroidManifest.xml", data: []byte(manifest), flags: 0x801}).
		file("classes.dex", "dex\n035\x00"+strings.Repeat("\x00", 24)).
		file("res/ok.txt", "ok\n").
		add(zipEntry{name: "assets/locked.bin", data: []byte("real secret"), flags: 0x801, raw: cipher})
	dir := placeFile(t, z.bytes())
	r := mustInventory(t, dir, "app.apk")
	if r.Manifest.RootFormat != artifact.FormatAPK {
		t.Errorf("root format %s", r.Manifest.RootFormat)
	}
	r.wantFiles(t, map[string]string{"AndroidManifest.xml": sha([]byte(manifest)), "res/ok.txt": sha([]byte("ok\n")), "classes.dex": sha([]byte("dex\n035\x00" + strings.Repeat("\x00", 24)))})
	m, locked := r.one(t, "AndroidManifest.xml"), r.one(t, "assets/locked.bin")
	if m.Encrypted || !says(m.Limitations, "flags say", "encrypted") {
		t.Errorf("the lying flag: %+v", m)
	}
	if !locked.Encrypted || locked.HashStatus != artifact.HashUnavailable || locked.ArtifactID != nil {
		t.Errorf("the locked member: %+v", locked)
	}
	r.wantCoverage(t, artifact.CoverageUnknown)
	_, err := tryExtract(t, dir, "app.apk", artifact.PolicyFail)
	wantFault(t, err, fault.UnsupportedTarget, map[string]any{"logical_path": "assets/locked.bin"})
}

// Gzip in several members, with bytes behind it, and cut.
func TestGzipMembersAndTails(t *testing.T) {
	one, two := tarFile("one.txt", "one\n"), append(tarFile("two.txt", "two\n"), tarEnd...)
	whole := storedGzip(slices.Concat(one, two))
	both := map[string]string{"one.txt": sha([]byte("one\n")), "two.txt": sha([]byte("two\n"))}
	first := map[string]string{"one.txt": both["one.txt"]}
	for _, c := range []struct {
		name     string
		content  []byte
		files    map[string]string
		says     []string
		coverage artifact.Status
		tail     *artifact.Region
	}{
		{"two-members.tar.gz", slices.Concat(storedGzip(one), storedGzip(two)), both, nil, artifact.CoverageComplete, nil},
		{"zero-tail.tar.gz", append(bytes.Clone(whole), make([]byte, 64)...), both, []string{"64 zero bytes", "3095", "3159"}, artifact.CoverageComplete,
			&artifact.Region{Role: "tail", Offset: 3095, Length: 64, SHA256: sha(make([]byte, 64))}},
		{"junk-tail.tar.gz", append(bytes.Clone(whole), "not-gzip-12b"...), both, []string{"12 bytes", "not gzip", "3095", "3107"}, artifact.CoverageComplete,
			&artifact.Region{Role: "tail", Offset: 3095, Length: 12, SHA256: sha([]byte("not-gzip-12b"))}},
		{"cut.tar.gz", whole[:15+len(one)+300], first, []string{"ends early"}, artifact.CoverageUnknown, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := inventoryOf(t, c.name, c.content)
			r.wantFiles(t, c.files)
			r.wantCoverage(t, c.coverage)
			if c.says != nil {
				wantSays(t, c.name, r.one(t, ".").Limitations, c.says...)
			}
			var want []artifact.Region
			if c.tail != nil {
				want = append(want, *c.tail)
			}
			if diff := cmp.Diff(want, append([]artifact.Region(nil), r.Containers[0].Regions...)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func zeros(n int) (raw []byte, crc uint32) {
	var out bytes.Buffer
	w, _ := flate.NewWriter(&out, 9)
	block := make([]byte, 1<<20)
	for range n >> 20 {
		w.Write(block)
		crc = crc32.Update(crc, crc32.IEEETable, block)
	}
	w.Close()
	return out.Bytes(), crc
}

// 64 MiB of zeros two archives deep, and a header that says 10 bytes where 64 MiB come.
func TestBlowUp(t *testing.T) {
	const size = 64 << 20
	raw, crc := zeros(size)
	inner := newZip("", false).add(zipEntry{name: "zeros.bin", method: 8, raw: raw, size: size, crc: crc}).bytes()
	outer := newZip("", false).add(zipEntry{name: "inner.zip", data: inner, method: 8}).file("note.txt", "note\n").bytes()
	if len(outer) > 20000 {
		t.Fatalf("the outer archive has %d bytes", len(outer))
	}
	r := inventoryOf(t, "outer.zip", outer)
	r.wantFiles(t, map[string]string{"note.txt": sha([]byte("note\n")), "inner.zip": sha(inner),
		// The digest of 64 MiB of zeros by sha256sum.
		"inner.zip/zeros.bin": "3b6a07d0d404fab4e23b6d34bc6696a6a312dd92821332385e5af7c01c421351"})
	r.wantCoverage(t, artifact.CoverageComplete)

	r = inventoryOf(t, "lying.zip", newZip("", false).add(zipEntry{name: "small.txt", method: 8, raw: raw, size: 10, crc: crc}).file("note.txt", "note\n").bytes())
	r.wantFiles(t, map[string]string{"note.txt": sha([]byte("note\n"))})
	o := r.one(t, "small.txt")
	wantSays(t, "small.txt", o.Limitations, "contradicted", "10", "67108864")
	r.wantCoverage(t, artifact.CoverageUnknown)
}

// Archives inside an archive keep their own digests, and equal ones two places.
func TestNestedDigests(t *testing.T) {
	jar := func(word string) []byte {
		return newZip("", false).file("Only.class", "\xca\xfe\xba\xbe\x00\x00\x00\x34"+word).bytes()
	}
	one, two := jar("one"), jar("two")
	outer := newZip("", false).file("lib/one.jar", string(one)).file("lib/two.jar", string(two)).file("lib/copy-of-one.jar", string(one)).bytes()
	r := inventoryOf(t, "outer.jar", outer)
	class := func(word string) string { return sha([]byte("\xca\xfe\xba\xbe\x00\x00\x00\x34" + word)) }
	r.wantFiles(t, map[string]string{
		"lib/one.jar": sha(one), "lib/two.jar": sha(two), "lib/copy-of-one.jar": sha(one),
		"lib/one.jar/Only.class": class("one"), "lib/two.jar/Only.class": class("two"), "lib/copy-of-one.jar/Only.class": class("one"),
	})
	if r.Manifest.RootSHA256 != sha(outer) {
		t.Errorf("root %s", r.Manifest.RootSHA256)
	}
	for _, n := range r.Nodes {
		if n.SHA256 == class("one") && n.Format != artifact.FormatFile {
			t.Errorf("a Java class is %s", n.Format)
		}
	}
	r.wantCoverage(t, artifact.CoverageComplete)
}

// Names that differ by case only.
func TestCaseCollision(t *testing.T) {
	const big, small = "class Big {}\n", "class small {}\n"
	dir := placeFile(t, newZip("", false).file("okio/Sink.java", big).file("okio/sink.java", small).file("OKIO/note.txt", "n\n").bytes())
	r := mustInventory(t, dir, "case.zip")
	want := map[string]string{"okio/Sink.java": sha([]byte(big)), "okio/sink.java": sha([]byte(small)), "OKIO/note.txt": sha([]byte("n\n"))}
	r.wantFiles(t, want)
	r.wantCoverage(t, artifact.CoverageComplete)
	wantSays(t, "case.zip", r.Limitations, "case", "both were read")
	x, err := tryExtract(t, dir, "case.zip", artifact.PolicyFail)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"okio/Sink.java": big, "okio/sink.java": small, "OKIO/note.txt": "n\n"}, x.files); diff != "" {
		t.Error(diff)
	}
}

// A directory with links in circles, out of it and to nowhere, a FIFO and a socket.
func TestDirectorySpecials(t *testing.T) {
	dir := t.TempDir()
	tree := filepath.Join(dir, target.MainName)
	for name, content := range map[string]string{"a.txt": "a\n", "deep/b.txt": "b\n", "z/last.txt": "z\n"} {
		write(t, filepath.Join(tree, name), content)
	}
	write(t, filepath.Join(dir, "beside.txt"), "beside\n")
	links := map[string]string{"loop": ".", "deep/up": "../deep", "self": "self", "dangling": "nowhere", "outside": "../beside.txt"}
	for name, to := range links {
		if err := os.Symlink(to, filepath.Join(tree, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(tree, "pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Chdir(tree) // a socket's path must be short
	l, err := net.Listen("unix", "sock")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r := mustInventory(t, dir, "tree")
	r.wantFiles(t, map[string]string{"a.txt": sha([]byte("a\n")), "deep/b.txt": sha([]byte("b\n")), "z/last.txt": sha([]byte("z\n"))})
	for path, to := range links {
		o := r.one(t, path)
		if o.EntryKind != artifact.EntrySymlink {
			t.Errorf("%s: %+v", path, o)
		}
		wantSays(t, path, o.Limitations, `"`+to+`"`)
	}
	wantSays(t, "pipe", r.Limitations, `"pipe"`, "fifo")
	wantSays(t, "sock", r.Limitations, `"sock"`, "socket")
	r.wantCoverage(t, artifact.CoverageUnknown)
	if want := 1 + 3 + 2 + 5; len(r.Occurrences) != want {
		t.Errorf("%d occurrences, want %d: %q", len(r.Occurrences), want, r.paths())
	}
}

func machO(cpu uint32, id byte) []byte {
	b := make([]byte, 320)
	for i, v := range []uint32{0xfeedfacf, cpu, 0, 2, 1, 24, 0, 0, 0x1b, 24} {
		binary.LittleEndian.PutUint32(b[4*i:], v)
	}
	for i := 256; i < len(b); i++ {
		b[i] = byte(i*91) + id
	}
	return b
}

func fatMachO(x, arm []byte) []byte {
	var b []byte
	for _, v := range []uint32{0xcafebabe, 2, 0x01000007, 3, 4096, uint32(len(x)), 12, 0x0100000c, 0, 8192, uint32(len(arm)), 12} {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	b = append(append(b, make([]byte, 4096-len(b))...), x...)
	return append(append(b, make([]byte, 8192-len(b))...), arm...)
}

// A Java class and a universal Mach-O begin alike.
func TestUniversalSlices(t *testing.T) {
	class := append([]byte("\xca\xfe\xba\xbe\x00\x00\x00\x34\x00\x05\x07\x00\x02\x01\x00\x01A"), make([]byte, 36)...)
	r := inventoryOf(t, "A.class", class)
	if r.Manifest.RootFormat != artifact.FormatFile || r.Coverage.Scope != artifact.ScopeRoot {
		t.Errorf("a Java class is %s, %+v", r.Manifest.RootFormat, r.Coverage)
	}
	x, arm := machO(0x01000007, 1), machO(0x0100000c, 2)
	r = inventoryOf(t, "two-slices", fatMachO(x, arm))
	if r.Manifest.RootFormat != artifact.FormatMachOUniversal {
		t.Errorf("root format %s", r.Manifest.RootFormat)
	}
	for name, want := range map[string]struct {
		content []byte
		offset  int64
	}{"x86_64": {x, 4096}, "arm64": {arm, 8192}} {
		o := r.one(t, name)
		if o.EntryKind != artifact.EntrySlice || r.sum(o) != sha(want.content) || o.SourceLocation == nil || o.SourceLocation.Offset != want.offset || o.ArtifactFormat != artifact.FormatMachO {
			t.Errorf("%s: %+v", name, o)
		}
	}
	r.wantCoverage(t, artifact.CoverageComplete)
}

// Names that would drive a terminal come back exactly.
func TestControlNames(t *testing.T) {
	names := []string{"\x1b]0;owned\x07title.txt", "\x1b[2J\x1b[Hclean.txt", "two\nlines.txt", "cr\rOVER.txt", "tab\there.txt", "doc\u202egnp.exe", "\u009b31mred.txt", "plain.txt"}
	z := newZip("", false)
	for _, n := range names {
		z.file(n, n)
	}
	r := inventoryOf(t, "names.zip", z.bytes())
	want := map[string]string{}
	for _, n := range names {
		want[n] = sha([]byte(n))
	}
	r.wantFiles(t, want)
}

// The same members in containers that differ.
func TestContainerDifferences(t *testing.T) {
	data := [][2]string{{"data.txt", strings.Repeat("data data data data data\n", 20)}, {"run.sh", "#!/bin/sh\n"}, {"z/last.txt", "last\n"}}
	build := func(method uint16, mode uint32, order ...int) *zipWriter {
		z := newZip("", false)
		for _, i := range order {
			e := zipEntry{name: data[i][0], data: []byte(data[i][1]), method: method}
			if i == 1 {
				e.mode = mode
			}
			z.add(e)
		}
		return z
	}
	rows := map[string]*result{}
	commented := build(0, 0, 0, 1, 2)
	commented.comment = "built twice"
	for name, z := range map[string]*zipWriter{
		"a": build(0, 0, 0, 1, 2), "deflated": build(8, 0, 0, 1, 2), "order": build(0, 0, 2, 1, 0), "comment": commented, "exec": build(0, 0o100755, 0, 1, 2),
	} {
		rows[name] = inventoryOf(t, name+".zip", z.bytes())
		rows[name].wantFiles(t, map[string]string{"data.txt": sha([]byte(data[0][1])), "run.sh": sha([]byte(data[1][1])), "z/last.txt": sha([]byte(data[2][1]))})
	}
	a := rows["a"].Containers[0]
	for name, want := range map[string][3]bool{ // order, method, comment differ
		"deflated": {false, true, false}, "order": {true, false, false}, "comment": {false, false, true}, "exec": {},
	} {
		b := rows[name].Containers[0]
		comment := func(c artifact.Container) string {
			if c.CommentSHA256 == nil {
				return ""
			}
			return *c.CommentSHA256
		}
		got := [3]bool{a.MemberOrderSHA256 != b.MemberOrderSHA256, a.MethodsSHA256 != b.MethodsSHA256, comment(a) != comment(b)}
		if got != want {
			t.Errorf("%s: order, method, comment differ: %v, want %v", name, got, want)
		}
	}
	if !rows["exec"].one(t, "run.sh").Executable || rows["a"].one(t, "run.sh").Executable {
		t.Error("the executable bit was not read")
	}
}

// Links compare by their recorded target, whatever the container: a tree that has some is unchanged beside itself. A
// target that is longer than any path is not recorded and never called equal.
func TestLinksCompare(t *testing.T) {
	tree := func(to string) string {
		dir := t.TempDir()
		write(t, filepath.Join(dir, target.MainName, "bin", "tool"), "tool")
		if err := os.Symlink(to, filepath.Join(dir, target.MainName, "tool")); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	zipped := func(to string) string {
		z := newZip("", false)
		z.file("bin/tool", "tool")
		z.add(zipEntry{name: "tool", data: []byte(to), mode: 0o120777})
		return placeFile(t, z.bytes())
	}
	tarred := func(to string) string {
		end := strings.Repeat("\x00", 1024)
		return placeFile(t, []byte(string(tarFile("bin/tool", "tool"))+string(tarMember("tool", "", '2', to))+end))
	}
	packed := func(to string) string {
		return placeFile(t, asarArchive(files(field{"bin", files(field{"tool", asarFile("tool", 0)})}, field{"tool", object{{"link", to}}}), "tool"))
	}
	for name, build := range map[string]func(to string) string{"tree": tree, "a.zip": zipped, "a.tar": tarred, "a.asar": packed} {
		t.Run(name, func(t *testing.T) {
			one, same, other := mustInventory(t, build("bin/tool"), name), mustInventory(t, build("bin/tool"), name), mustInventory(t, build("bin/other"), name)
			if got := compare(t, one, same); got != "unchanged" {
				t.Errorf("equal targets: %s", got)
			}
			if got := compare(t, one, other); got != "changed" {
				t.Errorf("different targets: %s", got)
			}
		})
	}
	long := mustInventory(t, zipped(strings.Repeat("x/", maxLink)), "a.zip")
	if got := compare(t, long, long); got != "unknown" {
		t.Errorf("a target that is too long: %s", got)
	}
}
