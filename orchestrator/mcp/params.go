package mcp

import (
	"github.com/go-json-experiment/json/jsontext"

	"rea/evidence"
	"rea/orchestrator/schema"
)

// paramShapes describe the parameters that are checked before the library sees a request, because it reports a wrong
// one without saying which. The arguments of a tool are checked by the tool's own contract.
var paramShapes = map[string]*schema.Shape{
	methodInitialize: openParams(
		schema.Property{Name: "protocolVersion", Shape: &schema.Shape{Types: []string{schema.StringType}}},
		schema.Property{Name: "capabilities", Optional: true, Shape: openParams()},
		schema.Property{Name: "clientInfo", Optional: true, Shape: openParams()},
	),
	// A list comes in one reply: no cursor was ever given out.
	methodListTools:   openParams(noCursor, meta),
	methodListPrompts: openParams(noCursor, meta),
	methodGetPrompt:   openParams(schema.Need("name", anyText), schema.May("arguments", schema.Map("", anyText)), meta),
	methodComplete: openParams(
		schema.Need("ref", openParams(schema.Need("type", schema.Constant("", "ref/prompt")), schema.Need("name", anyText))),
		schema.Need("argument", openParams(schema.Need("name", anyText), schema.Need("value", anyText))),
		schema.May("context", openParams(schema.May("arguments", schema.Map("", anyText)))), meta),
	methodCallTool: openParams(schema.Property{Name: "name", Shape: &schema.Shape{Types: []string{schema.StringType}}}, meta),
}

var (
	anyText  = schema.Text("")
	noCursor = schema.Property{Name: "cursor", Optional: true, Shape: &schema.Shape{Types: []string{schema.NullType}}}
	meta     = schema.Property{Name: "_meta", Optional: true, Shape: openParams()}
)

func openParams(properties ...schema.Property) *schema.Shape {
	return &schema.Shape{Types: []string{schema.ObjectType}, Open: true, Properties: properties}
}

// checkParams refuses parameters that the protocol does not allow, naming the fields in the text too, for clients
// that drop the data.
func checkParams(m message) *wireError {
	shape := paramShapes[m.Method]
	if shape == nil {
		return nil
	}
	params := m.Params
	if params == nil {
		params = jsontext.Value("{}")
	}
	issues := shape.Validate(params)
	if len(issues) == 0 {
		return nil
	}
	return invalidParams(m.Method, issues)
}

// invalidParams names the fields that are wrong, in the text too.
func invalidParams(method string, issues []schema.Issue) *wireError {
	data, err := evidence.Canonical(map[string]any{"issues": issues})
	if err != nil { // a member name that is not a text
		data = nil
	}
	return &wireError{Code: codeInvalidParams, Message: schema.Reject(method, issues...).Message, Data: data}
}

// encodeError is the error member of a response, canonical JSON.
func encodeError(e *wireError) (jsontext.Value, error) { return evidence.Canonical(e) }
