"""`ringreel.torch.RingStream`: streams in torch's DataLoader."""

import contextlib
import gc
import json
import logging
import multiprocessing
import os
import pickle
import signal
import threading
import time
from itertools import chain

import numpy as np
import pytest
from conftest import add, managed, numbered, options_of, segment_files, until, zip_equal
from rank_processes import Ranks

import ringreel

torch = pytest.importorskip("torch", reason="torch is not installed: ringreel.torch.RingStream is NOT tested")

from torch.utils.data import DataLoader, default_collate  # noqa: E402
from torch_samples import same  # noqa: E402

import ringreel.torch  # noqa: E402
from ringreel import _torch_batches  # noqa: E402
from ringreel.torch import RingStream, collate  # noqa: E402

# Python 3.12 and later warn about a fork in a process with threads, which these tests do on purpose.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),  # more workers than cores
]


@pytest.fixture
def impatient(monkeypatch):
    """Shortens the 5 s for which torch waits for each worker of a loop that an exception has ended."""
    monkeypatch.setattr(torch.utils.data._utils, "MP_STATUS_CHECK_INTERVAL", 0.3)
    yield
    gc.collect()


@pytest.fixture(scope="module")
def ranks():
    with Ranks(3) as ranks:
        yield ranks


@pytest.fixture
def ring_of(filled):
    """Makes a ring whose first generation has `count` samples and is kept. Later ones can be larger or smaller."""

    def make(samples, **keys):
        samples = numbered(samples) if isinstance(samples, int) else samples
        return filled(samples, **{"SWAP_CAP": 100, "SEGMENT_SAMPLES": 4, "KEEP": 9, "LEASE_SECONDS": 5, **keys})

    return make


def told(batch):
    """Returns the numbers of the samples of a batch."""
    data = batch["data"] if isinstance(batch, dict) else batch[0]
    rows = data.reshape(len(data), -1) if data.dim() > 1 else data[None]
    assert (rows == rows[:, :1]).all()
    return rows[:, 0].tolist()


def all_told(loader):
    """Returns the numbers of all samples of a loader or a dataset."""
    return [number for batch in loader for number in told(batch)]


# Samples.


def test_a_sample_is_a_dict_of_tensors_or_a_tuple_of_them(ring_of):
    ring = ring_of([{"a": np.arange(6.0).reshape(2, 3), "b": np.int16(5), "c": b"abc"}])
    for config in (ring, {"RING": ring.path}):
        sample = next(iter(RingStream(config)))
        assert type(sample) is dict and list(sample) == ["a", "b", "c"] and sample["c"] == b"abc"
        assert torch.equal(sample["a"], torch.arange(6, dtype=torch.float64).view(2, 3))
        assert sample["b"].dtype == torch.int16 and sample["b"].shape == () and sample["b"] == 5
        for parts in (["a", "b", "c"], ["c", "a"], ("b",)):
            assert list(next(iter(RingStream(config, parts=parts)))) == list(parts)
            found = next(iter(RingStream(config, parts=parts, as_tuple=True)))
            assert type(found) is tuple and len(found) == len(parts)
            assert (found[0] == b"abc") if parts[0] == "c" else torch.equal(found[0], sample[parts[0]])
    assert isinstance(RingStream(ring), torch.utils.data.IterableDataset)
    assert ring.path in repr(RingStream(ring))


def test_invalid_arguments_are_refused_at_once(ring_of):
    ring = ring_of(3)
    for options, why in [
        ({"equal": "x"}, "equal"),
        ({"rank": 2, "world_size": 2}, "rank: expected 0 or more and less than world_size=2, found 2"),
        ({"rank": 1}, "rank and world_size: expected both or neither"),
        ({"epochs": -1}, "epochs"),
        ({"run": "a", "replay": "b"}, "run and replay"),
        ({"parts": ["x"]}, "no part 'x'"),
        ({"parts": "data"}, "a list of names"),
    ]:
        with pytest.raises(ValueError, match=why):
            RingStream(ring, **options)
    with pytest.raises(TypeError):
        RingStream(ring, shufle=True)


