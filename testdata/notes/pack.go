// Command pack builds the two versions of the sample application from src/: notes-1.0.0.zip, notes-1.1.0.zip and the
// directories of the same names. Run it as `go run ./testdata/notes OUT`; the same sources give the same bytes.
//
// It writes ASAR and zip by hand or with the standard library and knows nothing of rea, so what it prints
// (truth.json: every file with its SHA-256) is an independent expectation for tests.
package main

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"time"
)

// stamp is the time of every zip entry: fixed, so that the archives are reproducible.
var stamp = time.Date(2026, 1, 2, 3, 4, 6, 0, time.UTC)

// here is this program's folder, seen from the module's root, where `go run` is started.
var here = filepath.Join("testdata", "notes")

type file struct {
	data []byte
	exec bool
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go run ./testdata/notes OUT")
		os.Exit(3)
	}
	if err := pack(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(4)
	}
}

func pack(out string) error {
	if _, err := os.Stat(filepath.Join(here, "src")); err != nil {
		return fmt.Errorf("run this from the module's root: %w", err)
	}
	truth := map[string]map[string]string{}
	for _, version := range []string{"1.0.0", "1.1.0"} {
		tree, inner, err := build(os.DirFS(filepath.Join(here, "src", version)), version)
		if err != nil {
			return err
		}
		name := "notes-" + version
		if err := writeTree(filepath.Join(out, name), tree); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(out, name+".zip"), zipOf(tree), 0o644); err != nil {
			return err
		}
		sums := map[string]string{}
		for p, f := range tree {
			sums[p] = sum(f.data)
		}
		for p, data := range inner {
			sums[p] = sum(data)
		}
		truth[name] = sums
	}
	text, err := json.MarshalIndent(truth, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, "truth.json"), append(text, '\n'), 0o644)
}

// build returns the application's tree, and what stands inside its archives.
func build(src fs.FS, version string) (map[string]file, map[string][]byte, error) {
	tree, inner, asarFiles, templates, themes := map[string]file{}, map[string][]byte{}, map[string][]byte{}, map[string][]byte{}, map[string][]byte{}
	err := fs.WalkDir(src, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(src, p)
		if err != nil {
			return err
		}
		switch {
		case strings.HasPrefix(p, "asar/"):
			asarFiles[strings.TrimPrefix(p, "asar/")] = data
		case strings.HasPrefix(p, "templates/themes/"):
			themes[strings.TrimPrefix(p, "templates/themes/")] = data
		case strings.HasPrefix(p, "templates/"):
			templates[strings.TrimPrefix(p, "templates/")] = data
		case p == "launcher.sh":
			tree["notes"] = file{data, true}
		default:
			tree["resources/"+p] = file{data, false}
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	addon := nativeAddon()
	archive, err := asar(asarFiles, map[string][]byte{"native/checksum.node": addon})
	if err != nil {
		return nil, nil, err
	}
	tree["resources/app.asar"] = file{archive, false}
	tree["resources/app.asar.unpacked/native/checksum.node"] = file{addon, false}
	for p, data := range asarFiles {
		inner["resources/app.asar/"+p] = data
	}
	inner["resources/app.asar/native/checksum.node"] = addon
	templates["themes.zip"] = zipOf(plain(themes))
	tree["resources/templates.zip"] = file{zipOf(plain(templates)), false}
	for p, data := range templates {
		inner["resources/templates.zip/"+p] = data
	}
	for p, data := range themes {
		inner["resources/templates.zip/themes.zip/"+p] = data
	}
	tree["version"] = file{[]byte(version + "\n"), false}
	return tree, inner, nil
}

// nativeAddon is a minimal ELF shared object header with a line of text behind it: it stands for a compiled add-on and
// does not change between the two versions.
func nativeAddon() []byte {
	b := make([]byte, 64)
	copy(b, "\x7fELF\x02\x01\x01")
	le := binary.LittleEndian
	le.PutUint16(b[16:], 3)  // ET_DYN
	le.PutUint16(b[18:], 62) // EM_X86_64
	le.PutUint32(b[20:], 1)
	le.PutUint16(b[52:], 64)
	return append(b, "notes checksum add-on"...)
}

type asarNode struct {
	Files     map[string]*asarNode `json:"files,omitempty"`
	Size      *int                 `json:"size,omitempty"`
	Offset    string               `json:"offset,omitempty"`
	Unpacked  bool                 `json:"unpacked,omitempty"`
	Integrity *integrity           `json:"integrity,omitempty"`
}

type integrity struct {
	Algorithm string   `json:"algorithm"`
	Hash      string   `json:"hash"`
	BlockSize int      `json:"blockSize"`
	Blocks    []string `json:"blocks"`
}

// asar packs files after a Chromium pickle that holds the JSON header: u32 4, u32 header size, u32 payload size,
// u32 string length, the string, padding to four bytes.
func asar(packed, unpacked map[string][]byte) ([]byte, error) {
	root := &asarNode{Files: map[string]*asarNode{}}
	var body bytes.Buffer
	for _, p := range sorted(packed) {
		data := packed[p]
		node := place(root, p, data)
		node.Offset = strconv.Itoa(body.Len())
		body.Write(data)
	}
	for _, p := range sorted(unpacked) {
		place(root, p, unpacked[p]).Unpacked = true
	}
	header, err := json.Marshal(root)
	if err != nil {
		return nil, err
	}
	padded := (len(header) + 3) &^ 3
	out := make([]byte, 16, 16+padded+body.Len())
	for i, v := range []int{4, padded + 8, padded + 4, len(header)} {
		binary.LittleEndian.PutUint32(out[4*i:], uint32(v))
	}
	out = append(out, header...)
	out = append(out, make([]byte, padded-len(header))...)
	return append(out, body.Bytes()...), nil
}

const asarBlock = 4 << 20

func place(root *asarNode, p string, data []byte) *asarNode {
	at := root
	for _, dir := range strings.Split(path.Dir(p), "/") {
		if dir == "." {
			continue
		}
		if at.Files[dir] == nil {
			at.Files[dir] = &asarNode{Files: map[string]*asarNode{}}
		}
		at = at.Files[dir]
	}
	size := len(data)
	node := &asarNode{Size: &size, Integrity: &integrity{"SHA256", sum(data), asarBlock, []string{sum(data)}}}
	at.Files[path.Base(p)] = node
	return node
}

func zipOf(tree map[string]file) []byte {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, p := range sorted(tree) {
		h := &zip.FileHeader{Name: p, Method: zip.Deflate, Modified: stamp}
		mode := fs.FileMode(0o644)
		if tree[p].exec {
			mode = 0o755
		}
		h.SetMode(mode)
		if strings.HasSuffix(p, ".zip") || strings.HasSuffix(p, ".asar") {
			h.Method = zip.Store
		}
		f, err := w.CreateHeader(h)
		if err == nil {
			_, err = f.Write(tree[p].data)
		}
		if err != nil {
			panic(err) // a bytes.Buffer does not fail
		}
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return b.Bytes()
}

func writeTree(dir string, tree map[string]file) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	for p, f := range tree {
		at := filepath.Join(dir, filepath.FromSlash(p))
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return err
		}
		mode := fs.FileMode(0o644)
		if f.exec {
			mode = 0o755
		}
		if err := os.WriteFile(at, f.data, mode); err != nil {
			return err
		}
	}
	return nil
}

func plain(in map[string][]byte) map[string]file {
	out := map[string]file{}
	for p, data := range in {
		out[p] = file{data, false}
	}
	return out
}

func sorted[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

func sum(data []byte) string {
	s := sha256.Sum256(data)
	return hex.EncodeToString(s[:])
}
