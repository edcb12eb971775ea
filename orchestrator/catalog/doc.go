// Package catalog holds the contract of every tool as data: what it takes, what it returns, what it does to the world
// and what it needs. Adding a tool is one entry in tools.go and one handler.
//
// The same Shape is advertised as JSON Schema and checked against each call, so what a client reads in tools/list is
// what the server enforces. The catalog is constant while a process serves. Package catalog must not know how a tool
// is carried out or delivered.
package catalog
