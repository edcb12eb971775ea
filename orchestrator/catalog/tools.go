package catalog

import "github.com/go-json-experiment/json/jsontext"

// Names of the tools.
const (
	OpenBinary    = "open_binary"
	CloseBinary   = "close_binary"
	BinarySession = "binary_session"

	GetEvidenceBundle    = "get_evidence_bundle"
	ExportEvidenceBundle = "export_evidence_bundle"
	ImportEvidenceBundle = "import_evidence_bundle"
	CompareBundles       = "compare_bundles"

	RecordUnknown           = "record_unknown"
	UpdateUnknown           = "update_unknown"
	ListUnknowns            = "list_unknowns"
	VerifyUnknownResolution = "verify_unknown_resolution"

	InspectArtifact     = "inspect_artifact"
	ExtractArtifact     = "extract_artifact"
	CompareArtifacts    = "compare_artifacts"
	InspectAnalysisView = "inspect_analysis_view"

	GuidedWorkflows     = "guided_workflows"
	SearchGuidance      = "search_guidance"
	ReadGuidanceSection = "read_guidance_section"
)

// Builtin lists every tool of this program, in the order in which binary_session names them.
func Builtin() *Catalog {
	return New(
		openBinary(), closeBinary(), binarySession(),
		getEvidenceBundle(), exportEvidenceBundle(), importEvidenceBundle(), compareBundles(),
		recordUnknown(), updateUnknown(), listUnknowns(), verifyUnknownResolution(),
		inspectArtifact(), extractArtifact(), compareArtifacts(), inspectAnalysisView(),
		guidedWorkflows(), searchGuidance(), readGuidanceSection(),
	)
}

// Evidence ids of examples: they name no record.
const (
	exampleID      = "ev_b5bb669d91f0d00070a706f1b919764d10aafa6027c006437637473905fd0c01"
	exampleUnknown = "unk_13acafe8092a870031a3af216de927de8f613386ed3b1d7605a2c6ba28bf49aa"
	exampleLocator = "guide_000bef2a45fbd4b17adc4e2ab0acd65b076ef5c25f0d8479244c8088730de9cd_14a95009078352ac91c1fb5a88c0f5c14aafe55004fd8fd0af7aa4ae81c44670"
	exampleOther   = "ev_3071dc9cd04d2d619c5107ef30005261d4bc94e582d76214b16923f85302dcf0"
)

func examples(texts ...string) []jsontext.Value {
	out := make([]jsontext.Value, len(texts))
	for i, t := range texts {
		out[i] = jsontext.Value(t)
	}
	return out
}
