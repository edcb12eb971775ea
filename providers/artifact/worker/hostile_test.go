package worker

import (
	"bytes"
	"compress/bzip2"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"rea/evidence/fault"
	"rea/evidence/target"
	"rea/evidence/volume"
	"rea/providers/artifact"
)

// Escaped names, decided by hand from the contract's rule.
func TestEscapePath(t *testing.T) {
	for name, want := range map[string]string{
		"a/b.txt": "a/b.txt", "100%.txt": "100%.txt", "ü/☃": "ü/☃", "tab\t": "tab\t",
		"": "%", "/": "%2F", "//": "%2F%2F", "/etc/passwd": "%2Fetc/passwd", "a//b": "a/%2Fb", "a/": "a%2F",
		"../up": "%2E%2E/up", "./here": "%2E/here", "a/..": "a/%2E%2E", "...": "...", ".hidden": ".hidden",
		`back\slash`: "back%5Cslash", "nul\x00": "nul%00", "\xff/%": "%FF/%25", "C:x": "C%3Ax", "d:/x": "d%3A/x", "x/C:y": "x/C:y",
		`\\server\share`: "%5C%5Cserver%5Cshare", "caf\xe9": "caf%E9", "ok/\xed\xa0\x80": "ok/%ED%A0%80",
	} {
		got, plain := escapePath(split([]byte(name)))
		if got != want || plain != (want == name) {
			t.Errorf("%q becomes %q (plain %v), want %q", name, got, plain, want)
		}
	}
}

// Odd names are read and hashed, and never written.
func TestOddNames(t *testing.T) {
	dir := placeFile(t, newZip("", false).file("../up.txt", "up").file("/abs.txt", "abs").file(`a\b`, "back").file("\xff", "byte").file("fine.txt", "fine").file("", "none").bytes())
	r := mustInventory(t, dir, "odd.zip")
	r.wantFiles(t, map[string]string{
		"%2E%2E/up.txt": sha([]byte("up")), "%2Fabs.txt": sha([]byte("abs")), "a%5Cb": sha([]byte("back")), "%FF": sha([]byte("byte")),
		"fine.txt": sha([]byte("fine")), "%": sha([]byte("none")),
	})
	r.wantCoverage(t, artifact.CoverageComplete)
	wantSays(t, "up", r.one(t, "%2E%2E/up.txt").Limitations, `"../up.txt"`)
	wantSays(t, "byte", r.one(t, "%FF").Limitations, "%FF")
	x, err := tryExtract(t, dir, "odd.zip", artifact.PolicyFail)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"fine.txt": "fine"}, x.files); diff != "" || !says(x.limitations, "5 files were not written") {
		t.Errorf("%s; %q", diff, x.limitations)
	}
	_, err = tryExtract(t, dir, "odd.zip", artifact.PolicyFail, r.one(t, "%2Fabs.txt").OccurrenceID)
	wantFault(t, err, fault.ArtifactOperationFailed, map[string]any{"reason": "path"})
}

// Places below the output root, by the rule in words: distinct, unchanged where they can be.
func TestRelativePaths(t *testing.T) {
	var files []recorded
	for _, path := range []string{"a", "a", "a!", "a/b", "a/b", "a/b/c", "d/e", "f~1", "f", "f"} {
		files = append(files, recorded{path: path})
	}
	want := []string{"a", "a~1", "a!", "a!!/b", "a!!/b~1", "a!!/b!/c", "d/e", "f~1", "f", "f~2"}
	if diff := cmp.Diff(want, relativePaths(files)); diff != "" {
		t.Error(diff)
	}
}

