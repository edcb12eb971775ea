package catalog

import (
	"rea/evidence"
	"rea/orchestrator/schema"
)

func recordUnknown() *Tool {
	return &Tool{
		Name:    RecordUnknown,
		Surface: SessionSurface,
		Description: "Keep a question that the Evidence does not answer: what is open, how much it matters, what would settle it. Returns " +
			"the first revision; update_unknown continues it. The question, the domain and the open target identify it.",
		Effects:   Effects{MutatesSession: true},
		StateOnly: true,
		Input: object("The open question.", append([]Property{
			need("question", name("What is not known, in one sentence.")),
			need("domain", name("Field that the question belongs to, for example storage or network.")),
		}, append(unknownTerms(), citations(true)...)...)...),
		Output: result(unknown()),
		Examples: examples(`{"question":"Does the cache survive restart?","domain":"storage","severity":"medium","required_authority":null,` +
			`"required_confidence":"observed","required_environment":null,"recommended_probes":[{"operation":"inspect_artifact","rationale":"Look for the cache file."}],"relationships":[]}`),
	}
}

func updateUnknown() *Tool {
	return &Tool{
		Name:    UpdateUnknown,
		Surface: SessionSurface,
		Description: "Add a revision to a residual unknown: its complete new state, against the revision that you have read. A verified " +
			"resolution must rest on supporting Evidence that meets the required authority, confidence and environment.",
		Effects: Effects{MutatesSession: true},
		Input: object("The complete new state.", append([]Property{
			need("unknown_id", formatted(schema.UnknownID, "The unknown to continue.")),
			need("expected_revision", schema.Positive("Revision of the head that the new state is based on.")),
			need("status", oneOf("State of the question.", evidence.UnknownStatuses...)),
		}, append(append(unknownTerms(), citations(false)...), need("resolution", orNull(resolution())))...)...),
		Output: result(unknown()),
		Examples: examples(`{"unknown_id":"` + exampleUnknown + `","expected_revision":1,"status":"resolved","severity":"medium","supporting_evidence_ids":[],` +
			`"contradicting_evidence_ids":[],"required_authority":null,"required_confidence":"observed","required_environment":null,"recommended_probes":[],` +
			`"relationships":[],"resolution":{"disposition":"withdrawn","rationale":"The component is not shipped.","evidence_ids":[]}}`),
	}
}

func listUnknowns() *Tool {
	return &Tool{
		Name:    ListUnknowns,
		Surface: SessionSurface,
		Description: "List the current heads of the residual unknowns of this connection, all of them or a filtered page, by unknown_id. " +
			"Follow next_offset until it is null, and change no unknown in between.",
		Effects: Effects{Idempotent: true},
		Input: object("Which heads.",
			may("status", oneOf("Only heads with this status.", evidence.UnknownStatuses...)),
			may("severity", oneOf("Only heads of this severity.", evidence.UnknownSeverities...)),
			may("domain", name("Only heads of this domain.")),
			may("offset", schema.WithDefault(0, count("Matching heads to pass over."))),
			may("limit", schema.Positive("Matching heads to return at most; absent for all.")),
		),
		Output: result(object("Matching heads.", need("items", list("Complete records, by unknown_id.", unknown())), need("total", count("All matching heads.")),
			need("offset", count("Heads passed over.")), need("limit", orNull(schema.Positive("Length of the page; null for no limit."))),
			need("next_offset", orNull(count("Where the next page begins; null where there is none."))))),
		Examples: examples(`{}`, `{"status":"open","limit":50}`),
	}
}

func verifyUnknownResolution() *Tool {
	return &Tool{
		Name:        VerifyUnknownResolution,
		Surface:     SessionSurface,
		Description: "Say whether the resolution of a residual unknown still holds by the Evidence of this connection. Changes nothing.",
		Effects:     Effects{Idempotent: true},
		Input:       object("Which unknown.", need("unknown_id", formatted(schema.UnknownID, "The unknown to check."))),
		Output: result(object("Whether it holds.", need("valid", flag("Whether the head is resolved and its resolution holds.")),
			need("truthVerified", flag("Whether it was resolved by Evidence, and not withdrawn or put out of scope.")), need("unknown", unknown()))),
		Examples: examples(`{"unknown_id":"` + exampleUnknown + `"}`),
	}
}

// unknownTerms are the members that an unknown is recorded and updated with.
func unknownTerms() []Property {
	return []Property{
		need("severity", oneOf("How much depends on the answer.", evidence.UnknownSeverities...)),
		need("required_authority", orNull(oneOf("Where the answer must come from; null for anywhere.", evidence.Authorities()...))),
		need("required_confidence", oneOf("How it must be established at least.", "observed", "derived", "inferred")),
		need("required_environment", orNull(requiredEnvironment())),
		need("recommended_probes", list("What to do next, in order.", object("One step.",
			need("operation", name("Tool or action.")), need("rationale", name("What it would show."))))),
		need("relationships", list("Ties to other unknowns.", object("One tie.",
			need("type", oneOf("Kind.", "depends-on", "related-to", "contradicts")), need("unknown_id", formatted(schema.UnknownID, "The other unknown."))))),
	}
}

// citations are the Evidence that an unknown rests on.
func citations(optional bool) []Property {
	ids := func(description string) *Shape {
		s := list(description, formatted(schema.EvidenceID, "One evidence_id of this connection."))
		if optional {
			s = schema.WithDefault([]string{}, s)
		}
		return s
	}
	return []Property{
		{Name: "supporting_evidence_ids", Shape: ids("Records that bear on the question."), Optional: optional},
		{Name: "contradicting_evidence_ids", Shape: ids("Records that contradict each other or the supporting ones."), Optional: optional},
	}
}

func requiredEnvironment() *Shape {
	return object("Where it must have been observed; null members admit anything.",
		need("id", orNull(name("Id."))), need("platform", orNull(name("Operating system."))), need("architecture", orNull(name("Processor."))),
		need("isolation", orNull(oneOf("How it was isolated.", "none", "process", "container", "virtual-machine"))))
}

func resolution() *Shape {
	return object("How the question ended; null while it is open.",
		need("disposition", oneOf("By Evidence, or otherwise.", "verified", "withdrawn", "out-of-scope")),
		need("rationale", name("Why.")),
		need("evidence_ids", list("Records that it rests on; at least one for verified.", formatted(schema.EvidenceID, "One evidence_id."))))
}

// unknown is one revision of a residual unknown, complete.
func unknown() *Shape {
	return shared("unknown", object("One revision of a residual unknown.", append([]Property{
		need("unknown_id", formatted(schema.UnknownID, "Identity of the question.")),
		need("revision", schema.Positive("Number of this revision.")),
		need("previous_revision_digest", orNull(sha("Digest of the revision before; null for the first."))),
		need("revision_digest", sha("Digest of this revision.")),
		need("scope_digest", orNull(sha("Target that was open when it was recorded first."))),
		need("question", name("What is not known.")),
		need("domain", name("Field.")),
		need("status", oneOf("State.", evidence.UnknownStatuses...)),
	}, append(append(unknownTerms(), citations(false)...),
		need("resolution", orNull(resolution())),
		need("mutation_evidence_ids", evidenceIDs("Records of the registry's own changes.")))...)...))
}
