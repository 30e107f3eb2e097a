#!/usr/bin/env python3
"""Check the wording of documentation, comments, messages and names of tests, and print each line that breaks a rule.

Every rule has a reason and a replacement. A line that must quote such a word can end with `prose: allow`.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SKIPPED = ("format/vectors/", "tests/golden/", "THIRD-PARTY.md", "scripts/check_prose.py", "fuzz/corpus/")
TEST_NAME = 60
# Each pattern, and what to write instead.
VERBS = "reads|writes|waits|has|was|may|begins|goes|fills|promotes|keeps|looks|asks|comes|cannot"
RULES = [
    (rf"(?:^|[.;:,(] |\b(?:and|or|of|by|to) )who(?:ever)? (?:{VERBS})\b", "name the subject: the reader, the caller"),
    (r"\b(?:whoever|anybody|nobody|somebody)\b", "name the subject: any user, no process, another process"),
    (r"\b(?:(?:is|are|was) told|tells? of)\b", "say what is logged, returned or raised"),
    (r"\bso (?:many|often|long) (?!as\b|that\b)", "give the number or name it: N samples, after N seconds"),
    (r"\bsees? to\b|\bsee to it\b", "ensures, advances, handles"),
    (r"\bfor ever\b", "forever, indefinitely, without end"),
    (r"\bmend(?:s|ed|ing)?\b", "repair, fix"),
    (r"\btaken for\b", "mistaken for, treated as"),
    (r"\bfor want of\b", "because there is no"),
    (r"\b(?:stands|stood) (?:there|beside|in)\b", "is in, is stored in"),
    (r"\bits? is none\b|\bnone of ours\b", "is missing, is not ours"),
    (r"\ball the same\b", "still, identical"),
]
PATTERNS = [(re.compile(pattern, re.IGNORECASE), advice) for pattern, advice in RULES]
MESSAGE = re.compile(r'"((?:[^"\\]|\\.){18,})"')
RUST_TEST = re.compile(r"#\[(?:tokio::)?test\][^\n]*\n(?:\s*#\[[^\n]*\n|\s*//[^\n]*\n)*\s*(?:async )?fn (\w+)")
PYTHON_TEST = re.compile(r"^ *def (test_\w+)", re.MULTILINE)


def prose_of(path: Path, text: str) -> Iterator[tuple[int, str]]:
    """Yields the lines of a file that people read, with their numbers."""
    fenced = False
    for number, line in enumerate(text.split("\n"), 1):
        bare = line.strip()
        if path.suffix == ".md":
            fenced ^= bare.startswith("```")
            if not fenced and not line.startswith("    "):
                yield number, bare
        elif path.suffix == ".rs":
            if bare.startswith("//"):
                yield number, bare
            else:
                yield from ((number, message) for message in MESSAGE.findall(line) if " " in message)
        elif path.suffix in (".py", ".pyi", ".sh", ".toml", ".yml"):
            if bare.startswith("#"):
                yield number, bare
            elif path.suffix in (".py", ".pyi") and re.match(r'[r]?["A-Z`]', bare):
                yield number, bare


def tests_of(path: Path, text: str) -> Iterator[tuple[int, str]]:
    """Yields the names of the tests in a file, with the numbers of their lines."""
    pattern = {".rs": RUST_TEST, ".py": PYTHON_TEST}.get(path.suffix)
    for match in pattern.finditer(text) if pattern else ():
        yield text.count("\n", 0, match.start(1)) + 1, match[1]


def faults_of(path: Path) -> Iterator[str]:
    """Yields what is wrong in a file."""
    text = path.read_text(encoding="utf-8")
    name = path.relative_to(ROOT)
    for number, line in prose_of(path, text):
        for pattern, advice in PATTERNS:
            match = pattern.search(line)
            if match and "prose: allow" not in line:
                yield f"{name}:{number}: {match[0]!r}: {advice}"
    for number, test in tests_of(path, text):
        length = len(test.removeprefix("test_"))
        if length > TEST_NAME:
            yield f"{name}:{number}: {test} has {length} characters, more than {TEST_NAME}"


def main() -> int:
    """Checks every tracked file; returns the exit status."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found = 0
    for name in listed.splitlines():
        path = ROOT / name
        wanted = path.suffix in (".md", ".rs", ".py", ".pyi", ".sh", ".toml", ".yml")
        if wanted and path.exists() and not name.startswith(SKIPPED):
            for fault in faults_of(path):
                found += 1
                print(fault)
    print(f"{found} faults of wording" if found else "wording: no fault found")
    return min(found, 1)


if __name__ == "__main__":
    sys.exit(main())
