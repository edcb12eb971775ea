package artifact

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"rea/evidence"
)

// TestIdentities holds every hand-written projection against the generic canonical encoder.
func TestIdentities(t *testing.T) {
	a, b, c := sha256.Sum256([]byte("a")), sha256.Sum256([]byte("b")), sha256.Sum256([]byte("c"))
	var d identifier
	hexOf := func(s sum) string { return hex.EncodeToString(s[:]) }
	for _, path := range []string{"docs/a.txt", "q\"\\\n\x01", "ünï/\U0001F600", "\u2028</>&"} {
		quoted := evidence.AppendString(nil, path)
		for name, tt := range map[string]struct {
			got  sum
			want map[string]any
		}{
			"artifact":   {d.artifact(a), map[string]any{"sha256": hexOf(a)}},
			"root":       {d.root(a), map[string]any{"root": "art_" + hexOf(a)}},
			"occurrence": {d.occurrence(a, quoted, EntrySymlink, -1), map[string]any{"root_artifact_id": "art_" + hexOf(a), "logical_path": path, "entry_kind": "symlink"}},
			"ordinal 0":  {d.occurrence(a, quoted, EntryFile, 0), map[string]any{"root_artifact_id": "art_" + hexOf(a), "logical_path": path, "entry_kind": "file"}},
			"ordinal 12": {d.occurrence(a, quoted, EntryFile, 12), map[string]any{"root_artifact_id": "art_" + hexOf(a), "logical_path": path, "entry_kind": "file", "ordinal": 12}},
			"edge": {d.edge(a, b, RelationEmbeds, c, quoted), map[string]any{"parent_artifact_id": "art_" + hexOf(a), "child_artifact_id": "art_" + hexOf(b),
				"relation": "embeds", "occurrence_id": "occ_" + hexOf(c), "logical_path": path}},
			"manifest": {d.manifest(a, b), map[string]any{"root_artifact_id": "art_" + hexOf(a), "graph_sha256": hexOf(b)}},
			"contradiction": {d.contradiction(a, quoted, b, c), map[string]any{"root_artifact_id": "art_" + hexOf(a), "logical_path": path,
				"declared_sha256": hexOf(b), "observed_sha256": hexOf(c)}},
		} {
			want, err := evidence.Digest(tt.want)
			if err != nil {
				t.Fatal(err)
			}
			if hexOf(tt.got) != want {
				t.Errorf("%s of %q: %x, want %s", name, path, tt.got, want)
			}
		}
	}
}

// TestContradictionVector is the contract's: docs/a.txt under the sample's root, declared as 64 zeros.
func TestContradictionVector(t *testing.T) {
	var d identifier
	root := d.artifact(sha256.Sum256([]byte("container bytes")))
	got := d.contradiction(root, []byte(`"docs/a.txt"`), sum{}, sha256.Sum256([]byte("hello\n")))
	if want := "ic_dd23f0ca39d419fa9e790d6f5ce01252e67aadbfb132b0f6472a86a7f6adf8db"; id(prefixContradiction, got) != want {
		t.Errorf("ic_%x, want %s", got, want)
	}
}

// TestRole reads the contract's rules of role by path, and of bytes over path.
func TestRole(t *testing.T) {
	for _, tt := range []struct {
		path    string
		content Format
		want    Kind
	}{
		{"x.js.map", FormatFile, KindSourceMap}, {"x.JS", FormatFile, KindJavaScript}, {"x.mjs", FormatFile, KindJavaScript},
		{"app.asar", FormatASAR, KindContainer}, {"lib.jar", FormatZip, KindContainer}, {"x.tar.gz", FormatGzip, KindContainer},
		{"A.framework/Headers/a.h", FormatFile, KindFramework}, {"A.framework", FormatDirectory, KindFramework},
		{"A.framework/A", FormatMachO, KindExecutable}, {"build/x.node", FormatELF, KindNativeAddon},
		{"lib/x.so", FormatELF, KindDynamicLibrary}, {"x.dylib", FormatMachO, KindDynamicLibrary}, {"Info.plist", FormatPlist, KindPlist},
		{"a.entitlements", FormatPlist, KindEntitlements}, {"bin/tool", FormatELF, KindExecutable}, {"x.js", FormatPE, KindExecutable},
		{"docs", FormatDirectory, KindContainer}, {"docs.js", FormatDirectory, KindContainer}, {"README", FormatFile, KindResource},
		{"payload", FormatZip, KindContainer}, {"x.map/y", FormatFile, KindResource}, {"x.\u212Aar", FormatFile, KindResource},
	} {
		if got := Role(tt.path, tt.content); got != tt.want {
			t.Errorf("Role(%q, %s) = %s, want %s", tt.path, tt.content, got, tt.want)
		}
	}
	for _, tt := range []struct {
		path          string
		content, want Format
	}{
		{"x.js", FormatFile, FormatJavaScriptBundle}, {"x.js.map", FormatFile, FormatSourceMap}, {"a.APK", FormatZip, FormatAPK},
		{"a.appxbundle", FormatZip, FormatAppX}, {"a.jar", FormatZip, FormatZip}, {"a.entitlements", FormatPlist, FormatEntitlements},
		{"x.js", FormatELF, FormatELF}, {"a.apk", FormatFile, FormatFile},
	} {
		if got := OccurrenceFormat(tt.path, tt.content); got != tt.want {
			t.Errorf("OccurrenceFormat(%q, %s) = %s, want %s", tt.path, tt.content, got, tt.want)
		}
	}
}
