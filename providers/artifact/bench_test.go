package artifact

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"rea/evidence"
)

// treeOf makes a graph like that of a large application: n files of distinct content in n/16 directories. Every
// changed-th content depends on version.
func treeOf(tb testing.TB, n int, version string, changed int) *Builder {
	b := NewBuilder(Root{Format: FormatDirectory})
	b.SetScope(ScopeEntries)
	for i := range n {
		text := fmt.Sprint(i)
		if changed > 0 && i%changed == 0 {
			text += version
		}
		mustAdd(tb, b, Entry{
			Path:      fmt.Sprintf("Contents/Resources/app/node_modules/package-%d/lib/file-%d.js", i/16, i),
			EntryKind: EntryFile, Format: FormatFile, Content: &Content{SHA256: sha256.Sum256([]byte(text)), Size: int64(i)},
			DeclaredSize: SizeOf(int64(i)),
		})
	}
	return b
}

// blobFile is a blob in a file, as the store has them.
type blobFile struct {
	name string
	size int64
}

func (b blobFile) SHA256() string               { return "" }
func (b blobFile) Size() int64                  { return b.size }
func (b blobFile) Open() (io.ReadCloser, error) { return os.Open(b.name) }

// files spools into files.
type files struct{ dir string }

func (s files) Spool(_ context.Context, write func(io.Writer) error) (evidence.Payload, error) {
	f, err := os.CreateTemp(s.dir, "")
	if err != nil {
		return evidence.Payload{}, err
	}
	defer f.Close()
	if err := write(f); err != nil {
		return evidence.Payload{}, err
	}
	size, err := f.Seek(0, io.SeekCurrent)
	return evidence.BlobPayload(blobFile{f.Name(), size}), err
}

// treeFile writes the inventory of a tree to a file.
func treeFile(b *testing.B, n int, version string, changed int) evidence.Payload {
	b.Helper()
	p, err := files{b.TempDir()}.Spool(b.Context(), func(w io.Writer) error {
		_, err := treeOf(b, n, version, changed).Finish(b.Context(), w)
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	return p
}

// peak measures the highest live heap above what there was before, while work runs.
func peak(b *testing.B, work func()) {
	b.Helper()
	runtime.GC()
	var before, now runtime.MemStats
	runtime.ReadMemStats(&before)
	var highest atomic.Uint64
	var sampler sync.WaitGroup
	stop := make(chan struct{})
	sampler.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				runtime.ReadMemStats(&now)
				highest.Store(max(highest.Load(), now.HeapInuse))
			}
		}
	})
	work()
	close(stop)
	sampler.Wait()
	b.ReportMetric(float64(max(highest.Load(), before.HeapInuse)-before.HeapInuse)/(1<<20), "peak-MiB")
}

var sizes = []int{100_000, 880_000} // with the directories, the second is just below MaxEntries

func BenchmarkBuild(b *testing.B) {
	for _, n := range sizes {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			peak(b, func() {
				for b.Loop() {
					if _, err := treeOf(b, n, "", 0).Finish(b.Context(), io.Discard); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}

func BenchmarkCheck(b *testing.B) {
	for _, n := range sizes {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			p := treeFile(b, n, "", 0)
			b.SetBytes(p.Size())
			b.ReportAllocs()
			peak(b, func() {
				for b.Loop() {
					r := p.Reader()
					if _, err := CheckInventory(b.Context(), r); err != nil {
						b.Fatal(err)
					}
					r.Close()
				}
			})
		})
	}
}

func BenchmarkCompare(b *testing.B) {
	for _, n := range sizes {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			left, right := benchRecord(b, n, "1"), benchRecord(b, n, "2")
			b.SetBytes(left.NormalizedResult.Size() + right.NormalizedResult.Size())
			b.ReportAllocs()
			peak(b, func() {
				for b.Loop() {
					if _, err := Compare(b.Context(), left, right, files{b.TempDir()}); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}

func benchRecord(b *testing.B, n int, version string) *evidence.Record {
	p := treeFile(b, n, version, 100)
	r := p.Reader()
	defer r.Close()
	inv, err := CheckInventory(b.Context(), r)
	if err != nil {
		b.Fatal(err)
	}
	rec, err := InventoryRecord(inv.Subject("tree", "/tree"), PolicyFail, inv, p)
	if err != nil {
		b.Fatal(err)
	}
	return rec
}

// BenchmarkCompareSmall is the ordinary case: two applications of some thousand entries, in memory.
func BenchmarkCompareSmall(b *testing.B) {
	var records [2]*evidence.Record
	for i, version := range []string{"1", "2"} {
		var out bytes.Buffer
		if _, err := treeOf(b, 5000, version, 100).Finish(b.Context(), &out); err != nil {
			b.Fatal(err)
		}
		records[i] = inventoryRecord(b, out.Bytes())
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Compare(b.Context(), records[0], records[1], evidence.Memory{}); err != nil {
			b.Fatal(err)
		}
	}
}
