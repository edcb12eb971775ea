// Package schema describes sets of JSON values once, for two readers: a Shape is advertised to clients as JSON Schema
// and checked against what they send, so what a client reads is what is enforced.
//
// Advertised schemas have no recursive reference, no root union in an input and no list of types below it, because
// function-calling interfaces of models refuse these; see Input. Package schema must not know any tool.
package schema
