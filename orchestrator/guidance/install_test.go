package guidance

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"rea/evidence/fault"
)

func TestInstall(t *testing.T) {
	skills := filepath.Join(t.TempDir(), "new", "skills")
	first, err := Install(skills)
	if err != nil || first.Replaced || first.Path != filepath.Join(skills, SkillName) {
		t.Fatalf("%+v %v", first, err)
	}
	want := skillTexts(t)
	installed := func() map[string]string {
		got := map[string]string{}
		err := fs.WalkDir(os.DirFS(first.Path), ".", func(name string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			raw, err := os.ReadFile(filepath.Join(first.Path, name))
			got[name] = string(raw)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if diff := cmp.Diff(want, installed()); diff != "" || first.Files != len(want) {
		t.Errorf("%d files (-want +got):\n%s", first.Files, diff)
	}
	// An earlier copy goes as a whole, a file that the new one does not have included.
	if err := os.WriteFile(filepath.Join(first.Path, "old.md"), []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	if again, err := Install(skills); err != nil || !again.Replaced {
		t.Errorf("%+v %v", again, err)
	}
	if diff := cmp.Diff(want, installed()); diff != "" {
		t.Errorf("replaced (-want +got):\n%s", diff)
	}
	if entries, _ := os.ReadDir(skills); len(entries) != 1 {
		t.Errorf("left %v", entries)
	}
}

func TestInstallLeavesOthersAlone(t *testing.T) {
	for name, prepare := range map[string]func(path string) error{
		"file": func(path string) error { return os.WriteFile(path, []byte("x"), 0o600) },
		"link": func(path string) error { return os.Symlink("/none", path) },
		"another skill": func(path string) error {
			return os.CopyFS(path, files(map[string]string{"SKILL.md": "---\nname: other\n---\n"}))
		},
		"no skill": func(path string) error { return os.Mkdir(path, 0o700) },
	} {
		skills := t.TempDir()
		if err := prepare(filepath.Join(skills, SkillName)); err != nil {
			t.Fatal(err)
		}
		_, err := Install(skills)
		if f := fault.From(err); f == nil || f.Code != fault.InvalidRequest || f.Details["reason"] != "exists" {
			t.Errorf("%s: %v", name, err)
		}
		if entries, _ := os.ReadDir(skills); len(entries) != 1 {
			t.Errorf("%s: left %v", name, entries)
		}
	}
}
