package evidence

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"rea/evidence/fault"
)

// maxBundleIndex bounds what a reader of bundles holds besides records: manifest entries and unknowns, as canonical
// text. Real ones are far below it, a few hundred bytes for each record.
const maxBundleIndex = 64 << 20

// bundleKeys are the seven keys, all of which a bundle has.
var bundleKeys = []string{"artifacts", "captures", "environments", "providers", "records", "scenarios", "unknowns"}

// Bundle is a bundle that was read and holds: every identity recomputed, manifests equal to those of its records, the
// histories of its unknowns sound. The zero value is the empty bundle.
type Bundle struct {
	Records  []*Record // by ID
	Unknowns []Unknown // every revision, by ID and number
}

// histories groups the revisions.
func (b *Bundle) histories() map[string][]Unknown {
	out := map[string][]Unknown{}
	for _, u := range b.Unknowns {
		out[u.ID] = append(out[u.ID], u)
	}
	return out
}

// WriteTo writes the bundle as canonical JSON, in the order of our exports.
func (b *Bundle) WriteTo(w io.Writer) (int64, error) {
	return WriteBundle(context.Background(), w, b.Records, b.Unknowns)
}

// ReadBundle reads one bundle and verifies all of it. Each record is given to keep as soon as it is verified, so that
// memory holds one record's metadata and an index, however large the bundle is; long payloads go to sp. What keep was
// given before an error is the caller's to release. A bundle that is not JSON, not of its shape or not authentic is
// evidence_integrity_mismatch.
func ReadBundle(ctx context.Context, r io.Reader, sp Spooler, keep Retainer) (*Bundle, error) {
	b := &bundleReader{ctx: ctx, sp: sp, keep: keep, seen: map[string]bool{}}
	if err := b.read(contextReader{ctx, r}); err != nil {
		return nil, b.explain(err)
	}
	if err := b.check(); err != nil {
		return nil, err
	}
	return &b.bundle, nil
}

type bundleReader struct {
	ctx  context.Context
	sp   Spooler
	keep Retainer

	bundle    Bundle
	seen      map[string]bool // ids of the records
	declared  manifests
	indexSize int
}

// bundleFault is the failure of a bundle that cannot be trusted.
func bundleFault(reason string, issues ...Issue) *fault.Error {
	f := fault.New(fault.EvidenceIntegrityMismatch, "The Evidence bundle cannot be used: "+reason+".",
		"Use the bundle as rea exported it; nothing of it was imported.").With("reason", reason)
	if len(issues) > 0 {
		f.With("issues", issues)
	}
	return f
}

// explain gives a failure of reading its code: what is wrong with the shape is a matter of the bundle's integrity.
func (b *bundleReader) explain(err error) error {
	var s *SyntaxError
	var f *fault.Error
	switch {
	case errors.As(err, &f):
		return err
	case errors.Is(err, errNotObject):
		return bundleFault("it is not a JSON object")
	case errors.As(err, &s):
		return bundleFault("it is not JSON: " + s.Reason).InCategory(fault.CategoryExecutionFailure)
	}
	return err
}

// read walks over the seven members.
func (b *bundleReader) read(r io.Reader) error {
	b.declared = manifests{map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}}
	o, err := openObject(r)
	if err != nil {
		return err
	}
	found := map[string]bool{}
	for {
		key, v, err := o.next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if found[key] || !slices.Contains(bundleKeys, key) {
			return bundleFault("a member is unknown or repeated", Issue{Path: []any{key}, Reason: UnknownArgument})
		}
		found[key] = true
		if err := b.list(key, v.br); err != nil {
			return err
		}
	}
	for _, key := range bundleKeys {
		if !found[key] {
			return bundleFault("a member is missing", Issue{Path: []any{key}, Reason: MissingArgument})
		}
	}
	return o.end()
}

