package schema

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"rea/evidence"
	"rea/evidence/fault"
)

// maxIssues bounds how many problems of one input are listed: a caller corrects a few at a time, and a hostile input
// must not make an answer as large as itself.
const maxIssues = 32

// Issue is one problem of an input.
type Issue struct {
	Path     []any  `json:"path"` // member names and array indexes
	Reason   Reason `json:"reason"`
	Message  string `json:"message,omitzero"`
	Expected string `json:"expected,omitzero"`
	Minimum  *int64 `json:"minimum,omitzero"`
	Maximum  *int64 `json:"maximum,omitzero"`
}

// Reason says what kind of problem an Issue is. The vocabulary is that of Evidence, which is an input too.
type Reason = evidence.Reason

// The closed set of reasons.
const (
	UnknownArgument = evidence.UnknownArgument
	MissingArgument = evidence.MissingArgument
	InvalidType     = evidence.InvalidType
	OutOfRange      = evidence.OutOfRange
	InvalidValue    = evidence.InvalidValue
	InvalidFormat   = evidence.InvalidFormat
)

// Reject is the error for an input of operation that breaks its contract.
func Reject(operation string, issues ...Issue) *fault.Error {
	fields := make([]string, 0, len(issues))
	for _, i := range issues {
		fields = append(fields, fmt.Sprintf("%s (%s)", fieldName(i.Path), i.Reason))
	}
	return fault.New(fault.InvalidRequest, operation+" rejected its input: "+strings.Join(fields, ", ")+".",
		"Correct the listed fields and call again.").With("operation", operation).With("issues", issues)
}

// RejectEvidence is the error for an Evidence argument at path of an operation that does not parse: what its shape
// lacks is named below path, and another failure is returned as it is.
func RejectEvidence(operation string, path string, err error) *fault.Error {
	f := fault.From(err)
	found, ok := f.Details["issues"].([]evidence.Issue)
	if f.Code != fault.InvalidRequest || !ok {
		return f
	}
	issues := make([]Issue, len(found))
	for i, e := range found {
		issues[i] = Issue{Path: append([]any{path}, e.Path...), Reason: e.Reason, Message: e.Message, Expected: e.Expected}
	}
	return Reject(operation, issues...)
}

// Below puts the name of the member in front of the paths of issues that were found in its value.
func Below(member string, issues []Issue) []Issue {
	out := make([]Issue, len(issues))
	for i, issue := range issues {
		issue.Path = append([]any{member}, issue.Path...)
		out[i] = issue
	}
	return out
}

func fieldName(path []any) string {
	if len(path) == 0 {
		return "the arguments"
	}
	var b strings.Builder
	for i, p := range path {
		switch p := p.(type) {
		case string:
			if i > 0 {
				b.WriteByte('.')
			}
			b.WriteString(p)
		default:
			fmt.Fprintf(&b, "[%v]", p)
		}
	}
	return b.String()
}

// Validate checks a JSON value against the shape and lists what is wrong with it, at most maxIssues. The value must be
// syntactically valid JSON; strings may hold lone surrogates, and a payload that the shape leaves open is not looked
// into.
func (s *Shape) Validate(value jsontext.Value) []Issue {
	c := &checker{}
	c.check(s, value, nil)
	return c.issues
}

type checker struct {
	issues []Issue
}

func (c *checker) full() bool { return len(c.issues) >= maxIssues }

func (c *checker) add(path []any, reason Reason, expected string) *Issue {
	if c.full() {
		return new(Issue)
	}
	c.issues = append(c.issues, Issue{Path: append([]any{}, path...), Reason: reason, Expected: expected})
	return &c.issues[len(c.issues)-1]
}

func (c *checker) check(s *Shape, v jsontext.Value, path []any) {
	if c.full() {
		return
	}
	if s.Union != nil {
		c.union(s, v, path)
		return
	}
	if len(s.Types) == 0 {
		return
	}
	switch v.Kind() {
	case jsontext.KindNull:
		if s.admits(NullType) {
			return
		}
	case jsontext.KindTrue, jsontext.KindFalse:
		if s.admits(BooleanType) {
			return
		}
	case jsontext.KindString:
		if s.admits(StringType) {
			c.string(s, v, path)
			return
		}
	case jsontext.KindNumber:
		if s.admits(IntegerType) {
			c.integer(s, v, path)
			return
		}
	case jsontext.KindBeginObject:
		if s.admits(ObjectType) {
			c.object(s, v, path)
			return
		}
	case jsontext.KindBeginArray:
		if s.admits(ArrayType) {
			c.array(s, v, path)
			return
		}
	}
	c.add(path, InvalidType, strings.Join(s.Types, " or "))
}

func (c *checker) string(s *Shape, v jsontext.Value, path []any) {
	raw, err := jsontext.AppendUnquote(nil, v)
	str := string(raw)
	n := utf8.RuneCountInString(str)
	switch {
	case s.Const != "" && str != s.Const:
		c.add(path, InvalidValue, s.Const)
	case len(s.Enum) > 0 && !contains(s.Enum, str):
		c.add(path, InvalidValue, "one of: "+strings.Join(s.Enum, ", "))
	case s.Format != nil && (err != nil || !s.Format.Match(str)):
		c.add(path, InvalidFormat, s.Format.Says)
	case n < s.MinLength:
		c.bound(path, "a longer text", s.MinLength, s.MaxLength)
	case s.MaxLength > 0 && n > s.MaxLength:
		c.bound(path, "a shorter text", s.MinLength, s.MaxLength)
	}
}

func contains(list []string, s string) bool {
	for _, have := range list {
		if have == s {
			return true
		}
	}
	return false
}