// A member whose facts contradict each other does not take its siblings along.
func TestZipBadMembers(t *testing.T) {
	z := newZip("", false).
		add(zipEntry{name: "crc", data: []byte("data"), crc: 1}).
		add(zipEntry{name: "size", data: []byte("data"), method: 8, size: 9}).
		add(zipEntry{name: "method", data: []byte("data"), method: 97}).
		add(zipEntry{name: "local", data: []byte("data"), local: "lOcal"}).
		add(zipEntry{name: "stream", data: []byte("data"), method: 8, raw: []byte("\xff\xff\xff")}).
		add(zipEntry{name: "behind", data: []byte("data"), method: 8, raw: append(deflated([]byte("data")), "more"...)}).
		file("good", "good")
	r := inventoryOf(t, "bad.zip", z.bytes())
	for name, words := range map[string][]string{
		"crc":  {"00000001", "adf3f363"}, // CRC-32 of "data" by python3 zlib.crc32
		"size": {"9 bytes declared", "4 observed"}, "method": {"method 97"}, "local": {`"lOcal"`}, "stream": {"cannot be decoded"},
	} {
		o := r.one(t, name)
		if o.HashStatus != artifact.HashUnavailable {
			t.Errorf("%s is %s", name, o.HashStatus)
		}
		wantSays(t, name, o.Limitations, words...)
	}
	r.wantFiles(t, map[string]string{"good": sha([]byte("good")), "behind": sha([]byte("data"))})
	wantSays(t, "behind", r.one(t, "behind").Limitations, "4 bytes")
	r.wantCoverage(t, artifact.CoverageUnknown)
}

// A zip that is cut, or whose directory is broken.
func TestZipBroken(t *testing.T) {
	whole := newZip("", false).file("a", "a").file("b", "b").bytes()
	_, err := tryInventory(t, placeFile(t, whole[:len(whole)-30]), "cut.zip", artifact.PolicyFail)
	wantFault(t, err, fault.ArtifactOperationFailed, map[string]any{"reason": "format", "logical_path": "."})

	broken := bytes.Clone(whole)
	second := bytes.LastIndex(broken, []byte("PK\x01\x02"))
	broken[second] = 'X'
	r := inventoryOf(t, "broken.zip", broken)
	r.wantFiles(t, map[string]string{"a": sha([]byte("a"))})
	r.wantCoverage(t, artifact.CoverageUnknown)
	wantSays(t, "broken.zip", r.one(t, ".").Limitations, "directory is broken")

	// Inside another archive the broken one stays closed, and its siblings open.
	r = inventoryOf(t, "outer.zip", newZip("", false).file("cut.zip", string(whole[:len(whole)-30])).file("whole.zip", string(whole)).bytes())
	wantSays(t, "cut.zip", r.one(t, "cut.zip").Limitations, "could not be opened")
	r.wantCoverage(t, artifact.CoverageUnknown)
	if got := r.sum(r.one(t, "whole.zip/b")); got != sha([]byte("b")) {
		t.Errorf("whole.zip/b has %s", got)
	}
}

// Many entries that share one run of compressed zeros (an overlapping bomb): the guard on all bytes stops it.
func TestOverlappingBomb(t *testing.T) {
	raw, crc := zeros(16 << 20)
	z := newZip("", false).file("first.txt", "first\n")
	for i := range 200 {
		z.add(zipEntry{name: "z000", method: 8, raw: raw, size: 16 << 20, crc: crc, skipData: i > 0})
		if i > 0 { // all point at the header of the first
			binary.LittleEndian.PutUint32(z.dir[len(z.dir)-4-4:], uint32(len(z.b)-len(raw)-30-4))
		}
	}
	content := z.bytes()
	r := inventoryOf(t, "bomb.zip", content)
	limit := int64(1<<30 + 100*len(content))
	wantSays(t, "bomb.zip", r.Limitations, "produced-bytes", fmt.Sprint(limit))
	r.wantCoverage(t, artifact.CoverageUnknown)
	if got := r.sum(r.one(t, "first.txt")); got != sha([]byte("first\n")) {
		t.Errorf("first.txt has %s", got)
	}
	found := r.at("z000")
	if whole := int(limit >> 24); len(found) != whole+1 || found[whole].HashStatus != artifact.HashNotHashed || found[whole-1].HashStatus != artifact.HashVerified {
		t.Errorf("%d occurrences, want %d read and one more", len(found), whole)
	}
}

