package main

import (
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"rea/evidence/fault"
	"rea/orchestrator/catalog"
	"rea/orchestrator/reference"
	"rea/orchestrator/report"
	"rea/providers/builtin"
)

// generateCommand writes what is generated from the contracts. It is for make and hidden from users.
func (a *app) generateCommand() *cobra.Command {
	return &cobra.Command{Use: "generate-docs DIR", Hidden: true, Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		if err := a.begin(cmd); err != nil {
			return err
		}
		out, err := a.generate(args[0])
		if err != nil {
			return err
		}
		return a.answer(out)
	}}
}

// Files below the directory that is generated into.
const (
	toolsFile   = "tools.md"
	catalogFile = "public/product-catalog.json"
)

func (a *app) generate(dir string) (answer, error) {
	product, err := a.product().JSON()
	if err != nil {
		return answer{}, err
	}
	files := map[string][]byte{toolsFile: reference.Markdown(catalog.Builtin()), catalogFile: append(product, '\n')}
	for file, text := range files {
		path := filepath.Join(dir, file)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err == nil {
			err = os.WriteFile(path, text, 0o644)
		}
		if err != nil {
			return answer{}, fault.New(fault.ExecutionFailure, "A generated file could not be written.", "Look at the directory that was named.").With("path", file).Because(err)
		}
	}
	return result(map[string]any{"files": []string{catalogFile, toolsFile}}, func(w io.Writer, _ report.Style) error {
		lines := textLines{w: w}
		lines.add("Wrote %s and %s.", catalogFile, toolsFile)
		return lines.err
	}), nil
}

// product is this program as its catalog describes it.
func (a *app) product() reference.Product {
	return reference.Product{Name: name, Version: version, Commands: a.commands(), Catalog: catalog.Builtin(), Providers: builtin.Providers()}
}
