"""`ringreel.torch`: rings in torch's DataLoader."""

import copy
import gc
import multiprocessing
import os
import pickle
import resource
import shutil
import signal
import threading
import time
from functools import partial

import numpy as np
import pytest
from conftest import add, segment_files

import ringreel

torch = pytest.importorskip("torch", reason="torch is not installed: ringreel.torch and DataLoader are NOT tested")

from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, RandomSampler, Subset  # noqa: E402
from torch.utils.data import default_collate as default  # noqa: E402

import ringreel.torch  # noqa: E402
from ringreel import _torch_batches, _torch_buffers  # noqa: E402
from ringreel.torch import RingDataset, collate  # noqa: E402

# Python 3.12 and later warn of every fork where there are threads; that it goes well is what is tested.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")

# Bytes of a part that is large enough to be mapped, and is not a whole number of pages.
LARGE = 300_001


def pair(number):
    """A sample that is mapped, of two parts that tell its number."""
    data = np.arange(LARGE, dtype=np.uint8)
    data[:3] = number
    return {"data": data, "label": np.full((3, 50_000), number, np.int16)}


def pairs(count, start=0):
    return [pair(start + n) for n in range(count)]


def told(batch):
    """The numbers of the samples in a batch; that all of each is there."""
    data, label = batch.values() if isinstance(batch, dict) else batch
    if data.dim() == 1:
        data, label = data[None], label[None]
    for n, number in enumerate(data[:, 0].tolist()):
        assert np.array_equal(data[n].numpy(), pair(number)["data"])
        assert label[n].shape == (3, 50_000) and (label[n] == number).all()
    return data[:, 0].tolist()


def all_told(loader):
    return [number for batch in loader for number in told(batch)]


def lies_in(tensor):
    """The file whose map a tensor lies in; "" for memory of no file."""
    address = tensor.data_ptr()
    with open("/proc/self/maps") as maps:
        for line in maps:
            fields = line.split()
            start, end = (int(n, 16) for n in fields[0].split("-"))
            if start <= address < end:
                return fields[5] if len(fields) > 5 and "/" in fields[5] else ""
    return ""


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """A loader that is left in the middle sometimes waits so long for its workers before it ends them."""
    monkeypatch.setattr(torch.utils.data._utils, "MP_STATUS_CHECK_INTERVAL", 0.5)


@pytest.fixture
def ring_of(filled):
    """Makes a ring with a file for each of these samples. Later generations may be larger and smaller."""

    def make(samples, **keys):
        return filled(samples, **{"SWAP_CAP": 50, "SEGMENT_SAMPLES": 1, **keys})

    return make


@pytest.fixture
def dataset(ring_of):
    return RingDataset(ring_of(pairs(7)))


# One sample after the other.


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


def test_parts_that_are_not_there_are_refused(ring_of, tmp_path):
    ring = ring_of(pairs(1))
    for parts in ("data", [], ()):
        with pytest.raises(ValueError, match="names in a list"):
            RingDataset(ring, parts)
    with pytest.raises(ValueError, match="no part 'x'; SAMPLE names data, label"):
        RingDataset(ring, ["data", "x"])
    with pytest.raises(KeyError, match="no part 'x'"):
        RingDataset({"RING": ring.path}, ["x"])[0]


def test_a_dataset_waits_for_a_ring_so_long(config):
    with pytest.raises(ringreel.RingTimeoutError):
        RingDataset(config(), timeout=0.05)


def test_it_is_a_sequence_of_so_many(dataset):
    assert isinstance(dataset, torch.utils.data.Dataset) and len(dataset) == 7 and dataset.generation == 1
    for index in (2, -5, np.int8(2), np.uint64(2), torch.tensor(2)):
        assert told(dataset[index]) == [2]
    assert [told(sample)[0] for sample in dataset] == list(range(7))
    assert [told(sample)[0] for sample in dataset.__getitems__([3, 3, -1])] == [3, 3, 6]
    for index in (7, -8, 10**30):
        with pytest.raises(IndexError, match="generation 1 holds 7"):
            dataset[index]
        with pytest.raises(IndexError, match="generation 1 holds 7"):
            dataset.__getitems__([0, index])
    for index in ("0", [0], slice(2), 1.0):
        with pytest.raises(TypeError):
            dataset[index]


