"""Transforms of `RingStream` and `RingDataset`: their random numbers, and what they can find out about a sample."""

import json
import os
import random
import signal

import numpy as np
import pytest
from conftest import add, numbered

import ringreel

torch = pytest.importorskip("torch", reason="torch is not installed: transforms of ringreel.torch are NOT tested")

from torch.utils.data import DataLoader, default_collate  # noqa: E402

from ringreel.torch import RingDataset, RingStream, collate  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
]

# Numbers of cases of the property: resumed in this process, and in loaders with 0, 1 and 4 workers. With the 5 cases of
# a killed trainer there are 200.
HERE, LOADERS = 180, 15


@pytest.fixture
def ring_of(filled, tmp_path):
    def make(count, name="ring", **keys):
        keys |= {"RING": str(tmp_path / name), "SWAP_CAP": count, "SEGMENT_SAMPLES": 4, "KEEP": 9}
        return filled(numbered(count), **keys)

    return make


def augment(sample, rng, info):
    """Returns epoch, number, and the bytes of the augmented sample: what is compared."""
    data = sample["data"].double() + torch.from_numpy(rng.normal(size=3))
    turns = int(rng.integers(0, 4)) if rng.random() < 0.5 else -1
    return info.epoch, int(sample["data"][0]), data.numpy().tobytes() + bytes([turns + 1])


def collected(given, into):
    """Adds augmented samples to `into`, by epoch and number; a sample given twice must be equal both times."""
    for epoch, number, augmented in given:
        assert into.setdefault((epoch, number), augmented) == augmented
    return into


def iterators(ring, workers, **options):
    """Returns the iterators of all workers of one loader, in this process."""
    return [
        iter(RingStream(ring, rank=rank, world_size=workers, equal=None, transform=augment, **options))
        for rank in range(workers)
    ]


