package worker

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rea/evidence/fault"
	"rea/evidence/target"
	"rea/providers/artifact"
)

// sparseFile makes a file with holes, at its start and end too, and gives its bytes.
func sparseFile(t testing.TB, path string) []byte {
	t.Helper()
	content := make([]byte, 5<<20)
	for i := range 40 { // more pieces than one header has rows for
		copy(content[(i+1)*100<<10:], noise(4096, uint64(i)))
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for i := range 40 {
		at := (i + 1) * 100 << 10
		if _, err := f.WriteAt(content[at:at+4096], int64(at)); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Truncate(int64(len(content))); err != nil {
		t.Fatal(err)
	}
	return content
}

// Sparse files come out as they went in, in every form that GNU tar and bsdtar write, from archives and from streams.
func TestSparseMembers(t *testing.T) {
	for name, command := range map[string][]string{
		"gnu.tar":     {"tar", "-S", "--format=gnu", "-cf", "out", "-C", "in", "holes", "plain"},
		"pax-0.0.tar": {"tar", "-S", "--format=pax", "--sparse-version=0.0", "-cf", "out", "-C", "in", "holes", "plain"},
		"pax-0.1.tar": {"tar", "-S", "--format=pax", "--sparse-version=0.1", "-cf", "out", "-C", "in", "holes", "plain"},
		"pax-1.0.tar": {"tar", "-S", "--format=pax", "--sparse-version=1.0", "-cf", "out", "-C", "in", "holes", "plain"},
		"bsdtar.tar":  {"bsdtar", "--format", "pax", "-cf", "out", "-C", "in", "holes", "plain"},
		"gnu.tar.gz":  {"tar", "-S", "--format=gnu", "-czf", "out", "-C", "in", "holes", "plain"},
		"pax.tar.xz":  {"tar", "-S", "--format=pax", "-cJf", "out", "-C", "in", "holes", "plain"},
	} {
		t.Run(name, func(t *testing.T) {
			in := t.TempDir()
			content := sparseFile(t, in+"/holes")
			write(t, in+"/plain", "plain\n")
			dir := pack(t, in, command...)
			if !strings.HasSuffix(name, "z") {
				if info, err := os.Stat(filepath.Join(dir, target.MainName)); err != nil || info.Size() > 1<<20 {
					t.Skipf("%s wrote no sparse member here: %v bytes", command[0], info.Size())
				}
			}
			r := mustInventory(t, dir, name)
			r.wantFiles(t, map[string]string{"holes": sha(content), "plain": sha([]byte("plain\n"))})
			r.wantCoverage(t, artifact.CoverageComplete)
			if got := r.one(t, "holes").DeclaredSize; got == nil || *got != int64(len(content)) {
				t.Errorf("the declared size is not %d", len(content))
			}
		})
	}
}

// pax makes the header with records that stands before a member.
func pax(records ...string) []byte {
	var b strings.Builder
	for _, r := range records {
		n := len(r) + 3
		for len(fmt.Sprint(n))+len(r)+2 != n {
			n++
		}
		fmt.Fprintf(&b, "%d %s\n", n, r)
	}
	return tarMember("pax", b.String(), 'x', "")
}

// A map that lies concerns its member only. The maps are made by hand after the GNU manual's "Storing Sparse Files".
func TestSparseMapsThatLie(t *testing.T) {
	for name, c := range map[string]struct{ header, says string }{
		"beyond":     {string(pax("GNU.sparse.size=10", "GNU.sparse.map=8,5")), "leaves the file"},
		"overlap":    {string(pax("GNU.sparse.size=100", "GNU.sparse.map=8,3,9,2")), "overlaps"},
		"short":      {string(pax("GNU.sparse.size=100", "GNU.sparse.map=8,3")), "3 bytes, and 5 are stored"},
		"words":      {string(pax("GNU.sparse.size=100", "GNU.sparse.map=a,b")), "no number"},
		"no size":    {string(pax("GNU.sparse.map=0,5")), "size is not recorded"},
		"version":    {string(pax("GNU.sparse.major=7", "GNU.sparse.size=5")), "form is not read"},
		"no map":     {string(pax("GNU.sparse.major=1", "GNU.sparse.minor=0", "GNU.sparse.realsize=5", "GNU.sparse.name=x")), "no number"},
		"huge pairs": {string(pax("GNU.sparse.size=9223372036854775807", "GNU.sparse.map=9223372036854775806,9223372036854775807")), "leaves the file"},
	} {
		content := bytes.Join([][]byte{[]byte(c.header), tarFile("x", "12345"), tarFile("after", "after\n"), tarEnd}, nil)
		r := inventoryOf(t, "s.tar", content)
		if got := r.one(t, "x"); got.HashStatus != artifact.HashUnavailable || !says(got.Limitations, c.says) {
			t.Errorf("%s: %s, %q", name, got.HashStatus, got.Limitations)
		}
		r.wantCoverage(t, artifact.CoverageUnknown)
		if got := r.sum(r.one(t, "after")); got != sha([]byte("after\n")) {
			t.Errorf("%s: the member behind it has %s", name, got)
		}
	}
}

// A sparse member of 2^62 bytes with nothing stored meets a guard, at once.
func TestSparseBomb(t *testing.T) {
	content := bytes.Join([][]byte{pax("GNU.sparse.size=4611686018427387904", "GNU.sparse.map="), tarFile("x", ""), tarEnd}, nil)
	r := inventoryOf(t, "s.tar", content)
	if got := r.one(t, "x"); got.HashStatus == artifact.HashVerified {
		t.Errorf("%+v", got)
	}
	r.wantCoverage(t, artifact.CoverageUnknown)
}

// ociImage makes what docker save writes: blobs under their digests, one of them a layer with whiteouts.
func ociImage(t testing.TB, lie bool) (image []byte, layer string) {
	t.Helper()
	inner := bytes.Join([][]byte{tarFile("etc/app.conf", "conf\n"), tarFile("etc/.wh.old.conf", ""), tarFile("var/.wh..wh..opq", ""), tarEnd}, nil)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write(inner)
	_ = z.Close()
	layer = sha(packed.Bytes())
	config := []byte(`{"architecture":"amd64"}`)
	name := sha(config)
	if lie {
		name = sha([]byte("another config"))
	}
	manifest, _ := json.Marshal([]map[string]any{{"Config": "blobs/sha256/" + name, "Layers": []string{"blobs/sha256/" + layer}}})
	return bytes.Join([][]byte{
		tarFile("blobs/sha256/"+layer, packed.String()), tarFile("blobs/sha256/"+name, string(config)),
		tarFile("manifest.json", string(manifest)), tarFile("oci-layout", `{"imageLayoutVersion":"1.0.0"}`), tarEnd,
	}, nil), layer
}

// The layers of an image are expanded in place, and their whiteouts are named.
func TestContainerImage(t *testing.T) {
	image, layer := ociImage(t, false)
	r := inventoryOf(t, "image.tar", image)
	r.wantCoverage(t, artifact.CoverageComplete)
	path := "blobs/sha256/" + layer
	if got := r.sum(r.one(t, path)); got != layer {
		t.Errorf("the layer has %s, want %s", got, layer)
	}
	if got := r.sum(r.one(t, path+"/etc/app.conf")); got != sha([]byte("conf\n")) {
		t.Errorf("a file of the layer has %s", got)
	}
	wantSays(t, "whiteout", r.one(t, path+"/etc/.wh.old.conf").Limitations, `"old.conf"`, "takes")
	wantSays(t, "opaque whiteout", r.one(t, path+"/var/.wh..wh..opq").Limitations, "its directory")
}

// A blob that has not the digest of its name is a contradiction, as any declared digest is.
func TestContainerImageThatLies(t *testing.T) {
	image, _ := ociImage(t, true)
	dir := placeFile(t, image)
	if _, err := tryInventory(t, dir, "image.tar", artifact.PolicyFail); err == nil {
		t.Error("a blob under a false name passes")
	} else {
		wantFault(t, err, fault.ArtifactIntegrityMismatch, map[string]any{"declared_sha256": sha([]byte("another config"))})
	}
	r, err := tryInventory(t, dir, "image.tar", artifact.PolicyRecord)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Contradictions) != 1 || r.Contradictions[0].ObservedSHA256 != sha([]byte(`{"architecture":"amd64"}`)) {
		t.Errorf("%+v", r.Contradictions)
	}
}
