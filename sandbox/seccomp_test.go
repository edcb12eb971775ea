package sandbox

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	moby "github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"

	"rea/evidence/fault"
)

// The default profile of the container engines is the independent list: ours must allow nothing that it does not
// allow to a container without capabilities, and must spell names as it does.
func TestSeccompIsPartOfEngineDefault(t *testing.T) {
	engine := map[string]bool{
		// Newer than, or conditional in, that list: checked by hand against Linux 6.18's system call table.
		"personality": true, "clone": true, "socketpair": true, "arch_prctl": true, "clone3": true,
	}
	for _, rule := range moby.DefaultProfile().Syscalls {
		if rule.Action == specs.ActAllow && len(rule.Args) == 0 && (rule.Includes == nil || len(rule.Includes.Caps) == 0) {
			for _, n := range rule.Names {
				engine[n] = true
			}
		}
	}
	if len(engine) < 300 {
		t.Fatalf("the engine's list has %d names, too few to compare with", len(engine))
	}
	for _, goarch := range []string{"amd64", "arm64"} {
		for name := range allowed(t, goarch) {
			if !engine[name] {
				t.Errorf("%s: %s is allowed here and not by the engine's default profile", goarch, name)
			}
		}
	}
}

// The list of the security model, typed again: each of these must be refused or, where it says so, filtered.
func TestSeccompRefuses(t *testing.T) {
	forbidden := strings.Fields(`
		ptrace process_vm_readv process_vm_writev pidfd_getfd kcmp process_madvise keyctl add_key request_key
		io_uring_setup io_uring_enter io_uring_register userfaultfd bpf perf_event_open open_by_handle_at
		name_to_handle_at mount umount umount2 pivot_root chroot open_tree move_mount fsopen fsconfig fsmount fspick
		mount_setattr unshare setns kexec_load kexec_file_load socket bind connect listen accept accept4 inotify_init
		inotify_init1 inotify_add_watch fanotify_init fanotify_mark seccomp memfd_create reboot init_module
		finit_module swapon acct syslog iopl ioperm modify_ldt mknod mknodat setxattr mq_open shmget setuid setgroups
		capset vmsplice tee sync clone3`)
	for _, goarch := range []string{"amd64", "arm64"} {
		names := allowed(t, goarch)
		for _, f := range forbidden {
			if names[f] {
				t.Errorf("%s: %s is allowed", goarch, f)
			}
		}
	}
}

func TestSeccompFilters(t *testing.T) {
	p, err := SeccompProfile(SeccompStatic)
	if err != nil {
		t.Fatal(err)
	}
	// Masks by hand from include/uapi/linux/sched.h: NEWNS 0x20000, NEWCGROUP 0x2000000, NEWUTS 0x4000000,
	// NEWIPC 0x8000000, NEWUSER 0x10000000, NEWPID 0x20000000, NEWNET 0x40000000. SOCK_STREAM 1, SOCK_SEQPACKET 5.
	const namespaces = 0x20000 + 0x2000000 + 0x4000000 + 0x8000000 + 0x10000000 + 0x20000000 + 0x40000000
	enosys := uint(38)
	pair := func(kind uint64) specs.LinuxSyscall {
		return specs.LinuxSyscall{Names: []string{"socketpair"}, Action: specs.ActAllow, Args: []specs.LinuxSeccompArg{
			{Index: 0, Value: 1, Op: specs.OpEqualTo}, {Index: 1, Value: 0xf, ValueTwo: kind, Op: specs.OpMaskedEqual}}}
	}
	query := func(value uint64) specs.LinuxSyscall {
		return specs.LinuxSyscall{Names: []string{"personality"}, Action: specs.ActAllow,
			Args: []specs.LinuxSeccompArg{{Index: 0, Value: value, Op: specs.OpEqualTo}}}
	}
	want := []specs.LinuxSyscall{
		{Names: []string{"clone"}, Action: specs.ActAllow,
			Args: []specs.LinuxSeccompArg{{Index: 0, Value: namespaces, ValueTwo: 0, Op: specs.OpMaskedEqual}}},
		{Names: []string{"clone3"}, Action: specs.ActErrno, ErrnoRet: &enosys},
		query(0), query(0xffffffff), pair(1), pair(5),
	}
	if diff := cmp.Diff(want, p.Filter.Syscalls[1:]); diff != "" {
		t.Errorf("conditional rules (-want +got):\n%s", diff)
	}
	if p.Filter.DefaultAction != specs.ActErrno || *p.Filter.DefaultErrnoRet != 1 || len(p.Filter.Architectures) != 1 {
		t.Errorf("default %v %v for %v, want EPERM and one architecture",
			p.Filter.DefaultAction, p.Filter.DefaultErrnoRet, p.Filter.Architectures)
	}
}

func TestSeccompListHasNoDoubles(t *testing.T) {
	for _, goarch := range []string{"amd64", "arm64"} {
		f, err := parseSeccomp(seccompStatic, goarch)
		if err != nil {
			t.Fatal(err)
		}
		names := f.Syscalls[0].Names
		if got := len(slices.Compact(slices.Clone(names))); got != len(names) {
			t.Errorf("%s: %d names, %d distinct", goarch, len(names), got)
		}
	}
}

func TestSeccompProfileUnknown(t *testing.T) {
	_, err := SeccompProfile("none")
	var f *fault.Error
	if !errors.As(err, &f) || f.Code != fault.CapabilityUnavailable {
		t.Errorf("SeccompProfile(none) = %v, want capability_unavailable", err)
	}
}

func TestParseSeccompErrors(t *testing.T) {
	for _, line := range []string{"amd64", "clone arg0", "clone arg9=1", "clone x=1", "clone arg0&z=1", "clone arg0=x", "clone errno=x"} {
		if _, err := parseSeccomp("read\n"+line, "amd64"); err == nil || !strings.Contains(err.Error(), "line 2") {
			t.Errorf("parseSeccomp(%q) = %v, want an error that names line 2", line, err)
		}
	}
	if _, err := parseSeccomp("read", "mips"); err == nil {
		t.Error("parseSeccomp for mips succeeded")
	}
}

// allowed gives every name that some rule allows.
func allowed(t *testing.T, goarch string) map[string]bool {
	t.Helper()
	f, err := parseSeccomp(seccompStatic, goarch)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, rule := range f.Syscalls {
		for _, n := range rule.Names {
			if rule.Action == specs.ActAllow {
				names[n] = true
			}
		}
	}
	return names
}
