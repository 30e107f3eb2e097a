"""Lengths of streams, mixtures and shares: as many items as an iteration yields."""

import itertools
import pathlib

import numpy as np
import pytest
from conftest import add, numbered, numbers, segment_files

import ringreel

EQUAL = [None, "drop", "wrap", "pad"]


@pytest.mark.parametrize("equal", EQUAL)
def test_stream_has_as_many_samples_as_its_length(filled, equal):
    ring = filled(numbered(11))
    for world, epochs in itertools.product((1, 2, 3, 4), (1, 3)):
        for rank in range(world):
            stream = ring.stream(rank, world, equal=equal, epochs=epochs, shuffle=True, run=f"r{world}.{epochs}")
            length = len(stream)
            left = []
            for _ in stream:
                left.append(len(stream))
            assert left == list(range(length))[::-1], (world, epochs, rank)
            assert len(stream) == 0


def test_length_of_a_stream_is_that_of_the_generation_it_then_reads(filled):
    ring = filled(numbered(7), SWAP_CAP=9)
    stream = ring.stream(epochs=1)
    assert len(stream) == 7
    add(ring, numbered(9))
    assert ring.status()["newest"] == 2 and len(numbers(stream)) == 7
    assert len(ring.stream(epochs=1)) == 9


def test_length_of_a_resumed_stream_is_the_rest(filled):
    ring = filled(numbered(10))
    streams = [ring.stream(rank, 2, equal="drop", epochs=2, run="a") for rank in range(2)]
    for stream in streams:
        for _ in range(3):
            next(stream)
    states = [stream.state_dict() for stream in streams]
    same = ring.stream(1, 2, equal="drop", epochs=2, run="b")
    same.load_state_dict(states[1])
    assert len(same) == 7 == len(list(same))
    other = ring.stream(0, 3, equal="drop", epochs=2, run="c")
    other.load_state_dict(states)
    assert len(other) == 1 + 3 == len(list(other))


def test_length_does_not_keep_the_log_of_an_unnamed_run(filled):
    ring = filled(numbered(4))
    with ring.stream(epochs=1) as stream:
        assert len(stream) == 4
        run = stream.run
        assert len(list(stream)) == 4
    with pytest.raises(ringreel.SampleError, match="no log"):
        next(ring.stream(replay=run))


def test_damaged_samples_are_counted(filled):
    ring = filled(numbered(5, size=500), SEGMENT_SAMPLES=1)
    path = pathlib.Path(segment_files(ring)[2])
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    equal = ring.stream(epochs=1, equal="wrap")
    assert len(equal) == 5 == len(list(equal))
    stream = ring.stream(epochs=1)
    assert len(stream) == 5 and len(list(stream)) + stream.damaged == 5


def test_unknown_lengths_say_why(filled):
    ring = filled(numbered(4))
    with pytest.raises(TypeError, match=r"epochs=None .* pass epochs=.* \(total_steps="):
        len(ring.stream())
    next(ring.stream(run="r", epochs=1))
    with pytest.raises(TypeError, match="replay has no length"):
        len(ring.stream(replay="r"))
    for kind in ("filter", "flat_map"):
        with pytest.raises(TypeError, match=f"{kind} has no length"):
            len(getattr(ring.stream(epochs=1), kind)(lambda sample: [sample]))
    with pytest.raises(TypeError, match="source 1 has none"):
        len(ringreel.Mixture([[1], ring.stream()]))
    with pytest.raises(TypeError, match="filters"):
        len(ringreel.Shard(range(3), filter=bool))
    with pytest.raises(TypeError, match="unknown until it was read"):
        len(ringreel.Shard(lambda: iter(range(3))))


def test_length_of_a_stream_without_a_fresh_generation_is_unknown(filled):
    ring = filled(numbered(4))
    first = ring.stream(epochs=1, run="a", repeat=False)
    assert len(list(first)) == 4
    stream = ring.stream(epochs=2, run="b", repeat=False)
    assert len(numbers(itertools.islice(stream, 4))) == 4
    # The second epoch is counted as long as the first one, and no generation is waited for.
    assert len(stream) == 4


def test_objects_with_a_length_are_true(filled):
    ring = filled(numbered(2))
    stream = ring.stream(epochs=0)
    things = [stream, stream.map(id), ringreel.Mixture([[]]), ringreel.Shard([]), ringreel.StreamLoader([], 1)]
    assert all(things) and [len(thing) for thing in things] == [0] * 5


def test_closed_stream_has_no_samples_left(filled):
    stream = filled(numbered(2)).stream(epochs=1)
    stream.close()
    assert len(stream) == 0


def test_mapped_stream_has_the_length_of_its_stream(filled):
    mapped = filled(numbered(5)).stream(epochs=2).map(lambda sample: sample).map(id)
    left = [len(mapped) for _ in mapped]
    assert left == list(range(10))[::-1]


@pytest.mark.parametrize("equal", EQUAL)
def test_shard_has_as_many_items_as_its_length(equal):
    for total, world in itertools.product((0, 1, 3, 10, 11), (1, 2, 3, 4)):
        for rank in range(world):
            shard = ringreel.Shard(range(total), rank, world, equal)
            assert len(shard) == len(list(shard)), (total, world, rank)
            loader = ringreel.StreamLoader(range(total), 3, rank=rank, world_size=world, equal=equal, epochs=2)
            assert len(loader) == len(list(loader)), (total, world, rank)
            if equal is not None:
                loader = ringreel.StreamLoader(ringreel.Shard(range(total), rank, world, equal), 3)
                assert len(loader) == len(list(loader)), (total, world, rank)


class NoLength:
    def __len__(self):
        raise NotImplementedError

    def __iter__(self):
        return iter(range(3))


def test_source_whose_length_is_not_implemented_can_be_listed():
    assert list(ringreel.Shard(NoLength())) == [0, 1, 2]


@pytest.mark.parametrize("stop", ["all", "first"])
def test_mixture_has_as_many_items_as_its_length(filled, stop):
    ring = filled(numbered(9))
    random = np.random.default_rng(3)
    for seed in range(12):
        weights = random.integers(0, 4, 4)
        weights[0] += 1
        mixture = ringreel.Mixture(
            [
                range(seed),
                ring.stream(epochs=1),
                ringreel.StreamLoader(range(9), 2),
                ring.stream(epochs=1).map(lambda sample: sample),
            ],
            weights,
            seed,
            stop,
        )
        left = [len(mixture)]
        for _ in mixture:
            left.append(len(mixture))
        assert left == list(range(len(left)))[::-1], (seed, weights)


def test_length_of_a_stream_without_a_generation_times_out(config):
    with pytest.raises(ringreel.RingTimeoutError):
        len(ringreel.Ring(config()).stream(epochs=1, timeout=0.1))
