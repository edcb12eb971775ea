package worker

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rea/evidence/target"
	"rea/providers/artifact"
)

// packed lets a program pack the sample tree: command runs in "in", beside which it writes "../out".
func packed(t *testing.T, command ...string) (dir string, want map[string]string) {
	t.Helper()
	in, want := sampleFiles(t)
	dir = t.TempDir()
	if err := os.Rename(in, dir+"/in"); err != nil {
		t.Fatal(err)
	}
	run(t, dir+"/in", command[0], command[1:]...)
	if err := os.Rename(dir+"/out", filepath.Join(dir, target.MainName)); err != nil {
		t.Fatal(err)
	}
	return dir, want
}

// wantBelow checks files by path below a prefix, and that extraction gives the same bytes.
func wantBelow(t *testing.T, dir, name, prefix string, want map[string]string) *result {
	t.Helper()
	r := mustInventory(t, dir, name)
	below := map[string]string{}
	for path, sum := range want {
		below[prefix+path] = sum
	}
	for path, sum := range below {
		if got := r.sum(r.one(t, path)); got != sum {
			t.Errorf("%s: SHA-256 %s, want %s", path, got, sum)
		}
	}
	r.wantCoverage(t, artifact.CoverageComplete)
	x, err := tryExtract(t, dir, name, artifact.PolicyFail)
	if err != nil {
		t.Fatal(err)
	}
	written := map[string]int{}
	for _, content := range x.files {
		written[sha([]byte(content))]++
	}
	for path, sum := range below {
		if written[sum] == 0 {
			t.Errorf("%s was not extracted", path)
		}
	}
	return r
}

// arMember is one member with a header under the test's control.
func arMember(name, data string, size int) []byte {
	b := fmt.Appendf(nil, "%-16s%-12s%-6s%-6s%-8s%-10d`\n", name, "0", "0", "0", "100644", size)
	b = append(b, data...)
	if len(data)%2 == 1 {
		b = append(b, '\n')
	}
	return b
}

// Both forms of long names: GNU ar writes the one, bsdtar the other.
func TestArOfOtherPrograms(t *testing.T) {
	for name, command := range map[string][]string{
		"gnu.ar": {"sh", "-c", "ar qc ../out a.txt empty dir/*.txt"},
		"bsd.ar": {"sh", "-c", "cd dir; cp ../a.txt ../empty .; bsdtar --format arbsd -cf ../../out empty *.txt"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, all := packed(t, command...)
			want := map[string]string{}
			for path, sum := range all {
				if d := filepath.Dir(path); path == "a.txt" || path == "empty" || d == "dir" && filepath.Ext(path) == ".txt" {
					want[filepath.Base(path)] = sum
				}
			}
			wantBelow(t, dir, name, "", want).wantFiles(t, want)
		})
	}
}

func TestArTablesAndDamage(t *testing.T) {
	content := bytes.Join([][]byte{
		[]byte("!<arch>\n"), arMember("/", "index", 5), arMember("//", "a rather long name.o/\nnul\x00", 25),
		arMember("/0", "one", 3), arMember("short.o/", "two!", 4), arMember("/22", "three", 5), arMember("cut.o/", "abc", 1000),
	}, nil)
	r := inventoryOf(t, "lib.a", content)
	r.wantFiles(t, map[string]string{"a rather long name.o": sha([]byte("one")), "short.o": sha([]byte("two!")), "nul": sha([]byte("three"))})
	wantSays(t, "cut.o", r.one(t, "cut.o").Limitations, "1000 bytes declared", "present")
	r.wantCoverage(t, artifact.CoverageUnknown)
	if got := len(r.Containers[0].Regions); got != 2 {
		t.Errorf("%d regions, want the two tables", got)
	}

	r = inventoryOf(t, "broken.a", append(bytes.Clone(content[:8+66+86+64]), "this is no header, and as long as one: sixty bytes and more!!"...))
	r.wantFiles(t, map[string]string{"a rather long name.o": sha([]byte("one"))})
	wantSays(t, "broken.a", r.one(t, ".").Limitations, "breaks off")

	r = inventoryOf(t, "thin.a", append([]byte("!<thin>\n"), arMember("x.o/", "", 77)...))
	wantSays(t, "thin.a", r.one(t, "x.o").Limitations, "thin archive")
}

