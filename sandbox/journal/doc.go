// Package journal remembers what a process of rea has made on its host, so that a crash at any point leaves a list.
//
// A resource is written to its owner's journal before it is made, confirmed when it exists, and struck out when it is
// gone. An owner is one process; it holds a file lock for its whole life, and that lock is the only authority on
// "alive": process id, start time and boot id only explain. What a dead owner left is swept from its journal, by
// someone who holds its lock, and nothing else ever is.
//
//	<state>/id                            random id of this state directory
//	<state>/owners/<owner>/owner.json     who the owner is
//	<state>/owners/<owner>/lock           held for life
//	<state>/owners/<owner>/journal.ndjson what it made
//	<state>/runs/<owner>/<run>/           run directories, 0700
//
// Package journal must not know what a resource is, nor how one is made or removed. It does not call fsync: it
// guards against the death of a process, which loses no written page; a crash of the machine takes cgroups, mounts
// and processes with it, and a stopped container still carries its labels.
package journal