// A stream that gives more than ten thousand bytes for each of its own.
func TestRatioGuard(t *testing.T) {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	packed := enc.EncodeAll(make([]byte, 256<<20), nil)
	if len(packed) > 20<<10 {
		t.Skipf("the encoder made %d bytes", len(packed))
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, target.MainName, "bomb.zst"), string(packed))
	write(t, filepath.Join(dir, target.MainName, "good.txt"), "good\n")
	r := mustInventory(t, dir, "dir")
	wantSays(t, "dir", r.Limitations, "compression-ratio", "10000", `"bomb.zst`)
	if o := r.one(t, "bomb.zst/bomb"); o.HashStatus != artifact.HashNotHashed {
		t.Errorf("the stream's file: %+v", o)
	}
	r.wantCoverage(t, artifact.CoverageUnknown)
	r.wantFiles(t, map[string]string{"bomb.zst": sha(packed), "good.txt": sha([]byte("good\n"))})
}

// Archives inside archives, deeper than the guard.
func TestNestingGuard(t *testing.T) {
	content := newZip("", false).file("leaf.txt", "leaf\n").bytes()
	const levels = 20
	for range levels {
		content = newZip("", false).file("n.zip", string(content)).bytes()
	}
	r := inventoryOf(t, "deep.zip", content)
	deepest := strings.TrimSuffix(strings.Repeat("n.zip/", maxNesting+1), "/")
	if got := r.paths()[len(r.paths())-1]; got != deepest {
		t.Errorf("the deepest path is %q", got)
	}
	wantSays(t, "deep.zip", r.one(t, deepest).Limitations, "nesting", "16", "17")
	r.wantCoverage(t, artifact.CoverageUnknown)
}

func TestPathGuard(t *testing.T) {
	dir := placeFile(t, newZip("", false).file(strings.Repeat("x", 5000), "long").file("short", "short").bytes())
	r := mustInventory(t, dir, "long.zip")
	r.wantFiles(t, map[string]string{"short": sha([]byte("short"))})
	wantSays(t, "long.zip", r.Limitations, "path-bytes", "4096", "5000")
	r.wantCoverage(t, artifact.CoverageUnknown)
	// An extraction does not pass for a whole one.
	_, err := tryExtract(t, dir, "long.zip", artifact.PolicyFail)
	wantFault(t, err, fault.Truncated, map[string]any{"reason": "limit", "guard": "path-bytes", "configured": 4096, "observed": 5000, "truncated": true})
}

// A header of 300 MiB is refused before it is read, and nothing of that size is allocated: the file is a hole.
func TestASARHeaderGuard(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, target.MainName)
	const size = 300 << 20
	head := asarArchive("{}", "")
	binary.LittleEndian.PutUint32(head[4:], size+8)
	binary.LittleEndian.PutUint32(head[8:], size+4)
	binary.LittleEndian.PutUint32(head[12:], size)
	write(t, path, string(head))
	if err := os.Truncate(path, size+100); err != nil {
		t.Fatal(err)
	}
	r := mustInventory(t, dir, "big.asar")
	wantSays(t, "big.asar", r.Limitations, "asar-header-bytes", "268435456", "314572800")
	r.wantCoverage(t, artifact.CoverageUnknown)
}

