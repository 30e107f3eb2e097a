"""Streams: shares, repetitions, new generations, and damaged samples."""

import os
import pickle
import threading

import pytest
from conftest import add, numbered, numbers, ruin, segment_files, until

import ringreel


def test_damaged_samples_are_skipped_counted_and_logged_once(filled, caplog):
    ring = filled(numbered(4, size=20_000))
    files = segment_files(ring)
    ruin(files[1], "deleted")
    ruin(files[2], "cut short")
    with ring.stream(epochs=3) as stream:
        assert numbers(stream) == [0, 3] * 3
        assert stream.damaged == 2 and stream.epochs == 3
    warned = [record.getMessage() for record in caplog.records if record.getMessage().startswith("sample skipped")]
    assert len(warned) == 2 and files[1] in warned[0] and files[2] in warned[1]


def test_a_stream_gives_each_rank_its_share(filled):
    ring = filled(numbered(10))
    shares = [numbers(ring.stream(rank=rank, world_size=3, epochs=1)) for rank in range(3)]
    assert shares == [[0, 3, 6, 9], [1, 4, 7], [2, 5, 8]]


def test_stream_repeats_a_generation_until_a_newer_one_exists(filled):
    ring = filled(numbered(2), KEEP=3)
    stream = ring.stream()
    assert numbers([next(stream) for _ in range(5)]) == [0, 1, 0, 1, 0]
    add(ring, numbered(2, start=10))
    assert numbers([next(stream) for _ in range(4)]) == [1, 10, 11, 10]
    stream.close()
    assert list(stream) == []


def test_a_stream_that_does_not_repeat_waits_for_a_newer_generation(filled):
    ring = filled(numbered(2), KEEP=3)
    stream = ring.stream(repeat=False, timeout=30)
    assert numbers([next(stream), next(stream)]) == [0, 1]
    later = threading.Timer(0.3, add, (ring, numbered(2, start=10)))
    later.start()
    assert numbers([next(stream), next(stream)]) == [10, 11]
    later.join()


@pytest.mark.parametrize(
    "options",
    [{"rank": 2, "world_size": 2}, {"rank": -1}, {"world_size": 0}, {"epochs": -1}],
    ids=lambda options: " ".join(options),
)
def test_invalid_share_is_refused(config, options):
    with pytest.raises(ValueError, match="rank|epochs"):
        ringreel.Ring(config()).stream(**options)


def test_zero_epochs_give_no_samples(filled):
    assert list(filled(numbered(2)).stream(epochs=0)) == []


def test_status_lists_readers_while_they_stream(filled):
    ring = filled(numbered(2))
    stream = ring.stream()
    next(stream)
    assert [reader["pid"] for reader in ring.status()["readers"]] == [os.getpid()]
    del stream
    until(lambda: ring.status()["readers"] == [])


def test_stream_that_has_started_cannot_be_pickled(filled):
    stream = filled(numbered(1)).stream()
    next(stream)
    with pytest.raises(TypeError, match="a stream that has started"):
        pickle.dumps(stream)
