"""Batches of `ringreel.torch.collate`: how workers send them, and what the training process receives."""

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
from conftest import add, segment_files, zip_equal

import ringreel

torch = pytest.importorskip("torch", reason="torch is not installed: ringreel.torch and DataLoader are NOT tested")

from torch.utils.data import DataLoader, Subset  # noqa: E402
from torch.utils.data import default_collate as default  # noqa: E402
from torch_samples import LARGE, all_told, lies_in, pairs, same, told  # noqa: E402

from ringreel import _torch_batches, _torch_marks  # noqa: E402
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


def various(number):
    """Parts that cover every way of sending."""
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


def numbered_too(sample):
    """A transform that adds objects of the user in a nested structure."""
    first = sample[0] if isinstance(sample, tuple) else sample["large"]
    return {"sample": sample, "user": [int(first.view(-1)[0]), 1.5, "text", np.zeros(3), (torch.ones(2, 2),)]}


@pytest.mark.parametrize("read", ["mmap", "pread"])
@pytest.mark.parametrize("as_tuple", [False, True], ids=["dict", "tuple"])
def test_batches_equal_those_of_default_collate(ring_of, read, as_tuple):
    ring = ring_of([various(n) for n in range(5)], COMPRESS={"packed": 3}, SEGMENT_SAMPLES=2, READ=read)
    for transform in (None, numbered_too):
        dataset = RingDataset(ring, as_tuple=as_tuple, transform=transform)
        for batch_size in (2, 1, None):
            wanted = list(DataLoader(dataset, batch_size))
            for workers in (0, 1):
                loader = DataLoader(dataset, batch_size, num_workers=workers, collate_fn=collate)
                found = list(loader)
                assert len(found) == len(wanted) and all(map(same, found, wanted))


def test_batches_can_be_changed_in_place(dataset):
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


def test_held_batches_do_not_change(dataset):
    for batch_size in (1, 2, 3):
        loader = DataLoader(dataset, batch_size, num_workers=1, collate_fn=collate)
        held = [batch for _ in range(3) for batch in loader]
        assert [number for batch in held for number in told(batch)] == [*range(7)] * 3


def test_batch_of_one_sample_is_a_map_of_its_file(dataset):
    """The batch is a private map of the segment in this process, neither copied nor sent.

    Without a worker, a batch is a copy of its samples, because the caller may still hold them.
    """
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
    for batch in DataLoader(dataset, 7, num_workers=1, collate_fn=default):  # shows that the check works
        for tensor in batch.values():
            assert "torch" in lies_in(tensor)


def test_large_parts_are_mapped_and_small_ones_sent(ring_of):
    """For many small tensors, a copy costs less than the maps."""
    dataset = RingDataset(ring_of([{"data": np.full(100_000, n, np.uint8)} for n in range(4)]))
    for batch_size, place in ((1, ".rec"), (2, "torch_")):
        for n, batch in enumerate(DataLoader(dataset, batch_size, num_workers=1, collate_fn=collate)):
            assert (batch["data"][0] == n * batch_size).all() and place in lies_in(batch["data"])


class Changing:
    """A transform that changes a part in one of many ways, and computes the expected result."""

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
def test_part_changed_in_a_worker_arrives_changed(ring_of, way):
    dataset = RingDataset(ring_of(pairs(3)), transform=Changing(way))
    for batch_size in (1, 2, None):
        loader = DataLoader(dataset, batch_size, num_workers=1, collate_fn=collate)
        wanted = list(DataLoader(dataset, batch_size))
        for batch, want in zip_equal(loader, wanted):
            assert same(batch, want)
            assert not lies_in(batch["label"]).endswith(".rec")
            if batch_size != 2:  # unchanged parts are sent as usual
                assert lies_in(batch["data"]).endswith(".rec")


def test_tensors_are_sent_by_value_without_pagemap(dataset, monkeypatch):
    monkeypatch.setattr(_torch_marks, "_pages", lambda address, length: None)
    for batch in DataLoader(dataset, 1, num_workers=1, collate_fn=collate):
        told(batch)
        assert "torch" in lies_in(batch["data"])


