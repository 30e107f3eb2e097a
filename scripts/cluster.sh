#!/usr/bin/env bash
# A ring on a real cluster, on this machine: GlusterFS and SLURM on two nodes that are namespaces. See docs/cluster.md.
#   scripts/cluster.sh                       everything, with a storm of two minutes
#   scripts/cluster.sh --seconds 600 storm   one part: storm, late, doctor, slurm
# Needs root and Debian's packages, which it installs. The exit status is 77 where it cannot run, and 1 when a promise was
# broken. RINGREEL names the command to test; without it, it is built.
set -euo pipefail
cd "$(dirname "$0")/.."
packages=(glusterfs-server glusterfs-client slurmctld slurmd slurm-client munge iproute2)
commands=(glusterd glusterfs gluster slurmctld slurmd sbatch munged ip nsenter unshare setpriv mkfs.ext4)

skip() {
    echo "SKIPPED: no cluster here: $1" >&2
    exit 77
}

missing() {
    local command
    for command in "${commands[@]}"; do
        command -v "$command" >/dev/null || echo "$command"
    done
}

[ "$(id -u)" = 0 ] || skip "it needs root"
PATH=$PATH:/usr/sbin:/sbin
if [ -n "$(missing)" ]; then
    command -v apt-get >/dev/null || skip "there is no $(missing | head -n 1), and no apt-get"
    {
        apt-get update
        DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends "${packages[@]}"
    } >/dev/null 2>&1 || true
    [ -z "$(missing)" ] || skip "there is no $(missing | head -n 1): install ${packages[*]}"
fi
[ -c /dev/fuse ] || skip "there is no /dev/fuse"
unshare --net --mount --uts --pid --fork --mount-proc true 2>/dev/null || skip "namespaces cannot be made"

if [ -z "${RINGREEL:-}" ]; then
    cargo build --quiet --release --bin ringreel
    RINGREEL=$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/release/ringreel
fi
exec "${PYTHON:-python3}" tests/cluster/run.py --ringreel "$(realpath "$RINGREEL")" "$@"
