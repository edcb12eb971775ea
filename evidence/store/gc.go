package store

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// batch is how many files a collection removes under one hold of the lock, so that a run waits for milliseconds.
	batch = 64

	// blockSize is the unit of st_blocks.
	blockSize = 512
)

// Report is what a collection did, or would do.
type Report struct {
	DryRun bool `json:"dry_run"`
	Busy   bool `json:"busy"` // another collection is running; nothing was done

	Records int `json:"records"` // evicted, each with its run record
	Blobs   int `json:"blobs"`   // removed: no remaining record names them
	Temps   int `json:"temporary_files"`
	Leases  int `json:"dead_leases"`

	Freed  int64 `json:"freed_bytes"`
	Before int64 `json:"bytes_before"`
	After  int64 `json:"bytes_after"`
	Leased int   `json:"leased_records"`
	Free   int64 `json:"free_bytes"` // of the file system, before

	Floor      int64 `json:"floor_bytes"`
	Ceiling    int64 `json:"ceiling_bytes"`
	FreeTarget int64 `json:"free_target_bytes"`
}

// item is one file of the store as the scan saw it.
type item struct {
	path  string
	size  int64 // on disk
	mtime time.Time
	info  fs.FileInfo
}

type record struct {
	item
	id    string
	run   *item
	blobs []string // distinct
}

type content struct {
	item
	refs int
}

// collector is one collection.
type collector struct {
	store  *Store
	dry    bool
	report Report

	cutoff  time.Time // what is younger stays
	records []*record
	blobs   map[string]*content
	runs    map[string]*item
}

// GC removes what dead processes left, content that no record names, and then the oldest records that no living
// process leases, down to the ceiling and until the free-space target is met, but not below the floor. Nothing
// younger than the grace is removed. Only one collection runs at a time; a second one returns at once, Busy. A dry
// run removes nothing and reports what would go.
func (s *Store) GC(ctx context.Context, dryRun bool) (Report, error) {
	c := newCollector(s, dryRun)
	f, err := os.OpenFile(filepath.Join(s.dir, gcLockName), os.O_RDWR|os.O_CREATE, fileMode)
	if err != nil {
		return c.report, storage("collect", err)
	}
	defer f.Close()
	if err := flock(f, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		c.report.Busy = err == unix.EWOULDBLOCK
		if c.report.Busy {
			err = nil
		}
		return c.report, storage("collect", err)
	}
	err = c.collect(ctx)
	c.report.After = c.report.Before - c.report.Freed
	return c.report, storage("collect", err)
}

func newCollector(s *Store, dry bool) *collector {
	return &collector{
		store:  s,
		dry:    dry,
		cutoff: time.Now().Add(-s.o.Grace),
		blobs:  map[string]*content{},
		runs:   map[string]*item{},
		report: Report{DryRun: dry, Floor: s.o.Floor, Ceiling: s.o.Ceiling, FreeTarget: s.o.FreeTarget},
	}
}

func (c *collector) collect(ctx context.Context) error {
	var fsys unix.Statfs_t
	if err := unix.Statfs(c.store.dir, &fsys); err != nil {
		return err
	}
	c.report.Free = int64(fsys.Bavail) * fsys.Bsize
	if err := c.temps(); err != nil {
		return err
	}
	if err := c.scan(ctx); err != nil {
		return err
	}
	var leased map[string]bool
	err := c.locked(func() (err error) {
		leased, c.report.Leases, err = c.store.leased(c.dry)
		return err
	})
	if err != nil {
		return err
	}
	c.report.Leased = len(leased)
	if err := c.orphans(ctx); err != nil {
		return err
	}
	return c.evict(ctx, leased)
}

// locked runs fn while nothing is published.
func (c *collector) locked(fn func() error) error {
	unlock, err := c.store.lock(unix.LOCK_EX)
	if err != nil {
		return err
	}
	defer unlock()
	return fn()
}

// need is how many bytes are still to be freed.
func (c *collector) need() int64 {
	size := c.report.Before - c.report.Freed
	want := max(size-c.store.o.Ceiling, c.store.o.FreeTarget-(c.report.Free+c.report.Freed))
	return min(want, size-c.store.o.Floor)
}

// temps removes files of writers that are dead. Age is asked for as well: a writer locks its file just after it made
// it.
func (c *collector) temps() error {
	dir := filepath.Join(c.store.dir, tempDir)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		it, err := lookAt(path)
		if errors.Is(err, fs.ErrNotExist) || err == nil && !it.mtime.Before(c.cutoff) {
			continue
		}
		if err != nil {
			return err
		}
		f, err := dead(path)
		if err != nil {
			return err
		}
		if f == nil {
			continue
		}
		if !c.dry {
			err = os.Remove(path)
		}
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
		c.report.Temps++
	}
	return nil
}

