// Package staging binds targets and volumes into place by descriptor, so that no path that somebody else could swap is
// ever resolved a second time.
//
// A target is opened once, without following a link; the open descriptor is what is checked, hashed and cloned to a
// mount of ours, read-only down to its last nested mount, and only that mount's path is given to an engine. Package
// staging must not read what a target holds, and keeps no record: the caller journals what it makes before it does.
//
// System calls: openat2, open_tree, mount_setattr, move_mount, fsopen (Linux 5.12 and later).
package staging