// Broken and odd ASAR headers.
func TestASAROddHeaders(t *testing.T) {
	const good = `"good":{"size":1,"offset":"0"}`
	for name, c := range map[string]struct {
		header string
		says   string
		files  map[string]string
	}{
		"breaks off":       {`{"files":{` + good + `,"bad":{`, "header is broken", map[string]string{"good": sha([]byte("g"))}},
		"repeats":          {`{"files":{` + good + `,` + good + `}}`, "", nil},
		"entry is a word":  {`{"files":{` + good + `,"bad":"word"}}`, "", map[string]string{"good": sha([]byte("g"))}},
		"size is a word":   {`{"files":{` + good + `,"bad":{"size":"x","offset":"0"}}}`, "", map[string]string{"good": sha([]byte("g"))}},
		"name with slash":  {`{"files":{` + good + `,"a/b":{"size":1,"offset":"0"}}}`, "", map[string]string{"good": sha([]byte("g")), "a%2Fb": sha([]byte("g"))}},
		"dots":             {`{"files":{"..":{"files":{` + good + `}}}}`, "", map[string]string{"%2E%2E/good": sha([]byte("g"))}},
		"lone surrogate":   {`{"files":{"\ud800":{"size":1,"offset":"0"}}}`, "", map[string]string{"%ED%A0%80": sha([]byte("g"))}},
		"no files":         {`{"files":{}}`, "", map[string]string{}},
		"attributes first": {`{"x":[{"y":1}],"files":{"d":{"unpacked":true,"files":{` + good + `}}}}`, "", map[string]string{"d/good": sha([]byte("g"))}},
	} {
		t.Run(name, func(t *testing.T) {
			r := inventoryOf(t, "odd.asar", asarArchive(c.header, "g"))
			if c.files != nil {
				r.wantFiles(t, c.files)
			}
			if c.says != "" {
				wantSays(t, name, r.one(t, ".").Limitations, c.says)
				r.wantCoverage(t, artifact.CoverageUnknown)
			}
			if name == "repeats" && len(r.at("good")) != 2 {
				t.Errorf("a repeated name gives %q", r.paths())
			}
		})
	}
	deep := strings.Repeat(`{"files":{"d":`, 5000)
	_, err := tryInventory(t, placeFile(t, asarArchive(deep, "")), "deep.asar", artifact.PolicyRecord)
	if err != nil {
		wantFault(t, err, fault.ArtifactOperationFailed, map[string]any{"reason": "format"})
	}
}

// Block digests are verified too.
func TestASARBlocks(t *testing.T) {
	const content = "0123456789"
	header := func(blocks ...string) object {
		return files(field{"f", object{{"size", 10}, {"offset", "0"}, {"integrity", object{
			{"algorithm", "SHA256"}, {"hash", sha([]byte(content))}, {"blockSize", 4}, {"blocks", blocks}}}}})
	}
	a, b, c := sha([]byte("0123")), sha([]byte("4567")), sha([]byte("89"))
	r := inventoryOf(t, "good.asar", asarArchive(header(a, b, c), content))
	if o := r.one(t, "f"); o.HashStatus != artifact.HashVerified || len(o.Limitations) != 0 {
		t.Errorf("%+v", o)
	}
	r, err := tryInventory(t, placeFile(t, asarArchive(header(a, a, c), content)), "bad.asar", artifact.PolicyRecord)
	if err != nil {
		t.Fatal(err)
	}
	if o := r.one(t, "f"); o.HashStatus != artifact.HashMismatched || len(r.Contradictions) != 1 || r.Contradictions[0].DeclaredSHA256 != a || !says(r.Contradictions[0].Limitations, "block 1") {
		t.Errorf("%+v, %+v", o, r.Contradictions)
	}
	r = inventoryOf(t, "short.asar", asarArchive(header(a, b), content))
	wantSays(t, "short.asar", r.one(t, "f").Limitations, "2 block digests", "3 blocks")
}

