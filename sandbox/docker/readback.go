package docker

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/docker/docker/api/types/container"

	"rea/evidence/fault"
)

// readBack compares what the engine says it will run with what was asked, every field, set or not. Engines take
// fields that they do not know without a word, and their configuration fills in what was left out: only this shows
// it. A difference is a refusal that names the field and neither value.
func readBack(want *request, got container.InspectResponse) error {
	var fields []string
	for _, pair := range []struct {
		name      string
		want, got any
	}{
		{"Image", want.config.Image, got.Image},
		{"Config", want.config, got.Config},
		{"HostConfig", want.host, got.HostConfig},
		{"Mounts", wantMounts(want), gotMounts(got)},
	} {
		differ, err := compare(pair.name, pair.want, pair.got)
		if err != nil {
			return fault.From(err)
		}
		fields = append(fields, differ...)
	}
	if len(fields) == 0 {
		return nil
	}
	return unavailable(fields[0],
		"The container engine did not take a control as it was asked for: "+strings.Join(fields, ", ")+".",
		"Look for settings in /etc/docker/daemon.json that change new containers, or install a newer engine.").
		With("fields", fields)
}

// compare returns the paths of the fields that differ. It works on the JSON form, which is what went over the wire.
func compare(name string, want, got any) ([]string, error) {
	w, err := decoded(want)
	if err != nil {
		return nil, err
	}
	g, err := decoded(got)
	if err != nil {
		return nil, err
	}
	return differences(name, w, g), nil
}

func decoded(v any) (any, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var d any
	err = json.Unmarshal(data, &d)
	return d, err
}

// differences compares two decoded JSON values. Objects are compared field by field and everything else as a whole;
// null, false, 0, "" and what is empty or absent mean the same: nothing was asked for.
func differences(name string, want, got any) []string {
	w, isObject := want.(map[string]any)
	g, both := got.(map[string]any)
	if !isObject || !both {
		if empty(want) && empty(got) || reflect.DeepEqual(want, got) {
			return nil
		}
		return []string{name}
	}
	names := maps.Clone(w)
	maps.Copy(names, g)
	var fields []string
	for _, field := range slices.Sorted(maps.Keys(names)) {
		fields = append(fields, differences(name+"."+field, w[field], g[field])...)
	}
	return fields
}

func empty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case map[string]any:
		for _, member := range v {
			if !empty(member) {
				return false
			}
		}
		return true
	case []any:
		return !slices.ContainsFunc(v, func(e any) bool { return !empty(e) })
	}
	return reflect.ValueOf(v).IsZero()
}

// wantMounts and gotMounts describe the mounts that the engine resolved: what was asked for, and nothing beside it.
func wantMounts(want *request) []string {
	var list []string
	for _, m := range want.host.Mounts {
		list = append(list, fmt.Sprintf("%s %s rw=%t", m.Type, m.Target, !m.ReadOnly))
	}
	slices.Sort(list)
	return list
}

func gotMounts(got container.InspectResponse) []string {
	var list []string
	for _, m := range got.Mounts {
		list = append(list, fmt.Sprintf("%s %s rw=%t", m.Type, m.Destination, m.RW))
	}
	slices.Sort(list)
	return list
}
