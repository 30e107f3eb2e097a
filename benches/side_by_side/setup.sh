#!/usr/bin/env bash
# Makes the peers' virtual environments: .venv-bench; .venv-bench-torch for peers that need torch (Debian's, because
# PyPI's depends on CUDA); .venv-mxnet. Packages that cannot be installed are named, here and in the run, and left out.
#
# PYTHON names the interpreter for the first one: Python 3.11 or later.
set -uo pipefail
cd "$(dirname "$0")/../.."

missing() { echo "MISSING: $*" >&2; }
install() { "$1/bin/pip" install --quiet --disable-pip-version-check "${@:2}"; }

venv=.venv-bench
[ -x $venv/bin/python ] || "${PYTHON:-python3}" -m venv $venv || exit 1
# Builds ringreel with the same profile as scripts/install.sh; fails without it, because there is nothing to measure.
install $venv ./python 'numpy>=2' || exit 1
for package in 'pyarrow>=20' 'lmdb>=1.6' 'array-record>=0.7' 'webdataset>=1' 'tensorflow-cpu>=2.19'; do
    install $venv "$package" || missing "pip could not install $package"
done

venv=.venv-bench-torch
if ! /usr/bin/python3 -c 'import torch' 2>/dev/null && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    { apt-get update && apt-get install --yes python3-torch python3-venv; } >/dev/null 2>&1 || true
fi
if /usr/bin/python3 -c 'import torch' 2>/dev/null; then
    [ -x $venv/bin/python ] || /usr/bin/python3 -m venv --system-site-packages $venv
    # Debian's torch is built for NumPy 1. Installs without dependencies, because pip would install torch, too.
    install $venv 'numpy<2' pymongo pyyaml && install $venv --no-deps 'wirehead==0.9.3' || missing "Wirehead"
    install $venv brotli python-snappy 'zstd<2' 'xxhash<4' tqdm 'catalogue<3' filelock &&
        install $venv --no-deps 'mosaicml-streaming==0.13.0' || missing "MosaicML MDS"
else
    missing "Wirehead and MosaicML MDS: torch is missing for /usr/bin/python3 (on Debian: apt install python3-torch)"
fi

scripts/mxnet.sh || missing "mxnet"
scripts/mongodb.sh java || missing "the server for Wirehead"
