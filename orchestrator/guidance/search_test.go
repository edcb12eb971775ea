package guidance

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"
)

func files(texts map[string]string) fstest.MapFS {
	m := fstest.MapFS{}
	for name, text := range texts {
		m[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return m
}

// guide is small enough to say by hand what every query must find.
var guide = files(map[string]string{
	"b.md":  "intro without heading\n# Compare\nalpha here\n## Inputs\nbeta and gamma\n### Deep\ndelta\n## Outputs\nepsilon zeta\n```\n# not a heading\n```\n# Compare again\nalpha beta gamma delta\n",
	"a.md":  "# Alphabet\nalphabetical order\n",
	"c.txt": "# Not Markdown\nalpha\n",
})

func headings(f Found) (out []string) {
	for _, m := range f.Matches {
		out = append(out, m.Scope+":"+m.Path+":"+strings.Join(m.HeadingPath, "/"))
	}
	return out
}

func TestSearch(t *testing.T) {
	for query, want := range map[string][]string{
		"alpha":            {"section:a.md:Alphabet", "section:b.md:Compare", "section:b.md:Compare again"}, // a term matches the beginning of a word
		"how to use ALPHA": {"section:a.md:Alphabet", "section:b.md:Compare", "section:b.md:Compare again"}, // generic words and case
		"ａｌｐｈａ":            {"section:a.md:Alphabet", "section:b.md:Compare", "section:b.md:Compare again"}, // NFKC
		"phabet":           nil,
		"how to use the":   nil, // generic only
		"":                 nil,
		"gamma-beta":       {"section:b.md:Compare/Inputs", "section:b.md:Compare again"},
		"delta beta":       {"section:b.md:Compare again", "subsections:b.md:Compare/Inputs"},
		"alpha epsilon":    {"subsections:b.md:Compare"},
		"delta epsilon":    {"subsections:b.md:Compare"},
		"alpha missing":    nil,
		"epsilon zeta":     {"section:b.md:Compare/Outputs"}, // the parent has nothing of its own to add
		"not a heading":    {"section:b.md:Compare/Outputs"},
		"again alpha":      {"section:b.md:Compare again"},
	} {
		if diff := cmp.Diff(want, headings(Search(guide, query, 0, MaxMatches))); diff != "" {
			t.Errorf("%q (-want +got):\n%s", query, diff)
		}
	}
}

// What a spread match says: its own terms, and the subsections that have the rest, by locators that can be read.
func TestSpread(t *testing.T) {
	f := Search(guide, "alpha delta epsilon zeta", 0, MaxMatches)
	if len(f.Matches) != 1 {
		t.Fatalf("%v", headings(f))
	}
	m := f.Matches[0]
	if diff := cmp.Diff([]string{"alpha"}, *m.OwnTerms); diff != "" || *m.Omitted != 0 {
		t.Errorf("omitted %d, own terms (-want +got):\n%s", *m.Omitted, diff)
	}
	var got []string
	for _, l := range *m.Subsections {
		got = append(got, Read(guide, l).Heading)
	}
	if diff := cmp.Diff([]string{"Outputs", "Deep"}, got); diff != "" { // two missing terms before one
		t.Errorf("subsections (-want +got):\n%s", diff)
	}
	whole := Read(guide, m.Locator)
	if whole.Status != StatusOK || !strings.HasPrefix(whole.Content, "# Compare\n") || !strings.HasSuffix(whole.Content, "```\n") || whole.ContentLength != m.ContentLength {
		t.Errorf("%+v", whole)
	}
}

func TestSubsectionsAreBounded(t *testing.T) {
	var text strings.Builder
	var query []string
	text.WriteString("# Top\n")
	for i := range 11 {
		word := fmt.Sprintf("word%c", 'a'+i)
		fmt.Fprintf(&text, "## S%d\n%s\n", i, word)
		query = append(query, word)
	}
	m := Search(files(map[string]string{"x.md": text.String()}), strings.Join(query, " "), 0, MaxMatches).Matches[0]
	if len(*m.Subsections) != 8 || *m.Omitted != 3 || len(*m.OwnTerms) != 0 {
		t.Errorf("%d subsections, %d omitted, own %v", len(*m.Subsections), *m.Omitted, *m.OwnTerms)
	}
}

func TestPages(t *testing.T) {
	var text strings.Builder
	for i := range 45 {
		fmt.Fprintf(&text, "# Heading %d\nneedle %s\n", i, strings.Repeat("😀", 400))
	}
	many := files(map[string]string{"x.md": text.String()})
	seen, offset := 0, 0
	for {
		f := Search(many, "needle", offset, MaxMatches)
		if f.Total != 45 || f.Offset != offset {
			t.Fatalf("total %d, offset %d", f.Total, f.Offset)
		}
		for _, m := range f.Matches {
			if m.Heading != fmt.Sprintf("Heading %d", seen) {
				t.Errorf("match %d is %s", seen, m.Heading)
			}
			if n := len(utf16.Encode([]rune(m.Excerpt))); n > maxExcerpt || n < maxExcerpt-1 || strings.Contains(m.Excerpt, "\uFFFD") {
				t.Errorf("excerpt of %d code units", n)
			}
			seen++
		}
		if f.NextOffset == nil {
			break
		}
		offset = *f.NextOffset
	}
	if seen != 45 {
		t.Errorf("%d matches over all pages", seen)
	}
	if f := Search(many, "needle", 100, MaxMatches); len(f.Matches) != 0 || f.NextOffset != nil || f.Status != StatusOK {
		t.Errorf("past the end: %+v", f)
	}
}

// A locator belongs to the bundle that it was found in; another bundle never answers with old text.
func TestLocators(t *testing.T) {
	locator := Search(guide, "alphabetical", 0, 1).Matches[0].Locator
	if s := Read(guide, locator); s.Status != StatusOK || s.Content != "# Alphabet\nalphabetical order\n" || s.ContentLength != 31-1 {
		t.Errorf("%+v", s)
	}
	changed := files(map[string]string{"b.md": string(guide["b.md"].Data), "a.md": "# Alphabet\nanother order\n"})
	if s := Read(changed, locator); s.Status != StatusStale || s.Content != "" || s.Reason == "" {
		t.Errorf("%+v", s)
	}
	for _, bad := range []string{"", "x", "guide_", locator + "0", locator[:len(locator)-1], strings.Replace(locator, "guide_", "guide-", 1), locator[:len(locator)-64] + strings.Repeat("0", 64)} {
		if s := Read(guide, bad); s.Status != StatusNotFound || s.Content != "" {
			t.Errorf("%q: %+v", bad, s)
		}
	}
	long := files(map[string]string{"x.md": "# " + strings.Repeat("long ", 10_000) + "\nneedle\n"})
	if l := Search(long, "needle", 0, 1).Matches[0].Locator; len(l) != len(locator) || Read(long, l).Status != StatusOK {
		t.Errorf("the locator of a long heading has %d characters", len(l))
	}
}

// Past any limit of admission, and where a file cannot be read, there is no partial index.
func TestAdmission(t *testing.T) {
	filled := func(n int) string { return "# H\n" + strings.Repeat("x", n-4) }
	deep := strings.Repeat("#", 1) + " a\n" + strings.Repeat("## b\n"+strings.Repeat("y", 200)+"\n", 4095)
	several := map[string]string{}
	for i := range 4 {
		several[fmt.Sprintf("%d.md", i)] = filled(maxFileBytes)
	}
	for name, c := range map[string]struct {
		files fs.FS
		ok    bool
	}{
		"largest file":   {files(map[string]string{"x.md": filled(maxFileBytes)}), true},
		"larger file":    {files(map[string]string{"x.md": filled(maxFileBytes + 1)}), false},
		"largest bundle": {files(several), true},
		"larger bundle": {func() fs.FS {
			f := files(several)
			f["more.md"] = &fstest.MapFile{Data: []byte("# H\n")}
			return f
		}(), false},
		"most sections": {files(map[string]string{"x.md": deep}), true},
		"more sections": {files(map[string]string{"x.md": deep + "# c\n"}), false},
		"nothing":       {files(nil), false},
		"unreadable":    {unreadable{guide}, false},
	} {
		f := Search(c.files, "needle", 0, 1)
		if (f.Status == StatusOK) != c.ok || !c.ok && (f.Reason == "" || f.Matches != nil) {
			t.Errorf("%s: %s %s", name, f.Status, f.Reason)
		}
		if s := Read(c.files, "guide_x"); (s.Status != StatusUnavailable) != c.ok {
			t.Errorf("%s: reading: %s", name, s.Status)
		}
	}
}

type unreadable struct{ fs.FS }

func (u unreadable) Open(name string) (fs.File, error) {
	if strings.HasSuffix(name, "b.md") {
		return nil, errors.New("input/output error")
	}
	return u.FS.Open(name)
}

// The packaged skill answers questions that users have.
func TestPackagedSkill(t *testing.T) {
	for _, query := range []string{"compare two versions", "prompt injection", "partial coverage absence", "resolve unknown verified", "export bundle", "result does not fit"} {
		if f := Search(Skill(), query, 0, MaxMatches); f.Total == 0 {
			t.Errorf("%q finds nothing", query)
		}
	}
}

func FuzzIndex(f *testing.F) {
	f.Add("# a\n## b\n```\n# c\n```\n# d\n", "a b")
	f.Add("#\n# \n####### x\n#x\n", "x")
	f.Fuzz(func(t *testing.T, text, query string) {
		found := Search(files(map[string]string{"x.md": text, "y.md": "# needle\n"}), query, 0, MaxMatches)
		for _, m := range found.Matches {
			if s := Read(files(map[string]string{"x.md": text, "y.md": "# needle\n"}), m.Locator); s.Status != StatusOK || s.ContentLength != m.ContentLength {
				t.Errorf("a match cannot be read: %+v", s)
			}
		}
	})
}
