package session

import "rea/orchestrator/catalog"

// AdmitTarget applies the rule by which open_binary admits a target, and opens nothing: it is for whoever wants to
// know beforehand. The error is open_binary's.
func AdmitTarget(path string) error { return admitTarget(catalog.OpenBinary, path) }
