package guidance

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"unicode/utf16"

	"rea/evidence"
)

// SkillName is the name of the skill, and of the directory that it is installed as.
const SkillName = "reverse-engineer-anything"

//go:embed skill
var embedded embed.FS

// Skill is the packaged skill: Markdown files below its root.
func Skill() fs.FS {
	files, err := fs.Sub(embedded, "skill")
	if err != nil {
		panic("guidance: " + err.Error()) // the name is a constant
	}
	return files
}

// Limits of admission. Beyond any of them the whole bundle is unavailable: an index of a part would make absence from
// it mean nothing.
const (
	maxFileBytes = 1 << 20
	// maxBundleBytes also keeps all sections with their subsections within 25,165,824 UTF-16 code units, the contract's
	// limit: each byte stands in at most six sections, one for each level of heading.
	maxBundleBytes = 4 << 20
	maxSections    = 4096
)

// section is one heading with what stands below it.
type section struct {
	path        string
	headingPath []string // down to its own
	level       int
	start, own  int   // byte range of the own text: from the heading to the first subsection
	end         int   // of the expanded text
	parent      int   // index of the enclosing section, -1 for none
	children    []int // direct subsections
}

// bundle is the guidance that was read at one moment.
type bundle struct {
	sha256   string
	texts    map[string]string // by path
	sections []section         // by path, then position
}

// errUnavailable is wrapped by every reason why there is no bundle.
var errUnavailable = errors.New("guidance unavailable")

func unavailable(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errUnavailable, fmt.Sprintf(format, args...))
}

// load reads and indexes every Markdown file of files.
func load(files fs.FS) (*bundle, error) {
	b := &bundle{texts: map[string]string{}}
	var total int
	err := fs.WalkDir(files, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || path.Ext(name) != ".md" {
			return err
		}
		text, err := readText(files, name)
		if err != nil {
			return err
		}
		if total += len(text); total > maxBundleBytes {
			return unavailable("the files take more than %d bytes", maxBundleBytes)
		}
		b.texts[name] = text
		return nil
	})
	if err == nil && len(b.texts) == 0 {
		err = unavailable("there are no files")
	}
	if err == nil {
		err = b.index()
	}
	if err != nil && !errors.Is(err, errUnavailable) {
		err = unavailable("a file cannot be read")
	}
	return b, err
}

func readText(files fs.FS, name string) (string, error) {
	f, err := files.Open(name)
	if err != nil {
		return "", err
	}
	raw, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return "", err
	}
	if len(raw) > maxFileBytes {
		return "", unavailable("%s takes more than %d bytes", name, maxFileBytes)
	}
	return string(raw), nil
}

// index finds the sections of every file and the identity of the bundle.
func (b *bundle) index() error {
	var listing []any
	for _, name := range b.paths() {
		text := b.texts[name]
		listing = append(listing, map[string]string{"path": name, "sha256": digest(text)})
		if err := b.split(name, text); err != nil {
			return err
		}
	}
	var err error
	b.sha256, err = evidence.Digest(listing)
	return err
}