def twice(sample):
    return {"data": sample["data"] * 2, "more": [1, "x"]}


def first_of(sample):
    return int(sample[0][0])


def test_transform_result_is_the_sample(ring_of):
    ring = ring_of(4)
    for workers in (0, 2):
        loader = DataLoader(RingStream(ring, epochs=1, transform=twice), 2, num_workers=workers)
        assert sorted(all_told(loader)) == [0, 2, 4, 6]
        ones, letters = next(iter(loader))["more"]
        assert ones.tolist() == [1, 1] and list(letters) == ["x", "x"]
        loader = DataLoader(RingStream(ring, epochs=1, as_tuple=True, transform=first_of), 4, num_workers=workers)
        assert sorted(number for batch in loader for number in batch.tolist()) == [0, 1, 2, 3]


@pytest.mark.parametrize("collate_fn", [default_collate, collate], ids=["default", "ours"])
@pytest.mark.parametrize("workers", [0, 1, 2, 4])
def test_padding_samples_are_marked(ring_of, workers, collate_fn):
    ring = ring_of(numbered(5, 40_000))
    dataset = RingStream(ring, equal="pad", pad_value=-3, epochs=1, rank=0, world_size=2)
    found = list(DataLoader(dataset, 2, num_workers=workers, collate_fn=collate_fn))
    values = [value for batch in found for value in zip_equal(told(batch), batch["is_padding"].tolist())]
    total = 2 * max(workers, 1)
    mine = range(max(workers, 1))
    wanted = [(n, False) for n in range(5) if n % total in mine]
    assert sorted(value for value in values if not value[1]) == wanted
    assert [value for value in values if value[1]] == [(-3, True)] * (-(-5 // total) * len(mine) - len(wanted))
    assert all(batch["is_padding"].dtype == torch.bool for batch in found)
    as_tuple = RingStream(ring, equal="pad", epochs=1, as_tuple=True)
    padding = next(iter(as_tuple))[-1]
    assert padding.dtype == torch.bool and padding.shape == () and not padding
    assert "is_padding" not in next(iter(RingStream(ring, equal="wrap")))


def various(number):
    """Parts that cover every way of sending."""
    rng = np.random.default_rng(number)
    return {
        "large": rng.integers(0, 255, (100, 700), np.uint8),
        "floats": rng.random((3, 50_000), np.float32),
        "packed": np.full(100_000, number, np.int64),
        "inline": np.arange(5, dtype=np.float32) + number,
        "scalar": np.array(number / 2),
        "empty": np.zeros((0, 3), np.float32),
        "raw": str(number).encode(),
    }


@pytest.mark.parametrize("equal", ["pad", "drop"])
@pytest.mark.parametrize("as_tuple", [False, True], ids=["dict", "tuple"])
def test_batches_equal_those_of_default_collate(ring_of, as_tuple, equal):
    ring = ring_of([various(n) for n in range(7)], COMPRESS={"packed": 3})
    for batch_size in (1, 3, None):
        for workers in (0, 2):
            found = []
            for collate_fn in (None, collate):
                dataset = RingStream(ring, equal=equal, as_tuple=as_tuple, epochs=1, shuffle=True)
                found.append(list(DataLoader(dataset, batch_size, num_workers=workers, collate_fn=collate_fn)))
            assert len(found[0]) == len(found[1]) > 1 and all(map(same, *found))


def test_held_out_samples_are_not_served(ring_of):
    ring = ring_of(numbered(8, 40_000), VALIDATION=3)
    for collate_fn in (default_collate, collate):
        for workers in (0, 2):
            loader = DataLoader(RingStream(ring, equal="wrap", epochs=1), 2, num_workers=workers, collate_fn=collate_fn)
            assert set(all_told(loader)) == {3, 4, 5, 6, 7}


# Workers.


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("workers", [0, 1, 2, 4])
def test_each_loop_reads_all_of_the_newest_generation(ring_of, workers, persistent):
    ring = ring_of(8)
    dataset = RingStream(ring, epochs=1, shuffle=True)
    loader = DataLoader(
        dataset, 2, num_workers=workers, persistent_workers=persistent and workers > 0, collate_fn=collate
    )
    orders = [all_told(loader), all_told(loader)]
    assert [sorted(order) for order in orders] == [[*range(8)]] * 2 and orders[0] != orders[1]
    for generation in (2, 3):
        add(ring, numbered(8, start=10 * generation))
        assert sorted(all_told(loader)) == [*range(10 * generation, 10 * generation + 8)]
    assert sorted(all_told(loader)) == [*range(30, 38)]


def test_loop_has_several_epochs_or_no_end(ring_of, impatient):
    ring = ring_of(8)
    loader = DataLoader(RingStream(ring, epochs=3), 2, num_workers=2)
    for _ in range(2):
        assert sorted(all_told(loader)) == sorted([*range(8)] * 3)
    batches = iter(DataLoader(RingStream(ring), 2, num_workers=2))
    found = [told(next(batches)) for _ in range(40)]
    assert sorted(chain(*found)) == sorted([*range(8)] * 10)
    add(ring, numbered(8, start=10))
    while min(told(next(batches))) < 10:
        pass


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_of_every_kind_share_the_samples(ring_of, method, persistent):
    ring = ring_of(8)
    dataset = RingStream(ring, epochs=1, shuffle=True, transform=twice)
    context = multiprocessing.get_context(method)
    if method == "forkserver":
        context.set_forkserver_preload(["ringreel.torch"])
    loader = DataLoader(dataset, 2, num_workers=2, multiprocessing_context=context, persistent_workers=persistent)
    assert sorted(all_told(loader)) == [*range(0, 16, 2)]
    add(ring, numbered(8, start=10))
    assert sorted(all_told(loader)) == [*range(20, 36, 2)]


def test_stream_in_the_main_process_does_not_disturb_workers(ring_of):
    """The stream has prefetching threads when workers are forked."""
    ring = ring_of(numbered(16, 40_000))
    stream = iter(RingStream(ring))
    assert int(next(stream)["data"][0]) == 0
    for _ in range(3):
        assert sorted(all_told(DataLoader(RingStream(ring, epochs=1), 2, num_workers=2))) == [*range(16)]
    assert int(next(stream)["data"][0]) == 1


def test_sample_read_beforehand_does_not_separate_workers(ring_of):
    """Users read one sample to see its shape, in another process than the loader's workers."""
    ring = ring_of(8)
    dataset = RingStream(ring, epochs=1, shuffle=True)
    next(iter(dataset))
    next(iter(DataLoader(dataset, 2)))
    for workers in (4, 2, 0, 4):
        assert sorted(all_told(DataLoader(dataset, 2, num_workers=workers))) == [*range(8)], workers


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
def test_complete_loop_follows_an_abandoned_one(ring_of, workers, persistent):
    ring = ring_of(24)
    dataset = RingStream(ring, epochs=1, shuffle=True)
    loader = DataLoader(
        dataset, 2, num_workers=workers, persistent_workers=persistent and workers > 0, collate_fn=collate
    )
    for count in (1, 5, 2):
        for n, _ in enumerate(loader):
            if n == count:
                break
        assert sorted(all_told(loader)) == [*range(24)]


class Late:
    """Delays the second worker, so that it gets no sample in the first loop."""

    def __init__(self, path):
        self.path = path

    def __call__(self, worker):
        if worker == 1 and not self.path.exists():
            time.sleep(60)


def test_late_worker_is_in_step_in_the_next_loop(ring_of, tmp_path, impatient):
    ring = ring_of(24)
    dataset = RingStream(ring, epochs=1, shuffle=True)
    late = Late(tmp_path / "go")
    batches = iter(DataLoader(dataset, 2, num_workers=3, worker_init_fn=late))
    next(batches)
    del batches
    late.path.touch()
    for _ in range(2):
        assert sorted(all_told(DataLoader(dataset, 2, num_workers=3, worker_init_fn=late))) == [*range(24)]


@pytest.mark.parametrize("persistent", [False, True])
def test_empty_share_is_an_error_in_each_worker(ring_of, persistent):
    ring = ring_of(2)
    dataset = RingStream(ring, epochs=1, equal="drop")
    loader = DataLoader(dataset, 1, num_workers=4, persistent_workers=persistent)
    with pytest.raises(ringreel.SampleError, match="holds 2 samples for 4 workers"):
        all_told(loader)
    add(ring, numbered(4, start=10))
    assert sorted(all_told(DataLoader(dataset, 1, num_workers=4))) == [10, 11, 12, 13]


@pytest.mark.parametrize("equal, count", [("wrap", 4), ("pad", 4), (None, 2)])
@pytest.mark.parametrize("persistent", [False, True])
def test_fewer_samples_than_workers_are_shared(ring_of, equal, count, persistent):
    ring = ring_of(2)
    dataset = RingStream(ring, epochs=1, equal=equal, pad_value=-1)
    loader = DataLoader(dataset, 1, num_workers=4, persistent_workers=persistent)
    for _ in range(3):
        found = all_told(loader)
        assert len(found) == count and set(found) == ({-1} if equal == "pad" else set()) | {0, 1}
    add(ring, numbered(4, start=10))
    assert sorted(all_told(loader))[-4:] == [10, 11, 12, 13]


# Errors.


class Failing:
    def __call__(self, sample):
        if sample["data"][0] == 3:
            raise LookupError("no such thing as sample 3")
        return sample


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_exception_of_a_transform_reaches_the_training_loop(ring_of, workers, impatient):
    loader = DataLoader(RingStream(ring_of(8), epochs=1, transform=Failing()), 2, num_workers=workers)
    with pytest.raises(LookupError, match="no such thing as sample 3"):
        list(loader)


@pytest.mark.parametrize("workers", [0, 2])
def test_error_of_the_ring_reaches_the_training_loop(config, ring_of, workers, impatient):
    with pytest.raises(ringreel.RingTimeoutError, match="no generator or manager has started yet"):
        next(iter(DataLoader(RingStream(config(RING="nowhere"), timeout=0.1), 2, num_workers=workers)))
    ring = ring_of(4, ON_STALE="stop", REUSE={"max": 2})
    with pytest.raises(ringreel.StaleError, match="generation 1 was read 2 times"):
        list(DataLoader(RingStream(ring), 2, num_workers=workers))


@pytest.mark.parametrize("persistent", [False, True])
def test_no_sample_is_served_more_often_than_reuse_allows(ring_of, persistent, impatient):
    ring = ring_of(8, ON_STALE="stop", REUSE={"max": 2})
    loader = DataLoader(RingStream(ring, epochs=1), 2, num_workers=2, persistent_workers=persistent)
    assert [len(all_told(loader)) for _ in range(2)] == [8, 8]
    with pytest.raises(ringreel.StaleError, match="generation 1 was read 2 times"):
        list(loader)


@pytest.mark.parametrize("workers", [0, 2])
def test_damaged_samples_are_replaced_and_steps_stay_equal(ring_of, workers):
    ring = ring_of(8, SEGMENT_SAMPLES=2)
    os.truncate(segment_files(ring)[1], 100)  # 2 and 3
    for equal, count in (("wrap", 8), ("drop", 8), (None, 6)):
        found = all_told(DataLoader(RingStream(ring, epochs=1, equal=equal), 1, num_workers=workers))
        assert len(found) == count and set(found) == {0, 1, 4, 5, 6, 7}
    dataset = RingStream(ring, epochs=1, equal="pad")
    padding = [bool(batch["is_padding"]) for batch in DataLoader(dataset, 1, num_workers=workers)]
    assert sum(padding) == 2 and len(padding) == 8


# Ranks.


def loops(rank, ring, world, workers, persistent, equal, lengths, **options):
    """Returns the batches of each loop of a rank: a given number of them, or all (None)."""
    dataset = RingStream(ring, epochs=1, shuffle=True, equal=equal, rank=rank, world_size=world, run="ranks", **options)
    loader = DataLoader(dataset, 2, num_workers=workers, persistent_workers=persistent, collate_fn=collate)
    found = []
    for length in lengths:
        found.append([])
        for batch in loader:
            found[-1].append(told(batch))
            if len(found[-1]) == length:
                break
    return found


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("equal", ["drop", "wrap"])
def test_ranks_stay_in_step_while_generations_are_promoted(ranks, ring_of, persistent, equal):
    """All ranks get equally many batches of the same generation, and no sample twice, also in abandoned loops."""
    ring = ring_of(numbered(25, start=1000))
    lengths = [None, 2, None, None, 1, None, None]
    for rank in range(3):
        ranks.begin(rank, loops, rank, ring, 3, 2, persistent, equal, lengths)
    for generation in range(2, 6):
        time.sleep(0.1)
        add(ring, numbered(25, start=1000 * generation))
    by_rank = [ranks.answer(rank) for rank in range(3)]
    for n, length in enumerate(lengths):
        found = [rank[n] for rank in by_rank]
        assert len({len(batches) for batches in found}) == 1, n
        given = [number for batches in found for batch in batches for number in batch]
        assert len({number // 1000 for number in given}) == 1, n
        if length is None:
            numbers = [number % 1000 for number in given]
            assert len(numbers) == (24 if equal == "drop" else 30)
            assert len(set(numbers)) == (24 if equal == "drop" else 25)
        else:
            assert len(set(given)) == len(given) == 3 * 2 * length


def in_group(rank, ring, path, workers):
    """Runs as a rank of torch.distributed, with different values in the environment."""
    os.environ.update(RANK="7", WORLD_SIZE="9")
    torch.distributed.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=2)
    try:
        dataset = RingStream(ring, epochs=1, run=f"group-{workers}")
        found = [all_told(DataLoader(dataset, 2, num_workers=workers)) for _ in range(2)]
        counts = torch.tensor([len(each) for each in found])
        torch.distributed.all_reduce(counts)
        assert counts.tolist() == [8, 8]
        sent = pickle.dumps(dataset)
    finally:
        torch.distributed.destroy_process_group()
    # Without a process group, as in a spawned worker.
    found.append(all_told(pickle.loads(sent)) if workers == 0 else None)
    del os.environ["RANK"], os.environ["WORLD_SIZE"]
    return found


@pytest.mark.parametrize("workers", [0, 2])
def test_rank_is_taken_from_the_process_group(ranks, ring_of, tmp_path, workers):
    if not torch.distributed.is_available():
        pytest.skip("torch has no distributed: RingStream in a process group is NOT tested")
    found = ranks.together(2, in_group, ring_of(8), tmp_path / "store", workers)
    for n in range(2):
        assert sorted(found[0][n] + found[1][n]) == [*range(8)]
        assert sorted(found[0][n]) == ([0, 2, 4, 6] if workers == 0 else [0, 1, 4, 5])
    if workers == 0:
        assert sorted(found[0][2]) == [0, 2, 4, 6] and sorted(found[1][2]) == [1, 3, 5, 7]


def test_rank_is_taken_from_the_environment(ring_of, monkeypatch):
    ring = ring_of(8)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "job")
    for workers in (0, 2):
        found = all_told(DataLoader(RingStream(ring, epochs=1), 2, num_workers=workers))
        assert sorted(found) == ([1, 3, 5, 7] if workers == 0 else [2, 3, 6, 7])
        monkeypatch.setenv("TORCHELASTIC_RUN_ID", "another")
    stream = RingStream(ring)
    spawned = pickle.loads(pickle.dumps(stream))
    monkeypatch.delenv("RANK")
    assert [int(next(iter(each))["data"][0]) for each in (spawned, stream)] == [1, 0]


@pytest.mark.parametrize("workers", [0, 2])
def test_replay_gives_the_same_batches_in_each_loop(ring_of, workers):
    ring = ring_of(8)
    loader = DataLoader(RingStream(ring, epochs=1, shuffle=True, run="first"), 2, num_workers=workers)
    wanted = [told(batch) for batch in loader]
    add(ring, numbered(8, start=10))
    wanted += [told(batch) for batch in loader]
    add(ring, numbered(8, start=20))
    again = DataLoader(RingStream(ring, replay="first"), 2, num_workers=workers)
    for _ in range(2):
        assert [told(batch) for batch in again] == wanted


def test_ranks_without_a_run_log_one_warning(ring_of, caplog, monkeypatch):
    ring = ring_of(8)
    dataset = RingStream(ring, rank=1, world_size=3)
    for _ in range(2):
        next(iter(dataset))
    assert caplog.text.count("this is rank 1 of 3, and no run is named") == 1
    caplog.clear()
    next(iter(RingStream(ring)))
    next(iter(RingStream(ring, rank=1, world_size=3, run="named")))
    monkeypatch.setenv("SLURM_JOB_ID", "5")
    next(iter(RingStream(ring, rank=1, world_size=3)))
    assert "read together" not in caplog.text


# States.


def read_some(rank, dataset, workers, count, states, seed):
    """Runs as a stateful loader's worker: makes an iterator, loads a state, and yields a state with each sample."""
    torch.utils.data._utils.worker._worker_info = torch.utils.data._utils.worker.WorkerInfo(
        id=rank, num_workers=workers, seed=seed + rank, dataset=dataset
    )
    iterator = iter(dataset)
    if states is not None:
        iterator.load_state_dict(states[rank])
    said = [iterator.state_dict()]
    found = []
    with contextlib.suppress(StopIteration):
        while len(found) < count:
            found.append(int(next(iterator)["data"][0]))
            said.append(pickle.loads(pickle.dumps(iterator.state_dict())))
    torch.utils.data._utils.worker._worker_info = None
    return found, said


@pytest.mark.parametrize("run", [None, "named"])
def test_state_protocol_of_stateful_loaders_works(ranks, ring_of, run):
    """Workers of a new loader continue from the states that the old loader's workers saved after any sample."""
    ring = ring_of(21)

    def dataset(run=run):
        return RingStream(ring, epochs=1, shuffle=True, equal="wrap", run=run)

    whole = ranks.together(2, read_some, dataset(), 2, 99, None, 100)
    order = [found for found, _ in whole]
    assert [len(found) for found in order] == [11, 11] and set(order[0] + order[1]) == set(range(21))
    for seed, counts in enumerate(((0, 0), (1, 0), (2, 0), (1, 1), (6, 5), (10, 10), (11, 10), (11, 11))):
        states = [json.loads(json.dumps(said[count])) for count, (_, said) in zip_equal(counts, whole)]
        again = ranks.together(2, read_some, dataset(), 2, 99, states, 1000 + 10 * seed)
        rest = [found[count:] for found, count in zip_equal(order, counts)]
        assert [found for found, _ in again] == rest, counts
        assert all(said[-1]["step"] == 11 for _, said in again)
    # A restart under another name, after a newer generation was promoted.
    add(ring, [{"data": np.full(6, 100 + n)} for n in range(21)])
    for seed, counts in enumerate(((0, 0), (1, 0), (0, 2), (3, 3))):
        states = [json.loads(json.dumps(said[count])) for count, (_, said) in zip_equal(counts, whole)]
        again = ranks.together(2, read_some, dataset(f"{run}-{seed}"), 2, 99, states, 2000 + 10 * seed)
        assert [found for found, _ in again] == [found[count:] for found, count in zip_equal(order, counts)]


# torchdata 0.11 with torch 2.15.
@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")
def test_stateful_loaders_resume_exactly(ring_of):
    stateful = pytest.importorskip(
        "torchdata.stateful_dataloader", reason="torchdata is not installed: its StatefulDataLoader is NOT tested"
    )
    ring = ring_of(20)

    def loader(workers, **options):
        dataset = RingStream(ring, epochs=1, shuffle=True, **options)
        return stateful.StatefulDataLoader(dataset, 2, num_workers=workers)

    for workers in (0, 2):
        for count in (1, 4, 9):
            first = loader(workers)
            batches = iter(first)
            [next(batches) for _ in range(count)]
            state = pickle.loads(pickle.dumps(first.state_dict()))
            rest = [told(batch) for batch in batches]
            second = loader(workers)
            second.load_state_dict(state)
            assert [told(batch) for batch in second] == rest and len(rest) == 10 - count
            assert [told(batch) for batch in second] == [told(batch) for batch in first]  # the next epoch
            assert sorted(all_told(second)) == [*range(20)]


def test_a_stream_is_logged_and_resumed_in_this_process(ring_of):
    ring = ring_of(10)
    stream = iter(RingStream(ring, shuffle=True, seed=4))
    [next(stream) for _ in range(7)]
    state = stream.state_dict()
    assert state["step"] == 7 and state["seed"] == 4 and state["run"]
    wanted = [int(next(stream)["data"][0]) for _ in range(20)]
    again = iter(RingStream(ring, shuffle=True, seed=4))
    again.load_state_dict(state)
    assert [int(next(again)["data"][0]) for _ in range(20)] == wanted
    with pytest.raises(ringreel.SampleError, match="seed 4"):
        iter(RingStream(ring, shuffle=True)).load_state_dict(state)


def test_tensors_are_private(ring_of):
    ring = ring_of(numbered(2, 40_000))
    dataset = RingStream(ring, epochs=1)
    for collate_fn in (default_collate, collate):
        for workers in (0, 1):
            for batch in DataLoader(dataset, 1, num_workers=workers, collate_fn=collate_fn):
                batch["data"].fill_(77)
    assert all_told(DataLoader(dataset, 1)) == [0, 1]


@pytest.mark.parametrize("kind", [RingStream, ringreel.torch.RingDataset])
def test_parts_of_a_sample_reclaimed_on_its_way_belong_together(ring_of, monkeypatch, kind):
    """A label belongs to its image."""
    ring = ring_of([{"data": np.full(40_000, n), "label": np.int64(n)} for n in range(3)], KEEP=0)
    samples = iter(kind(ring))
    with monkeypatch.context() as patch:
        patch.setattr(_torch_batches, "get_worker_info", lambda: True)  # as in a worker
        sent = bytes(multiprocessing.reduction.ForkingPickler.dumps(collate([next(samples), next(samples)])))
    del samples
    gc.collect()
    for start in (10, 20):
        add(ring, [{"data": np.full(40_000, start + n), "label": np.int64(start + n)} for n in range(3)])
    taken = pickle.loads(sent)
    assert told(taken) == taken["label"].tolist()


def test_log_says_what_workers_wait_for(config, caplog):
    with caplog.at_level(logging.INFO, "ringreel"), pytest.raises(ringreel.RingTimeoutError):
        next(iter(RingStream(config(), timeout=0.1)))
    assert "waiting for a ring at" in caplog.text


def test_mixture_of_ring_streams_is_refused(config):
    with pytest.raises(TypeError, match="pass the stream"):
        ringreel.Mixture([RingStream(config())])


@pytest.mark.parametrize("given", [0, 4])
def test_threads_can_query_a_waiting_iterator(config, ring_of, caplog, given):
    """As in signal handlers, the state is that after the previous sample, and empty without a ring."""
    ring = ring_of(4) if given else config(RING="nowhere")
    iterator, states = iter(RingStream(ring, repeat=False, equal=None)), []
    for _ in range(given):
        next(iterator)
    caplog.set_level(logging.INFO, "ringreel")
    reader = threading.Thread(target=list, args=(iterator,), daemon=True)
    reader.start()
    until(lambda: "waiting for" in caplog.text)  # before that, the call itself would wait for the ring
    asker = threading.Thread(target=lambda: states.append(iterator.state_dict()), daemon=True)
    asker.start()
    asker.join(60)
    assert [state.get("step", 0) for state in states] == [given]
    iterator._stream.close()
    reader.join(60)
    assert not reader.is_alive()


class _WithStates(torch.utils.data.IterableDataset):
    """Yields the worker's number, the sample's, and the state after it."""

    def __init__(self, stream, states=None):
        self.stream, self.states = stream, states

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        iterator = iter(self.stream)
        if self.states:
            iterator.load_state_dict(self.states)
        for sample in iterator:
            yield info.id, int(sample["data"][0]), iterator.state_dict()


KILLED = """
    import json, os, pathlib, signal, sys
    sys.path.insert(0, sys.argv[2])
    from test_torch_stream import DataLoader, RingStream, _WithStates

    stream = RingStream(json.loads(sys.argv[1]), shuffle=True, seed=7, run="killed")
    loader = DataLoader(_WithStates(stream), batch_size=None, num_workers=2)
    states, given = {}, []
    for worker, number, state in loader:
        states[worker] = state
        given.append(number)
        if len(given) == 6:
            pathlib.Path("given.json").write_text(json.dumps(given))
            pathlib.Path("states.json").write_text(json.dumps(list(states.values())))
            if sys.argv[3] == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            stream.suspend()
            sys.exit()
"""


@pytest.mark.parametrize("end", ["kill", "suspend"])
def test_killed_loader_resumes_exactly_after_promotions(script, tmp_path, caplog, end):
    """RUN_GRACE keeps the generation that the killed or suspended workers were reading."""
    keys = {"RING": str(tmp_path / "ring"), "SAMPLE": ["data"], "SWAP_CAP": 400, "SEGMENT_SAMPLES": 100}
    keys |= {"KEEP": 0, "LEASE_SECONDS": 0.5, "POLL_SECONDS": 0.02}
    ring = ringreel.Ring(keys)
    add(ring, numbered(400))
    killed = script(KILLED, json.dumps(keys), os.path.dirname(__file__), end)
    assert killed.end() == (-signal.SIGKILL if end == "kill" else 0), killed.said
    states = json.loads((tmp_path / "states.json").read_text())
    notes = tmp_path / "ring" / "index" / "notes" / "run.killed"
    with managed(keys, caplog):
        for n in range(1, 200):
            add(ring, numbered(400, start=400 * n))
            if n > 2 and sum(note.name.startswith("dead.") for note in notes.iterdir()) == 2:
                break
            time.sleep(0.1)
        add(ring, numbered(400, start=400 * (n + 1)))
    stream = RingStream(keys, epochs=1, shuffle=True, seed=7, run="restarted")
    loader = DataLoader(_WithStates(stream, states), batch_size=None, num_workers=2)
    given = json.loads((tmp_path / "given.json").read_text())
    assert sorted(given + [number for _, number, _ in loader]) == [*range(400)]


class _WithStats(torch.utils.data.IterableDataset):
    """Yields the number of distinct samples that its worker has read."""

    def __init__(self, stream):
        self.stream = stream

    def __iter__(self):
        for _ in self.stream:
            yield torch.utils.data.get_worker_info().dataset.stream.stats().distinct


def test_stats_add_up_the_loops_of_this_process(ring_of):
    stream = RingStream(ring_of(4), epochs=1)
    assert stream.stats() == ringreel.StreamStats()
    begun = time.monotonic()
    for _ in range(2):
        for _ in DataLoader(stream, batch_size=2, collate_fn=collate):
            time.sleep(0.05)
    for _ in stream:
        break  # left after one sample
    whole = time.monotonic() - begun
    stats = stream.stats()
    assert (stats.distinct, stats.offered, stats.reads_per_sample) == (9, 12, 1.0)
    assert stats.step_seconds >= 0.2 and stats.read_seconds > 0
    assert stats.waited_seconds + stats.read_seconds + stats.step_seconds <= whole
    assert stream.stats() == stats, "no time counts between two loops"
    assert pickle.loads(pickle.dumps(stream)).stats() == ringreel.StreamStats()


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_stats_of_loader_workers_are_in_the_workers(ring_of, context):
    stream = RingStream(ring_of(8), epochs=1)
    iterator = iter(stream)  # of this process; a worker does not count it
    next(iterator)
    loader = DataLoader(_WithStats(stream), batch_size=None, num_workers=2, multiprocessing_context=context)
    assert sorted(int(distinct) for distinct in loader) == [1, 1, 2, 2, 3, 3, 4, 4]
    assert stream.stats().distinct == 1


def test_options_of_streams_are_those_of_ring_stream():
    given, ours = options_of(ringreel.Ring.stream), options_of(RingStream.__init__)
    assert given.keys() <= ours.keys()
    assert {name for name in given if given[name] != ours[name]} == {"equal"}
