package volume

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
)

// Tar is the source of a volume that is reached only by an engine's copy-out, one tar stream for each name: what a
// remote engine, or one that made the volume itself, offers. The function open starts the copy of the entry at a path
// below the volume's root; it returns an error that matches fs.ErrNotExist where there is none. Closing its stream must
// end the copy at once.
//
// A tar stream hides a hard link's count. That is harmless here: a run cannot link to what is not its own, and the
// bytes are held against a digest that the worker has already committed to.
func Tar(open func(ctx context.Context, name string) (io.ReadCloser, error)) Source {
	return tarSource{open}
}

type tarSource struct {
	open func(ctx context.Context, name string) (io.ReadCloser, error)
}

// Open reads the header and refuses from it, before any content, what is not one regular file of the expected size.
func (s tarSource) Open(ctx context.Context, name string, limit int64) (io.ReadCloser, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	stream, err := s.open(ctx, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, refuse(name, ReasonMissing, err)
	}
	if err != nil {
		return nil, fmt.Errorf("copy %s out of the container: %w", Escape(name), err)
	}
	f := &tarFile{name: name, stream: stream, tar: tar.NewReader(stream), ctx: ctx}
	// A reader that blocks in the engine's stream is released by closing it.
	f.stop = context.AfterFunc(ctx, func() { stream.Close() })
	header, err := f.tar.Next()
	if err == nil {
		err = checkHeader(header, name, limit)
	} else if ctx.Err() == nil {
		err = refuse(name, ReasonStream, err)
	}
	if err != nil {
		_ = f.Close() // the stream is given up: its failure is told
		return nil, cancelledOr(ctx, err)
	}
	return f, nil
}

func checkHeader(h *tar.Header, name string, limit int64) error {
	switch {
	case h.Name != path.Base(name):
		return refuse(name, ReasonStream, errors.New("the copy has another name"))
	case h.Typeflag != tar.TypeReg:
		return refuse(name, ReasonKind, fmt.Errorf("tar type %q", h.Typeflag))
	case h.FileInfo().Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0:
		return refuse(name, ReasonMode, nil)
	case h.Size > limit:
		return refuse(name, ReasonSize, fmt.Errorf("%d bytes, at most %d expected", h.Size, limit))
	}
	return nil
}

// tarFile is the content of the one entry. Its end is reached only if nothing follows the entry.
type tarFile struct {
	ctx    context.Context //nolint:containedctx // a reader has no other way to tell a cut stream from a cancelled one
	name   string
	stream io.ReadCloser
	tar    *tar.Reader
	stop   func() bool
	ended  bool
}

func (f *tarFile) Read(p []byte) (int, error) {
	if f.ended {
		return 0, io.EOF
	}
	n, err := f.tar.Read(p)
	switch {
	case err == nil:
		return n, nil
	case !errors.Is(err, io.EOF):
		return n, cancelledOr(f.ctx, refuse(f.name, ReasonStream, err))
	}
	if _, err := f.tar.Next(); !errors.Is(err, io.EOF) {
		return n, cancelledOr(f.ctx, refuse(f.name, ReasonStream, errors.New("more than one entry")))
	}
	f.ended = true
	return n, io.EOF
}

func (f *tarFile) Close() error {
	f.stop()
	return f.stream.Close()
}

// cancelledOr prefers the context's cause over what its cancellation did to the stream.
func cancelledOr(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return stopped(ctx)
	}
	return err
}

// Free is not known: the engine does not report a volume's quotas.
func (tarSource) Free(context.Context) (*Free, error) { return nil, nil }

// List is not supported: such a volume is read while its container runs, so a walk would prove nothing.
func (tarSource) List(context.Context, ListLimits) ([]Entry, error) {
	return nil, fmt.Errorf("list an engine's volume: %w", errors.ErrUnsupported)
}
