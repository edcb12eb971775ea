// Package view projects completed Evidence into the part that a caller asks for: a summary, one item, one page. It
// reads stored records only; it opens no file, starts nothing and resolves no path.
//
// What can be seen of one producer's Evidence is a Family, one file of this package: the views with their inputs, the
// shape of what they return, and how they are made. A later producer adds its file and one line to Builtin.
package view

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"rea/evidence"
	"rea/evidence/fault"
	"rea/orchestrator/schema"
)

// Operation is the tool that makes views, and the operation of their Evidence.
const Operation = "inspect_analysis_view"

// KindSummary is the kind of view that a family has if its producer takes detail summary.
const KindSummary = "summary"

// Family is what can be seen of the Evidence of some operations.
type Family struct {
	Parents []string // operations of the records that it reads
	Views   []View
	Result  *schema.Shape // normalized_result of every view of the family
}

// View is one kind of view. Request is an object of the shape Input with defaults not filled in; Make returns a
// sealed record. Views of one kind in several families have equal inputs, or differ by more than the kind.
type View struct {
	Kind  string
	Input *schema.Shape // has the member kind, a constant
	Make  func(ctx context.Context, parent *evidence.Record, request jsontext.Value, sp evidence.Spooler) (*evidence.Record, error)
}

// Set is a list of families. No operation is a parent in two of them.
type Set []Family

// Builtin lists the families of this program.
func Builtin() Set { return Set{inventory()} }

// Input is any view of any family.
func (s Set) Input() *schema.Shape {
	byKind := map[string][]*schema.Shape{}
	var kinds []string
	for _, f := range s {
		for _, v := range f.Views {
			if byKind[v.Kind] == nil {
				kinds = append(kinds, v.Kind)
			}
			if v.Kind != KindSummary || byKind[v.Kind] == nil { // every summary is asked for alike
				byKind[v.Kind] = append(byKind[v.Kind], v.Input)
			}
		}
	}
	var shapes []*schema.Shape
	for _, kind := range kinds {
		shapes = append(shapes, byKind[kind]...)
	}
	return schema.Tagged("What to see of the source.", "kind", shapes...)
}

// Result is what any view returns.
func (s Set) Result() *schema.Shape {
	var shapes []*schema.Shape
	for _, f := range s {
		shapes = append(shapes, f.Result)
	}
	if len(shapes) == 1 {
		return shapes[0]
	}
	return schema.Either("The selected facts.", shapes...)
}

// Parents lists every operation whose Evidence has views, sorted.
func (s Set) Parents() []string {
	var out []string
	for _, f := range s {
		out = append(out, f.Parents...)
	}
	slices.Sort(out)
	return out
}

// Make makes one view of a record. Request is an object of the shape Input.
func (s Set) Make(ctx context.Context, parent *evidence.Record, request jsontext.Value, sp evidence.Spooler) (*evidence.Record, error) {
	kind := kindOf(request)
	f, ok := s.family(parent.Operation)
	if !ok {
		return nil, fault.New(fault.UnsupportedTarget, fmt.Sprintf("Evidence of %.64q has no views.", parent.Operation),
			"Pass Evidence of one of: "+strings.Join(s.Parents(), ", ")+".").WithAll(fault.Details{"operation": Operation, "reason": "no views of this operation", "path": parent.ID})
	}
	var kinds []string
	for _, v := range f.Views {
		if v.Kind != kind {
			kinds = append(kinds, v.Kind)
			continue
		}
		if issues := v.Input.Validate(request); len(issues) > 0 {
			return nil, schema.Reject(Operation, schema.Below("view", issues)...)
		}
		return v.Make(ctx, parent, request, sp)
	}
	return nil, schema.Reject(Operation, schema.Issue{Path: []any{"view", "kind"}, Reason: schema.InvalidValue,
		Message: "Evidence of " + parent.Operation + " has no such view.", Expected: "one of: " + strings.Join(kinds, ", ")})
}

// Summary makes the summary of a record.
func (s Set) Summary(ctx context.Context, parent *evidence.Record, sp evidence.Spooler) (*evidence.Record, error) {
	return s.Make(ctx, parent, jsontext.Value(`{"kind":"`+KindSummary+`"}`), sp)
}

func (s Set) family(operation string) (Family, bool) {
	for _, f := range s {
		if slices.Contains(f.Parents, operation) {
			return f, true
		}
	}
	return Family{}, false
}
