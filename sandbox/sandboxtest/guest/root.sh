#!/bin/sh
# Makes the guest's disk, kernel and initial file system from Debian packages: root.sh DIRECTORY. It installs the
# programs that this and the emulator need. The packages come from where this host's own come from, or from MIRROR.
set -eu
suite=trixie
out=$1
here=$(cd "$(dirname "$0")" && pwd)

for program in mmdebstrap mkfs.ext4 qemu-img qemu-system-x86_64; do
	command -v "$program" >/dev/null && continue
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends \
		qemu-system-x86 qemu-utils mmdebstrap e2fsprogs >/dev/null
	break
done
mirror=${MIRROR:-$(apt-get indextargets --format '$(CREATED_BY) $(COMPONENT) $(REPO_URI)' | awk '$1 == "Packages" && $2 == "main" { print $3; exit }')}
[ -n "$mirror" ] || { echo "No package mirror is known: set MIRROR to one that has Debian $suite." >&2; exit 1; }

mkdir -p "$out"
root=$(mktemp -d "$out/root.XXXXXX")
trap 'rm -rf "$root"' EXIT
packages=linux-image-cloud-amd64,initramfs-tools,systemd,systemd-sysv,dbus,udev,kmod,procps,iproute2,iptables,apparmor,docker.io,docker-cli,runc
mmdebstrap --quiet --variant=apt --mode=root --aptopt='APT::Install-Recommends "false"' --dpkgopt=force-unsafe-io \
	--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
	--essential-hook="mkdir -p \$1/etc/initramfs-tools/conf.d \$1/usr/share/initramfs-tools/modules.d" \
	--essential-hook="echo MODULES=list > \$1/etc/initramfs-tools/conf.d/rea; echo virtio_blk > \$1/usr/share/initramfs-tools/modules.d/rea" \
	--include="$packages" --customize-hook="$here/settle.sh \$1" "$suite" "$root" "$mirror"
cp "$root"/boot/vmlinuz-* "$out/vmlinuz"
cp "$root"/boot/initrd.img-* "$out/initrd"
rm -f "$out/root.img"
truncate -s 3G "$out/root.img"
mkfs.ext4 -q -d "$root" "$out/root.img"
