package worker

import (
	stdzip "archive/zip"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"rea/evidence/target"
	"rea/evidence/volume"
	"rea/providers/artifact"
)

// words makes text that compresses about as class files and scripts do.
func words(r *rand.Rand, n int) []byte {
	b := make([]byte, 0, n+16)
	for len(b) < n {
		b = fmt.Appendf(b, "%x method%d(", r.Uint32()&0xffffff, r.IntN(200))
	}
	return b[:n]
}

func benchCall(b *testing.B, dir string) call {
	return call{
		params: fmt.Appendf(nil, `{"integrity_policy":"fail","name":"target"}`), target: dir,
		result: func() io.Writer { return io.Discard }, scratch: func() (string, error) { return b.TempDir(), nil },
		progress: func(string, string, int64, int64) {}, seen: func(volume.TargetSeen) {},
	}
}

// cpuTime is what this process has used; the tests' machine may be busy with other things.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func benchInventory(b *testing.B, dir string, size int64) {
	b.Helper()
	b.SetBytes(size)
	b.ReportAllocs()
	before := cpuTime(b)
	defer func() { b.ReportMetric(float64((cpuTime(b)-before).Milliseconds())/float64(b.N), "cpu-ms/op") }()
	for b.Loop() {
		if err := inventory(b.Context(), artifact.OpInventory, benchCall(b, dir)); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkJar is an archive of 2,000 deflated entries of 10 KiB. REA_BENCH_PYTHON=1 does the same with python3's
// zipfile and hashlib, for comparison.
func BenchmarkJar(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	var out bytes.Buffer
	w := stdzip.NewWriter(&out)
	for i := range 2000 {
		f, err := w.Create(fmt.Sprintf("com/example/p%d/C%d.class", i%40, i))
		if err != nil {
			b.Fatal(err)
		}
		f.Write(words(r, 10<<10))
	}
	w.Close()
	dir := placeFile(b, out.Bytes())
	if os.Getenv("REA_BENCH_PYTHON") != "" {
		path := filepath.Join(dir, target.MainName)
		for b.Loop() {
			cmd := exec.Command("python3", "-c", `import sys,zipfile,hashlib
hashlib.sha256(open(sys.argv[1],'rb').read()).hexdigest()
z=zipfile.ZipFile(sys.argv[1])
for i in z.infolist(): hashlib.sha256(z.read(i)).hexdigest()`, path)
			if err := cmd.Run(); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64((cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Milliseconds()), "cpu-ms/op")
		}
		return
	}
	benchInventory(b, dir, 2000*10<<10)
}

// BenchmarkDirectory is a tree of 20,000 files of 8 KiB.
func BenchmarkDirectory(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	dir := b.TempDir()
	for i := range 20000 {
		write(b, filepath.Join(dir, target.MainName, fmt.Sprintf("d%d/e%d/f%d.js", i%50, i%7, i)), string(words(r, 8<<10)))
	}
	benchInventory(b, dir, 20000*8<<10)
}

// BenchmarkLargeFile is one file of 256 MiB.
func BenchmarkLargeFile(b *testing.B) {
	benchInventory(b, placeFile(b, make([]byte, 256<<20)), 256<<20)
}

// BenchmarkMillionEntries is a zip archive of as many empty entries as an inventory holds.
func BenchmarkMillionEntries(b *testing.B) {
	var out bytes.Buffer
	w := stdzip.NewWriter(&out)
	for i := range 1_000_000 {
		if _, err := w.CreateHeader(&stdzip.FileHeader{Name: fmt.Sprintf("%03d/%d", i%900, i)}); err != nil {
			b.Fatal(err)
		}
	}
	w.Close()
	benchInventory(b, placeFile(b, out.Bytes()), int64(out.Len()))
}
