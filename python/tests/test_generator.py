"""Generators: their end, their counts, and the record of their failure."""

import glob
import os
import time

import pytest
from conftest import numbered

import ringreel


class OutOfLuck(Exception):
    """An exception class that is not part of the package."""

    def __str__(self):
        return f"out of luck, {self.args[0]}"


def unlucky(count, error):
    yield from numbered(count)
    raise error


def failures(ring):
    return [(failure["role"], failure["message"]) for failure in ring.status()["failures"]]


def test_error_of_a_generator_is_recorded_with_type_and_text(config):
    ring = ringreel.Ring(config(SWAP_CAP=100))
    ringreel.run_generator(numbered(1), ring)
    assert failures(ring) == []
    with pytest.raises(OutOfLuck):
        ringreel.run_generator(unlucky(2, OutOfLuck(7)), ring)
    first = ("generator", f"{__name__}.OutOfLuck: out of luck, 7")
    assert ring.status()["generators"] == []
    assert failures(ring) == [first]
    with pytest.raises(ZeroDivisionError), ring.generator() as generator:
        generator.write(numbered(1)[0])
        1 / 0  # noqa: B018
    second = ("generator", "ZeroDivisionError: division by zero")
    assert failures(ring) == [second, first]
    with pytest.raises(SystemExit):
        ringreel.run_generator(unlucky(1, SystemExit(3)), ring)
    assert failures(ring) == [("generator", "SystemExit: 3"), second, first]
    assert ring.status()["failures"][0]["pid"] == os.getpid()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(), SystemExit(0)])
def test_stop_request_is_not_recorded_as_a_failure(config, error):
    ring = ringreel.Ring(config(SWAP_CAP=100))
    with pytest.raises(type(error)), ring.generator() as generator:
        generator.write(numbered(1)[0])
        raise error
    with pytest.raises(type(error)):
        ringreel.run_generator(unlucky(1, error), ring)
    assert failures(ring) == []


def test_error_whose_text_fails_hides_nothing(config):
    class Mute(Exception):
        def __str__(self):
            raise ValueError("no words")

    ring = ringreel.Ring(config(SWAP_CAP=100))
    with pytest.raises(Mute):
        ringreel.run_generator(unlucky(2, Mute()), ring)
    [(_, message)] = failures(ring)
    assert "Mute: <exception str() failed>" in message and ring.status()["samples_waiting"] == 2


def test_text_from_the_ring_is_escaped_in_logs_and_exceptions(config, caplog):
    nasty = "n\x1b[2J\x9b\u202e\u2028\r\nERROR forged"
    ring = ringreel.Ring(config(SWAP_CAP=100))
    with pytest.raises(OutOfLuck):
        ringreel.run_generator(unlucky(1, OutOfLuck(nasty)), ring)
    with caplog.at_level("INFO"), pytest.raises(ringreel.RingTimeoutError) as raised:
        next(iter(ring.stream(timeout=0.3)))
    told = [record.getMessage() for record in caplog.records] + [str(raised.value)]
    assert any("out of luck" in text for text in told), told
    assert all(text.replace("\\", "").isprintable() for text in told), told


def test_finished_generator_refuses_writes(config):
    generator = ringreel.Ring(config()).generator()
    generator.write((1,))
    first = generator.finish()
    assert generator.finish() == first == generator.summary
    for use in (lambda: generator.write((1,)), generator.flush):
        with pytest.raises(ringreel.RingreelError, match="finished: open another"):
            use()


def test_generator_finishes_after_an_exception_in_a_with_block(config):
    ring = ringreel.Ring(config(SEGMENT_SAMPLES=4))
    with pytest.raises(ZeroDivisionError), ring.generator() as generator:
        generator.write((1,))
        raise ZeroDivisionError
    assert generator.summary.finished == 1
    assert ring.status()["samples_waiting"] == 1 and ring.status()["generators"] == []


def test_summary_counts_quarantined_samples(config):
    keys = config(SWAP_CAP=2)
    with ringreel.Ring(keys).generator() as generator:
        generator.write((0,))
        for path in glob.glob(os.path.join(keys["RING"], "write.1", "*.rec")):
            os.truncate(path, 10)
        for n in range(3):
            generator.write((n,))
        summary = generator.finish(promote=True)
    assert (summary.finished, summary.delivered, summary.quarantined, summary.waiting) == (4, 3, 1, 0)


def test_samples_removed_by_hand_do_not_wait(config):
    keys = config(SWAP_CAP=2)
    with ringreel.Ring(keys).generator() as generator:
        generator.write((0,))
        for path in glob.glob(os.path.join(keys["RING"], "**", "*.rec"), recursive=True):
            os.remove(path)
        with pytest.raises(ringreel.RingreelError, match="is missing and no manifest lists it"):
            for n in range(10):
                generator.write((n,))
        summary = generator.finish(promote=True)
    assert (summary.finished, summary.waiting) == (summary.delivered + 1, 0)


def test_generator_times_match_an_outside_clock(config):
    # The outside clock also runs while Python waits for the GIL.
    inside = between = 0.0
    with ringreel.Ring(config(SWAP_CAP=100)).generator() as generator:
        returned = time.monotonic()
        for sample in numbered(5):
            time.sleep(0.05)
            called = time.monotonic()
            between += called - returned
            generator.write(sample)
            returned = time.monotonic()
            inside += returned - called
        summary = generator.summary
    assert summary.made_seconds == pytest.approx(between, rel=0.02, abs=0.05)
    assert summary.wrote_seconds == pytest.approx(inside, rel=0.02, abs=0.05)
    assert summary.waited_room_seconds == summary.waited_readers_seconds == summary.waited_seconds == 0
