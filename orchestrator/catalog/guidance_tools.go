package catalog

import "rea/orchestrator/schema"

func guidedWorkflows() *Tool {
	workflow := name("One of the workflow ids that action list names.")
	return &Tool{
		Name:    GuidedWorkflows,
		Surface: SessionSurface,
		Description: "List the guided investigations of this server, or write one out for your question: optional starting points with the tools " +
			"that serve them, and how to keep observations, inferences and unknowns apart. Looks at no target and starts nothing.",
		Effects: Effects{Idempotent: true},
		Input: tagged("List, or render one.", "action",
			object("List the workflows.", need("action", constant("What to do.", "list"))),
			object("Write one workflow out.", need("action", constant("What to do.", "render")), need("workflow_id", workflow),
				may("arguments", schema.Map("Arguments of the workflow by name.", text("Value.")))),
		),
		Output: result(either("The workflows, or one written out.",
			object("Every workflow.", need("workflows", list("In the order of the catalog.", object("One workflow.",
				need("workflow_id", name("Id.")), need("title", name("Title.")), need("description", text("Purpose.")),
				need("arguments", list("What it takes.", object("One argument.", need("name", name("Name.")), need("description", text("Meaning.")),
					need("required", flag("Whether it must be given."))))))))),
			object("One workflow.", need("workflow_id", name("Id.")), need("text", text("Markdown."))))),
		Examples: examples(`{"action":"list"}`, `{"action":"render","workflow_id":"investigate_feature","arguments":{"feature":"offline search"}}`),
	}
}

func searchGuidance() *Tool {
	return &Tool{
		Name:    SearchGuidance,
		Surface: SessionSurface,
		Description: "Find sections of the guidance that belongs to this server by the words of a question: which tool to use, how to read " +
			"Evidence, what an unknown means. No match says nothing about what can be analysed.",
		Effects: Effects{Idempotent: true},
		Input: object("What to look for.",
			need("query", name("Words of the question; every one that is not generic must occur.")),
			may("offset", schema.WithDefault(0, count("Matches to pass over."))),
			may("limit", schema.WithDefault(20, schema.Between(1, 20, "Matches to return at most."))),
		),
		Output: result(either("Matches, or why there is no guidance.",
			object("A page of matches.", need("status", constant("Says that the guidance was searched.", "ok")), need("bundle_sha256", sha("Identity of the guidance.")),
				need("matches", list("Best first.", guidanceMatch())), need("total", count("All matches.")), need("offset", count("Matches passed over.")),
				need("next_offset", orNull(count("Where the next page begins; null where there is none.")))),
			unavailableGuidance("bundle_unavailable"))),
		Examples: examples(`{"query":"compare two versions"}`, `{"query":"partial coverage","limit":5}`),
	}
}

func readGuidanceSection() *Tool {
	return &Tool{
		Name:        ReadGuidanceSection,
		Surface:     SessionSurface,
		Description: "Read one section of the guidance with its subsections, by a locator that search_guidance returned.",
		Effects:     Effects{Idempotent: true},
		Input:       object("Which section.", need("locator", name("Locator of a match."))),
		Output: result(either("The section, or why it cannot be read.",
			object("The section.", need("status", constant("Says that it was read.", "ok")), need("locator", name("Locator.")), need("path", name("File.")),
				need("heading", text("Heading.")), need("content", text("Markdown.")), need("content_length", count("Its UTF-16 code units."))),
			unavailableGuidance("stale_locator", "section_not_found", "bundle_unavailable"))),
		Examples: examples(`{"locator":"` + exampleLocator + `"}`),
	}
}

func unavailableGuidance(statuses ...string) *Shape {
	return object("No section.", need("status", oneOf("Why.", statuses...)), need("reason", text("What to do.")))
}

func guidanceMatch() *Shape {
	return object("One section.",
		need("locator", name("For read_guidance_section.")), need("path", name("File.")), need("heading", text("Heading.")),
		need("heading_path", texts("Headings above it and its own.")),
		need("match_scope", oneOf("Whether its own text has every word, or only its subsections together.", "section", "subsections")),
		may("own_text_terms", texts("Words that its own text has.")),
		may("subsections", texts("Locators of subsections that have the others.")),
		may("omitted_subsections", count("Further subsections that it would take.")),
		need("content_length", count("UTF-16 code units that a read returns.")),
		need("excerpt", text("Words around the first match.")))
}
