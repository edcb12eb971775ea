package worker

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"rea/evidence/target"
	"rea/providers/artifact"
)

// sampleFiles makes a small tree for other programs to pack, and gives its files by path.
func sampleFiles(t testing.TB) (dir string, want map[string]string) {
	t.Helper()
	dir = t.TempDir()
	noise := make([]byte, 300<<10)
	rand.Read(noise)
	want = map[string]string{}
	for name, content := range map[string]string{
		"a.txt": "alpha\n", "empty": "", "dir/b.txt": strings.Repeat("beta\n", 5000), "dir/sub/noise.bin": string(noise),
		"dir/ünïcode ☃.txt": "snow\n", "dir/" + strings.Repeat("long", 40) + ".txt": "long name\n",
		strings.Repeat("deep/", 30) + "end.txt": "deep\n",
	} {
		write(t, filepath.Join(dir, name), content)
		want[name] = sha([]byte(content))
	}
	return dir, want
}

func tool(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		if os.Getenv("REA_TEST_REQUIRE") != "" {
			t.Fatalf("%s is not installed", name)
		}
		t.Skipf("%s is not installed", name)
	}
	return path
}

func run(t testing.TB, dir, name string, args ...string) []byte {
	t.Helper()
	cmd := exec.Command(tool(t, name), args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, stderr.Bytes())
	}
	return out
}

// What other programs pack is read back as what they were given. Each row packs the tree in "in" into "../out".
func TestArchivesOfOtherPrograms(t *testing.T) {
	python := func(code string) []string { return []string{"python3", "-c", code} }
	walk := "import os\nfiles=[os.path.join(d,f)[2:] for d,_,fs in os.walk('.') for f in fs]\n"
	for name, command := range map[string][]string{
		"zipfile-deflated.zip": python(walk + "import zipfile\nz=zipfile.ZipFile('../out','w',zipfile.ZIP_DEFLATED)\n[z.write(f) for f in files]\nz.close()"),
		"zipfile-stored.zip":   python(walk + "import zipfile\nz=zipfile.ZipFile('../out','w')\n[z.write(f) for f in files]\nz.close()"),
		"zipfile-zip64.zip": python(walk + "import zipfile\nz=zipfile.ZipFile('../out','w')\n" +
			"for f in files:\n  with z.open(f,'w',force_zip64=True) as w: w.write(open(f,'rb').read())\nz.close()"),
		"zipfile-stream.zip": python(walk + "import zipfile\nclass W:\n  def __init__(s): s.f=open('../out','wb')\n  def write(s,b): return s.f.write(b)\n  def flush(s): s.f.flush()\n" +
			"z=zipfile.ZipFile(W(),'w',zipfile.ZIP_DEFLATED)\n[z.write(f) for f in files]\nz.close()"),
		"7z.zip":          {"7z", "a", "-tzip", "../out.zip", "."},
		"bsdtar.zip":      {"sh", "-c", "bsdtar --format zip -cf ../out *"},
		"gnu.tar":         {"tar", "--format=gnu", "-cf", "../out", "."},
		"pax.tar":         {"tar", "--format=pax", "-cf", "../out", "."},
		"bsd-pax.tar":     {"bsdtar", "--format", "pax", "-cf", "../out", "."},
		"python-pax.tar":  python("import tarfile\nt=tarfile.open('../out','w',format=tarfile.PAX_FORMAT)\nt.add('.')\nt.close()"),
		"gnu.tar.gz":      {"tar", "--format=gnu", "-czf", "../out", "."},
		"pax.tar.bz2":     {"tar", "--format=pax", "-cjf", "../out", "."},
		"pax.tar.xz":      {"tar", "--format=pax", "-cJf", "../out", "."},
		"pax.tar.zst":     {"tar", "--format=pax", "--zstd", "-cf", "../out", "."},
		"many-frames.zst": {"sh", "-c", "tar -cf - . | split -b 100000 --filter='zstd -q -c' > ../out"},
		"streams.tar.xz":  {"sh", "-c", "tar -cf - . | split -b 100000 --filter='xz -c' > ../out"},
		"streams.tar.bz2": {"sh", "-c", "tar -cf - . | split -b 100000 --filter='bzip2 -c' > ../out"},
		"members.tar.gz":  {"sh", "-c", "tar -cf - . | split -b 100000 --filter='gzip -c' > ../out"},
	} {
		t.Run(name, func(t *testing.T) {
			in, want := sampleFiles(t)
			dir := t.TempDir()
			if err := os.Rename(in, dir+"/in"); err != nil {
				t.Fatal(err)
			}
			run(t, dir+"/in", command[0], command[1:]...)
			if _, err := os.Stat(dir + "/out"); err != nil {
				os.Rename(dir+"/out.zip", dir+"/out")
			}
			if err := os.Rename(dir+"/out", filepath.Join(dir, target.MainName)); err != nil {
				t.Fatal(err)
			}
			r := mustInventory(t, dir, name)
			r.wantFiles(t, want)
			r.wantCoverage(t, artifact.CoverageComplete)
			x, err := tryExtract(t, dir, name, artifact.PolicyFail)
			if err != nil {
				t.Fatal(err)
			}
			for path, sum := range want {
				if got := sha([]byte(x.files[path])); got != sum {
					t.Errorf("extracted %s has %s, want %s", path, got, sum)
				}
			}
			if len(x.files) != len(want) {
				t.Errorf("%d files extracted, want %d", len(x.files), len(want))
			}
		})
	}
}

// A large real archive: the module zip files of the Go cache, held against unzip.
func TestRealZips(t *testing.T) {
	tool(t, "unzip")
	cache := strings.TrimSpace(string(run(t, ".", "go", "env", "GOMODCACHE")))
	var zips []string
	filepath.WalkDir(filepath.Join(cache, "cache/download"), func(path string, d fs.DirEntry, err error) error {
		const enough = 4
		if err == nil && strings.HasSuffix(path, ".zip") && len(zips) < enough {
			if info, err := d.Info(); err == nil && info.Size() < 2<<20 {
				zips = append(zips, path)
			}
		}
		return nil
	})
	if len(zips) == 0 {
		t.Skip("the module cache holds no zip file")
	}
	for _, path := range zips {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		r := inventoryOf(t, "module.zip", content)
		dir := t.TempDir()
		run(t, dir, "unzip", "-q", path)
		found := 0
		for _, o := range r.Occurrences {
			if o.EntryKind != artifact.EntryFile || o.LogicalPath == "." {
				continue
			}
			want, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(o.LogicalPath)))
			if errors.Is(err, fs.ErrNotExist) || err != nil {
				if o.ParentOccurrenceID != nil && strings.Contains(o.LogicalPath, ".zip/") || strings.Contains(o.LogicalPath, "testdata") {
					continue // members of archives inside
				}
				t.Errorf("%s: %v", o.LogicalPath, err)
				continue
			}
			found++
			if r.sum(o) != sha(want) {
				t.Errorf("%s differs from what unzip gives", o.LogicalPath)
			}
		}
		if found == 0 {
			t.Errorf("%s: no file was compared", path)
		}
	}
}
