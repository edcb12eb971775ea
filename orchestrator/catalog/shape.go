package catalog

import (
	"regexp"
	"sync"
)

// Type names of JSON Schema that a Shape can have.
const (
	Object  = "object"
	Array   = "array"
	String  = "string"
	Integer = "integer"
	Boolean = "boolean"
	Null    = "null"
)

// Shape describes a set of JSON values: the part of JSON Schema 2020-12 that the contracts of this program need, and
// no more. The zero value admits every value. Shapes are shared between contracts; treat them as constants. A Shape
// must not contain itself.
type Shape struct {
	Types       []string // admitted types; empty for any value
	Description string
	Const       string // the only admitted value, where not ""
	Enum        []string
	Format      *Format
	MinLength   int // of a string, in code points
	MaxLength   int // 0 for no limit
	Min, Max    *int64
	Properties  []Property // of an object, which admits no others unless Open
	Open        bool
	Items       *Shape
	MinItems    int
	Unique      bool
	Default     any    // advertised; applied by the decoder of the handler
	Union       *Union // alternatives, in place of everything but Description and Def
	Def         string // name under $defs where the shape is shared inside one schema
}

// Property is one member of an object. It is required unless Optional.
type Property struct {
	Name     string
	Shape    *Shape
	Optional bool
}

// Union admits any of several objects. With a Tag, which of them is meant follows from the member of that name: the
// one whose Const equals it, or, where the member is absent, the one that has no such member.
type Union struct {
	Tag    string
	Shapes []*Shape
}

// Format is a named syntax of strings.
type Format struct {
	Expr string // ECMA 262 pattern that RE2 reads alike
	Says string // what it stands for, for people

	once sync.Once
	re   *regexp.Regexp
}

// Match reports whether s has the format. The pattern is compiled on first use: start-up time matters.
func (f *Format) Match(s string) bool {
	f.once.Do(func() { f.re = regexp.MustCompile(f.Expr) })
	return f.re.MatchString(s)
}

// Formats that more than one contract uses.
var (
	absolutePath = &Format{Expr: `^/[^\x00]*$`, Says: "absolute path"}
	hex64        = &Format{Expr: `^[a-f0-9]{64}$`, Says: "64 lower-case hexadecimal characters"}
	evidenceID   = &Format{Expr: `^ev_[a-f0-9]{64}$`, Says: "an evidence_id: ev_ and 64 lower-case hexadecimal characters"}
	providerID   = &Format{Expr: `^[a-z][a-z0-9-]*$`, Says: "a provider id, or auto"}
	occurrenceID = &Format{Expr: `^occ_[a-f0-9]{64}$`, Says: "an occurrence_id: occ_ and 64 lower-case hexadecimal characters"}
)

// digestID is the format of an identity: prefix and 64 hexadecimal characters.
func digestID(prefix string) *Format {
	return &Format{Expr: "^" + prefix + "[a-f0-9]{64}$", Says: prefix + " and 64 lower-case hexadecimal characters"}
}

// The constructors below keep the entries of tools.go and results.go readable.

func object(description string, properties ...Property) *Shape {
	return &Shape{Types: []string{Object}, Description: description, Properties: properties}
}

func openObject(description string) *Shape {
	return &Shape{Types: []string{Object}, Description: description, Open: true}
}

func need(name string, s *Shape) Property { return Property{Name: name, Shape: s} }

func may(name string, s *Shape) Property { return Property{Name: name, Shape: s, Optional: true} }

func list(description string, items *Shape) *Shape {
	return &Shape{Types: []string{Array}, Description: description, Items: items}
}

func text(description string) *Shape {
	return &Shape{Types: []string{String}, Description: description}
}

func name(description string) *Shape {
	return &Shape{Types: []string{String}, Description: description, MinLength: 1}
}

func formatted(f *Format, description string) *Shape {
	return &Shape{Types: []string{String}, Description: description, Format: f}
}

func oneOf(description string, values ...string) *Shape {
	return &Shape{Types: []string{String}, Description: description, Enum: values}
}

func constant(description, value string) *Shape {
	return &Shape{Types: []string{String}, Description: description, Const: value}
}

func flag(description string) *Shape {
	return &Shape{Types: []string{Boolean}, Description: description}
}

func count(description string) *Shape {
	zero := int64(0)
	return &Shape{Types: []string{Integer}, Description: description, Min: &zero}
}

func anyValue(description string) *Shape { return &Shape{Description: description} }

func nothing(description string) *Shape {
	return &Shape{Types: []string{Null}, Description: description}
}

func either(description string, shapes ...*Shape) *Shape {
	return &Shape{Description: description, Union: &Union{Shapes: shapes}}
}

// orNull admits null too.
func orNull(s *Shape) *Shape {
	if s.Union != nil {
		return either(s.Description, append([]*Shape{nothing("Nothing.")}, s.Union.Shapes...)...)
	}
	c := *s
	c.Types = append(append([]string(nil), s.Types...), Null)
	return &c
}

// shared gives the shape a place under $defs.
func shared(def string, s *Shape) *Shape {
	c := *s
	c.Def = def
	return &c
}

// described gives the shape another description.
func described(description string, s *Shape) *Shape {
	c := *s
	c.Description = description
	return &c
}
