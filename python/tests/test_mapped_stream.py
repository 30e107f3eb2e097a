"""`Stream.map`, `filter` and `flat_map`: the order of the outputs, their states, and errors."""

import itertools
import json
import pickle
import random
import threading

import numpy as np
import pytest
from conftest import numbered

import ringreel


@pytest.fixture
def ring_of(filled):
    def make(count, **keys):
        return filled(numbered(count), **{"SEGMENT_SAMPLES": 4, **keys})

    return make


def number(sample):
    return int(sample["data"][0])


def pieces(sample, rng):
    """Returns 0 to 3 outputs, each with random numbers."""
    return [(number(sample), n, rng.random()) for n in range(number(sample) % 4)]


def is_kept(output, rng, info):
    return rng.random() < 0.8 or info.position % 2 == 0


def with_epoch(output, rng, info):
    return (info.epoch, *output, int(rng.integers(1 << 62)))


def mapped(ring, rank=0, world_size=1, **options):
    return ring.stream(rank, world_size, **options).flat_map(pieces).filter(is_kept).map(with_epoch)


def test_outputs_are_in_the_order_of_the_samples(ring_of):
    ring = ring_of(10)
    numbers = [number(sample) for sample in ring.stream(shuffle=True, epochs=2)]

    def stream():
        return ring.stream(shuffle=True, epochs=2)

    assert list(stream().map(number)) == numbers
    assert [number(sample) for sample in stream().filter(lambda sample: number(sample) > 4)] == [
        n for n in numbers if n > 4
    ]
    assert list(stream().map(number).flat_map(range)) == [m for n in numbers for m in range(n)]
    assert list(stream().map(number).filter(lambda n: n % 2).map(str)) == [str(n) for n in numbers if n % 2]
    assert list(stream().filter(lambda sample: False)) == []
    first = next(ring.stream().map(lambda sample: sample))
    assert isinstance(first, ringreel.Sample) and (first.epoch, first.position) == (0, 0)


def test_random_numbers_are_those_of_the_documented_key(ring_of):
    ring = ring_of(6)
    first = ring.stream(seed=3, epochs=2).map(lambda sample, rng: rng.random())
    found = list(first.map(lambda drawn, rng: (drawn, rng.random())))
    keys = [(epoch, n) for epoch in (0, 1) for n in range(6)]
    assert found == [tuple(np.random.default_rng([3, epoch, 1, n]).random(2)) for epoch, n in keys]


def test_states_continue_with_the_next_output(ring_of):
    """Every position of every case: abandoned there, and resumed in a new stream from the state as JSON."""
    ring = ring_of(9)
    for case in range(6):
        options = {"seed": case, "shuffle": case % 2 == 0, "epochs": 2, "prefetch_bytes": 0 if case < 3 else None}
        wanted = list(mapped(ring, run=f"whole{case}", **options))
        assert len(wanted) > 10
        with mapped(ring, run=f"whole{case}", **options) as stream:
            states = [stream.state_dict()]
            for output in wanted:
                assert next(stream) == output
                states.append(json.loads(json.dumps(stream.state_dict())))
        for given, state in enumerate(states):
            with mapped(ring, run=f"again{case}", **options) as resumed:
                resumed.load_state_dict(state)
                assert resumed.state_dict() == ({**state, "run": resumed.stream.run} if state else {})
                assert list(resumed) == wanted[given:]


def test_state_between_samples_is_that_of_the_stream(ring_of):
    ring = ring_of(6)
    plain, twice = ring.stream(run="a"), ring.stream(run="a").flat_map(lambda sample: [0, 1])
    for _ in range(3):
        next(plain)
        between = [next(twice) and None, twice.state_dict(), next(twice) and None, twice.state_dict()]
        assert between[3] == plain.state_dict() and between[1]["outputs"] == 1
        assert between[1]["step"] == plain.state_dict()["step"] - 1
    loaded = ring.stream(run="b")
    loaded.load_state_dict(twice.state_dict())
    assert number(next(loaded)) == 3


