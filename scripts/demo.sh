#!/usr/bin/env bash
# The main job, from nothing: builds the Python package (or installs the wheel that WHEEL names), and runs synthetic brains
# through a ring for a minute. Each stage is printed with the time since the start.
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
scripts/install.sh
stage "installing what the example needs"
.venv/bin/python -m pip install --quiet --disable-pip-version-check -r examples/brain/requirements.txt
stage "two generators, a manager and two reading ranks: synthetic brains through a ring, for a minute"
.venv/bin/python examples/brain/run.py
stage "done"
