package target

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// BenchmarkHashFile is to be held against `openssl dgst -sha256` on the same file.
func BenchmarkHashFile(b *testing.B) {
	const size = 256 << 20
	path := filepath.Join(b.TempDir(), "big")
	if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
		b.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	b.SetBytes(size)
	for b.Loop() {
		if _, err := Hash(b.Context(), []Root{{File: f}}, nil); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkHashTree hashes many small files: 20,000 of 4 KiB in 200 directories.
func BenchmarkHashTree(b *testing.B) {
	root := b.TempDir()
	content := make([]byte, 4096)
	for d := range 200 {
		dir := filepath.Join(root, "d"+strconv.Itoa(d))
		if err := os.Mkdir(dir, 0o700); err != nil {
			b.Fatal(err)
		}
		for i := range 100 {
			if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), content, 0o600); err != nil {
				b.Fatal(err)
			}
		}
	}
	f, err := os.Open(root)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	b.SetBytes(20000 * 4096)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Hash(b.Context(), []Root{{File: f}}, nil); err != nil {
			b.Fatal(err)
		}
	}
}
