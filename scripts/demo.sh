#!/usr/bin/env bash
# The main example, from nothing: builds the Python package (or installs the wheel in WHEEL), and runs synthetic brains
# through a ring for a minute. Prints each stage with the time since the start.
#
# The package is built without MongoDB, whose driver takes as long to compile as all the rest.
set -euo pipefail
cd "$(dirname "$0")/.."
SECONDS=0

stage() {
    printf '== %d:%02d %s\n' $((SECONDS / 60)) $((SECONDS % 60)) "$1"
}

if [ -n "${WHEEL:-}" ]; then
    stage "installing $WHEEL into .venv"
else
    stage "building the Python package and installing it into .venv"
fi
MONGODB=no scripts/install.sh
stage "installing the example's dependencies"
.venv/bin/python -m pip install --quiet --disable-pip-version-check -r examples/brain/requirements.txt
stage "two generators, a manager and two reading ranks: synthetic brains through a ring, for a minute"
.venv/bin/python examples/brain/run.py
stage "done"
[ -n "${WHEEL:-}" ] || echo "The package in .venv is complete, except for INDEX: mongodb, which scripts/install.sh adds."
