package catalog

import (
	"rea/evidence"
	"rea/orchestrator/schema"
)

// Shapes of results. They follow the Evidence, artifact and session contracts field by field.

var architectures = []string{"x86", "x86_64", "arm", "arm64", "mips"}

// result wraps what a session tool returns.
func result(s *Shape) *Shape { return object("The answer.", need("result", s)) }

func sha(description string) *Shape { return formatted(schema.Hex64, description) }

func id(prefix, description string) *Shape { return formatted(schema.DigestID(prefix), description) }

func texts(description string) *Shape { return list(description, text("One entry.")) }

func evidenceIDs(description string) *Shape {
	return list(description, formatted(schema.EvidenceID, "One evidence_id."))
}

func architecture() *Shape {
	return orNull(oneOf("Processor architecture, where it is a listed one.", architectures...))
}

func provider(description string) *Shape {
	return object(description,
		need("id", name("Stable id.")), need("name", name("Name for people.")), need("version", orNull(text("Version."))))
}

func concreteProvider(description string) *Shape {
	return object(description,
		need("id", name("Stable id.")), need("name", name("Name for people.")), need("version", name("Version.")))
}

func subject() *Shape {
	return object("The artifact that the record is about.",
		need("name", name("Name for display.")),
		need("digest", object("Identity of the bytes.", need("sha256", sha("SHA-256.")))),
		need("format", oneOf("Recognised format.", evidence.Formats...)),
		need("architecture", architecture()),
		need("local_path", text("Path for display.")))
}

func profile() *Shape {
	return object("Concrete configuration of the analysis.",
		need("provider", concreteProvider("The configured provider.")),
		need("parameters", openObject("Its settings.")),
		need("digest", sha("Identity of the configuration.")))
}

func environment() *Shape {
	return object("Where a run-time observation was made.",
		need("id", name("Id.")), need("platform", name("Operating system.")), need("architecture", name("Processor.")),
		need("isolation", oneOf("How it was isolated.", "none", "process", "container", "virtual-machine")))
}

func location() *Shape {
	return either("A place in the subject.",
		object("An address.", need("kind", constant("Kind.", "address")), need("address", text("Address."))),
		object("A range of addresses.", need("kind", constant("Kind.", "address-range")), need("start", text("First.")), need("end", text("End."))),
		object("A member.", need("kind", constant("Kind.", "artifact-path")), need("path", text("Logical path."))),
		object("An offset.", need("kind", constant("Kind.", "file-offset")), need("offset", count("Byte offset."))),
		object("A range of offsets.", need("kind", constant("Kind.", "file-offset-range")), need("start", count("First byte.")), need("end", count("End."))))
}

// taggedLocation is a location as an input: the kind selects the alternative.
func taggedLocation() *Shape {
	s := *location()
	s.Union = &schema.Union{Tag: "kind", Shapes: s.Union.Shapes}
	return &s
}

// record is the Evidence envelope around a normalized result.
func record(description string, place, normalized *Shape) *Shape {
	return object(description,
		need("evidence_id", formatted(schema.EvidenceID, "Identity of the record.")),
		need("subject", orNull(subject())),
		need("provider", provider("Who made the observation.")),
		need("analysis_profile", orNull(profile())),
		need("predicate_type", name("Kind of statement.")),
		need("operation", name("What was done.")),
		need("parameters", openObject("Effective inputs.")),
		need("raw_result", anyValue("What an engine itself returned, where that differs.")),
		need("normalized_result", normalized),
		need("confidence", oneOf("How the statement was reached.", "observed", "derived", "inferred")),
		need("authority", oneOf("Where its truth comes from.",
			"shipped-artifact", "controlled-replay", "historical-reference", "external-service", "analyst-inference")),
		need("environment", orNull(environment())),
		need("limitations", texts("What the record does not cover.")),
		need("locations", list("Places in the subject.", place)),
		need("evidence_links", evidenceIDs("Records that this one was derived from.")))
}

func evidenceOf(description string, normalized *Shape) *Shape {
	return record(description, location(), normalized)
}

func anyEvidence(description string) *Shape {
	return evidenceOf(description, anyValue("The operation's result."))
}

// anyEvidenceInput is a complete record as an input.
func anyEvidenceInput(description string) *Shape {
	return record(description, taggedLocation(), anyValue("The operation's result."))
}

