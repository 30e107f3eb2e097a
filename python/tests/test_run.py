"""run_generator and run_manager: their samples, their end, their log."""

import glob
import logging
import os
import signal
import threading
import time

import numpy as np
import pytest
from conftest import add, managed, numbered, numbers, until, zip_equal

import ringreel


def count(pulled, stop=None):
    """Yields `stop` samples, or samples without end, and records the number of each."""
    number = 0
    while stop is None or number < stop:
        pulled.append(number)
        yield {"data": np.full(3, number)}
        number += 1


def test_all_samples_of_a_generator_are_written(config):
    pulled = []
    summary = ringreel.run_generator(count(pulled, 6), config(SWAP_CAP=6))
    assert (summary.finished, summary.delivered, summary.waiting, summary.interrupted) == (6, 6, 0, False)
    assert summary.swaps == 1 and summary.bytes > 0 and summary.waited_seconds >= 0
    assert sorted(numbers(ringreel.Ring(config(SWAP_CAP=6)).dataset())) == list(range(6))


def test_a_generator_is_pulled_n_times_and_never_ahead(config):
    pulled = []
    for total in (3, 5):
        ringreel.run_generator(count(pulled), config(), n_samples=3 if total == 3 else 2)
        assert len(pulled) == total
    assert ringreel.run_generator(count(pulled), config(), n_samples=0).finished == 0 and len(pulled) == 5
    with pytest.raises(ValueError, match="n_samples"):
        ringreel.run_generator([], config(), n_samples=-1)


def test_a_partial_generation_is_readable_when_it_is_sealed(config):
    ring = ringreel.Ring(config(SWAP_CAP=100))
    assert ringreel.run_generator(numbered(3), ring).delivered == 0
    assert ringreel.run_generator(numbered(2, start=3), ring, promote=True).delivered == 2
    assert numbers(ring.dataset()) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("segment_samples", [1, 2, 5])
def test_full_last_generation_is_promoted_without_a_manager(config, segment_samples):
    ring = ringreel.Ring(config(SWAP_CAP=5, SEGMENT_SAMPLES=segment_samples))
    assert ringreel.run_generator(numbered(5), ring).delivered == 5
    assert numbers(ring.dataset(timeout=1)) == [0, 1, 2, 3, 4]


def test_full_last_generation_is_left_to_a_manager(config, caplog):
    ring = ringreel.Ring(config(SWAP_CAP=5, LEASE_SECONDS=30))
    with managed(ring, caplog):
        assert ringreel.run_generator(numbered(5), ring).swaps == 0
        assert numbers(ring.dataset(timeout=20)) == [0, 1, 2, 3, 4]
    assert ring.status()["manager"] is None


def test_full_generation_is_readable_at_once_without_a_manager(config):
    ring = ringreel.Ring(config(SWAP_CAP=2, SEGMENT_SAMPLES=10, KEEP=5))
    with ring.generator() as other:
        [other.write(sample) for sample in numbered(2)]
        assert ring.status()["swaps"] == 1
        summary = ringreel.run_generator(numbered(1), ring)
        assert (summary.finished, summary.swaps) == (1, 0)
        assert ring.status()["writing"]["samples"] == 1


def test_segment_damaged_before_its_commit_is_logged_as_an_error(config, caplog):
    ring = ringreel.Ring(config(SWAP_CAP=2))
    with ring.generator() as generator:
        generator.write((1,))
        (path,) = glob.glob(os.path.join(ring.path, "write.1", "*.rec"))
        os.truncate(path, os.path.getsize(path) // 2)
        for sample in numbered(3):
            generator.write(sample)
    told = [record for record in caplog.records if "quarantine" in record.getMessage()]
    assert [record.levelname for record in told] == ["ERROR", "WARNING"], caplog.text
    assert "reason: " in told[0].getMessage() and ring.status()["quarantined"] == 1


class Unlucky(Exception):
    """An exception of a user's generator."""


def unlucky(after):
    yield from numbered(after)
    raise Unlucky("out of luck", 7)


@pytest.mark.parametrize("segment_samples", [1, 10])
def test_exception_is_unchanged_and_finished_samples_are_committed(config, segment_samples, caplog):
    ring = ringreel.Ring(config(SWAP_CAP=100, SEGMENT_SAMPLES=segment_samples))
    with pytest.raises(Unlucky) as caught:
        ringreel.run_generator(unlucky(5), ring)
    error = caught.value
    assert error.args == ("out of luck", 7)
    assert error.__notes__ == [
        f"ringreel: 5 samples were committed to {ring.path} before this "
        "(0 delivered, 5 waiting for their generation to fill)"
    ]
    assert "unlucky" in [entry.name for entry in caught.traceback]
    assert ring.status()["samples_waiting"] == 5 and ring.status()["writing"]["samples"] == 5
    assert "Unlucky: ('out of luck', 7)" in caplog.text


def test_exception_is_recorded_for_other_processes(config, monkeypatch):
    ring = ringreel.Ring(config())
    told = []
    monkeypatch.setattr(ringreel.Generator, "_failed", lambda self, error: told.append(error))
    with pytest.raises(Unlucky) as caught:
        ringreel.run_generator(unlucky(1), ring)
    assert told == [caught.value]


def test_mismatched_sample_ends_the_run_in_the_same_way(config):
    ring = ringreel.Ring(config(SWAP_CAP=100))
    with pytest.raises(ringreel.SampleError, match="part 'data'") as caught:
        ringreel.run_generator([{"data": 1}, {"data": object()}, {"data": 2}], ring)
    assert "1 sample was committed" in caught.value.__notes__[0]


def test_system_exit_commits_and_propagates(config):
    def leaving():
        yield from numbered(2)
        raise SystemExit(3)

    ring = ringreel.Ring(config(SWAP_CAP=100))
    with pytest.raises(SystemExit) as caught:
        ringreel.run_generator(leaving(), ring)
    assert caught.value.code == 3 and ring.status()["samples_waiting"] == 2


def test_object_that_is_not_iterable_is_refused_with_a_hint(config):
    with pytest.raises(TypeError, match="found function; call it"):
        ringreel.run_generator(count, config())


def test_signal_handlers_are_restored(config):
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    seen = []

    def look():
        seen.append((signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)))
        yield {"data": 1}

    ringreel.run_generator(look(), config())
    with pytest.raises(Unlucky):
        ringreel.run_generator(unlucky(0), config())
    assert before == (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM))
    assert all(during is not handler for during, handler in zip_equal(seen[0], before))


