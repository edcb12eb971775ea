package target

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// settled is how old a file's last change must be before its times can tell a later one: file systems stamp in steps of
// up to two seconds (FAT), and two changes within one step look like one.
const settled = 2500 * time.Millisecond

// Mark names the state of a regular file: device, inode, size, modification and change time. Two processes of one
// kernel that find the same mark before and after they read have read the same bytes, so one of them may hash for both.
// It is "" where a mark proves nothing: f is no regular file, or it changed so recently that a further change might not
// show. f may be opened O_PATH.
func Mark(f *os.File, now time.Time) string {
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return ""
	}
	if now.Sub(time.Unix(st.Ctim.Unix())) < settled || now.Sub(time.Unix(st.Mtim.Unix())) < settled {
		return ""
	}
	return mark(&st)
}

// Mark is the mark of the file as it was when it was opened. Check says whether it still is.
func (f *File) Mark() string { return mark(&f.st) }

func mark(st *unix.Stat_t) string {
	return fmt.Sprintf("%x:%x:%x:%x.%x:%x.%x", st.Dev, st.Ino, st.Size, st.Mtim.Sec, st.Mtim.Nsec, st.Ctim.Sec, st.Ctim.Nsec)
}
