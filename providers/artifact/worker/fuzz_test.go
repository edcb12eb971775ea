package worker

import (
	"bytes"
	"encoding/json"
	"errors"
	"os/exec"
	"strings"
	"testing"

	"rea/evidence/fault"
	"rea/providers/artifact"
)

// FuzzInventory gives whole files to the operation, under names that choose readers. Whatever the bytes are, it ends
// with a result that is JSON and whose digest of the root is right, or with an error of the taxonomy.
func FuzzInventory(f *testing.F) {
	z := newZip("", false).file("a.txt", "alpha\n").add(zipEntry{name: "b", data: bytes.Repeat([]byte("b"), 500), method: 8}).file("c.tar", string(append(tarFile("x", "y"), tarEnd...)))
	z.comment = "comment"
	f.Add("a.zip", z.bytes())
	f.Add("a.bin", newZip("#!prefix\n", false).file("n.zip", string(z.bytes())).bytes())
	f.Add("a.asar", asarArchive(files(field{"f", asarFile("data", 0)}, field{"u", asarUnpacked("x")}, field{"l", object{{"link", "f"}}}), "data"))
	f.Add("a.tar", bytes.Join([][]byte{tarMember("p", "25 path=p\xc3\xa4x/renamed.txt\n", 'x', ""), tarFile("a", "a"), tarMember("h", "", '1', "a"), tarHeader("s", 0, 'S', "", 0o644), tarEnd}, nil))
	f.Add("a.tgz", storedGzip(append(tarFile("a", "a"), tarEnd...)))
	f.Add("a.gz", append(storedGzip([]byte("x")), "tail"...))
	f.Add("fat", fatMachO(machO(7, 1), machO(12, 2))[:8600])
	f.Add("a.deb", append([]byte("!<arch>\n"), arMember("debian-binary", "2.0\n", 4)...))
	f.Add("a.cpio", bytes.Join([][]byte{newc("a", 0o100644, 2, 0, 0, ""), newc("b", 0o100644, 2, 1, 'x', "x"), newc("l", 0o120777, 1, 1, 'a', "a"), newc("TRAILER!!!", 0, 1, 0, 0, "")}, nil))
	f.Add("a.cpio.gz", storedGzip(append(newc("a", 0o100644, 1, 1, 'x', "x"), newc("TRAILER!!!", 0, 1, 0, 0, "")...)))
	f.Add("a.crx", newZip("Cr24\x03\x00\x00\x00\x02\x00\x00\x00xx", false).file("manifest.json", "{}").bytes())
	f.Add("a.7z", sevenHeader([]byte("data"), []byte("\x01\x04\x06\x00\x01\x09\x04\x00\x07\x0b\x01\x00\x01\x01\x00\x0c\x04\x00\x00\x05\x01\x11\x05\x00x\x00\x00\x00\x00\x00")))
	f.Add("a.cab", cabinet(1, []cabFile{{"a", 4, 0, 0}, {"b", 1, 2, 0}}, append([]byte("CK"), deflated([]byte("data"))...), 4))
	f.Add("a.pkg", xarArchive("<xar><toc>"+xarFile("d", "directory", xarFile("x", "file", xarData(0, 4, 4, "sha1", "00")))+"</toc></xar>", "data"))
	for _, name := range []string{"bzip2", "xz", "zstd", "lzma"} {
		if path, err := exec.LookPath(name); err == nil {
			cmd := exec.Command(path, "-c")
			cmd.Stdin = strings.NewReader(string(tarFile("a", "a")) + string(tarEnd))
			if out, err := cmd.Output(); err == nil {
				f.Add("a."+name, out)
			}
		}
	}
	f.Fuzz(func(t *testing.T, name string, content []byte) {
		dir := placeFile(t, content)
		for _, policy := range []artifact.Policy{artifact.PolicyFail, artifact.PolicyRecord} {
			var call fakeCall
			err := inventory(t.Context(), artifact.OpInventory, call.call(t, dir, params{Policy: policy, Name: strings.ToValidUTF8(name, "?")}))
			if err != nil {
				var fe *fault.Error
				if !errors.As(err, &fe) || fe.Code == fault.ExecutionFailure {
					t.Fatal(err)
				}
				continue
			}
			var r result
			if err := json.Unmarshal(call.result.Bytes(), &r); err != nil {
				t.Fatal(err)
			}
			if r.Manifest.RootSHA256 != sha(content) || r.Manifest.OccurrenceCount != int64(len(r.Occurrences)) {
				t.Fatalf("%+v", r.Manifest)
			}
		}
	})
}

// FuzzEscapePath: an escaped path is one that a graph can hold, and plain names stay as they are.
func FuzzEscapePath(f *testing.F) {
	for _, s := range []string{"a/b", "", "//", "../x", "C:", "\xff%"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, name []byte) {
		path, plain := escapePath(split(name))
		if plain && path != string(name) {
			t.Fatalf("%q changes to %q and is called plain", name, path)
		}
		b := artifact.NewBuilder(artifact.Root{Format: artifact.FormatZip})
		if _, err := b.Add(artifact.Entry{Path: path, EntryKind: artifact.EntryFile}); err != nil && len(path) <= artifact.MaxPath {
			t.Fatal(err)
		}
	})
}