// scan lists everything and counts who names which blob.
func (c *collector) scan(ctx context.Context) error {
	for _, kind := range []struct {
		name string
		add  func(name string, it item) error
	}{{blobsDir, c.addBlob}, {runsDir, c.addRun}, {recordsDir, c.addRecord}} {
		if err := c.walk(ctx, filepath.Join(c.store.dir, kind.name), kind.add); err != nil {
			return err
		}
	}
	// A record without its lease's protection goes oldest first; equal ages in a fixed order.
	slices.SortFunc(c.records, func(a, b *record) int { return cmp.Or(a.mtime.Compare(b.mtime), cmp.Compare(a.id, b.id)) })
	return nil
}

func (c *collector) walk(ctx context.Context, dir string, add func(string, item) error) error {
	shards, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, shard := range shards {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		entries, err := os.ReadDir(filepath.Join(dir, shard.Name()))
		if err != nil {
			return err
		}
		for _, e := range entries {
			it, err := lookAt(filepath.Join(dir, shard.Name(), e.Name()))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err == nil {
				c.report.Before += it.size
				err = add(e.Name(), it)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func lookAt(path string) (item, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return item{}, err
	}
	size := max(info.Size(), info.Sys().(*syscall.Stat_t).Blocks*blockSize)
	return item{path: path, size: size, mtime: info.ModTime(), info: info}, nil
}

func (c *collector) addBlob(name string, it item) error {
	c.blobs[name] = &content{item: it}
	return nil
}

func (c *collector) addRun(name string, it item) error {
	c.runs[name] = &it
	return nil
}

// addRecord counts what the record names. One whose envelope is damaged names nothing; it stays until its turn.
func (c *collector) addRecord(name string, it item) error {
	r := &record{item: it, id: name, run: c.runs[name]}
	if e, err := c.store.readEnvelope(name); err == nil {
		for p := range e.blobs {
			r.blobs = append(r.blobs, p.Blob)
		}
	}
	slices.Sort(r.blobs)
	r.blobs = slices.Compact(r.blobs)
	for _, sha := range r.blobs {
		if b := c.blobs[sha]; b != nil {
			b.refs++
		}
	}
	c.records = append(c.records, r)
	return nil
}

// orphans removes content and run records that belong to no record.
func (c *collector) orphans(ctx context.Context) error {
	var free []*content
	for _, b := range c.blobs {
		if b.refs == 0 {
			free = append(free, b)
		}
	}
	if err := c.removeBlobs(ctx, free); err != nil {
		return err
	}
	known := map[string]bool{}
	for _, r := range c.records {
		known[r.id] = true
	}
	for id, run := range c.runs {
		if known[id] {
			continue
		}
		if _, err := c.remove(*run); err != nil {
			return err
		}
	}
	return nil
}

// evict removes records, oldest first, with the content that only they name.
func (c *collector) evict(ctx context.Context, leased map[string]bool) error {
	for _, r := range c.records {
		if c.need() <= 0 {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if leased[r.id] {
			continue
		}
		if c.report.Before-c.report.Freed-c.gain(r) < c.store.o.Floor {
			return nil
		}
		gone, err := c.removeRecord(r)
		if err != nil {
			return err
		}
		if !gone {
			continue
		}
		c.report.Records++
		var free []*content
		for _, sha := range r.blobs {
			if b := c.blobs[sha]; b != nil {
				if b.refs--; b.refs == 0 {
					free = append(free, b)
				}
			}
		}
		if err := c.removeBlobs(ctx, free); err != nil {
			return err
		}
	}
	return nil
}

// gain is what the store would shrink by without the record.
func (c *collector) gain(r *record) int64 {
	n := r.size
	if r.run != nil {
		n += r.run.size
	}
	for _, sha := range r.blobs {
		if b := c.blobs[sha]; b != nil && b.refs == 1 {
			n += b.size
		}
	}
	return n
}

// removeRecord removes a record before its content, so that a kill in between leaves content without record and
// never the reverse.
func (c *collector) removeRecord(r *record) (gone bool, err error) {
	err = c.locked(func() error {
		if gone, err = c.removeLocked(r.item); err != nil || !gone || r.run == nil {
			return err
		}
		_, err = c.removeLocked(*r.run)
		return err
	})
	return gone, err
}

func (c *collector) removeBlobs(ctx context.Context, list []*content) error {
	for some := range slices.Chunk(list, batch) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		err := c.locked(func() error {
			for _, b := range some {
				gone, err := c.removeLocked(b.item)
				if err != nil {
					return err
				}
				if gone {
					c.report.Blobs++
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *collector) remove(it item) (gone bool, err error) {
	err = c.locked(func() error {
		gone, err = c.removeLocked(it)
		return err
	})
	return gone, err
}

// removeLocked removes a file that is old and still the one of the scan. Whoever publishes content that is already
// there, or a record that names it, touches it under the lock; a record that is retained again is a new file. So
// what a lease has listed since the scan is not removed either.
func (c *collector) removeLocked(it item) (bool, error) {
	now, err := lookAt(it.path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil || !os.SameFile(now.info, it.info) || !now.mtime.Equal(it.mtime) || !now.mtime.Before(c.cutoff) {
		return false, err
	}
	if !c.dry {
		if err := os.Remove(it.path); err != nil {
			return false, err
		}
	}
	c.report.Freed += now.size
	return true, nil
}
