// Package evidence holds the record of what was found: its identity, its canonical form, the ledger of a connection
// and the bundle in which records travel.
//
// JSON is RFC 8785 canonical everywhere, lone surrogates kept as escapes. Identity covers meaning only: no time, no
// path, no container. Package evidence must not know how a record was produced or where it is shown.
package evidence
