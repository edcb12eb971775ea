package store

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"rea/evidence"
)

// Damage is one thing of the store that is not what its name says.
type Damage struct {
	Kind    string `json:"kind"` // blob, record
	Name    string `json:"name"`
	Reason  string `json:"reason"`
	Removed bool   `json:"removed"` // by Repair

	item item
}

// Verification is the result of Verify and of Repair.
type Verification struct {
	Blobs   int      `json:"blobs"`
	Records int      `json:"records"`
	Damaged []Damage `json:"damaged"`
}

// Verify reads the whole store, recomputes every digest and identity and removes nothing.
func (s *Store) Verify(ctx context.Context) (Verification, error) {
	s.proved.forget()
	v := Verification{Damaged: []Damage{}}
	c := &collector{store: s}
	damage := func(kind, name, reason string, it item) error {
		v.Damaged = append(v.Damaged, Damage{Kind: kind, Name: name, Reason: reason, item: it})
		return nil
	}
	err := c.walk(ctx, filepath.Join(s.dir, blobsDir), func(name string, it item) error {
		v.Blobs++
		b, err := s.Blob(name)
		if err != nil {
			return damage("blob", name, "not content of the store", it)
		}
		sum, err := evidence.BlobPayload(b).SHA256()
		if err != nil || sum != name {
			return damage("blob", name, "its content has another digest", it)
		}
		return nil
	})
	if err != nil {
		return v, storage("verify", err)
	}
	err = c.walk(ctx, filepath.Join(s.dir, recordsDir), func(name string, it item) error {
		v.Records++
		r, err := s.Record(ctx, name)
		if err == nil {
			err = r.Verify()
		}
		if err != nil && ctx.Err() == nil {
			return damage("record", name, err.Error(), it)
		}
		return nil
	})
	return v, storage("verify", err)
}

// Repair is Verify, and then removes damaged content and the records that cannot be read in full, with their run
// records: what is left can be trusted, and what was removed can be produced again. It asks neither age nor lease,
// because nobody can use what is damaged; what was replaced since it was read stays.
func (s *Store) Repair(ctx context.Context) (Verification, error) {
	v, err := s.Verify(ctx)
	if err != nil {
		return v, err
	}
	c := &collector{store: s}
	for i := range v.Damaged {
		if ctx.Err() != nil {
			return v, context.Cause(ctx)
		}
		err := c.locked(func() error { return s.removeDamaged(&v.Damaged[i]) })
		if err != nil {
			return v, storage("remove what is damaged", err)
		}
	}
	return v, nil
}

// removeDamaged removes one file if it still is the one that was read. The caller holds the lock, exclusive.
func (s *Store) removeDamaged(d *Damage) error {
	now, err := os.Lstat(d.item.path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(now, d.item.info) {
		return nil
	}
	if err == nil {
		err = os.RemoveAll(d.item.path) // what has a blob's name and is no file may be a directory
	}
	if err == nil && d.Kind == "record" && evidence.ValidID(d.Name) {
		if err = os.Remove(s.path(runsDir, d.Name)); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	d.Removed = err == nil
	return err
}