// evidenceInput admits a complete record or the reference of a retained one.
func evidenceInput() *Shape {
	return shared("evidence_input", tagged("A complete Evidence record or the reference of a retained one.", "kind",
		schema.EvidenceReference(), anyEvidenceInput("A complete Evidence record, as it was returned.")))
}

// --- session ---

func targetProperties() []Property {
	return []Property{
		need("path", text("Canonical path.")),
		need("format", oneOf("Recognised format.", evidence.Formats...)),
		need("kind", oneOf("What can be done with it.", "executable", "database", "archive", "artifact")),
		need("sha256", sha("SHA-256 of a file's bytes; of a bundle, the digest of its tree.")),
		need("architecture", architecture()),
	}
}

func optional(properties []Property) []Property {
	out := make([]Property, len(properties))
	for i, p := range properties {
		p.Optional = true
		out[i] = p
	}
	return out
}

func sessionState() *Shape {
	properties := append([]Property{need("open", flag("Whether a target is open."))}, optional(targetProperties())...)
	return object("State of this connection.", append(properties,
		need("capabilities", list("What the current route can do.", capabilitySet())),
		need("analysis_provider_binding", orNull(binding())),
		need("analysis_provider_candidates", list("Deep-analysis engines that could be bound, by id.", candidate())),
		need("analysis_run", orNull(analysisRun())),
		need("analysis_activity", activity()),
		need("provider_operation_health", health()),
		need("tool_availability", availability()),
		need("client_features", object("What the client offered.",
			need("elicitation_form", flag("Forms.")), need("elicitation_url", flag("URLs.")),
			need("roots", flag("Roots.")), need("sampling", flag("Sampling.")))),
		need("server_identity", identity()))...)
}

func capabilitySet() *Shape {
	return object("Operations of one provider.",
		need("provider", provider("The provider.")),
		need("shared_limitations", texts("Limitations of every operation.")),
		need("groups", list("Operations with equal facts.", object("One group.",
			need("operations", texts("Names.")),
			need("available", flag("Whether they can be used.")),
			need("reason", orNull(text("Why not."))),
			need("availability_code", orNull(text("Why not, as a code."))),
			need("effects", texts("What they do.")),
			need("limitations", texts("Further limitations."))))))
}

func binding() *Shape {
	return object("The bound deep-analysis engine.",
		need("provider", concreteProvider("The engine.")),
		need("selection_source", oneOf("Who chose it.", "request", "environment", "auto-single-candidate")),
		need("analysis_profile", profile()))
}

func candidate() *Shape {
	status := func(description string, values ...string) *Shape {
		return object(description, need("status", oneOf("Status.", values...)), need("code", orNull(text("Code."))),
			need("reason", orNull(text("Reason."))), need("diagnostics", openObject("Further facts.")))
	}
	return object("One engine.",
		need("provider", provider("The engine.")),
		need("availability", status("Whether this host has it.", "available", "unavailable")),
		need("target_support", status("Whether it takes the target.", "supported", "unsupported", "unknown")),
		need("selected", flag("Whether it is bound.")),
		need("capabilities", list("What it could do.", capabilitySet())))
}

func analysisRun() *Shape {
	return object("The current target's run.",
		need("run_id", name("Fresh for each target.")),
		need("process_lineage", either("What processes were seen.",
			object("None yet.", need("status", constant("Status.", "not_observed"))),
			object("Historical observations.", need("status", constant("Status.", "snapshots")),
				need("snapshots", list("One for each started provider.", openObject("One observation.")))))))
}

func activity() *Shape {
	return object("What engines do now.",
		need("status", oneOf("Status.", "not_observed", "idle", "busy")),
		need("providers", list("Engines.", object("One engine.",
			need("provider", provider("The engine.")),
			need("active", orNull(object("The request that it works on.",
				need("request_id", text("Id.")), need("operation", text("Operation.")), need("elapsed_ms", count("Milliseconds.")),
				need("caller_state", oneOf("Whether somebody waits.", "waiting", "cancelled"))))),
			need("queued_requests", count("Requests that wait."))))))
}

func health() *Shape {
	return object("Health of the bound engine.",
		need("state", oneOf("State.", "idle", "busy", "exited", "unreachable", "not_started", "unknown")),
		need("stage", orNull(oneOf("Stage.", "launch", "connection", "analysis", "decompilation", "unknown"))),
		need("retry_action", orNull(oneOf("What helps.", "retry", "wait", "restart_provider", "unknown"))),
		need("exit_code", orNull(&Shape{Types: []string{schema.IntegerType}, Description: "How it ended."})),
		need("requests", list("Open requests.", object("One request.",
			need("request_id", text("Id.")), need("operation", text("Operation.")), need("stage", text("Stage."))))))
}