// A package that dpkg-deb builds: its payloads open in place, for each compression that dpkg-deb has.
func TestDebOfDpkg(t *testing.T) {
	for suffix, compression := range map[string]string{"gz": "gzip", "xz": "xz", "zst": "zstd", "": "none"} {
		t.Run(compression, func(t *testing.T) {
			dir, want := packed(t, "sh", "-c", "mkdir DEBIAN && printf 'Package: sample\\nVersion: 1\\nArchitecture: all\\nMaintainer: A <a@b.c>\\nDescription: d\\n' > DEBIAN/control && dpkg-deb -Z"+
				compression+" --root-owner-group -b . ../out.deb >/dev/null && mv ../out.deb ../out")
			dot := ""
			if suffix != "" {
				dot = "."
			}
			r := wantBelow(t, dir, "sample.deb", "data.tar"+dot+suffix+"/", want)
			if got := r.one(t, ".").ArtifactFormat; got != artifact.FormatDeb {
				t.Errorf("format %s", got)
			}
			version := map[string]string{"debian-binary": sha([]byte("2.0\n"))} // deb(5)
			for path, sum := range version {
				if got := r.sum(r.one(t, path)); got != sum {
					t.Errorf("%s has %s", path, got)
				}
			}
			r.one(t, "control.tar"+dot+suffix+"/control")
		})
	}
}

// Each form of cpio, plain and in a stream, by the two programs that write them.
func TestCpioOfOtherPrograms(t *testing.T) {
	find := "find . -depth | "
	for name, command := range map[string]string{
		"newc.cpio":     find + "cpio --quiet -o -H newc > ../out",
		"crc.cpio":      find + "cpio --quiet -o -H crc > ../out",
		"odc.cpio":      find + "cpio --quiet -o -H odc > ../out",
		"bin.cpio":      find + "cpio --quiet -o -H bin > ../out",
		"bsd-newc.cpio": "bsdtar --format newc -cf ../out .",
		"bsd-odc.cpio":  "bsdtar --format cpio -cf ../out .",
		"two.cpio":      "(echo a.txt | cpio --quiet -o -H newc; find . -depth ! -name a.txt | cpio --quiet -o -H crc) > ../out",
		"newc.cpio.gz":  find + "cpio --quiet -o -H newc | gzip > ../out",
		"odc.cpio.zst":  find + "cpio --quiet -o -H odc | zstd -q > ../out",
		"crc.cpio.lzma": find + "cpio --quiet -o -H crc | xz --format=lzma > ../out",
		"tar.lzma":      "tar -cf - . | lzma -9 > ../out",
	} {
		t.Run(name, func(t *testing.T) {
			dir, want := packed(t, "sh", "-c", command)
			wantBelow(t, dir, name, "", want).wantFiles(t, want)
		})
	}
}

// Links, devices and modes of an archive that cpio writes.
func TestCpioLinks(t *testing.T) {
	for _, form := range []string{"newc", "odc"} {
		dir, want := packed(t, "sh", "-c", "ln a.txt b.lnk; ln a.txt c.lnk; ln -s a.txt soft; mkfifo pipe; chmod 755 dir/b.txt; ln empty none; find . | sort | cpio --quiet -o -H "+form+" > ../out")
		r := mustInventory(t, dir, "links.cpio")
		want["b.lnk"], want["c.lnk"], want["none"] = want["a.txt"], want["a.txt"], want["empty"]
		r.wantFiles(t, want)
		if o := r.one(t, "soft"); o.EntryKind != artifact.EntrySymlink || !says(o.Limitations, `"a.txt"`) {
			t.Errorf("%s: %+v", form, o)
		}
		if !r.one(t, "dir/b.txt").Executable || r.one(t, "a.txt").Executable {
			t.Errorf("%s: modes differ", form)
		}
		wantSays(t, form, r.Limitations, "pipe", "fifo")
		r.wantCoverage(t, artifact.CoverageUnknown)
		x, err := tryExtract(t, dir, "links.cpio", artifact.PolicyFail)
		if err != nil || x.files["b.lnk"] != "alpha\n" {
			t.Errorf("%s: extracted %q, %v", form, x.files["b.lnk"], err)
		}
	}
}

