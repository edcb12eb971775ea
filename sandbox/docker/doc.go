// Package docker is the driver that runs sandboxes in a local Docker Engine. It is the only importer of the engine's
// client.
//
// The engine gets every field that an image or its own configuration could fill in, and what it says afterwards is
// compared with what was asked. Where this process may mount and make cgroups, evidence volume, target mounts and the
// cgroup that holds the limits are ours and the engine is only handed their paths; where it may not (an ordinary user
// of the engine), the engine makes a quota-capped volume, binds the target by path and makes the cgroup, and the run's
// proof names what that leaves unproved. Package docker must not read what a run leaves behind, and never pulls an
// image.
package docker