func requirements() *Shape {
	features := func(d string) *Shape { return texts(d) }
	return object("Features of the client that tools need.",
		need("required", features("Needed.")), need("optional", features("Used where offered.")),
		need("missing_required", features("Needed and not offered.")), need("missing_optional", features("Not offered.")))
}

func availability() *Shape {
	return object("Every tool with whether it can be called now.",
		need("client_requirements", requirements()),
		need("groups", list("Tools with equal facts.", object("One group.",
			need("names", texts("Tools.")),
			need("surface", text("Family.")),
			need("available", flag("Whether a call can succeed.")),
			need("reason", oneOf("Why not.", "available", "client_capability_missing", "target_required", "provider_missing",
				"provider_unavailable", "target_unsupported", "unsupported_host")),
			need("remediation", orNull(text("What to do."))),
			may("default_mode_available", flag("Whether the default mode works.")),
			may("modes", list("Modes of the tool.", object("One mode.",
				need("name", text("Name.")), need("available", flag("Whether it works.")),
				need("missing_operations", texts("What is missing.")), need("remediation", orNull(text("What to do.")))))),
			may("client_requirements", requirements()),
			need("effects", texts("What the tools may do; an absent effect is false.")),
			need("annotations", texts("MCP hints that are true."))))))
}

func identity() *Shape {
	return object("What this server is.",
		need("package", object("The installed package.", need("name", text("Name.")), need("version", text("Version.")),
			need("root_path", text("Directory.")), need("build_commit", orNull(text("Commit."))))),
		need("server", object("This process.", need("name", text("Name.")), need("version", text("Version.")),
			need("started_at", text("RFC 3339, UTC.")), need("command_path", text("Program.")))),
		need("sdk", object("Versions of the MCP library.", need("server", text("Server.")), need("client_test", text("Client in tests.")),
			need("core", text("Core.")))),
		need("negotiated_protocol_version", orNull(text("MCP version."))),
		need("client", orNull(object("The client.", need("name", text("Name.")), need("version", text("Version."))))),
		need("skill", object("The skill that belongs to this version.", need("name", text("Name.")), need("expected_version", text("Version.")))),
		need("catalog", object("Identity of the catalog.",
			need("counts", object("Sizes.", need("cli_commands", count("Commands.")), need("mcp_tools", count("Tools.")), need("mcp_prompts", count("Prompts.")))),
			need("digests", object("Digests.", need("tools_sha256", sha("Tools.")), need("prompts_sha256", sha("Prompts.")),
				need("combined_sha256", sha("Everything.")))))),
		need("protocol_features", object("Features of the protocol in use.", need("progress", flag("Progress.")),
			need("cancellation", flag("Cancellation.")), need("elicitation", flag("Elicitation.")))),
		need("alignment", object("Whether the caller's expectations hold.",
			need("state", oneOf("State.", "unknown", "aligned", "mcp_server_restart_required")),
			need("reasons", texts("What differs.")), need("remediation", orNull(text("What to do."))))))
}

func bundle() *Shape {
	return object("A portable Evidence bundle.",
		need("artifacts", list("Distinct subjects.", object("One subject.",
			need("digest", object("Identity.", need("sha256", sha("SHA-256.")))), need("format", text("Format.")), need("architecture", architecture())))),
		need("providers", list("Distinct providers.", provider("One provider."))),
		need("environments", list("Distinct environments.", environment())),
		need("scenarios", list("Controlled replays.", object("One replay.",
			need("evidence_id", formatted(schema.EvidenceID, "Record.")), need("operation", text("Operation.")), need("authority", constant("Authority.", "controlled-replay"))))),
		need("captures", list("Process captures.", object("One capture.",
			need("evidence_id", formatted(schema.EvidenceID, "Record.")), need("predicate_type", text("Kind."))))),
		need("unknowns", list("Revisions of residual unknowns, by unknown_id and revision.", unknown())),
		need("records", list("Every record, by evidence_id.", anyEvidence("One record."))))
}

