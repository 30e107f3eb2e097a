"""Times of mixtures and loaders, compared with an outside clock around the same calls."""

import contextlib
import copy
import pickle
import threading
import time

import pytest
from conftest import add, numbered, until

import ringreel
from ringreel import StreamStats


def close(seconds):
    """Within 2 % and what a busy machine explains: the outside clock also runs while Python waits for the GIL."""
    return pytest.approx(seconds, rel=0.02, abs=0.05)


class Outside:
    """Measures the time inside and outside of the calls of an iterator."""

    def __init__(self, iterator):
        self.iterator = iterator
        self.inside = self.between = 0.0
        self.returned = None

    def next(self):
        called = time.monotonic()
        self.between += 0 if self.returned is None else called - self.returned
        item = next(self.iterator)
        self.returned = time.monotonic()
        self.inside += self.returned - called
        return item

    def assert_matches(self, stats):
        assert stats.waited_seconds + stats.read_seconds == close(self.inside)
        assert stats.step_seconds == close(self.between + time.monotonic() - self.returned)
        whole = stats.waited_seconds + stats.read_seconds + stats.step_seconds
        assert stats.starved == pytest.approx(stats.waited_seconds / whole)


@contextlib.contextmanager
def published_during_a_wait(reader, ring, samples):
    """Makes samples readable, in a thread, after `reader` has waited for 0.3 s."""

    def publish():
        until(lambda: reader.stats().waited_seconds > 0.3)
        add(ring, samples)

    thread = threading.Thread(target=publish)
    thread.start()
    yield
    thread.join(60)


def slow(count, seconds):
    for number in range(count):
        time.sleep(seconds)
        yield number


def test_mixture_times_match_an_outside_clock(filled):
    """Two streams wait, one after the other, and a source without times is slow."""
    ring = filled(numbered(4), KEEP=3)
    streams = [ring.stream(repeat=False, timeout=60) for _ in range(2)]
    mixture = ringreel.Mixture([*streams, slow(4, 0.1)], seed=1)
    assert mixture.stats() == ringreel.MixtureStats(sources=(StreamStats(), StreamStats(), None))
    clock = Outside(mixture)
    with published_during_a_wait(mixture, ring, numbered(4, start=10)):
        for _ in range(16):
            clock.next()
            time.sleep(0.05)
    stats = mixture.stats()
    clock.assert_matches(stats)
    first, second, other = stats.sources
    assert other is None and mixture.given[2] == 4
    assert stats.waited_seconds == pytest.approx(first.waited_seconds + second.waited_seconds)
    assert stats.waited_seconds > 0.3 and stats.read_seconds > 0.4
    # A stream's own step contains what the mixture does with the other sources.
    assert first.step_seconds > stats.step_seconds * 0.9
    assert (stats.distinct, stats.offered, stats.share_read, stats.reads_per_sample) == (12, 16, 0.75, 1.0)


def test_mixture_counts_no_time_before_its_start_and_after_its_end():
    with ringreel.Mixture([[1, 2], [3]]) as mixture:
        time.sleep(0.01)
        assert len(list(mixture)) == 3
        ended = mixture.stats()
        time.sleep(0.01)
        assert mixture.stats() == ended
        assert ended.starved == 0
    failing = ringreel.Mixture([map(int, ["1", "x", "2"])])
    assert next(failing) == 1
    with pytest.raises(ValueError, match="'x'"):
        next(failing)
    before = failing.stats().step_seconds
    until(lambda: failing.stats().step_seconds > before)  # the caller handles the error


def test_loader_times_match_an_outside_clock(config):
    ring = ringreel.Ring(config(SWAP_CAP=8))
    loader = ringreel.StreamLoader(ring, 2, collate=lambda batch: time.sleep(0.04))
    assert loader.stats() == StreamStats()
    clock = Outside(iter(loader))
    with published_during_a_wait(loader, ring, numbered(8)):
        for _ in range(4):
            clock.next()
            time.sleep(0.05)
    stats = loader.stats()
    clock.assert_matches(stats)
    assert stats.waited_seconds > 0.3 and stats.read_seconds > 0.15
    assert list(clock.iterator) == []
    ended = loader.stats()
    time.sleep(0.01)
    assert loader.stats() == ended, "no time counts between two iterations"
    list(loader)
    assert loader.stats().read_seconds > ended.read_seconds + 0.15
    assert pickle.loads(pickle.dumps(ringreel.StreamLoader([1], 1))).stats() == StreamStats()
    assert copy.deepcopy(loader._calls).seconds() == (0, 0)


@pytest.mark.parametrize("prefetch", [0, 1])
def test_loader_shows_a_wait_for_its_ring_while_it_lasts(config, prefetch):
    ring = ringreel.Ring(config(SWAP_CAP=2))
    loader = ringreel.StreamLoader(ring, 2, prefetch=prefetch)
    waiting = threading.Thread(target=lambda: [*iter(loader)])  # `list(loader)` would wait in `len`
    waiting.start()
    until(lambda: loader.stats().waited_seconds > 0.1)
    add(ring, numbered(2))
    waiting.join(60)
    assert loader.stats().waited_seconds > 0.1


def test_loader_counts_the_waits_of_streams_that_its_source_makes(filled):
    ring = filled(numbered(2), KEEP=3)
    made = []

    def source():
        made.append(ring.stream(epochs=2 - len(made), repeat=False, timeout=60, run=f"epoch-{len(made)}"))
        return made[-1]

    loader = ringreel.StreamLoader(source, 2, epochs=2)
    with published_during_a_wait(loader, ring, numbered(2, start=10)):
        assert sum(map(len, loader)) == 6  # the second stream begins with the newest generation
    waited = [stream.stats().waited_seconds for stream in made]
    assert loader.stats().waited_seconds == pytest.approx(sum(waited)) and waited[0] > 0.1


def test_loader_that_is_left_counts_no_more_time():
    loader = ringreel.StreamLoader(range(10), 2)
    for _ in loader:
        time.sleep(0.02)
        break
    left = loader.stats()
    assert left.step_seconds >= 0.02 and left.waited_seconds == 0
    assert loader.stats() == left


def test_sum_weights_means_by_reads():
    one = StreamStats(1.0, 2.0, 1.0, 0.25, 0.5, 3.0, 10.0, distinct=2, offered=4)
    other = StreamStats(0.0, 0.0, 4.0, 0.0, 1.0, 1.0, 20.0, distinct=4, offered=4)
    empty = StreamStats()
    total = StreamStats.sum([one, other, empty])
    assert total == StreamStats(1.0, 2.0, 5.0, 0.125, 0.75, 10 / 6, 14.0, distinct=6, offered=8)
    assert StreamStats.sum([]) == empty