def test_untouched_pages_count_as_unchanged(ring_of):
    """With VERIFY: never, no page of a sample was read before it is sent."""
    large = np.arange(3_000_001, dtype=np.uint8)
    dataset = RingDataset(ring_of([{"data": large}] * 3, VERIFY="never"))
    for batch in DataLoader(dataset, 1, num_workers=1, collate_fn=collate):
        assert np.array_equal(batch["data"][0].numpy(), large)
        assert lies_in(batch["data"]).endswith(".rec")


def test_loader_raises_errors_of_the_receiver_and_continues(ring_of, monkeypatch):
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
        with pytest.raises(OSError, match="shorter than expected"):
            next(batches)
        assert all_told(batches) == after


class Vanishing(RingDataset):
    """The file of a sample exists when a worker reads it, and is removed before the batch is made."""

    files = ()

    def __getitem__(self, index):
        sample = super().__getitem__(index)
        if index == 1 and torch.utils.data.get_worker_info() is not None:
            os.remove(self.files[1])
        return sample


def test_sample_of_a_removed_file_is_sent_by_value(ring_of):
    ring = ring_of(pairs(5))
    dataset = Vanishing(ring)
    dataset.files = segment_files(ring)
    batches = list(DataLoader(dataset, 1, num_workers=1, collate_fn=collate))
    assert all_told(batches) == [0, 1, 2, 3, 4]
    assert [lies_in(batch["data"]).endswith(".rec") for batch in batches] == [True, False, True, True, True]


def test_file_under_a_reused_name_is_not_sent(ring_of):
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


def test_link_in_place_of_a_generation_is_not_followed(ring_of, tmp_path):
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