func bundleSummary() *Shape {
	return object("The retained records without their content.",
		need("kind", constant("Says that this is a summary.", "evidence-bundle-summary")),
		need("filters", object("The filters that were used.",
			may("evidence_id", text("Id.")), may("operation", text("Operation.")), may("target_sha256", text("Artifact.")),
			may("analysis_profile_digest", text("Profile.")), may("procedure_address", text("Procedure.")))),
		need("total_retained_records", count("Records of this connection.")),
		need("matching_records", count("Records listed here.")),
		need("unknown_revisions", count("Revisions of residual unknowns.")),
		need("records", list("Matching records, by evidence_id.", object("One record.",
			need("evidence_id", formatted(schema.EvidenceID, "Id.")),
			need("subject", orNull(subject())),
			need("provider", provider("Who made it.")),
			need("operation", text("Operation.")),
			need("confidence", text("Confidence.")),
			need("authority", text("Authority.")),
			need("analysis_profile_digest", orNull(sha("Profile."))),
			need("retention", constant("What is stored.", "complete-record")),
			need("limitation_count", count("Limitations.")),
			need("native_dossier", openObject("Whether function facts are there, and how complete they are."))))))
}

// --- artifacts ---

func manifest() *Shape {
	return object("Identity of the whole inventory.",
		need("manifest_id", id("agm_", "Id.")), need("root_artifact_id", id("art_", "Root content.")), need("root_sha256", sha("Root digest.")),
		need("root_format", oneOf("Root format.", evidence.Formats...)), need("graph_sha256", sha("Digest of the graph.")),
		need("node_count", count("Distinct contents.")), need("occurrence_count", count("Places.")), need("edge_count", count("Relations.")))
}

func nullableCount(description string) *Shape { return orNull(count(description)) }

func inventory() *Shape {
	return object("Every member of the artifact.",
		need("manifest", manifest()),
		need("nodes", list("Distinct contents, by artifact_id.", node())),
		need("occurrences", list("Places, by logical path.", occurrence())),
		need("edges", list("Relations, by edge_id.", edge())),
		need("provenance", provenance()),
		need("integrity_contradictions", list("Declared digests that differ from the bytes.", contradiction())),
		may("containers", list("Facts of expanded containers.", container())),
		need("limitations", texts("What was not covered.")),
		need("coverage", object("How far the traversal went.",
			need("scope", oneOf("What was in scope.", "root", "container-entries")), need("status", oneOf("Whether all of it was visited.", "complete", "unknown")))),
		need("coverage_status", oneOf("The same for older clients.", "complete", "partial")))
}

func node() *Shape {
	return object("One content.",
		need("artifact_id", id("art_", "Id.")), need("format", oneOf("Format of the bytes.", evidence.Formats...)), need("sha256", sha("SHA-256.")),
		need("size", count("Bytes.")), need("media_type", orNull(text("Media type."))), need("architecture", orNull(text("Processor."))),
		need("content_state", oneOf("Where the bytes are.", "materialized", "embedded", "virtual")), need("limitations", texts("Limitations.")))
}

func occurrence() *Shape {
	return object("One place.",
		need("occurrence_id", id("occ_", "Id.")), need("artifact_id", orNull(id("art_", "Content, null where it is not available."))),
		need("parent_occurrence_id", orNull(id("occ_", "Enclosing directory or container."))), need("logical_path", text("Path below the root, escaped.")),
		need("entry_kind", oneOf("Kind of entry.", "file", "directory", "symlink", "slice")), need("artifact_kind", text("Role.")),
		need("artifact_format", text("Format by role.")), need("declared_size", nullableCount("Size that the container declares.")),
		need("compressed_size", nullableCount("Stored size.")), need("executable", flag("Executable bit.")), need("encrypted", flag("Encrypted.")),
		need("hash_status", oneOf("What is known of the bytes.", "verified", "mismatched", "not-hashed", "unavailable")),
		need("source_location", orNull(object("Range in the container.", need("offset", count("First byte.")), need("length", count("Bytes."))))),
		may("ordinal", count("Which of several with this path and kind.")), need("limitations", texts("Limitations.")))
}

func edge() *Shape {
	return object("One relation.",
		need("edge_id", id("edge_", "Id.")), need("ordinal", count("Position.")), need("parent_artifact_id", id("art_", "Parent content.")),
		need("relation", oneOf("Kind.", "contains", "extracts", "slice-of", "embeds", "loads", "maps-source", "derived-from")),
		need("occurrence_id", id("occ_", "Child place.")), need("producer", orNull(text("What established it."))))
}

