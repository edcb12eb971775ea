package worker

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/go-json-experiment/json"
	"golang.org/x/sys/unix"

	"rea/evidence/fault"
	"rea/evidence/volume"
	"rea/providers/wire"
)

const (
	// reserveBytes is kept for the manifest while the handler runs, so that a full volume can still say that it is
	// full: a failure, a target and a few hundred files.
	reserveBytes = 64 << 10
	// maxMessage bounds the message and the action of a failure in the manifest.
	maxMessage = 4 << 10
	// maxDetails bounds the encoded details of a failure, well below volume.MaxFailure.
	maxDetails = 32 << 10
)

// reserveManifest makes the manifest's inode and allocates its first pages.
func reserveManifest(name string) (*os.File, error) {
	f, err := createFile(name)
	if err != nil {
		return nil, err
	}
	err = unix.Fallocate(int(f.Fd()), 0, 0, reserveBytes)
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.ENOSYS) {
		f.Close()
		return nil, err
	}
	return f, nil
}

// seal ends the answer: it closes or drops what is open, writes the manifest and returns the commitment to it.
func (c *Call) seal(ctx context.Context, failed error) (*wire.Done, error) {
	failed = c.closeOutputs(failed)
	m := c.manifest(ctx, failed)
	raw, err := c.writeManifest(m)
	if err != nil {
		return nil, fmt.Errorf("write the manifest of call %d: %w", c.Seq, err)
	}
	sum := sha256.Sum256(raw)
	return &wire.Done{Seq: c.Seq, ManifestSHA256: hex.EncodeToString(sum[:]), ManifestBytes: int64(len(raw))}, nil
}

// closeOutputs closes what a successful handler left open, and drops what a failed one did.
func (c *Call) closeOutputs(failed error) error {
	c.mu.Lock()
	c.sealed = true
	open := make([]*output, 0, len(c.outputs))
	for _, o := range c.outputs {
		open = append(open, o)
	}
	c.mu.Unlock()
	for _, o := range open {
		if failed != nil {
			o.discard()
		} else if err := o.Close(); err != nil {
			failed = err
		}
	}
	return failed
}

func (c *Call) manifest(ctx context.Context, failed error) *volume.Manifest {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := &volume.Manifest{
		Nonce: c.process.nonce, Seq: c.Seq, RequestSHA256: c.requestDigest(), Outcome: volume.Completed,
		Target: c.target, Files: c.files, Exhausted: c.full,
	}
	slices.SortFunc(m.Files, func(a, b volume.File) int { return cmp.Compare(a.Path, b.Path) })
	if failed == nil && c.full != volume.ExhaustedNone {
		failed = fullError(c.full) // the handler did not look
	}
	if failed != nil {
		m.Outcome, m.Error = failure(ctx, failed)
	}
	return m
}

// failure says how a call ended that did not succeed.
func failure(ctx context.Context, err error) (volume.Outcome, *volume.Failure) {
	outcome := volume.Failed
	if errors.Is(context.Cause(ctx), errCancelled) {
		outcome, err = volume.Cancelled, fault.From(context.Canceled).Because(err)
	} else if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = fault.From(context.DeadlineExceeded).Because(err)
	}
	e := fault.From(err)
	fmt.Fprintln(os.Stderr, "rea-worker:", wire.Truncate(e.Error(), maxMessage))
	return outcome, &volume.Failure{
		Code:    e.Code,
		Message: wire.Truncate(e.Message, maxMessage),
		Action:  wire.Truncate(e.Action, maxMessage),
		Details: encodable(e.Details),
	}
}

// encodable drops details that cannot travel; the code and the message say enough.
func encodable(d fault.Details) fault.Details {
	raw, err := json.Marshal(d)
	if err != nil || len(raw) > maxDetails {
		return fault.Details{"details_omitted": true}
	}
	return d
}

// writeManifest writes over the reserve. Where a full volume has no room for the whole list, it gives up files, the
// last half of those that are left each time, until what it says is true and fits.
func (c *Call) writeManifest(m *volume.Manifest) ([]byte, error) {
	defer c.reserve.Close()
	for {
		raw, err := m.Encode()
		if err != nil {
			return nil, err
		}
		if _, err = c.reserve.WriteAt(raw, 0); err == nil {
			return raw, c.reserve.Truncate(int64(len(raw)))
		}
		if !isFull(err) || len(m.Files) == 0 {
			return nil, err
		}
		c.giveUp(m, c.filled(err))
	}
}

// giveUp drops the last half of the files from the volume and the manifest, and says why.
func (c *Call) giveUp(m *volume.Manifest, full error) {
	half := len(m.Files) / 2
	for _, f := range m.Files[half:] {
		os.Remove(filepath.Join(c.folder, filepath.FromSlash(f.Path)))
	}
	m.Files = m.Files[:half]
	m.Exhausted = c.full
	if m.Error == nil {
		m.Outcome, m.Error = failure(context.Background(), full)
	}
}
