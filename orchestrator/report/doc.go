// Package report turns Evidence into what people read: the summary of a comparison, the list of an inventory, the
// account of an extraction; and it decides what a policy says about a comparison and writes a comparison to a
// directory.
//
// Everything goes to an io.Writer and nothing here knows a terminal: colour is an argument. Text that came from a
// target passes through Printable, without exception. Lists are bounded; the complete answer is the Evidence itself.
// Package report must not decide what Evidence means.
package report
