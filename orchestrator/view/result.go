package view

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"rea/evidence/fault"
	"rea/orchestrator/schema"
)

// kindOf reads the kind of a request.
func kindOf(request jsontext.Value) string {
	var r struct {
		Kind string `json:"kind"`
	}
	if json.Unmarshal(request, &r) != nil {
		return ""
	}
	return r.Kind
}

// decode reads a request that has the shape of its view. A failure means that the shape and the Go type differ.
func decode(request jsontext.Value, into any) error {
	if err := json.Unmarshal(request, into, json.RejectUnknownMembers(true)); err != nil {
		return fault.New(fault.ExecutionFailure, "The view could not be read.", "Report this call to the maintainers of rea.").Because(err)
	}
	return nil
}

// defaultPage is the length of a page for which no limit was given; there is no largest one, since what was selected
// decides whether it fits a reply.
const defaultPage = 64

// paging are the members of a view that shows one page.
func paging(unit string) []schema.Property {
	return []schema.Property{
		schema.May("offset", schema.WithDefault(0, schema.Count(unit+" to pass over."))),
		schema.May("limit", schema.WithDefault(defaultPage, schema.Positive(unit+" to return at most. Reduce it where the page does not fit a reply."))),
	}
}

// common are the members that the result of every view has, beside the selected facts.
func common(family string, view *schema.Shape, selected ...schema.Property) *schema.Shape {
	digest := func(d string) *schema.Shape { return schema.Formatted(schema.Hex64, d) }
	texts := func(d string) *schema.Shape { return schema.List(d, schema.Text("One entry.")) }
	return schema.Object("What was selected of "+family+" Evidence.", append([]schema.Property{
		schema.Need("kind", schema.Constant("Family of the view.", family)),
		schema.Need("view", view),
		schema.Need("parent_evidence_id", schema.Formatted(schema.EvidenceID, "The record that was read.")),
		schema.Need("parent_operation", schema.Text("What made it.")),
		schema.Need("parent_digest", digest("Its id without the prefix.")),
		schema.Need("view_digest", digest("Identity of this result without this member.")),
		schema.Need("artifact", schema.Object("What the parent is about.",
			schema.Need("path", schema.Text("Path for display.")), schema.Need("sha256", digest("SHA-256.")))),
		schema.Need("coverage", schema.Object("Which part of the collection is shown.",
			schema.Need("status", schema.OneOf("Part.", "complete-within-view", "page", "empty")),
			schema.Need("examined", schema.Count("Rows or units returned.")), schema.Need("total", schema.Count("Rows or units of the collection.")),
			schema.Need("next_offset", schema.OrNull(schema.Count("Where the next page begins; null where there is none."))),
			schema.Need("exhausted", schema.Flag("Whether nothing follows.")))),
		schema.Need("limitations", texts("What the parent does not cover.")),
		schema.Need("unknowns", texts("What cannot be concluded.")),
	}, selected...)...)
}