// newc is one member with a header under the test's control; data is padded.
func newc(name string, mode, links, size, sum int, data string) []byte {
	b := fmt.Appendf(nil, "070702%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00", 7, mode, 0, 0, links, 0, size, 0, 1, 0, 0, len(name)+1, sum, name)
	b = append(b, make([]byte, -len(b)&3)...)
	return append(append(b, data...), make([]byte, -len(data)&3)...)
}

func TestCpioDamage(t *testing.T) {
	const file, end = 0o100644, "TRAILER!!!"
	sum := int('g' + 'o' + 'o' + 'd')
	body := bytes.Join([][]byte{newc("../good", file, 1, 4, sum, "good"), newc("bad", file, 1, 4, 1, "good")}, nil)
	r := inventoryOf(t, "a.cpio", append(bytes.Clone(body), newc(end, 0, 1, 0, 0, "")...))
	r.wantFiles(t, map[string]string{"%2E%2E/good": sha([]byte("good"))})
	wantSays(t, "bad", r.one(t, "bad").Limitations, "00000001", fmt.Sprintf("%08x", sum))

	for name, c := range map[string]struct {
		more  []byte
		words []string
	}{
		"no end":   {nil, []string{"no end mark"}},
		"cut":      {newc("cut", file, 1, 1000, 0, "abc"), []string{"ends inside"}},
		"broken":   {[]byte(strings.Repeat("x", 200)), []string{"breaks off"}},
		"number":   {bytes.Replace(newc("n", file, 1, 0, 0, ""), []byte("00000007"), []byte("0000-007"), 1), []string{"breaks off", "no number"}},
		"long":     {bytes.Replace(newc("n", file, 1, 0, 0, ""), []byte("00000002"), []byte("7fffffff"), 1), []string{"breaks off", "name of 2147483647"}},
		"trailing": {append(newc(end, 0, 1, 0, 0, ""), "\x00\x00rest"...), []string{"4 bytes", "end mark"}},
	} {
		content := append(bytes.Clone(body), c.more...)
		r := inventoryOf(t, "a.cpio", content)
		wantSays(t, name, r.one(t, ".").Limitations, c.words...)
		if got := r.sum(r.one(t, "%2E%2E/good")); got != sha([]byte("good")) {
			t.Errorf("%s: good has %s", name, got)
		}
		if r = inventoryOf(t, "a.cpio.gz", storedGzip(content)); name != "trailing" {
			wantSays(t, name+" in a stream", r.one(t, ".").Limitations, c.words[0])
		}
	}
}

// Pieces of xz, some stored, as Apple's packages have them: xz makes the streams, the frame is by hand.
func TestPbzx(t *testing.T) {
	dir, want := packed(t, "sh", "-c", "find . -depth | cpio --quiet -o -H odc > ../out")
	archive, err := os.ReadFile(filepath.Join(dir, target.MainName))
	if err != nil {
		t.Fatal(err)
	}
	be := binary.BigEndian
	content := be.AppendUint64([]byte("pbzx"), 1<<17)
	for i := 0; len(archive) > 0; i++ {
		piece := archive[:min(len(archive), 1<<17)]
		archive = archive[len(piece):]
		content = be.AppendUint64(content, uint64(len(piece)))
		if i%2 == 0 {
			write(t, dir+"/piece", string(piece))
			piece = run(t, dir, "xz", "-c", "piece")
		}
		content = append(be.AppendUint64(content, uint64(len(piece))), piece...)
	}
	inventoryOf(t, "Payload", content).wantFiles(t, want)
	r := inventoryOf(t, "Payload", content[:len(content)-100])
	r.wantCoverage(t, artifact.CoverageUnknown)
}

