// Package mcp is the MCP surface: it serves a session to one client over standard input and output.
//
// The MCP library keeps the protocol's state and dispatches requests. What is on the wire is ours: a transport that
// keeps ids and progress tokens as they came, survives a broken line, answers what was read before the input ended,
// and writes a tool's document exactly as the session made it, once as text and once as structure. Nothing but
// protocol frames goes to the output. Package mcp must not know what a tool does beyond its contract.
package mcp
