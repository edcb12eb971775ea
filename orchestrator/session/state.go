package session

import (
	"context"
	"errors"
	"runtime/debug"
	"time"

	"rea/evidence"
	"rea/evidence/fault"
	"rea/orchestrator/catalog"
	"rea/orchestrator/guidance"
	"rea/providers/artifact"
)

// Server is what binary_session says about this program.
type Server struct {
	Name        string // package and server
	Version     string
	RootPath    string // directory of the installation
	BuildCommit string // "" for null
	CommandPath string // the running program
	Started     time.Time
	Commands    []string // commands of the command line, for the catalog's identity
}

// Connection is what is known of the other side when binary_session is asked.
type Connection struct {
	Protocol string      // negotiated MCP version, "" for null
	Client   *ClientInfo // nil for null
	Features Features
}

// ClientInfo is how a client names itself.
type ClientInfo struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// Features are what a client offered in the handshake.
type Features struct {
	ElicitationForm bool `json:"elicitation_form"`
	ElicitationURL  bool `json:"elicitation_url"`
	Roots           bool `json:"roots"`
	Sampling        bool `json:"sampling"`
}

// Expectations are the input of binary_session: what the caller believes to be running. "" is no expectation.
type Expectations struct {
	PackageVersion string `json:"expected_package_version"`
	CatalogDigest  string `json:"expected_catalog_digest"`
	ServerPath     string `json:"expected_server_path"`
}

// State is the result of binary_session.
type State struct {
	Open         bool     `json:"open"`
	Path         string   `json:"path,omitzero"`
	SHA256       string   `json:"sha256,omitzero"`
	Format       string   `json:"format,omitzero"`
	Kind         Kind     `json:"kind,omitzero"`
	Architecture **string `json:"architecture,omitzero"` // absent without a target, null without an architecture

	Capabilities     []CapabilitySet  `json:"capabilities"`
	Binding          *struct{}        `json:"analysis_provider_binding"`    // null: no deep-analysis engine is built in
	Candidates       []struct{}       `json:"analysis_provider_candidates"` // none, for the same reason
	Run              *Run             `json:"analysis_run"`
	Activity         Activity         `json:"analysis_activity"`
	Health           Health           `json:"provider_operation_health"`
	ToolAvailability ToolAvailability `json:"tool_availability"`
	ClientFeatures   Features         `json:"client_features"`
	ServerIdentity   ServerIdentity   `json:"server_identity"`
}

// CapabilitySet groups what one provider can do for the target by equal facts.
type CapabilitySet struct {
	Provider          evidence.Provider `json:"provider"`
	SharedLimitations []string          `json:"shared_limitations"`
	Groups            []CapabilityGroup `json:"groups"`
}

// CapabilityGroup is a set of operations with equal facts.
type CapabilityGroup struct {
	Operations       []string `json:"operations"`
	Available        bool     `json:"available"`
	Reason           *string  `json:"reason"`
	AvailabilityCode *string  `json:"availability_code"`
	Effects          []string `json:"effects"`
	Limitations      []string `json:"limitations"`
}

// Run identifies what was done with one target.
type Run struct {
	RunID   string         `json:"run_id"`
	Lineage ProcessLineage `json:"process_lineage"`
}

// ProcessLineage says which engine processes were seen.
type ProcessLineage struct {
	Status string `json:"status"` // not_observed until an engine was started
}

// Activity says what engines do now.
type Activity struct {
	Status    string     `json:"status"`
	Providers []struct{} `json:"providers"`
}

// Health is the state of the bound engine.
type Health struct {
	State       string     `json:"state"`
	Stage       *string    `json:"stage"`
	RetryAction *string    `json:"retry_action"`
	ExitCode    *int       `json:"exit_code"`
	Requests    []struct{} `json:"requests"`
}

// ToolAvailability names every tool with whether it can be called now.
type ToolAvailability struct {
	ClientRequirements ClientRequirements `json:"client_requirements"`
	Groups             []ToolGroup        `json:"groups"`
}

// ClientRequirements are client features that tools need.
type ClientRequirements struct {
	Required        []string `json:"required"`
	Optional        []string `json:"optional"`
	MissingRequired []string `json:"missing_required"`
	MissingOptional []string `json:"missing_optional"`
}

