package volume

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"rea/evidence"
	"rea/evidence/fault"
)

// Sink takes the bytes of one file; the writer of package store is one. Nothing is published before Commit.
type Sink interface {
	io.Writer
	// Commit publishes what was written.
	Commit() (evidence.Blob, error)
	// Abort forgets what was written. It does nothing after Commit.
	Abort()
}

// Commit is what the core knows of a call before it reads the answer: the worker's commitment from the control
// channel, and what the core itself gave to the call.
type Commit struct {
	Seq            uint64 // the core's own counter: the folder
	ManifestSHA256 string // from the worker's done
	ManifestBytes  int64  // from the worker's done
	Nonce          string // the core's nonce of this volume
	RequestSHA256  string // digest of the canonical parameters that the core sent
}

// Limits bounds what is copied out of a volume.
type Limits struct {
	Files int64 // files of one folder; the volume's inode quota is the natural value
	Bytes int64 // all files of one folder together; the volume's byte quota is the natural value
}

// Contents is what was verified of one folder.
type Contents struct {
	Manifest Manifest
	Files    map[string]evidence.Blob // by path below the folder; every file of the manifest when Read gave no error
}

// Folder is the name of the folder of call seq.
func Folder(seq uint64) string { return strconv.FormatUint(seq, 10) }

// Read reads the answer of one call: the manifest once, held against the commitment, then each file that it names,
// copied once into a sink of its own while it is hashed. Nothing is listed, reopened or read twice, so it does not
// matter what the volume's writer does meanwhile. The sink that create gives for the path of a file below the folder is
// committed when that file's size and digest are those of the manifest, and aborted otherwise.
//
// The error is a *fault.Error: evidence_integrity_mismatch with details reason and entry for what is refused or
// differs, unreadable_output for a manifest that does not parse, and what create, the sink or the source itself failed
// with. Contents is nil only when no manifest was verified; with an error it holds what verified before it.
func Read(ctx context.Context, src Source, want Commit, create func(ctx context.Context, name string) (Sink, error), limits Limits) (*Contents, error) {
	manifest, err := readManifest(ctx, src, want, limits)
	if err != nil {
		return nil, readFault(want.Seq, ManifestName, err)
	}
	c := &Contents{Manifest: *manifest, Files: make(map[string]evidence.Blob, len(manifest.Files))}
	buf := make([]byte, copyBuffer)
	for _, f := range resultFirst(manifest.Files) {
		blob, err := copyFile(ctx, src, want.Seq, f, create, buf)
		if err != nil {
			return c, readFault(want.Seq, f.Path, err)
		}
		c.Files[f.Path] = blob
	}
	return c, nil
}

// copyBuffer is the unit of copying: large enough to keep the hash busy, small enough for the processor's cache.
const copyBuffer = 256 << 10

// resultFirst moves the result to the front, so that a failure further on does not lose it.
func resultFirst(files []File) []File {
	i := slices.IndexFunc(files, func(f File) bool { return f.Path == ResultName })
	if i <= 0 {
		return files
	}
	return slices.Concat(files[i:i+1], files[:i], files[i+1:])
}

func readManifest(ctx context.Context, src Source, want Commit, limits Limits) (*Manifest, error) {
	if want.ManifestBytes <= 0 || want.ManifestBytes > MaxManifest {
		return nil, refuse(ManifestName, ReasonSize, fmt.Errorf("%d bytes committed, 1 to %d are possible", want.ManifestBytes, MaxManifest))
	}
	raw, err := readExactly(ctx, src, Folder(want.Seq)+"/"+ManifestName, want.ManifestBytes)
	if err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(raw); hex.EncodeToString(sum[:]) != want.ManifestSHA256 {
		return nil, refuse(ManifestName, ReasonDigest, nil)
	}
	m, err := DecodeManifest(raw)
	if err != nil {
		return nil, err
	}
	if err := m.answers(want); err != nil {
		return nil, err
	}
	return m, m.within(limits)
}

// readExactly reads a file that must have exactly size bytes; size is bounded by the caller.
func readExactly(ctx context.Context, src Source, name string, size int64) ([]byte, error) {
	r, err := src.Open(ctx, name, size)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	raw, err := io.ReadAll(io.LimitReader(r, size+1))
	if err != nil {
		return nil, err
	}
	if int64(len(raw)) != size {
		return nil, refuse(name, ReasonSize, fmt.Errorf("%d bytes committed, %d or more found", size, len(raw)))
	}
	return raw, nil
}

