#!/usr/bin/env bash
# Builds the C library and installs it: header, shared and static library, pkg-config file, CMake package, Fortran module
# source. The installed files can be moved to another prefix.
#
#     capi/install.sh PREFIX          for example ~/.local or /opt/ringreel
#
# PROFILE=dev builds in less time a library that runs more slowly and is much larger (default: release, without the
# information for debuggers). The command is built with it, because the tests have compiled both for the same features.
# BUILT=dir installs the libraries of this folder, which must be of the release profile, instead of building them.
set -euo pipefail
cd "$(dirname "$0")/.."
prefix=${1:?usage: capi/install.sh PREFIX}
mkdir -p "$prefix"
prefix=$(cd "$prefix" && pwd)
profile=${PROFILE:-release}
built=${BUILT:-}
if [ -z "$built" ]; then
    packages=(--package ringreel-capi)
    [ "$profile" != dev ] || packages+=(--package ringreel-cli)
    cargo build --quiet "${packages[@]}" --profile "$profile"
    built=${CARGO_TARGET_DIR:-target}/$([ "$profile" = dev ] && echo debug || echo "$profile")
fi
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)

install -D -m 644 capi/include/ringreel.h "$prefix/include/ringreel.h"
install -D -m 644 capi/fortran/ringreel.f90 "$prefix/share/ringreel/ringreel.f90"
install -D -m 755 "$built/libringreel_c.so" "$prefix/lib/libringreel.so.$version"
ln -sf "libringreel.so.$version" "$prefix/lib/libringreel.so.0"
ln -sf libringreel.so.0 "$prefix/lib/libringreel.so"
install -m 644 "$built/libringreel_c.a" "$prefix/lib/libringreel.a"
if [ "$profile" != dev ]; then
    "${STRIP:-strip}" --strip-unneeded "$prefix/lib/libringreel.so.$version"
    "${STRIP:-strip}" --strip-debug "$prefix/lib/libringreel.a"
fi
mkdir -p "$prefix/lib/pkgconfig" "$prefix/lib/cmake/ringreel"
sed "s|@VERSION@|$version|" capi/ringreel.pc.in >"$prefix/lib/pkgconfig/ringreel.pc"
install -m 644 capi/ringreel-config.cmake "$prefix/lib/cmake/ringreel/ringreel-config.cmake"
sed "s|@VERSION@|$version|" capi/ringreel-config-version.cmake.in >"$prefix/lib/cmake/ringreel/ringreel-config-version.cmake"
echo "installed in $prefix"
