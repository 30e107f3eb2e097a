"""Runs the code blocks of README.md and of every page below docs/, each page in a new directory.

The info string of a block says what is done with it:

- ``python`` and ``sh``: executed, in the order of the page; Python blocks of a page share their names. ``python torch``
  (or ``torchdata``, ``grain``, ``jax``) is skipped where that package is not installed.
- ``yaml``: merged over the page's configuration, and must be valid.
- A ``python``, ``sh`` or ``yaml`` block whose first line is a file's name, as in ``# train.py``, becomes that file.
- ``text``, ``console``, ``json``, ``rust``, ``c`` and ``fortran``: output and examples; not executed.

A page that has a ``# config.yaml`` begins in an empty directory. Any other page finds config.yaml and demo.ring there:
two generations of eight samples, a float32 ``data`` and a uint8 ``label`` of 8 x 8 x 8 each.
"""

import contextlib
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "python").glob("*.md"))]
RUN, SHOWN = {"python", "sh", "yaml"}, {"text", "console", "json", "rust", "c", "fortran"}
DIRECTIVE = re.compile(r"\{[a-z-]+\}")
OPTIONAL = {"torch", "torchdata", "grain", "jax"}
FENCE = re.compile(r"^( *)(```+)([^\n`]*)\n(.*?)^\1\2 *$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# (\w+\.(?:py|sh|yaml))(?::.*)?\n")
# Catches a block that hangs.
SECONDS = 600

CONFIG = "DBNAME: demo\nSWAP_CAP: 8\nSAMPLE: [data, label]\n"
FILL = """
import numpy as np, ringreel
rng = np.random.default_rng(0)
with ringreel.Ring("config.yaml").generator() as generator:
    for _ in range(16):
        data = rng.random((8, 8, 8), np.float32)
        generator.write((data, rng.integers(0, 5, (8, 8, 8), np.uint8)))
"""
# Runs the steps in the file that it is given, each a list of language, place and code.
DRIVER = """
import json, subprocess, sys
names = {"__name__": "__main__"}
for language, place, code in json.load(open(sys.argv[1])):
    print(f"-- {place}", flush=True)
    if language == "python":
        exec(compile(code, place, "exec"), names)
    elif language == "sh":
        status = subprocess.run(["bash", "-euo", "pipefail", "-c", code]).returncode
        if status:
            sys.exit(f"{place}: exit status {status}")
    else:
        import ringreel, yaml
        ringreel.Ring({**yaml.safe_load(open("config.yaml")), **yaml.safe_load(code)})
"""


@dataclass
class Block:
    """A code block: its language, the packages that it needs, its place, and its text."""

    language: str
    needs: set[str]
    place: str
    code: str

    @property
    def file(self) -> str | None:
        """The name of the file that the block is to become, or None."""
        match = FILE.match(self.code)
        return match[1] if match else None


def blocks_of(page: Path) -> list[Block]:
    """Returns the code blocks of a page, except directives of the site's generator."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in FENCE.finditer(text):
        language, *needs = match[3].split() or [""]
        if not DIRECTIVE.match(language):
            line = text.count("\n", 0, match.start()) + 1
            found.append(Block(language, set(needs), f"{page.relative_to(ROOT)}:{line}", textwrap.dedent(match[4])))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_say_what_they_are(page: Path) -> None:
    """Each block has a language of the list above, so that none is left out by accident."""
    for block in blocks_of(page):
        assert block.language in RUN | SHOWN, f"{block.place}: unknown language {block.language!r}"
        assert block.needs <= OPTIONAL, f"{block.place}: unknown package in {block.needs}"
    unfenced = re.sub(FENCE, "", page.read_text(encoding="utf-8"))
    assert "```" not in unfenced, f"{page}: a code block is not closed"


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if any(block.language in RUN for block in blocks_of(page))],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_blocks_run(page: Path, tmp_path: Path) -> None:
    """Executes the blocks of a page, from top to bottom."""
    blocks = [block for block in blocks_of(page) if block.language in RUN]
    missing = {name for block in blocks for name in block.needs if importlib.util.find_spec(name) is None}
    runnable = [block for block in blocks if not block.needs & missing]
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def run(*command: str) -> None:
        # Output goes to a file: a background process of an `sh` block would keep a pipe open.
        with (tmp_path / "output").open("w+") as output:
            process = subprocess.Popen(
                command, cwd=tmp_path, env=environment, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip
            try:
                status = process.wait(timeout=SECONDS)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            output.seek(0)
            assert status == 0, output.read()

    if not any(block.file == "config.yaml" for block in runnable):
        (tmp_path / "config.yaml").write_text(CONFIG)
        run(sys.executable, "-c", FILL)
    (tmp_path / "run.py").write_text(DRIVER)
    steps = []
    for block in runnable:
        if block.file:
            steps.append(("sh", block.place, f"cat >{block.file} <<'END OF FILE'\n{block.code}END OF FILE\n"))
        else:
            steps.append((block.language, block.place, block.code))
    (tmp_path / "steps.json").write_text(json.dumps(steps))
    run(sys.executable, "run.py", "steps.json")
    if len(runnable) < len(blocks):
        pytest.skip(f"{len(runnable)} of {len(blocks)} blocks ran: {', '.join(sorted(missing))} not installed")


def test_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Executes the notebook anew."""
    notebooks = sorted((ROOT / "docs").rglob("*.ipynb"))
    assert notebooks, "no notebook found"
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    for path in notebooks:
        shutil.copy(path, tmp_path)
        notebook = nbformat.read(path, as_version=4)
        nbclient.NotebookClient(notebook, timeout=SECONDS, resources={"metadata": {"path": tmp_path}}).execute()


def test_supported_versions_are_those_that_the_tests_install() -> None:
    """The oldest version in the table of stability.md is the oldest one that ``make test`` accepts."""
    rows = dict(re.findall(r"^\| (\w+) \| (.*) \|$", (ROOT / "docs/reference/stability.md").read_text(), re.MULTILINE))
    installed = re.findall(r"'(grain|jax|keras|lightning|monai)[>=]=([\d.]+\d)", (ROOT / "scripts/test.sh").read_text())
    assert {name for name, _ in installed} == {"grain", "jax", "keras", "lightning", "monai"}
    named = {name.lower(): row for name, row in rows.items()}
    for name, oldest in installed:
        assert f"{oldest} and later" in named[name].partition("|")[0], name


def test_releases_have_the_wheels_that_the_pages_name() -> None:
    """Getting started sends readers to the releases of the repository, and else to ``make dist``."""
    release = (ROOT / ".github/workflows/release.yml").read_text()
    assert re.search(r"gh release create .* dist/ringreel-\*$", release, re.MULTILINE)
    page = (ROOT / "docs/getting-started.md").read_text()
    repository = re.search(r'^Repository = "(.*)"$', (ROOT / "python/pyproject.toml").read_text(), re.MULTILINE)[1]
    assert f"({repository}/releases)" in page
    parts = re.search(r'make dist PARTS="(.*)"', page)[1].split()
    known = re.findall(r"^        (\w+)\)", (ROOT / "scripts/dist.sh").read_text(), re.MULTILINE)
    assert set(parts) <= set(known)
