package worker

import (
	"context"
	"io"
)

// Selftest is the provider "selftest": its one operation, noop, does nothing and says {"ok":true}. It is what doctor
// and the benchmarks run to see that a container works.
func Selftest() map[string]Handler {
	return map[string]Handler{
		"noop": func(_ context.Context, c *Call) error {
			_, err := io.WriteString(c.Result(), `{"ok":true}`)
			return err
		},
	}
}
