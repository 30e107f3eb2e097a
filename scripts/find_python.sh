#!/usr/bin/env bash
# Prints the path of an interpreter: python3.N in PATH, or one that pyenv has installed. Fails if none works.
#
#     scripts/find_python.sh 3.9
set -euo pipefail
for python in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python; do
    # pyenv has a command for each installed version, which fails unless that version is selected.
    if "$python" -c 'import ensurepip' 2>/dev/null; then
        command -v "$python"
        exit
    fi
done
exit 1
