package catalog

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"rea/orchestrator/schema"
)

// Both profiles advertise the same tools, outputs and annotations; a compact input fits, admits every canonical
// example, and is reduced for exactly the tools listed here. None of the five of the contract (6.6) exists yet.
func TestProfiles(t *testing.T) {
	full := Builtin()
	compact := full.Scoped(Scope{Profile: schema.Compact})
	reduced := []string{}
	for i, tool := range compact.Tools() {
		of := full.Tools()[i]
		if tool.Name != of.Name || !bytes.Equal(tool.OutputSchema(), of.OutputSchema()) || tool.Effects != of.Effects || tool.Input != of.Input {
			t.Errorf("%s: the profile changes more than the advertised input", of.Name)
		}
		raw := tool.InputSchema()
		if len(raw) > schema.CompactBytes {
			t.Errorf("%s: %d bytes", tool.Name, len(raw))
		}
		s := compile(t, raw)
		for _, e := range of.Examples {
			if !admits(t, s, string(e)) {
				t.Errorf("%s: the compact schema refuses %s", tool.Name, e)
			}
		}
		var v map[string]any
		if err := json.Unmarshal(raw, &v); err != nil {
			t.Fatal(err)
		}
		if schema.Reduced(v) {
			reduced = append(reduced, tool.Name)
		}
		if _, ok := v["examples"]; ok || v["description"] == "" {
			t.Errorf("%s: examples are shown, or the root's description is not", tool.Name)
		}
		if bytes.Contains(raw, []byte(`"$ref"`)) || bytes.Contains(raw, []byte(`"$defs"`)) {
			t.Errorf("%s: references are left", tool.Name)
		}
	}
	if diff := cmp.Diff([]string{}, reduced); diff != "" {
		t.Errorf("reduced (-want +got):\n%s", diff)
	}
}

// Interfaces of models refuse a list of types; the full profile has none.
func TestNoListOfTypes(t *testing.T) {
	for _, tool := range Builtin().Tools() {
		if bytes.Contains(tool.InputSchema(), []byte(`"type":[`)) {
			t.Errorf("%s has a list of types", tool.Name)
		}
	}
}

func toolNames(c *Catalog) (out []string) {
	for _, t := range c.Tools() {
		out = append(out, t.Name)
	}
	return out
}

// Tools by family, from the table of the contract (9.6).
func TestScope(t *testing.T) {
	everywhere := []string{BinarySession, GuidedWorkflows, SearchGuidance, ReadGuidanceSection}
	for _, c := range []struct {
		families string
		want     []string
	}{
		{"browser", everywhere},
		{"artifact", []string{BinarySession, InspectArtifact, ExtractArtifact, GuidedWorkflows, SearchGuidance, ReadGuidanceSection}},
		{" application , browser,application", []string{BinarySession, InspectAnalysisView, GuidedWorkflows, SearchGuidance, ReadGuidanceSection}},
	} {
		ids, ok := ParseFamilies(c.families)
		if !ok {
			t.Fatal(c.families)
		}
		if diff := cmp.Diff(c.want, toolNames(Builtin().Scoped(Scope{Families: ids}))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.families, diff)
		}
	}
	ids, _ := ParseFamilies("session,artifact,application")
	if diff := cmp.Diff(toolNames(Builtin()), toolNames(Builtin().Scoped(Scope{Families: ids}))); diff != "" {
		t.Errorf("every family of this build (-want +got):\n%s", diff)
	}
	for _, bad := range []string{"", ",", "artifact,", "Artifact", "artifacts", "artifact;session", "all"} {
		if _, ok := ParseFamilies(bad); ok {
			t.Errorf("%q was accepted", bad)
		}
	}
}

// Every surface that a tool names is that of a family, or its scope could not be chosen.
func TestSurfaces(t *testing.T) {
	for _, tool := range Builtin().Tools() {
		if tool.Surface.family() == "" {
			t.Errorf("%s: surface %s", tool.Name, tool.Surface)
		}
	}
}
