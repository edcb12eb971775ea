package worker

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
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
