package store

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"rea/evidence"
)

const (
	// maxInline is the longest value that stays in its record's envelope: below it a file of its own would cost more
	// than it saves.
	maxInline = 64 << 10

	// bufferSize joins the small writes of a producer of JSON.
	bufferSize = 256 << 10
)

// Writer takes content of unknown length and digest. End it with Commit or Abort; Abort after Commit does nothing.
type Writer struct {
	store *Store
	ctx   context.Context
	file  *os.File // nil when ended
	hash  hash.Hash
	size  int64
}

// Create begins new content. Its writes fail when ctx ends.
func (s *Store) Create(ctx context.Context) (*Writer, error) {
	f, err := s.temp()
	if err != nil {
		return nil, storage("take new content", err)
	}
	return &Writer{store: s, ctx: ctx, file: f, hash: sha256.New()}, nil
}

// temp makes a file that is locked while this process has it open.
func (s *Store) temp() (*os.File, error) {
	f, err := os.CreateTemp(filepath.Join(s.dir, tempDir), "new-")
	if err != nil {
		return nil, err
	}
	if err := flock(f, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(err, os.Remove(f.Name()), f.Close())
	}
	return f, nil
}

// Write appends to the content.
func (w *Writer) Write(p []byte) (int, error) {
	switch {
	case w.file == nil:
		return 0, fs.ErrClosed
	case w.ctx.Err() != nil:
		return 0, context.Cause(w.ctx)
	}
	n, err := w.file.Write(p)
	w.hash.Write(p[:n])
	w.size += int64(n)
	return n, storage("take new content", err)
}

// Abort drops the content.
func (w *Writer) Abort() {
	if w.file == nil {
		return
	}
	os.Remove(w.file.Name()) // what remains is unowned and falls to the next collection
	w.file.Close()
	w.file = nil
}

// Commit publishes the content under its digest. Content that is already there is kept and counts as new; what stands
// there under the name of this content and is something else is replaced.
func (w *Writer) Commit() (evidence.Blob, error) {
	defer w.Abort()
	switch {
	case w.file == nil:
		return nil, fs.ErrClosed
	case w.ctx.Err() != nil:
		return nil, context.Cause(w.ctx)
	}
	b := &blob{store: w.store, sha256: hex.EncodeToString(w.hash.Sum(nil)), size: w.size}
	if there, err := b.Open(); err == nil { // outside of the lock: the first time it reads the content
		there.Close()
	}
	unlock, err := w.store.lock(unix.LOCK_SH)
	if err != nil {
		return nil, storage("publish content", err)
	}
	defer unlock()
	path := w.store.path(blobsDir, b.sha256)
	if info, err := os.Lstat(path); err == nil && w.store.proved.holds(b.sha256, info) && info.Size() == b.size {
		return b, storage("publish content", w.store.touchBlob(b.sha256, path))
	}
	if err := publish(w.file, path); err != nil {
		return nil, storage("publish content", err)
	}
	if info, err := w.file.Stat(); err == nil {
		w.store.proved.note(b.sha256, info) // the digest is that of what was written
	}
	w.file.Close()
	w.file = nil
	return b, nil
}

// publish gives a temporary file its final name, replacing what is there.
func publish(f *os.File, path string) error {
	err := os.Rename(f.Name(), path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.Mkdir(filepath.Dir(path), dirMode); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		err = os.Rename(f.Name(), path)
	}
	return err
}

// Spool implements evidence.Spooler: a value of up to 64 KiB stays in memory, a longer one becomes a blob. The stream
// must be one canonical JSON value.
func (s *Store) Spool(ctx context.Context, write func(w io.Writer) error) (evidence.Payload, error) {
	sp := &spool{ctx: ctx, store: s}
	defer sp.abort()
	check := evidence.NewPayloadChecker()
	if err := write(io.MultiWriter(check, sp)); err != nil {
		return evidence.Payload{}, err
	}
	if err := check.Close(); err != nil {
		return evidence.Payload{}, err
	}
	return sp.finish()
}

// spool begins in memory and moves to a file.
type spool struct {
	ctx    context.Context
	store  *Store
	inline bytes.Buffer
	file   *Writer
	buffer *bufio.Writer
}

func (sp *spool) Write(p []byte) (int, error) {
	if sp.file == nil && sp.inline.Len()+len(p) <= maxInline {
		if sp.ctx.Err() != nil {
			return 0, context.Cause(sp.ctx)
		}
		return sp.inline.Write(p)
	}
	if sp.file == nil {
		file, err := sp.store.Create(sp.ctx)
		if err != nil {
			return 0, err
		}
		sp.file, sp.buffer = file, bufio.NewWriterSize(file, bufferSize)
		if _, err := sp.buffer.Write(sp.inline.Bytes()); err != nil {
			return 0, err
		}
	}
	return sp.buffer.Write(p)
}

func (sp *spool) finish() (evidence.Payload, error) {
	if sp.file == nil {
		return evidence.CanonicalPayload(sp.inline.Bytes()), nil
	}
	if err := sp.buffer.Flush(); err != nil {
		return evidence.Payload{}, err
	}
	b, err := sp.file.Commit()
	if err != nil {
		return evidence.Payload{}, err
	}
	return evidence.BlobPayload(b), nil
}

func (sp *spool) abort() {
	if sp.file != nil {
		sp.file.Abort()
	}
}
