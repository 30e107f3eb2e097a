#!/usr/bin/env bash
# Builds all packages into dist/, and tries each of them. Packages that cannot be built here are named, and counted as
# skipped.
#
#     scripts/dist.sh                          everything
#     scripts/dist.sh sdist wheel              only these parts, in this order
#
#     sdist     the source of the Python package, with all required crates
#     wheel     built from that source only, for x86-64 and glibc 2.17: one for Python 3.11 and later, one for 3.10, one
#               for 3.9; installed and used without a compiler
#     arm       the same for AArch64; needs `rustup target add aarch64-unknown-linux-gnu`
#     binary    the command for x86-64 and glibc 2.17, built from the same source
#     library   the C library for x86-64 and glibc 2.17, to be unpacked anywhere; tested as installed
#     static    the command without any shared library; needs `rustup target add x86_64-unknown-linux-musl`
#     crates    `cargo package` of each crate, which compiles the packed files
#
# Not included in everything:
#
#     try       installs and uses the wheels in dist/ for this machine's processor
#     publish-crates    publishes the crates, in the order of their dependencies
set -euo pipefail
cd "$(dirname "$0")/.."
ROOT=$PWD
PYTHON=${PYTHON:-python3}
# Maximum sizes of packages, in MiB.
MAX_WHEEL=12
MAX_BINARY=15
MAX_LIBRARY=40
CRATES=(--package ringreel-format --package ringreel --package ringreel-recordio --package ringreel-ops --package ringreel-cli)
tools=$ROOT/.venv-dist
# A separate target directory from that of tests.
export CARGO_TARGET_DIR=${RINGREEL_DIST_TARGET:-$ROOT/target/dist}
. scripts/parts.sh
work=$tally/work
mkdir "$work"

install_tools() {
    [ -x "$tools/bin/python" ] || "$PYTHON" -m venv "$tools"
    "$tools/bin/pip" install --quiet --disable-pip-version-check 'maturin>=1.13.3,<2' 'ziglang>=0.13,<0.16' \
        'cargo-zigbuild>=0.20,<1' 'twine>=6' 'auditwheel>=6'
}

has_target() {
    compgen -G "$(rustc --print target-libdir --target "$1")/libstd-*.rlib" >/dev/null
}

# Fails if a file is larger than a number of MiB.
check_size() {
    local bytes
    bytes=$(stat --format=%s "$1")
    echo "$(basename "$1"): $((bytes / 1024)) KiB"
    if [ "$bytes" -gt $(($2 * 1024 * 1024)) ]; then
        echo "$1 is larger than $2 MiB" >&2
        return 1
    fi
}

# Fails if a wheel's extension needs a function without a glibc version: the linker accepts that in a shared library, but
# the import fails if glibc is older than the function.
check_symbols() {
    python - "$1" <<'CHECK'
import io
import sys
import zipfile

from elftools.elf.elffile import ELFFile

wheel = zipfile.ZipFile(sys.argv[1])
(name,) = (name for name in wheel.namelist() if name.endswith(".so"))
elf = ELFFile(io.BytesIO(wheel.read(name)))
versions = elf.get_section_by_name(".gnu.version")
missing = [
    symbol.name
    for number, symbol in enumerate(elf.get_section_by_name(".dynsym").iter_symbols())
    if symbol.name
    and symbol["st_shndx"] == "SHN_UNDEF"
    and symbol["st_info"]["bind"] == "STB_GLOBAL"
    and not symbol.name.startswith(("Py", "_Py"))
    and versions.get_symbol(number)["ndx"] in ("VER_NDX_LOCAL", "VER_NDX_GLOBAL")
]
if missing:
    sys.exit(f"{name} needs functions that the oldest glibc does not have: {missing}")
CHECK
}

# Builds the source package, and unpacks it to $work/source.
build_sdist() {
    rm -f dist/ringreel-*.tar.gz
    maturin sdist --manifest-path python/Cargo.toml --out dist
    twine check --strict dist/ringreel-*.tar.gz
    check_size dist/ringreel-*.tar.gz 10
    sha256sum dist/ringreel-*.tar.gz
}

unpack_sdist() {
    [ -d "$work/source" ] && return
    mkdir "$work/unpacked"
    # All its files have one date, so cargo would mistake an older build of another source for this one.
    tar --touch -xzf dist/ringreel-*.tar.gz -C "$work/unpacked"
    mv "$work"/unpacked/ringreel-* "$work/source"
}

# Builds the wheels for a target from the unpacked source. The interpreters need not be installed.
build_wheels() {
    local wheel
    unpack_sdist
    rm -f dist/ringreel-*"$2.whl"
    (cd "$work/source" && maturin build --release --strip --zig --target "$1" --compatibility manylinux2014 \
        --interpreter 3.9 3.10 3.11 --out "$ROOT/dist")
    twine check --strict dist/ringreel-*"$2.whl"
    for wheel in dist/ringreel-*"$2.whl"; do
        auditwheel show "$wheel"
        check_symbols "$wheel"
        check_size "$wheel" $MAX_WHEEL
    done
}

