package artifact

import (
	"context"
	"fmt"

	"rea/evidence"
)

// Authorities of proposed probes: on what their answers would rest.
const (
	authorityScript  = "ast-static-analysis"
	authorityManaged = "managed-static-analysis"
	authorityNative  = "native-analysis-provider"
	authorityBytes   = "artifact-bytes"
)

// A probe is a follow-up that an inspection proposes.
type probe struct {
	Operation string `json:"operation"`
	Rationale string `json:"rationale"`
	Authority string `json:"authority"`
}

var (
	probeScript  = probe{"analyze_javascript_application", "The target can hold scripts whose modules and relations can be read without running them.", authorityScript}
	probeManaged = probe{"inspect_managed_artifact", "A PE file can carry managed code; its metadata tells.", authorityManaged}
	probeNative  = probe{"open_binary", "Native code is read by an analysis engine in a session of its own.", authorityNative}
	probeLayout  = probe{"inspect_binary_layout", "Headers, sections, symbols and linkage stand in the file itself.", authorityBytes}
	probePlist   = probe{"inspect_plist", "The property list's values can be read.", authorityBytes}
	probeWASM    = probe{"inspect_wasm_artifact", "The root is a WebAssembly module; its sections, imports and exports can be read.", authorityBytes}
)

// probes are the follow-ups for each root format.
var probes = map[Format][]probe{
	FormatASAR:             {probeScript},
	FormatJavaScriptBundle: {probeScript},
	FormatDirectory:        {probeScript},
	FormatPE:               {probeManaged, probeNative, probeLayout},
	FormatMachO:            {probeNative, probeLayout},
	FormatMachOUniversal:   {probeNative},
	FormatELF:              {probeNative, probeLayout},
	FormatAppImage:         {probeNative, probeLayout},
	FormatPlist:            {probePlist},
}

// mediaWASM is the media type that readers give to bytes that begin as a WebAssembly module does.
const mediaWASM = "application/wasm"

// hypotheses are what each root format suggests and does not prove.
var hypotheses = map[Format]struct{ statement, limitation string }{
	FormatPE: {"The file holds managed code or native code.",
		"The container format alone does not tell which; nothing of the code was read."},
	FormatASAR: {"The archive holds scripts from which a JavaScript application graph can be recovered.",
		"Only the archive's entries were read; no script was parsed."},
	FormatJavaScriptBundle: {"The bundle holds modules from which a JavaScript application graph can be recovered.",
		"Only the suffix and the bytes' digest were taken; no script was parsed."},
}

// limitReport is what every inspection says of itself.
const limitReport = "This report is static: it lists what stands in the artifact and proposes follow-ups; nothing was run."

// Inspect makes the inspect_artifact Evidence around an inventory's: the report of the contract with the complete
// inventory Evidence inside, whose result is not copied. The record is sealed. inv is what the inventory's check
// learned; of more contradictions than MaxKept the report repeats the first, and its coverage says so.
func Inspect(ctx context.Context, inventory *evidence.Record, inv Inventory) (*evidence.Record, error) {
	b := report{inventory: inventory, inv: inv}
	body, err := b.members()
	if err != nil {
		return nil, err
	}
	digest, err := evidence.ObjectPayload(body...).SHA256()
	if err != nil {
		return nil, err
	}
	result := evidence.ObjectPayload(append(body, evidence.Member{Key: "inspection_id", Value: evidence.StringPayload("ai_" + digest)})...)
	r, err := newRecord(OpInspect, nil, result)
	if err != nil {
		return nil, err
	}
	r.Parameters, r.Subject, r.Confidence = inventory.Parameters, inventory.Subject, evidence.Derived
	r.Limitations, r.Links = b.limitations(), []string{inventory.ID}
	return r, seal(r)
}

// report builds the parts of an inspection.
type report struct {
	inventory *evidence.Record
	inv       Inventory
}

// object is a JSON object whose values the generic encoder knows.
type object = map[string]any

// identified gives an object its identity, which covers everything else in it.
func identified(key, prefix string, o object) (object, error) {
	id, err := digestID(prefix, o)
	o[key] = id
	return o, err
}

// members are all of the result except its own identity.
func (b *report) members() ([]evidence.Member, error) {
	observations, err := b.observations()
	if err != nil {
		return nil, err
	}
	contradictions, err := b.contradictions()
	if err != nil {
		return nil, err
	}
	hypotheses, err := b.hypotheses()
	if err != nil {
		return nil, err
	}
	branches, err := b.branches()
	if err != nil {
		return nil, err
	}
	substep, err := b.substep()
	if err != nil {
		return nil, err
	}
	m := b.inv.Manifest
	members := []evidence.Member{{Key: "substeps", Value: substep}}
	values := object{
		"subject": object{
			"manifest_id": m.ManifestID, "root_artifact_id": m.RootArtifactID, "root_sha256": m.RootSHA256, "root_format": m.RootFormat,
		},
		"observations": observations, "hypotheses": hypotheses, "contradictions": contradictions,
		"unexplored_branches": branches, "next_probes": b.probes(), "evidence_links": []string{b.inventory.ID},
		"limitations": b.limitations(), "coverage": b.coverage(len(observations), len(hypotheses), len(branches)),
	}
	for key, value := range values {
		p, err := evidence.PayloadOf(value)
		if err != nil {
			return nil, err
		}
		members = append(members, evidence.Member{Key: key, Value: p})
	}
	return members, nil
}

