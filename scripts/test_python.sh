#!/usr/bin/env bash
# Installs the Python package into a separate environment with the given packages, and runs its tests there. Takes the
# variables of scripts/install.sh, which builds it.
#
#     PYTHON=python3.12 scripts/test_python.sh 'torch>=2.6 torchdata>=0.11' 'numpy<2'
set -euo pipefail
cd "$(dirname "$0")/.."
environment=${VENV:-.venv-matrix}
read -ra packages <<<"$*"
VENV=$environment scripts/install.sh '[test]' "${packages[@]}"
"$environment/bin/pip" list --disable-pip-version-check
"$environment/bin/python" -m pytest --quiet python/tests
