#!/usr/bin/env python3
"""Checks that the licences of all crates that are built in permit redistribution, and lists them in THIRD-PARTY.md.

    scripts/licences.py            writes THIRD-PARTY.md
    scripts/licences.py --check    fails if it is out of date, or if a licence is not in the list below

The names and expressions are the crates' own (SPDX). Nothing is downloaded.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "THIRD-PARTY.md"
# Each permits distribution of programs under MIT, with the licence's text included. deny.toml has the same list.
ALLOWED = {
    "0BSD", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0",
    "CDLA-Permissive-2.0", "IJG", "ISC", "MIT", "Unicode-3.0", "Unlicense", "Zlib",
}  # fmt: skip


def is_allowed(expression):
    """Whether allowed licences satisfy an SPDX expression: OR binds weaker than AND, `/` is an old OR."""
    tokens = re.findall(r"\(|\)|[^\s()/]+|/", expression)
    at = 0

    def peek():
        return tokens[at] if at < len(tokens) else None

    def take():
        nonlocal at
        at += 1
        return tokens[at - 1]

    def any_of():
        fine = all_of()
        while peek() in ("OR", "/"):
            take()
            fine = all_of() or fine
        return fine

    def all_of():
        fine = one()
        while peek() == "AND":
            take()
            fine = one() and fine
        return fine

    def one():
        name = take()
        if name == "(":
            fine = any_of()
            if take() != ")":
                raise ValueError(expression)
            return fine
        if peek() == "WITH":
            take()
            name = f"{name} WITH {take()}"
        return name in ALLOWED

    fine = any_of()
    if at != len(tokens):
        raise ValueError(expression)
    return fine


def crates():
    """The crates in the command or the Python package, without those that only tests and fuzzing use."""
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--all-features"]
    found = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
    packages = {package["id"]: package for package in found["packages"]}
    nodes = {node["id"]: node for node in found["resolve"]["nodes"]}
    todo = [id for id, package in packages.items() if package["name"] in ("ringreel-cli", "ringreel-python")]
    seen = set(todo)
    while todo:
        for dep in nodes[todo.pop()]["deps"]:
            if any(kind["kind"] != "dev" for kind in dep["dep_kinds"]) and dep["pkg"] not in seen:
                seen.add(dep["pkg"])
                todo.append(dep["pkg"])
    return sorted((packages[id] for id in seen if packages[id]["source"]), key=lambda it: (it["name"], it["version"]))


def main():
    used = crates()
    if (ROOT / "LICENSE").read_bytes() != (ROOT / "python/LICENSE.txt").read_bytes():
        sys.exit("python/LICENSE.txt, which goes into the wheel, differs from LICENSE")
    bad = [f"{it['name']} {it['version']}: {it['license']}" for it in used if not is_allowed(it["license"] or "none")]
    foreign = [it["name"] for it in used if "crates.io" not in it["source"]]
    if bad or foreign:
        sys.exit(
            "\n".join([*(f"licence not allowed: {one}" for one in bad), *(f"not from crates.io: {x}" for x in foreign)])
        )
    rows = "\n".join(f"| {it['name']} | {it['version']} | {it['license']} |" for it in used)
    text = (
        "# Crates that are built in\n\n"
        "Written by `scripts/licences.py` from `Cargo.lock`, for all features and systems. "
        f"ringreel itself is under the MIT licence.\n\n| crate | version | licence |\n|---|---|---|\n{rows}\n"
    )
    if "--check" not in sys.argv[1:]:
        LIST.write_text(text)
    elif not LIST.exists() or LIST.read_text() != text:
        sys.exit("THIRD-PARTY.md is out of date: run scripts/licences.py")
    print(f"{len(used)} crates, all under allowed licences")


if __name__ == "__main__":
    main()
