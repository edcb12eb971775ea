package session

import (
	"context"
	"slices"
	"strings"

	"rea/evidence"
	"rea/evidence/fault"
	"rea/providers"
	"rea/providers/artifact"
	"rea/providers/builtin"
)

// Statuses of a candidate.
const (
	StatusAvailable   = "available"
	StatusUnavailable = "unavailable"
	StatusUnknown     = "unknown"
)

// Offer is what this program could do on this host, whatever the target.
type Offer struct {
	Providers  []Candidate // every provider that is linked in, by id
	Candidates []struct{}  // those among them that are deep-analysis engines: none is built in
	Tools      ToolAvailability
	Catalog    CatalogIdentity
}

// Candidate is a provider that could be used, by the same facts as in binary_session.
type Candidate struct {
	Provider     evidence.Provider `json:"provider"`
	Availability Finding           `json:"availability"`
	Target       Finding           `json:"target_support"`
	Selected     bool              `json:"selected"`
	Capabilities []CapabilitySet   `json:"capabilities"`
}

// Finding is one status with its reason.
type Finding struct {
	Status      string         `json:"status"`
	Code        *string        `json:"code"`
	Reason      *string        `json:"reason"`
	Diagnostics map[string]any `json:"diagnostics"`
}

// Offer says what this program could do here. It starts nothing.
func (s *Session) Offer(ctx context.Context) (Offer, error) {
	state, err := s.BinarySession(ctx, Expectations{}, Connection{})
	if err != nil {
		return Offer{}, err
	}
	o := Offer{Candidates: state.Candidates, Tools: state.ToolAvailability, Catalog: state.ServerIdentity.Catalog}
	host := s.analyzer.Available(ctx)
	for _, p := range builtin.Providers() {
		o.Providers = append(o.Providers, candidate(p, host))
	}
	slices.SortFunc(o.Providers, func(a, b Candidate) int { return strings.Compare(a.Provider.ID, b.Provider.ID) })
	return o, nil
}

// candidate is a provider without a target. Every provider's runs need what one run needs of a host.
func candidate(p providers.Provider, host error) Candidate {
	m := p.Manifest()
	c := Candidate{
		Provider:     evidence.Provider{ID: m.ID, Name: m.Name, Version: m.Version},
		Availability: Finding{Status: StatusAvailable, Diagnostics: map[string]any{}},
		Target:       Finding{Status: StatusUnknown, Diagnostics: map[string]any{}},
	}
	if host != nil {
		code, reason := "unsupported_host", fault.From(host).Message
		c.Availability.Status, c.Availability.Code, c.Availability.Reason = StatusUnavailable, &code, &reason
	}
	set := CapabilitySet{Provider: c.Provider, SharedLimitations: []string{}, Groups: []CapabilityGroup{}}
	for _, op := range p.Operations() {
		set.add(op.Name, c.Availability)
	}
	slices.SortFunc(set.Groups, func(a, b CapabilityGroup) int { return strings.Compare(a.Operations[0], b.Operations[0]) })
	c.Capabilities = []CapabilitySet{set}
	return c
}

// add puts an operation into the group that shares its facts.
func (set *CapabilitySet) add(operation string, host Finding) {
	effects := effectsOf(operation)
	for i := range set.Groups {
		if g := &set.Groups[i]; slices.Equal(g.Effects, effects) {
			g.Operations = append(g.Operations, operation)
			slices.Sort(g.Operations)
			return
		}
	}
	set.Groups = append(set.Groups, CapabilityGroup{Operations: []string{operation}, Available: host.Code == nil,
		Reason: host.Reason, AvailabilityCode: host.Code, Effects: effects, Limitations: []string{}})
}

// effectsOf lists what an operation does beyond reading.
func effectsOf(operation string) []string {
	if operation == artifact.OpExtract {
		return []string{"may_write_filesystem"}
	}
	return []string{}
}
