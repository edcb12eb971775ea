package evidence

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"rea/evidence/fault"
)

const (
	// maxMaterialized is the longest member of a record that ParseReader brings into canonical form in memory, about
	// three times its size at the worst. A longer one must already be canonical, as all that we write is: it is
	// checked while it streams by.
	maxMaterialized = 16 << 20

	// maxInline is the longest payload that ParseReader keeps in memory and does not hand to the Spooler.
	maxInline = 64 << 10
)

// recordKeys are the fifteen keys, all of which a record has.
var recordKeys = []string{
	"evidence_id", "subject", "provider", "analysis_profile", "predicate_type", "operation", "parameters", "raw_result",
	"normalized_result", "confidence", "authority", "environment", "limitations", "locations", "evidence_links",
}

// Parse reads one complete record, strictly: every key present, none unknown or repeated outside the payloads, the
// vocabularies closed, identity and profile digest recomputed. A wrong shape is invalid_request with issues, a wrong
// identity evidence_integrity_mismatch.
func Parse(raw []byte) (*Record, error) {
	return parse(context.Background(), bytes.NewReader(raw), Memory{}, max(len(raw), maxMaterialized))
}

// ParseReader is Parse for a record that may be too large for memory: long payloads go to sp as they are read. A
// member over 16 MiB must be in canonical form; other forms of it are resource_constraint.
func ParseReader(ctx context.Context, r io.Reader, sp Spooler) (*Record, error) {
	return parse(ctx, contextReader{ctx, r}, sp, maxMaterialized)
}

type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c contextReader) Read(p []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.r.Read(p)
}

// parser builds one record.
type parser struct {
	ctx    context.Context
	sp     Spooler
	limit  int
	record Record
	issues issues
}

func parse(ctx context.Context, r io.Reader, sp Spooler, limit int) (*Record, error) {
	p := &parser{ctx: ctx, sp: sp, limit: limit}
	if err := p.envelope(r); err != nil {
		return nil, err
	}
	if err := p.record.Verify(); err != nil {
		return nil, err
	}
	return &p.record, nil
}

// envelope reads the fifteen members.
func (p *parser) envelope(r io.Reader) error {
	seen, err := p.object(r, p.member)
	if err != nil {
		return err
	}
	for _, key := range recordKeys {
		if !seen[key] {
			p.issues.add(MissingArgument, "", key)
		}
	}
	return p.issues.fault()
}

// Head is the complete record with null in place of parameters, raw_result and normalized_result: what a store keeps
// beside those three, and gives back to Restore.
func (r *Record) Head() ([]byte, error) {
	head := *r
	head.Parameters, head.RawResult, head.NormalizedResult = Payload{}, Payload{}, Payload{}
	return head.Payload().Bytes(maxHead)
}

// maxHead bounds a record without its payloads: its three longest members are lists that ParseReader takes only up
// to maxMaterialized each.
const maxHead = 4 * maxMaterialized

// Restore puts a record together from what Head gave and its three payloads. It checks the shape and trusts the
// identity: it is for a store that keeps what was sealed. Verify recomputes the identity.
func Restore(head []byte, parameters, raw, normalized Payload) (*Record, error) {
	p := &parser{ctx: context.Background(), sp: Memory{}, limit: max(len(head), maxMaterialized)}
	if err := p.envelope(bytes.NewReader(head)); err != nil {
		return nil, err
	}
	r := &p.record
	r.Parameters, r.RawResult, r.NormalizedResult = parameters, raw, normalized
	if err := r.checkShape(); err != nil {
		return nil, err
	}
	r.sealedID = r.ID
	return r, nil
}

// object walks over one object of fixed metadata, each member once.
func (p *parser) object(r io.Reader, member func(string, *valueReader) error, path ...any) (seen map[string]bool, err error) {
	o, err := openObject(r)
	if errors.Is(err, errNotObject) {
		p.issues.add(InvalidType, "object", path...)
		return nil, p.issues.fault()
	}
	seen = map[string]bool{}
	for err == nil {
		var key string
		var v *valueReader
		key, v, err = o.next()
		if err == io.EOF {
			return seen, p.explain(o.end(), path...)
		}
		if err != nil {
			break
		}
		if seen[key] {
			p.issues.add(InvalidFormat, "each key once", at(path, key)...)
			return nil, p.issues.fault()
		}
		seen[key] = true
		if err := member(key, v); err != nil {
			return nil, p.explain(err, at(path, key)...)
		}
	}
	return nil, p.explain(err, path...)
}

func at(path []any, more ...any) []any { return append(slices.Clone(path), more...) }

// explain turns an error of syntax into an issue at a place; others pass.
func (p *parser) explain(err error, path ...any) error {
	var s *SyntaxError
	if !errors.As(err, &s) {
		return err
	}
	p.issues = append(p.issues, Issue{Path: at(path), Reason: InvalidFormat, Message: s.Reason, Expected: "JSON"})
	return p.issues.fault()
}

