package catalog

import (
	"rea/orchestrator/schema"
	"rea/orchestrator/view"
)

func getEvidenceBundle() *Tool {
	return &Tool{
		Name:    GetEvidenceBundle,
		Surface: SessionSurface,
		Description: "Return the Evidence of this connection: complete, as a portable bundle, or as a summary that names each record " +
			"without its content. Filters are exact, joined by AND, and need detail summary. Starts nothing.",
		Effects: Effects{Idempotent: true},
		Input: object("Which records, and how much of them.",
			may("detail", schema.WithDefault("complete", oneOf("complete returns every record; summary names them.", "complete", "summary"))),
			may("filters", object("Exact matches, joined by AND; only with detail summary.",
				may("evidence_id", formatted(schema.EvidenceID, "The record with this id.")),
				may("operation", name("Records of this operation, for example inspect_artifact.")),
				may("target_sha256", formatted(schema.Hex64, "Records about the artifact with this SHA-256.")),
				may("analysis_profile_digest", formatted(schema.Hex64, "Records made under this analysis profile.")),
				may("procedure_address", name("Function records of the procedure at this address.")),
			)),
		),
		Output:   result(either("A complete bundle or a summary.", bundle(), bundleSummary())),
		Examples: examples(`{}`, `{"detail":"summary"}`, `{"detail":"summary","filters":{"operation":"inspect_artifact"}}`),
	}
}

func exportEvidenceBundle() *Tool {
	return &Tool{
		Name:    ExportEvidenceBundle,
		Surface: SessionSurface,
		Description: "Write every Evidence record and residual unknown of this connection to one file, a portable bundle that " +
			"import_evidence_bundle reads. The file appears complete or not at all; memory and reply stay small however large it is.",
		Effects:   Effects{WritesFilesystem: true, MayDiscardData: true, Idempotent: true},
		StateOnly: true,
		Input: object("Where to write.",
			need("path", formatted(schema.AbsolutePath, "Absolute path of the file to make. Its directory must exist.")),
			may("overwrite", schema.WithDefault(false, flag("Replace a file that is there."))),
		),
		Output: result(object("What was written.",
			need("path", text("Canonical path of the file.")), need("bytes", count("Its size.")),
			need("records", count("Evidence records in it.")), need("unknowns", count("Revisions of residual unknowns in it.")))),
		Examples: examples(`{"path":"/work/evidence.json"}`, `{"path":"/work/evidence.json","overwrite":true}`),
	}
}

func importEvidenceBundle() *Tool {
	return &Tool{
		Name:    ImportEvidenceBundle,
		Surface: SessionSurface,
		Description: "Add the records and residual unknowns of an exported bundle to this connection. Every identity in the file is " +
			"recomputed first; a bundle that fails any check changes nothing. Imported records can then be named by their evidence_id.",
		Effects: Effects{MutatesSession: true, Idempotent: true},
		Input:   object("What to read.", need("path", formatted(schema.AbsolutePath, "Absolute path of the bundle file."))),
		Output: result(object("What was added.",
			need("imported", count("Records that were new.")), need("unknowns_added", count("Revisions of unknowns that were new.")),
			need("total", count("Records that this connection retains now.")))),
		Examples: examples(`{"path":"/work/evidence.json"}`),
	}
}

func compareBundles() *Tool {
	side := func(description string) *Shape {
		return tagged(description, "kind",
			object("A bundle in a file.", need("kind", constant("Form of the bundle.", "file")),
				need("path", formatted(schema.AbsolutePath, "Absolute path of the bundle file."))),
			object("A bundle in place.", need("kind", constant("Form of the bundle.", "inline")),
				need("bundle", openObject("The complete bundle, as get_evidence_bundle returned it."))))
	}
	return &Tool{
		Name:    CompareBundles,
		Surface: SessionSurface,
		Description: "Compare two Evidence bundles record by record and unknown by unknown: what only one of them holds, what a pair that " +
			"you name says differently, and whose history of an unknown went on or went another way. Every identity in both is recomputed first.",
		Effects: Effects{MutatesSession: true, Idempotent: true},
		Input: object("The two sides.",
			need("left", side("The earlier bundle.")),
			need("right", side("The later bundle.")),
			may("record_pairs", list("Records to hold against each other although their ids differ; each record in one pair at most.",
				object("One pair.", need("left_evidence_id", formatted(schema.EvidenceID, "Record of the left bundle.")),
					need("right_evidence_id", formatted(schema.EvidenceID, "Record of the right bundle."))))),
		),
		Output:   evidenceOf("Evidence of compare_bundles.", bundleComparison()),
		Examples: examples(`{"left":{"kind":"file","path":"/work/before.json"},"right":{"kind":"file","path":"/work/after.json"}}`),
	}
}

func inspectAnalysisView() *Tool {
	views := view.Builtin()
	source := tagged("The Evidence to look at: a record that this connection retains, or a complete one.", "kind",
		schema.EvidenceReference(),
		object("A complete record.", need("kind", constant("Says that the record is here.", "inline")),
			need("evidence", anyEvidenceInput("The record, as it was returned."))))
	return &Tool{
		Name:    InspectAnalysisView,
		Surface: ApplicationSurface,
		Description: "Look at a part of Evidence that was made before: a summary, or one page of a collection. Starts nothing and opens " +
			"nothing. Use it when a complete result does not fit a reply; follow coverage.next_offset to the next page.",
		Effects: Effects{MutatesSession: true, Idempotent: true},
		Input:   object("What to look at.", need("source", source), need("view", views.Input())),
		Output:  evidenceOf("Evidence of the view; evidence_links names its parent.", views.Result()),
		Examples: examples(`{"source":{"kind":"retained-evidence","evidence_id":"`+exampleID+`"},"view":{"kind":"summary"}}`,
			`{"source":{"kind":"retained-evidence","evidence_id":"`+exampleID+`"},"view":{"kind":"inventory","collection":"occurrences","offset":64,"limit":64}}`),
	}
}