def test_transform_makes_the_sample(ring_of):
    ring = ring_of(pairs(3))
    assert [RingDataset(ring, transform=lambda sample: sample["label"][0, 0].item())[n] for n in range(3)] == [0, 1, 2]
    assert RingDataset(ring, ["label"], as_tuple=True, transform=len)[0] == 1


def test_a_change_in_place_is_seen_by_nobody_else(dataset):
    for tensor in (dataset[1]["data"], dataset[1]["label"]):
        tensor.zero_()
    assert told(dataset[1]) == [1]


# Generations.


def test_the_generation_and_len_stay_until_refresh(ring_of):
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
    with pytest.raises(ringreel.ReclaimedError, match="no generation 9 .* the newest is 3"):
        dataset.refresh(9)
    assert dataset.generation == 3 and all_told(dataset) == [20]


def test_a_reclaimed_generation_is_read_on_in_the_newest_with_the_same_len(ring_of):
    ring = ring_of(pairs(5), KEEP=0)
    dataset = RingDataset(ring)
    assert told(dataset[1]) == [1]
    add(ring, pairs(5, 10))
    add(ring, pairs(2, 20))
    assert told(dataset[-1]) == [20]
    add(ring, pairs(3, 30))
    assert [told(dataset[n]) for n in (2, 3, 1)] == [[20], [30], [31]]  # the file of 20 is open still
    assert all_told(dataset) == [30, 31, 32, 30, 31]
    assert len(dataset) == 5 and dataset.generation == 1
    with pytest.raises(IndexError, match="generation 1 holds 5"):
        dataset[5]
    assert dataset.refresh() is True
    assert len(dataset) == 3 and dataset.generation == 4


def test_a_generation_that_is_gone_without_a_newer_one_is_a_reclaimed_error(ring_of):
    ring = ring_of(pairs(2))
    dataset = RingDataset(ring)
    shutil.rmtree(os.path.join(ring.path, "read.1"))
    with pytest.raises(ringreel.ReclaimedError, match="generation 1 is gone"):
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
    again = pickle.loads(data)  # it is gone by now
    assert len(again) == 3 and all_told(again) == [20, 21, 22]


def rank(dataset, pipe):
    """What a process that trains does: it says what it has, is told to refresh, and says it again."""
    while pipe.recv():
        pipe.send((len(dataset), all_told(dataset)))
    pipe.send(dataset.refresh())
    pipe.recv()
    pipe.send((len(dataset), all_told(dataset)))


def test_another_process_is_not_moved_on_by_refresh(ring_of):
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


# Loaders.


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("collate_fn", [default, collate], ids=["default", "ours"])
def test_stock_samplers(dataset, workers, collate_fn):
    def loaded(**options):
        return all_told(DataLoader(dataset, num_workers=workers, collate_fn=collate_fn, **options))

    assert loaded(batch_size=3) == list(range(7))
    assert sorted(loaded(batch_size=2, shuffle=True)) == list(range(7))
    assert len(loaded(batch_size=2, sampler=RandomSampler(dataset, replacement=True, num_samples=9))) == 9
    assert loaded(batch_sampler=BatchSampler([5, 0, 3], 2, drop_last=True)) == [5, 0]
    shares = [loaded(batch_size=2, sampler=DistributedSampler(dataset, 2, r, shuffle=False)) for r in (0, 1)]
    assert shares == [[0, 2, 4, 6], [1, 3, 5, 0]]


def various(number):
    """Parts that go every way there is."""
    rng = np.random.default_rng(number)
    return {
        "large": rng.integers(0, 255, (100, 700), np.uint8),
        "floats": rng.random((3, 50_000), np.float32),
        "complex": rng.random(9_000).astype(np.complex128),
        "bools": rng.random(80_000) > 0.5,
        "bf16": torch.from_numpy(rng.random(70_000, np.float32)).to(torch.bfloat16),
        "escaped": np.full(50_000, 0x4ED7230A, "<i4"),
        "packed": np.full(100_000, number, np.int64),
        "inline": np.arange(5, dtype=np.float32) + number,
        "scalar": np.array(number / 2),
        "empty": np.zeros((0, 3), np.float32),
        "tiny16": torch.full((3,), number).to(torch.bfloat16),
        "raw": str(number).encode(),
    }


