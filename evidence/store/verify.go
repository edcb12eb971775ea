package store

import (
	"context"
	"path/filepath"

	"rea/evidence"
)

// Damage is one thing of the store that is not what its name says.
type Damage struct {
	Kind   string `json:"kind"` // blob, record
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// Verification is the result of Verify.
type Verification struct {
	Blobs   int      `json:"blobs"`
	Records int      `json:"records"`
	Damaged []Damage `json:"damaged"`
}

// Verify reads the whole store, recomputes every digest and identity and removes nothing.
func (s *Store) Verify(ctx context.Context) (Verification, error) {
	v := Verification{Damaged: []Damage{}}
	c := &collector{store: s}
	damage := func(kind, name, reason string) error {
		v.Damaged = append(v.Damaged, Damage{kind, name, reason})
		return nil
	}
	err := c.walk(ctx, filepath.Join(s.dir, blobsDir), func(name string, _ item) error {
		v.Blobs++
		b, err := s.Blob(name)
		if err != nil {
			return damage("blob", name, "not content of the store")
		}
		sum, err := evidence.BlobPayload(b).SHA256()
		if err != nil || sum != name {
			return damage("blob", name, "its content has another digest")
		}
		return nil
	})
	if err != nil {
		return v, storage("verify", err)
	}
	err = c.walk(ctx, filepath.Join(s.dir, recordsDir), func(name string, _ item) error {
		v.Records++
		r, err := s.Record(ctx, name)
		if err == nil {
			err = r.Verify()
		}
		if err != nil && ctx.Err() == nil {
			return damage("record", name, err.Error())
		}
		return nil
	})
	return v, storage("verify", err)
}
