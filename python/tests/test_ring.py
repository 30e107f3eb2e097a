"""Ring: forms of configuration, the counts of the status, pickling."""

import os
import pickle

import numpy as np
from conftest import add, numbered, numbers

import ringreel


def test_a_ring_and_a_dataset_can_be_pickled(filled, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "config.yaml"
    path.write_text("RING: here\nSWAP_CAP: 4\nSAMPLE: [data]\n")
    for given in ("config.yaml", {"RING": "here", "SWAP_CAP": 4, "SAMPLE": ["data"]}):
        ring = ringreel.Ring(given)
        assert ring.path == str(tmp_path / "here")
        add(ring, numbered(4))
        dataset = ring.dataset(timeout=5)
        assert len(dataset) == 4
        data = pickle.dumps((ring, dataset, ring.stream(epochs=1)))
        monkeypatch.chdir("/")
        again, copy, stream = pickle.loads(data)
        assert again.path == ring.path and numbers(copy) == numbers(stream) == [0, 1, 2, 3]
        monkeypatch.chdir(tmp_path)


def test_dict_can_hold_paths_and_numpy_numbers(tmp_path):
    ring = ringreel.Ring({"RING": tmp_path / "ring", "SWAP_CAP": np.int64(2), "SAMPLE": ("a", "b")})
    assert ring.path == str(tmp_path / "ring") and ring.sample == ["a", "b"] and ring.path in repr(ring)
    assert not os.path.exists(ring.path)  # the ring is not opened


def test_status_counts_samples_and_generations(config):
    ring = ringreel.Ring(config(KEEP=5))
    add(ring, numbered(4))
    add(ring, numbered(3), promote=False)
    status = ring.status()
    assert (status["swaps"], status["newest"], status["swap_cap"], status["sample"]) == (1, 1, 4, ["data"])
    assert (status["samples_delivered"], status["samples_waiting"], status["samples_generated"]) == (4, 3, 7)
    writing = status["writing"]
    assert (writing["generation"], writing["samples"], writing["cap"], writing["swapping"]) == (2, 3, 4, False)
    assert writing["bytes"] > 0
    assert [generation["samples"] for generation in status["generations"]] == [4]
    assert status["ring"] == ring.path and status["manager"] is None and status["quarantined"] == 0
    with ring.generator():
        assert [member["pid"] for member in ring.status()["generators"]] == [os.getpid()]