// substep is the list of the one substep, the inventory.
func (b *report) substep() (evidence.Payload, error) {
	id, err := digestID("ais_", object{"operation": OpInventory, "evidence_id": b.inventory.ID})
	if err != nil {
		return evidence.Payload{}, err
	}
	text := evidence.StringPayload
	return evidence.ArrayPayload(evidence.ObjectPayload(
		evidence.Member{Key: "substep_id", Value: text(id)}, evidence.Member{Key: "operation", Value: text(OpInventory)},
		evidence.Member{Key: "status", Value: text("completed")}, evidence.Member{Key: "evidence_id", Value: text(b.inventory.ID)},
		evidence.Member{Key: "evidence", Value: b.inventory.Payload()},
	)), nil
}

// observations are the manifest and each contradiction.
func (b *report) observations() ([]object, error) {
	list := make([]object, 0, 1+len(b.inv.Contradictions))
	add := func(kind, subject string, value any) error {
		o, err := identified("observation_id", "aio_", object{
			"kind": kind, "subject": subject, "value": value, "evidence_id": b.inventory.ID,
		})
		list = append(list, o)
		return err
	}
	if err := add("root-manifest", b.inv.Manifest.RootArtifactID, b.inv.Manifest); err != nil {
		return nil, err
	}
	for _, c := range b.inv.Contradictions {
		if err := add("integrity", c.OccurrenceID, c); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func (b *report) contradictions() ([]object, error) {
	list := make([]object, 0, len(b.inv.Contradictions))
	for _, c := range b.inv.Contradictions {
		o, err := identified("contradiction_id", "aic_", object{
			"statement":     fmt.Sprintf("The container declares another SHA-256 for %s than its bytes have.", c.LogicalPath),
			"occurrence_id": c.OccurrenceID, "declared_sha256": c.DeclaredSHA256, "observed_sha256": c.ObservedSHA256,
			"evidence_id": b.inventory.ID,
		})
		if err != nil {
			return nil, err
		}
		list = append(list, o)
	}
	return list, nil
}

func (b *report) hypotheses() ([]object, error) {
	h, ok := hypotheses[b.inv.Manifest.RootFormat]
	if !ok {
		return []object{}, nil
	}
	o, err := identified("hypothesis_id", "aih_", object{
		"statement": h.statement, "confidence": "low", "basis_evidence_ids": []string{b.inventory.ID}, "limitation": h.limitation,
	})
	return []object{o}, err
}

// probes are the proposed follow-ups.
func (b *report) probes() []probe {
	list := append([]probe{}, probes[b.inv.Manifest.RootFormat]...)
	if b.inv.RootMediaType == mediaWASM {
		list = append(list, probeWASM)
	}
	return list
}

// branches are what was left unexplored: one for each probe, and one where the root's format is not known.
func (b *report) branches() ([]object, error) {
	list := []object{}
	add := func(reason, detail string, next any) error {
		o, err := identified("branch_id", "aib_", object{
			"reason": reason, "detail": detail, "next_probe": next, "evidence_id": b.inventory.ID,
		})
		list = append(list, o)
		return err
	}
	for _, p := range b.probes() {
		if err := add("format-specific-analysis-required", p.Rationale, p); err != nil {
			return nil, err
		}
	}
	if b.inv.Manifest.RootFormat == FormatUnknown {
		if err := add("unknown-format", "No classifier admits the root's bytes.", nil); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// coverage counts what the report holds and what it had to leave out.
func (b *report) coverage(observations, hypotheses, branches int) object {
	omitted := b.inv.ContradictionCount - int64(len(b.inv.Contradictions))
	status := "complete-within-substeps"
	switch {
	case omitted > 0:
		status = "truncated"
	case b.inv.Coverage.Status != CoverageComplete:
		status = "partial"
	}
	return object{
		"status": status, "substeps_completed": 1,
		"observations_retained": observations, "observations_omitted": omitted,
		"hypotheses_retained": hypotheses, "hypotheses_omitted": 0,
		"unexplored_branches_retained": branches, "unexplored_branches_omitted": 0,
		"next_probes_retained": len(b.probes()), "next_probes_omitted": 0,
	}
}

func (b *report) limitations() []string {
	return append(append([]string{}, b.inv.Limitations...), limitReport)
}