func contradiction() *Shape {
	return object("One declared digest that the bytes do not have.",
		need("contradiction_id", id("ic_", "Id.")), need("occurrence_id", id("occ_", "Place.")), need("parent_artifact_id", id("art_", "Declaring content.")),
		need("logical_path", text("Path.")), need("declared_sha256", sha("Declared.")), need("observed_sha256", sha("Observed.")),
		need("entry_kind", oneOf("Kind of entry.", "file", "slice")), need("unpacked", flag("Whether it lies beside the archive.")),
		need("trust", constant("How far the bytes are trusted.", "observed-untrusted")),
		need("provenance", constant("How it was found.", "container-integrity-metadata-versus-observed-bytes")), need("limitations", texts("Limitations.")))
}

func container() *Shape {
	return object("One expanded container.",
		need("occurrence_id", id("occ_", "Place.")), need("member_order_sha256", sha("Digest of the order of members.")),
		need("methods_sha256", sha("Digest of their methods.")), need("comment_sha256", orNull(sha("Digest of the comment."))),
		need("regions", list("Bytes outside of members.", object("One region.", need("role", oneOf("Place.", "prefix", "gap", "tail")),
			need("offset", count("First byte.")), need("length", count("Bytes.")), need("sha256", sha("SHA-256."))))))
}

func provenance() *Shape {
	return list("Tools that took part.", object("One tool.",
		need("tool", text("Name.")), need("arguments", texts("Arguments.")), need("tool_version", orNull(text("Version."))),
		need("executable_sha256", orNull(sha("SHA-256."))), need("exit_code", orNull(&Shape{Types: []string{schema.IntegerType}, Description: "Exit code."})),
		need("effects", list("What it did.", oneOf("One effect.", "read", "write", "mount")))))
}

func inspection() *Shape {
	probe := object("One follow-up.", need("operation", text("Tool.")), need("rationale", text("Why.")), need("authority", text("What it establishes.")))
	return object("An inventory with what follows from it.",
		need("inspection_id", id("ai_", "Id.")),
		need("subject", object("The inventory's root.", need("manifest_id", id("agm_", "Manifest.")), need("root_artifact_id", id("art_", "Content.")),
			need("root_sha256", sha("Digest.")), need("root_format", text("Format.")))),
		need("substeps", list("Steps taken.", object("One step.", need("substep_id", id("ais_", "Id.")), need("operation", text("Operation.")),
			need("status", constant("How it ended.", "completed")), need("evidence_id", formatted(schema.EvidenceID, "Its record.")),
			need("evidence", evidenceOf("The complete inventory record.", inventory()))))),
		need("observations", list("What was seen.", object("One observation.", need("observation_id", id("aio_", "Id.")),
			need("kind", oneOf("Kind.", "root-manifest", "integrity")), need("subject", anyValue("What it is about.")), need("value", anyValue("What was seen.")),
			need("evidence_id", formatted(schema.EvidenceID, "Where.")))),
		),
		need("hypotheses", list("What may be.", object("One hypothesis.", need("hypothesis_id", id("aih_", "Id.")), need("statement", text("Statement.")),
			need("confidence", oneOf("Confidence.", "medium", "low")), need("basis_evidence_ids", evidenceIDs("Basis.")), need("limitation", text("Limitation."))))),
		need("contradictions", list("What contradicts itself.", object("One contradiction.", need("contradiction_id", id("aic_", "Id.")), need("statement", text("Statement.")),
			need("occurrence_id", id("occ_", "Place.")), need("declared_sha256", sha("Declared.")), need("observed_sha256", sha("Observed.")),
			need("evidence_id", formatted(schema.EvidenceID, "Where."))))),
		need("unexplored_branches", list("What was not looked into.", object("One branch.", need("branch_id", id("aib_", "Id.")),
			need("reason", oneOf("Why.", "format-specific-analysis-required", "unknown-format")), need("detail", text("Detail.")),
			need("next_probe", orNull(probe)), need("evidence_id", formatted(schema.EvidenceID, "Where."))))),
		need("next_probes", list("What to call next.", probe)),
		need("coverage", openObject("Counts of what was retained and omitted.")),
		need("evidence_links", evidenceIDs("The inventory.")),
		need("limitations", texts("Limitations.")))
}

