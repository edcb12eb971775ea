package evidence

import (
	"bytes"
	"context"
	"io"
)

// Spooler makes a Payload from a stream of one canonical JSON value, without holding it in memory. It refuses a
// stream that is not canonical. The store implements it; Memory does for tests and small values.
type Spooler interface {
	Spool(ctx context.Context, write func(w io.Writer) error) (Payload, error)
}

// Memory is a Spooler and Retainer that keeps everything in memory. The zero value is ready.
type Memory struct{}

// Spool implements Spooler.
func (Memory) Spool(ctx context.Context, write func(w io.Writer) error) (Payload, error) {
	var b bytes.Buffer
	check := NewPayloadChecker()
	if err := write(ContextWriter(ctx, io.MultiWriter(&b, check))); err != nil {
		return Payload{}, err
	}
	if err := check.Close(); err != nil {
		return Payload{}, err
	}
	return CanonicalPayload(b.Bytes()), nil
}

// Retain implements Retainer.
func (Memory) Retain(_ context.Context, r *Record) (*Record, error) { return r, nil }

// Release implements Retainer.
func (Memory) Release() error { return nil }

// ContextWriter passes writes on until ctx ends; then they fail with its cause.
func ContextWriter(ctx context.Context, w io.Writer) io.Writer { return contextWriter{ctx, w} }

type contextWriter struct {
	ctx context.Context
	w   io.Writer
}

func (c contextWriter) Write(p []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.w.Write(p)
}