def same(found, wanted):
    """Whether two batches are equal to the last bit, in structure and types too."""
    if isinstance(wanted, torch.Tensor):
        assert type(found) is torch.Tensor and found.dtype == wanted.dtype and found.shape == wanted.shape
        return torch.equal(found, wanted)
    assert type(found) is type(wanted)
    if isinstance(wanted, dict):
        return list(found) == list(wanted) and all(same(found[name], wanted[name]) for name in wanted)
    if isinstance(wanted, list | tuple):
        return len(found) == len(wanted) and all(map(same, found, wanted))
    return found == wanted


def numbered_too(sample):
    """A transform: beside the parts something of the user's own, in a structure."""
    first = sample[0] if isinstance(sample, tuple) else sample["large"]
    return {"sample": sample, "user": [int(first.view(-1)[0]), 1.5, "text", np.zeros(3), (torch.ones(2, 2),)]}


@pytest.mark.parametrize("read", ["mmap", "pread"])
@pytest.mark.parametrize("as_tuple", [False, True], ids=["dict", "tuple"])
def test_batches_are_those_of_default_collate(ring_of, read, as_tuple):
    ring = ring_of([various(n) for n in range(5)], COMPRESS={"packed": 3}, SEGMENT_SAMPLES=2, READ=read)
    for transform in (None, numbered_too):
        dataset = RingDataset(ring, as_tuple=as_tuple, transform=transform)
        for batch_size in (2, 1, None):
            wanted = list(DataLoader(dataset, batch_size))
            for workers in (0, 1):
                loader = DataLoader(dataset, batch_size, num_workers=workers, collate_fn=collate)
                found = list(loader)
                assert len(found) == len(wanted) and all(map(same, found, wanted))


def test_batches_may_be_changed_in_place(dataset):
    for workers in (0, 2):
        for batch_size in (1, 2, None):
            loader = DataLoader(dataset, batch_size, num_workers=workers, collate_fn=collate)
            for _ in range(2):
                for n, batch in enumerate(loader):
                    told(batch)
                    for tensor in batch.values():
                        tensor.fill_(n)
                        tensor += 1
                        assert (tensor == n + 1).all()
    assert all_told(dataset) == list(range(7))


def test_batches_that_are_held_stay_as_they_are(dataset):
    for batch_size in (1, 2, 3):
        loader = DataLoader(dataset, batch_size, num_workers=1, collate_fn=collate)
        held = [batch for _ in range(3) for batch in loader]
        assert [number for batch in held for number in told(batch)] == [*range(7)] * 3


def test_a_batch_of_one_is_the_map_of_its_file(dataset):
    """Neither copied nor sent: it lies in a private map of the segment, in this process. (Without a worker a batch is a
    copy of its samples, which somebody may still hold.)"""
    for batch_size in (1, None):
        for workers in (0, 1) if batch_size is None else (1,):
            loader = DataLoader(dataset, batch_size, num_workers=workers, collate_fn=collate)
            for batch in loader:
                told(batch)
                for tensor in batch.values():
                    assert lies_in(tensor).endswith(".rec")


def test_larger_batches_are_in_memory_of_this_process(dataset):
    for batch in DataLoader(dataset, 7, num_workers=1, collate_fn=collate):
        for tensor in batch.values():
            assert lies_in(tensor) in ("", "[heap]")
    for batch in DataLoader(dataset, 7, num_workers=1, collate_fn=default):  # that this would be seen
        for tensor in batch.values():
            assert "torch" in lies_in(tensor)


def test_what_is_worth_a_map(ring_of):
    """Of many small tensors, the copy costs less than the maps."""
    dataset = RingDataset(ring_of([{"data": np.full(100_000, n, np.uint8)} for n in range(4)]))
    for batch_size, place in ((1, ".rec"), (2, "torch_")):
        for n, batch in enumerate(DataLoader(dataset, batch_size, num_workers=1, collate_fn=collate)):
            assert (batch["data"][0] == n * batch_size).all() and place in lies_in(batch["data"])