// An ASAR with a companion, inside a directory and inside a zip; and companions that are not what they should be.
func TestNestedASAR(t *testing.T) {
	inner := asarArchive(files(
		field{"main.js", asarFile("m\n", 0)},
		field{"n", files(field{"a.node", asarUnpacked("addon")}, field{"gone.node", asarUnpacked("gone")}, field{"..", asarUnpacked("x")})},
	), "m\n")
	want := map[string]string{
		"res/app.asar": sha(inner), "res/app.asar.unpacked/n/a.node": sha([]byte("addon")),
		"res/app.asar/main.js": sha([]byte("m\n")), "res/app.asar/n/a.node": sha([]byte("addon")),
	}
	dir := t.TempDir()
	tree := filepath.Join(dir, target.MainName)
	write(t, filepath.Join(tree, "res/app.asar"), string(inner))
	write(t, filepath.Join(tree, "res/app.asar.unpacked/n/a.node"), "addon")
	if err := os.Symlink("/etc/passwd", filepath.Join(tree, "res/app.asar.unpacked/n/gone.node")); err != nil {
		t.Fatal(err)
	}
	r := mustInventory(t, dir, "app")
	r.wantFiles(t, want)
	wantSays(t, "gone.node", r.one(t, "res/app.asar/n/gone.node").Limitations, "link")
	wantSays(t, "..", r.one(t, "res/app.asar/n/%2E%2E").Limitations, "cannot be that of a companion")
	r.wantCoverage(t, artifact.CoverageUnknown)

	zipped := newZip("", false).add(zipEntry{name: "res/app.asar", data: inner, method: 8}).add(zipEntry{name: "res/app.asar.unpacked/n/a.node", data: []byte("addon"), method: 8})
	place := placeFile(t, zipped.bytes())
	r = mustInventory(t, place, "app.zip")
	r.wantFiles(t, want)
	wantSays(t, "gone.node", r.one(t, "res/app.asar/n/gone.node").Limitations, "not there")

	x, err := tryExtract(t, place, "app.zip", artifact.PolicyFail, r.one(t, "res/app.asar").OccurrenceID, r.one(t, "res/app.asar/main.js").OccurrenceID, r.one(t, "res/app.asar/n/a.node").OccurrenceID)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"res/app.asar": string(inner), "res/app.asar!/main.js": "m\n", "res/app.asar!/n/a.node": "addon"}, x.files); diff != "" {
		t.Error(diff)
	}
}

// An archive whose declared digest is contradicted stays closed.
func TestContradictedStaysClosed(t *testing.T) {
	inner := string(newZip("", false).file("x", "x").bytes())
	entry := object{{"size", len(inner)}, {"offset", "0"}, {"integrity", integrity("other")}}
	r, err := tryInventory(t, placeFile(t, asarArchive(files(field{"in.zip", entry}), inner)), "a.asar", artifact.PolicyRecord)
	if err != nil {
		t.Fatal(err)
	}
	if r.at("in.zip/x") != nil || r.one(t, "in.zip").HashStatus != artifact.HashMismatched {
		t.Errorf("%q", r.paths())
	}
	r.wantCoverage(t, artifact.CoverageComplete)
	wantSays(t, "a.asar", r.Limitations, "ntegrity contradictions", "1")
}

// Members of a tar archive that are no plain files.
func TestTarMembers(t *testing.T) {
	long := strings.Repeat("l", 150) + "/name.txt"
	record := "25 path=p\xc3\xa4x/renamed.txt\n"
	sparse := tarHeader("sparse", 0, 'S', "", 0o644)
	content := bytes.Join([][]byte{
		tarFile("first.txt", "first\n"),
		tarMember("hard", "", '1', "first.txt"), tarMember("lost", "", '1', "absent"),
		tarMember("soft", "", '2', "../else"), tarMember("dir/", "", '5', ""),
		tarMember("fifo", "", '6', ""), tarMember("dev", "", '3', ""),
		tarMember("././@LongLink", long+"\x00", 'L', ""), tarFile("cut-short", "long\n"),
		tarMember("pax", record, 'x', ""), tarFile("plain", "pax\n"),
		sparse, tarFile("./dot/last.txt", "last\n"), tarEnd,
	}, nil)
	dir := placeFile(t, content)
	r := mustInventory(t, dir, "m.tar")
	r.wantFiles(t, map[string]string{
		"first.txt": sha([]byte("first\n")), "hard": sha([]byte("first\n")), long: sha([]byte("long\n")),
		"päx/renamed.txt": sha([]byte("pax\n")), "dot/last.txt": sha([]byte("last\n")), "sparse": sha(nil),
	})
	wantSays(t, "hard", r.one(t, "hard").Limitations, `"first.txt"`)
	wantSays(t, "soft", r.one(t, "soft").Limitations, `"../else"`)
	if o := r.one(t, "lost"); o.HashStatus != artifact.HashUnavailable {
		t.Errorf("lost: %+v", o)
	}
	wantSays(t, "fifo", r.Limitations, `"fifo"`)
	wantSays(t, "dev", r.Limitations, `"dev"`, "character-device")
	r.wantCoverage(t, artifact.CoverageUnknown)
	x, err := tryExtract(t, dir, "m.tar", artifact.PolicyFail, r.one(t, "hard").OccurrenceID)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"hard": "first\n"}, x.files); diff != "" {
		t.Error(diff)
	}
}

