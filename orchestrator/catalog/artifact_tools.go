package catalog

import (
	"rea/orchestrator/schema"
	"rea/orchestrator/view"
)

func inspectArtifact() *Tool {
	return &Tool{
		Name:    InspectArtifact,
		Surface: ArtifactSurface,
		Description: "Take stock of an archive, package, application bundle, directory or single file: every member with hash, size, " +
			"format and place, nested containers included, integrity checked against what the container declares, and what to look " +
			"at next. Reads in a container and runs nothing of the target. Pass the Evidence, or its evidence_id, to compare_artifacts.",
		Effects: Effects{MutatesSession: true, LaunchesProcess: true, WritesFilesystem: true, Idempotent: true},
		Needs:   Needs{Sandbox: true},
		Input: object("What to inspect.",
			may("path", formatted(schema.AbsolutePath, "Absolute path of a file or directory. Without it the active target is inspected.")),
			may("integrity_policy", integrityPolicy("end with an error", "record it and go on with the verified members")),
			may("detail", schema.WithDefault("complete", oneOf(
				"complete returns the whole record; summary retains it and returns counts with its evidence_id.", "complete", "summary"))),
		),
		Output:   evidenceOf("Evidence of inspect_artifact, or of its summary view.", either("The inspection or its summary.", inspection(), view.Builtin().Result())),
		Examples: examples(`{"path":"/samples/app.zip"}`, `{}`, `{"path":"/samples/app","integrity_policy":"record-and-continue","detail":"summary"}`),
	}
}

func extractArtifact() *Tool {
	return &Tool{
		Name:    ExtractArtifact,
		Surface: ArtifactSurface,
		Description: "Write regular members of a container, all of them or a selection, to a fresh directory that the result names as " +
			"output_root. Members are decoded in a container of their own and verified before they are written; links and " +
			"devices are never made.",
		Effects: Effects{MutatesSession: true, LaunchesProcess: true, WritesFilesystem: true},
		Needs:   Needs{Sandbox: true},
		Input: object("What to extract.",
			may("path", formatted(schema.AbsolutePath, "Absolute path of the container. Without it the active target is used.")),
			may("integrity_policy", integrityPolicy("end with an error and write nothing", "write what was observed and list the contradiction")),
			may("logical_paths", selection("Logical paths of the members to write, as the inventory spells them.", name("One logical path."))),
			may("occurrence_ids", selection("Occurrences to write, where a logical path stands more than once.",
				formatted(schema.OccurrenceID, "One occurrence_id of the inventory."))),
		),
		Output:   evidenceOf("Evidence of extract_artifact.", extraction()),
		Examples: examples(`{"path":"/samples/app.zip"}`, `{"path":"/samples/app.zip","logical_paths":["docs/a.txt"]}`),
	}
}

func compareArtifacts() *Tool {
	side := "Evidence of inspect_artifact or inventory_artifact, complete and unmodified, or its retained reference."
	return &Tool{
		Name:    CompareArtifacts,
		Surface: SessionSurface,
		Description: "Compare two inventories: what was added, removed, changed or only moved, what cannot be known, and what contradicts " +
			"itself. Says unchanged only where both sides were completely observed; equality of bytes says nothing about " +
			"behaviour. Starts nothing.",
		Effects: Effects{MutatesSession: true, Idempotent: true},
		Input: object("The two sides.",
			need("left", described(side, evidenceInput())),
			need("right", described(side, evidenceInput())),
		),
		Output: evidenceOf("Evidence of compare_artifacts.", comparison()),
		Examples: examples(`{"left":{"kind":"retained-evidence","evidence_id":"` + exampleID + `"},` +
			`"right":{"kind":"retained-evidence","evidence_id":"` + exampleOther + `"}}`),
	}
}

func integrityPolicy(failing, recording string) *Shape {
	return schema.WithDefault("fail", oneOf("On a member whose declared digest differs from its bytes: fail to "+failing+
		", record-and-continue to "+recording+".", "fail", "record-and-continue"))
}

func selection(description string, item *Shape) *Shape {
	s := list(description+" Absent selects all regular files.", item)
	s.MinItems, s.Unique = 1, true
	return s
}
