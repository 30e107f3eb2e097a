#!/usr/bin/env bash
# Builds the Python package and installs it, with the command `ringreel`, into .venv. With WHEEL, the path of a wheel, that is
# installed instead, and neither Rust nor a compiler is needed.
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
package=./python
if [ -n "${WHEEL:-}" ]; then
    [ -f "$WHEEL" ] || {
        echo "WHEEL=$WHEEL: there is no such file" >&2
        exit 1
    }
    package=$(realpath "$WHEEL")
    # pip leaves an installed package of the same version alone, wherever it came from.
    .venv/bin/pip install --quiet --disable-pip-version-check --force-reinstall --no-deps "$package"
fi
.venv/bin/pip install --quiet --disable-pip-version-check "$package${1:-}"
