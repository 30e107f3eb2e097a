#!/usr/bin/env bash
# Builds the Python package and installs it, with the command `ringreel`, into .venv.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}

if ! [ -x .venv/bin/python ]; then
    "$python" -m venv .venv
fi
.venv/bin/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "Python 3.11 or later is needed; set PYTHON to one and remove .venv" >&2
    exit 1
}
.venv/bin/pip install --quiet --disable-pip-version-check "./python${1:-}"
