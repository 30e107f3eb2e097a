"""The training script: two ranks, stopped by a signal and resumed, read every sample of each epoch once."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import ringreel

pytest.importorskip("torch")
SCRIPT = Path(__file__).resolve().parent / "train.py"
# Catches a program that hangs.
SECONDS = 600


@pytest.fixture
def here(tmp_path):
    """A directory with a ring of one generation of 32 samples."""
    config = tmp_path / "config.yaml"
    config.write_text("DBNAME: demo\nSWAP_CAP: 32\nSAMPLE: [image, label]\n")
    rng = np.random.default_rng(0)
    with ringreel.Ring(config).generator() as generator:
        for _ in range(32):
            generator.write((rng.random((8, 8, 8), np.float32), rng.integers(0, 5, (8, 8, 8), np.uint8)))
    return tmp_path


def start(here, *options):
    """Starts two ranks, as torchrun does."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    ranks = []
    for rank in range(2):
        own = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, str(SCRIPT), "--batch-size", "2", "--seen", "seen", *options]
        ranks.append(subprocess.Popen(command, cwd=here, env={**os.environ, **own}))
    return ranks


def statuses(ranks):
    """Waits for all ranks."""
    return [process.wait(SECONDS) for process in ranks]


def seen(here):
    """The ids that each rank has read, by step."""
    return [
        [tuple(line.split()) for line in (here / f"seen.{rank}").read_text().splitlines()]
        for rank in range(2)
        if (here / f"seen.{rank}").exists()
    ]


def test_training_resumes_with_the_next_sample(here):
    """An epoch is 8 steps of two ranks with two samples each. SIGTERM to one rank ends both at the same step."""
    ranks = start(here, "--steps", "1000000")
    deadline = time.monotonic() + SECONDS
    while len(seen(here)) < 2 or min(map(len, seen(here))) < 6:
        assert time.monotonic() < deadline and ranks[0].poll() is None
        time.sleep(0.05)
    ranks[1].send_signal(signal.SIGTERM)
    assert statuses(ranks) == [75, 75]
    stopped_at = [int(rows[-1][0]) for rows in seen(here)]
    assert stopped_at[0] == stopped_at[1]

    # On to the end of the epoch after the next one.
    steps = (stopped_at[0] // 8 + 2) * 8
    assert statuses(start(here, "--steps", str(steps))) == [0, 0]
    rows = [row for rank in seen(here) for row in rank]
    assert len(rows) == steps * 4
    for epoch in range(steps // 8):
        ids = [sample for step, sample in rows if (int(step) - 1) // 8 == epoch]
        assert len(ids) == len(set(ids)) == 32