class Changing:
    """A transform that changes a part, in one of many ways, and knows what comes of it."""

    WAYS = ("torch", "numpy", "last byte", "view", "replaced", "shape")

    def __init__(self, way):
        self.way = way

    def __call__(self, sample):
        label = sample["label"]
        if self.way == "torch":
            label.fill_(77)
        elif self.way == "numpy":
            label.numpy()[...] = 77
        elif self.way == "last byte":
            label.view(torch.uint8).numpy()[-1, -1] = 77
        elif self.way == "view":
            label[1:].numpy()[0, 5] = 77
        elif self.way == "replaced":
            sample["label"] = label + 1
        else:
            label.unsqueeze_(0)
        return sample


@pytest.mark.parametrize("way", Changing.WAYS)
def test_a_part_that_was_changed_in_a_worker_arrives_changed(ring_of, way):
    dataset = RingDataset(ring_of(pairs(3)), transform=Changing(way))
    for batch_size in (1, 2, None):
        loader = DataLoader(dataset, batch_size, num_workers=1, collate_fn=collate)
        wanted = list(DataLoader(dataset, batch_size))
        for batch, want in zip(loader, wanted, strict=True):
            assert same(batch, want)
            assert not lies_in(batch["label"]).endswith(".rec")
            if batch_size != 2:  # what was not changed goes as ever
                assert lies_in(batch["data"]).endswith(".rec")


def test_without_the_kernels_word_tensors_are_sent(dataset, monkeypatch):
    monkeypatch.setattr(_torch_batches, "_pages", lambda address, length: None)
    for batch in DataLoader(dataset, 1, num_workers=1, collate_fn=collate):
        told(batch)
        assert "torch" in lies_in(batch["data"])


def test_pages_that_were_never_touched_count_too(ring_of):
    """With VERIFY: never, nothing of a sample was read when it is handed over."""
    large = np.arange(3_000_001, dtype=np.uint8)
    dataset = RingDataset(ring_of([{"data": large}] * 3, VERIFY="never"))
    for batch in DataLoader(dataset, 1, num_workers=1, collate_fn=collate):
        assert np.array_equal(batch["data"][0].numpy(), large)
        assert lies_in(batch["data"]).endswith(".rec")


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
def test_a_copy_has_workers_that_follow_it(ring_of, method):
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
    with pytest.raises(RuntimeError, match="call it where the DataLoader is"):
        next(iter(DataLoader(dataset, num_workers=1)))


@pytest.mark.parametrize("persistent", [False, True])
def test_an_epoch_ends_as_it_began_when_its_generation_is_reclaimed(ring_of, persistent):
    """The generation is gone while batches of it are on their way; the newest one is shorter."""
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


def test_what_goes_wrong_where_a_batch_is_taken_is_raised_by_the_loader_which_goes_on(ring_of, monkeypatch):
    honest = _torch_batches._places

    def places(values, files):
        found = honest(values, files)
        wrong = any(value.flatten()[0] == 1 for value in values)
        return tuple(place._replace(offset=1 << 40) for place in found) if wrong else found

    monkeypatch.setattr(_torch_batches, "_places", places)
    ring = ring_of(pairs(6))
    for size, before, after in ((1, [0], [2, 3, 4, 5]), (2, None, [2, 3, 4, 5])):
        batches = iter(DataLoader(RingDataset(ring), size, num_workers=1, collate_fn=collate))
        assert before is None or told(next(batches)) == before
        with pytest.raises(OSError, match="shorter than it should be"):
            next(batches)
        assert all_told(batches) == after


class Vanishing(RingDataset):
    """A sample is there when a worker reads it, and its file is gone when its batch is made."""

    files = ()

    def __getitem__(self, index):
        sample = super().__getitem__(index)
        if index == 1 and torch.utils.data.get_worker_info() is not None:
            os.remove(self.files[1])
        return sample


def test_a_sample_whose_file_is_gone_when_its_batch_is_made_is_sent_by_its_bytes(ring_of):
    ring = ring_of(pairs(5))
    dataset = Vanishing(ring)
    dataset.files = segment_files(ring)
    batches = list(DataLoader(dataset, 1, num_workers=1, collate_fn=collate))
    assert all_told(batches) == [0, 1, 2, 3, 4]
    assert [lies_in(batch["data"]).endswith(".rec") for batch in batches] == [True, False, True, True, True]