// member takes one member of the envelope.
func (p *parser) member(key string, v *valueReader) (err error) {
	r := &p.record
	switch key {
	case "parameters":
		r.Parameters, err = p.payload(v)
	case "raw_result":
		r.RawResult, err = p.payload(v)
	case "normalized_result":
		r.NormalizedResult, err = p.payload(v)
	case "analysis_profile":
		err = p.profile(v)
	default:
		if !slices.Contains(recordKeys, key) {
			p.issues.add(UnknownArgument, "", key)
			return p.issues.fault() // before anything behind it is read or authenticated
		}
		var text []byte
		if text, err = p.metadata(v, 1); err == nil {
			p.fixed(key, text)
		}
	}
	return err
}

// fixed takes a member of fixed metadata in canonical form.
func (p *parser) fixed(key string, text []byte) {
	r, d := &p.record, decoder{&p.issues}
	switch key {
	case "evidence_id":
		r.ID = d.text(text, key)
	case "predicate_type":
		r.PredicateType = d.text(text, key)
	case "operation":
		r.Operation = d.text(text, key)
	case "confidence":
		r.Confidence = Confidence(d.text(text, key))
	case "authority":
		r.Authority = Authority(d.text(text, key))
	case "subject":
		r.Subject = d.subject(text, key)
	case "provider":
		r.Provider = d.provider(text, key)
	case "environment":
		r.Environment = d.environment(text, key)
	case "limitations":
		r.Limitations = d.texts(text, key)
	case "evidence_links":
		r.Links = d.texts(text, key)
	case "locations":
		d.array(text, func(i int, value []byte) {
			r.Locations = append(r.Locations, d.location(value, key, i))
		}, key)
	}
}

// profile takes the analysis profile: fixed metadata around a payload.
func (p *parser) profile(v *valueReader) error {
	raw, err := p.head(v)
	if err != nil {
		return err
	}
	if string(raw) == "null" {
		return nil
	}
	a := &AnalysisProfile{}
	d := decoder{&p.issues}
	seen, err := p.object(bytes.NewReader(raw), func(key string, v *valueReader) error {
		if key == "parameters" {
			raw, err := p.head(v)
			if err == nil {
				raw, err = canonicalize(canonicalizer{src: raw, level: 2})
			}
			a.Parameters = CanonicalPayload(raw)
			return err
		}
		text, err := p.metadata(v, 2)
		switch {
		case err != nil:
			return err
		case key == "digest":
			a.SHA256 = d.text(text, "analysis_profile", key)
		case key == "provider":
			a.Provider = d.provider(text, "analysis_profile", key)
		default:
			p.issues.add(UnknownArgument, "", "analysis_profile", key)
		}
		return nil
	}, "analysis_profile")
	if err != nil {
		return err
	}
	for _, key := range []string{"digest", "parameters", "provider"} {
		if !seen[key] {
			p.issues.add(MissingArgument, "", "analysis_profile", key)
		}
	}
	p.record.AnalysisProfile = a
	return nil
}

// head reads a whole member into memory.
func (p *parser) head(v *valueReader) ([]byte, error) {
	raw, err := io.ReadAll(io.LimitReader(v, int64(p.limit)+1))
	if err != nil {
		return nil, err
	}
	if len(raw) > p.limit {
		return nil, p.tooLarge()
	}
	return raw, nil
}

func (p *parser) tooLarge() error {
	return fault.New(fault.ResourceConstraint,
		fmt.Sprintf("A member of an Evidence record is over %d bytes and not in canonical form; putting it in order would exceed the memory budget.", p.limit),
		"Pass the record as rea exported it, or import it from a bundle that rea wrote.").
		WithAll(fault.Details{"operation": "read_evidence", "resource": "memory", "reason": "member-not-canonical",
			"reported_limits": map[string]any{"projected_value_bytes": p.limit}})
}

// metadata reads a member of fixed metadata and brings it into canonical form, each key once.
func (p *parser) metadata(v *valueReader, level int) ([]byte, error) {
	raw, err := p.head(v)
	if err != nil {
		return nil, err
	}
	return canonicalize(canonicalizer{src: raw, level: level, unique: true})
}

// payload reads one payload, in memory as far as the limit allows, beyond it as a checked stream.
func (p *parser) payload(v *valueReader) (Payload, error) {
	head, err := io.ReadAll(io.LimitReader(v, int64(p.limit)+1))
	if err != nil {
		return Payload{}, err
	}
	if len(head) > p.limit {
		return p.stream(io.MultiReader(bytes.NewReader(head), v))
	}
	text, err := canonicalize(canonicalizer{src: head, level: 1})
	if err != nil {
		return Payload{}, err
	}
	if len(text) <= maxInline {
		return CanonicalPayload(text), nil
	}
	return p.sp.Spool(p.ctx, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}

func (p *parser) stream(r io.Reader) (Payload, error) {
	check := NewPayloadChecker()
	payload, err := p.sp.Spool(p.ctx, func(w io.Writer) error {
		if _, err := io.Copy(io.MultiWriter(check, w), r); err != nil {
			return err
		}
		return check.Close()
	})
	if notCanonical(err) {
		return Payload{}, p.tooLarge()
	}
	return payload, err
}

// decoder reads fixed metadata from canonical text and notes what has the wrong type, is missing or unknown.
type decoder struct{ *issues }

func (d decoder) text(text []byte, path ...any) string {
	if text[0] != '"' {
		d.add(InvalidType, "string", path...)
		return ""
	}
	return string(appendDecoded(nil, text[1:len(text)-1]))
}

// optional reads a string or null. Null and "" are the same in a Record, so "" is refused.
func (d decoder) optional(text []byte, path ...any) string {
	if bytes.Equal(text, null) {
		return ""
	}
	if string(text) == `""` {
		d.add(OutOfRange, "null or at least one character", path...)
	}
	return d.text(text, path...)
}

func (d decoder) integer(text []byte, path ...any) int64 {
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		d.add(InvalidType, "integer", path...)
	}
	return n
}