func extraction() *Shape {
	return object("What was written.",
		need("manifest", manifest()),
		need("extraction_manifest", object("Identity of the extraction.", need("extraction_id", id("aex_", "Id.")), need("source_manifest_id", id("agm_", "Inventory.")),
			need("selected_occurrence_ids", list("What was selected.", id("occ_", "One occurrence."))), need("files_sha256", sha("Digest of the files.")),
			need("output_root_alias", constant("Stands for output_root.", "$OUTPUT_ROOT")))),
		need("output_root", text("Directory on this machine.")),
		need("artifacts", list("Files.", object("One file.", need("artifact_id", id("art_", "Content.")), need("relative_path", text("Path below output_root.")),
			need("sha256", sha("SHA-256.")), need("bytes_written", count("Bytes.")), need("created", flag("Whether it was made by this call."))))),
		need("containment_verified", flag("Whether everything lies below output_root.")),
		need("cleanup", object("What remained.", need("attempted", flag("Attempted.")), need("verified", flag("Verified.")), need("residual_paths", texts("Left over.")))),
		need("provenance", provenance()),
		need("limitations", texts("Limitations.")),
		need("integrity_contradictions", list("Of the written files.", contradiction())))
}

func comparison() *Shape {
	verdict := []string{"unchanged", "added", "removed", "changed", "unknown", "contradiction", "truncated"}
	return object("What differs.",
		need("status", oneOf("Verdict.", verdict...)),
		need("left_manifest_id", id("agm_", "Left.")), need("right_manifest_id", id("agm_", "Right.")),
		need("summary", object("Counts.", need("unchanged", count("Equal.")), need("added", count("Right only.")), need("removed", count("Left only.")),
			need("changed", count("Different.")), need("unknown", count("Not known.")), need("contradiction", count("Contradicted.")))),
		need("changes", list("Entries, by logical path.", object("One entry.",
			need("classification", oneOf("What happened.", "added", "removed", "changed", "unknown", "contradiction")), need("logical_path", text("Path.")),
			need("dimensions", list("What differs.", oneOf("One dimension.", "content", "kind", "format", "size", "executable", "relations", "metadata", "availability", "integrity"))),
			need("left_occurrence_id", orNull(id("occ_", "Left."))), need("right_occurrence_id", orNull(id("occ_", "Right."))),
			need("left_artifact_id", orNull(id("art_", "Left."))), need("right_artifact_id", orNull(id("art_", "Right."))),
			need("evidence_links", evidenceIDs("Both inventories."))))),
		need("moves", list("Files that only moved.", object("One move.", need("left_logical_path", text("From.")), need("right_logical_path", text("To.")),
			need("artifact_id", id("art_", "Content.")), need("left_occurrence_id", id("occ_", "Left.")), need("right_occurrence_id", id("occ_", "Right."))))),
		need("container_differences", list("Containers that differ beside their members.", object("One container.", need("logical_path", text("Path.")),
			need("aspects", list("What differs.", oneOf("One aspect.", "order", "method", "comment", "prefix", "gap", "tail")))))),
		need("limitations", texts("Limitations.")))
}

func bundleComparison() *Shape {
	side := func(d string) *Shape {
		return object(d, need("bundle_sha256", sha("Digest of the bundle in the order of our exports.")), need("records", count("Records.")),
			need("unknowns", count("Residual unknowns.")), need("unknown_revisions", count("Their revisions.")))
	}
	return object("What differs.",
		need("status", oneOf("Verdict.", "unchanged", "changed", "unknown")),
		need("left", side("The left bundle.")), need("right", side("The right bundle.")),
		need("summary", object("Counts.",
			need("records_unchanged", count("In both.")), need("records_added", count("Right only.")), need("records_removed", count("Left only.")),
			need("records_changed", count("Pairs that differ.")), need("records_unknown", count("Pairs that cannot be compared.")),
			need("unknowns_unchanged", count("Equal histories.")), need("unknowns_added", count("Right only.")), need("unknowns_removed", count("Left only.")),
			need("unknowns_advanced", count("One history continues the other.")), need("unknowns_diverged", count("Histories that went different ways.")),
			need("unresolved", count("Rows that leave a question open.")))),
		need("rows", list("Differences: records before unknowns, by id.", object("One difference.",
			need("entity", oneOf("What differs.", "evidence", "residual_unknown")),
			need("classification", oneOf("How.", "added", "removed", "changed", "unknown", "history_advanced", "history_diverged")),
			need("conclusion", oneOf("What follows.", "observed_change", "contradiction", "unresolved_branch")),
			need("left_id", orNull(text("evidence_id or unknown_id on the left."))), need("right_id", orNull(text("evidence_id or unknown_id on the right."))),
			need("operation", orNull(text("Operation of a record; null for an unknown."))),
			need("left_revision", orNull(count("Head on the left, of an unknown."))), need("right_revision", orNull(count("Head on the right, of an unknown.")))))),
		need("limitations", texts("Limitations.")))
}
