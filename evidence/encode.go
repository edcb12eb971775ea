package evidence

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"strconv"
)

// The fixed metadata of a record is written here by hand, keys in canonical order: one encoding, no reflection.

// appendOptional appends s, or null for "".
func appendOptional(dst []byte, s string) []byte {
	if s == "" {
		return append(dst, null...)
	}
	return AppendString(dst, s)
}

// appendSubject appends the subject with its display fields, or without them as identity and manifests see it.
func appendSubject(dst []byte, s *Subject, display bool) []byte {
	if s == nil {
		return append(dst, null...)
	}
	dst = appendOptional(append(dst, `{"architecture":`...), s.Architecture)
	dst = AppendString(append(dst, `,"digest":{"sha256":`...), s.SHA256)
	dst = AppendString(append(dst, `},"format":`...), s.Format)
	if display {
		dst = AppendString(append(dst, `,"local_path":`...), s.LocalPath)
		dst = AppendString(append(dst, `,"name":`...), s.Name)
	}
	return append(dst, '}')
}

func appendProvider(dst []byte, p Provider) []byte {
	dst = AppendString(append(dst, `{"id":`...), p.ID)
	dst = AppendString(append(dst, `,"name":`...), p.Name)
	dst = appendOptional(append(dst, `,"version":`...), p.Version)
	return append(dst, '}')
}

func appendEnvironment(dst []byte, e *Environment) []byte {
	if e == nil {
		return append(dst, null...)
	}
	dst = AppendString(append(dst, `{"architecture":`...), e.Architecture)
	dst = AppendString(append(dst, `,"id":`...), e.ID)
	dst = AppendString(append(dst, `,"isolation":`...), e.Isolation)
	dst = AppendString(append(dst, `,"platform":`...), e.Platform)
	return append(dst, '}')
}

func appendLocation(dst []byte, l Location) []byte {
	switch l.Kind {
	case "address":
		dst = AppendString(append(dst, `{"address":`...), l.Address)
		return append(dst, `,"kind":"address"}`...)
	case "address-range":
		dst = AppendString(append(dst, `{"end":`...), l.End)
		dst = AppendString(append(dst, `,"kind":"address-range","start":`...), l.Start)
	case "artifact-path":
		dst = AppendString(append(dst, `{"kind":"artifact-path","path":`...), l.Path)
	case "file-offset":
		dst = strconv.AppendInt(append(dst, `{"kind":"file-offset","offset":`...), l.Offset, 10)
	case "file-offset-range":
		dst = strconv.AppendInt(append(dst, `{"end":`...), l.Limit, 10)
		dst = strconv.AppendInt(append(dst, `,"kind":"file-offset-range","start":`...), l.Offset, 10)
	default: // not sealed: validation refuses the kind
		dst = AppendString(append(dst, `{"kind":`...), l.Kind)
	}
	return append(dst, '}')
}

func appendList[T any](dst []byte, list []T, one func([]byte, T) []byte) []byte {
	dst = append(dst, '[')
	for i, e := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = one(dst, e)
	}
	return append(dst, ']')
}

// MarshalJSON writes the complete subject.
func (s Subject) MarshalJSON() ([]byte, error) { return appendSubject(nil, &s, true), nil }

// MarshalJSON writes the provider, a version of "" as null.
func (p Provider) MarshalJSON() ([]byte, error) { return appendProvider(nil, p), nil }

// MarshalJSON writes the members that the kind has.
func (l Location) MarshalJSON() ([]byte, error) { return appendLocation(nil, l), nil }

func (a *AnalysisProfile) payload() Payload {
	if a == nil {
		return Payload{}
	}
	return ObjectPayload(append(a.identity(), Member{"digest", StringPayload(a.SHA256)})...)
}

// identity is what the profile's digest covers.
func (a *AnalysisProfile) identity() []Member {
	return []Member{
		{"parameters", a.Parameters},
		{"provider", CanonicalPayload(appendProvider(nil, a.Provider))},
	}
}

func (a *AnalysisProfile) digest() (string, error) {
	return ObjectPayload(a.identity()...).SHA256()
}

// members are those of the semantic projection, or of the complete record.
func (r *Record) members(complete bool) []Member {
	text := func(s string) Payload { return CanonicalPayload(AppendString(nil, s)) }
	ms := []Member{
		{"analysis_profile", r.AnalysisProfile.payload()},
		{"authority", text(string(r.Authority))},
		{"confidence", text(string(r.Confidence))},
		{"environment", CanonicalPayload(appendEnvironment(nil, r.Environment))},
		{"evidence_links", CanonicalPayload(appendList(nil, r.Links, AppendString))},
		{"limitations", CanonicalPayload(appendList(nil, r.Limitations, AppendString))},
		{"locations", CanonicalPayload(appendList(nil, r.Locations, appendLocation))},
		{"normalized_result", r.NormalizedResult},
		{"operation", text(r.Operation)},
		{"parameters", r.Parameters},
		{"predicate_type", text(r.PredicateType)},
		{"provider", CanonicalPayload(appendProvider(nil, r.Provider))},
		{"raw_result", r.RawResult},
		{"subject", CanonicalPayload(appendSubject(nil, r.Subject, complete))},
	}
	if complete {
		ms = append(ms, Member{"evidence_id", text(r.ID)})
	}
	return ms
}

// Payload is the complete record, fifteen keys, as a value that copies no blob.
func (r *Record) Payload() Payload { return ObjectPayload(r.members(true)...) }

// WriteTo writes the complete record as canonical JSON.
func (r *Record) WriteTo(w io.Writer) (int64, error) { return r.Payload().WriteTo(w) }

// Size is the length in bytes of what WriteTo writes.
func (r *Record) Size() int64 { return r.Payload().Size() }

// identity computes the record's ID: no display field, and not the ID itself, takes part.
func (r *Record) identity() (string, error) {
	h := sha256.New()
	if _, err := ObjectPayload(r.members(false)...).WriteTo(h); err != nil {
		return "", err
	}
	return idPrefix + hex.EncodeToString(h.Sum(nil)), nil
}
