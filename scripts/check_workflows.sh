#!/usr/bin/env bash
# Checks the workflows with actionlint. Exits with 77 if it is not installed; RINGREEL_ACTIONLINT=install compiles it,
# which takes a minute.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=$PWD/.venv-lint/bin
export PATH=$PATH:$tools
if ! command -v actionlint >/dev/null; then
    if [ "${RINGREEL_ACTIONLINT:-}" != install ] || ! command -v go >/dev/null; then
        echo "SKIPPED: actionlint is not installed (with Go, RINGREEL_ACTIONLINT=install installs it)" >&2
        exit 77
    fi
    GOBIN=$tools go install github.com/rhysd/actionlint/cmd/actionlint@v1.7.12
fi
actionlint -no-color
