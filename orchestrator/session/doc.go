// Package session is what one client may do with targets and their Evidence: one active target, one ledger, serialised
// transitions, and a method for each tool.
//
// A session is made for one connection (or one command line) and closed with it. It decides which target an operation
// acts on and what is retained; it knows neither how a request arrived nor how its answer is delivered, and it starts
// nothing itself: contained work goes through an Analyzer.
package session
