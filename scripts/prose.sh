#!/usr/bin/env bash
# Checks wording and spelling. Exits with 77 if the spelling cannot be checked because pip could not install codespell.
set -euo pipefail
cd "$(dirname "$0")/.."
python3 scripts/check_prose.py
venv=${VENV:-.venv-lint}
[ -x "$venv/bin/python" ] || "${PYTHON:-python3}" -m venv "$venv"
if ! "$venv/bin/pip" install --quiet --disable-pip-version-check 'codespell>=2.4,<3'; then
    echo "SKIPPED: spelling: pip could not install codespell" >&2
    exit 77
fi
# Names of other projects, and typos that tests make on purpose.
git ls-files '*.md' '*.rs' '*.py' '*.pyi' '*.sh' '*.toml' '*.yml' ':!THIRD-PARTY.md' ':!tests/golden' ':!format/vectors' |
    xargs "$venv/bin/codespell" --ignore-words-list 'ratatui,thirdparty,allways,shufle,stopp,lable,wronly,ot'
