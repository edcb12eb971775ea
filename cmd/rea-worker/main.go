// Command rea-worker is the program inside every container: all that parses a target's bytes is linked in here, and
// nowhere else.
package main

import (
	"os"

	artifact "rea/providers/artifact/worker"
	"rea/providers/worker"
)

// version is the build's, set by the linker.
var version = "development"

// providers is the one list of linked-in workers, by the name that a provider's manifest gives as its worker.
func providers() worker.Providers {
	return worker.Providers{
		artifact.Name: artifact.Handlers(),
		"selftest":    worker.Selftest(),
	}
}

func main() {
	os.Exit(worker.Main(os.Args[1:], worker.Options{Version: version}, providers()))
}