// ToolGroup is a set of tools that share every fact.
type ToolGroup struct {
	Names       []string `json:"names"`
	Surface     string   `json:"surface"`
	Available   bool     `json:"available"`
	Reason      string   `json:"reason"`
	Remediation *string  `json:"remediation"`
	Effects     []string `json:"effects"`
	Annotations []string `json:"annotations"`
}

// ServerIdentity says exactly what is running.
type ServerIdentity struct {
	Package   PackageIdentity  `json:"package"`
	Server    ProcessIdentity  `json:"server"`
	SDK       SDKIdentity      `json:"sdk"`
	Protocol  *string          `json:"negotiated_protocol_version"`
	Client    *ClientInfo      `json:"client"`
	Skill     SkillIdentity    `json:"skill"`
	Catalog   CatalogIdentity  `json:"catalog"`
	Features  ProtocolFeatures `json:"protocol_features"`
	Alignment Alignment        `json:"alignment"`
}

// PackageIdentity is the installation.
type PackageIdentity struct {
	Name        string  `json:"name"`
	Version     string  `json:"version"`
	RootPath    string  `json:"root_path"`
	BuildCommit *string `json:"build_commit"`
}

// ProcessIdentity is the running process.
type ProcessIdentity struct {
	Name        string `json:"name"`
	Version     string `json:"version"`
	StartedAt   string `json:"started_at"`
	CommandPath string `json:"command_path"`
}

// SDKIdentity is the version of the MCP library, one module for all three pieces.
type SDKIdentity struct {
	Server     string `json:"server"`
	ClientTest string `json:"client_test"`
	Core       string `json:"core"`
}

// SkillIdentity is the skill that belongs to this version.
type SkillIdentity struct {
	Name            string `json:"name"`
	ExpectedVersion string `json:"expected_version"`
}

// CatalogIdentity identifies the contracts that are served.
type CatalogIdentity struct {
	Counts  CatalogCounts   `json:"counts"`
	Digests catalog.Digests `json:"digests"`
}

// CatalogCounts are the sizes of the catalog.
type CatalogCounts struct {
	Commands int `json:"cli_commands"`
	Tools    int `json:"mcp_tools"`
	Prompts  int `json:"mcp_prompts"`
}

// ProtocolFeatures are the features of MCP that this server uses.
type ProtocolFeatures struct {
	Progress     bool `json:"progress"`
	Cancellation bool `json:"cancellation"`
	Elicitation  bool `json:"elicitation"`
}

// Alignment says whether the caller's expectations hold.
type Alignment struct {
	State       string   `json:"state"` // unknown, aligned, mcp_server_restart_required
	Reasons     []string `json:"reasons"`
	Remediation *string  `json:"remediation"`
}

const (
	sdkModule  = "github.com/modelcontextprotocol/go-sdk"
	unbuilt    = "unknown" // version of a module in a program that carries no build information
	notStarted = "not_started"
	unobserved = "not_observed"
)

// BinarySession says what can be done now and what is running. It starts nothing.
func (s *Session) BinarySession(ctx context.Context, e Expectations, c Connection) (State, error) {
	identity, err := s.identify(e, c)
	if err != nil {
		return State{}, err
	}
	st := State{
		Capabilities: []CapabilitySet{},
		Candidates:   []struct{}{},
		Activity:     Activity{Status: unobserved, Providers: []struct{}{}},
		Health:       Health{State: notStarted, Requests: []struct{}{}},
		ToolAvailability: ToolAvailability{
			ClientRequirements: ClientRequirements{[]string{}, []string{}, []string{}, []string{}},
			Groups:             s.groups(ctx),
		},
		ClientFeatures: c.Features,
		ServerIdentity: identity,
	}
	if t := s.active(); t != nil {
		architecture := orNull(t.Architecture)
		st.Open, st.Path, st.SHA256, st.Format, st.Kind, st.Architecture = true, t.Path, t.SHA256, t.Format, t.Kind, &architecture
		st.Capabilities = []CapabilitySet{capabilities(t)}
		st.Run = &Run{t.runID, ProcessLineage{unobserved}}
	}
	return st, nil
}

