package mcp

import (
	"context"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"rea/evidence"
	"rea/orchestrator/schema"
)

// prompts is the result of prompts/list.
func (s *server) prompts() []byte {
	entries := []any{}
	for _, p := range s.o.Session.Guide().Prompts() {
		entries = append(entries, map[string]any{"name": p.Name, "title": p.Title, "description": p.Description, "arguments": p.Arguments})
	}
	return ours(map[string]any{"prompts": entries})
}

// prompt answers prompts/get. Argument names that the prompt does not know are ignored.
func (s *server) prompt(_ context.Context, req *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
	cl := s.conn.running(req.Params.Arguments["call"])
	var in struct {
		Name      string            `json:"name"`
		Arguments map[string]string `json:"arguments"`
	}
	if err := read(cl.params, &in); err != nil {
		return nil, err
	}
	p, ok := s.o.Session.Guide().Prompt(in.Name)
	if !ok {
		return nil, refused(methodGetPrompt, schema.Issue{Path: []any{"name"}, Reason: schema.InvalidValue, Expected: "a prompt that prompts/list names"})
	}
	if issues := p.Check(in.Arguments, false); len(issues) > 0 {
		return nil, refused(methodGetPrompt, issues...)
	}
	text, err := p.Render(in.Arguments)
	if err != nil {
		return nil, err
	}
	cl.result, err = evidence.Canonical(map[string]any{"description": p.Description, "messages": []any{
		map[string]any{"role": "user", "content": map[string]any{"type": "text", "text": text}}}})
	return &sdk.GetPromptResult{}, err
}

// complete answers completion/complete.
func (s *server) complete(ctx context.Context, req *sdk.CompleteRequest) (*sdk.CompleteResult, error) {
	cl := s.conn.running(req.Params.Argument.Name)
	var in struct {
		Ref struct {
			Name string `json:"name"`
		} `json:"ref"`
		Argument struct {
			Name  string `json:"name"`
			Value string `json:"value"`
		} `json:"argument"`
	}
	if err := read(cl.params, &in); err != nil {
		return nil, err
	}
	suggestions, issues := s.o.Session.Complete(ctx, in.Ref.Name, in.Argument.Name, in.Argument.Value)
	if len(issues) > 0 {
		return nil, refused(methodComplete, issues...)
	}
	var err error
	cl.result, err = evidence.Canonical(map[string]any{"completion": suggestions})
	return &sdk.CompleteResult{}, err
}

// read decodes parameters whose form was checked; further members are the protocol's.
func read(params jsontext.Value, into any) error {
	return json.Unmarshal(params, into, jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
}

// refused is the protocol's error for parameters that mean nothing here.
func refused(method string, issues ...schema.Issue) error {
	e := invalidParams(method, issues)
	return &jsonrpc.Error{Code: int64(e.Code), Message: e.Message, Data: []byte(e.Data)}
}
