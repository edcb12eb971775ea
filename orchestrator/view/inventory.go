package view

import (
	"context"

	"github.com/go-json-experiment/json/jsontext"

	"rea/evidence"
	"rea/orchestrator/schema"
	"rea/providers/artifact"
)

// inventory is what can be seen of inspections and inventories of artifacts.
func inventory() Family {
	return Family{
		Parents: []string{artifact.OpInspect, artifact.OpInventory},
		Views: []View{
			{Kind: KindSummary, Make: inventorySummary,
				Input: schema.Object("Counts, coverage and what occurs.", schema.Need("kind", schema.Constant("Kind of view.", KindSummary)))},
			{Kind: "inventory", Input: inventoryInput(), Make: inventoryPage},
		},
		Result: inventoryResult(),
	}
}

func inventoryInput() *schema.Shape {
	return schema.Object("Rows of the stored inventory.", append([]schema.Property{
		schema.Need("kind", schema.Constant("Kind of view.", "inventory")),
		schema.Need("collection", schema.OneOf("Which rows.", artifact.CollectionNodes, artifact.CollectionOccurrences,
			artifact.CollectionEdges, artifact.CollectionContradictions)),
		schema.May("logical_paths", schema.List("Only occurrences at exactly these recorded paths; absent selects all, an empty list none. "+
			"Goes with collection occurrences.", schema.Text("One logical path, as the inventory spells it."))),
	}, paging("Rows")...)...)
}

func inventoryResult() *schema.Shape {
	count := func(d string) *schema.Shape { return schema.Count(d) }
	return common("artifact-inventory", schema.OpenObject("The effective view."),
		schema.May("summary", schema.Object("The inventory in numbers.",
			schema.Need("manifest_id", schema.Formatted(schema.DigestID("agm_"), "Identity of the inventory.")),
			schema.Need("root_format", schema.OneOf("Format of the root.", evidence.Formats...)),
			schema.Need("expected", schema.Object("Rows that the manifest names.",
				schema.Need("nodes", count("Contents.")), schema.Need("occurrences", count("Places.")), schema.Need("edges", count("Relations.")))),
			schema.Need("present", schema.Object("Rows that are there.",
				schema.Need("nodes", count("Contents.")), schema.Need("occurrences", count("Places.")), schema.Need("edges", count("Relations.")),
				schema.Need("integrity_contradictions", count("Contradicted digests.")))),
			schema.Need("entry_kinds", schema.Map("How many of each kind of entry there are.", count("Entries."))),
			schema.Need("inventory_evidence_ids", schema.List("The inventory records.", schema.Formatted(schema.EvidenceID, "One evidence_id."))),
			schema.Need("coverage", schema.Object("How far the inspection went.",
				schema.Need("scope", schema.OneOf("What was in scope.", "root", "container-entries")),
				schema.Need("status", schema.OneOf("Whether all of it was visited.", "complete", "unknown")))),
			schema.Need("source_complete", schema.Flag("Whether the inventory passes every check of its graph.")))),
		schema.May("source_complete", schema.Flag("Whether the inventory passes every check of its graph; where it does not, the last page proves no absence.")),
		schema.May("items", schema.List("Rows as they are stored.", schema.OpenObject("One row of the collection."))))
}

func inventorySummary(ctx context.Context, parent *evidence.Record, _ jsontext.Value, _ evidence.Spooler) (*evidence.Record, error) {
	return artifact.ViewSummary(ctx, parent)
}

func inventoryPage(ctx context.Context, parent *evidence.Record, request jsontext.Value, sp evidence.Spooler) (*evidence.Record, error) {
	in := struct {
		Kind         string   `json:"kind"`
		Collection   string   `json:"collection"`
		Offset       int64    `json:"offset"`
		Limit        int64    `json:"limit"`
		LogicalPaths []string `json:"logical_paths"`
	}{Limit: defaultPage}
	if err := decode(request, &in); err != nil {
		return nil, err
	}
	if in.LogicalPaths != nil && in.Collection != artifact.CollectionOccurrences {
		return nil, schema.Reject(Operation, schema.Issue{Path: []any{"view", "logical_paths"}, Reason: schema.InvalidValue, Expected: "collection: occurrences"})
	}
	return artifact.ViewPage(ctx, parent, artifact.Page{Collection: in.Collection, Offset: in.Offset, Limit: in.Limit, LogicalPaths: in.LogicalPaths}, sp)
}
