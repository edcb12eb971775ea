package main

// int80 calls the kernel through its 32-bit entry and returns what that call gave.
func int80() uintptr
