#!/bin/bash
# Runs in the guest, as the payload's script: every test program that lies beside it, or with a file named short a few
# of their tests.
cd /payload || exit 1
export HOME=/root TMPDIR=/var/tmp REA_SANDBOXTEST_PROBE=/payload/probe REA_SANDBOXTEST_WORKER=/payload/worker
failed=0

# suite PROGRAM ARGUMENTS... runs one test program in its own directory.
suite() {
	echo "=== $*"
	(cd "$1" && shift && exec ./tests -test.v -test.count=1 -test.timeout=90m "$@") || failed=1
}

# The same host as it looks to a program that finds no systemd on it.
without_systemd() {
	unshare --mount bash -c 'mount -t tmpfs none /run/systemd && exec "$@"' bash "$@"
}

# left prints what the tests left behind: there is to be nothing but the host-wide parents.
left() {
	local units dirs
	units=$(systemctl list-units --all --plain --no-legend 'rea-*.slice' 'rea-*.scope' 'reatest*' 'docker-*.scope')
	dirs=$(find /sys/fs/cgroup -type d \( -path '*/rea/*' -o -path '*/rea.slice/*' -o -name 'rea-test*' -o -name 'reatest*' \))
	if [ -n "$units$dirs" ]; then
		printf 'FAIL: left behind:\n%s\n%s\n' "$units" "$dirs"
		failed=1
	fi
}

few='/^(MemoryLimit|PIDsLimit|KillProvesEmpty|DestroyLeavesNothing)$'
if [ -e short ]; then
	suite cgroup -test.run='Create|Verify|Admission|Usage|Slice'
	suite oci "-test.run=^TestConformance$few"
	suite docker "-test.run=^TestPrivileged$few"
	left
	exit $failed
fi

for program in cgroup staging keeper oci testworker docker; do
	[ -d $program ] && suite $program
done
left

echo '=== the same host without systemd'
export -f suite
without_systemd bash -c 'failed=0; suite cgroup; suite oci "-test.run=^TestConformance$"; exit $failed' || failed=1

echo '=== an engine with its cgroupfs driver'
systemctl stop docker.socket docker.service
dockerd --exec-opt native.cgroupdriver=cgroupfs > /var/tmp/dockerd.log 2>&1 &
until docker info > /dev/null 2>&1; do sleep 1; done
suite docker -test.run='^TestPrivileged$'
left
exit $failed
