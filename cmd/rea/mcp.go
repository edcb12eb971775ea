package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"rea/orchestrator/mcp"
	"rea/orchestrator/report"
)

func (a *app) mcpCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "mcp", Short: "Serve the tools over MCP on standard input and output", Args: cobra.NoArgs,
		Long: `Mcp serves one MCP client over standard input and output until the input ends. Nothing but protocol frames is
written to standard output; diagnostics go to standard error.`,
	}
	addSettings(cmd.Flags(), ofServer...)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return a.mcp(cmd) }
	cmd.AddCommand(a.mcpDoctorCommand())
	return cmd
}

func (a *app) mcp(cmd *cobra.Command) error {
	err := a.begin(cmd)
	a.format = formatText // a failure must not reach standard output, where the client reads frames
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	h := a.host(func(text string) { _, _ = fmt.Fprintf(a.err, "rea: %s\n", report.Printable(text)) })
	served := a.serving()
	err = mcp.Serve(ctx, mcp.Options{
		Name: name, Version: version, Session: a.sessionWith(h, served), Catalog: served,
		ReceiveBuffer: a.config.MCP.MaxResponseBytes, Log: slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}, a.in, a.out)
	if cerr := h.Close(context.WithoutCancel(ctx)); cerr != nil {
		err = errors.Join(cerr, err)
	}
	return err
}