@pytest.mark.parametrize("case", range(40))
def test_no_output_is_lost_when_the_number_of_workers_changes(ring_of, case):
    """Outputs of a sample that was given in part are repeated then; with the same number, nothing is."""
    dice = random.Random(case)
    ring = ring_of(dice.randrange(8, 20))
    options = {"seed": case, "shuffle": True, "epochs": 1}
    wanted = sorted(mapped(ring, **options))
    before, after = dice.choice((1, 2, 4)), dice.choice((1, 2, 4))
    first = [mapped(ring, rank, before, run="a", **options) for rank in range(before)]
    found, states = [], []
    for stream in first:
        found += itertools.islice(stream, dice.randrange(6))
        states.append(stream.state_dict())
    in_part = {output[1] for output in found} if before != after else set()
    for rank in range(after):
        with mapped(ring, rank, after, run="b", **options) as resumed:
            resumed.load_state_dict(states)
            found += resumed
    repeated = [output for output in found if found.count(output) > 1]
    assert sorted(set(found)) == wanted
    assert {output[1] for output in repeated} <= in_part and (before != after or not repeated)


def test_error_of_a_function_reaches_the_caller_and_reading_continues(ring_of):
    ring = ring_of(5)

    def failing(sample):
        if number(sample) == 2:
            raise LookupError("no such thing as sample 2")
        return [number(sample)] * 2

    stream = ring.stream(epochs=1).flat_map(failing)
    assert [next(stream) for _ in range(4)] == [0, 0, 1, 1]
    with pytest.raises(LookupError, match="^no such thing as sample 2$"):
        next(stream)
    assert stream.state_dict()["step"] == 3 and list(stream) == [3, 3, 4, 4]
    for name in ("map", "filter", "flat_map"):
        with pytest.raises(TypeError, match=f"^{name}: expected a callable, found 1$"):
            getattr(ring.stream(), name)(1)


def test_state_during_a_function_is_that_before_the_sample(ring_of):
    """Another thread, or a signal handler, saves the state while a function runs."""
    ring = ring_of(5)
    inside, go = threading.Event(), threading.Event()

    def slow(sample):
        if number(sample) == 1:
            inside.set()
            assert go.wait(60)
        return number(sample)

    stream = ring.stream(run="a", epochs=1).map(slow)
    assert next(stream) == 0
    before, found = stream.state_dict(), []
    reader = threading.Thread(target=lambda: found.append(next(stream)))
    reader.start()
    assert inside.wait(60)
    assert stream.state_dict() == before and before["step"] == 1
    go.set()
    reader.join()
    assert found == [1] and stream.state_dict()["step"] == 2


def test_closed_stream_drops_the_remaining_outputs(ring_of):
    ring = ring_of(4)
    with ring.stream().flat_map(lambda sample: [sample] * 3) as stream:
        kept = next(stream)
    assert list(stream) == [] and stream.state_dict() == {} and number(kept) == 0


def test_stream_that_has_not_started_can_be_pickled(ring_of):
    ring = ring_of(6)
    stream = pickle.loads(pickle.dumps(mapped(ring, epochs=1)))
    assert list(stream) == list(mapped(ring, epochs=1))


def test_state_with_an_invalid_count_is_refused(ring_of):
    stream = ring_of(4).stream(run="a").flat_map(lambda sample: [1, 2])
    next(stream)
    for value, error in ((-1, ValueError), ("1", TypeError)):
        with pytest.raises(error, match="^outputs: expected"):
            stream.load_state_dict({**stream.state_dict(), "outputs": value})
    assert list(itertools.islice(stream, 3)) == [2, 1, 2]


def test_mixture_of_mapped_streams_resumes_exactly(ring_of):
    ring = ring_of(12)

    def mixture():
        streams = [mapped(ring, run=f"mixed{n}", epochs=1, seed=n) for n in range(2)]
        return ringreel.Mixture(streams, [1, 2], seed=4)

    whole = list(mixture())
    first = mixture()
    given = list(itertools.islice(first, 7))
    resumed = mixture()
    resumed.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert given + list(resumed) == whole
