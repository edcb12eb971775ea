package worker

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rea/evidence/target"
	"rea/providers/artifact"
)

// A compound file with storages, written by libgsf: the streams are those that were put in.
func TestCompoundFile(t *testing.T) {
	in, want := shortFiles(t)
	want["dir/mini"] = sha([]byte(strings.Repeat("m", 4095)))
	write(t, in+"/dir/mini", strings.Repeat("m", 4095)) // the largest that goes into the mini stream
	imageTool(t, "gsf")
	run(t, in, "gsf", "createole", "../out", "a.txt", "empty", "dir")
	content, err := os.ReadFile(filepath.Dir(in) + "/out")
	if err != nil {
		t.Fatal(err)
	}
	dir := placeFile(t, content)
	r := mustInventory(t, dir, "x.doc")
	r.wantFiles(t, want)
	r.wantCoverage(t, artifact.CoverageComplete)
	if r.Manifest.RootFormat != artifact.FormatOLE {
		t.Errorf("root format %s", r.Manifest.RootFormat)
	}
	x, err := tryExtract(t, dir, "x.doc", artifact.PolicyFail)
	if err != nil {
		t.Fatal(err)
	}
	for path, sum := range want {
		if got := sha([]byte(x.files[path])); got != sum {
			t.Errorf("extracted %s has %s, want %s", path, got, sum)
		}
	}
}

const wixSource = `<?xml version="1.0"?><Wix xmlns="http://schemas.microsoft.com/wix/2006/wi">
<Product Name="T" Id="ABCDDCBA-86C7-4D14-AEC0-86416A69ABDE" UpgradeCode="ABCDDCBA-7349-453F-94F6-BCB5110BA4FD" Language="1033" Version="1.0.0" Manufacturer="M">
<Package Id="*" Description="d" Manufacturer="M" InstallerVersion="100" Languages="1033" Compressed="yes"/>
<Media Id="1" Cabinet="Sample.cab" EmbedCab="yes"/>
<Directory Id="TARGETDIR" Name="SourceDir"><Component Id="C" Guid="ABCDDCBA-83F1-4F22-985B-FDB3C8ABD471"><File Id="F" Name="payload.txt" DiskId="1" Source="payload.txt" KeyPath="yes"/></Component></Directory>
<Feature Id="Complete" Level="1"><ComponentRef Id="C"/></Feature></Product></Wix>`

// An installer, written by wixl: its streams have the names and bytes that 7-Zip gives them, which writes control
// characters as numbers in brackets.
func TestInstaller(t *testing.T) {
	imageTool(t, "wixl")
	imageTool(t, "7z")
	dir := t.TempDir()
	write(t, dir+"/payload.txt", strings.Repeat("payload\n", 9000))
	write(t, dir+"/t.wxs", wixSource)
	run(t, dir, "wixl", "t.wxs", "-o", target.MainName)
	r := mustInventory(t, dir, "setup.msi")
	r.wantCoverage(t, artifact.CoverageComplete)
	if r.Manifest.RootFormat != artifact.FormatMSI {
		t.Errorf("root format %s", r.Manifest.RootFormat)
	}
	out := t.TempDir()
	run(t, out, "7z", "x", "-tCompound", filepath.Join(dir, target.MainName))
	files, err := os.ReadDir(out)
	if err != nil || len(files) < 10 {
		t.Fatalf("7z gives %d streams, %v", len(files), err)
	}
	for _, f := range files {
		content, err := os.ReadFile(filepath.Join(out, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if got := r.sum(r.one(t, strings.Replace(f.Name(), "[5]", "\x05", 1))); got != sha(content) {
			t.Errorf("%q: SHA-256 %s, want %s", f.Name(), got, sha(content))
		}
	}
	if top := strings.Count(strings.Join(r.paths(), "\n"), "\n") + 1; top < len(files)+1 {
		t.Errorf("%d occurrences, 7z gives %d streams", top, len(files))
	}
}
