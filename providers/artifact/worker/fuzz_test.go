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
	for _, name := range []string{"bzip2", "xz", "zstd"} {
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