// rpmOf lets rpmbuild make a package of the sample tree.
func rpmOf(t *testing.T, payload string) (dir string, want map[string]string) {
	t.Helper()
	return packed(t, "sh", "-c", `set -e; top=$(cd ..; pwd)/rpm; mkdir "$top"
cat > "$top/sample.spec" <<END
Name: sample
Version: 1
Release: 1
Summary: s
License: none
BuildArch: noarch
%description
d
%install
mkdir -p %{buildroot}/opt/sample && cp -a "$PWD/." %{buildroot}/opt/sample/
%files
/opt/sample
END
rpmbuild -bb --quiet --define "_topdir $top" --define "_binary_payload `+payload+`" --define "__os_install_post %{nil}" --define "_build_id_links none" "$top/sample.spec" >&2
mv "$top"/RPMS/noarch/*.rpm ../out`)
}

// Packages that rpmbuild makes, with the digests that they declare, and the archive that rpm2cpio takes out.
func TestRPMOfRpmbuild(t *testing.T) {
	tool(t, "rpmbuild")
	for payload, name := range map[string]string{
		"w6.gzdio": "payload.cpio.gz", "w6.bzdio": "payload.cpio.bz2", "w6.xzdio": "payload.cpio.xz", "w6.lzdio": "payload.cpio.lzma", "w6.zstdio": "payload.cpio.zst",
	} {
		t.Run(payload, func(t *testing.T) {
			dir, want := rpmOf(t, payload)
			r := wantBelow(t, dir, "sample.rpm", name+"/opt/sample/", want)
			for _, part := range []string{"lead", "signature", "header"} {
				r.one(t, part)
			}
			archive := run(t, dir, "rpm2cpio", target.MainName)
			plain := inventoryOf(t, "plain.cpio", archive)
			for path := range want {
				if a, b := r.sum(r.one(t, name+"/opt/sample/"+path)), plain.sum(plain.one(t, "opt/sample/"+path)); a != b {
					t.Errorf("%s: %s in the package, %s in the archive of rpm2cpio", path, a, b)
				}
			}

			content, err := os.ReadFile(filepath.Join(dir, target.MainName))
			if err != nil {
				t.Fatal(err)
			}
			content[len(content)-1] ^= 1 // no longer what the header declares
			if _, err = tryInventory(t, placeFile(t, content), "bad.rpm", artifact.PolicyFail); err == nil {
				t.Error("a payload with another digest passed")
			}
			bad, err := tryInventory(t, placeFile(t, content), "bad.rpm", artifact.PolicyRecord)
			if err != nil || len(bad.Contradictions) != 1 || bad.Contradictions[0].LogicalPath != name {
				t.Errorf("%v %+v", err, bad)
			}
		})
	}
}

