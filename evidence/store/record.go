package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/go-json-experiment/json"
	"golang.org/x/sys/unix"

	"rea/evidence"
	"rea/evidence/fault"
)

const (
	// maxEnvelope bounds a record's own file. Longer payloads are blobs, so only lists of limitations, locations and
	// links make it long.
	maxEnvelope = 128 << 20

	// maxRun bounds a run record, which is a few kilobytes.
	maxRun = 4 << 20

	envelopeFormat = 1
)

// envelope is the file of a record: its fixed metadata, and its payloads as lists of parts.
type envelope struct {
	Format     int    `json:"format"`
	Head       []byte `json:"head"` // evidence.Record.Head
	Parameters []part `json:"parameters"`
	Raw        []part `json:"raw_result"`
	Normalized []part `json:"normalized_result"`
}

// part is a piece of a payload: in place, or a blob of the store.
type part struct {
	Text []byte `json:"text,omitempty"`
	Blob string `json:"blob,omitempty"` // SHA-256
	Size int64  `json:"size,omitempty"`
}

// blobs lists the digests that the envelope names, with repeats.
func (e *envelope) blobs(yield func(part) bool) {
	for _, parts := range [][]part{e.Parameters, e.Raw, e.Normalized} {
		for _, p := range parts {
			if p.Blob != "" && !yield(p) {
				return
			}
		}
	}
}

// PutRecord keeps a sealed record. Blobs of this store are named, not copied. When it returns, the record outlives
// the process; its files were flushed before they got their names, so that after a loss of power it is there as a
// whole or not at all. Nothing protects it from eviction but its age: use Lease.Retain for that.
func (s *Store) PutRecord(ctx context.Context, r *evidence.Record) error {
	_, err := s.put(ctx, r, nil)
	return err
}

// put keeps r and returns it with its payloads as they are kept. A lease lists it before it appears.
func (s *Store) put(ctx context.Context, r *evidence.Record, l *Lease) (*evidence.Record, error) {
	if !r.Sealed() {
		if err := r.Verify(); err != nil {
			return nil, err
		}
	}
	e, err := s.envelopeOf(ctx, r)
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("encode the envelope of %s: %w", r.ID, err)
	}
	if len(raw) > maxEnvelope {
		return nil, fault.New(fault.ResourceConstraint, fmt.Sprintf("The metadata of record %s take %d bytes, more than the store keeps.", r.ID, len(raw)),
			"Ask for a smaller part of the target.").
			WithAll(fault.Details{"operation": "evidence_store", "resource": "storage", "reason": "metadata-too-long",
				"reported_limits": map[string]any{"bytes": maxEnvelope}})
	}
	for p := range e.blobs {
		if err := s.flush(p.Blob); err != nil {
			return nil, storage("keep a record", err)
		}
	}
	confirm := func() error { return s.confirm(e, r.ID, l) }
	if err := s.putFile(ctx, recordsDir, r.ID, raw, confirm); err != nil {
		return nil, storage("keep a record", err)
	}
	return s.restore(r.ID, e)
}

// confirm runs under the shared lock, just before the record appears: from here on no collection removes what the
// record needs.
func (s *Store) confirm(e *envelope, id string, l *Lease) error {
	if l != nil {
		if err := l.add(id); err != nil {
			return err
		}
	}
	for p := range e.blobs {
		path := s.path(blobsDir, p.Blob)
		info, err := os.Lstat(path)
		if err != nil {
			return missing("content", p.Blob, err)
		}
		if info.Size() != p.Size {
			return damaged("blob "+p.Blob, fmt.Sprintf("%d bytes long instead of %d", info.Size(), p.Size))
		}
		if err := s.touchBlob(p.Blob, path); err != nil {
			return err
		}
	}
	return nil
}

