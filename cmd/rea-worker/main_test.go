package main

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// TestEveryWorkerIsLinkedIn compares the list with the folders: a worker that was written and not registered fails here.
func TestEveryWorkerIsLinkedIn(t *testing.T) {
	folders, err := filepath.Glob("../../providers/*/worker")
	if err != nil || len(folders) == 0 {
		t.Fatalf("no workers found: %v", err)
	}
	f, err := parser.ParseFile(token.NewFileSet(), "main.go", nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	linked := map[string]bool{}
	for _, i := range f.Imports {
		linked[strings.Trim(i.Path.Value, `"`)] = true
	}
	for _, folder := range folders {
		path := "rea/providers/" + filepath.Base(filepath.Dir(folder)) + "/worker"
		if !linked[path] {
			t.Errorf("%s is not in the list of main.go", path)
		}
	}
	// One entry for each worker, and the selftest.
	if got := len(providers()); got != len(folders)+1 {
		t.Errorf("%d providers, %d workers", got, len(folders))
	}
	for name, operations := range providers() {
		for operation, handler := range operations {
			if handler == nil {
				t.Errorf("%s of %s has no handler", operation, name)
			}
		}
	}
}