// Zip members by every method that another program here writes.
func TestZipMethods(t *testing.T) {
	python := func(method string) []string {
		return []string{"python3", "-c", "import os,zipfile\nz=zipfile.ZipFile('../out','w',zipfile." + method + ")\n" +
			"[z.write(os.path.join(d,f)[2:]) for d,_,fs in os.walk('.') for f in fs]\nz.close()"}
	}
	for name, command := range map[string][]string{
		"7z Deflate64": {"sh", "-c", "7z a -tzip -mm=Deflate64 ../out.zip . >/dev/null && mv ../out.zip ../out"},
		"7z BZip2":     {"sh", "-c", "7z a -tzip -mm=BZip2 ../out.zip . >/dev/null && mv ../out.zip ../out"},
		"7z LZMA":      {"sh", "-c", "7z a -tzip -mm=LZMA ../out.zip . >/dev/null && mv ../out.zip ../out"},
		"python bzip2": python("ZIP_BZIP2"),
		"python lzma":  python("ZIP_LZMA"),
	} {
		t.Run(name, func(t *testing.T) {
			dir, want := packed(t, command...)
			wantBelow(t, dir, "a.zip", "", want).wantFiles(t, want)
		})
	}
	dir := t.TempDir()
	text := strings.Repeat("text of the member, ", 999)
	write(t, dir+"/text", text)
	z := newZip("", false)
	for method, command := range map[uint16]string{93: "zstd", 20: "zstd", 95: "xz", 12: "bzip2"} {
		z.add(zipEntry{name: fmt.Sprint(method), data: []byte(text), method: method, raw: run(t, dir, command, "-c", "text")})
		z.add(zipEntry{name: fmt.Sprint(method, "cut"), data: []byte(text), method: method, raw: run(t, dir, command, "-c", "text")[:40]})
		z.add(zipEntry{name: fmt.Sprint(method, "none"), data: []byte(text), method: method, raw: []byte{}})
	}
	z.add(zipEntry{name: "ppmd", data: []byte(text), method: 98, raw: []byte("x")})
	r := inventoryOf(t, "a.zip", z.bytes())
	sum := sha([]byte(text))
	r.wantFiles(t, map[string]string{"93": sum, "20": sum, "95": sum, "12": sum})
	wantSays(t, "ppmd", r.one(t, "ppmd").Limitations, "method 98 (ppmd)")
}

// Long runs are where Deflate64 differs; 7z writes them, and a window of 64 KiB, into this one.
func TestDeflate64Runs(t *testing.T) {
	dir := t.TempDir()
	noise := make([]byte, 60<<10)
	rand.Read(noise)
	content := strings.Repeat("\x00", 3<<20) + string(noise) + strings.Repeat("ab", 1<<19) + string(noise)
	write(t, dir+"/runs", content)
	run(t, dir, "7z", "a", "-tzip", "-mm=Deflate64", "-mx=9", "out.zip", "runs")
	packed, err := os.ReadFile(dir + "/out.zip")
	if err != nil {
		t.Fatal(err)
	}
	inventoryOf(t, "a.zip", packed).wantFiles(t, map[string]string{"runs": sha([]byte(content))})
}

// Extensions of both versions, their headers by hand from the description of the format.
func TestCRX(t *testing.T) {
	le := binary.LittleEndian
	v3 := append(le.AppendUint32([]byte("Cr24\x03\x00\x00\x00"), 6), "header"...)
	v2 := append(le.AppendUint32(le.AppendUint32([]byte("Cr24\x02\x00\x00\x00"), 3), 4), "keysign"...)
	want := map[string]string{"manifest.json": sha([]byte("{}"))}
	for name, prefix := range map[string][]byte{"v2": v2, "v3": v3} {
		r := inventoryOf(t, "a.crx", newZip(string(prefix), false).file("manifest.json", "{}").bytes())
		r.wantFiles(t, want)
		r.wantCoverage(t, artifact.CoverageComplete)
		if r.Manifest.RootFormat != artifact.FormatCRX || r.Containers[0].Regions[0].Length != int64(len(prefix)) || len(r.one(t, ".").Limitations) > 0 {
			t.Errorf("%s: %+v %+v", name, r.Manifest, r.Containers)
		}
	}
	r := inventoryOf(t, "a.crx", newZip(string(v3)+"more", false).file("manifest.json", "{}").bytes())
	wantSays(t, "more", r.one(t, ".").Limitations, "18 bytes", "22")
	outer := inventoryOf(t, "a.zip", newZip("", false).file("x.crx", string(newZip(string(v2), false).file("manifest.json", "{}").bytes())).bytes())
	outer.wantFiles(t, map[string]string{"x.crx/manifest.json": want["manifest.json"], "x.crx": outer.sum(outer.one(t, "x.crx"))})
}
