package worker

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"rea/providers/artifact"
)

// elfProgram is a program whose linker ended it with its section headers.
func elfProgram(t testing.TB) []byte {
	t.Helper()
	for _, name := range []string{"true", "sh", "unzip"} {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		b, err := os.ReadFile(path)
		if err == nil && len(b) > 64 && string(b[:4]) == "\x7fELF" && elfEnd(b[:64]) == int64(len(b)) {
			return b
		}
	}
	t.Skip("no program here ends with its section headers")
	return nil
}

// An AppImage of type 2 is an ELF program, the mark of the AppImage specification in it, and a squashfs image behind it.
func TestAppImage(t *testing.T) {
	imageTool(t, "mksquashfs")
	in, want := shortFiles(t)
	image := pack(t, in, "mksquashfs", "in", "out", "-quiet", "-no-progress")
	squash, err := os.ReadFile(image + "/artifact")
	if err != nil {
		t.Fatal(err)
	}
	program := elfProgram(t)
	copy(program[8:], "AI\x02")
	dir := placeFile(t, append(program[:len(program):len(program)], squash...))
	r := mustInventory(t, dir, "App.AppImage")
	r.wantFiles(t, want)
	r.wantCoverage(t, artifact.CoverageComplete)
	root := r.one(t, ".")
	if root.ArtifactFormat != artifact.FormatAppImage || root.ArtifactKind != artifact.KindExecutable {
		t.Errorf("the root is %s, %s", root.ArtifactFormat, root.ArtifactKind)
	}
	if len(r.Containers) != 1 || len(r.Containers[0].Regions) != 1 || r.Containers[0].Regions[0].SHA256 != sha(program) {
		t.Errorf("%+v", r.Containers)
	}
	x, err := tryExtract(t, dir, "App.AppImage", artifact.PolicyFail)
	if err != nil {
		t.Fatal(err)
	}
	if got := sha([]byte(x.files["dir/b.txt"])); got != want["dir/b.txt"] {
		t.Errorf("extracted dir/b.txt has %s", got)
	}
}

// What a program carries behind its own bytes is named, at the root and inside.
func TestSelfExtracting(t *testing.T) {
	program := elfProgram(t)
	with := append(program[:len(program):len(program)], newZip("", false).file("a", "a").bytes()...)
	r := inventoryOf(t, "setup", with)
	if got := r.Manifest.RootFormat; got != artifact.FormatELF {
		t.Errorf("root format %s", got)
	}
	wantSays(t, "root", r.one(t, ".").Limitations, "zip archive", "not looked into")
	r = inventoryOf(t, "a.zip", newZip("", false).file("setup", string(with)).file("plain", string(program)).bytes())
	wantSays(t, "inside", r.one(t, "setup").Limitations, "zip archive")
	if says(r.one(t, "plain").Limitations, "not looked into") {
		t.Errorf("a plain program: %q", r.one(t, "plain").Limitations)
	}
	r = inventoryOf(t, "x.run", []byte("#!/bin/sh\n# This script was generated using Makeself 2.4.0\n\x1f\x8b"))
	wantSays(t, "makeself", r.one(t, ".").Limitations, "makeself")
}

// A PE image with an archive behind its last section, by hand after the PE format's description: two sections, the
// later one first in the file.
func TestSelfExtractingPE(t *testing.T) {
	b := make([]byte, 0x600)
	copy(b, "MZ")
	b[0x3c] = 0x80
	copy(b[0x80:], "PE\x00\x00\x64\x86\x02\x00")
	b[0x80+20] = 0x10 // size of the optional header
	table := b[0x80+24+0x10:]
	copy(table[16:], "\x00\x02\x00\x00\x00\x04\x00\x00")    // 0x200 bytes at 0x400
	copy(table[40+16:], "\x00\x02\x00\x00\x00\x02\x00\x00") // 0x200 bytes at 0x200
	r := inventoryOf(t, "setup.exe", append(b, "\x00\x00\x00\x00\xef\xbe\xad\xdeNullsoftInst rest"...))
	if got := r.Manifest.RootFormat; got != artifact.FormatPE {
		t.Errorf("root format %s", got)
	}
	wantSays(t, "NSIS", r.one(t, ".").Limitations, "from 1536 on", "NSIS")
}

// Volumes of split archives are named: those that zip makes, and those of other programs by their names.
func TestVolumes(t *testing.T) {
	imageTool(t, "zip")
	dir := t.TempDir()
	write(t, dir+"/in", noise(300_000, 5))
	write(t, dir+"/small", "small\n")
	run(t, dir, "zip", "-q", "-s", "100k", "x.zip", "in", "small")
	read := func(name string) *result {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		r := inventoryOf(t, name, b)
		r.wantCoverage(t, artifact.CoverageUnknown)
		return r
	}
	r := read("x.zip")
	wantSays(t, "last", r.one(t, ".").Limitations, "last of 3 volumes")
	wantSays(t, "member elsewhere", r.one(t, "in").Limitations, "volume 1 of 3")
	if got := r.sum(r.one(t, "small")); got != sha([]byte("small\n")) {
		t.Errorf("the member that is in this volume has %s", got)
	}
	wantSays(t, "first", read("x.z01").one(t, ".").Limitations, "first volume")
	wantSays(t, "second", read("x.z02").one(t, ".").Limitations, "one volume")
	for name, want := range map[string]bool{
		"a.7z.001": true, "a.zip.002": true, "a.r17": true, "a.part03.rar": true, "a.z99": true, "a.rar": false, "a.1": false,
		"a.001x": false, "001": false, "a.zip": false, "a.part.rar": false,
	} {
		if isVolume(name) != want {
			t.Errorf("%s: %v", name, !want)
		}
	}
}
