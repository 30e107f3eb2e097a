"""Rules that hold samples out: the training and the validation set are disjoint, complete and the same everywhere."""

import itertools
import json
import pathlib
import pickle
import shutil
import subprocess
import sys

import numpy as np
import pytest
from conftest import add, numbered, numbers, segment_files

import ringreel
from ringreel import HoldOut

EQUAL = [None, "drop", "wrap", "pad"]


def third(sample):
    return int(sample["data"].flat[0]) % 3 == 0


RULES = [HoldOut(0.5), HoldOut(choose=third)]


@pytest.mark.parametrize("rule", RULES, ids=["fraction", "choose"])
@pytest.mark.parametrize("equal", EQUAL)
def test_stream_and_held_out_samples_divide_a_generation(filled, rule, equal):
    ring = filled(numbered(29), SEGMENT_SAMPLES=4)
    held = numbers(ring.held_out(rule))
    training = numbers(ring.dataset(hold_out=rule))
    assert sorted(held + training) == list(range(29)) and held and training
    assert all(rule.holds(sample) for sample in ring.held_out(rule))
    for world in (1, 2, 3, 4):
        options = {"equal": equal, "epochs": 2, "shuffle": True, "run": f"r{world}", "hold_out": rule}
        streams = [ring.stream(rank, world, **options) for rank in range(world)]
        lengths = [len(stream) for stream in streams]
        read = [[sample for sample in stream if not sample.is_padding] for stream in streams]
        found = sorted(number for each in read for number in numbers(each))
        assert not set(found) & set(held)
        if equal in (None, "pad"):
            assert found == sorted(2 * training)
        if equal != "pad":
            assert [len(each) for each in read] == lengths
        assert equal is None or len(set(lengths)) == 1


def test_fraction_depends_on_seed_and_id_only(filled):
    ring = filled(numbered(1000), SEGMENT_SAMPLES=100)
    held = numbers(ring.held_out(HoldOut(0.2)))
    assert 120 < len(held) < 280
    assert held == numbers(ring.held_out(HoldOut(fraction=0.2)))
    assert held != numbers(ring.held_out(HoldOut(0.2, seed=1)))
    more = numbers(ring.held_out(HoldOut(0.5)))
    assert set(held) < set(more)  # a larger fraction holds out the same samples and more
    assert numbers(ring.held_out(HoldOut(0))) == [] and len(ring.held_out(HoldOut(1))) == 1000


def test_samples_are_held_out_by_their_meta(config):
    ring = ringreel.Ring(config(SWAP_CAP=6))
    with ring.generator() as generator:
        for number in range(6):
            generator.write({"data": np.full(3, number)}, {"site": "ab"[number % 2]})
    rule = HoldOut(choose=lambda sample: sample.meta["site"] == "b")
    assert numbers(ring.stream(epochs=1, hold_out=rule)) == [0, 2, 4]
    assert numbers(ring.held_out(rule)) == [1, 3, 5]


def test_rule_divides_each_generation(filled):
    ring = filled(numbered(6))
    rule = HoldOut(choose=third)
    stream, dataset = ring.stream(epochs=2, hold_out=rule), ring.held_out(rule)
    assert numbers(itertools.islice(stream, 4)) == [1, 2, 4, 5] and numbers(dataset) == [0, 3]
    add(ring, numbered(6, start=6))
    assert numbers(stream) == [7, 8, 10, 11]
    assert numbers(dataset) == [0, 3] and dataset.refresh() and numbers(dataset) == [6, 9]
    assert dataset.batch([1, 0])["data"][:, 0].tolist() == [9, 6]
    assert dataset.batch(slice(0, 2))["data"][:, 0].tolist() == [6, 9]
    for index in (2, -3):
        with pytest.raises(IndexError, match="generation 2 has 2"):
            dataset[index]


