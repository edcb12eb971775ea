// Package images makes the root file systems that runs are started from, without a registry and without a network.
//
// The static image is assembled in memory from the worker that is embedded into this program: the same worker gives
// the same bytes and so the same digest, on every machine. An image leaves the package in two forms: as an archive
// that a container engine loads, and as an unpacked directory that an OCI runtime starts. Package images starts
// nothing and knows no engine; it must not read bytes that came from a target.
package images
