package guidance

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"rea/evidence/fault"
)

// Installed says where the skill is now.
type Installed struct {
	Path     string `json:"path"`
	Files    int    `json:"files"`
	Replaced bool   `json:"replaced"` // an earlier copy of this skill
}

// operationInstall names the work in failures.
const operationInstall = "skill_install"

// skillFile is the file that makes a directory a skill.
const skillFile = "SKILL.md"

// Install puts the skill into a directory of skills, which is made where it is not there. An earlier copy is replaced
// as a whole; a directory or file of this name that is not our skill is left alone and refused.
func Install(skills string) (Installed, error) {
	done := Installed{Path: filepath.Join(skills, SkillName)}
	replaced, err := ours(done.Path)
	if err != nil {
		return done, installFault(done.Path, err)
	}
	if err := os.MkdirAll(skills, 0o755); err != nil {
		return done, installFault(done.Path, err)
	}
	staging, err := os.MkdirTemp(skills, ".rea-skill-")
	if err != nil {
		return done, installFault(done.Path, err)
	}
	defer func() { _ = os.RemoveAll(staging) }() // what is left begins with a point, and no client takes it for a skill
	tree := filepath.Join(staging, SkillName)
	if err = os.CopyFS(tree, Skill()); err == nil {
		done.Files, err = countFiles(tree)
	}
	if err == nil {
		err = swap(tree, done.Path, replaced)
	}
	done.Replaced = replaced
	return done, installFault(done.Path, err)
}

// swap puts the tree at path; with exchange what was there takes its place.
func swap(tree, path string, exchange bool) error {
	how := uint(unix.RENAME_NOREPLACE)
	if exchange {
		how = unix.RENAME_EXCHANGE
	}
	return unix.Renameat2(unix.AT_FDCWD, tree, unix.AT_FDCWD, path, how)
}

var errForeign = errors.New("something that is not this skill")

// ours reports whether there is an earlier copy of the skill at path.
func ours(path string) (bool, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if !info.IsDir() {
		return false, errForeign
	}
	raw, err := os.ReadFile(filepath.Join(path, skillFile))
	if err != nil || !bytes.Contains(raw, []byte("\nname: "+SkillName+"\n")) {
		return false, errForeign
	}
	return true, nil
}

func countFiles(tree string) (n int, err error) {
	err = filepath.WalkDir(tree, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			n++
		}
		return err
	})
	return n, err
}

func installFault(path string, err error) error {
	shown := strings.ToValidUTF8(path, "\uFFFD")
	details := fault.Details{"operation": operationInstall, "path": shown}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errForeign), errors.Is(err, fs.ErrExist):
		return fault.New(fault.InvalidRequest, fmt.Sprintf("%s is there and is not the skill of rea.", shown), "Move it away, or install into another directory with --to.").
			WithAll(details).With("reason", "exists").Because(err)
	case errors.Is(err, fs.ErrPermission):
		return fault.New(fault.AccessDenied, fmt.Sprintf("The skill may not be written to %s.", shown), "Give this user access to the directory, or install into another one with --to.").
			WithAll(details).Because(err)
	}
	return fault.New(fault.ExecutionFailure, fmt.Sprintf("The skill could not be written to %s.", shown), "Look at the file system of the directory.").
		WithAll(details).With("reason", "io").Because(err)
}

// Client is a program that looks for skills in a directory of the user's home.
type Client struct {
	ID     string
	Home   string // its own directory, relative to the home: whether it is there says whether the client is used
	Skills string // where it looks, relative to the home
}

// Clients lists the clients whose places for skills are known.
func Clients() []Client {
	return []Client{
		{"claude-code", ".claude", ".claude/skills"},
		{"codex", ".codex", ".codex/skills"},
		{"gemini-cli", ".gemini", ".gemini/skills"},
	}
}
