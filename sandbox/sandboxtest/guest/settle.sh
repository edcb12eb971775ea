#!/bin/sh
# Sets up the guest's root directory $1 as a host that most users have: cgroup v2, systemd, the engine with its systemd
# cgroup driver. Nothing in it reaches a network.
set -eu
root=$1
inside() { chroot "$root" "$@"; }

echo rea-guest > "$root/etc/hostname"
echo '127.0.0.1 localhost rea-guest' > "$root/etc/hosts"
echo '/dev/vda / ext4 defaults,x-systemd.device-timeout=90 0 1' > "$root/etc/fstab"
mkdir -p "$root/payload" "$root/etc/docker" "$root/etc/systemd/journald.conf.d"
echo '{"bridge": "none", "iptables": false, "ip6tables": false}' > "$root/etc/docker/daemon.json"
printf '[Journal]\nStorage=volatile\n' > "$root/etc/systemd/journald.conf.d/rea.conf"
for module in kvm kvm_intel kvm_amd ata_piix aesni_intel powernow_k8; do
	echo "blacklist $module"
done > "$root/etc/modprobe.d/rea.conf"
inside useradd -m -G docker tester
# Nobody logs in here; what waits for devices and terminals only costs time.
inside systemctl -q mask getty@tty1.service serial-getty@ttyS0.service serial-getty@ttyS1.service serial-getty@hvc0.service \
	'modprobe@.service' apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer

cat > "$root/usr/local/sbin/rea-guest" <<'END'
#!/bin/bash
# Says when the engine is ready, waits for a line "MARK SECONDS", and runs the payload disk's script: its output, then
# a line "MARK EXITCODE".
stty -F /dev/ttyS1 raw -echo
exec < /dev/ttyS1 > /dev/ttyS1 2>&1
until docker info > /dev/null 2>&1; do sleep 1; done
echo ready
read -r mark now
date -s "@$now" > /dev/null
mount -t ext4 -o ro /dev/vdb /payload
bash /payload/run < /dev/null
code=$?
printf '\n%s %s\n' "$mark" "$code"
sleep infinity
END
chmod 755 "$root/usr/local/sbin/rea-guest"
cat > "$root/etc/systemd/system/rea-guest.service" <<'END'
[Unit]
After=docker.service
Wants=docker.service
[Service]
ExecStart=/usr/local/sbin/rea-guest
Environment=HOME=/root
StandardOutput=journal+console
[Install]
WantedBy=multi-user.target
END
inside systemctl -q enable docker.service rea-guest.service
inside apt-get clean
rm -rf "$root/var/lib/apt/lists"/* "$root/var/log"/*
