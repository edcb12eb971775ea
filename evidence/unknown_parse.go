package evidence

import "bytes"

// unknownKeys are the members of a revision of an unknown, all of which it has.
var unknownKeys = []string{
	"unknown_id", "revision", "previous_revision_digest", "revision_digest", "scope_digest", "question", "status", "severity", "domain",
	"supporting_evidence_ids", "contradicting_evidence_ids", "required_authority", "required_confidence", "required_environment",
	"recommended_probes", "relationships", "resolution", "mutation_evidence_ids",
}

// unknown reads one revision. What its members may say is checked with the rules of the registry.
func (d decoder) unknown(text []byte, path ...any) Unknown {
	m := d.object(text, unknownKeys, path)
	if m == nil {
		return Unknown{}
	}
	under := func(key string) []any { return at(path, key) }
	u := Unknown{
		ID: d.text(m["unknown_id"], under("unknown_id")...), Revision: int(d.integer(m["revision"], under("revision")...)),
		PreviousDigest: d.digest(m["previous_revision_digest"], under("previous_revision_digest")), ScopeDigest: d.digest(m["scope_digest"], under("scope_digest")),
		Digest: d.text(m["revision_digest"], under("revision_digest")...), Question: d.text(m["question"], under("question")...),
		Status: d.text(m["status"], under("status")...), Severity: d.text(m["severity"], under("severity")...), Domain: d.text(m["domain"], under("domain")...),
		Supporting: d.ids(m["supporting_evidence_ids"], under("supporting_evidence_ids")), Contradicting: d.ids(m["contradicting_evidence_ids"], under("contradicting_evidence_ids")),
		Mutations:          d.ids(m["mutation_evidence_ids"], under("mutation_evidence_ids")),
		RequiredConfidence: Confidence(d.text(m["required_confidence"], under("required_confidence")...)), Probes: []Probe{}, Relationships: []Relationship{},
	}
	if a := d.optional(m["required_authority"], under("required_authority")...); a != "" {
		authority := Authority(a)
		u.RequiredAuthority = &authority
	}
	u.RequiredEnvironment = d.requiredEnvironment(m["required_environment"], under("required_environment"))
	u.Resolution = d.resolution(m["resolution"], under("resolution"))
	d.array(m["recommended_probes"], func(i int, value []byte) {
		place := at(path, "recommended_probes", i)
		if p := d.object(value, []string{"operation", "rationale"}, place); p != nil {
			u.Probes = append(u.Probes, Probe{d.text(p["operation"], at(place, "operation")...), d.text(p["rationale"], at(place, "rationale")...)})
		}
	}, under("recommended_probes")...)
	d.array(m["relationships"], func(i int, value []byte) {
		place := at(path, "relationships", i)
		if r := d.object(value, []string{"type", "unknown_id"}, place); r != nil {
			u.Relationships = append(u.Relationships, Relationship{d.text(r["type"], at(place, "type")...), d.text(r["unknown_id"], at(place, "unknown_id")...)})
		}
	}, under("relationships")...)
	if !validUnknownID(u.ID) {
		d.add(InvalidFormat, "unk_ and 64 lowercase hexadecimal digits", under("unknown_id")...)
	}
	return u
}

// digest reads 64 hexadecimal digits or null.
func (d decoder) digest(text []byte, path []any) *string {
	s := d.optional(text, path...)
	if s == "" {
		return nil
	}
	if !validSHA256(s) {
		d.add(InvalidFormat, "64 lowercase hexadecimal digits", path...)
	}
	return &s
}

func (d decoder) ids(text []byte, path []any) []string {
	ids := d.texts(text, path...)
	for i, id := range ids {
		if !ValidID(id) {
			d.add(InvalidFormat, "ev_ and 64 lowercase hexadecimal digits", at(path, i)...)
		}
	}
	return ids
}

func (d decoder) requiredEnvironment(text []byte, path []any) *RequiredEnvironment {
	if bytes.Equal(text, null) {
		return nil
	}
	m := d.object(text, []string{"id", "platform", "architecture", "isolation"}, path)
	if m == nil {
		return nil
	}
	member := func(key string) *string {
		s := d.optional(m[key], at(path, key)...)
		if s == "" {
			return nil
		}
		return &s
	}
	return &RequiredEnvironment{member("id"), member("platform"), member("architecture"), member("isolation")}
}

func (d decoder) resolution(text []byte, path []any) *Resolution {
	if bytes.Equal(text, null) {
		return nil
	}
	m := d.object(text, []string{"disposition", "rationale", "evidence_ids"}, path)
	if m == nil {
		return nil
	}
	return &Resolution{d.text(m["disposition"], at(path, "disposition")...), d.text(m["rationale"], at(path, "rationale")...),
		d.ids(m["evidence_ids"], at(path, "evidence_ids"))}
}
