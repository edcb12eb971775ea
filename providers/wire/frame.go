package wire

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// headerSize is the length prefix of a frame.
const headerSize = 4

// Bounds of the free text in a worker's frames.
const (
	maxVersion = 128 // Hello.Worker
	maxNonce   = 64  // Hello.Nonce: 32 bytes in hex
	maxType    = 64  // Volume.Type
	maxPhase   = 32  // Progress.Phase
)

// ProtocolError says that the other side broke the protocol. The channel is of no use after it.
type ProtocolError struct {
	Reason string // what was broken, in our words; never text of the other side
	cause  error
}

func broken(reason string, cause error) *ProtocolError { return &ProtocolError{reason, cause} }

// Error gives the reason and its cause.
func (e *ProtocolError) Error() string {
	if e.cause != nil {
		return fmt.Sprintf("control channel: %s: %v", e.Reason, e.cause)
	}
	return "control channel: " + e.Reason
}

// Unwrap gives the underlying error, which may be nil.
func (e *ProtocolError) Unwrap() error { return e.cause }

// appendFrame appends the frame of m to dst. Raw values keep their very bytes, lone surrogates included: the digest
// of a call's parameters is taken over them on both sides.
func appendFrame(dst []byte, m any, limit int) ([]byte, error) {
	raw, err := json.Marshal(m, jsontext.PreserveRawStrings(true), jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return dst, fmt.Errorf("encode frame: %w", err)
	}
	if len(raw) > limit {
		return dst, fmt.Errorf("frame of %d bytes, at most %d can be sent", len(raw), limit)
	}
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(raw)))
	return append(dst, raw...), nil
}

// readFrame reads one frame of at most limit bytes into buf, growing it as needed and only after the length was
// checked. The error is io.EOF only between frames.
func readFrame(r io.Reader, buf []byte, limit int) ([]byte, error) {
	var header [headerSize]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return buf, err
	}
	size := binary.BigEndian.Uint32(header[:])
	if size == 0 || int64(size) > int64(limit) {
		return buf, broken(fmt.Sprintf("frame of %d bytes, 1 to %d allowed", size, limit), nil)
	}
	if cap(buf) < int(size) {
		buf = make([]byte, size)
	}
	buf = buf[:size]
	if _, err := io.ReadFull(r, buf); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return buf, err
	}
	return buf, nil
}

// decodeFromWorker decodes a hostile frame.
func decodeFromWorker(raw []byte) (FromWorker, error) {
	var m FromWorker
	if err := json.Unmarshal(raw, &m, json.RejectUnknownMembers(true)); err != nil {
		return FromWorker{}, broken("a frame does not parse", err)
	}
	if !m.single() {
		return FromWorker{}, broken("a frame needs exactly one member", nil)
	}
	if err := m.check(); err != nil {
		return FromWorker{}, broken("a frame holds a value out of bounds", err)
	}
	return m, nil
}

func (m FromWorker) single() bool {
	return count(m.Hello != nil, m.Progress != nil, m.Done != nil, m.Fatal != nil) == 1
}

func (m FromCore) single() bool {
	return count(m.Call != nil, m.Cancel != nil, m.Digest != nil, m.Release != nil) == 1
}

func count(set ...bool) (n int) {
	for _, s := range set {
		if s {
			n++
		}
	}
	return n
}

func (m FromWorker) check() error {
	switch {
	case m.Hello != nil:
		return m.Hello.check()
	case m.Progress != nil:
		return m.Progress.check()
	case m.Done != nil:
		return m.Done.check()
	}
	return bounded("reason", m.Fatal.Reason, MaxReason)
}

func (h *Hello) check() error {
	if h.Version != Version {
		return fmt.Errorf("version %d, this side speaks %d", h.Version, Version)
	}
	return errors.Join(bounded("worker", h.Worker, maxVersion), bounded("nonce", h.Nonce, maxNonce),
		bounded("type", h.Evidence.Type, maxType))
}

func (p *Progress) check() error {
	if p.Entries < 0 || p.Bytes < 0 {
		return errors.New("negative count")
	}
	if strings.Trim(p.Phase, "abcdefghijklmnopqrstuvwxyz-") != "" {
		return errors.New("phase is not a lower-case word")
	}
	return errors.Join(bounded("phase", p.Phase, maxPhase), bounded("text", p.Text, MaxText))
}

func (d *Done) check() error {
	if d.ManifestBytes <= 0 {
		return errors.New("a manifest has at least one byte")
	}
	if sum, err := hex.DecodeString(d.ManifestSHA256); err != nil || len(sum) != 32 || strings.ToLower(d.ManifestSHA256) != d.ManifestSHA256 {
		return errors.New("manifest_sha256 is not a SHA-256 in lower-case hex")
	}
	return nil
}

func bounded(what, s string, limit int) error {
	if len(s) > limit {
		return fmt.Errorf("%s of %d bytes, %d allowed", what, len(s), limit)
	}
	return nil
}

// Truncate cuts s to at most limit bytes at a character boundary and replaces what is not UTF-8.
func Truncate(s string, limit int) string {
	s = cut(s, limit) // first, so that the replacement is done on a bounded text
	return cut(strings.ToValidUTF8(s, "\uFFFD"), limit)
}

func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}
