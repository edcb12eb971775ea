package artifact

import "bytes"

// linkTarget begins the limitation that records where a symbolic link leads. An occurrence has no member for it.
const linkTarget = "It is a symbolic link, not followed; its recorded target is "

// LinkTarget is the limitation that a reader adds to a symbolic link: quoted is its recorded target, whole, in a form
// that is the same for the same bytes and for no others.
func LinkTarget(quoted string) string { return linkTarget + quoted + "." }

// LinkUnknown is the limitation of a symbolic link whose target was not, or not wholly, recorded.
const LinkUnknown = "It is a symbolic link, not followed; its target was not read to its end."

// recordsLink reports whether limitations, canonical JSON, hold a link's target. One that was clipped does not end as
// LinkTarget ends it, and is not known.
func recordsLink(limitations []byte) bool {
	for _, before := range []string{`["`, `,"`} { // inside a string a quotation mark stands behind a backslash
		_, rest, found := bytes.Cut(limitations, []byte(before+linkTarget))
		if !found {
			continue
		}
		c := cursor{b: append([]byte(`"`), rest...)}
		return bytes.HasSuffix(c.string(), []byte(`."`))
	}
	return false
}
