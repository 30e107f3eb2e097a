#!/usr/bin/env python3
"""Check that all files agree on the version, the date, the address of the repository, and the requirements.

The root Cargo.toml has the values: `[workspace.package]`, and the section of the version in CHANGELOG.md for the date.
Each folder of examples/ must have a README.md that examples/README.md and a page of the documentation link.
The Python package and the C library must need no crate with other features than the tests, or all is compiled twice.

This script prints each file that disagrees, and exits with status 1 if there are any. `--tag vX.Y.Z` also compares a
tag.
"""

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PUBLISHED = ("format", ".", "recordio", "ops", "cli")
INHERITED = ("version", "edition", "rust-version", "license", "authors", "repository", "homepage")
# Packaging files that must name a value, each with a pattern whose first group is that value.
PLACES = {
    "version": [
        ("CITATION.cff", r"^version: (\S+)$"),
        ("packaging/conda/recipe.yaml", r"^  version: \"?([^\s\"]+)\"?$"),
        ("packaging/spack/package.py", r"^    version\(\"(\d[^\"]+)\""),
        ("packaging/apptainer/ringreel.def", r"^    org\.opencontainers\.image\.version (\S+)$"),
    ],
    "repository": [
        ("CITATION.cff", r"^repository-code: \"(\S+)\"$"),
        ("packaging/conda/recipe.yaml", r"^  repository: (\S+)$"),
        ("packaging/spack/package.py", r"^    homepage = \"(\S+)\"$"),
        ("packaging/apptainer/ringreel.def", r"^    org\.opencontainers\.image\.source (\S+)$"),
    ],
    "license": [
        ("CITATION.cff", r"^license: (\S+)$"),
        ("packaging/conda/recipe.yaml", r"^  license: (\S+)$"),
        ("packaging/spack/package.py", r"^    license\(\"([^\"]+)\""),
    ],
    "date": [("CITATION.cff", r"^date-released: (\S+)$")],
}


def toml(path: str) -> dict[str, Any]:
    """Returns the contents of a TOML file of the project."""
    return tomllib.loads((ROOT / path).read_text(encoding="utf-8"))


def wrong_crates(workspace: dict[str, Any]) -> Iterator[str]:
    """Yields missing fields in the manifests of the crates, and versions of path dependencies that differ."""
    version = workspace["package"]["version"]
    for name, dependency in workspace["dependencies"].items():
        if isinstance(dependency, dict) and "path" in dependency and dependency.get("version") != version:
            yield f"Cargo.toml: [workspace.dependencies] {name} has version {dependency.get('version')}, not {version}"
    for member in {*workspace["members"], *PUBLISHED}:
        package = toml(f"{member}/Cargo.toml")["package"]
        for key in INHERITED:
            if package.get(key) != {"workspace": True}:
                yield f"{member}/Cargo.toml: {key} is not inherited (`{key}.workspace = true`)"
        if member in PUBLISHED:
            for key in ("description", "readme", "keywords", "categories", "documentation"):
                if key not in package:
                    yield f"{member}/Cargo.toml: {key} is missing"
            if package.get("documentation") != f"https://docs.rs/{package['name']}":
                yield f"{member}/Cargo.toml: documentation is not https://docs.rs/{package['name']}"
        elif package.get("publish") is not False:
            yield f"{member}/Cargo.toml: `publish = false` is missing; or list it in PUBLISHED of this script"


def wrong_python(package: dict[str, Any]) -> Iterator[str]:
    """Yields fields of python/pyproject.toml that disagree with the workspace."""
    project = toml("python/pyproject.toml")["project"]
    if "version" not in project["dynamic"]:
        yield "python/pyproject.toml: the version is not dynamic; maturin takes that of Cargo.toml"
    if project["license"] != package["license"]:
        yield f"python/pyproject.toml: license is {project['license']}, not {package['license']}"
    for label, url in project["urls"].items():
        if url != package["repository"] and not url.startswith(package["repository"] + "/"):
            yield f"python/pyproject.toml: the URL {label} is {url}, not below {package['repository']}"
    oldest = project["requires-python"].removeprefix(">=3.")
    # conda-forge's package uses the stable ABI; the other packages are for all versions.
    stable = r'feature = "pyo3/abi3-py3\d+", python-version = ">=3\.(\d+)"'
    abi = re.search(stable, (ROOT / "python/pyproject.toml").read_text(encoding="utf-8"))
    for path, pattern, wanted in (
        ("python/pyproject.toml", r'feature = "pyo3/abi3-py3(\d+)"', abi[1] if abi else "?"),
        ("packaging/conda/recipe.yaml", r"python_min: \"3\.(\d+)\"", abi[1] if abi else "?"),
        ("packaging/spack/package.py", r"\"python@3\.(\d+):\"", oldest),
    ):
        yield from wrong_value(path, pattern, wanted, "oldest Python is 3.")


