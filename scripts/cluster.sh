#!/usr/bin/env bash
# Runs rings on a real cluster on this machine, which it creates and removes again. See docs/internals/cluster.md.
#   scripts/cluster.sh                              GlusterFS and SLURM; a storm of two minutes
#   scripts/cluster.sh --fs nfs --seconds 600 storm one part, on NFS 4.2
#   scripts/cluster.sh --fs all                     GlusterFS, MooseFS, CephFS, NFS 4.2, NFS 3 (nfs3)
#   scripts/cluster.sh --help                       parts and options
# Needs root and installs Debian packages. The exit status is 77 if it cannot run, and 1 if a guarantee
# was broken. RINGREEL names the command to test; by default the script builds it.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$PATH:/usr/sbin:/sbin
target=${CARGO_TARGET_DIR:-target}

gluster_packages=(glusterfs-server glusterfs-client slurmctld slurmd slurm-client munge iproute2)
gluster_commands=(glusterd glusterfs gluster slurmctld slurmd sbatch munged ip nsenter unshare setpriv mkfs.ext4)
moosefs_packages=(moosefs-master moosefs-chunkserver moosefs-client iproute2)
moosefs_commands=(mfsmaster mfschunkserver mfsmount ip nsenter unshare setpriv mkfs.ext4)
cephfs_packages=(ceph-mon ceph-mgr ceph-osd ceph-mds ceph-fuse ceph-common iproute2)
cephfs_commands=(ceph-mon ceph-mgr ceph-osd ceph-mds ceph-fuse ceph monmaptool ip nsenter unshare setpriv mkfs.ext4)
nfs_packages=(qemu-system-x86 qemu-utils mmdebstrap busybox-static kmod cpio e2fsprogs iproute2)
nfs_commands=(qemu-system-x86_64 mmdebstrap busybox depmod cpio mke2fs mkfs.ext4 ip unshare setpriv dpkg apt-get)

skip() {
    echo "SKIPPED: no cluster with $fs: $1" >&2
    return 77
}

# Prints the missing commands.
missing() {
    local command
    for command in "$@"; do
        command -v "$command" >/dev/null || echo "$command"
    done
}

# Installs the missing commands of KIND. Sets `status` to 77 if that fails.
install() {
    local -n commands=$1_commands packages=$1_packages
    [ "$(id -u)" = 0 ] || { skip "needs root"; return; }
    [ -n "$(missing "${commands[@]}")" ] || return 0
    if command -v apt-get >/dev/null; then
        {
            apt-get update
            DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends "${packages[@]}"
        } >/dev/null 2>&1 || true
    fi
    local first
    first=$(missing "${commands[@]}" | head -n 1)
    [ -z "$first" ] || { skip "$first is missing: install ${packages[*]}"; return; }
}

# Prepares a lab of namespaces with the filesystem KIND.
prepare_namespaces() {
    install "$1" || return
    [ -c /dev/fuse ] || { skip "/dev/fuse is missing"; return; }
    unshare --net --mount --uts --pid --fork --mount-proc true 2>/dev/null || skip "namespaces cannot be made"
}

prepare_nfs() {
    install nfs || return
    unshare --net true 2>/dev/null || { skip "namespaces cannot be made"; return; }
    local place
    for place in "$target" "${TMPDIR:-/tmp}"; do
        mkdir -p "$place"
        [ "$(df --output=avail -BM "$place" | tail -n 1 | tr -dc 0-9)" -ge 2048 ] ||
            { skip "$place has less than 2 GB of free disk space"; return; }
    done
    scripts/mongodb.sh java || true # without it, the part mongodb is skipped
    local log=$target/nfs-images.log
    tests/cluster/guest/image.sh "$target/nfs-images" >"$log" 2>&1 ||
        skip "the machines' images could not be made, see $log: $(tail -n 1 "$log")"
}

# Runs the parts on one filesystem, in a network namespace without other devices. The machines end with the
# program, and the program with this script.
run() {
    local status=0
    setpriv --pdeathsig TERM unshare --net sh -c 'ip link set lo up && exec "$@"' run \
        "${PYTHON:-python3}" tests/cluster/run.py --fs "$fs" --ringreel "$(realpath "$RINGREEL")" \
        --images "$(realpath -m "$target/nfs-images")" "$@" &
    trap "kill -TERM $! 2>/dev/null" INT TERM
    wait $! || status=$?
    # A signal ends the first wait; the second one waits for the program's cleanup.
    wait $! 2>/dev/null || true
    trap - INT TERM
    return $status
}

# bash reads the whole file before it runs anything.
main() {
    local filesystems=(gluster) arguments=() worst=77 status
    while [ $# -gt 0 ]; do
        case $1 in
            --fs=*) filesystems=("${1#--fs=}") ;;
            --fs)
                filesystems=("${2:?--fs needs a filesystem}")
                shift
                ;;
            *) arguments+=("$1") ;;
        esac
        shift
    done
    [ "${filesystems[0]}" != all ] || filesystems=(gluster moosefs cephfs nfs nfs3)

    for fs in "${filesystems[@]}"; do
        status=0
        case $fs in
            gluster | moosefs | cephfs) prepare_namespaces "$fs" || status=$? ;;
            nfs | nfs3) prepare_nfs || status=$? ;;
            *)
                echo "--fs $fs: expected nfs, nfs3, gluster, moosefs, cephfs or all" >&2
                exit 2
                ;;
        esac
        if [ $status = 0 ]; then
            if [ -z "${RINGREEL:-}" ]; then
                cargo build --quiet --release --bin ringreel
                RINGREEL=$target/release/ringreel
            fi
            run "${arguments[@]}" || status=$?
        fi
        # A broken guarantee on one filesystem decides the exit status; a filesystem that could not run does not.
        case $status in
            0) [ $worst != 77 ] || worst=0 ;;
            77) ;;
            2) exit 2 ;;
            *) worst=1 ;;
        esac
        [ $status -lt 128 ] || exit $status
    done
    exit $worst
}

main "$@"