// A tar archive that is cut, has no end mark, or holds something else behind it.
func TestTarEnds(t *testing.T) {
	one, two := tarFile("one.txt", "one\n"), tarFile("two.txt", strings.Repeat("two\n", 300))
	first := map[string]string{"one.txt": sha([]byte("one\n"))}
	both := map[string]string{"one.txt": first["one.txt"], "two.txt": sha([]byte(strings.Repeat("two\n", 300)))}
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	for name, c := range map[string]struct {
		content  []byte
		files    map[string]string
		coverage artifact.Status
		says     string
	}{
		"whole":       {join(one, two, tarEnd), both, artifact.CoverageComplete, ""},
		"padded":      {join(one, two, tarEnd, make([]byte, 7168)), both, artifact.CoverageComplete, ""},
		"no end mark": {join(one, two), both, artifact.CoverageUnknown, "no end mark"},
		"cut":         {join(one, two[:1000]), first, artifact.CoverageUnknown, "ends inside"},
		"bad header":  {join(one, bytes.Repeat([]byte("junk"), 256)), first, artifact.CoverageUnknown, "breaks off"},
		"tail":        {join(one, two, tarEnd, []byte("tail")), both, artifact.CoverageComplete, "4 bytes"},
	} {
		for _, packed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, packed %v", name, packed), func(t *testing.T) {
				file, content := "x.tar", c.content
				if packed {
					file, content = "x.tar.gz", storedGzip(content)
				}
				r := inventoryOf(t, file, content)
				r.wantFiles(t, c.files)
				r.wantCoverage(t, c.coverage)
				if c.says != "" && !(packed && name == "tail") {
					wantSays(t, name, r.one(t, ".").Limitations, c.says)
				}
			})
		}
	}
}

// One file in a compressed stream: its name, and an archive inside it.
func TestEmbeddedFile(t *testing.T) {
	inner := newZip("", false).file("deep.txt", "deep\n").bytes()
	r := inventoryOf(t, "data.zip.gz", storedGzip(inner))
	r.wantFiles(t, map[string]string{"data.zip": sha(inner), "data.zip/deep.txt": sha([]byte("deep\n"))})
	r.wantCoverage(t, artifact.CoverageComplete)
	named := bytes.Clone(storedGzip([]byte("x")))
	named[3] = 8 // FNAME
	named = bytes.Join([][]byte{named[:10], []byte("dir/in\xe9side.txt\x00"), named[10:]}, nil)
	r = inventoryOf(t, "other.gz", named)
	r.wantFiles(t, map[string]string{"in%E9side.txt": sha([]byte("x"))})
	// A large archive inside a stream goes to scratch space.
	big := newZip("", false).file("noise", strings.Repeat("0123456789abcdef", 300_000)).file("end.txt", "end\n").bytes()
	r = inventoryOf(t, "big.zip.gz", gzipOf(big))
	r.wantFiles(t, map[string]string{"big.zip": sha(big), "big.zip/noise": sha([]byte(strings.Repeat("0123456789abcdef", 300_000))), "big.zip/end.txt": sha([]byte("end\n"))})
}

func gzipOf(b []byte) []byte {
	raw := deflated(b)
	head := storedGzip(nil)
	out := append(bytes.Clone(head[:10]), raw...)
	whole := storedGzipTrailer(b)
	return append(out, whole...)
}

func storedGzipTrailer(b []byte) []byte {
	le := binary.LittleEndian
	return le.AppendUint32(le.AppendUint32(nil, crcOf(b)), uint32(len(b)))
}