func (b *bundle) paths() []string {
	var names []string
	for name := range b.texts {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// units counts UTF-16 code units.
func units(text string) int {
	n := 0
	for _, r := range text {
		n += max(1, utf16.RuneLen(r))
	}
	return n
}

// split adds the sections of one file. Headings inside fenced code are text.
func (b *bundle) split(name, text string) error {
	var open []int // enclosing sections, outermost first
	fence := ""
	at := 0
	closeTo := func(level, end int) {
		for len(open) > 0 && b.sections[open[len(open)-1]].level >= level {
			b.sections[open[len(open)-1]].end = end
			open = open[:len(open)-1]
		}
	}
	for line := range strings.Lines(text) {
		start := at
		at += len(line)
		if fence = fenced(fence, line); fence != "" {
			continue
		}
		level, heading := headingOf(line)
		if level == 0 {
			continue
		}
		if len(b.sections) == maxSections {
			return unavailable("there are more than %d sections", maxSections)
		}
		closeTo(level, start)
		s := section{path: name, headingPath: []string{heading}, level: level, start: start, parent: -1}
		if len(open) > 0 {
			s.parent = open[len(open)-1]
			parent := &b.sections[s.parent]
			s.headingPath = append(slices.Clone(parent.headingPath), heading)
			if parent.children = append(parent.children, len(b.sections)); parent.own == 0 {
				parent.own = start
			}
		}
		open = append(open, len(b.sections))
		b.sections = append(b.sections, s)
	}
	closeTo(0, len(text))
	for i := range b.sections {
		if b.sections[i].own == 0 {
			b.sections[i].own = b.sections[i].end
		}
	}
	return nil
}

// fenced follows fences of code: it returns the fence that is open behind the line.
func fenced(open, line string) string {
	line = strings.TrimSpace(line)
	for _, mark := range []string{"```", "~~~"} {
		switch {
		case !strings.HasPrefix(line, mark):
		case open == "":
			return mark
		case open == mark:
			return ""
		}
	}
	return open
}

// headingOf reads an ATX heading; level 0 is none.
func headingOf(line string) (level int, heading string) {
	rest := strings.TrimLeft(line, "#")
	level = len(line) - len(rest)
	if level == 0 || level > 6 || !strings.HasPrefix(rest, " ") {
		return 0, ""
	}
	return level, strings.TrimSpace(rest)
}

// locatorPrefix begins a locator: guide_, the bundle, _, the section.
const locatorPrefix = "guide_"

// locator names a section by what it holds, in hashes of fixed size: a long heading does not make it unreadable.
func (b *bundle) locator(s section) string {
	sum, err := evidence.Digest(map[string]any{"path": s.path, "heading_path": s.headingPath, "text": b.texts[s.path][s.start:s.end]})
	if err != nil {
		sum = digest(s.path + "\x00" + strings.Join(s.headingPath, "\x00")) // a text that is not UTF-8 has no canonical form
	}
	return locatorPrefix + b.sha256 + "_" + sum
}

// Section is what reading a locator gives. Status is ok, or why there is no content.
type Section struct {
	Status        string `json:"status"`
	Reason        string `json:"reason,omitzero"`
	Locator       string `json:"locator,omitzero"`
	Path          string `json:"path,omitzero"`
	Heading       string `json:"heading,omitzero"`
	Content       string `json:"content,omitzero"`
	ContentLength int    `json:"content_length,omitzero"` // UTF-16 code units
}

// Statuses of searching and reading.
const (
	StatusOK          = "ok"
	StatusUnavailable = "bundle_unavailable"
	StatusStale       = "stale_locator"
	StatusNotFound    = "section_not_found"
)

// Read reads the section of a locator from files, as they are now.
func Read(files fs.FS, locator string) Section {
	b, err := load(files)
	if err != nil {
		return Section{Status: StatusUnavailable, Reason: reason(err)}
	}
	if rest, ok := strings.CutPrefix(locator, locatorPrefix); ok {
		if of, _, ok := strings.Cut(rest, "_"); ok && of != b.sha256 && len(of) == len(b.sha256) {
			return Section{Status: StatusStale, Reason: "The locator belongs to guidance of another version; search again."}
		}
	}
	for _, s := range b.sections {
		if b.locator(s) == locator {
			text := b.texts[s.path][s.start:s.end]
			return Section{Status: StatusOK, Locator: locator, Path: s.path, Heading: s.heading(), Content: text, ContentLength: units(text)}
		}
	}
	return Section{Status: StatusNotFound, Reason: "No section has this locator; search again."}
}

func (s section) heading() string { return s.headingPath[len(s.headingPath)-1] }

func reason(err error) string {
	return "The guidance is not available: " + strings.TrimPrefix(err.Error(), errUnavailable.Error()+": ") + ". Install rea again."
}
