#!/usr/bin/env bash
# Lints the recipes in packaging/, the issue forms, CITATION.cff, and the workflows against their schema. Exits with 77 if
# the linters cannot be installed.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=$PWD/.venv-lint
[ -x "$tools/bin/python" ] || "${PYTHON:-python3}" -m venv "$tools"
if ! "$tools/bin/pip" install --quiet --disable-pip-version-check 'check-jsonschema>=0.30' 'py-rattler-build>=0.60,<1' \
    'spython>=0.3.14'; then
    echo "SKIPPED: pip could not install the linters" >&2
    exit 77
fi
check="$tools/bin/check-jsonschema --quiet --builtin-schema"
$check vendor.github-workflows .github/workflows/*.yml
$check vendor.github-issue-forms .github/ISSUE_TEMPLATE/bug.yml .github/ISSUE_TEMPLATE/feature.yml
$check vendor.github-issue-config .github/ISSUE_TEMPLATE/config.yml
$check vendor.citation-file-format CITATION.cff
"$tools/bin/python" - <<'CHECK'
import re
from pathlib import Path

from rattler_build import Stage0Recipe
from spython.main.parse.parsers import get_parser

# Spack is not on PyPI, so its recipe is only compiled here.
compile(Path("packaging/spack/package.py").read_text(), "packaging/spack/package.py", "exec")
Stage0Recipe.from_yaml(Path("packaging/conda/recipe.yaml").read_text())
definition = Path("packaging/apptainer/ringreel.def")
known = {"files", "post", "environment", "runscript", "test", "labels", "help"}
sections = set(re.findall(r"^%(\w+)", definition.read_text(), re.MULTILINE))
assert sections == known, f"{definition}: sections {sorted(sections)}, not {sorted(known)}"
stage = get_parser("singularity")(str(definition)).parse()["final"]
assert stage.fromHeader and stage.install and stage.test and stage.files, f"{definition}: {vars(stage)}"
CHECK