// Bytes behind bzip2, xz and zstd streams are named with their range.
func TestStreamTails(t *testing.T) {
	for name, command := range map[string]string{"bz2": "bzip2", "xz": "xz", "zst": "zstd"} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(tool(t, command), "-c")
			cmd.Stdin = strings.NewReader("content\n")
			packed, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			r := inventoryOf(t, "x."+name, append(bytes.Clone(packed), "a tail of 21 bytes :)"...))
			r.wantFiles(t, map[string]string{"x": sha([]byte("content\n"))})
			want := []artifact.Region{{Role: "tail", Offset: int64(len(packed)), Length: 21, SHA256: sha([]byte("a tail of 21 bytes :)"))}}
			if diff := cmp.Diff(want, r.Containers[0].Regions); diff != "" {
				t.Error(diff)
			}
			r = inventoryOf(t, "cut."+name, packed[:len(packed)-3])
			r.wantCoverage(t, artifact.CoverageUnknown)
		})
	}
}

// The error by which a tail is known is still the package's.
func TestBzip2TailError(t *testing.T) {
	// An empty bzip2 stream (bzip2 </dev/null) and two bytes that begin none.
	_, err := io.ReadAll(bzip2.NewReader(strings.NewReader("BZh9\x17\x72\x45\x38\x50\x90\x00\x00\x00\x00xy")))
	if err != bzip2Tail {
		t.Errorf("error %v", err)
	}
}

// Formats of roots, from the contract's table.
func TestRootFormats(t *testing.T) {
	zipBytes := string(newZip("", false).file("a", "a").bytes())
	mz := make([]byte, 256)
	copy(mz, "MZ\x90\x00\x01\x00\x00\x00\x04\x00")
	pe := bytes.Clone(mz)
	pe[0x3c] = 0x80
	copy(pe[0x80:], "PE\x00\x00")
	for _, c := range []struct {
		name, content string
		want          artifact.Format
	}{
		{"a.zip", zipBytes, artifact.FormatZip}, {"a.IPA", zipBytes, artifact.FormatIPA}, {"a.apk", zipBytes, artifact.FormatAPK},
		{"a.jar", zipBytes, artifact.FormatZip}, {"a.msixbundle", zipBytes, artifact.FormatMSIX}, {"a.appx", zipBytes, artifact.FormatAppX},
		{"a.js", "x", artifact.FormatJavaScriptBundle}, {"a.map", "{}", artifact.FormatSourceMap}, {"a.txt", "x", artifact.FormatFile},
		{"empty.js", "", artifact.FormatUnknown}, {"a.plist", "bplist00xx", artifact.FormatPlist}, {"a.txt", "bplist00xx", artifact.FormatFile},
		{"a.entitlements", "<?xml version=\"1.0\"?><!DOCTYPE plist>", artifact.FormatEntitlements},
		{"a", "\x7fELF\x02", artifact.FormatELF}, {"a", "\xcf\xfa\xed\xfe", artifact.FormatMachO},
		{"a.exe", string(pe), artifact.FormatPE}, {"a.exe", string(mz), artifact.FormatDOSMZ}, {"a.exe", "MZ", artifact.FormatUnknown},
		{"a.pkg", "xar!rest", artifact.FormatPkg}, {"a.bin", "xar!rest", artifact.FormatXar},
		{"a.dmg", strings.Repeat("x", 100) + "koly" + strings.Repeat("\x00", 508), artifact.FormatDMG},
		{"a.deb", "!<arch>\ndebian-binary   ", artifact.FormatDeb}, {"a.a", "!<arch>\nx.o/", artifact.FormatAr},
		{"a.rpm", "\xed\xab\xee\xdb", artifact.FormatRPM}, {"a.7z", "7z\xbc\xaf\x27\x1c", artifact.Format7z},
		{"a.iso", strings.Repeat("\x00", 0x8001) + "CD001", artifact.FormatISO9660}, {"a.sqfs", "hsqs", artifact.FormatSquashFS},
		{"a.wasm", "\x00asm\x01\x00\x00\x00", artifact.FormatFile},
	} {
		r := identified(t, c.name, c.content)
		if r.Manifest.RootFormat != c.want {
			t.Errorf("%s %.10q is %s, want %s", c.name, c.content, r.Manifest.RootFormat, c.want)
		}
	}
}

