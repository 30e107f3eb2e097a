"""`ringreel.torch.RingDataset`: rings in torch's DataLoader."""

import copy
import multiprocessing
import os
import pickle
import shutil

import numpy as np
import pytest
from conftest import add

import ringreel

torch = pytest.importorskip("torch", reason="torch is not installed: ringreel.torch and DataLoader are NOT tested")

from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, RandomSampler  # noqa: E402
from torch.utils.data import default_collate as default  # noqa: E402
from torch_samples import all_told, pairs, same, told  # noqa: E402

import ringreel.torch  # noqa: E402
from ringreel.torch import RingDataset, collate  # noqa: E402

# Python 3.12 and later warn about a fork in a process with threads, which these tests do on purpose.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """Shortens the time for which an abandoned loader waits for its workers before it kills them."""
    monkeypatch.setattr(torch.utils.data._utils, "MP_STATUS_CHECK_INTERVAL", 0.5)


@pytest.fixture
def dataset(ring_of):
    return RingDataset(ring_of(pairs(7)))


def test_a_sample_is_a_dict_of_tensors_or_a_tuple_of_them(ring_of):
    ring = ring_of([{"a": np.arange(6.0).reshape(2, 3), "b": np.int16(5), "c": b"abc"}])
    for config in (ring, {"RING": ring.path}, {"RING": ring.path, "SAMPLE": ["a", "b", "c"]}):
        sample = RingDataset(config)[0]
        assert type(sample) is dict and list(sample) == ["a", "b", "c"] and sample["c"] == b"abc"
        assert torch.equal(sample["a"], torch.arange(6, dtype=torch.float64).view(2, 3))
        assert sample["b"].dtype == torch.int16 and sample["b"].shape == () and sample["b"] == 5
        for parts in (["a", "b", "c"], ["c", "a"], ("b",)):
            assert list(RingDataset(config, parts)[0]) == list(parts)
            found = RingDataset(config, parts, as_tuple=True)[0]
            assert type(found) is tuple and len(found) == len(parts)
            assert same(found, tuple(sample[name] for name in parts))
    a, b, c = RingDataset(ring, as_tuple=True)[0]
    assert (tuple(a.shape), tuple(b.shape), c) == ((2, 3), (), b"abc")


def test_unknown_parts_are_refused(ring_of, tmp_path):
    ring = ring_of(pairs(1))
    for parts in ("data", [], ()):
        with pytest.raises(ValueError, match="a list of names"):
            RingDataset(ring, parts)
    with pytest.raises(ValueError, match="no part 'x'; SAMPLE names data, label"):
        RingDataset(ring, ["data", "x"])
    with pytest.raises(KeyError, match="no part 'x'"):
        RingDataset({"RING": ring.path}, ["x"])[0]


def test_dataset_waits_for_a_ring_until_its_timeout(config):
    with pytest.raises(ringreel.RingTimeoutError):
        RingDataset(config(), timeout=0.05)


def test_dataset_is_a_sequence(dataset):
    assert isinstance(dataset, torch.utils.data.Dataset) and len(dataset) == 7 and dataset.generation == 1
    for index in (2, -5, np.int8(2), np.uint64(2), torch.tensor(2)):
        assert told(dataset[index]) == [2]
    assert [told(sample)[0] for sample in dataset] == list(range(7))
    assert [told(sample)[0] for sample in dataset.__getitems__([3, 3, -1])] == [3, 3, 6]
    for index in (7, -8, 10**30):
        with pytest.raises(IndexError, match="generation 1 has 7"):
            dataset[index]
        with pytest.raises(IndexError, match="generation 1 has 7"):
            dataset.__getitems__([0, index])
    for index in ("0", [0], slice(2), 1.0):
        with pytest.raises(TypeError):
            dataset[index]


