package worker

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"rea/evidence/target"
	"rea/providers/artifact"
)

// imageTool finds a program that makes images. Where REA_TEST_REQUIRE is set its absence is a failure.
func imageTool(t testing.TB, name string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		if os.Getenv("REA_TEST_REQUIRE") != "" {
			t.Fatalf("%s is not installed and REA_TEST_REQUIRE is set", name)
		}
		t.Skipf("%s is not installed", name)
	}
}

// shortFiles is a tree whose names every image format can hold.
func shortFiles(t testing.TB) (dir string, want map[string]string) {
	t.Helper()
	dir = t.TempDir()
	want = map[string]string{}
	for name, content := range map[string]string{
		"a.txt": "alpha\n", "empty": "", "dir/b.txt": strings.Repeat("beta\n", 50_000), "dir/sub/zeros.bin": strings.Repeat("\x00", 700_000),
		"dir/ünï ☃.txt": "snow\n", "dir/noise": noise(300_001, 1), "dir/sub/exact": noise(131_072, 2),
	} {
		write(t, filepath.Join(dir, name), content)
		want[name] = sha([]byte(content))
	}
	return dir, want
}

// noise is text that does not compress, the same for the same seed.
func noise(n int, seed uint64) string {
	b := make([]byte, n)
	for i := range b {
		seed = seed*6364136223846793005 + 1442695040888963407
		b[i] = byte(seed >> 56)
	}
	return string(b)
}

// pack lets another program make an image of dir/in at dir/out, and gives a target directory that holds it.
func pack(t testing.TB, in string, command ...string) (dir string) {
	t.Helper()
	imageTool(t, command[0])
	dir = t.TempDir()
	if err := os.Rename(in, dir+"/in"); err != nil {
		t.Fatal(err)
	}
	run(t, dir, command[0], command[1:]...)
	if err := os.Rename(dir+"/out", filepath.Join(dir, target.MainName)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// What other programs put into an image is read back, and what is extracted is what was put in.
func TestImagesOfOtherPrograms(t *testing.T) {
	squash := func(args ...string) []string {
		return append([]string{"mksquashfs", "in", "out", "-quiet", "-no-progress"}, args...)
	}
	for name, command := range map[string][]string{
		"gzip.squashfs":        squash("-comp", "gzip"),
		"xz.squashfs":          squash("-comp", "xz", "-b", "1M"),
		"xz-bcj.squashfs":      squash("-comp", "xz", "-Xbcj", "x86"),
		"lzo.squashfs":         squash("-comp", "lzo"),
		"lz4.squashfs":         squash("-comp", "lz4"),
		"lz4hc.squashfs":       squash("-comp", "lz4", "-Xhc"),
		"zstd.squashfs":        squash("-comp", "zstd"),
		"lzma.squashfs":        squash("-comp", "lzma"),
		"plain.squashfs":       squash("-noI", "-noD", "-noF"),
		"small-blocks.snap":    squash("-b", "4096", "-no-fragments"),
		"tails.squashfs":       squash("-always-use-fragments", "-b", "131072"),
		"rock-ridge.iso":       {"genisoimage", "-quiet", "-R", "-o", "out", "in"},
		"both.iso":             {"genisoimage", "-quiet", "-R", "-J", "-o", "out", "in"},
		"joliet.iso":           {"genisoimage", "-quiet", "-J", "-input-charset", "utf-8", "-o", "out", "in"},
		"xorriso.iso":          {"xorriso", "-as", "mkisofs", "-quiet", "-R", "-J", "-o", "out", "in"},
		"bsdtar.iso":           {"bsdtar", "--format", "iso9660", "-cf", "out", "-C", "in", "."},
		"udf-beside.iso":       {"genisoimage", "-quiet", "-R", "-udf", "-o", "out", "in"},
		"squashfs-in-tar.gz":   {"sh", "-c", "mksquashfs in image -quiet -no-progress && mkdir d && mv image d/image && tar -czf out d"},
		"rock-ridge-in-tar.xz": {"sh", "-c", "genisoimage -quiet -R -o image in && tar -cJf out image"},
	} {
		t.Run(name, func(t *testing.T) {
			if command[0] == "sh" {
				imageTool(t, "mksquashfs")
				imageTool(t, "genisoimage")
			}
			in, want := shortFiles(t)
			if err := os.Symlink("../a.txt", in+"/dir/link"); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(in+"/a.txt", 0o755); err != nil {
				t.Fatal(err)
			}
			dir := pack(t, in, command...)
			prefix := ""
			switch name {
			case "squashfs-in-tar.gz":
				prefix = "d/image/"
			case "rock-ridge-in-tar.xz":
				prefix = "image/"
			}
			r := mustInventory(t, dir, name)
			for path, sum := range want {
				if got := r.sum(r.one(t, prefix+path)); got != sum {
					t.Errorf("%s: SHA-256 %s, want %s", path, got, sum)
				}
			}
			r.wantCoverage(t, artifact.CoverageComplete)
			if name != "joliet.iso" {
				if !r.one(t, prefix+"a.txt").Executable {
					t.Error("the executable bit is lost")
				}
				link := r.one(t, prefix+"dir/link")
				if link.EntryKind != artifact.EntrySymlink {
					t.Errorf("the link is a %s", link.EntryKind)
				}
				wantSays(t, "link", link.Limitations, "../a.txt")
			}
			x, err := tryExtract(t, dir, name, artifact.PolicyFail)
			if err != nil {
				t.Fatal(err)
			}
			for path, sum := range want {
				got, ok := x.files[prefix+path]
				if !ok && prefix != "" {
					got = x.files[strings.TrimSuffix(prefix, "/")+"!/"+path]
				}
				if sha([]byte(got)) != sum {
					t.Errorf("extracted %s differs", path)
				}
			}
		})
	}
}
