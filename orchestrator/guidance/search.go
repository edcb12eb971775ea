package guidance

import (
	"io/fs"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

const (
	// MaxMatches is the longest page of matches, and the default.
	MaxMatches = 20
	// maxExcerpt is the longest excerpt in UTF-16 code units.
	maxExcerpt = 500
	// maxSubsections is how many locators of subsections one match lists.
	maxSubsections = 8
)

// generic are words that tell no section from another.
var generic = wordSet(`a about all am an and any are as at be been but by can could did do does for from get had has have he her him his how i if
in into is it its just me my no not of on or our out rea she should so some than that the their them then there these they this those to too up us use
used using want was we were what when where which while who whom whose why will with would you your`)

func wordSet(text string) map[string]bool {
	set := map[string]bool{}
	for _, w := range strings.Fields(text) {
		set[w] = true
	}
	return set
}

// words are the words of a text: runs of letters and digits, normalized and in lower case.
func words(text string) []string {
	return strings.FieldsFunc(strings.ToLower(norm.NFKC.String(text)), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
}

// terms are the words of a query that mean something, each once.
func terms(query string) []string {
	var out []string
	for _, w := range words(query) {
		if !generic[w] && !slices.Contains(out, w) {
			out = append(out, w)
		}
	}
	return out
}

// Match is one section that has every term of a query.
type Match struct {
	Locator       string    `json:"locator"`
	Path          string    `json:"path"`
	Heading       string    `json:"heading"`
	HeadingPath   []string  `json:"heading_path"`
	Scope         string    `json:"match_scope"`                  // section or subsections
	OwnTerms      *[]string `json:"own_text_terms,omitzero"`      // of a subsections match
	Subsections   *[]string `json:"subsections,omitzero"`         // locators
	Omitted       *int      `json:"omitted_subsections,omitzero"` // further subsections that it would take
	ContentLength int       `json:"content_length"`               // UTF-16 code units of what a read returns
	Excerpt       string    `json:"excerpt"`
}

// Scopes of a match.
const (
	scopeSection     = "section"
	scopeSubsections = "subsections"
)

// Found is a page of matches. Status is ok, or bundle_unavailable with a reason and nothing else.
type Found struct {
	Status     string
	Reason     string
	Bundle     string
	Matches    []Match
	Total      int
	Offset     int
	NextOffset *int
}

// Search finds the sections of files, as they are now, that have every word of the query which is not generic, in
// their own text or together with their subsections.
func Search(files fs.FS, query string, offset, limit int) Found {
	b, err := load(files)
	if err != nil {
		return Found{Status: StatusUnavailable, Reason: reason(err)}
	}
	s := search{bundle: b, terms: terms(query)}
	matches := s.run()
	f := Found{Status: StatusOK, Bundle: b.sha256, Matches: []Match{}, Total: len(matches), Offset: offset}
	if offset < len(matches) {
		end := min(offset+limit, len(matches))
		f.Matches = matches[offset:end]
		if end < len(matches) {
			f.NextOffset = &end
		}
	}
	return f
}

// search is one query over one bundle.
type search struct {
	*bundle
	terms []string
	own   []map[string]bool // terms in the own text of each section
	below []map[string]bool // terms in it or its subsections
}

func (s *search) run() []Match {
	if len(s.terms) == 0 {
		return nil
	}
	s.own, s.below = make([]map[string]bool, len(s.sections)), make([]map[string]bool, len(s.sections))
	for i := len(s.sections) - 1; i >= 0; i-- { // subsections stand behind their parent
		sec := s.sections[i]
		s.own[i] = s.find(s.texts[sec.path][sec.start:sec.own])
		s.below[i] = map[string]bool{}
		s.join(i, s.own[i])
		for _, c := range sec.children {
			s.join(i, s.below[c])
		}
	}
	var whole, spread []Match
	for i := range s.sections {
		switch {
		case len(s.own[i]) == len(s.terms):
			whole = append(whole, s.match(i, scopeSection))
		case len(s.below[i]) == len(s.terms) && !slices.ContainsFunc(s.sections[i].children, func(c int) bool { return len(s.below[c]) == len(s.terms) }):
			m := s.match(i, scopeSubsections)
			s.spread(i, &m)
			spread = append(spread, m)
		}
	}
	return append(whole, spread...)
}

func (s *search) join(i int, found map[string]bool) {
	for t := range found {
		s.below[i][t] = true
	}
}

// find returns the terms that a text has: a term is there as a word, or as the beginning of one.
func (s *search) find(text string) map[string]bool {
	found := map[string]bool{}
	for _, w := range words(text) {
		for _, t := range s.terms {
			if strings.HasPrefix(w, t) {
				found[t] = true
			}
		}
	}
	return found
}

func (s *search) match(i int, scope string) Match {
	sec := s.sections[i]
	text := s.texts[sec.path][sec.start:sec.end]
	return Match{Locator: s.locator(sec), Path: sec.path, Heading: sec.heading(), HeadingPath: sec.headingPath, Scope: scope,
		ContentLength: units(text), Excerpt: s.excerpt(text)}
}

// spread lists the subsections whose own texts have the terms that the section itself lacks: greedily the one with
// most of them first, the earlier one where two have as many.
func (s *search) spread(i int, m *Match) {
	own, missing := []string{}, map[string]bool{}
	for _, t := range s.terms {
		if s.own[i][t] {
			own = append(own, t)
		} else {
			missing[t] = true
		}
	}
	chosen, omitted := []string{}, 0
	for len(missing) > 0 {
		best, most := -1, 0
		for _, d := range s.descendants(i) {
			n := 0
			for t := range missing {
				if s.own[d][t] {
					n++
				}
			}
			if n > most {
				best, most = d, n
			}
		}
		for t := range s.own[best] {
			delete(missing, t)
		}
		if len(chosen) < maxSubsections {
			chosen = append(chosen, s.locator(s.sections[best]))
		} else {
			omitted++
		}
	}
	m.OwnTerms, m.Subsections, m.Omitted = &own, &chosen, &omitted
}

// descendants lists the subsections at any depth, in document order.
func (s *search) descendants(i int) []int {
	end := i + 1
	for end < len(s.sections) && s.sections[end].path == s.sections[i].path && s.sections[end].start < s.sections[i].end {
		end++
	}
	var out []int
	for d := i + 1; d < end; d++ {
		out = append(out, d)
	}
	return out
}

// excerpt is the part of a text around the first line with a term, whole characters only.
func (s *search) excerpt(text string) string {
	at, start := 0, 0
	for line := range strings.Lines(text) {
		if len(s.find(line)) > 0 {
			start = at
			break
		}
		at += len(line)
	}
	n := 0
	for i, r := range text[start:] {
		if n += units(string(r)); n > maxExcerpt {
			return text[start : start+i]
		}
	}
	return text[start:]
}

// Project is the page as callers get it: without a bundle, the status and the reason and nothing else.
func (f Found) Project() map[string]any {
	if f.Status != StatusOK {
		return map[string]any{"status": f.Status, "reason": f.Reason}
	}
	return map[string]any{"status": f.Status, "bundle_sha256": f.Bundle, "matches": f.Matches, "total": f.Total, "offset": f.Offset, "next_offset": f.NextOffset}
}