// list walks over the elements of one member.
func (b *bundleReader) list(key string, br *bufio.Reader) error {
	a, ok, err := openArray(br)
	if err != nil {
		return err
	}
	if !ok {
		return bundleFault("a member is not a list", Issue{Path: []any{key}, Reason: InvalidType, Expected: "array"})
	}
	for i := 0; ; i++ {
		v, err := a.next()
		if err == io.EOF {
			return nil
		}
		if err == nil {
			err = b.element(key, i, v)
		}
		if err != nil {
			return err
		}
	}
}

func (b *bundleReader) element(key string, i int, v *valueReader) error {
	switch key {
	case "records":
		return b.record(i, v)
	case "unknowns":
		text, err := b.text(key, i, v)
		if err != nil {
			return err
		}
		var is issues
		u := decoder{&is}.unknown(text, key, i)
		if len(is) > 0 {
			return bundleFault("an unknown has another shape than its contract", is...)
		}
		b.bundle.Unknowns = append(b.bundle.Unknowns, u)
		return nil
	}
	text, err := b.text(key, i, v)
	if err != nil {
		return err
	}
	set := b.declared.of(key)
	if set[string(text)] {
		return bundleFault("a manifest entry is repeated", Issue{Path: []any{key, i}, Reason: InvalidValue})
	}
	set[string(text)] = true
	return nil
}

// of is the manifest with this key.
func (m manifests) of(key string) map[string]bool {
	return map[string]map[string]bool{"artifacts": m.artifacts, "captures": m.captures, "environments": m.environments,
		"providers": m.providers, "scenarios": m.scenarios}[key]
}

// text reads an element that stays in memory, in canonical form.
func (b *bundleReader) text(key string, i int, v *valueReader) ([]byte, error) {
	raw, err := io.ReadAll(io.LimitReader(v, int64(maxBundleIndex-b.indexSize)+1))
	if err != nil {
		return nil, err
	}
	if b.indexSize += len(raw) + 64; b.indexSize > maxBundleIndex { // 64: what an entry of a map or list takes beside its text
		return nil, fault.New(fault.ResourceConstraint, fmt.Sprintf("Manifests and unknowns of the bundle take over %d bytes, more than is held in memory.", maxBundleIndex),
			"Export the Evidence in several bundles.").WithAll(fault.Details{"operation": "read_bundle", "resource": "memory", "reason": "index-too-large",
			"reported_limits": map[string]any{"projected_value_bytes": b.indexSize, "assembly_headroom_bytes": maxBundleIndex}})
	}
	text, err := canonicalize(canonicalizer{src: raw, level: 2, unique: true})
	var s *SyntaxError
	if errors.As(err, &s) {
		return nil, bundleFault("an entry is not JSON", Issue{Path: []any{key, i}, Reason: InvalidFormat, Message: s.Reason, Expected: "JSON"}).InCategory(fault.CategoryExecutionFailure)
	}
	return text, err
}

// record reads, verifies and keeps one record.
func (b *bundleReader) record(i int, v *valueReader) error {
	r, err := ParseReader(b.ctx, v, b.sp)
	if err != nil {
		return inBundle(err, i)
	}
	if b.seen[r.ID] {
		return bundleFault("two records have the ID " + r.ID)
	}
	b.seen[r.ID] = true
	kept, err := b.keep.Retain(b.ctx, r)
	if err != nil {
		return err
	}
	b.bundle.Records = append(b.bundle.Records, kept)
	return nil
}

// inBundle tells the failure of one record as that of its bundle, with the place.
func inBundle(err error, i int) error {
	var f *fault.Error
	if !errors.As(err, &f) {
		return err
	}
	switch f.Code {
	case fault.InvalidRequest:
		found, _ := f.Details["issues"].([]Issue)
		moved := make([]Issue, len(found))
		for n, issue := range found {
			issue.Path = append([]any{"records", i}, issue.Path...)
			moved[n] = issue
		}
		return bundleFault("a record has another shape than its contract", moved...).Because(err)
	case fault.EvidenceIntegrityMismatch:
		return bundleFault("a record is not authentic", Issue{Path: []any{"records", i, f.Details["path"]}, Reason: InvalidValue,
			Message: fmt.Sprint(f.Details["reason"])}).Because(err)
	}
	return err
}

