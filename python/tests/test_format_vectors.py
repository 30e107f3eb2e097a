"""The decoder in plain Python, beside the format's specification, decodes each test vector as recorded."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import zip_equal

FORMAT = Path(__file__).resolve().parents[2] / "format"
VECTORS = sorted(path.with_suffix("") for path in (FORMAT / "vectors").glob("*/*.json"))


def load_decoder():
    sys.path.insert(0, str(FORMAT))  # for `zstd.py`, if Python has no zstd module
    spec = importlib.util.spec_from_file_location("ringreel_decode", FORMAT / "decode.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


decode = load_decoder()


def expected(path):
    return json.loads(Path(f"{path}.json").read_text(encoding="utf-8"))


def test_vectors_of_both_kinds_exist():
    assert sum(path.parent.name == "ok" for path in VECTORS) >= 40
    assert sum(path.parent.name == "bad" for path in VECTORS) >= 40


@pytest.mark.parametrize("path", VECTORS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_outcome_equals_the_recorded_one(path):
    data, wanted = path.read_bytes(), expected(path)
    assert ("error" in wanted) == (path.parent.name == "bad")
    assert decode.outcome(data, wanted["kind"]) == wanted
    if wanted["kind"] == "segment" and "error" not in wanted:
        assert decode.by_position(data) == wanted
        parts = [[part.get("crc32") or part["error"]["name"] for part in s["parts"]] for s in wanted["samples"]]
        samples = [{"ordinal": s["ordinal"], "at": s["at"], "parts": p} for s, p in zip_equal(wanted["samples"], parts)]
        assert decode.salvage(data) == {"samples": samples, "skipped": []}
    if wanted["kind"] == "recordio" and "error" not in wanted:
        records = [[r["at"], r["length"], r["crc32"]] for r in wanted["records"]]
        assert decode.resync(data) == {"records": records, "skipped": []}


def test_segment_in_the_documentation_is_a_vector():
    page = (FORMAT / "SPEC.md").read_text(encoding="utf-8")
    rows = re.findall(r"^    0[0-9a-f]{3}  ([0-9a-f ]+)$", page, re.MULTILINE)
    assert bytes.fromhex("".join(rows)) == (FORMAT / "vectors/ok/spec.rec").read_bytes()


def test_command_prints_outcomes_and_fails_on_a_refused_file():
    for path, status in [(FORMAT / "vectors/ok/spec.rec", 0), (FORMAT / "vectors/bad/cut-trailer.rec", 1)]:
        command = [sys.executable, str(FORMAT / "decode.py"), str(path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (status, "")
        assert json.loads(done.stdout) == {"path": str(path)} | expected(path)
