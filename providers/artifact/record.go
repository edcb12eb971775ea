package artifact

import (
	"rea/evidence"
)

// newRecord begins a record of this provider.
func newRecord(operation string, parameters any, result evidence.Payload) (*evidence.Record, error) {
	p, err := evidence.PayloadOf(parameters)
	if err != nil {
		return nil, err
	}
	return &evidence.Record{
		Provider:  evidence.Provider{ID: ProviderID, Name: ProviderName, Version: ProviderVersion},
		Operation: operation, Parameters: p, NormalizedResult: result, Authority: evidence.ShippedArtifact,
	}, nil
}

// InventoryRecord makes the Evidence of an inventory from its checked result. subject is inv.Subject of the target's
// name and path. The record is sealed.
func InventoryRecord(subject *evidence.Subject, policy Policy, inv Inventory, result evidence.Payload) (*evidence.Record, error) {
	r, err := newRecord(OpInventory, map[string]any{"integrity_policy": policy}, result)
	if err != nil {
		return nil, err
	}
	r.Subject, r.Confidence, r.Limitations = subject, evidence.Observed, inv.Limitations
	return r, seal(r)
}