def test_a_file_that_took_the_name_of_another_one_is_not_taken_for_it(ring_of):
    class Swapping(Vanishing):
        def __getitem__(self, index):
            sample = super().__getitem__(index)
            if index == 1 and torch.utils.data.get_worker_info() is not None:
                os.rename(self.files[3], self.files[1])
            return sample

    ring = ring_of(pairs(5))
    dataset = Swapping(ring)
    dataset.files = segment_files(ring)
    batches = iter(DataLoader(dataset, 1, num_workers=1, collate_fn=collate))
    assert [told(next(batches))[0] for _ in range(2)] == [0, 1]


def test_a_link_in_place_of_a_generation_is_not_followed_when_its_batch_is_made(ring_of, tmp_path):
    class Linking(Vanishing):
        def __getitem__(self, index):
            sample = super(Vanishing, self).__getitem__(index)
            if index == 1 and torch.utils.data.get_worker_info() is not None:
                os.rename(self.files[0], elsewhere)
                os.symlink(elsewhere, self.files[0])
            return sample

    ring, elsewhere = ring_of(pairs(2)), str(tmp_path / "elsewhere")
    dataset = Linking(ring)
    dataset.files = (os.path.dirname(segment_files(ring)[0]),)
    batches = list(DataLoader(dataset, 1, num_workers=1, collate_fn=collate))
    assert all_told(batches) == [0, 1], "the same bytes, and their file is not opened by that way"
    assert [lies_in(batch["data"]).endswith(".rec") for batch in batches] == [True, False]


