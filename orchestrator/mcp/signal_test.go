package mcp

import (
	"context"
	"os/signal"
	"syscall"
)

// signalContext ends with SIGINT or SIGTERM, as the program's own does.
func signalContext() (context.Context, context.CancelFunc) {
	return signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
}
