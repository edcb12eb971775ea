package worker

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"rea/evidence/target"
	"rea/providers/artifact"
	"rea/providers/artifact/worker/imagetest"
)

// hfsVolume lets xorriso make an HFS Plus volume, which it puts into the middle of an ISO 9660 image.
func hfsVolume(t testing.TB) (volume []byte, want map[string]string) {
	t.Helper()
	imageTool(t, "xorriso")
	in, want := shortFiles(t)
	want["dir/u\u0308ni\u0308 ☃.txt"] = want["dir/ünï ☃.txt"] // the file system takes letters and accents apart
	delete(want, "dir/ünï ☃.txt")
	if err := os.Symlink("../a.txt", in+"/dir/link"); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(in+"/a.txt", 0o755); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	run(t, dir, "xorriso", "-as", "mkisofs", "-quiet", "-hfsplus", "-o", "out", in)
	image, err := os.ReadFile(dir + "/out")
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(image, []byte("H+\x00\x04"))
	if at < 1024 {
		t.Fatal("xorriso made no HFS Plus volume")
	}
	h := image[at:]
	size := int(binary.BigEndian.Uint32(h[40:])) * int(binary.BigEndian.Uint32(h[44:]))
	return image[at-1024:][:size], want
}

// filter packs with a program.
func filter(t testing.TB, name string, args ...string) func([]byte) []byte {
	return func(b []byte) []byte {
		imageTool(t, name)
		cmd := exec.Command(name, args...)
		cmd.Stdin = bytes.NewReader(b)
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
}

func zlibPacked(b []byte) []byte {
	var out bytes.Buffer
	w := zlib.NewWriter(&out)
	_, _ = w.Write(b)
	_ = w.Close()
	return out.Bytes()
}

// adcPacked uses literals and both forms of matches.
func adcPacked(b []byte) (out []byte) {
	for at := 0; at < len(b); {
		n := 0
		for at > 0 && n < 67 && at+n < len(b) && b[at+n] == b[at-1] {
			n++
		}
		switch {
		case n >= 19:
			out = append(out, 0x40|byte(n-4), 0, 0)
			at += n
		case n >= 3:
			n = min(n, 18)
			out = append(out, byte(n-3)<<2, 0)
			at += n
		default:
			out = append(out, 0x80, b[at])
			at++
		}
	}
	return out
}

// What a disk image's partitions hold, and the files of the volume in one of them, are those that 7-Zip takes out of
// the same image.
func TestDiskImages(t *testing.T) {
	imageTool(t, "7z")
	volume, want := hfsVolume(t)
	for len(volume)%512 != 0 {
		volume = append(volume, 0)
	}
	same := func(b []byte) []byte { return b }
	for name, runs := range map[string][]imagetest.Run{
		"stored": imagetest.Packed(volume, 512, 1, same),
		"zlib":   imagetest.Packed(volume, 512, 0x80000005, zlibPacked),
		"bzip2":  imagetest.Packed(volume, 512, 0x80000006, filter(t, "bzip2", "-c")),
		"lzfse":  imagetest.Packed(volume, 2048, 0x80000007, imagetest.LZFSE),
		"lzvn":   imagetest.Packed(volume, 512, 0x80000007, imagetest.InLZVN),
		"plain":  imagetest.Packed(volume, 512, 0x80000007, imagetest.Plain),
		"xz":     imagetest.Packed(volume, 1024, 0x80000008, filter(t, "xz", "-c", "--check=none")),
		"adc":    imagetest.Packed(volume, 512, 0x80000004, adcPacked),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			zeros := imagetest.Run{Kind: 2, Sectors: 300}
			map0 := make([]byte, 512*2)
			copy(map0, "ER\x02\x00")
			image := imagetest.DMG(
				imagetest.Partition{Name: "Driver Descriptor Map (DDM : 0)", Data: map0, Runs: imagetest.Packed(map0, 512, 1, same)},
				imagetest.Partition{Name: "disk image (Apple_HFS : 4)", Data: volume, Runs: runs},
				imagetest.Partition{Name: " (Apple_Free : 5)", Runs: []imagetest.Run{zeros}},
			)
			dir := placeFile(t, image)
			r := mustInventory(t, dir, "x.dmg")
			r.wantCoverage(t, artifact.CoverageComplete)
			if r.Manifest.RootFormat != artifact.FormatDMG {
				t.Errorf("root format %s", r.Manifest.RootFormat)
			}
			prefix := "disk image (Apple_HFS : 4)"
			if got := r.one(t, prefix); r.sum(got) != sha(volume) || got.ArtifactFormat != artifact.FormatHFSPlus {
				t.Errorf("the partition is a %s with %s, want %s", got.ArtifactFormat, r.sum(got), sha(volume))
			}
			for path, sum := range want {
				if got := r.sum(r.one(t, prefix+"/"+path)); got != sum {
					t.Errorf("%s: SHA-256 %s, want %s", path, got, sum)
				}
			}
			if !r.one(t, prefix+"/a.txt").Executable {
				t.Error("the executable bit is lost")
			}
			wantSays(t, "link", r.one(t, prefix+"/dir/link").Limitations, `"../a.txt"`)

			if name == "plain" { // 7-Zip does not end where a plain block does, for blocks above 256 bytes
				return
			}
			out := t.TempDir()
			run(t, out, "7z", "x", "-tDmg", filepath.Join(dir, target.MainName))
			files, err := filepath.Glob(out + "/*hfs*")
			if err != nil || len(files) != 1 {
				all, _ := os.ReadDir(out)
				t.Fatalf("7z gives no partition with the volume: %v", all)
			}
			if got, err := os.ReadFile(files[0]); err != nil || !bytes.Equal(got, volume) {
				t.Errorf("7z reads another volume out of the image (%v)", err)
			}
			x, err := tryExtract(t, dir, "x.dmg", artifact.PolicyFail)
			if err != nil {
				t.Fatal(err)
			}
			if got := sha([]byte(x.files[prefix+"!/dir/b.txt"])); got != want["dir/b.txt"] {
				t.Errorf("extracted dir/b.txt has %s", got)
			}
		})
	}
}

// A disk image is found at any place, by its trailer: inside archives that must be unpacked and inside streams.
func TestDiskImageInside(t *testing.T) {
	volume, want := hfsVolume(t)
	image := imagetest.DMG(imagetest.Partition{Name: "disk (Apple_HFS : 1)", Data: volume, Runs: imagetest.Packed(volume, 512, 0x80000005, zlibPacked)})
	stored := newZip("", false).file("d/x", string(image)).bytes()
	deflated := newZip("", false).add(zipEntry{name: "d/x", data: image, method: 8}).bytes()
	tarred := filter(t, "gzip", "-c")(append(tarFile("d/x.dmg", string(image)), tarEnd...))
	for name, content := range map[string][]byte{"a.zip": stored, "b.zip": deflated, "c.tgz": tarred} {
		path := "d/x"
		if name == "c.tgz" {
			path = "d/x.dmg"
		}
		r := inventoryOf(t, name, content)
		if got := r.one(t, path).ArtifactFormat; got != artifact.FormatDMG {
			t.Errorf("%s: %s is %s", name, path, got)
		}
		if got := r.sum(r.one(t, path+"/disk (Apple_HFS : 1)/dir/b.txt")); got != want["dir/b.txt"] {
			t.Errorf("%s: a file of the volume has %s", name, got)
		}
	}
}
