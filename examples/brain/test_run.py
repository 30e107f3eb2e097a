"""Runs the example with a small generation, and with ellipsoids in place of the brain: nothing is downloaded."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

for package in ("scipy", "nibabel", "PIL"):
    pytest.importorskip(package)
HERE = Path(__file__).resolve().parent
SHAPE = (149, 185, 159)
# Catches processes that hang.
SECONDS = 600


def nested_ellipsoids():
    """Returns a label map like that of template.load_label_map: each label is inside the previous one."""
    axes = np.ogrid[tuple(slice(-1, 1, n * 1j) for n in SHAPE)]
    radius = sum(axis**2 for axis in axes)
    labels = np.zeros(SHAPE, np.uint8)
    for label, limit in enumerate((0.8, 0.7, 0.5, 0.05), 1):
        labels[radius < limit] = label
    return labels


def test_processes_write_and_read_without_a_loss(tmp_path):
    """Two generators, a manager and two ranks: all exit with 0, and no sample is lost."""
    here = tmp_path / "brain"
    shutil.copytree(HERE, here, ignore=shutil.ignore_patterns("work", "cache", "__pycache__"))
    source = (here / "template.py").read_text()
    version, recipe = (source.split(f"{name} = ")[1].split()[0].strip('"') for name in ("NILEARN_VERSION", "_RECIPE"))
    (here / "cache").mkdir()
    np.save(here / "cache" / f"labels-{version}-r{recipe}.npy", nested_ellipsoids())
    config = (here / "config.yaml").read_text().replace("SWAP_CAP: 48", "SWAP_CAP: 4")
    (here / "config.yaml").write_text(config.replace("SEGMENT_SAMPLES: 8", "SEGMENT_SAMPLES: 1"))
    command = [sys.executable, "run.py", "--samples", "12", "--seconds", str(SECONDS // 2)]
    done = subprocess.run(command, cwd=here, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads((here / "work" / "summary.json").read_text())
    assert summary["swaps"] >= 3 and summary["lost"] == 0 and summary["made"] >= 12, summary
    assert (here / "samples.png").read_bytes().startswith(b"\x89PNG")


def test_report_of_one_process_says_so(monkeypatch):
    monkeypatch.syspath_prepend(str(HERE))
    import report

    names = "made_per_s read_per_s reuse first_wait_s longest_wait_s".split()
    counts = dict.fromkeys("made read distinct delivered".split(), 8) | {"generators": 1, "readers": 1, "swaps": 1}
    result = {**dict.fromkeys(names, 1.0), **counts, "waiting": 0, "swap_s": None, "lost": 0, "labels": {}}
    text = report.as_text(result)
    assert "8 samples by 1 process," in text and "8 samples by 1 rank," in text
    assert "8 samples by 2 processes," in report.as_text({**result, "generators": 2})
