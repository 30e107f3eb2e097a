"""`ringreel.torch.ValidationDataset`: held-out samples in torch's DataLoader, disjoint from the training samples."""

import pickle
import shutil
import warnings
from pathlib import Path

import pytest
from conftest import add, numbered

import ringreel
from ringreel import HoldOut

torch = pytest.importorskip("torch", reason="torch is not installed: ringreel.torch.ValidationDataset is NOT tested")

from torch.utils.data import DataLoader, DistributedSampler  # noqa: E402

from ringreel.torch import RingDataset, RingStream, ValidationDataset, collate  # noqa: E402

# Python 3.12 and later warn about a fork in a process with threads, which these tests do on purpose.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),  # more workers than cores
]


def third(sample):
    return int(sample["data"].flat[0]) % 3 == 0


def numbers_of(loader):
    return [int(number) for batch in loader for number in batch["data"][:, 0]]


@pytest.mark.parametrize("workers", [0, 2])
def test_samples_of_validation_are_read_in_order(filled, workers):
    ring = filled(numbered(9), VALIDATION=5)
    validation = ValidationDataset(ring)
    loader = DataLoader(validation, 2, num_workers=workers, collate_fn=collate)
    assert len(validation) == 5 and len(loader) == 3 and validation.generation is None
    for _ in range(2):
        assert numbers_of(loader) == [0, 1, 2, 3, 4]
    assert sorted(numbers_of(DataLoader(RingStream(ring, epochs=1), 2))) == [5, 6, 7, 8]


@pytest.mark.parametrize("rule", [None, HoldOut(choose=third)], ids=["validation", "rule"])
def test_tensors_can_be_changed_without_a_warning(filled, rule):
    ring = filled(numbered(6, size=50_000), VALIDATION=3)
    validation = ValidationDataset(ring, rule)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sample = validation[0]["data"]
        sample += 1
    assert int(validation[0]["data"][0]) == int(sample[0]) - 1


@pytest.mark.parametrize("workers", [0, 2])
def test_training_and_validation_set_of_a_rule_are_disjoint(filled, workers):
    ring = filled(numbered(20))
    rule = HoldOut(choose=third)
    validation = ValidationDataset(ring, rule)
    assert validation.generation == 1
    held = numbers_of(DataLoader(validation, 3, num_workers=workers, collate_fn=collate))
    assert held == [0, 3, 6, 9, 12, 15, 18]
    for training in (RingStream(ring, epochs=1, equal="pad", hold_out=rule), RingDataset(ring, hold_out=rule)):
        loader = DataLoader(training, 3, num_workers=workers)
        found = [number for number in numbers_of(loader) if number >= 0]
        assert sorted(held + found) == list(range(20))
        assert len(loader) == len(list(loader))


def test_ranks_divide_the_samples_of_a_rule(filled):
    ring = filled(numbered(40))
    found = []
    for rank in range(2):
        validation = ValidationDataset(ring, HoldOut(0.4))
        sampler = DistributedSampler(validation, 2, rank, shuffle=False, drop_last=False)
        found.append(numbers_of(DataLoader(validation, 2, sampler=sampler)))
    expected = [int(sample["data"][0]) for sample in ring.held_out(HoldOut(0.4))]
    assert len(found[0]) == len(found[1]) and sorted(set(found[0] + found[1])) == expected


def test_rule_follows_refresh_of_the_training_set(filled):
    ring = filled(numbered(6))
    rule = HoldOut(choose=third)
    training = RingDataset(ring, hold_out=rule)
    loader = DataLoader(training, 2, num_workers=1, persistent_workers=True)
    assert numbers_of(loader) == [1, 2, 4, 5]
    add(ring, numbered(6, start=6))
    assert len(training) == 4 and training.refresh() and len(training) == 4
    assert numbers_of(loader) == [7, 8, 10, 11]


def test_samples_never_change_and_a_reclaimed_generation_is_an_error(filled):
    ring = filled(numbered(6))
    rule = HoldOut(choose=third)
    validation = ValidationDataset(ring, rule, parts=["data"], as_tuple=True, info=True)
    add(ring, numbered(6, start=6))
    assert int(validation[1][0][0]) == 3 and validation[1][2:] == (1, 3)
    other = ValidationDataset(ring, rule)
    assert other.generation == 2 and int(other[0]["data"][0]) == 6
    again = ValidationDataset(ring, rule, generation=1)
    assert pickle.loads(pickle.dumps(again)).generation == 1
    shutil.rmtree(Path(ring.path, "read.1"))
    gone = ValidationDataset(ring, HoldOut(1), generation=1)
    with pytest.raises(ringreel.ReclaimedError):
        gone[0]
    with pytest.raises(ringreel.ReclaimedError, match="no generation 7"):
        ValidationDataset(ring, rule, generation=7)


def test_transform_gets_the_same_random_numbers_each_time(filled):
    ring = filled(numbered(4), VALIDATION=3)
    validation = ValidationDataset(ring, transform=lambda sample, rng: int(rng.integers(1 << 40)), seed=3)
    first = [validation[n] for n in range(3)]
    assert first == [validation[n] for n in range(3)] and len(set(first)) == 3


def test_wrong_arguments_are_errors(filled):
    ring = filled(numbered(4))
    with pytest.raises(ringreel.RingMismatchError):
        ValidationDataset(ring)
    with pytest.raises(ValueError, match="generation: expected None without hold_out"):
        ValidationDataset(ring, generation=1)
    with pytest.raises(ValueError, match="no part 'x'"):
        ValidationDataset(ring, HoldOut(0.5), parts=["x"])
    for make in (ValidationDataset, lambda ring, rule: RingStream(ring, hold_out=rule)):
        with pytest.raises(TypeError, match="hold_out"):
            make(ring, 0.5)
    with pytest.raises(IndexError):
        ValidationDataset(ring, HoldOut(1))[4]
