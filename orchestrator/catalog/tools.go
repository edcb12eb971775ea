package catalog

import "github.com/go-json-experiment/json/jsontext"

// Names of the tools.
const (
	OpenBinary        = "open_binary"
	CloseBinary       = "close_binary"
	BinarySession     = "binary_session"
	InspectArtifact   = "inspect_artifact"
	ExtractArtifact   = "extract_artifact"
	CompareArtifacts  = "compare_artifacts"
	GetEvidenceBundle = "get_evidence_bundle"
)

// Builtin lists every tool of this program, in the order in which binary_session names them.
func Builtin() *Catalog {
	return New(
		openBinary(), closeBinary(), binarySession(), getEvidenceBundle(),
		inspectArtifact(), extractArtifact(), compareArtifacts(),
	)
}

func openBinary() *Tool {
	return &Tool{
		Name:    OpenBinary,
		Surface: SessionSurface,
		Description: "Make a file, or an Apple bundle such as an .app, the active target of this connection. The target is hashed and " +
			"recognised in a container; nothing of it is run. Opening the active target again changes nothing. Records of an " +
			"earlier target stay retained. A plain directory is not opened: pass it to inspect_artifact as path.",
		Effects: Effects{MutatesSession: true, LaunchesProcess: true, Idempotent: true},
		Needs:   Needs{Sandbox: true},
		Input: object("What to open.",
			need("path", formatted(absolutePath, "Absolute path of the file or Apple bundle directory.")),
			may("provider_id", limited(64, formatted(providerID,
				"Analysis engine to bind, or auto to let the only usable one be bound. Without it the server's setting decides."))),
			may("architecture", oneOf("Slice of a universal file to work on.", architectures...)),
			may("format", oneOf("Format of a raw image that has no recognisable bytes. Not accepted for anything else.", "dos-com")),
		),
		Output: result(object("The active target.", targetProperties()...)),
		Examples: examples(`{"path":"/samples/app.zip"}`, `{"path":"/Applications/Sample.app","provider_id":"auto"}`,
			`{"path":"/samples/tool","architecture":"arm64"}`),
	}
}

func closeBinary() *Tool {
	return &Tool{
		Name:    CloseBinary,
		Surface: SessionSurface,
		Description: "Close the active target and forget every Evidence record of this connection, also when no target is open. " +
			"Keep what is still needed first: get_evidence_bundle returns it.",
		Effects:  Effects{MutatesSession: true, WritesFilesystem: true, MayDiscardData: true},
		Input:    object("Nothing."),
		Output:   result(nothing("Nothing is returned.")),
		Examples: examples(`{}`),
	}
}

func binarySession() *Tool {
	return &Tool{
		Name:    BinarySession,
		Surface: SessionSurface,
		Description: "Say what this connection can do now: the active target, each tool with whether it is available and why not, the " +
			"providers, and the identity of this server. Starts nothing. Call it with {} first, and whenever a tool is refused.",
		Effects: Effects{Idempotent: true},
		Input: object("What the caller expects of this server; each is compared with what runs.",
			may("expected_package_version", name("Version of the package that should be running.")),
			may("expected_catalog_digest", formatted(hex64, "combined_sha256 of the catalog that the caller knows.")),
			may("expected_server_path", name("Path of the program that should be running.")),
		),
		Output:   result(sessionState()),
		Examples: examples(`{}`, `{"expected_package_version":"0.1.0"}`),
	}
}

func getEvidenceBundle() *Tool {
	return &Tool{
		Name:    GetEvidenceBundle,
		Surface: SessionSurface,
		Description: "Return the Evidence of this connection: complete, as a portable bundle, or as a summary that names each record " +
			"without its content. Filters are exact, joined by AND, and need detail summary. Starts nothing.",
		Effects: Effects{Idempotent: true},
		Input: object("Which records, and how much of them.",
			may("detail", withDefault("complete", oneOf("complete returns every record; summary names them.", "complete", "summary"))),
			may("filters", object("Exact matches, joined by AND; only with detail summary.",
				may("evidence_id", formatted(evidenceID, "The record with this id.")),
				may("operation", name("Records of this operation, for example inspect_artifact.")),
				may("target_sha256", formatted(hex64, "Records about the artifact with this SHA-256.")),
				may("analysis_profile_digest", formatted(hex64, "Records made under this analysis profile.")),
				may("procedure_address", name("Function records of the procedure at this address.")),
			)),
		),
		Output:   result(either("A complete bundle or a summary.", bundle(), bundleSummary())),
		Examples: examples(`{}`, `{"detail":"summary"}`, `{"detail":"summary","filters":{"operation":"inspect_artifact"}}`),
	}
}

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
			may("path", formatted(absolutePath, "Absolute path of a file or directory. Without it the active target is inspected.")),
			may("integrity_policy", integrityPolicy("end with an error", "record it and go on with the verified members")),
			may("detail", withDefault("complete", oneOf(
				"complete returns the whole record; summary retains it and returns counts with its evidence_id.", "complete", "summary"))),
		),
		Output:   evidenceOf("Evidence of inspect_artifact, or of its summary view.", either("The inspection or its summary.", inspection(), inventorySummary())),
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
			may("path", formatted(absolutePath, "Absolute path of the container. Without it the active target is used.")),
			may("integrity_policy", integrityPolicy("end with an error and write nothing", "write what was observed and list the contradiction")),
			may("logical_paths", selection("Logical paths of the members to write, as the inventory spells them.", name("One logical path."))),
			may("occurrence_ids", selection("Occurrences to write, where a logical path stands more than once.",
				formatted(occurrenceID, "One occurrence_id of the inventory."))),
		),
		Output:   evidenceOf("Evidence of extract_artifact.", extraction()),
		Examples: examples(`{"path":"/samples/app.zip"}`, `{"path":"/samples/app.zip","logical_paths":["docs/a.txt"]}`),
	}
}

func compareArtifacts() *Tool {
	side := "Evidence of inspect_artifact or inventory_artifact, complete and unmodified, or its retained reference."
	return &Tool{
		Name:    CompareArtifacts,
		Surface: ArtifactSurface,
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

// Evidence ids of examples: they name no record.
const (
	exampleID    = "ev_b5bb669d91f0d00070a706f1b919764d10aafa6027c006437637473905fd0c01"
	exampleOther = "ev_3071dc9cd04d2d619c5107ef30005261d4bc94e582d76214b16923f85302dcf0"
)

func integrityPolicy(failing, recording string) *Shape {
	return withDefault("fail", oneOf("On a member whose declared digest differs from its bytes: fail to "+failing+
		", record-and-continue to "+recording+".", "fail", "record-and-continue"))
}

func selection(description string, item *Shape) *Shape {
	s := list(description+" Absent selects all regular files.", item)
	s.MinItems, s.Unique = 1, true
	return s
}

func withDefault(value string, s *Shape) *Shape {
	c := *s
	c.Default = value
	return &c
}

func limited(length int, s *Shape) *Shape {
	c := *s
	c.MaxLength = length
	return &c
}

func examples(texts ...string) []jsontext.Value {
	out := make([]jsontext.Value, len(texts))
	for i, t := range texts {
		out[i] = jsontext.Value(t)
	}
	return out
}
