package volume

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"rea/evidence/fault"
)

// Limits of a manifest. The worker keeps them, the core enforces them.
const (
	// MaxManifest bounds manifest.json: about a quarter of a million files.
	MaxManifest = 32 << 20
	// MaxFailure bounds the encoded error: a diagnostic, not a result.
	MaxFailure = 64 << 10
	// MaxTargetSeen bounds the encoded target with its unreadable paths.
	MaxTargetSeen = 1 << 20
	// maxDetailDepth bounds the nesting of an error's details, the manifest's only free-form value.
	maxDetailDepth = 16
	// maxPath and maxComponents bound a path; a worker names files by number, so both are generous.
	maxPath       = 512
	maxComponents = 8
	// maxComponent is the shortest limit on a file name that any file system of ours has.
	maxComponent = 255
)

// CheckPath reports whether p may name a file below the folder of a call: 1 to 8 components of ASCII letters, digits,
// dot, hyphen and underscore, none of them "." or "..", 512 bytes in all. The error is a *Refusal.
func CheckPath(p string) error {
	if len(p) > maxPath || strings.Count(p, "/") >= maxComponents {
		return refuse(p, ReasonName, errors.New("too long or too deep"))
	}
	return checkName(p)
}

// checkName is CheckPath without the bounds: for a path that the core has put together itself.
func checkName(p string) error {
	for c := range strings.SplitSeq(p, "/") {
		if c == "" || c == "." || c == ".." || len(c) > maxComponent {
			return refuse(p, ReasonName, errors.New("a component is empty, a dot name or too long"))
		}
		if i := strings.IndexFunc(c, notPlain); i >= 0 {
			return refuse(p, ReasonName, errors.New("a character is not allowed"))
		}
	}
	return nil
}

func notPlain(r rune) bool {
	switch {
	case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '-', r == '_':
		return false
	}
	return true
}

// Encode returns the manifest as canonical JSON. It does not check the content.
func (m *Manifest) Encode() ([]byte, error) {
	raw, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode manifest: %w", err)
	}
	v := jsontext.Value(raw)
	if err := v.Canonicalize(); err != nil {
		return nil, fmt.Errorf("encode manifest: %w", err)
	}
	return v, nil
}

// DecodeManifest decodes a hostile manifest: canonical JSON of exactly the members of Manifest, file paths plain,
// sorted and unique, digests and sizes well formed, the error and the target bounded, the outcome consistent with the
// rest. It allocates in proportion to raw, never to what raw claims. The error is a *fault.Error: unreadable_output
// where it does not parse, evidence_integrity_mismatch with details reason and entry where a file's entry is refused.
func DecodeManifest(raw []byte) (*Manifest, error) {
	var m Manifest
	files := fileDecoder{}
	err := json.Unmarshal(raw, &m, json.RejectUnknownMembers(true), json.WithUnmarshalers(json.JoinUnmarshalers(
		json.UnmarshalFromFunc(files.decode),
		json.UnmarshalFromFunc(decodeFailure),
		json.UnmarshalFromFunc(decodeTarget),
	)))
	var refusal *Refusal
	switch {
	case errors.As(err, &refusal):
		return nil, readFault(m.Seq, refusal.Name, refusal)
	case err == nil:
		err = m.canonical(raw)
	}
	if err == nil {
		err = m.consistent()
	}
	if err != nil {
		return nil, fault.New(fault.UnreadableOutput, "The manifest that the worker left cannot be read.",
			"Repeat the call; if it fails again, report it with the output of rea doctor.").
			WithAll(fault.Details{"reason": "manifest", "entry": ManifestName}).Because(err)
	}
	return &m, nil
}

// canonical reports whether raw is exactly how the manifest is encoded: RFC 8785, every member present.
func (m *Manifest) canonical(raw []byte) error {
	again, err := m.Encode()
	if err != nil {
		return err
	}
	if !bytes.Equal(again, raw) {
		return errors.New("not in canonical form, or a member is missing")
	}
	return nil
}

// fileDecoder decodes the file list and refuses at the first bad entry, so that a list of millions of empty objects
// costs nothing.
type fileDecoder struct{ last string }

func (d *fileDecoder) decode(dec *jsontext.Decoder, f *File) error {
	type plain File
	if err := json.UnmarshalDecode(dec, (*plain)(f)); err != nil {
		return err
	}
	if err := CheckPath(f.Path); err != nil {
		return err
	}
	switch {
	case f.Path == ManifestName:
		return refuse(f.Path, ReasonName, errors.New("the manifest cannot name itself"))
	case f.Path <= d.last:
		return refuse(f.Path, ReasonOrder, nil)
	case f.Size < 0:
		return refuse(f.Path, ReasonSize, errors.New("negative size"))
	case !isDigest(f.SHA256):
		return refuse(f.Path, ReasonDigest, errors.New("not a SHA-256 in lower-case hex"))
	}
	d.last = f.Path
	return nil
}

func decodeFailure(dec *jsontext.Decoder, f *Failure) error {
	raw, err := dec.ReadValue()
	if err != nil {
		return err
	}
	if len(raw) > MaxFailure {
		return fmt.Errorf("error of %d bytes, %d allowed", len(raw), MaxFailure)
	}
	if depth(raw) > maxDetailDepth {
		return fmt.Errorf("error nested deeper than %d", maxDetailDepth)
	}
	type plain Failure
	if err := json.Unmarshal(raw, (*plain)(f), json.RejectUnknownMembers(true)); err != nil {
		return err
	}
	if !fault.Known(f.Code) || f.Message == "" {
		return errors.New("error with an unknown code or no message")
	}
	return nil
}

func decodeTarget(dec *jsontext.Decoder, t *TargetSeen) error {
	raw, err := dec.ReadValue()
	if err != nil {
		return err
	}
	if len(raw) > MaxTargetSeen {
		return fmt.Errorf("target of %d bytes, %d allowed", len(raw), MaxTargetSeen)
	}
	type plain TargetSeen
	if err := json.Unmarshal(raw, (*plain)(t), json.RejectUnknownMembers(true)); err != nil {
		return err
	}
	if !isDigest(t.SHA256) || t.Omitted < 0 {
		return errors.New("target with a malformed digest or count")
	}
	return nil
}

// depth is the deepest nesting of arrays and objects in valid JSON.
func depth(raw jsontext.Value) int {
	dec := jsontext.NewDecoder(bytes.NewReader(raw))
	deepest := 0
	for {
		if _, err := dec.ReadToken(); err != nil {
			return deepest
		}
		deepest = max(deepest, dec.StackDepth())
	}
}

// consistent checks the rules between members.
func (m *Manifest) consistent() error {
	switch m.Outcome {
	case Completed:
		if m.Error != nil || m.Exhausted != "" {
			return errors.New("completed with an error")
		}
	case Failed, Cancelled:
		if m.Error == nil {
			return errors.New("not completed, without an error")
		}
	default:
		return errors.New("unknown outcome")
	}
	switch m.Exhausted {
	case "", ExhaustedBytes, ExhaustedInodes:
	default:
		return errors.New("unknown exhausted quota")
	}
	if !isDigest(m.Nonce) || !isDigest(m.RequestSHA256) {
		return errors.New("malformed nonce or request digest")
	}
	return nil
}

// isDigest reports whether s is 32 bytes in lower-case hex.
func isDigest(s string) bool {
	if len(s) != 64 || strings.ToLower(s) != s {
		return false
	}
	_, err := hex.DecodeString(s)
	return err == nil
}