def test_a_worker_that_may_open_no_more_files_sends_bytes(ring_of, monkeypatch):
    class Poor(RingDataset):
        def __getitem__(self, index):
            if torch.utils.data.get_worker_info() is not None:
                resource.setrlimit(resource.RLIMIT_NOFILE, (200, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
            return super().__getitem__(index)

    ring = ring_of(pairs(48))
    loader = DataLoader(Poor(ring), 3, num_workers=1, collate_fn=collate, prefetch_factor=16)
    batches = iter(loader)
    first = told(next(batches))
    time.sleep(1)  # as many are on their way as may be
    assert first + all_told(batches) == list(range(48))


def test_files_that_cannot_be_handed_over_are_sent_by_their_bytes(ring_of, monkeypatch):
    calls = []

    def refuses(descriptor):
        calls.append(descriptor)
        if len(calls) % 3 == 0:
            raise OSError(24, "Too many open files")
        return honest(descriptor)

    honest = _torch_batches.DupFd
    monkeypatch.setattr(_torch_batches, "DupFd", refuses)
    dataset = RingDataset(ring_of(pairs(9)))
    assert all_told(DataLoader(dataset, 3, num_workers=1, collate_fn=collate)) == list(range(9))


def test_a_batch_made_without_workers_shares_nothing_with_its_samples(dataset):
    for size in (1, 2):
        samples = [dataset[n] for n in range(size)]
        batch = collate(samples)
        batch["data"].fill_(7)
        assert [told(sample) for sample in samples] == [[n] for n in range(size)]


def test_a_batch_of_many_files_is_sent_by_its_bytes(ring_of, monkeypatch):
    monkeypatch.setattr(_torch_batches, "_FILES", 3)
    dataset = RingDataset(ring_of(pairs(4)))
    assert all_told(DataLoader(dataset, 4, num_workers=1, collate_fn=collate)) == [0, 1, 2, 3]
    monkeypatch.setattr(_torch_batches, "get_worker_info", lambda: True)
    for size, sent in ((3, _torch_batches._Reference), (4, torch.Tensor)):
        batch = collate([dataset[n] for n in range(size)])
        assert {type(part) for part in batch._tree.values()} == {sent}


@pytest.fixture
def worker(monkeypatch):
    """Runs `work` as in a worker, and gives what another process would find in the queue."""

    def handed(work):
        with monkeypatch.context() as patch:
            patch.setattr(_torch_batches, "get_worker_info", lambda: True)
            return bytes(multiprocessing.reduction.ForkingPickler.dumps(work()))

    return handed


def test_what_is_sent_is_small(dataset, worker):
    assert len(worker(lambda: collate([dataset[0]]))) < 2000
    assert len(worker(lambda: collate([dataset[n] for n in range(7)]))) < 4000


def test_parts_too_small_to_map_are_sent_in_shared_memory(ring_of, worker):
    """A pipe holds 64 KiB for all workers of a loader."""
    dataset = RingDataset(ring_of([{"data": np.full(60_000, n, np.uint8)} for n in range(8)]))
    for batch in ([dataset[0]], [dataset[n] for n in range(8)]):
        sent = worker(partial(collate, batch))
        assert len(sent) < 2000 and pickle.loads(sent)["data"].shape == (len(batch), 60_000)


def test_what_is_taken_after_its_generation_was_reclaimed_is_what_was_sent(ring_of, worker):
    ring = ring_of(pairs(5), KEEP=0)
    samples = [RingDataset(ring)[n] for n in (1, 4)]
    one, two = worker(partial(collate, samples[:1])), worker(partial(collate, samples))
    del samples
    gc.collect()
    files = segment_files(ring)
    add(ring, pairs(3, 20))
    assert not any(os.path.exists(file) for file in files)
    assert (told(pickle.loads(one)), told(pickle.loads(two))) == ([1], [1, 4])


def test_samples_that_are_held_out_do_not_shift_the_others(config, worker):
    ring = ringreel.Ring(config(SAMPLE=["data", "label"], SWAP_CAP=5, VALIDATION=7))
    add(ring, pairs(15))
    dataset = RingDataset(ring)
    for generation, held in ((2, [7, 8, 9]), (3, [10, 11, 12, 13, 14])):
        dataset.refresh(generation)
        assert all_told(dataset) == held
        for batch_size in (1, 3):
            loader = DataLoader(dataset, batch_size, num_workers=1, shuffle=True, collate_fn=collate)
            assert sorted(all_told(loader)) == held


def test_a_ring_that_was_made_anew_meanwhile_is_another_one(ring_of, worker):
    ring = ring_of(pairs(2))
    sent = worker(lambda: collate([RingDataset(ring)[1]]))
    shutil.rmtree(ring.path)
    add(ring, pairs(2, 10))
    assert told(pickle.loads(sent)) == [1]
    assert told(RingDataset(ring)[1]) == [11]


def test_batches_are_taken_in_any_thread(dataset, worker):
    """With pin_memory, another thread takes batches from workers."""
    batches = [(first, n) for first in range(4) for n in range(7)]
    sent = {batch: worker(lambda n=batch[1]: collate([dataset[n], dataset[n]])) for batch in batches}
    found = {}

    def take(first):
        for n in range(first, first + 7):
            found[first, n % 7] = told(pickle.loads(sent[first, n % 7]))

    threads = [threading.Thread(target=take, args=(first,)) for first in range(4)]
    [thread.start() for thread in threads]
    [thread.join(60) for thread in threads]
    assert found == {(first, n): [n, n] for first in range(4) for n in range(7)}


@pytest.mark.filterwarnings("ignore:'pin_memory' argument:UserWarning")
@pytest.mark.parametrize("workers", [0, 1])
def test_pin_memory(dataset, workers):
    loader = DataLoader(dataset, 2, num_workers=workers, collate_fn=collate, pin_memory=True)
    assert all_told(loader) == list(range(7))


def longer(batch):
    batch = collate(batch)
    batch["more"] = 1
    return batch


def looked_at(batch):
    return collate(batch).keys()


@pytest.mark.parametrize("wrong", [longer, looked_at])
def test_a_batch_is_not_to_be_changed_in_a_worker(dataset, wrong):
    with pytest.raises((TypeError, AttributeError), match="a batch for the loader alone"):
        next(iter(DataLoader(dataset, 2, num_workers=1, collate_fn=wrong)))
    next(iter(DataLoader(dataset, 2, collate_fn=wrong)))


def learned(sample):
    return sample["data"].requires_grad_()


def test_what_is_asked_of_autograd_is_kept(ring_of):
    dataset = RingDataset(ring_of([{"data": np.ones(50_000, np.float32)}] * 2), transform=learned)
    batch = next(iter(DataLoader(dataset, 2, collate_fn=collate)))
    assert batch.requires_grad and batch.grad_fn is not None
    assert next(iter(DataLoader(dataset, None, num_workers=1, collate_fn=collate))).requires_grad


def test_samples_that_do_not_fit_together_are_told_as_ever(ring_of):
    ring = ring_of([{"data": np.zeros(100_000 + n, np.uint8)} for n in range(2)])
    dataset = RingDataset(ring)
    for workers in (0, 1):
        with pytest.raises(RuntimeError, match="equal size") as caught:
            next(iter(DataLoader(dataset, 2, num_workers=workers, collate_fn=collate)))
        said = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
        for n, sample in enumerate(ring.dataset()):
            origin = f"sample {sample.sample_id} (written by {sample.meta['generator']})"
            what = f"part 'data' of {origin} is torch.uint8 of shape ({100_000 + n},)"
            assert what in said, said


def test_tensors_of_others_are_collated_as_ever(dataset):
    mine = torch.zeros(3)
    batch = collate([{"x": mine, "y": 3}])
    batch["x"] += 1
    assert same(batch, {"x": torch.ones(1, 3), "y": torch.tensor([3])}) and (mine == 0).all()
    wanted = default([(mine, "a"), (mine, "b")])
    assert same(collate([(mine, "a"), (mine, "b")]), wanted)
    learned = torch.nn.Parameter(torch.ones(2))
    assert collate([learned, learned]).requires_grad
    assert all_told(DataLoader(Subset(dataset, [6, 2]), 2, num_workers=1, collate_fn=collate)) == [6, 2]


def test_nothing_is_left_when_everything_is_killed(ring_of, script):
    ring = ring_of([{"data": np.zeros(LARGE, np.uint8), "label": np.zeros(3)} for _ in range(8)])
    process = script(
        """
        import os, sys, torch, ringreel.torch
        dataset = ringreel.torch.RingDataset({"RING": sys.argv[1]})
        loader = torch.utils.data.DataLoader(dataset, 2, num_workers=2, collate_fn=ringreel.torch.collate)
        batches = iter(loader)
        next(batches)
        print("workers:", *[worker.pid for worker in batches._workers], "go")
        while True:
            list(loader)
        """,
        ring.path,
    )
    process.wait_for("go")
    workers = [int(pid) for pid in process.said.split("workers:")[1].split("go")[0].split()]
    process.end(signal.SIGKILL)
    for pid in workers:
        os.kill(pid, signal.SIGKILL)
    left = [name for name in os.listdir("/dev/shm") if any(f"_{pid}_" in name for pid in (*workers, process.child.pid))]
    assert left == []


# Buffers.


@pytest.fixture
def no_buffers():
    _torch_buffers._free.clear()
    yield
    _torch_buffers._free.clear()


def test_memory_is_used_again_when_nobody_has_it_any_more(no_buffers):
    shape = torch.Size((3, 1 << 20))
    first = _torch_buffers.empty(shape, torch.float32)
    assert first.shape == shape and first.dtype == torch.float32 and first.is_contiguous()
    place = first.data_ptr()
    assert place % 64 == 0
    first.fill_(1)
    held = [first[1:, 5:], first.numpy()[0], first.view(torch.int32), first.detach()]
    del first
    while held:
        other = _torch_buffers.empty(shape, torch.float32)
        assert other.data_ptr() != place and (other.fill_(2) == 2).all()
        one = held.pop(0)
        assert (one[0][0] if getattr(one, "ndim", 1) > 1 else one[0]) in (1, 0x3F800000)
        del one, other
    found = [_torch_buffers.empty(shape, dtype).data_ptr() for dtype in (torch.float32, torch.int32)]
    assert place in found


def test_so_many_buffers_are_kept(no_buffers):
    batches = [_torch_buffers.empty(torch.Size((n, 1 << 20)), torch.uint8) for n in range(1, 9)]
    assert len({batch.data_ptr() for batch in batches}) == 8
    batches.clear()
    assert len(_torch_buffers._free) == 4
    assert _torch_buffers.empty(torch.Size((3,)), torch.uint8).shape == (3,)
    assert _torch_buffers.empty(torch.Size((0, 5)), torch.uint8).shape == (0, 5)
