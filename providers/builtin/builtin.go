// Package builtin is the one list of providers that are linked into the core. It cannot stand in package providers,
// which every provider imports. The worker has its own list, in cmd/rea-worker.
package builtin

import (
	"rea/providers"
	"rea/providers/artifact"
)

// Providers lists every provider, in the order in which they are shown.
func Providers() []providers.Provider {
	return []providers.Provider{
		artifact.Provider(),
	}
}
