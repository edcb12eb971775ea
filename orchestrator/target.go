package orchestrator

import (
	"errors"
	"path/filepath"
	"slices"

	"rea/evidence/target"
	"rea/orchestrator/run"
	"rea/sandbox"
	"rea/sandbox/staging"
)

// input is a target that was opened and checked, with its companion directory where it has one.
type input struct {
	main      *staging.Target
	companion *staging.Target // nil without one
}

// openInput opens path for a run. Close it when the run is over.
func (h *Host) openInput(path string) (*input, error) {
	options := staging.TargetOptions{Refuse: []string{h.config.StateDir}}
	main, err := staging.OpenTarget(path, options)
	if err != nil {
		return nil, err
	}
	companion, err := main.Companion(options)
	if err != nil {
		return nil, errors.Join(err, main.Close())
	}
	return &input{main, companion}, nil
}

// Close closes the descriptors.
func (in *input) Close() error {
	err := in.main.Close()
	if in.companion != nil {
		err = errors.Join(err, in.companion.Close())
	}
	return err
}

// name is the target's base name as it travels to the worker: it decides, with the bytes, what a file is taken for.
func (in *input) name() string { return target.Escape([]byte(filepath.Base(in.main.Path))) }

// doubts is what is less certain about the target because of where it lies, for the run record: Evidence does not
// depend on a file system.
func (in *input) doubts() []string {
	all := slices.Clone(in.main.Limitations)
	if in.companion != nil {
		all = append(all, in.companion.Limitations...)
	}
	return all
}

// target describes the input to the run: what is mounted where, and what the core hashes.
func (in *input) target() *run.Target {
	t := &run.Target{Path: in.main.Path, Doubts: in.doubts()}
	add := func(s *staging.Target, destination, name string) {
		t.Mounts = append(t.Mounts, sandbox.Target{File: s.File, Path: s.Path, Destination: destination, Dir: s.Dir, OwnerUID: s.UID, Private: s.Private})
		t.Roots = append(t.Roots, target.Root{Name: name, File: s.File})
	}
	add(in.main, sandbox.TargetPath, target.MainName)
	if in.companion != nil {
		add(in.companion, sandbox.TargetPath+".unpacked", target.CompanionName)
	}
	return t
}