# Installs the wheel for an interpreter and uses it, with only that environment in PATH.
try_wheel() {
    local python=$1 environment abi
    shift
    abi=$("$python" -c 'import sys; print(f"cp3{sys.version_info[1]}" if sys.version_info < (3, 11) else "abi3")')
    environment=$(mktemp -d "$work/environment.XXXX")
    "$python" -m venv "$@" "$environment"
    "$environment/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: \
        "$(echo dist/ringreel-*-"$abi"-*_"$(uname -m)".whl)" "${NUMPY:-numpy}"
    (cd "$work" && PATH=$environment/bin "$environment/bin/python" -W error "$ROOT/scripts/try_package.py")
}

try_wheels() {
    try_wheel "$PYTHON"
    local version python
    for version in 3.9 3.10 3.12 3.13 3.14; do
        if python=$(scripts/find_python.sh $version); then
            try_wheel "$python"
        else
            skip "the wheel on Python $version: no such interpreter in PATH or in pyenv"
        fi
    done
    # The oldest NumPy that has wheels for Python 3.11.
    if "$PYTHON" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))'; then NUMPY='numpy==1.23.*' try_wheel "$PYTHON"; fi
}

try_with_torch() {
    NUMPY='numpy<2' try_wheel /usr/bin/python3 --system-site-packages
}

try_all() {
    part "the wheels, without a compiler" try_wheels
    if has_torch; then
        part "the wheel with torch" try_with_torch
    else
        skip "the wheel with torch: $NO_TORCH"
    fi
}

build_binary() {
    unpack_sdist
    (cd "$work/source" && cargo zigbuild --profile dist --target "$1" --manifest-path cli/Cargo.toml)
    local name=dist/ringreel-$2
    cp "$CARGO_TARGET_DIR/${1%.2.17}/dist/ringreel" "$name"
    check_size "$name" $MAX_BINARY
    "$name" --version
    "$name" generate -c "$work/config.yaml" --samples 4 --shape 8,8,8
    "$name" verify "$work/tried.ring"
    rm -rf "$work/tried.ring"
}

# Packs the library, unpacks it elsewhere, and runs its tests with that copy.
build_library() {
    local name=libringreel-$1 built
    name=$name-$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
    cargo zigbuild --release --package ringreel-capi --target x86_64-unknown-linux-gnu.2.17
    built=$CARGO_TARGET_DIR/x86_64-unknown-linux-gnu/release
    BUILT=$built capi/install.sh "$work/$name"
    tar -C "$work" -czf "dist/$name.tar.gz" "$name"
    check_size "dist/$name.tar.gz" $MAX_LIBRARY
    mkdir "$work/library"
    tar -C "$work/library" -xzf "dist/$name.tar.gz"
    WHEEL=$(echo dist/ringreel-*abi3*_"$(uname -m)".whl) VENV=$work/library/venv scripts/install.sh '' 'pytest>=8'
    RINGREEL_PREFIX=$work/library/$name "$work/library/venv/bin/python" -m pytest --quiet -p no:cacheprovider capi/tests
}

# All at once, so that cargo uses unpublished crates instead of those on crates.io.
package_crates() {
    cargo package --quiet --allow-dirty --locked "${CRATES[@]}"
    mkdir -p dist/crates
    rm -f dist/crates/*
    cp "$CARGO_TARGET_DIR"/package/ringreel*.crate dist/crates/
    ls -l dist/crates
}

printf 'DBNAME: tried\nSWAP_CAP: 4\nSAMPLE: [data]\n' >"$work/config.yaml"
mkdir -p dist
parts=("$@")
[ $# -gt 0 ] || parts=(sdist wheel arm binary library static crates)
case "${parts[*]}" in
    *sdist* | *wheel* | *arm* | *binary* | *library* | *static*)
        part "tools" install_tools
        export PATH="$tools/bin:$PATH"
        ;;
esac
for name in "${parts[@]}"; do
    case $name in
        sdist) part "source package" build_sdist ;;
        wheel)
            part "wheels for x86-64" build_wheels x86_64-unknown-linux-gnu x86_64
            try_all
            ;;
        arm)
            if has_target aarch64-unknown-linux-gnu; then
                part "wheels for AArch64 (built, not run)" build_wheels aarch64-unknown-linux-gnu aarch64
            else
                skip "wheels for AArch64: no standard library; rustup target add aarch64-unknown-linux-gnu"
            fi
            ;;
        binary) part "the command for x86-64" build_binary x86_64-unknown-linux-gnu.2.17 x86_64-linux-gnu ;;
        library) part "the C library for x86-64" build_library x86_64-linux-gnu ;;
        static)
            if has_target x86_64-unknown-linux-musl; then
                part "the static command for x86-64" build_binary x86_64-unknown-linux-musl x86_64-linux-musl
            else
                skip "the static command: no standard library; rustup target add x86_64-unknown-linux-musl"
            fi
            ;;
        crates) part "crates" package_crates ;;
        try) try_all ;;
        publish-crates) part "publication of the crates" cargo publish --locked "${CRATES[@]}" ;;
        *)
            echo "unknown part $name: sdist, wheel, arm, binary, library, static, crates, try, publish-crates" >&2
            exit 2
            ;;
    esac
done
say_counts