func (c *checker) bound(path []any, expected string, low, high int) {
	i := c.add(path, OutOfRange, expected)
	if low > 0 {
		n := int64(low)
		i.Minimum = &n
	}
	if high > 0 {
		n := int64(high)
		i.Maximum = &n
	}
}

func (c *checker) integer(s *Shape, v jsontext.Value, path []any) {
	f, err := strconv.ParseFloat(string(bytes.TrimSpace(v)), 64)
	if err != nil || f != math.Trunc(f) {
		c.add(path, InvalidType, IntegerType)
		return
	}
	const safe = 1<<53 - 1
	if s.Min != nil && f < float64(*s.Min) || s.Max != nil && f > float64(*s.Max) || math.Abs(f) > safe {
		i := c.add(path, OutOfRange, "an integer in range")
		i.Minimum, i.Maximum = s.Min, s.Max
	}
}

func (c *checker) array(s *Shape, v jsontext.Value, path []any) {
	n := 0
	seen := map[string]bool{}
	each(v, func(_ string, item jsontext.Value) bool {
		at := append(path, n)
		n++
		if s.Unique {
			if key := string(item); seen[key] {
				c.add(at, InvalidValue, "an item that is not repeated")
			} else {
				seen[key] = true
			}
		}
		if s.Items != nil {
			c.check(s.Items, item, at)
		}
		return !c.full()
	})
	if n < s.MinItems {
		c.bound(path, "more items", s.MinItems, 0)
	}
}

func (c *checker) object(s *Shape, v jsontext.Value, path []any) {
	if s.Open && len(s.Properties) == 0 && s.Values == nil {
		return
	}
	seen := map[string]bool{}
	each(v, func(name string, member jsontext.Value) bool {
		at := append(path, name)
		p := s.property(name)
		switch {
		case p == nil && !s.Open:
			c.add(at, UnknownArgument, s.names())
		case p == nil && s.Values == nil:
		case seen[name]:
			c.add(at, InvalidValue, "a member that is not repeated")
		case p == nil:
			seen[name] = true
			c.check(s.Values, member, at)
		default:
			seen[name] = true
			c.check(p.Shape, member, at)
		}
		return !c.full()
	})
	for _, p := range s.Properties {
		if !p.Optional && !seen[p.Name] {
			c.add(append(path, p.Name), MissingArgument, p.Shape.says())
		}
	}
}

// says names what a value of the shape is, for the hint of a missing argument.
func (s *Shape) says() string {
	if s.Union == nil {
		return strings.Join(s.Types, " or ")
	}
	var kinds []string
	for _, a := range s.Union.Shapes {
		if says := a.says(); !contains(kinds, says) {
			kinds = append(kinds, says)
		}
	}
	return strings.Join(kinds, " or ")
}

func (s *Shape) property(name string) *Property {
	for i := range s.Properties {
		if s.Properties[i].Name == name {
			return &s.Properties[i]
		}
	}
	return nil
}

// names lists what is accepted, for the hint of an unknown argument.
func (s *Shape) names() string {
	if len(s.Properties) == 0 {
		return "no arguments"
	}
	names := make([]string, len(s.Properties))
	for i, p := range s.Properties {
		names[i] = p.Name
	}
	return "one of: " + strings.Join(names, ", ")
}

// union checks against the alternative that is meant.
func (c *checker) union(s *Shape, v jsontext.Value, path []any) {
	if s.Union.Tag == "" {
		c.any(s.Union.Shapes, v, path)
		return
	}
	if v.Kind() != jsontext.KindBeginObject {
		c.add(path, InvalidType, ObjectType)
		return
	}
	tag, tagged := tagOf(s.Union.Tag, v)
	var values []string
	for _, a := range s.Union.Shapes {
		p := a.property(s.Union.Tag)
		if p == nil && !tagged || p != nil && tagged && p.Shape.Const == tag {
			c.check(a, v, path)
			return
		}
		if p != nil {
			values = append(values, p.Shape.Const)
		}
	}
	reason := InvalidValue
	if !tagged {
		reason = MissingArgument
	}
	c.add(append(path, s.Union.Tag), reason, "one of: "+strings.Join(values, ", "))
}

// tagOf is the tag of an object; the first one counts, and its alternative refuses a second.
func tagOf(name string, v jsontext.Value) (tag string, found bool) {
	each(v, func(member string, value jsontext.Value) bool {
		if member != name {
			return true
		}
		found = true
		if value.Kind() == jsontext.KindString {
			raw, _ := jsontext.AppendUnquote(nil, value)
			tag = string(raw)
		}
		return false
	})
	return tag, found
}

// any tries each alternative; where none fits, the issues of the one with the fewest are told.
func (c *checker) any(shapes []*Shape, v jsontext.Value, path []any) {
	var best []Issue
	for _, a := range shapes {
		attempt := &checker{}
		attempt.check(a, v, path)
		if len(attempt.issues) == 0 {
			return
		}
		if best == nil || len(attempt.issues) < len(best) {
			best = attempt.issues
		}
	}
	c.issues = append(c.issues, best[:min(len(best), maxIssues-len(c.issues))]...)
}

// each walks the members of an object or the items of an array until yield returns false. The value is valid JSON.
func each(v jsontext.Value, yield func(name string, member jsontext.Value) bool) {
	d := jsontext.NewDecoder(bytes.NewBuffer(v), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	begin, err := d.ReadToken()
	if err != nil {
		return
	}
	inObject := begin.Kind() == jsontext.KindBeginObject
	for d.PeekKind() != jsontext.KindEndObject && d.PeekKind() != jsontext.KindEndArray {
		name := ""
		if inObject {
			t, err := d.ReadToken()
			if err != nil {
				return
			}
			name = t.String()
		}
		member, err := d.ReadValue()
		if err != nil || !yield(name, member) {
			return
		}
	}
}