def test_rule_and_validation_split_are_disjoint(filled):
    ring = filled(numbered(9), VALIDATION=4)
    rule = HoldOut(choose=third)
    assert numbers(ring.validation()) == [0, 1, 2, 3]
    assert numbers(ring.held_out(rule)) == [6]
    stream = ring.stream(epochs=1, hold_out=rule)
    samples = list(stream)
    assert numbers(samples) == [4, 5, 7, 8] and [sample.position for sample in samples] == [4, 5, 7, 8]
    assert stream.stats().share_read == 1.0


def test_resumed_stream_leaves_out_the_same_samples(filled):
    ring = filled(numbered(20))
    rule = HoldOut(choose=third)
    options = {"epochs": 2, "shuffle": True, "seed": 3, "hold_out": rule}
    whole = numbers(ring.stream(run="a", **options))
    first = ring.stream(run="b", **options)
    begun = numbers(itertools.islice(first, 5))
    for run, rest in (("c", rule), ("d", HoldOut(0)), ("e", None)):
        resumed = ring.stream(run=run, **{**options, "hold_out": rest})
        if rest is rule:
            resumed.load_state_dict(first.state_dict())
            assert begun + numbers(resumed) == whole
        else:
            with pytest.raises(ringreel.SampleError, match="give all workers of a run, .* the same hold_out"):
                resumed.load_state_dict(first.state_dict())
    assert not {n for n in whole if n % 3 == 0}


def test_other_rule_in_the_same_run_is_an_error(filled):
    ring = filled(numbered(20))
    next(ring.stream(0, 2, run="a", hold_out=HoldOut(choose=third)))
    with pytest.raises(ringreel.SampleError, match="reads 13 samples of generation 1, .* has 20"):
        next(ring.stream(1, 2, run="a", hold_out=HoldOut(0)))


def test_run_is_replayed_with_its_rule_only(filled, tmp_path):
    ring = filled(numbered(20))
    read = numbers(ring.stream(epochs=2, shuffle=True, run="a", hold_out=HoldOut(choose=third)))
    assert numbers(ring.stream(shuffle=True, replay="a", hold_out=HoldOut(choose=third))) == read
    with pytest.raises(ringreel.SampleError, match="replays it, the same hold_out"):
        next(ring.stream(shuffle=True, replay="a"))
    config = tmp_path / "config.yaml"
    config.write_text(json.dumps({"RING": ring.path}))
    command = [sys.executable, "-m", "ringreel", "read", "-c", config, "--replay", "a"]
    told = subprocess.run(command, capture_output=True, text=True)
    assert told.returncode != 0 and "left samples out by a rule (hold_out)" in told.stderr, told.stderr


@pytest.mark.parametrize("ahead", [0, 1 << 20])
def test_held_out_samples_never_substitute_for_damaged_ones(filled, ahead):
    ring = filled(numbered(12, size=500), SEGMENT_SAMPLES=1)
    for n in (1, 2, 4):
        path = pathlib.Path(segment_files(ring)[n])
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 0xFF
        path.write_bytes(data)
    rule = HoldOut(choose=third)
    stream = ring.stream(epochs=3, equal="wrap", hold_out=rule, shuffle=True, prefetch_bytes=ahead)
    found = numbers(stream)
    assert len(found) == 24 and set(found) == {5, 7, 8, 10, 11} and stream.damaged == 3


@pytest.mark.parametrize("ahead", [0, 1 << 20])
def test_held_out_samples_never_replace_a_reclaimed_generation(filled, ahead):
    ring = filled(numbered(9), LEASE_SECONDS=0.2)
    rule = HoldOut(choose=third)
    streams = [ring.stream(n, 2, equal="wrap", epochs=1, run="a", hold_out=rule, prefetch_bytes=ahead) for n in (0, 1)]
    begun = numbers([next(streams[0])])
    add(ring, numbered(9, start=9))
    shutil.rmtree(pathlib.Path(ring.path, "read.1"))
    found = begun + numbers(streams[0]) + numbers(streams[1])
    assert len(found) == 6 and not [n for n in found if n % 3 == 0] and max(found) > 9