// flush writes a blob through to the disk.
func (s *Store) flush(sha256 string) error {
	f, err := os.Open(s.path(blobsDir, sha256))
	if errors.Is(err, fs.ErrNotExist) {
		return missing("content", sha256, err)
	}
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// putFile publishes a small file of our own. before runs under the lock, ahead of the rename.
func (s *Store) putFile(ctx context.Context, kind, name string, raw []byte, before func() error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	f, err := s.temp()
	if err != nil {
		return err
	}
	defer f.Close()
	err = s.fillAndPublish(f, s.path(kind, name), raw, before)
	if err != nil {
		os.Remove(f.Name()) // what remains is unowned and falls to the next collection
	}
	return err
}

func (s *Store) fillAndPublish(f *os.File, path string, raw []byte, before func() error) error {
	if _, err := f.Write(raw); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	unlock, err := s.lock(unix.LOCK_SH)
	if err != nil {
		return err
	}
	defer unlock()
	if err := before(); err != nil {
		return err
	}
	return publish(f, path)
}

// envelopeOf describes r and brings into the store what is not yet a blob of it.
func (s *Store) envelopeOf(ctx context.Context, r *evidence.Record) (*envelope, error) {
	head, err := r.Head()
	if err != nil {
		return nil, err
	}
	e := &envelope{Format: envelopeFormat, Head: head}
	for _, one := range []struct {
		to   *[]part
		from evidence.Payload
	}{{&e.Parameters, r.Parameters}, {&e.Raw, r.RawResult}, {&e.Normalized, r.NormalizedResult}} {
		for inline, b := range one.from.Segments {
			p, err := s.partOf(ctx, inline, b)
			if err != nil {
				return nil, err
			}
			*one.to = append(*one.to, p)
		}
	}
	return e, nil
}

func (s *Store) partOf(ctx context.Context, inline []byte, b evidence.Blob) (part, error) {
	if b == nil && len(inline) <= maxInline {
		return part{Text: inline}, nil
	}
	if own, ok := b.(*blob); ok && own.store.dir == s.dir {
		return part{Blob: own.sha256, Size: own.size}, nil
	}
	var from io.Reader = bytes.NewReader(inline)
	if b != nil {
		r, err := b.Open()
		if err != nil {
			return part{}, err
		}
		defer r.Close()
		from = r
	}
	w, err := s.Create(ctx)
	if err != nil {
		return part{}, err
	}
	defer w.Abort()
	if _, err := io.Copy(w, from); err != nil {
		return part{}, storage("keep a record", err)
	}
	kept, err := w.Commit()
	if err != nil {
		return part{}, err
	}
	if b != nil && kept.SHA256() != b.SHA256() {
		return part{}, damaged("blob "+b.SHA256(), "its content has another digest")
	}
	return part{Blob: kept.SHA256(), Size: kept.Size()}, nil
}

// Record returns a record that the store keeps. Its payloads stay on disk, and its identity is the one under which
// it was put: Verify recomputes it.
func (s *Store) Record(ctx context.Context, id string) (*evidence.Record, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	e, err := s.readEnvelope(id)
	if err != nil {
		return nil, err
	}
	return s.restore(id, e)
}

func (s *Store) restore(id string, e *envelope) (*evidence.Record, error) {
	r, err := evidence.Restore(e.Head, s.payload(e.Parameters), s.payload(e.Raw), s.payload(e.Normalized))
	if err != nil {
		return nil, damaged("record "+id, "its envelope has another shape").Because(err)
	}
	if r.ID != id {
		return nil, damaged("record "+id, "its envelope names another record")
	}
	return r, nil
}

func (s *Store) payload(parts []part) evidence.Payload {
	all := make([]evidence.Payload, 0, len(parts))
	for _, p := range parts {
		if p.Blob != "" {
			all = append(all, evidence.BlobPayload(&blob{store: s, sha256: p.Blob, size: p.Size}))
		} else {
			all = append(all, evidence.CanonicalPayload(p.Text))
		}
	}
	return evidence.Concat(all...)
}

func (s *Store) readEnvelope(id string) (*envelope, error) {
	raw, err := s.readFile(recordsDir, id, maxEnvelope)
	if err != nil {
		return nil, err
	}
	e := &envelope{}
	if err := json.Unmarshal(raw, e, json.RejectUnknownMembers(true)); err != nil {
		return nil, damaged("record "+id, "its envelope does not parse").Because(err)
	}
	if e.Format != envelopeFormat {
		return nil, damaged("record "+id, "its envelope is of another version of rea")
	}
	for p := range e.blobs {
		if !validDigest(p.Blob) || p.Size < 0 {
			return nil, damaged("record "+id, "its envelope names content that cannot be")
		}
	}
	return e, nil
}

func (s *Store) readFile(kind, id string, limit int64) ([]byte, error) {
	if !evidence.ValidID(id) {
		return nil, missing("record", id, nil)
	}
	f, err := os.OpenFile(s.path(kind, id), os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, missing("record", id, err)
	}
	if err != nil {
		return nil, storage("read a record", err)
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(raw)) > limit {
		err = damaged("record "+id, "its file is longer than any that was written")
	}
	return raw, storage("read a record", err)
}

// PutRun keeps the run record of an Evidence record, a JSON text, in place of an earlier one.
func (s *Store) PutRun(ctx context.Context, evidenceID string, run []byte) error {
	if !evidence.ValidID(evidenceID) || len(run) > maxRun {
		return fault.New(fault.ExecutionFailure, fmt.Sprintf("The run record of %q (%d bytes) cannot be kept.", evidenceID, len(run)),
			"Report it with the output of rea doctor.")
	}
	return storage("keep a run record", s.putFile(ctx, runsDir, evidenceID, run, func() error { return nil }))
}

// Run returns the run record of an Evidence record. A miss is evidence_integrity_mismatch with reason missing.
func (s *Store) Run(evidenceID string) ([]byte, error) {
	return s.readFile(runsDir, evidenceID, maxRun)
}
