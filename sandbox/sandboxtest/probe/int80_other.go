//go:build linux && !amd64

package main

// int80 stands in where there is no 32-bit entry: as if the kernel refused the call.
func int80() uintptr { return 0 }
