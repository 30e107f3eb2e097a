#!/usr/bin/env bash
# Builds the Python package into a separate environment with the given packages, and runs its tests there.
#
#     PYTHON=python3.12 scripts/test_python.sh 'torch>=2.6 torchdata>=0.11' 'numpy<2'
set -euo pipefail
cd "$(dirname "$0")/.."
environment=${VENV:-.venv-matrix}
read -ra packages <<<"$*"
[ -x "$environment/bin/python" ] || "${PYTHON:-python3}" -m venv "$environment"
"$environment/bin/pip" install --quiet --disable-pip-version-check './python[test]' "${packages[@]}"
"$environment/bin/pip" list --disable-pip-version-check
"$environment/bin/python" -m pytest --quiet python/tests
