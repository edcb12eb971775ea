#!/bin/sh
# Prepares a fresh Debian or Ubuntu host for rea: a container engine, an OCI runtime and, with --tests, the programs
# that the test suite compares rea with. Installs only what is missing, starts the engine only if it does not answer,
# and changes nothing on a host that is ready. Needs root or sudo; says what it does.
set -eu

want_tests=no
[ "${1:-}" = "--tests" ] && want_tests=yes

say() { printf 'bootstrap: %s\n' "$*" >&2; }
fail() { say "$1"; exit 4; }

as_root() {
	if [ "$(id -u)" = 0 ]; then "$@"; return; fi
	command -v sudo >/dev/null 2>&1 || fail "this step needs root and sudo is not installed: $*"
	sudo "$@"
}

have() { command -v "$1" >/dev/null 2>&1 || [ -x "/usr/sbin/$1" ] || [ -x "/sbin/$1" ]; }

# missing PROGRAM PACKAGE: remembers PACKAGE when PROGRAM is not there.
packages=""
missing() { have "$1" || packages="$packages $2"; }

missing dockerd docker.io
missing runc runc
if [ "$want_tests" = yes ]; then
	missing gcc gcc # the race detector needs a C compiler; rea itself does not
	missing unzip unzip
	missing zip zip
	missing python3 python3
	missing bsdtar libarchive-tools
	missing 7z p7zip-full
	missing ar binutils
	missing dpkg-deb dpkg
	missing cpio cpio
	missing rpmbuild rpm
	missing rpm2cpio rpm2cpio
	missing gcab gcab
	missing cabextract cabextract
	missing xz xz-utils
	missing zstd zstd
	missing bzip2 bzip2
	missing openssl openssl
	missing setfattr attr
	missing mksquashfs squashfs-tools
	missing genisoimage genisoimage
	missing xorriso xorriso
	missing gsf libgsf-bin
	missing wixl wixl
fi

if [ -n "$packages" ]; then
	have apt-get || fail "apt-get is not here; install by hand:$packages"
	say "installing$packages"
	as_root env DEBIAN_FRONTEND=noninteractive apt-get update -q >/dev/null
	# shellcheck disable=SC2086 # a list of words on purpose
	as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $packages >/dev/null
fi

socket=/var/run/docker.sock
# A request that every engine answers without credentials; python3, curl or the docker client, whichever is there.
engine_answers() {
	[ -S "$socket" ] || return 1
	if have docker; then as_root docker -H "unix://$socket" version >/dev/null 2>&1; return; fi
	if have curl; then as_root curl -sf --unix-socket "$socket" http://engine/_ping >/dev/null 2>&1; return; fi
	as_root python3 - "$socket" <<'PY' >/dev/null 2>&1
import socket, sys
s = socket.socket(socket.AF_UNIX); s.settimeout(5); s.connect(sys.argv[1])
s.sendall(b"GET /_ping HTTP/1.0\r\n\r\n"); sys.exit(b"200" not in s.recv(64))
PY
}

start_engine() {
	if [ -d /run/systemd/system ]; then
		say "starting docker.service"
		as_root systemctl start docker.service
		return
	fi
	# No service manager: start it by hand. rea gives its containers no network, so the engine needs no bridge.
	say "starting dockerd by hand (log: /var/log/rea-dockerd.log)"
	as_root sh -c 'PATH="$PATH:/usr/sbin:/sbin" setsid dockerd --bridge=none --iptables=false >/var/log/rea-dockerd.log 2>&1 </dev/null &'
}

if ! engine_answers; then
	start_engine
	n=0
	until engine_answers; do
		n=$((n + 1))
		[ "$n" -le 60 ] || fail "the engine did not answer within 60 s; see /var/log/rea-dockerd.log or journalctl -u docker"
		sleep 1
	done
fi
say "ready"
