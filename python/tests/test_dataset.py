"""Datasets: their samples, and slow, reclaimed or damaged rings."""

import logging
import os
import pickle
import shutil
import threading
import time

import numpy as np
import pytest
from conftest import add, numbered, numbers, ruin, segment_files

import ringreel


def test_a_dataset_is_a_sequence(filled):
    dataset = filled(numbered(5)).dataset()
    assert len(dataset) == 5 and dataset.generation == 1
    assert numbers(dataset) == [0, 1, 2, 3, 4]
    assert numbers([dataset[-1], dataset[np.int8(2)], dataset[np.uint64(1)]]) == [4, 2, 1]
    assert numbers(dataset[1:-1]) == [1, 2, 3] and numbers(dataset[::-2]) == [4, 2, 0] and dataset[7:] == []
    for index in (5, -6, 10**30):
        with pytest.raises(IndexError, match="generation 1 has 5"):
            dataset[index]
    with pytest.raises(TypeError):
        dataset["0"]


def test_a_dataset_stays_with_its_generation_until_it_is_refreshed(filled):
    ring = filled(numbered(3), KEEP=2)
    dataset = ring.dataset()
    assert numbers(dataset) == [0, 1, 2]
    assert dataset.refresh() is False
    add(ring, numbered(2, start=10))
    assert numbers(dataset) == [0, 1, 2] and dataset.generation == 1
    assert dataset.refresh() is True
    assert dataset.generation == 2 and len(dataset) == 2 and numbers(dataset) == [10, 11]


def test_dataset_continues_after_its_generation_is_reclaimed(filled, caplog):
    caplog.set_level(logging.INFO, "ringreel")
    ring = filled(numbered(4), KEEP=0)
    dataset = ring.dataset()
    assert numbers([dataset[0]]) == [0]
    add(ring, numbered(4, start=10))
    add(ring, numbered(4, start=20))
    assert numbers([dataset[1]]) == [21] and dataset.generation == 3
    assert "generation 1 was reclaimed: continuing with generation 3" in caplog.text


def test_index_beyond_a_shorter_newer_generation_is_an_index_error(filled):
    ring = filled(numbered(4), KEEP=0)
    dataset = ring.dataset()
    assert len(dataset) == 4
    add(ring, numbered(2, start=10))
    with pytest.raises(IndexError, match="generation 2 has 2"):
        dataset[3]


def test_iteration_ends_early_in_a_shorter_newer_generation(filled):
    ring = filled(numbered(4), KEEP=0)
    found = []
    for sample in ring.dataset():
        found += numbers([sample])
        if len(found) == 1:
            add(ring, numbered(2, start=10))
    assert found == [0, 11]


def test_reclaimed_generation_without_a_newer_one_is_an_error(filled):
    ring = filled(numbered(2))
    dataset = ring.dataset()
    assert len(dataset) == 2
    shutil.rmtree(os.path.join(ring.path, "read.1"))
    with pytest.raises(ringreel.ReclaimedError, match="generation 1 is not available"):
        dataset[0]


@pytest.mark.parametrize("read", ["mmap", "pread"])
@pytest.mark.parametrize("how", ["deleted", "cut short", "cut open", "changed"])
def test_damaged_sample_error_names_generation_position_and_path(filled, how, read):
    ring = filled(numbered(3, size=20_000), READ=read, VERIFY="always")
    dataset = ring.dataset()
    assert how != "cut open" or numbers(dataset) == [0, 1, 2]  # the dataset is already open
    path = segment_files(ring)[1]
    ruin(path, how)
    with pytest.raises(ringreel.DamagedSampleError) as caught:
        dataset[1]
    error = caught.value
    assert error.path == path and path in str(error)
    assert (error.generation, error.position) == (1, 1) and error.sample_id in str(error)
    assert numbers([dataset[0], dataset[2]]) == [0, 2]
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.path, again.position) == (str(error), path, 1)


def test_timeout_error_says_what_was_missing(filled, config, caplog):
    caplog.set_level(logging.INFO, "ringreel")
    for use in (lambda ring: len(ring.dataset(timeout=0.2)), lambda ring: next(ring.stream(timeout=0.2))):
        with pytest.raises(ringreel.RingTimeoutError, match="a ring at .*ring"):
            use(ringreel.Ring(config()))
    ring = ringreel.Ring(config())
    add(ring, numbered(1), promote=False)
    with pytest.raises(TimeoutError, match="1 of 4 samples are written"):
        ring.dataset(timeout=0.2)[0]
    assert "waiting for a ring at" in caplog.text and "waiting for the first generation" in caplog.text
    stream = filled(numbered(1), RING=ring.path + "2").stream(repeat=False, timeout=0.1)
    next(stream)
    with pytest.raises(ringreel.RingTimeoutError, match="generation 2 holds 0 of 1 samples"):
        next(stream)


def test_reader_can_start_before_the_ring_exists(config):
    ring = ringreel.Ring(config())
    found = []
    reader = threading.Thread(target=lambda: found.extend(numbers(ring.dataset(timeout=30)[:])))
    reader.start()
    time.sleep(0.2)
    add(ring, numbered(4))
    reader.join()
    assert found == [0, 1, 2, 3]


def test_reader_waits_while_the_ring_is_created(filled):
    """A ring that is being created has its descriptor before its first manifest."""
    ring = filled(numbered(2))
    manifests = os.path.join(ring.path, "manifests")
    os.rename(manifests, manifests + ".later")
    os.mkdir(manifests)

    def born():
        os.rmdir(manifests)
        os.rename(manifests + ".later", manifests)

    with pytest.raises((ringreel.RingNotFoundError, TimeoutError)):
        len(ring.dataset(timeout=0))
    later = threading.Timer(0.3, born)
    later.start()
    assert numbers(ring.dataset(timeout=30)) == [0, 1]
    later.join()


def test_threads_can_share_a_dataset(filled):
    dataset = filled(numbered(16, size=10_000), SEGMENT_SAMPLES=4).dataset()
    found = []
    threads = [threading.Thread(target=lambda: found.extend(numbers(dataset))) for _ in range(6)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert sorted(found) == sorted(list(range(16)) * 6)


@pytest.mark.parametrize("timeout", [-1, float("nan")])
def test_invalid_timeout_is_refused(config, timeout):
    with pytest.raises(ValueError, match="timeout"):
        len(ringreel.Ring(config()).dataset(timeout=timeout))


def test_a_pickled_dataset_stays_with_its_generation(filled):
    ring = filled(numbered(3), KEEP=1)
    dataset = ring.dataset()
    assert len(dataset) == 3
    data = pickle.dumps(dataset)
    add(ring, numbered(2, start=10))
    assert numbers(pickle.loads(data)) == [0, 1, 2]
    add(ring, numbered(2, start=20))
    assert numbers(pickle.loads(data)[:2]) == [20, 21]  # reclaimed, so the newest is read
