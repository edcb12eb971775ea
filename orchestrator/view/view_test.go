package view

import (
	"context"
	"slices"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"rea/evidence"
	"rea/evidence/fault"
	"rea/orchestrator/schema"
)

// second is a family as a later producer would add one.
func second(made *[]string) Family {
	make := func(_ context.Context, parent *evidence.Record, request jsontext.Value, _ evidence.Spooler) (*evidence.Record, error) {
		*made = append(*made, parent.Operation+" "+string(request))
		return parent, nil
	}
	kind := func(name string) schema.Property { return schema.Need("kind", schema.Constant("Kind.", name)) }
	return Family{
		Parents: []string{"inspect_other"},
		Views: []View{
			{Kind: KindSummary, Input: schema.Object("Summary.", kind(KindSummary)), Make: make},
			{Kind: "other", Input: schema.Object("Rows.", append([]schema.Property{kind("other")}, paging("Rows")...)...), Make: make},
		},
		Result: common("other", schema.OpenObject("View.")),
	}
}

func TestSet(t *testing.T) {
	var made []string
	set := append(Builtin(), second(&made))
	if !slices.IsSorted(set.Parents()) || len(slices.Compact(set.Parents())) != len(set.Parents()) {
		t.Errorf("parents %v: sorted, and each in one family", set.Parents())
	}
	input := set.Input()
	for in, want := range map[string]bool{
		`{"kind":"summary"}`: true, `{"kind":"other"}`: true, `{"kind":"other","limit":1}`: true, `{"kind":"inventory","collection":"nodes"}`: true,
		`{"kind":"other","limit":0}`: false, `{"kind":"summary","limit":1}`: false, `{"kind":"none"}`: false, `{}`: false,
	} {
		if got := len(input.Validate(jsontext.Value(in))) == 0; got != want {
			t.Errorf("%s: %v", in, got)
		}
	}
	if n := len(input.Union.Shapes); n != 3 { // summary, inventory, other: the summaries of two families are asked for alike
		t.Errorf("%d kinds", n)
	}
	other := &evidence.Record{Operation: "inspect_other"}
	for _, request := range []string{`{"kind":"summary"}`, `{"kind":"other","offset":3}`} {
		if _, err := set.Make(t.Context(), other, jsontext.Value(request), evidence.Memory{}); err != nil {
			t.Error(err)
		}
	}
	if diff := cmp.Diff([]string{`inspect_other {"kind":"summary"}`, `inspect_other {"kind":"other","offset":3}`}, made); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, c := range []struct {
		operation, request string
		code               fault.Code
	}{
		{"inspect_none", `{"kind":"summary"}`, fault.UnsupportedTarget},
		{"inspect_other", `{"kind":"inventory","collection":"nodes"}`, fault.InvalidRequest},
		{"inspect_other", `{"kind":"other","limit":0}`, fault.InvalidRequest},
		{"inspect_other", `7`, fault.InvalidRequest},
	} {
		_, err := set.Make(t.Context(), &evidence.Record{Operation: c.operation}, jsontext.Value(c.request), evidence.Memory{})
		if f := fault.From(err); f == nil || f.Code != c.code || f.Action == "" {
			t.Errorf("%s %s: %v", c.operation, c.request, err)
		}
	}
}
