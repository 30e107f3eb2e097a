"""Times of streams, compared with an outside clock around the same calls."""

import threading
import time

import pytest
from conftest import add, numbered, numbers, until

import ringreel


def close(seconds):
    """Within 2 % and what a busy machine explains: the outside clock also runs while Python waits for the GIL."""
    return pytest.approx(seconds, rel=0.02, abs=0.05)


def test_stream_times_match_an_outside_clock(filled):
    ring = filled(numbered(4), KEEP=3)
    stream = ring.stream(repeat=False, timeout=60)
    assert stream.stats() == ringreel.StreamStats()
    inside = between = 0.0
    returned = None
    later = threading.Timer(0.8, add, (ring, numbered(4, start=10)))
    later.start()
    for _ in range(6):
        called = time.monotonic()
        between += 0 if returned is None else called - returned
        next(stream)
        returned = time.monotonic()
        inside += returned - called
        time.sleep(0.05)
    later.join()
    stats = stream.stats()
    assert stats.waited_seconds + stats.read_seconds == close(inside)
    assert stats.step_seconds == close(between + time.monotonic() - returned)
    assert stats.waited_seconds > 0.1
    whole = stats.waited_seconds + stats.read_seconds + stats.step_seconds
    assert stats.starved == pytest.approx(stats.waited_seconds / whole)
    assert (stats.share_read, stats.reads_per_sample) == (6 / 8, 1.0)


def test_stats_are_read_while_next_waits_and_after_close(filled):
    ring = filled(numbered(2))
    stream = ring.stream(repeat=False)
    assert numbers([next(stream), next(stream)]) == [0, 1]
    waiting = threading.Thread(target=lambda: list(stream))
    waiting.start()
    until(lambda: stream.stats().waited_seconds > 0.1)
    stream.close()
    waiting.join(60)
    assert stream.stats().waited_seconds > 0.1
    assert stream.stats() == stream.stats()


def test_wait_for_the_ring_counts_as_starved(config):
    ring = ringreel.Ring(config(SWAP_CAP=2))
    later = threading.Timer(0.5, add, (ring, numbered(2)))
    begun = time.monotonic()
    later.start()
    with ring.stream(epochs=1, timeout=60) as stream:
        assert len(list(stream)) == 2
    later.join()
    assert 0.4 < stream.stats().waited_seconds < time.monotonic() - begun