def test_stream_without_training_samples_waits_for_a_generation(filled):
    ring = filled(numbered(4))
    assert list(ring.stream(epochs=1, hold_out=HoldOut(1))) == []
    with pytest.raises(ringreel.RingTimeoutError):
        next(ring.stream(hold_out=HoldOut(1), timeout=0.2))


def test_rule_is_asked_once_for_each_sample_of_a_generation(filled):
    ring = filled(numbered(6))
    asked = []

    def choose(sample):
        asked.append(sample.position)
        return third(sample)

    rule = HoldOut(choose=choose)
    for _ in range(2):
        assert numbers(ring.stream(epochs=2, hold_out=rule)) == 2 * [1, 2, 4, 5] and numbers(ring.held_out(rule)) == [
            0,
            3,
        ]
    assert asked == list(range(6))
    for generation in range(1, 8):
        add(ring, numbered(6, start=6 * generation))
        assert numbers(ring.held_out(rule)) == [6 * generation, 6 * generation + 3]
    assert len(rule._known) <= 4


def test_error_of_a_rule_is_raised_unchanged(filled):
    ring = filled(numbered(4))

    def wrong(sample):
        raise LookupError("no such site")

    rule = HoldOut(choose=wrong)
    for read in (ring.stream(epochs=1, hold_out=rule), iter(ring.held_out(rule))):
        with pytest.raises(LookupError, match="no such site"):
            next(read)


def test_dataset_with_a_rule_can_be_pickled(filled):
    ring = filled(numbered(9))
    for dataset in (ring.held_out(RULES[1]), ring.dataset(hold_out=RULES[1])):
        before = numbers(dataset)
        assert numbers(pickle.loads(pickle.dumps(dataset))) == before
    stream = pickle.loads(pickle.dumps(ring.stream(epochs=1, hold_out=RULES[1])))
    assert numbers(stream) == [1, 2, 4, 5, 7, 8]


def test_wrong_rules_are_errors(filled):
    ring = filled(numbered(2))
    for arguments, error in (
        ({}, ValueError),
        ({"fraction": 0.1, "choose": third}, ValueError),
        ({"fraction": 1.5}, ValueError),
        ({"fraction": -0.1}, ValueError),
        ({"fraction": float("nan")}, ValueError),
        ({"fraction": "0.1"}, TypeError),
        ({"choose": 3}, TypeError),
        ({"fraction": 0.1, "seed": 0.5}, TypeError),
    ):
        with pytest.raises(error):
            HoldOut(**arguments)
    for use in (ring.held_out, lambda rule: ring.stream(hold_out=rule), lambda rule: ring.dataset(hold_out=rule)):
        with pytest.raises(TypeError, match=r"hold_out: expected a ringreel\.HoldOut"):
            use(0.05)
    with pytest.raises(TypeError, match="found None"):
        ring.held_out(None)


def test_interrupt_in_a_rule_ends_the_stream(filled):
    ring = filled(numbered(4), KEEP=5)
    asked = []

    def rule(sample):
        if sample.generation == 2:
            asked.append(sample.position)
            raise KeyboardInterrupt
        return False

    stream = ring.stream(epochs=2, hold_out=HoldOut(choose=rule))
    assert numbers([next(stream)]) == [0]
    add(ring, numbered(4, start=10))
    with pytest.raises(KeyboardInterrupt):
        numbers(stream)
    assert asked


def test_generation_reclaimed_while_a_rule_reads_it_is_not_an_error(filled):
    ring = filled(numbered(4), KEEP=5)
    add(ring, numbered(4, start=10))
    failed = []

    def rule(sample):
        if not failed:
            failed.append(sample.generation)
            add(ring, numbered(4, start=20))
            raise ringreel.ReclaimedError("as if it was reclaimed")
        return int(sample["data"].flat[0]) % 2 == 0

    assert numbers(ring.stream(epochs=1, hold_out=HoldOut(choose=rule))) == [21, 23]
    failed.clear()
    assert numbers(ring.dataset(hold_out=HoldOut(choose=rule))) == [21, 23]
