"""Held-out samples: the first ones of a ring, by index, which are never served for training."""

import os
import pickle
import shutil

import numpy as np
import pytest
from conftest import add, numbered, numbers, segment_files

import ringreel


@pytest.fixture
def ring(config):
    """A ring of four samples a generation that holds out the first six."""
    return ringreel.Ring(config(VALIDATION=6))


def directories(ring):
    return sorted(int(name[5:]) for name in os.listdir(ring.path) if name.startswith("read."))


def test_validation_is_a_fixed_sequence_of_the_first_samples(ring):
    add(ring, numbered(8))
    validation = ring.validation()
    before = [sample.sample_id for sample in validation]
    add(ring, numbered(24, start=8))
    assert directories(ring) == [1, 2, 7, 8]
    assert len(validation) == 6 and numbers(validation) == [0, 1, 2, 3, 4, 5]
    assert [sample.sample_id for sample in ring.validation()] == before
    assert numbers([validation[-1], validation[np.int8(4)], validation[np.uint64(0)]]) == [5, 4, 0]
    assert numbers(validation[3:-1]) == [3, 4] and numbers(validation[::-2]) == [5, 3, 1] and validation[9:] == []
    for index in (6, -7, 10**30):
        with pytest.raises(IndexError, match="the ring holds out 6"):
            validation[index]
    with pytest.raises(TypeError):
        validation["0"]
    # Their positions do not depend on the served samples.
    places = [(sample.generation, sample.position) for sample in validation]
    assert places == [(1, 0), (1, 1), (1, 2), (1, 3), (2, 0), (2, 1)]


def test_dataset_serves_the_other_samples(ring):
    add(ring, numbered(8))
    dataset = ring.dataset()
    assert dataset.generation == 2 and len(dataset) == 2 and numbers(dataset) == [6, 7]
    assert numbers([dataset[-1], dataset[0]]) == [7, 6] and [sample.position for sample in dataset] == [2, 3]
    with pytest.raises(IndexError, match="generation 2 has 2"):
        dataset[2]
    add(ring, numbered(4, start=8))
    assert dataset.refresh() and numbers(dataset) == [8, 9, 10, 11]


def test_stream_serves_the_other_samples(ring):
    add(ring, numbered(8))
    assert sorted(numbers(ring.stream(epochs=1))) == [6, 7]


def test_pickled_dataset_of_a_held_out_generation_uses_the_newest(ring):
    add(ring, numbered(12))
    dataset = ring.dataset()
    state = list(dataset.__getstate__())
    state[2] = 1
    dataset.__setstate__(tuple(state))
    assert numbers(dataset) == [8, 9, 10, 11]


def test_validation_waits_until_all_its_samples_are_readable(ring):
    with pytest.raises(ringreel.RingTimeoutError, match="a ring at"):
        len(ring.validation(timeout=0.01))
    add(ring, numbered(4))
    with pytest.raises(ringreel.RingTimeoutError, match="the 6 held-out samples of .*: 4 are readable"):
        ring.validation(timeout=0.01)[0]
    with pytest.raises(ringreel.RingTimeoutError, match="beyond the 6 that are held out"):
        len(ring.dataset(timeout=0.01))
    add(ring, numbered(3, start=4))
    assert len(ring.validation(timeout=0.01)) == 6 and numbers(ring.dataset(timeout=0.01)) == [6]


def test_ring_without_validation_is_an_error(filled):
    with pytest.raises(ringreel.RingMismatchError, match="made without VALIDATION"):
        len(filled(numbered(3)).validation())


def test_different_validation_in_the_configuration_is_refused(ring, config):
    add(ring, numbered(8))
    for other in (5, 0):
        with pytest.raises(
            ringreel.RingMismatchError, match=f"made with VALIDATION 6, but the configuration has VALIDATION {other}"
        ):
            len(ringreel.Ring(config(VALIDATION=other)).validation())
    assert numbers(ringreel.Ring(config()).validation()) == [0, 1, 2, 3, 4, 5]


def test_validation_opens_lazily_and_per_process(ring):
    validation = ring.validation()
    assert repr(validation) == f"<ringreel.Validation {ring.path} (not open yet)>"
    add(ring, numbered(8))
    assert numbers(validation) == [0, 1, 2, 3, 4, 5]
    assert repr(validation) == f"<ringreel.Validation {ring.path} (6 samples)>"
    assert numbers(pickle.loads(pickle.dumps(validation))) == [0, 1, 2, 3, 4, 5]
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if numbers(validation) == [0, 1, 2, 3, 4, 5] else 1
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


def test_sample_removed_by_hand_is_an_error_that_says_so(ring):
    add(ring, numbered(8))
    validation = ring.validation()
    assert len(validation) == 6
    shutil.rmtree(os.path.join(ring.path, "read.1"))
    with pytest.raises(ringreel.ReclaimedError, match="generation 1 is not available"):
        validation[0]
    assert numbers([validation[5]]) == [5]


def test_status_counts_the_held_out_samples(ring):
    add(ring, numbered(12))
    status = ring.status()
    assert status["validation"] == 6
    assert [(each["generation"], each["held_out"]) for each in status["generations"]] == [(1, 4), (2, 2), (3, 0)]


def test_iteration_skips_a_damaged_sample_and_logs_it_once(ring, caplog):
    add(ring, numbered(8, size=1000))
    path = segment_files(ring)[1]
    with open(path, "r+b") as file:
        file.seek(os.path.getsize(path) // 2)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))
    validation = ring.validation()
    for _ in range(2):
        assert numbers(validation) == [0, 2, 3, 4, 5]
    assert (len(validation), validation.damaged) == (6, 1)
    assert caplog.text.count("validation sample 1 skipped") == 1
    with pytest.raises(ringreel.DamagedSampleError):
        validation[1]
    status = ring.status()
    assert (status["validation_readable"], status["validation_damaged"]) == (5, 1)