def read_and_resume(ring, dice, options, total):
    """Reads with some workers, abandons them at one step of an epoch, and resumes with other workers."""
    before, after = dice.choice((1, 4)), dice.choice((1, 4))
    steps = dice.randrange(1, 2 * total // before)
    found, first = {}, iterators(ring, before, run=f"r{dice.random()}", **options)
    given = [collected([next(each) for _ in range(steps)], found) and each.state_dict() for each in first]
    again = iterators(ring, after, run=f"r{dice.random()}", **options)
    for each in again:
        each.load_state_dict(given)
    for each in again:
        collected(each, found)
    return found


def reference(ring, options):
    """Returns the augmented samples of one reader that is never interrupted."""
    return collected(RingStream(ring, transform=augment, equal=None, **options), {})


@pytest.mark.parametrize("block", range(6))
def test_augmentation_depends_on_neither_workers_nor_resume(ring_of, block):
    dice = random.Random(block)
    for _ in range(3):
        total = dice.randrange(8, 24, 4)
        ring = ring_of(total, f"ring{dice.random()}")
        for _ in range(HERE // 18):
            options = {"seed": dice.randrange(1 << 64), "shuffle": dice.random() < 0.5, "epochs": 2}
            wanted = reference(ring, options)
            assert len(wanted) == 2 * total == len(set(wanted.values()))
            assert read_and_resume(ring, dice, options, total) == wanted


def test_augmentation_is_the_same_in_loaders_of_0_1_and_4_workers(ring_of):
    ring = ring_of(16)
    for seed in range(LOADERS // 3):
        options = {"seed": seed, "shuffle": True, "epochs": 2}
        wanted = reference(ring, options)
        for workers in (0, 1, 4):
            dataset = RingStream(ring, transform=augment, **options)
            assert collected(DataLoader(dataset, None, num_workers=workers), {}) == wanted


class WithStates(torch.utils.data.IterableDataset):
    """Yields the worker's number, the augmented sample, and the state after it."""

    def __init__(self, stream, states=None):
        self.stream, self.states = stream, states

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        iterator = iter(self.stream)
        if self.states:
            iterator.load_state_dict(self.states)
        for given in iterator:
            yield (info.id if info else 0), given, iterator.state_dict()


KILLED = """
    import json, os, pathlib, pickle, signal, sys
    sys.path.insert(0, sys.argv[2])
    from test_torch_transforms import DataLoader, RingStream, WithStates, augment

    workers, stop = int(sys.argv[3]), int(sys.argv[4])
    stream = RingStream(json.loads(sys.argv[1]), shuffle=True, seed=7, epochs=2, transform=augment, run="killed")
    states, given = {}, []
    for worker, sample, state in DataLoader(WithStates(stream), batch_size=None, num_workers=workers):
        states[worker] = state
        given.append((*sample[:2], sample[2].hex()))
        if len(given) == stop:
            pathlib.Path("saved.json").write_text(json.dumps([given, list(states.values())]))
            os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("workers, stop", [(0, 5), (1, 7), (1, 20), (4, 12), (4, 24)])
def test_augmentation_continues_after_a_killed_trainer(script, tmp_path, workers, stop):
    keys = {"RING": str(tmp_path / "ring"), "SAMPLE": ["data"], "SWAP_CAP": 16, "LEASE_SECONDS": 5}
    add(ringreel.Ring(keys), numbered(16))
    options = {"shuffle": True, "seed": 7, "epochs": 2}
    wanted = reference(keys, options)
    killed = script(KILLED, json.dumps(keys), os.path.dirname(__file__), str(workers), str(stop))
    assert killed.end() == -signal.SIGKILL, killed.said
    given, states = json.loads((tmp_path / "saved.json").read_text())
    found = collected([(epoch, number, bytes.fromhex(data)) for epoch, number, data in given], {})
    stream = RingStream(keys, transform=augment, run="restarted", **options)
    loader = DataLoader(WithStates(stream, states), batch_size=None, num_workers=workers)
    assert collected([sample for _, sample, _ in loader], found) == wanted


def test_loops_of_a_loader_have_different_random_numbers(ring_of):
    dataset = RingStream(ring_of(8), transform=augment, epochs=1)
    loops = [collected(DataLoader(dataset, None, num_workers=workers), {}) for workers in (2, 0)]
    assert [sorted(loop) for loop in loops] == [[(epoch, n) for n in range(8)] for epoch in (0, 1)]
    assert len({*loops[0].values(), *loops[1].values()}) == 16


def test_replay_repeats_the_augmentation(ring_of):
    ring = ring_of(8)
    options = {"shuffle": True, "seed": 3, "epochs": 2}
    wanted = list(RingStream(ring, transform=augment, run="past", **options))
    assert list(RingStream(ring, transform=augment, replay="past", **options)) == wanted


# What a transform and a batch say about a sample.


def origin(sample, info):
    return info.sample_id, info.generation, info.position, info.epoch, info.meta["number"], info.is_padding


def test_transform_finds_the_origin_of_a_sample(ring_of):
    ring = ring_of(5)
    ids = [sample.sample_id for sample in ring.dataset()]
    found = list(RingStream(ring, equal="pad", epochs=2, rank=1, world_size=2, transform=origin))
    assert found[:2] == [(ids[n], 1, n, 0, n, False) for n in (1, 3)] and found[2][-1]
    assert found[3:5] == [(ids[n], 1, n, 1, n, False) for n in (1, 3)]
    dataset = RingDataset(ring, transform=origin)
    dataset.set_epoch(6)
    assert dataset[3] == (ids[3], 1, 3, 6, 3, False)


@pytest.mark.parametrize("collate_fn", [default_collate, collate], ids=["default", "ours"])
@pytest.mark.parametrize("workers", [0, 2])
def test_batches_name_their_samples(ring_of, workers, collate_fn):
    ring = ring_of(8, VALIDATION=2)
    samples = {sample.sample_id: sample for sample in ring.dataset()}
    for dataset in (RingStream(ring, epochs=1, info=True), RingDataset(ring, info=True)):
        seen = []
        for batch in DataLoader(dataset, 2, num_workers=workers, collate_fn=collate_fn):
            assert list(batch) == ["data", "sample_id", "generation", "position"]
            for n, name in enumerate(batch["sample_id"]):
                assert batch["generation"][n] == 1 and batch["position"][n] == samples[name].position
                assert batch["data"][n].tolist() == samples[name]["data"].tolist()
                seen.append(name)
        assert sorted(seen) == sorted(samples)


def test_tuples_have_the_origin_after_the_parts(ring_of):
    data, *more, is_padding = next(iter(RingStream(ring_of(4), equal="pad", as_tuple=True, info=True)))
    assert data.tolist() == [0] * 3 and more[1:] == [1, 0] and type(more[0]) is str and not is_padding


def test_parts_with_the_names_of_the_origin_are_refused(filled):
    ring = filled([{"data": np.zeros(2), "position": np.zeros(2)}])
    message = "^info: samples have a part 'position'"
    for make in (RingStream, RingDataset):
        with pytest.raises(ValueError, match=message):
            make(ring, info=True)
        assert list(make(ring, info=True, parts=["data"])._given._parts) == ["data"]
    with pytest.raises(ValueError, match=message):
        next(iter(RingStream({"RING": ring.path}, info=True)))


# `RingDataset`.


def drawn(sample, rng):
    return int(sample["data"][0]), rng.integers(1 << 62)


def test_dataset_has_the_random_numbers_of_seed_and_epoch(ring_of):
    ring = ring_of(8)
    dataset = RingDataset(ring, transform=drawn, seed=5)
    wanted = {
        epoch: [[n, int(np.random.default_rng([5, epoch, 1, n]).integers(1 << 62))] for n in range(8)]
        for epoch in (0, 1, 2)
    }
    for workers, persistent in ((0, False), (1, True), (4, False), (4, True)):
        loader = DataLoader(dataset, None, num_workers=workers, persistent_workers=persistent)
        for epoch in (2, 0, 1):
            dataset.set_epoch(epoch)
            assert [list(map(int, each)) for each in loader] == wanted[epoch]


def test_dataset_epoch_must_be_an_integer_from_0(ring_of):
    dataset = RingDataset(ring_of(2))
    with pytest.raises(ValueError, match="^epoch: expected 0 or more, found -1$"):
        dataset.set_epoch(-1)
    with pytest.raises(TypeError, match="^seed: expected an integer"):
        RingDataset(ring_of(2, "other"), seed="x")