def test_worker_at_its_file_limit_sends_by_value(ring_of, monkeypatch):
    class Poor(RingDataset):
        def __getitem__(self, index):
            if torch.utils.data.get_worker_info() is not None:
                resource.setrlimit(resource.RLIMIT_NOFILE, (200, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
            return super().__getitem__(index)

    ring = ring_of(pairs(48))
    loader = DataLoader(Poor(ring), 3, num_workers=1, collate_fn=collate, prefetch_factor=16)
    batches = iter(loader)
    first = told(next(batches))
    time.sleep(1)  # as many are on their way as allowed
    assert first + all_told(batches) == list(range(48))


def test_files_that_cannot_be_sent_are_sent_by_value(ring_of, monkeypatch):
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


def test_batch_of_many_files_is_sent_by_value(ring_of, monkeypatch):
    monkeypatch.setattr(_torch_batches, "_FILES", 3)
    dataset = RingDataset(ring_of(pairs(4)))
    assert all_told(DataLoader(dataset, 4, num_workers=1, collate_fn=collate)) == [0, 1, 2, 3]
    monkeypatch.setattr(_torch_batches, "get_worker_info", lambda: True)
    for size, sent in ((3, _torch_batches._Reference), (4, torch.Tensor)):
        batch = collate([dataset[n] for n in range(size)])
        assert {type(part) for part in batch._tree.values()} == {sent}


@pytest.fixture
def worker(monkeypatch):
    """Runs `work` as in a worker, and returns what another process would receive from the queue."""

    def handed(work):
        with monkeypatch.context() as patch:
            patch.setattr(_torch_batches, "get_worker_info", lambda: True)
            return bytes(multiprocessing.reduction.ForkingPickler.dumps(work()))

    return handed


def test_messages_of_workers_are_small(dataset, worker):
    assert len(worker(lambda: collate([dataset[0]]))) < 2000
    assert len(worker(lambda: collate([dataset[n] for n in range(7)]))) < 4000


def test_parts_too_small_to_map_are_sent_in_shared_memory(ring_of, worker):
    """A pipe holds 64 KiB for all workers of a loader."""
    dataset = RingDataset(ring_of([{"data": np.full(60_000, n, np.uint8)} for n in range(8)]))
    for batch in ([dataset[0]], [dataset[n] for n in range(8)]):
        sent = worker(partial(collate, batch))
        assert len(sent) < 2000 and pickle.loads(sent)["data"].shape == (len(batch), 60_000)


def test_batch_received_after_a_reclaim_equals_the_sent_one(ring_of, worker):
    ring = ring_of(pairs(5), KEEP=0)
    samples = [RingDataset(ring)[n] for n in (1, 4)]
    one, two = worker(partial(collate, samples[:1])), worker(partial(collate, samples))
    del samples
    gc.collect()
    files = segment_files(ring)
    add(ring, pairs(3, 20))
    assert not any(os.path.exists(file) for file in files)
    assert (told(pickle.loads(one)), told(pickle.loads(two))) == ([1], [1, 4])


def test_held_out_samples_do_not_shift_the_others(config, worker):
    ring = ringreel.Ring(config(SAMPLE=["data", "label"], SWAP_CAP=5, VALIDATION=7))
    add(ring, pairs(15))
    dataset = RingDataset(ring)
    for generation, held in ((2, [7, 8, 9]), (3, [10, 11, 12, 13, 14])):
        dataset.refresh(generation)
        assert all_told(dataset) == held
        for batch_size in (1, 3):
            loader = DataLoader(dataset, batch_size, num_workers=1, shuffle=True, collate_fn=collate)
            assert sorted(all_told(loader)) == held


def test_recreated_ring_is_a_different_ring(ring_of, worker):
    ring = ring_of(pairs(2))
    sent = worker(lambda: collate([RingDataset(ring)[1]]))
    shutil.rmtree(ring.path)
    add(ring, pairs(2, 10))
    assert told(pickle.loads(sent)) == [1]
    assert told(RingDataset(ring)[1]) == [11]


def test_batches_can_be_received_in_any_thread(dataset, worker):
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
def test_pin_memory_works(dataset, workers):
    loader = DataLoader(dataset, 2, num_workers=workers, collate_fn=collate, pin_memory=True)
    assert all_told(loader) == list(range(7))


def longer(batch):
    batch = collate(batch)
    batch["more"] = 1
    return batch


def looked_at(batch):
    return collate(batch).keys()


@pytest.mark.parametrize("wrong", [longer, looked_at])
def test_batch_cannot_be_changed_in_a_worker(dataset, wrong):
    with pytest.raises((TypeError, AttributeError), match="is for the loader only"):
        next(iter(DataLoader(dataset, 2, num_workers=1, collate_fn=wrong)))
    next(iter(DataLoader(dataset, 2, collate_fn=wrong)))


def learned(sample):
    return sample["data"].requires_grad_()


def test_requires_grad_is_kept(ring_of):
    dataset = RingDataset(ring_of([{"data": np.ones(50_000, np.float32)}] * 2), transform=learned)
    batch = next(iter(DataLoader(dataset, 2, collate_fn=collate)))
    assert batch.requires_grad and batch.grad_fn is not None
    assert next(iter(DataLoader(dataset, None, num_workers=1, collate_fn=collate))).requires_grad


def test_mismatched_samples_raise_the_usual_error(ring_of):
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


def test_tensors_of_other_sources_are_collated_as_usual(dataset):
    mine = torch.zeros(3)
    batch = collate([{"x": mine, "y": 3}])
    batch["x"] += 1
    assert same(batch, {"x": torch.ones(1, 3), "y": torch.tensor([3])}) and (mine == 0).all()
    wanted = default([(mine, "a"), (mine, "b")])
    assert same(collate([(mine, "a"), (mine, "b")]), wanted)
    learned = torch.nn.Parameter(torch.ones(2))
    assert collate([learned, learned]).requires_grad
    assert all_told(DataLoader(Subset(dataset, [6, 2]), 2, num_workers=1, collate_fn=collate)) == [6, 2]


def test_killed_processes_leave_nothing_behind(ring_of, script):
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
