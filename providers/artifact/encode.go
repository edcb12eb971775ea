package artifact

import (
	"bufio"
	"context"
	"encoding/hex"
	"io"
	"strconv"

	"rea/evidence"
)

// encoder writes canonical JSON by hand: the caller writes keys in their order. Its first error stays. It is for one
// goroutine.
type encoder struct {
	ctx context.Context
	w   *bufio.Writer
	buf []byte
	n   int // elements since the context was looked at
	err error
	// pulse is called with each look at the context.
	pulse func()
}

// encodeBuffer is how much an encoder gathers before it writes.
const encodeBuffer = 64 << 10

// elementsPerCheck is how many elements pass between two looks at the context.
const elementsPerCheck = 1024

func newEncoder(ctx context.Context, w io.Writer) *encoder {
	return &encoder{ctx: ctx, w: bufio.NewWriterSize(w, encodeBuffer), pulse: func() {}}
}

// flush ends the output and gives the first error.
func (e *encoder) flush() error {
	e.write()
	if e.err == nil {
		e.err = e.w.Flush()
	}
	return e.err
}

// write hands what was gathered to the buffer.
func (e *encoder) write() {
	if e.err == nil {
		_, e.err = e.w.Write(e.buf)
	}
	e.buf = e.buf[:0]
}

func (e *encoder) text(s string) *encoder { e.buf = append(e.buf, s...); return e }

func (e *encoder) string(s string) *encoder {
	e.buf = evidence.AppendString(e.buf, s)
	return e
}

func (e *encoder) int(n int64) *encoder { e.buf = strconv.AppendInt(e.buf, n, 10); return e }

func (e *encoder) bool(v bool) *encoder { e.buf = strconv.AppendBool(e.buf, v); return e }

// id writes a quoted identity.
func (e *encoder) id(prefix string, s sum) *encoder {
	e.buf = append(e.buf, '"')
	e.buf = append(e.buf, prefix...)
	e.buf = hex.AppendEncode(e.buf, s[:])
	e.buf = append(e.buf, '"')
	return e
}

// idOr writes a quoted identity, or null.
func (e *encoder) idOr(prefix string, s sum, known bool) *encoder {
	if !known {
		return e.text("null")
	}
	return e.id(prefix, s)
}

// size writes a size; negative is null.
func (e *encoder) size(n int64) *encoder {
	if n < 0 {
		return e.text("null")
	}
	return e.int(n)
}

// stringOr writes a string; "" is null.
func (e *encoder) stringOr(s string) *encoder {
	if s == "" {
		return e.text("null")
	}
	return e.string(s)
}

// strings writes a list of strings.
func (e *encoder) strings(list []string) *encoder {
	e.buf = append(e.buf, '[')
	for i, s := range list {
		if i > 0 {
			e.buf = append(e.buf, ',')
		}
		e.string(s)
	}
	e.buf = append(e.buf, ']')
	return e
}

// list writes an array of n elements, each by one call, and stops at the first error or when the context ends.
func (e *encoder) list(n int, element func(i int)) *encoder {
	e.text("[")
	for i := range n {
		if i > 0 {
			e.buf = append(e.buf, ',')
		}
		element(i)
		if !e.next() {
			return e
		}
	}
	return e.text("]")
}

// next ends an element of a stream and reports whether to go on.
func (e *encoder) next() bool {
	if len(e.buf) >= encodeBuffer/16 {
		e.write()
	}
	e.n++
	if e.n%elementsPerCheck == 0 && e.err == nil {
		e.pulse()
		e.err = context.Cause(e.ctx)
	}
	return e.err == nil
}

// manifest writes a manifest.
func (e *encoder) manifest(m Manifest) *encoder {
	e.text(`{"edge_count":`).int(m.EdgeCount).text(`,"graph_sha256":`).string(m.GraphSHA256)
	e.text(`,"manifest_id":`).string(m.ManifestID).text(`,"node_count":`).int(m.NodeCount)
	e.text(`,"occurrence_count":`).int(m.OccurrenceCount).text(`,"root_artifact_id":`).string(m.RootArtifactID)
	e.text(`,"root_format":`).string(string(m.RootFormat)).text(`,"root_sha256":`).string(m.RootSHA256)
	return e.text(`}`)
}

// provenance writes a list of tools.
func (e *encoder) provenance(list []Provenance) *encoder {
	return e.list(len(list), func(i int) {
		p := list[i]
		e.text(`{"arguments":`).strings(p.Arguments).text(`,"effects":`).strings(p.Effects)
		e.text(`,"executable_sha256":`).pointer(p.ExecutableSHA256).text(`,"exit_code":`)
		if p.ExitCode == nil {
			e.text("null")
		} else {
			e.int(*p.ExitCode)
		}
		e.text(`,"tool":`).string(p.Tool).text(`,"tool_version":`).pointer(p.ToolVersion).text(`}`)
	})
}

// pointer writes a string or null.
func (e *encoder) pointer(s *string) *encoder {
	if s == nil {
		return e.text("null")
	}
	return e.string(*s)
}

// container writes how a container arranges its members.
func (e *encoder) container(c Container) {
	e.text(`{"comment_sha256":`).pointer(c.CommentSHA256).text(`,"member_order_sha256":`).string(c.MemberOrderSHA256)
	e.text(`,"methods_sha256":`).string(c.MethodsSHA256).text(`,"occurrence_id":`).string(c.OccurrenceID)
	e.text(`,"regions":[`)
	for i, r := range c.Regions {
		if i > 0 {
			e.text(",")
		}
		e.text(`{"length":`).int(r.Length).text(`,"offset":`).int(r.Offset).text(`,"role":`).string(r.Role)
		e.text(`,"sha256":`).string(r.SHA256).text(`}`)
	}
	e.text(`]}`)
}

// contradiction writes an integrity contradiction.
func (e *encoder) contradiction(c Contradiction) {
	e.text(`{"contradiction_id":`).string(c.ContradictionID).text(`,"declared_sha256":`).string(c.DeclaredSHA256)
	e.text(`,"entry_kind":`).string(string(c.EntryKind)).text(`,"limitations":`).strings(c.Limitations)
	e.text(`,"logical_path":`).string(c.LogicalPath).text(`,"observed_sha256":`).string(c.ObservedSHA256)
	e.text(`,"occurrence_id":`).string(c.OccurrenceID).text(`,"parent_artifact_id":`).string(c.ParentArtifactID)
	e.text(`,"provenance":`).string(c.Provenance).text(`,"trust":`).string(c.Trust)
	e.text(`,"unpacked":`).bool(c.Unpacked).text(`}`)
}