def test_transform_result_is_the_sample(ring_of):
    ring = ring_of(pairs(3))
    assert [RingDataset(ring, transform=lambda sample: sample["label"][0, 0].item())[n] for n in range(3)] == [0, 1, 2]
    assert RingDataset(ring, ["label"], as_tuple=True, transform=len)[0] == 1


def test_change_in_place_is_private(dataset):
    for tensor in (dataset[1]["data"], dataset[1]["label"]):
        tensor.zero_()
    assert told(dataset[1]) == [1]


def test_generation_and_len_do_not_change_before_refresh(ring_of):
    ring = ring_of(pairs(3), KEEP=3)
    dataset = RingDataset(ring)
    assert dataset.refresh() is False
    add(ring, pairs(2, 10))
    add(ring, pairs(1, 20))
    assert len(dataset) == 3 and dataset.generation == 1 and all_told(dataset) == [0, 1, 2]
    assert dataset.refresh(2) is True
    assert len(dataset) == 2 and dataset.generation == 2 and all_told(dataset) == [10, 11]
    assert dataset.refresh() is True and dataset.refresh(3) is False
    assert len(dataset) == 1 and dataset.generation == 3 and all_told(dataset) == [20]
    with pytest.raises(ringreel.ReclaimedError, match="has no generation 9; the newest is 3"):
        dataset.refresh(9)
    assert dataset.generation == 3 and all_told(dataset) == [20]


def test_reading_continues_in_the_newest_with_the_same_len(ring_of):
    ring = ring_of(pairs(5), KEEP=0)
    dataset = RingDataset(ring)
    assert told(dataset[1]) == [1]
    add(ring, pairs(5, 10))
    add(ring, pairs(2, 20))
    assert told(dataset[-1]) == [20]
    add(ring, pairs(3, 30))
    assert [told(dataset[n]) for n in (2, 3, 1)] == [[20], [30], [31]]  # the file of sample 20 is still open
    assert all_told(dataset) == [30, 31, 32, 30, 31]
    assert len(dataset) == 5 and dataset.generation == 1
    with pytest.raises(IndexError, match="generation 1 has 5"):
        dataset[5]
    assert dataset.refresh() is True
    assert len(dataset) == 3 and dataset.generation == 4


def test_reclaimed_generation_without_a_newer_one_is_an_error(ring_of):
    ring = ring_of(pairs(2))
    dataset = RingDataset(ring)
    shutil.rmtree(os.path.join(ring.path, "read.1"))
    with pytest.raises(ringreel.ReclaimedError, match="generation 1 is not available"):
        dataset[0]


def test_a_copy_stays_with_the_generation(ring_of):
    ring = ring_of(pairs(3), KEEP=1)
    dataset = RingDataset(ring, as_tuple=True, parts=["data", "label"])
    data = pickle.dumps(dataset)
    add(ring, pairs(2, 10))
    for again in (pickle.loads(data), copy.deepcopy(dataset), copy.copy(dataset)):
        assert len(again) == 3 and again.generation == 1 and all_told(again) == [0, 1, 2]
    again = pickle.loads(data)
    assert dataset.refresh() and all_told(again) == [0, 1, 2] and again.refresh() and all_told(again) == [10, 11]
    add(ring, pairs(4, 20))
    again = pickle.loads(data)  # it is reclaimed by now
    assert len(again) == 3 and all_told(again) == [20, 21, 22]


def rank(dataset, pipe):
    """Runs as a training process: reports its samples, refreshes on request, and reports them again."""
    torch.set_num_threads(1)  # as a loader worker does, because a forked child has no threads of its parent's pool
    while pipe.recv():
        pipe.send((len(dataset), all_told(dataset)))
    pipe.send(dataset.refresh())
    pipe.recv()
    pipe.send((len(dataset), all_told(dataset)))


