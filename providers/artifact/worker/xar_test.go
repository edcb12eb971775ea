package worker

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rea/evidence/fault"
	"rea/evidence/target"
	"rea/providers/artifact"
)

// Archives that bsdtar makes, by each of its encodings and digests.
func TestXarOfBsdtar(t *testing.T) {
	for _, options := range []string{
		"compression=none", "compression=gzip", "compression=bzip2", "compression=lzma", "compression=xz", "checksum=md5", "checksum=none,toc-checksum=none",
	} {
		t.Run(options, func(t *testing.T) {
			dir, want := packed(t, "sh", "-c", "ln a.txt hard; ln -s a.txt soft; chmod 755 dir/b.txt; bsdtar --format xar --options "+options+" -cf ../out .")
			want["hard"] = want["a.txt"]
			r := wantBelow(t, dir, "a.xar", "", want)
			r.wantFiles(t, want)
			if o := r.one(t, "soft"); o.EntryKind != artifact.EntrySymlink || !says(o.Limitations, `"a.txt"`) {
				t.Errorf("%+v", o)
			}
			if !r.one(t, "dir/b.txt").Executable || r.one(t, "a.txt").Executable || r.Manifest.RootFormat != artifact.FormatXar {
				t.Error("modes or format differ")
			}
		})
	}
}

// An installer package is a xar archive whose payload is a cpio archive in a gzip stream: both open in place.
func TestInstallerPackage(t *testing.T) {
	dir, want := packed(t, "sh", "-c", "mkdir ../p; find . -depth | cpio --quiet -o -H odc | gzip > ../p/Payload; echo '<pkg-info/>' > ../p/PackageInfo; cd ../p; bsdtar --format xar --options compression=none -cf ../out PackageInfo Payload")
	r := wantBelow(t, dir, "a.pkg", "Payload/", want)
	if r.Manifest.RootFormat != artifact.FormatPkg {
		t.Errorf("format %s", r.Manifest.RootFormat)
	}
	content, err := os.ReadFile(filepath.Join(dir, target.MainName))
	if err != nil {
		t.Fatal(err)
	}
	r = inventoryOf(t, "a.zip", newZip("", false).file("x.pkg", string(content)).file("noname", string(content)).bytes())
	if got := r.one(t, "x.pkg").ArtifactFormat; got != artifact.FormatPkg || r.one(t, "noname").ArtifactFormat != artifact.FormatXar {
		t.Errorf("%s and %s", got, r.one(t, "noname").ArtifactFormat)
	}
	r.one(t, "x.pkg/Payload/a.txt")
}

// xarArchive frames a table by hand.
func xarArchive(table, heap string) []byte {
	var packed bytes.Buffer
	z := zlib.NewWriter(&packed)
	z.Write([]byte(table))
	z.Close()
	be := binary.BigEndian
	b := be.AppendUint16(be.AppendUint16([]byte("xar!"), 28), 1)
	b = be.AppendUint64(be.AppendUint64(b, uint64(packed.Len())), uint64(len(table)))
	b = be.AppendUint32(b, 0)
	return append(append(b, packed.Bytes()...), heap...)
}

func xarFile(name, kind, data string) string {
	return "<file><name>" + name + "</name><type>" + kind + "</type>" + data + "</file>"
}

func xarData(offset, length, size int, style, sum string) string {
	return fmt.Sprintf(`<data><offset>%d</offset><length>%d</length><size>%d</size><encoding style="application/octet-stream"/><extracted-checksum style="%s">%s</extracted-checksum></data>`,
		offset, length, size, style, sum)
}

func TestXarDamage(t *testing.T) {
	good := sha([]byte("good"))
	table := func(files ...string) string { return "<xar><toc>" + strings.Join(files, "") + "</toc></xar>" }
	r := inventoryOf(t, "a.xar", xarArchive(table(
		xarFile("good", "file", xarData(0, 4, 4, "sha256", good)), xarFile("none", "file", ""), xarFile("far", "file", xarData(0, 5000, 4, "", "")),
		xarFile("big", "file", `<data><offset>99999999999999999999999999</offset><length>-1</length></data>`),
		xarFile("size", "file", xarData(0, 4, 9, "", "")), xarFile("sha1", "file", xarData(0, 4, 4, "sha1", strings.Repeat("0", 40))),
		xarFile("..", "directory", xarFile("up/x", "file", xarData(0, 4, 4, "sha256", good))),
		`<file><name enctype="base64">4pi6</name><type>file</type></file>`, `<file><type>file</type></file>`,
		`<file><name>enc</name><type>file</type><data><offset>0</offset><length>4</length><encoding style="application/x-odd"/></data></file>`,
	), "goodtail"))
	r.wantFiles(t, map[string]string{"good": good, "none": sha(nil), "%2E%2E/up%2Fx": good, "☺": sha(nil), "%": sha(nil)})
	wantSays(t, "far", r.one(t, "far").Limitations, "outside the file")
	wantSays(t, "big", r.one(t, "big").Limitations, "outside the file")
	wantSays(t, "size", r.one(t, "size").Limitations, "9 bytes declared, 4 observed")
	// openssl dgst -sha1 of "good"
	wantSays(t, "sha1", r.one(t, "sha1").Limitations, "sha1", "fc19318dd13128ce14344d066510a982269c241b")
	wantSays(t, "enc", r.one(t, "enc").Limitations, "x-odd")
	if g := r.Containers[0].Regions; len(g) != 1 || g[0].SHA256 != sha([]byte("tail")) {
		t.Errorf("%+v", g)
	}

	_, err := tryInventory(t, placeFile(t, xarArchive(table(xarFile("bad", "file", xarData(0, 4, 4, "sha256", good))), "evil")), "a.xar", artifact.PolicyFail)
	wantFault(t, err, fault.ArtifactIntegrityMismatch, map[string]any{"logical_path": "bad"})

	for what, text := range map[string]string{
		"cut":    "<xar><toc>" + xarFile("good", "file", xarData(0, 4, 4, "", "")),
		"broken": "<xar><toc>" + xarFile("good", "file", xarData(0, 4, 4, "", "")) + "<a></b>",
		"deep":   "<xar><toc>" + xarFile("good", "file", xarData(0, 4, 4, "", "")) + strings.Repeat("<a>", 100000),
	} {
		r := inventoryOf(t, "a.xar", xarArchive(text, "good"))
		r.wantFiles(t, map[string]string{"good": good})
		r.wantCoverage(t, artifact.CoverageUnknown)
		wantSays(t, what, r.one(t, ".").Limitations, "table breaks off")
	}
}
