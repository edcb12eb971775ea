package artifact

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"rea/evidence"
	"rea/evidence/fault"
)

// maxAmbiguous bounds how many occurrences a refusal of an ambiguous path lists.
const maxAmbiguous = 32

// Select resolves logical paths to the identities of the files and slices that stand there, sorted and without
// repeats, by reading an inventory once. A path that names nothing extractable is artifact_operation_failed with reason
// path; one that stands more than once is invalid_request and lists the occurrences to choose from.
func Select(ctx context.Context, inventory evidence.Payload, paths []string) ([]string, error) {
	found := make(map[string][]string, len(paths))
	for _, p := range paths {
		found[p] = nil
	}
	if err := scanFiles(ctx, inventory, func(path, id string) {
		if ids, ok := found[path]; ok {
			found[path] = append(ids, id)
		}
	}); err != nil {
		return nil, err
	}
	var selected []string
	for i, p := range paths {
		switch ids := found[p]; len(ids) {
		case 0:
			return nil, fault.New(fault.ArtifactOperationFailed, fmt.Sprintf("No file stands at %q.", p),
				"Name a logical path as inspect_artifact lists it.").
				WithAll(fault.Details{"operation": OpExtract, "reason": "path", "logical_path": p})
		case 1:
			selected = append(selected, ids[0])
		default:
			return nil, fault.New(fault.InvalidRequest, fmt.Sprintf("%d files stand at %q.", len(ids), p),
				"Select one of them by its occurrence id: "+strings.Join(ids[:min(len(ids), maxAmbiguous)], ", ")+".").
				WithAll(fault.Details{"operation": OpExtract, "occurrence_ids": ids[:min(len(ids), maxAmbiguous)], "issues": []any{
					map[string]any{"path": []any{"logical_paths", i}, "reason": "invalid_value", "expected": "a path that stands once"}}})
		}
	}
	slices.Sort(selected)
	return slices.Compact(selected), nil
}

// scanFiles gives the files and slices of an inventory result one by one.
func scanFiles(ctx context.Context, inventory evidence.Payload, yield func(path, id string)) error {
	r := inventory.Reader()
	defer r.Close()
	s, err := open(ctx, r, rule{own: true})
	for err == nil && !s.done {
		var o *occurrence
		if o, err = s.next(); err == nil && o != nil && (o.entry == EntryFile || o.entry == EntrySlice) {
			yield(o.path, id(prefixOccurrence, o.id))
		}
	}
	if err != nil {
		return unreadable(OpInventory, err)
	}
	return nil
}
