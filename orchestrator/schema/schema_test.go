package schema

import (
	"strings"
	"testing"
)

// The contract (6.4) publishes the id of one schema.
func TestOutputID(t *testing.T) {
	const want = "urn:rea:tool-output:sha256:859cbfd20ebb1d1b25748a950c483a2c7bdebd9cb51b112877bc7ac7efb79008"
	if got := OutputID(map[string]any{"type": "object"}); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

// A schema whose references a client would have to expand more than maxReferences times is advertised inline.
func TestReferenceBudget(t *testing.T) {
	def := Shared("leaf", Text("A leaf."))
	build := func(n int) map[string]any {
		s := Object("Many.")
		for i := range n {
			s.Properties = append(s.Properties, Need(strings.Repeat("p", i+1), def))
		}
		return render(s)
	}
	if _, ok := build(maxReferences)["$defs"]; !ok {
		t.Error("shared shapes within the budget are not shared")
	}
	if _, ok := build(maxReferences + 1)["$defs"]; ok {
		t.Error("the budget does not hold")
	}
}
