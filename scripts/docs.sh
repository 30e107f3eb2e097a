#!/usr/bin/env bash
# Builds the documentation site into target/site, to be opened from disk. A warning (a dead link, a page that no table of
# contents lists, an unknown name) is an error. Neither Rust nor the compiled package is needed.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${VENV:-.venv-docs}
if ! cmp --quiet docs/requirements.txt "$venv/installed"; then
    [ -x "$venv/bin/python" ] || "${PYTHON:-python3}" -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check --requirement docs/requirements.txt || {
        echo "SKIPPED: pip could not install docs/requirements.txt" >&2
        exit 77
    }
    cp docs/requirements.txt "$venv/installed"
fi
"$venv/bin/sphinx-build" --quiet --fail-on-warning --keep-going --fresh-env --jobs auto docs target/site
echo "the documentation is in target/site/index.html"
