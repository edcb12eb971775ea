package budget

import (
	"errors"
	"fmt"
	"io"
)

const (
	// DefaultReceiveBuffer is the receive buffer, in bytes, of the client that the contract is measured by. The setting
	// REA_MCP_MAX_RESPONSE_BYTES raises it; nothing lowers it.
	DefaultReceiveBuffer = 10 << 20
	// EnvelopeReserve is kept for the JSON-RPC frame around a result.
	EnvelopeReserve = 1024
	// MaxStringUnits is the longest string, in UTF-16 code units, that a common JavaScript engine holds (2^29 − 24),
	// less the reserve. It matters only with a raised buffer.
	MaxStringUnits = 1<<29 - 24 - EnvelopeReserve
)

// Constraint says which limit an answer exceeds.
type Constraint string

// The constraints.
const (
	ReceiveBuffer Constraint = "receive-buffer"
	StringLength  Constraint = "string-length"
)

// Limit is what one result may take.
type Limit struct {
	receiveBuffer int64
}

// NewLimit returns the limit for a receive buffer of so many bytes; less than the default means the default.
func NewLimit(receiveBuffer int64) Limit { return Limit{max(receiveBuffer, DefaultReceiveBuffer)} }

// Bytes is the result budget: the receive buffer without the reserve.
func (l Limit) Bytes() int64 {
	if l.receiveBuffer == 0 {
		return DefaultReceiveBuffer - EnvelopeReserve
	}
	return l.receiveBuffer - EnvelopeReserve
}

// Excess says how an answer exceeds its limit. The amounts are lower bounds: counting stops where the answer is
// known not to fit.
type Excess struct {
	Bytes      int64 // of the result
	Units      int64 // UTF-16 code units of the longer text form
	Constraint Constraint
	Budget     int64 // Limit.Bytes
}

// Error makes an Excess an error, so that it can travel as one.
func (e *Excess) Error() string {
	return fmt.Sprintf("at least %d bytes exceed the budget of %d (%s)", e.Bytes, e.Budget, e.Constraint)
}

// Report is the part of reported_limits that every overflow has.
func (e *Excess) Report() map[string]any {
	return map[string]any{
		"boundary":                     "mcp-response",
		"result_budget_bytes":          e.Budget,
		"response_bytes_at_least":      e.Bytes,
		"response_code_units_at_least": e.Units,
		"constraint":                   e.Constraint,
	}
}

// Success counts a document as a successful answer. It returns an *Excess where it does not fit, and the document's
// own error where it cannot be read. Nothing is kept of the document.
func (l Limit) Success(document io.WriterTo, marked bool) error {
	c := l.counter(successBytes, marked)
	c.structured = true
	return c.count(document)
}

// Failure counts a diagnostic as a failed answer.
func (l Limit) Failure(document io.WriterTo, marked bool) error {
	return l.counter(failureBytes+isErrorBytes, marked).count(document)
}

func (l Limit) counter(envelope int, marked bool) *counter {
	if marked {
		envelope += markerBytes
	}
	return &counter{bytes: int64(envelope), budget: l.Bytes()}
}

// counter adds up what a document takes in an answer.
type counter struct {
	bytes, units int64 // of the result; of the document inside a JSON string
	budget       int64
	structured   bool // the document stands a second time, as it is
}

var errExceeds = errors.New("exceeds the budget")

// Write counts and discards.
func (c *counter) Write(p []byte) (int, error) {
	for _, b := range p {
		switch {
		case b == '"' || b == '\\':
			c.bytes += 2
			c.units += 2
		case b < 0x80:
			c.bytes++
			c.units++
		default:
			c.bytes++
			c.units += leadUnits(b)
		}
	}
	if c.structured {
		c.bytes += int64(len(p))
	}
	if c.bytes > c.budget || c.units > MaxStringUnits {
		return 0, errExceeds
	}
	return len(p), nil
}

// leadUnits is how many UTF-16 code units a character takes, counted at its first byte in UTF-8.
func leadUnits(b byte) int64 {
	switch {
	case b < 0xC0:
		return 0 // a continuation
	case b < 0xF0:
		return 1
	}
	return 2
}

func (c *counter) count(document io.WriterTo) error {
	_, err := document.WriteTo(c)
	if !errors.Is(err, errExceeds) {
		return err
	}
	e := &Excess{Bytes: c.bytes, Units: c.units, Constraint: ReceiveBuffer, Budget: c.budget}
	if c.bytes <= c.budget {
		e.Constraint = StringLength
	}
	return e
}
