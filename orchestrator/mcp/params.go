package mcp

import (
	"github.com/go-json-experiment/json/jsontext"

	"rea/evidence"
	"rea/orchestrator/catalog"
)

// paramShapes describe the parameters that are checked before the library sees a request, because it reports a wrong
// one without saying which. The arguments of a tool are checked by the tool's own contract.
var paramShapes = map[string]*catalog.Shape{
	methodInitialize: openParams(
		catalog.Property{Name: "protocolVersion", Shape: &catalog.Shape{Types: []string{catalog.String}}},
		catalog.Property{Name: "capabilities", Optional: true, Shape: openParams()},
		catalog.Property{Name: "clientInfo", Optional: true, Shape: openParams()},
	),
	// A list comes in one reply: no cursor was ever given out.
	methodListTools:   openParams(noCursor, meta),
	methodListPrompts: openParams(noCursor, meta),
	methodGetPrompt:   openParams(catalog.Property{Name: "name", Shape: &catalog.Shape{Types: []string{catalog.String}}}, meta),
	methodCallTool:    openParams(catalog.Property{Name: "name", Shape: &catalog.Shape{Types: []string{catalog.String}}}, meta),
}

var (
	noCursor = catalog.Property{Name: "cursor", Optional: true, Shape: &catalog.Shape{Types: []string{catalog.Null}}}
	meta     = catalog.Property{Name: "_meta", Optional: true, Shape: openParams()}
)

func openParams(properties ...catalog.Property) *catalog.Shape {
	return &catalog.Shape{Types: []string{catalog.Object}, Open: true, Properties: properties}
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
	data, err := evidence.Canonical(map[string]any{"issues": issues})
	if err != nil { // a member name that is not a text
		data = nil
	}
	return &wireError{Code: codeInvalidParams, Message: catalog.Reject(m.Method, issues...).Message, Data: data}
}

// encodeError is the error member of a response, canonical JSON.
func encodeError(e *wireError) (jsontext.Value, error) { return evidence.Canonical(e) }