def test_signals_are_not_handled_outside_the_main_thread(config):
    done = []
    thread = threading.Thread(target=lambda: done.append(ringreel.run_generator(numbered(2), config())))
    before = signal.getsignal(signal.SIGINT)
    thread.start()
    thread.join()
    assert done[0].finished == 2 and signal.getsignal(signal.SIGINT) is before


def test_other_threads_run_while_rust_waits(config):
    """The GIL is not held while a generator waits for room."""
    ring = ringreel.Ring(config(SWAP_CAP=1, KEEP=0, MAX_FILES=1, LEASE_SECONDS=60))
    generator = ring.generator()
    stop = threading.Event()
    ticks = []

    def tick():
        while not stop.is_set():
            ticks.append(time.monotonic())
            time.sleep(0.01)

    clock = threading.Thread(target=tick)
    clock.start()
    try:
        with pytest.raises(Unlucky):
            signal.signal(signal.SIGALRM, give_up)
            signal.setitimer(signal.ITIMER_REAL, 0.5)
            for sample in numbered(100):
                generator.write(sample)
    finally:
        stop.set()
        clock.join()
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
    gaps = np.diff(ticks)
    assert len(gaps) > 10 and gaps.max() < 0.3


def give_up(number, frame):
    raise Unlucky("time is up")


def test_swaps_are_logged_once_a_minute_and_counted_at_the_end(config, caplog):
    keys = config(SWAP_CAP=2, LEASE_SECONDS=30)
    with managed(keys, caplog):
        ringreel.run_generator(numbered(4), keys)
        until(lambda: ringreel.Ring(keys).status()["swaps"] == 2)
    swaps = [record for record in caplog.records if record.getMessage().startswith("swap: generation")]
    assert [(record.name, record.levelname) for record in swaps] == [("ringreel", "INFO")]
    assert "the manager stopped after 2 swaps" in caplog.text
    assert "4 samples are finished and safe in" in caplog.text


def test_swap_log_names_the_removed_generation(config, caplog):
    keys = config(SWAP_CAP=2, LEASE_SECONDS=30, KEEP=0)
    add(ringreel.Ring(keys), numbered(2))
    with managed(keys, caplog):
        ringreel.run_generator(numbered(2), keys)
        until(lambda: ringreel.Ring(keys).status()["swaps"] == 2)
    [swap] = [text for text in caplog.messages if text.startswith("swap: generation 2 is readable: ")]
    assert swap.endswith("; removed 1 old generation (2 samples), which KEEP no longer covers")


def test_log_has_no_messages_below_info(config, caplog):
    caplog.set_level(logging.DEBUG, "ringreel")
    ringreel.run_generator(numbered(4), config())
    assert caplog.records and all(record.levelno >= logging.INFO for record in caplog.records)


@pytest.mark.parametrize("asked", [lambda event: event, lambda event: event.is_set], ids=["event", "callable"])
def test_stop_ends_a_generator_between_samples(config, asked):
    event, pulled = threading.Event(), []

    def samples():
        for sample in count(pulled):
            yield sample
            if len(pulled) == 3:
                event.set()

    summary = ringreel.run_generator(samples(), config(SWAP_CAP=10), stop=asked(event))
    assert (summary.finished, summary.waiting, summary.interrupted, len(pulled)) == (4, 4, True, 4)


def test_stop_ends_a_generator_that_waits_for_room(config):
    """Runs outside the main thread, where Python does not handle signals."""
    keys, event, ended, pulled = config(SWAP_CAP=2, REUSE={"min": 1}), threading.Event(), [], []
    run = lambda: ended.append(ringreel.run_generator(count(pulled), keys, stop=event))  # noqa: E731
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    until(lambda: len(pulled) == 6, 60)  # two generations of two, one staged, one that is being written
    event.set()
    thread.join(60)
    assert ended[0].interrupted and ended[0].finished == 6 and len(pulled) == 6


def test_an_event_ends_a_manager(config):
    event = threading.Event()
    thread = threading.Thread(target=ringreel.run_manager, args=(config(), event), daemon=True)
    thread.start()
    event.set()
    thread.join(60)
    assert not thread.is_alive()
