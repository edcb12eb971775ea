package imagetest

import (
	"os"
	"os/exec" //nolint:depguard // runs the programs that tests compare with; no program imports this package
	"path/filepath"
	"strings"
	"testing"
)

// Tree makes a small tree of files, directories and a link, for other programs to pack.
func Tree(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{
		"a.txt": "alpha\n", "empty": "", "d/b": strings.Repeat("beta\n", 1500), "d/e/zeros": strings.Repeat("\x00", 9000),
		"d/" + strings.Repeat("n", 60): "long",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../a.txt", dir+"/d/link"); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Make runs a program in dir, which writes a file named out beside dir, and gives that file. ok is false where the
// program is not installed and REA_TEST_REQUIRE is not set.
func Make(t testing.TB, dir string, command ...string) (image []byte, ok bool) {
	t.Helper()
	if _, err := exec.LookPath(command[0]); err != nil {
		if os.Getenv("REA_TEST_REQUIRE") != "" {
			t.Fatalf("%s is not installed and REA_TEST_REQUIRE is set", command[0])
		}
		return nil, false
	}
	out := filepath.Join(t.TempDir(), "out")
	for i, c := range command {
		command[i] = strings.ReplaceAll(c, "OUT", out)
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir = dir
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%q: %v\n%s", command, err, b)
	}
	image, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return image, true
}
