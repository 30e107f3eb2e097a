#!/usr/bin/env bash
# Builds, once, what the virtual machines boot from: Debian's kernel, an initial RAM disk, and one
# root filesystem for all of them. Installs nothing on this machine.
#   tests/cluster/guest/image.sh DIRECTORY
# A second call with the same scripts ends at once. Downloads 125 MB, takes 400 MB of disk.
set -euo pipefail
guest=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1" && cd "$1"
PATH=$PATH:/usr/sbin:/sbin
suite=$(. /etc/os-release && [ "$ID" = debian ] && echo "$VERSION_CODENAME" || echo bookworm)
packages=nfs-kernel-server,nfs-common,rpcbind,python3-minimal,iproute2,e2fsprogs,kmod,procps,libgcc-s1

stamp=$(cat "$guest/image.sh" "$guest/init" "$guest/agent.py" | sha256sum)
[ "$(cat stamp 2>/dev/null)" = "$stamp" ] && exit 0
rm -f stamp
work=$(mktemp -d "$PWD/work.XXXXXX")
trap 'rm -rf "$work"' EXIT

# The kernel package, unpacked. `packages.list` keeps the root filesystem until its packages change.
if ! ls kernel/boot/vmlinuz-* >/dev/null 2>&1; then
    package=$(apt-cache depends linux-image-cloud-amd64 | awk '/Depends:/{print $2; exit}')
    (cd "$work" && apt-get --quiet --quiet download "$package" && dpkg -x "$package"_*.deb kernel)
    rm -rf kernel && mv "$work/kernel" kernel
fi
version=$(basename kernel/lib/modules/*)
if [ "$(cat packages.list 2>/dev/null)" != "$suite $packages" ]; then
    mmdebstrap --quiet --variant=minbase --include="$packages" "$suite" "$work/root.tar"
    mv "$work/root.tar" root.tar
    echo "$suite $packages" >packages.list
fi

root=$work/root
mkdir "$root"
tar -C "$root" -xf root.tar --exclude=./dev --exclude=./usr/share/doc --exclude=./usr/share/locale \
    --exclude=./usr/share/man --exclude=./var/cache/apt
mkdir -p "$root"/{dev,proc,sys,run,tmp,export,lib/modules,usr/lib/lab}
cp -a "kernel/lib/modules/$version" "$root/lib/modules/"
depmod -b "$root" "$version"
install -m 755 "$guest/init" "$root/sbin/labinit"
install -m 644 "$guest/agent.py" "$root/usr/lib/lab/agent.py"
printf '10.78.0.1 server\n10.78.0.11 node0\n10.78.0.12 node1\n' >>"$root/etc/hosts"
# Debian's mountd takes a user's groups from the server's own list (manage-gids).
for n in 1 2; do
    echo "user$n:x:100$n:100$n::/:/bin/sh" >>"$root/etc/passwd"
    echo "user$n:x:100$n:" >>"$root/etc/group"
done
echo "ring:x:2000:user1,user2" >>"$root/etc/group"
truncate -s 1G "$work/root.img"
mke2fs -q -t ext4 -O ^has_journal -d "$root" "$work/root.img"

# The initial RAM disk: virtio, to find the root filesystem.
initrd=$work/initrd
mkdir -p "$initrd"/{bin,lib/modules,proc,sys,dev,new}
cp "$(command -v busybox)" "$initrd/bin/busybox"
(cd kernel && find "lib/modules/$version" \( -name 'virtio*.ko' -o -name 'modules.order' \
    -o -name 'modules.builtin*' \) ! -name '*gpu*' ! -name '*snd*' -print | cpio -pdm --quiet "$initrd")
depmod -b "$initrd" "$version"
cat >"$initrd/init" <<'I'
#!/bin/busybox sh
/bin/busybox mkdir -p /sbin /usr/bin /usr/sbin; /bin/busybox --install -s
mount -t proc p /proc; mount -t sysfs s /sys; mount -t devtmpfs d /dev
modprobe virtio_pci; modprobe virtio_blk
n=0; while [ ! -b /dev/vda ] && [ $n -lt 100 ]; do sleep 0.1; n=$((n+1)); done
mount -t ext4 /dev/vda /new
umount /proc /sys /dev
exec switch_root /new /sbin/labinit
I
chmod 755 "$initrd/init"
(cd "$initrd" && find . | cpio -o -H newc --quiet | gzip -1) >initrd.gz
cp "kernel/boot/vmlinuz-$version" vmlinuz
mv "$work/root.img" root.img
echo "$stamp" >stamp
