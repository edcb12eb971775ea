package catalog

import "rea/orchestrator/schema"

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
			need("path", formatted(schema.AbsolutePath, "Absolute path of the file or Apple bundle directory.")),
			may("provider_id", schema.AtMost(64, formatted(schema.ProviderID,
				"Analysis engine to bind, or auto to let the only usable one be bound. Without it the server's setting decides."))),
			may("architecture", oneOf("Slice of a universal file to work on.", architectures...)),
			may("snapshot_path", formatted(schema.AbsolutePath, "Absolute path of a saved analysis to take up. Refused until an analysis engine is part of this program.")),
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
		Description: "Close the active target and forget every Evidence record and residual unknown of this connection, also when no target is open. " +
			"Keep what is still needed first: export_evidence_bundle writes it to a file.",
		Effects: Effects{MutatesSession: true, WritesFilesystem: true, MayDiscardData: true},
		Input: object("What to keep of the analysis.",
			may("snapshot_path", formatted(schema.AbsolutePath, "Absolute path of a file to save the analysis to. Refused until an analysis engine is part of this program.")),
			may("overwrite", schema.WithDefault(false, flag("Replace a file that is there."))),
		),
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
			may("expected_catalog_digest", formatted(schema.Hex64, "combined_sha256 of the catalog that the caller knows.")),
			may("expected_server_path", name("Path of the program that should be running.")),
		),
		Output:   result(sessionState()),
		Examples: examples(`{}`, `{"expected_package_version":"0.1.0"}`),
	}
}
