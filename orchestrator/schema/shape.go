package schema

import (
	"regexp"
	"sync"
)

// Type names of JSON Schema that a Shape can have.
const (
	ObjectType  = "object"
	ArrayType   = "array"
	StringType  = "string"
	IntegerType = "integer"
	BooleanType = "boolean"
	NullType    = "null"
)

// Shape describes a set of JSON values: the part of JSON Schema 2020-12 that the contracts of this program need, and
// no more. The zero value admits every value. Shapes are shared between contracts; treat them as constants. A Shape
// must not contain itself: what is advertised has no recursive reference.
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
	Values      *Shape // of an Open object: what its members that are not among Properties are; nil for anything
	Default     any    // advertised; applied by the decoder of the handler
	Union       *Union // alternatives, in place of everything but Description and Def
	Def         string // name under $defs where the shape is shared inside one schema

	group *group // of the projection of a root union
}

// Property is one member of an object. It is required unless Optional.
type Property struct {
	Name     string
	Shape    *Shape
	Optional bool
}

// Union admits what any of its shapes admits. With a Tag all of them are objects, and which one is meant follows from
// the member of that name: the one whose Const equals it, or, where the member is absent, the one that has no such
// member. Without a Tag each is tried.
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

// Formats that contracts share.
var (
	AbsolutePath = &Format{Expr: `^/[^\x00]*$`, Says: "absolute path"}
	Hex64        = &Format{Expr: `^[a-f0-9]{64}$`, Says: "64 lower-case hexadecimal characters"}
	EvidenceID   = &Format{Expr: `^ev_[a-f0-9]{64}$`, Says: "an evidence_id: ev_ and 64 lower-case hexadecimal characters"}
	ProviderID   = &Format{Expr: `^[a-z][a-z0-9-]*$`, Says: "a provider id, or auto"}
	UnknownID    = &Format{Expr: `^unk_[a-f0-9]{64}$`, Says: "an unknown_id: unk_ and 64 lower-case hexadecimal characters"}
	OccurrenceID = &Format{Expr: `^occ_[a-f0-9]{64}$`, Says: "an occurrence_id: occ_ and 64 lower-case hexadecimal characters"}
)

// DigestID is the format of an identity: prefix and 64 hexadecimal characters.
func DigestID(prefix string) *Format {
	return &Format{Expr: "^" + prefix + "[a-f0-9]{64}$", Says: prefix + " and 64 lower-case hexadecimal characters"}
}

// Object is an object with these members and no others.
func Object(description string, properties ...Property) *Shape {
	return &Shape{Types: []string{ObjectType}, Description: description, Properties: properties}
}

// OpenObject is an object with any members.
func OpenObject(description string) *Shape {
	return &Shape{Types: []string{ObjectType}, Description: description, Open: true}
}

// Need is a member that must be there.
func Need(name string, s *Shape) Property { return Property{Name: name, Shape: s} }

// May is a member that may be absent.
func May(name string, s *Shape) Property { return Property{Name: name, Shape: s, Optional: true} }

// List is an array of items.
func List(description string, items *Shape) *Shape {
	return &Shape{Types: []string{ArrayType}, Description: description, Items: items}
}

// Text is any string.
func Text(description string) *Shape {
	return &Shape{Types: []string{StringType}, Description: description}
}

// Name is a string of at least one character.
func Name(description string) *Shape {
	return &Shape{Types: []string{StringType}, Description: description, MinLength: 1}
}

// Formatted is a string of a format.
func Formatted(f *Format, description string) *Shape {
	return &Shape{Types: []string{StringType}, Description: description, Format: f}
}

// OneOf is one of these strings.
func OneOf(description string, values ...string) *Shape {
	return &Shape{Types: []string{StringType}, Description: description, Enum: values}
}

// Constant is exactly this string.
func Constant(description, value string) *Shape {
	return &Shape{Types: []string{StringType}, Description: description, Const: value}
}

// Flag is a boolean.
func Flag(description string) *Shape {
	return &Shape{Types: []string{BooleanType}, Description: description}
}

// Count is an integer from 0.
func Count(description string) *Shape {
	zero := int64(0)
	return &Shape{Types: []string{IntegerType}, Description: description, Min: &zero}
}

// AnyValue is any JSON value.
func AnyValue(description string) *Shape { return &Shape{Description: description} }

// Nothing is null.
func Nothing(description string) *Shape {
	return &Shape{Types: []string{NullType}, Description: description}
}

// Either is what one of the shapes is, whichever fits.
func Either(description string, shapes ...*Shape) *Shape {
	return &Shape{Description: description, Union: &Union{Shapes: shapes}}
}

// OrNull admits null too.
func OrNull(s *Shape) *Shape {
	if s.Union != nil {
		return Either(s.Description, append([]*Shape{Nothing("Nothing.")}, s.Union.Shapes...)...)
	}
	c := *s
	c.Types = append(append([]string(nil), s.Types...), NullType)
	return &c
}

// Shared gives the shape a place under $defs.
func Shared(def string, s *Shape) *Shape {
	c := *s
	c.Def = def
	return &c
}

// Described gives the shape another description.
func Described(description string, s *Shape) *Shape {
	c := *s
	c.Description = description
	return &c
}

// Tagged is one of several objects, told apart by the constant that the member tag has in each.
func Tagged(description, tag string, shapes ...*Shape) *Shape {
	return &Shape{Description: description, Union: &Union{Tag: tag, Shapes: shapes}}
}

// Map is an object of any member names whose values are of one shape.
func Map(description string, values *Shape) *Shape {
	return &Shape{Types: []string{ObjectType}, Description: description, Open: true, Values: values}
}

// Positive is an integer from 1.
func Positive(description string) *Shape {
	one := int64(1)
	return &Shape{Types: []string{IntegerType}, Description: description, Min: &one}
}

// Between is an integer from low to high.
func Between(low, high int64, description string) *Shape {
	return &Shape{Types: []string{IntegerType}, Description: description, Min: &low, Max: &high}
}

// WithDefault is s with a value that stands for an absent member.
func WithDefault(value any, s *Shape) *Shape {
	c := *s
	c.Default = value
	return &c
}

// AtMost is a string of at most so many code points.
func AtMost(length int, s *Shape) *Shape {
	c := *s
	c.MaxLength = length
	return &c
}

// EvidenceReference is the reference of a record that the connection retains.
func EvidenceReference() *Shape {
	return Object("A record that this connection retains.",
		Need("kind", Constant("Says that this is a reference.", "retained-evidence")),
		Need("evidence_id", Formatted(EvidenceID, "Its id.")))
}
