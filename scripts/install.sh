#!/usr/bin/env bash
# Builds a wheel of the Python package and installs it, with the command `ringreel`, into a virtual environment.
#
#   scripts/install.sh [EXTRAS [REQUIREMENT...]]     as pip takes them, such as '[test]' 'numpy<2'
#
# PYTHON=path   the interpreter of a new environment (default: python3)
# VENV=dir      the environment (default: .venv)
# WHEEL=path    installs this wheel instead of building one; needs neither Rust nor a compiler
# PROFILE=dev   builds faster, for tests; the package is slower (default: release)
# MONGODB=no    leaves out the index in a MongoDB, which halves the time of the build
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${VENV:-.venv} wheel=${WHEEL:-} profile=${PROFILE:-release}

if ! [ -x "$venv/bin/python" ]; then
    "${PYTHON:-python3}" -m venv "$venv"
fi
"$venv/bin/python" -c 'import sys; sys.exit(sys.version_info < (3, 9))' || {
    echo "Python 3.9 or later is needed; set PYTHON to one and remove $venv" >&2
    exit 1
}
pip() {
    "$venv/bin/python" -m pip --disable-pip-version-check --quiet "$@"
}
if [ -z "$wheel" ]; then
    command -v cargo >/dev/null || {
        echo "cargo is not in PATH: install Rust (https://rustup.rs), or name a wheel: WHEEL=path" >&2
        exit 1
    }
    pip install 'maturin>=1.13.3,<2'
    # A wheel for Python 3.11 and later, or for one older version.
    abi=$("$venv/bin/python" -c 'import sys; print(f"cp3{sys.version_info[1]}" if sys.version_info < (3, 11) else "abi3")')
    features=()
    [ "${MONGODB:-yes}" = yes ] || features=(--no-default-features)
    wheels=${CARGO_TARGET_DIR:-target}/wheels/$profile-$abi
    rm -rf "$wheels"
    "$venv/bin/maturin" build --profile "$profile" --manifest-path python/Cargo.toml "${features[@]}" \
        --interpreter "$venv/bin/python" --compatibility linux --out "$wheels"
    wheel=$(echo "$wheels"/*.whl)
fi
[ -f "$wheel" ] || {
    echo "WHEEL=$wheel: no such file" >&2
    exit 1
}
# pip does not replace an installed package of the same version, whatever its origin.
pip install --force-reinstall --no-deps "$wheel"
pip install "$(realpath "$wheel")${1:-}" "${@:2}"