// answers reports whether the manifest is the answer to this very call.
func (m *Manifest) answers(want Commit) error {
	switch {
	case m.Nonce != want.Nonce:
		return refuse(ManifestName, ReasonCommit, errors.New("another volume's nonce"))
	case m.Seq != want.Seq:
		return refuse(ManifestName, ReasonCommit, fmt.Errorf("call %d, want %d", m.Seq, want.Seq))
	case m.RequestSHA256 != want.RequestSHA256:
		return refuse(ManifestName, ReasonCommit, errors.New("another request's digest"))
	}
	return nil
}

// within holds the manifest's claims against the run's quotas before a byte of a file is read.
func (m *Manifest) within(l Limits) error {
	if int64(len(m.Files)) > l.Files {
		return refuse(ManifestName, ReasonLimit, fmt.Errorf("%d files, %d allowed", len(m.Files), l.Files))
	}
	left := l.Bytes
	for _, f := range m.Files {
		if f.Size > left {
			return refuse(f.Path, ReasonLimit, fmt.Errorf("more than %d bytes in all", l.Bytes))
		}
		left -= f.Size
	}
	return nil
}

// copyFile copies one file into a sink and commits it when size and digest are those of the manifest.
func copyFile(ctx context.Context, src Source, seq uint64, f File, create func(ctx context.Context, name string) (Sink, error), buf []byte) (evidence.Blob, error) {
	r, err := src.Open(ctx, Folder(seq)+"/"+f.Path, f.Size)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	sink, err := create(ctx, f.Path)
	if err != nil {
		return nil, err
	}
	defer sink.Abort()
	sum, n, err := copyHashed(ctx, sink, io.LimitReader(r, f.Size+1), buf)
	switch {
	case err != nil:
		return nil, err
	case n != f.Size:
		return nil, refuse(f.Path, ReasonSize, fmt.Errorf("%d bytes in the manifest, %d or more found", f.Size, n))
	case sum != f.SHA256:
		return nil, refuse(f.Path, ReasonDigest, nil)
	}
	return sink.Commit()
}

// copyHashed copies until end of file and returns the hex SHA-256 and the length of what it copied.
func copyHashed(ctx context.Context, w io.Writer, r io.Reader, buf []byte) (sum string, n int64, err error) {
	h := sha256.New()
	for {
		if ctx.Err() != nil {
			return "", n, stopped(ctx)
		}
		k, err := r.Read(buf)
		n += int64(k)
		h.Write(buf[:k])
		if _, werr := w.Write(buf[:k]); werr != nil {
			return "", n, werr
		}
		if errors.Is(err, io.EOF) {
			return hex.EncodeToString(h.Sum(nil)), n, nil
		}
		if err != nil {
			return "", n, err
		}
	}
}

// readFault turns what went wrong with an entry of the folder into an error of the taxonomy.
func readFault(seq uint64, entry string, err error) error {
	var refusal *Refusal
	var known *fault.Error
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &refusal):
		entry = strings.TrimPrefix(refusal.Name, Folder(seq)+"/")
		return fault.New(fault.EvidenceIntegrityMismatch,
			fmt.Sprintf("What the container left is not what its worker committed to: %s of call %d.", Escape(entry), seq),
			"Repeat the call; if it fails again, treat the target as hostile to its analysis and report it.").
			WithAll(fault.Details{"reason": string(refusal.Reason), "entry": Escape(entry)}).Because(err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fault.From(err)
	}
	return fault.New(fault.ExecutionFailure,
		fmt.Sprintf("The evidence volume could not be read: %s of call %d.", Escape(entry), seq),
		"Repeat the call; rea doctor says whether the engine and the storage work.").
		With("entry", Escape(entry)).Because(err)
}

// stopped is the error of a context that has ended: its cause, and for errors.Is what kind of end it was.
func stopped(ctx context.Context) error {
	cause, end := context.Cause(ctx), ctx.Err()
	if errors.Is(cause, end) {
		return cause
	}
	return fmt.Errorf("%w: %w", end, cause)
}
