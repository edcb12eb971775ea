package images

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"io/fs"
	"sync"

	"rea/evidence/fault"
)

// workerFile is where the build puts the worker; it is not committed, so a clean checkout has the folder alone.
const workerFile = "worker/rea-worker"

//go:embed all:worker
var embedded embed.FS

type embeddedWorker struct {
	binary []byte
	sha256 string
}

var loadWorker = sync.OnceValues(func() (embeddedWorker, error) { return readWorker(embedded) })

// Worker returns the embedded worker binary and its SHA-256 in hex. The bytes are shared: do not change them.
// In a program that was built without its worker the error is capability_unavailable and says how to build it.
func Worker() ([]byte, string, error) {
	w, err := loadWorker()
	return w.binary, w.sha256, err
}

func readWorker(from fs.FS) (embeddedWorker, error) {
	binary, err := fs.ReadFile(from, workerFile)
	if errors.Is(err, fs.ErrNotExist) || (err == nil && len(binary) == 0) {
		return embeddedWorker{}, fault.New(fault.CapabilityUnavailable,
			"This rea was built without its worker, so it can start no container.",
			"Build it with make build, which compiles the worker and embeds it.").
			WithAll(fault.Details{"engine": nil, "image": StaticName, "feature": "worker"})
	}
	if err != nil {
		return embeddedWorker{}, fault.From(err)
	}
	sum := sha256.Sum256(binary)
	return embeddedWorker{binary, hex.EncodeToString(sum[:])}, nil
}