// identified is what identify_artifact says of a file: it recognises containers and does not open them.
func identified(t *testing.T, name, content string) *result {
	t.Helper()
	var f fakeCall
	if err := inventory(t.Context(), artifact.OpIdentify, f.call(t, placeFile(t, []byte(content)), params{Policy: artifact.PolicyFail, Name: name})); err != nil {
		t.Fatalf("%s %.10q: %v", name, content, err)
	}
	r := &result{}
	if err := json.Unmarshal(f.result.Bytes(), r); err != nil {
		t.Fatal(err)
	}
	return r
}

// The same target gives the same bytes, whatever the goroutines do.
func TestDeterminism(t *testing.T) {
	in, _ := sampleFiles(t)
	dir := t.TempDir()
	if err := os.Rename(in, filepath.Join(dir, target.MainName)); err != nil {
		t.Fatal(err)
	}
	z := newZip("", false)
	for i := range 500 {
		z.add(zipEntry{name: fmt.Sprintf("f%d", i%400), data: bytes.Repeat([]byte{byte(i)}, i*7), method: 8 * uint16(i%2)})
	}
	write(t, filepath.Join(dir, target.MainName, "dir/inner.zip"), string(z.bytes()))
	first := mustInventory(t, dir, "d").Bytes
	for range 10 {
		if !bytes.Equal(first, mustInventory(t, dir, "d").Bytes) {
			t.Fatal("two inventories of one directory differ")
		}
	}
}

// Entries that the run's user may not read. The check itself runs as that user, in a process of its own.
func TestUnreadable(t *testing.T) {
	const env = "REA_TEST_UNREADABLE"
	if dir := os.Getenv(env); dir != "" {
		var f fakeCall
		if err := inventory(t.Context(), artifact.OpInventory, f.call(t, dir, params{Policy: artifact.PolicyFail, Name: "d"})); err != nil {
			t.Fatal(err)
		}
		json.NewEncoder(os.Stdout).Encode(f.seen)
		os.Stdout.Write(f.result.Bytes())
		os.Exit(0)
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
	dir, err := os.MkdirTemp("", "rea-unreadable-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	tree := filepath.Join(dir, target.MainName)
	write(t, filepath.Join(tree, "a.txt"), "a\n")
	write(t, filepath.Join(tree, "secret.txt"), "secret\n")
	write(t, filepath.Join(tree, "shut/x"), "x\n")
	if err := errors.Join(os.Chmod(filepath.Join(tree, "secret.txt"), 0o600), os.Chmod(filepath.Join(tree, "shut"), 0o700)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestUnreadable$")
	cmd.Env = []string{env + "=" + dir, "TMPDIR=/tmp"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 10001, Gid: 10001}}
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	line, rest, _ := bytes.Cut(out, []byte("\n"))
	var seen volume.TargetSeen
	r := &result{}
	if err := errors.Join(json.Unmarshal(line, &seen), json.Unmarshal(rest, r)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"secret.txt", "shut"}, seen.Unreadable); diff != "" {
		t.Error(diff)
	}
	root, err := os.Open(tree)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	d, err := target.Hash(t.Context(), []target.Root{{File: root, Unreadable: seen.Unreadable}}, nil)
	if err != nil || d.SHA256 != seen.SHA256 {
		t.Errorf("the core's digest without them is %s (%v), the worker's %s", d.SHA256, err, seen.SHA256)
	}
	r.wantFiles(t, map[string]string{"a.txt": sha([]byte("a\n"))})
	for _, path := range []string{"secret.txt", "shut"} {
		wantSays(t, path, r.one(t, path).Limitations, "not readable")
	}
	r.wantCoverage(t, artifact.CoverageUnknown)
}