func (d decoder) array(text []byte, yield func(i int, value []byte), path ...any) {
	if text[0] != '[' {
		d.add(InvalidType, "array", path...)
		return
	}
	canonicalElements(text, yield)
}

func (d decoder) texts(text []byte, path ...any) []string {
	list := []string{}
	d.array(text, func(i int, value []byte) { list = append(list, d.text(value, at(path, i)...)) }, path...)
	return list
}

// object returns the members of a strict object that has exactly these keys; nil if it is anything else.
func (d decoder) object(text []byte, keys []string, path []any) map[string][]byte {
	if text[0] != '{' {
		d.add(InvalidType, "object", path...)
		return nil
	}
	members, good := map[string][]byte{}, true
	canonicalMembers(text, func(key string, value []byte) {
		members[key] = value
		if !slices.Contains(keys, key) {
			d.add(UnknownArgument, "", at(path, key)...)
			good = false
		}
	})
	for _, key := range keys {
		if members[key] == nil {
			d.add(MissingArgument, "", at(path, key)...)
			good = false
		}
	}
	if !good {
		return nil
	}
	return members
}

func (d decoder) subject(text []byte, path ...any) *Subject {
	if bytes.Equal(text, null) {
		return nil
	}
	m := d.object(text, []string{"name", "digest", "format", "architecture", "local_path"}, path)
	if m == nil {
		return nil
	}
	s := &Subject{
		Name:         d.text(m["name"], at(path, "name")...),
		Format:       d.text(m["format"], at(path, "format")...),
		Architecture: d.optional(m["architecture"], at(path, "architecture")...),
		LocalPath:    d.text(m["local_path"], at(path, "local_path")...),
	}
	if digest := d.object(m["digest"], []string{"sha256"}, at(path, "digest")); digest != nil {
		s.SHA256 = d.text(digest["sha256"], at(path, "digest", "sha256")...)
	}
	return s
}

func (d decoder) provider(text []byte, path ...any) Provider {
	m := d.object(text, []string{"id", "name", "version"}, path)
	if m == nil {
		return Provider{}
	}
	return Provider{
		ID:      d.text(m["id"], at(path, "id")...),
		Name:    d.text(m["name"], at(path, "name")...),
		Version: d.optional(m["version"], at(path, "version")...),
	}
}

func (d decoder) environment(text []byte, path ...any) *Environment {
	if bytes.Equal(text, null) {
		return nil
	}
	m := d.object(text, []string{"id", "platform", "architecture", "isolation"}, path)
	if m == nil {
		return nil
	}
	return &Environment{
		ID:           d.text(m["id"], at(path, "id")...),
		Platform:     d.text(m["platform"], at(path, "platform")...),
		Architecture: d.text(m["architecture"], at(path, "architecture")...),
		Isolation:    d.text(m["isolation"], at(path, "isolation")...),
	}
}

// locationKeys are the keys of each kind of location.
var locationKeys = map[string][]string{
	"address":           {"kind", "address"},
	"address-range":     {"kind", "start", "end"},
	"artifact-path":     {"kind", "path"},
	"file-offset":       {"kind", "offset"},
	"file-offset-range": {"kind", "start", "end"},
}

func (d decoder) location(text []byte, path ...any) Location {
	var l Location
	if text[0] == '{' {
		canonicalMembers(text, func(key string, value []byte) {
			if key == "kind" {
				l.Kind = d.text(value, at(path, key)...)
			}
		})
	}
	keys := locationKeys[l.Kind]
	if keys == nil {
		keys = []string{"kind"}
	}
	m := d.object(text, keys, path)
	if m == nil {
		return l
	}
	switch l.Kind {
	case "address":
		l.Address = d.text(m["address"], at(path, "address")...)
	case "address-range":
		l.Start = d.text(m["start"], at(path, "start")...)
		l.End = d.text(m["end"], at(path, "end")...)
	case "artifact-path":
		l.Path = d.text(m["path"], at(path, "path")...)
	case "file-offset":
		l.Offset = d.integer(m["offset"], at(path, "offset")...)
	case "file-offset-range":
		l.Offset = d.integer(m["start"], at(path, "start")...)
		l.Limit = d.integer(m["end"], at(path, "end")...)
	}
	return l
}
