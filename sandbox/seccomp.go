package sandbox

import (
	_ "embed"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"rea/evidence/fault"
)

// Names of the seccomp profiles.
const (
	SeccompStatic = "static" // the worker alone, parsing
	SeccompEngine = "engine" // an analysis engine below the worker; the same calls for now
)

// architectures names, by GOARCH, the one architecture of a filter. A second one would cost 20 ms a run and open a
// second entry into the kernel; with one, calls of another architecture end the process.
var architectures = map[string]specs.Arch{"amd64": specs.ArchX86_64, "arm64": specs.ArchAARCH64}

//go:embed seccomp_static.txt
var seccompStatic string

var staticFilter = sync.OnceValues(func() (*specs.LinuxSeccomp, error) {
	return parseSeccomp(seccompStatic, runtime.GOARCH)
})

// SeccompProfile gives a profile by name. Filters allow what they list and refuse the rest with EPERM; they are for
// the architecture that this program was built for. The filter is shared: callers must not change it. An unknown name
// or architecture is capability_unavailable.
func SeccompProfile(name string) (Profile, error) {
	if name != SeccompStatic && name != SeccompEngine {
		return Profile{}, fault.New(fault.CapabilityUnavailable, fmt.Sprintf("There is no seccomp profile %q.", name),
			"Use a provider that needs the profile static or engine.").With("feature", "seccomp")
	}
	filter, err := staticFilter()
	if err != nil {
		return Profile{}, fault.New(fault.CapabilityUnavailable,
			"No seccomp filter could be made for the architecture "+runtime.GOARCH+".",
			"Run rea on amd64 or arm64.").With("feature", "seccomp").Because(err)
	}
	return Profile{Name: name, Filter: filter}, nil
}

// parseSeccomp reads the format that seccomp_static.txt explains, for one GOARCH.
func parseSeccomp(text, goarch string) (*specs.LinuxSeccomp, error) {
	arch, ok := architectures[goarch]
	if !ok {
		return nil, fmt.Errorf("no filter for %s", goarch)
	}
	eperm := uint(unix.EPERM)
	filter := &specs.LinuxSeccomp{
		DefaultAction:   specs.ActErrno,
		DefaultErrnoRet: &eperm,
		Architectures:   []specs.Arch{arch},
		Syscalls:        []specs.LinuxSyscall{{Action: specs.ActAllow}}, // the plain names, in one rule
	}
	for number, line := range strings.Split(text, "\n") {
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if _, named := architectures[fields[0]]; named {
			if fields[0] != goarch {
				continue
			}
			fields = fields[1:]
		}
		rule, err := parseRule(fields)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number+1, err)
		}
		if rule.Action == specs.ActAllow && rule.Args == nil {
			filter.Syscalls[0].Names = append(filter.Syscalls[0].Names, rule.Names...)
			continue
		}
		filter.Syscalls = append(filter.Syscalls, rule)
	}
	slices.Sort(filter.Syscalls[0].Names)
	return filter, nil
}

func parseRule(fields []string) (specs.LinuxSyscall, error) {
	if len(fields) == 0 {
		return specs.LinuxSyscall{}, fmt.Errorf("no name")
	}
	rule := specs.LinuxSyscall{Names: fields[:1:1], Action: specs.ActAllow}
	for _, f := range fields[1:] {
		key, value, ok := strings.Cut(f, "=")
		n, err := strconv.ParseUint(value, 0, 64)
		if !ok || err != nil {
			return rule, fmt.Errorf("%q has no number behind an equals sign", f)
		}
		if key == "errno" {
			errno := uint(n)
			rule.Action, rule.ErrnoRet = specs.ActErrno, &errno
			continue
		}
		arg, err := parseArg(key, n)
		if err != nil {
			return rule, err
		}
		rule.Args = append(rule.Args, arg)
	}
	return rule, nil
}

// parseArg reads argN or argN&MASK. Of a masked comparison, the OCI value is the mask and the second one what must be
// left under it.
func parseArg(key string, n uint64) (specs.LinuxSeccompArg, error) {
	index, mask, masked := strings.Cut(key, "&")
	i, err := strconv.ParseUint(strings.TrimPrefix(index, "arg"), 10, 3)
	if err != nil || !strings.HasPrefix(index, "arg") || i > 5 {
		return specs.LinuxSeccompArg{}, fmt.Errorf("%q is not arg0 to arg5", index)
	}
	arg := specs.LinuxSeccompArg{Index: uint(i), Value: n, Op: specs.OpEqualTo}
	if masked {
		m, err := strconv.ParseUint(mask, 0, 64)
		if err != nil {
			return arg, fmt.Errorf("%q is not a mask", mask)
		}
		arg.Value, arg.ValueTwo, arg.Op = m, n, specs.OpMaskedEqual
	}
	return arg, nil
}
