package guidance

import (
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"rea/evidence/fault"
	"rea/orchestrator/catalog"
	"rea/orchestrator/schema"
)

// Workflow is a prompt as guided_workflows lists it.
type Workflow struct {
	ID          string     `json:"workflow_id"`
	Title       string     `json:"title"`
	Description string     `json:"description"`
	Arguments   []Argument `json:"arguments"`
}

// Rendered is a prompt that was written out.
type Rendered struct {
	ID   string `json:"workflow_id"`
	Text string `json:"text"`
}

// Workflows lists the prompts that are served.
func (g *Guide) Workflows() []Workflow {
	out := []Workflow{}
	for _, p := range g.prompts {
		out = append(out, Workflow{p.Name, p.Title, p.Description, p.Arguments})
	}
	return out
}

// Guided carries out guided_workflows on valid arguments: the list of workflows, or one written out.
func (g *Guide) Guided(arguments jsontext.Value) (any, error) {
	var in struct {
		Action     string            `json:"action"`
		WorkflowID string            `json:"workflow_id"`
		Arguments  map[string]string `json:"arguments"`
	}
	if err := json.Unmarshal(arguments, &in, json.RejectUnknownMembers(true)); err != nil {
		return nil, fault.From(err)
	}
	if in.Action == "list" {
		return map[string]any{"workflows": g.Workflows()}, nil
	}
	p, ok := g.Prompt(in.WorkflowID)
	if !ok {
		var ids []string
		for _, p := range g.prompts {
			ids = append(ids, p.Name)
		}
		return nil, schema.Reject(catalog.GuidedWorkflows, schema.Issue{Path: []any{"workflow_id"}, Reason: schema.InvalidValue, Expected: "one of: " + strings.Join(ids, ", ")})
	}
	if issues := p.Check(in.Arguments, true); len(issues) > 0 {
		return nil, schema.Reject(catalog.GuidedWorkflows, issues...)
	}
	text, err := p.Render(in.Arguments)
	if err != nil {
		return nil, fault.From(err)
	}
	return Rendered{p.Name, text}, nil
}
