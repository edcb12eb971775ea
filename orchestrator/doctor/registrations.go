package doctor

import (
	"strings"

	"rea/orchestrator/clients"
)

// Registration is what a client has registered. Whether a server of it runs is not known from a file: only a connection
// could say, and an examination has none.
type Registration struct {
	clients.Registration
	LiveServer string `json:"live_server"` // always unknown
}

// registrations tells how the registrations of MCP clients stand to this program. None of them keeps a host from
// working.
func (r *Report) registrations(list []clients.Registration) {
	c := Check{Name: "client registrations", Status: OK}
	var parts, amiss []string
	for _, one := range list {
		r.Registrations = append(r.Registrations, Registration{one, "unknown"})
		if one.State == clients.Missing && !one.Installed {
			continue
		}
		parts = append(parts, one.Name+" "+string(one.State))
		if one.State == clients.Stale || one.State == clients.Invalid {
			amiss = append(amiss, one.Name+": "+one.Reason)
		}
	}
	if c.Detail = strings.Join(parts, ", "); parts == nil {
		c.Detail = "no MCP client was found"
	}
	if amiss != nil {
		c.Status, c.Cost, c.Remedy = Warning, strings.Join(amiss, " "), "Run rea setup; it shows what it would change before it does."
	}
	r.add(c)
}
