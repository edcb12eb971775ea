package main

import (
	"context"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"rea/evidence/fault"
	"rea/orchestrator"
	"rea/orchestrator/clients"
	"rea/orchestrator/doctor"
	"rea/orchestrator/session"
)

func (a *app) mcpDoctorCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "doctor", Short: "Start a registered server as a client does, and examine it", Args: cobra.NoArgs,
		Long: `Doctor starts the server in a process of its own, with the command that setup registers or, with --client, the one
that is registered there. It shakes hands, reads the lists of tools and prompts, asks binary_session who the server is,
and closes. It exits with 4 where anything is not as this program would have it.`,
	}
	client := cmd.Flags().String("client", "", "`client` whose registration is started: "+strings.Join(clients.IDs(), ", "))
	cmd.RunE = a.work(func(ctx context.Context, h *orchestrator.Host, _ []string) (answer, error) {
		return a.mcpDoctor(ctx, h, *client)
	})
	return cmd
}

func (a *app) mcpDoctor(ctx context.Context, h *orchestrator.Host, client string) (answer, error) {
	command, env := a.registered(), []string(nil)
	if client != "" {
		r, err := a.registration(client)
		if err != nil {
			return answer{}, err
		}
		command, env = r.Command, r.Env()
	}
	o, err := a.serverOptions(ctx, h, command, env)
	if err != nil {
		return answer{}, err
	}
	examined := doctor.ExamineServer(ctx, o)
	if ctx.Err() != nil {
		return answer{}, context.Cause(ctx)
	}
	out := answer{json: func(w io.Writer) error { return writeJSON(w, examined) }, text: examined.WriteText}
	if !examined.Healthy {
		out.code = fault.ExitNotDone
	}
	return out, nil
}

// registration is what a client has registered.
func (a *app) registration(client string) (clients.Registration, error) {
	u, err := clientUser()
	if err != nil {
		return clients.Registration{}, err
	}
	r, err := clients.InspectOne(u, a.registered(), client)
	if err == nil && len(r.Command) == 0 {
		err = fault.New(fault.ConfigurationInvalid, strings.TrimSpace(r.Name+" has no server rea that could be started. "+r.Reason),
			"Run rea setup --client "+client+".").With("path", strings.ToValidUTF8(r.Path, "\uFFFD"))
	}
	return r, err
}

// serverOptions are what a server must be that is started by a command in an environment: its flags and variables
// scope its catalog as they scope this program's own.
func (a *app) serverOptions(ctx context.Context, h *orchestrator.Host, command, env []string) (doctor.ServerOptions, error) {
	config, err := serverConfig(command, env)
	if err != nil {
		return doctor.ServerOptions{}, err
	}
	same := *a
	same.config = config
	s := same.sessionWith(h, same.serving())
	state, err := s.BinarySession(ctx, session.Expectations{}, session.Connection{})
	if err != nil {
		return doctor.ServerOptions{}, err
	}
	o := doctor.ServerOptions{
		Command: command, Env: env, Digest: state.ServerIdentity.Catalog.Digests.Combined,
		Version: state.ServerIdentity.Package.Version, CommandPath: state.ServerIdentity.Server.CommandPath,
	}
	for _, g := range state.ToolAvailability.Groups {
		o.Tools = append(o.Tools, g.Names...)
	}
	for _, p := range s.Guide().Prompts() {
		o.Prompts = append(o.Prompts, p.Name)
	}
	return o, s.Close(ctx)
}

// serverConfig is the configuration of a server by its command line and environment. Of a command that is not this
// program's, the flags say nothing.
func serverConfig(command, env []string) (Config, error) {
	for _, variable := range env {
		key, value, _ := strings.Cut(variable, "=")
		if err := os.Setenv(key, value); err != nil {
			return Config{}, fault.New(fault.ConfigurationInvalid, "The environment that is registered for the server cannot be set.", "Correct the names of its variables in the client's file.").Because(err)
		}
	}
	server, _, err := (&app{}).command().Find([]string{"mcp"})
	if err != nil {
		return Config{}, err
	}
	if len(command) > 1 && server.ParseFlags(command[2:]) != nil {
		return loadConfig((&app{}).command().Flags())
	}
	return loadConfig(server.Flags())
}