def wrong_value(path: str, pattern: str, wanted: str, what: str) -> Iterator[str]:
    """Yields a line if the first group of `pattern` in a file is missing or is not `wanted`."""
    found = re.search(pattern, (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)
    if found is None:
        yield f"{path}: nothing matches {pattern}"
    elif found[1] != wanted:
        yield f"{path}: {what}{found[1]}, not {wanted}"


def wrong_places(package: dict[str, Any]) -> Iterator[str]:
    """Yields values in the packaging files, the documentation and the changelog that disagree with Cargo.toml."""
    version = package["version"]
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    section = re.search(rf"^## \[{re.escape(version)}\] - (\d{{4}}-\d\d-\d\d)$", changelog, re.MULTILINE)
    if section is None:
        yield f"CHANGELOG.md: no section `## [{version}] - YYYY-MM-DD`"
    if f"\n[{version}]: {package['repository']}/" not in changelog:
        yield f"CHANGELOG.md: no link [{version}] below {package['repository']}"
    values = {**package, "date": section[1] if section else "?"}
    for key, places in PLACES.items():
        for path, pattern in places:
            yield from wrong_value(path, pattern, values[key], f"{key} is ")
    yield from wrong_value(
        "docs/reference/stability.md", r"`rust-version` in Cargo.toml: (\S+)", package["rust-version"], "Rust "
    )
    yield from wrong_value("docs/reference/stability.md", r"Python package\) \| (\S+),", version, "version is ")


def wrong_addresses(repository: str) -> Iterator[str]:
    """Yields addresses of a repository named ringreel that are not the one of Cargo.toml, in all tracked files."""
    pattern = r"https?://[a-z0-9.-]+/[A-Za-z0-9_.-]+/ringreel"
    command = ["git", "grep", "-InoE", pattern]
    for line in subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.splitlines():
        path, number, url = line.split(":", 2)
        if url != repository and "docs.rs" not in url:
            yield f"{path}:{number}: {url}, not {repository}"


def wrong_examples() -> Iterator[str]:
    """Yields examples without a folder or a README.md, and folders that no page links."""
    files = subprocess.run(["git", "ls-files", "examples"], cwd=ROOT, capture_output=True, text=True).stdout.split()
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    documentation = "".join(page.read_text(encoding="utf-8") for page in pages)
    index = (ROOT / "examples/README.md").read_text(encoding="utf-8")
    for folder in sorted({path.split("/")[1] for path in files} - {"README.md"}):
        if f"examples/{folder}/README.md" not in files:
            yield f"examples/{folder}: not a folder with a README.md"
        if f"]({folder}/README.md)" not in index:
            yield f"examples/README.md: no link to {folder}/README.md"
        if f"examples/{folder}/README.md)" not in documentation:
            yield f"examples/{folder}: no page of the documentation links its README.md"


def features(*options: str) -> set[str]:
    """Returns the crates that cargo compiles, each with its version and its features."""
    command = ["cargo", "tree", "--prefix", "none", "--format", "{p} {f}", *options]
    lines = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return {line.removesuffix(" (*)").replace(" (proc-macro)", "") for line in lines}


def wrong_features() -> Iterator[str]:
    """Yields crates that the Python package or the C library needs with other features than the tests."""
    own = ("python", "capi")
    tests = features("--workspace", *(f"--exclude=ringreel-{name}" for name in own), "--edges=normal,build,dev")
    compiled = {line.split(" ")[0] for line in tests}
    for name, options in (("python", ()), ("capi", ("--package=ringreel-cli",))):
        for crate in features(f"--package=ringreel-{name}", *options, "--edges=normal,build") - tests:
            if crate.split(" ")[0] in compiled:
                yield f"{name}/Cargo.toml: other features than in the tests of all crates: {crate}"


def main() -> None:
    workspace = toml("Cargo.toml")["workspace"]
    package = workspace["package"]
    wrong = [*wrong_crates(workspace), *wrong_python(package), *wrong_places(package)]
    wrong += [*wrong_addresses(package["repository"]), *wrong_examples(), *wrong_features()]
    if sys.argv[1:2] == ["--tag"] and sys.argv[2:] != [f"v{package['version']}"]:
        wrong.append(f"the tag {' '.join(sys.argv[2:])} is not v{package['version']}")
    if wrong:
        sys.exit("\n".join(sorted(wrong)))
    print(f"version {package['version']}, {package['repository']}: all files agree")


if __name__ == "__main__":
    main()
