package staging

import (
	"bufio"
	"os"
	"strings"
)

// nested counts the mounts below dst that this process sees.
func nested(dst string) (int, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	n := 0
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20) // overlay mounts have long lines
	for lines.Scan() {
		const point = 4 // field 5 of proc_pid_mountinfo(5)
		fields := strings.Fields(lines.Text())
		if len(fields) > point && strings.HasPrefix(unescape(fields[point]), dst+"/") {
			n++
		}
	}
	return n, lines.Err()
}

// unescape undoes the octal escapes of proc_pid_mountinfo(5): \040 for a space, and likewise tab, newline, backslash.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}
