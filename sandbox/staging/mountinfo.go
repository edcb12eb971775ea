package staging

import (
	"bufio"
	"os"
	"strings"
)

// nested counts the mounts below dst that this process sees.
func nested(dst string) (int, error) {
	list, err := Below(dst)
	return len(list), err
}

// Below lists the mounts below a directory that this process sees, in the order in which they were made.
func Below(dir string) ([]string, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var list []string
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20) // overlay mounts have long lines
	for lines.Scan() {
		const point = 4 // field 5 of proc_pid_mountinfo(5)
		fields := strings.Fields(lines.Text())
		if len(fields) <= point {
			continue
		}
		if at := unescape(fields[point]); strings.HasPrefix(at, dir+"/") {
			list = append(list, at)
		}
	}
	return list, lines.Err()
}

// unescape undoes the octal escapes of proc_pid_mountinfo(5): \040 for a space, and likewise tab, newline, backslash.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}
