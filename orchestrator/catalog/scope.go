package catalog

import (
	"slices"
	"strings"

	"rea/orchestrator/schema"
)

// Surface is the family that a tool belongs to, by the name that clients see.
type Surface string

// The surfaces that this build has tools of.
const (
	SessionSurface     Surface = "session"
	ArtifactSurface    Surface = "artifact-provider"
	ApplicationSurface Surface = "application"
)

// Family is a group of tools that a server can be restricted to.
type Family struct {
	ID      string
	Surface Surface
}

// families are all of the product catalog, whether or not this build has tools of them: a setting that was written for
// a larger build stays valid.
var families = []Family{
	{"direct", "official-proxy"}, {"enhanced", "enhanced"}, {"native", "native-provider"}, {"artifact", ArtifactSurface},
	{"managed", "managed-provider"}, {"android", "android-provider"}, {"apktool", "apktool-provider"},
	{"flutter", "flutter-provider"}, {"jeb", "jeb-provider"}, {"adb", "adb-provider"}, {"firmware", "firmware-provider"},
	{"browser", "browser-provider"}, {"electron", "electron-provider"}, {"javascript-runtime", "runtime-provider"},
	{"application", ApplicationSurface}, {"session", SessionSurface},
}

// Families lists the families of the product catalog in its order.
func Families() []Family { return slices.Clone(families) }

// always are the tools that are served whatever the scope: they say what there is and how to use it.
var always = []string{BinarySession, GuidedWorkflows, SearchGuidance, ReadGuidanceSection}

// Scope is what a server process serves of a catalog. The zero value is everything, with full schemas.
type Scope struct {
	Families []string // ids; nil for all
	Profile  schema.Profile
}

// ParseFamilies reads a comma-separated list of family ids: spaces around an item are ignored, order and repeats do
// not matter. It reports false for an unknown or empty item.
func ParseFamilies(text string) ([]string, bool) {
	var out []string
	for item := range strings.SplitSeq(text, ",") {
		item = strings.TrimSpace(item)
		if !slices.ContainsFunc(families, func(f Family) bool { return f.ID == item }) {
			return nil, false
		}
		out = append(out, item)
	}
	slices.Sort(out)
	return slices.Compact(out), true
}

// Scoped is the catalog of a server with this scope: complete for it, in the same order.
func (c *Catalog) Scoped(s Scope) *Catalog {
	var tools []*Tool
	for _, t := range c.tools {
		if s.Families == nil || slices.Contains(always, t.Name) || slices.Contains(s.Families, t.Surface.family()) {
			tools = append(tools, t.in(s.Profile))
		}
	}
	return New(tools...)
}

// family is the id of the family with this surface.
func (s Surface) family() string {
	for _, f := range families {
		if f.Surface == s {
			return f.ID
		}
	}
	return ""
}
