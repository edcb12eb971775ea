package main

import (
	"context"
	"io"
)

func writeResult(_ context.Context, s step) error {
	*s.written = true
	_, err := io.WriteString(s.call.Result(), s.Text)
	return err
}

func writeFile(_ context.Context, s step) error {
	f, err := s.call.File(s.Path)
	if err != nil {
		return err
	}
	if _, err := io.CopyN(f, pattern{}, s.Bytes); err != nil {
		return err
	}
	return f.Close()
}

// pattern is an endless stream of one letter.
type pattern struct{}

func (pattern) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

func wait(ctx context.Context, _ step) error {
	<-ctx.Done()
	return context.Cause(ctx)
}
