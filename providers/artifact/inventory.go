package artifact

import (
	"slices"
	"strings"

	"rea/evidence"
)

// Inventory is what a check learned of an inventory result without holding its lists.
type Inventory struct {
	Manifest           Manifest
	Coverage           Coverage
	Limitations        []string        // of the inventory, in its order
	Contradictions     []Contradiction // the first MaxKept
	ContradictionCount int64
	Containers         int64               // expanded containers that are described
	Entries            map[EntryKind]int64 // occurrences by what their place is
	Unverified         int64               // occurrences whose bytes are not known or not those declared
	RootContent        Format              // content format of the root's node
	RootSize           int64               // bytes of the root, 0 for a directory
	RootMediaType      string              // "" for null
	RootArchitecture   string              // as the reader names it, "" for null
	RootExecutable     bool
	Architectures      []string // distinct ones of all nodes, sorted, the first maxArchitectures

	declared bool   // coverage stands in the result
	legacy   string // coverage_status, "" where there is none
}

// maxArchitectures bounds what is kept of the architectures of slices.
const maxArchitectures = 64

func (v *Inventory) rootNode(f Format, size int64, architecture, media []byte) {
	v.RootContent, v.RootSize = f, size
	v.RootArchitecture, v.RootMediaType = textOr(architecture), textOr(media)
}

// textOr decodes a quoted string, nil to "".
func textOr(quoted []byte) string {
	if quoted == nil {
		return ""
	}
	return string(unquote(nil, quoted))
}

func (v *Inventory) architecture(quoted []byte) {
	if quoted == nil || len(v.Architectures) >= maxArchitectures {
		return
	}
	a := textOr(quoted)
	if i, ok := slices.BinarySearch(v.Architectures, a); !ok {
		v.Architectures = slices.Insert(v.Architectures, i, a)
	}
}

func (v *Inventory) count(o *occurrence) {
	v.Entries[o.entry]++
	if o.status != HashVerified {
		v.Unverified++
	}
}

// subjectArchitectures are those that the subject of an Evidence record may name.
var subjectArchitectures = []string{"x86", "x86_64", "arm", "arm64", "mips"}

// Subject is the subject of Evidence about this inventory's root. name and localPath are for display.
func (v *Inventory) Subject(name, localPath string) *evidence.Subject {
	s := &evidence.Subject{
		Name: name, SHA256: v.Manifest.RootSHA256, Format: string(v.Manifest.RootFormat), LocalPath: localPath,
	}
	if name == "" {
		s.Name = "artifact"
	}
	if slices.Contains(subjectArchitectures, v.RootArchitecture) {
		s.Architecture = v.RootArchitecture
	}
	return s
}

// A notice is how older producers told in words what coverage tells in records that carry it.
type notice struct {
	start, end string
	scope      Scope // "" where it says nothing about scope
}

// notices are the historical ones. Nothing else may lower or raise coverage, and records with coverage never use them.
var notices = []notice{
	{"The selected root has no child entries", "", ScopeRoot},
	{"Child entries of this container cannot be read on this host", "", ScopeRoot},
	{"Only central-directory members of a ZIP are occurrences", "", ScopeEntries},
	{"", " integrity contradictions were recorded.", ""},
}

// historical derives coverage for a record that does not carry it: legacy is its coverage_status, "" where that is
// missing too. Without either, a limitation that is not a known notice makes coverage unknown.
func historical(legacy string, limitations []string, occurrences int64) Coverage {
	c := Coverage{Scope: ScopeRoot, Status: CoverageComplete}
	if occurrences > 1 {
		c.Scope = ScopeEntries
	}
	if legacy == "partial" {
		c.Status = CoverageUnknown
	}
	for _, text := range limitations {
		n := slices.IndexFunc(notices, func(n notice) bool {
			return strings.HasPrefix(text, n.start) && strings.HasSuffix(text, n.end)
		})
		switch {
		case n < 0 && legacy == "":
			c.Status = CoverageUnknown
		case n >= 0 && notices[n].scope != "":
			c.Scope = notices[n].scope
		}
	}
	return c
}