def test_refresh_does_not_affect_another_process(ring_of):
    ring = ring_of(pairs(3), KEEP=2)
    dataset = RingDataset(ring)
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    child = context.Process(target=rank, args=(dataset, theirs))
    child.start()
    ours.send(True)
    assert ours.recv() == (3, [0, 1, 2])
    add(ring, pairs(2, 10))
    assert dataset.refresh()
    ours.send(True)
    assert ours.recv() == (3, [0, 1, 2]) and all_told(dataset) == [10, 11]
    add(ring, pairs(1, 20))
    ours.send(False)
    assert ours.recv() is True and all_told(dataset) == [10, 11]
    ours.send(True)
    assert ours.recv() == (1, [20])
    child.join(30)
    assert child.exitcode == 0


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("collate_fn", [default, collate], ids=["default", "ours"])
def test_torchs_samplers_work(dataset, workers, collate_fn):
    def loaded(**options):
        return all_told(DataLoader(dataset, num_workers=workers, collate_fn=collate_fn, **options))

    assert loaded(batch_size=3) == list(range(7))
    assert sorted(loaded(batch_size=2, shuffle=True)) == list(range(7))
    assert len(loaded(batch_size=2, sampler=RandomSampler(dataset, replacement=True, num_samples=9))) == 9
    assert loaded(batch_sampler=BatchSampler([5, 0, 3], 2, drop_last=True)) == [5, 0]
    shares = [loaded(batch_size=2, sampler=DistributedSampler(dataset, 2, r, shuffle=False)) for r in (0, 1)]
    assert shares == [[0, 2, 4, 6], [1, 3, 5, 0]]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_of_every_kind_follow_refresh(ring_of, method):
    ring = ring_of(pairs(4), KEEP=5)
    dataset = RingDataset(ring)
    loader = DataLoader(
        dataset, 2, num_workers=1, collate_fn=collate, persistent_workers=True, multiprocessing_context=method
    )
    assert all_told(loader) == [0, 1, 2, 3]
    add(ring, pairs(3, 10))
    assert all_told(loader) == [0, 1, 2, 3]
    assert dataset.refresh()
    assert all_told(loader) == [10, 11, 12]
    add(ring, pairs(5, 20))
    assert dataset.refresh()
    assert all_told(loader) == [20, 21, 22, 23, 24]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_of_a_copy_follow_its_refresh(ring_of, method):
    ring = ring_of(pairs(2), KEEP=5)
    original = RingDataset(ring)
    dataset = pickle.loads(pickle.dumps(original))
    loader = DataLoader(dataset, 1, num_workers=1, persistent_workers=True, multiprocessing_context=method)
    assert all_told(loader) == [0, 1]
    add(ring, pairs(2, 10))
    assert original.refresh()
    assert all_told(loader) == [0, 1]
    assert dataset.refresh()
    assert all_told(loader) == [10, 11]


class Refreshing:
    def __init__(self):
        self.dataset = None

    def __call__(self, sample):
        self.dataset.refresh()


def test_refresh_in_a_worker_is_refused(ring_of):
    transform = Refreshing()
    transform.dataset = dataset = RingDataset(ring_of(pairs(2)), transform=transform)
    with pytest.raises(RuntimeError, match="call it in the process of the DataLoader"):
        next(iter(DataLoader(dataset, num_workers=1)))


@pytest.mark.parametrize("persistent", [False, True])
def test_epoch_keeps_its_length_when_its_generation_is_reclaimed(ring_of, persistent):
    """The generation is reclaimed while its batches are on their way, and the newest one is shorter."""
    ring = ring_of(pairs(12), KEEP=0)
    dataset = RingDataset(ring)
    loader = DataLoader(
        dataset, 2, num_workers=2, collate_fn=collate, shuffle=True, persistent_workers=persistent, prefetch_factor=2
    )
    batches = iter(loader)
    found = told(next(batches))
    add(ring, pairs(5, 20))
    found += all_told(batches)
    assert len(found) == 12 and len(dataset) == 12 and set(found) <= {*range(12), *range(20, 25)}
    assert found[-1] >= 20
    assert dataset.refresh()
    assert sorted(all_told(loader)) == [20, 21, 22, 23, 24]
