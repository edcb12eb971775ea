package artifact

import (
	"context"

	"rea/evidence"
)

// InventoryOf returns the inventory that Evidence of inventory_artifact or inspect_artifact is about: the record
// itself, or the one inside it, whose identity is verified. Long payloads go to sp.
func InventoryOf(ctx context.Context, r *evidence.Record, sp evidence.Spooler) (*evidence.Record, error) {
	if r.Operation == OpInspect {
		return substep(ctx, r, sp)
	}
	return r, nil
}
