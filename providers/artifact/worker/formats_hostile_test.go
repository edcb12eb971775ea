package worker

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"rea/providers/artifact"
)

// Bombs of the formats that decode many members from one block: the guards on ratio and on all bytes name themselves, and
// what stood before is kept.
func TestSolidBombs(t *testing.T) {
	const size = 512 << 20
	dir := t.TempDir()
	write(t, dir+"/first", "first\n")
	f, err := os.Create(dir + "/zeros")
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(size); err != nil { // sparse: nothing is written
		t.Fatal(err)
	}
	f.Close()
	run(t, dir, "7z", "a", "-m0=BZip2", "-mx=1", "-mqs=off", "bomb.7z", "first", "zeros") // 1:20000 and more, where LZMA has 1:7000
	content, err := os.ReadFile(dir + "/bomb.7z")
	if err != nil {
		t.Fatal(err)
	}
	r := inventoryOf(t, "bomb.7z", content)
	if got := r.sum(r.one(t, "first")); got != sha([]byte("first\n")) {
		t.Errorf("first has %s", got)
	}
	o := r.one(t, "zeros")
	if o.HashStatus != artifact.HashNotHashed || !says(o.Limitations, "Limit compression-ratio (10000)") {
		t.Errorf("%s %q", o.HashStatus, o.Limitations)
	}
	r.wantCoverage(t, artifact.CoverageUnknown)
}

// A cabinet in which many files begin before the end of the one before: its folder is decoded a bounded number of times.
func TestCabGoesBack(t *testing.T) {
	block := bytes.Repeat([]byte("x"), 32<<10)
	var files []cabFile
	for i := range uint32(200) {
		files = append(files, cabFile{fmt.Sprint("f", i), 32 << 10, i, 0})
	}
	r := inventoryOf(t, "a.cab", cabinet(0, files, block, len(block), block, len(block)))
	want := map[string]string{}
	for i := range maxBack + 1 { // all files hold the same byte
		want[fmt.Sprint("f", i)] = sha(block)
	}
	r.wantFiles(t, want)
	wantSays(t, "f199", r.one(t, "f199").Limitations, "begins before the end")
}

// Every format cut at many places: an inventory that says so, or a refusal; never a panic, and never complete.
func TestCutEverywhere(t *testing.T) {
	whole := map[string][]byte{
		"a.deb":  append(append([]byte("!<arch>\n"), arMember("debian-binary", "2.0\n", 4)...), arMember("data.tar", string(tarFile("a", "a"))+string(tarEnd), 2048)...),
		"a.cpio": append(newc("a", 0o100644, 1, 5, 'h'+'e'+'l'+'l'+'o', "hello"), newc("TRAILER!!!", 0, 1, 0, 0, "")...),
		"a.cab":  cabinet(0, []cabFile{{"a", 4, 0, 0}}, []byte("data"), 4),
		"a.xar":  xarArchive("<xar><toc>"+xarFile("x", "file", xarData(0, 4, 4, "sha1", "a17c9aaa61e80a1bf71d0d850af4e5baa9800bbd"))+"</toc></xar>", "data"),
		"a.7z":   sevenHeader([]byte("data"), []byte("\x01\x04\x06\x00\x01\x09\x04\x00\x07\x0b\x01\x00\x01\x01\x00\x0c\x04\x00\x00\x05\x01\x11\x05\x00x\x00\x00\x00\x00\x00")),
		"a.crx":  newZip("Cr24\x03\x00\x00\x00\x02\x00\x00\x00xx", false).file("manifest.json", "{}").bytes(),
	}
	for name, content := range whole {
		inventoryOf(t, name, content).wantCoverage(t, artifact.CoverageComplete)
		for cut := 40; cut < len(content); cut += 1 + len(content)/60 {
			r, err := tryInventory(t, placeFile(t, content[:cut]), name, artifact.PolicyFail)
			if err != nil {
				continue
			}
			root := r.one(t, ".")
			if r.Coverage.Status == artifact.CoverageComplete && root.ArtifactFormat != artifact.FormatFile && !strings.HasSuffix(name, ".deb") {
				t.Errorf("%s, cut at %d of %d, passes for whole: %q", name, cut, len(content), r.paths())
			}
		}
	}
}
