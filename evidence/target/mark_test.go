package target

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A mark tells a file from every other state and every other file, and is not given where times cannot tell.
func TestMark(t *testing.T) {
	dir := t.TempDir()
	path := dir + "/f"
	write(t, path, "one", 0o644)
	later := time.Now().Add(time.Hour) // long after every change of this test
	f := open(t, path, unix.O_PATH)
	first := Mark(f, later)
	if first == "" {
		t.Fatal("a settled file has no mark")
	}
	opened, err := Open(f)
	if err != nil {
		t.Fatal(err)
	}
	if got := opened.Mark(); got != first {
		t.Errorf("read through the descriptor it is %s, by itself %s", got, first)
	}
	if err := opened.Close(); err != nil {
		t.Fatal(err)
	}
	if got := Mark(f, time.Now()); got != "" {
		t.Errorf("a file that was written just now has the mark %s", got)
	}
	if got := Mark(f, time.Unix(0, 0)); got != "" {
		t.Errorf("a file of the future has the mark %s", got)
	}
	write(t, dir+"/copy", "one", 0o644)
	if Mark(open(t, dir+"/copy", unix.O_PATH), later) == first {
		t.Error("a copy has the same mark")
	}
	past := time.Unix(1_000_000, 0)
	if err := os.Chtimes(path, past, past); err != nil { // as who hides a change would
		t.Fatal(err)
	}
	if Mark(f, later) == first {
		t.Error("a file whose times were set has the same mark")
	}
	if got := Mark(open(t, dir, unix.O_PATH), later); got != "" {
		t.Errorf("a directory has the mark %s", got)
	}
}