// capabilities are those of the artifact reader, which is the current route of every target: it takes stock of any
// file, and extracts from what holds members.
func capabilities(t *target) CapabilitySet {
	m := artifact.Provider().Manifest()
	group := func(operation string) CapabilityGroup {
		return CapabilityGroup{Operations: []string{operation}, Available: true, Effects: effectsOf(operation), Limitations: []string{}}
	}
	extract := group(artifact.OpExtract)
	if t.Kind != Archive {
		reason, code := "The target holds no members that could be extracted.", "target_format_unsupported"
		extract.Available, extract.Reason, extract.AvailabilityCode = false, &reason, &code
	}
	return CapabilitySet{
		Provider:          evidence.Provider{ID: m.ID, Name: m.Name, Version: m.Version},
		SharedLimitations: []string{},
		Groups:            []CapabilityGroup{extract, group(artifact.OpInventory)}, // by first operation
	}
}

// groups lists every tool with whether a call can succeed, tools with equal facts together.
func (s *Session) groups(ctx context.Context) []ToolGroup {
	host := s.analyzer.Available(ctx)
	groups := []ToolGroup{}
	index := map[string]int{}
	for _, t := range s.catalog.Tools() {
		g := s.group(t, host)
		key, err := evidence.Digest(g) // of everything but the names, which are not set yet
		if err != nil {
			key = t.Name
		}
		at, ok := index[key]
		if !ok {
			at = len(groups)
			index[key] = at
			groups = append(groups, g)
		}
		groups[at].Names = append(groups[at].Names, t.Name)
	}
	return groups
}

func (s *Session) group(t *catalog.Tool, host error) ToolGroup {
	g := ToolGroup{Names: []string{}, Surface: string(t.Surface), Available: true, Reason: "available",
		Effects: t.Effects.List(), Annotations: t.Effects.Annotations().List()}
	switch {
	case t.Needs.Sandbox && host != nil:
		g.Available, g.Reason, g.Remediation = false, "unsupported_host", action(host)
	case t.Needs.Target && s.active() == nil:
		open := "Open a target with " + catalog.OpenBinary + " first."
		g.Available, g.Reason, g.Remediation = false, "target_required", &open
	}
	return g
}

func action(err error) *string {
	var f *fault.Error
	text := "Run rea doctor to see what is missing."
	if errors.As(err, &f) && f.Action != "" {
		text = f.Action
	}
	return &text
}

// identify compares what runs with what the caller expects.
func (s *Session) identify(e Expectations, c Connection) (ServerIdentity, error) {
	digests, err := s.digests()
	if err != nil {
		return ServerIdentity{}, err
	}
	sdk := SDKVersion()
	return ServerIdentity{
		Package:  PackageIdentity{s.server.Name, s.server.Version, s.server.RootPath, orNull(s.server.BuildCommit)},
		Server:   ProcessIdentity{s.server.Name, s.server.Version, timestamp(s.server.Started), s.server.CommandPath},
		SDK:      SDKIdentity{sdk, sdk, sdk},
		Protocol: orNull(c.Protocol),
		Client:   c.Client,
		Skill:    SkillIdentity{guidance.SkillName, s.server.Version},
		Catalog: CatalogIdentity{
			Counts:  CatalogCounts{Commands: len(s.server.Commands), Tools: len(s.catalog.Tools()), Prompts: len(s.guide.Prompts())},
			Digests: digests,
		},
		Features:  ProtocolFeatures{Progress: true, Cancellation: true},
		Alignment: align(e, s.server, digests.Combined),
	}, nil
}

func align(e Expectations, server Server, digest string) Alignment {
	if e == (Expectations{}) {
		return Alignment{State: "unknown", Reasons: []string{}}
	}
	reasons := []string{}
	for _, check := range []struct{ expected, actual, reason string }{
		{e.PackageVersion, server.Version, "package_version_mismatch"},
		{e.CatalogDigest, digest, "catalog_digest_mismatch"},
		{e.ServerPath, server.CommandPath, "registration_path_mismatch"},
	} {
		if check.expected != "" && check.expected != check.actual {
			reasons = append(reasons, check.reason)
		}
	}
	if len(reasons) == 0 {
		return Alignment{State: "aligned", Reasons: reasons}
	}
	restart := "Restart the MCP server in the client, with the command of the installation that is expected."
	return Alignment{"mcp_server_restart_required", reasons, &restart}
}

// SDKVersion is the version of the MCP library in this program.
func SDKVersion() string { return moduleVersion(sdkModule) }

// moduleVersion is the version of a module in this program.
func moduleVersion(path string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return unbuilt
	}
	for _, m := range info.Deps {
		if m.Path == path {
			return m.Version
		}
	}
	return unbuilt
}