// check holds the parts against each other.
func (b *bundleReader) check() error {
	sortedByID(b.bundle.Records)
	slices.SortFunc(b.bundle.Unknowns, compareRevisions)
	computed := manifestsOf(b.bundle.Records)
	for _, key := range bundleKeys {
		declared, actual := b.declared.of(key), computed.of(key)
		for text := range declared {
			if !actual[text] {
				return bundleFault("a manifest names what no record has", Issue{Path: []any{key}, Reason: InvalidValue, Message: shorten(text)})
			}
		}
		if len(declared) != len(actual) {
			return bundleFault("a manifest lacks what a record has", Issue{Path: []any{key}, Reason: MissingArgument})
		}
	}
	return b.checkUnknowns()
}

// shorten keeps a text of a document short enough for a message.
func shorten(text string) string {
	const most = 200
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// checkUnknowns applies the rules between revisions, unknowns and records.
func (b *bundleReader) checkUnknowns() error {
	heads := map[string]Unknown{}
	find := func(id string) (*Record, bool) {
		i, ok := slices.BinarySearchFunc(b.bundle.Records, id, func(r *Record, id string) int { return strings.Compare(r.ID, id) })
		if !ok {
			return nil, false
		}
		return b.bundle.Records[i], true
	}
	for i := range b.bundle.Unknowns {
		u := &b.bundle.Unknowns[i]
		var before *Unknown
		if head, ok := heads[u.ID]; ok {
			before = &head
		}
		if why := u.unsound(before); why != "" {
			return unknownFault(UnknownDamaged, fmt.Sprintf("Revision %d of %s in the bundle is not sound: %s.", u.Revision, u.ID, why)).With("unknown_id", u.ID)
		}
		for _, id := range u.cited() {
			if !b.seen[id] {
				return unknownFault(UnknownDamaged, fmt.Sprintf("%s cites Evidence that is not in the bundle.", u.ID)).With("unknown_id", u.ID).With("evidence_id", id)
			}
		}
		heads[u.ID] = *u
	}
	for i := range b.bundle.Unknowns {
		u := &b.bundle.Unknowns[i]
		for _, r := range u.Relationships {
			if _, ok := heads[r.UnknownID]; !ok {
				return unknownFault(UnknownDamaged, fmt.Sprintf("%s is tied to an unknown that is not in the bundle.", u.ID)).With("unknown_id", u.ID)
			}
		}
	}
	for id, u := range heads {
		if why := u.unqualified(find); why != "" {
			return unknownFault(UnknownDamaged, fmt.Sprintf("The resolution of %s does not hold: %s.", id, why)).With("unknown_id", id)
		}
	}
	if circle(heads) {
		return unknownFault(UnknownDamaged, "Unknowns of the bundle depend on themselves.")
	}
	return nil
}

// unsound says what is wrong with a revision behind the one before it, nil for the first.
func (u *Unknown) unsound(before *Unknown) string {
	if why := u.broken(); why != "" {
		return why
	}
	id, err := u.identity()
	if err != nil || id != u.ID {
		return "its unknown_id is not that of its content"
	}
	digest, err := u.digest()
	switch {
	case err != nil || digest != u.Digest:
		return "its revision_digest is not that of its content"
	case before == nil && u.Revision != 1 || before != nil && u.Revision != before.Revision+1:
		return "revisions are not contiguous from 1"
	case before != nil && *u.PreviousDigest != before.Digest:
		return "its predecessor has another digest"
	}
	return "" // question, domain and scope cannot change along a history: unknown_id covers them
}

// IsBundle reports whether a document is a bundle by its first member, as far as that tells: a record has none of a
// bundle's members. It reads no further.
func IsBundle(r io.Reader) bool {
	o, err := openObject(r)
	if err != nil {
		return false
	}
	key, _, err := o.next()
	return err == nil && slices.Contains(bundleKeys, key)
}
