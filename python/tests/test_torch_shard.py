"""Shard, StreamLoader and InputSplit as datasets of torch's DataLoader: every item once, with any number of workers."""

import copy
import itertools
import logging
import os
import pickle

import pytest

import ringreel

torch = pytest.importorskip("torch", reason="torch is not installed: shares of DataLoader workers are NOT tested")

from torch.utils.data import DataLoader, Dataset, IterableDataset  # noqa: E402

from ringreel import InputSplit, Shard, StreamLoader, recordio  # noqa: E402

# Python 3.12 and later warn about a fork in a process with threads, which these tests do on purpose.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),  # more workers than cores
]


@pytest.fixture
def lines(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("".join(f"{n}\n" for n in range(40)))
    return path


@pytest.fixture
def records(tmp_path):
    for name, numbers in (("a", range(25)), ("b", range(25, 40))):
        with recordio.MXRecordIO(tmp_path / f"{name}.rec", "w") as out:
            for n in numbers:
                out.write(b"%d" % n)
    return str(tmp_path / "*.rec")


class Numbers(Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, index):
        return index


def generated():
    yield from range(40)


def read(loader):
    return sorted(int(item) for batch in loader for item in batch)


@pytest.mark.parametrize("workers", range(5))
def test_every_item_is_read_once(lines, records, workers):
    sources = [lines, str(lines), ringreel.Files([lines]), records, generated, list(range(40)), Numbers()]
    for source in sources:
        assert read(DataLoader(Shard(source), batch_size=3, num_workers=workers, collate_fn=list)) == list(range(40))
    for source in (lines, records):
        loader = StreamLoader(source, 3, 10, shuffle=True, prefetch=2)
        assert read(DataLoader(loader, batch_size=None, num_workers=workers)) == list(range(40))
    split = InputSplit(os.path.dirname(records))
    assert read(DataLoader(split, batch_size=3, num_workers=workers, collate_fn=list)) == list(range(40))


def test_loader_in_a_dataset_of_the_user_yields_every_line_once(lines):
    class Lines(IterableDataset):
        def __iter__(self):
            return itertools.chain.from_iterable(StreamLoader(lines, 4))

    assert read(DataLoader(Lines(), batch_size=4, num_workers=2)) == list(range(40))


@pytest.mark.parametrize("equal", ["drop", "wrap", "pad"])
def test_workers_of_all_ranks_have_equal_steps(lines, equal):
    found = []
    for rank in range(3):
        shard = Shard(lines, rank, 3, equal, padding="-1")
        loader = DataLoader(shard, batch_size=None, num_workers=2)
        found.append([int(item) for item in loader])
    assert len({len(items) for items in found}) == 1
    given = sorted(itertools.chain(*found))
    extra = {"drop": range(36), "wrap": [0, 0, 1, 1, *range(2, 40)], "pad": [-1, -1, *range(40)]}
    assert given == list(extra[equal])


def test_spawned_workers_share_the_items(lines):
    loader = DataLoader(Shard(lines), batch_size=4, num_workers=2, multiprocessing_context="spawn")
    assert read(loader) == list(range(40))


def test_epochs_of_workers_are_those_of_set_epoch(lines):
    loader = StreamLoader(lines, 4, 40, shuffle=True)
    data = DataLoader(loader, batch_size=None, num_workers=2)
    orders = []
    for epoch in (0, 1, 0):
        loader.set_epoch(epoch)
        orders.append([tuple(batch) for batch in data])
    assert orders[0] == orders[2] != orders[1]
    persistent = DataLoader(loader, batch_size=None, num_workers=2, persistent_workers=True)
    assert [[tuple(batch) for batch in persistent] for _ in range(2)] == orders[:2]


def test_objects_are_datasets_and_copies_stay_datasets(lines, records):
    for made in (Shard(lines), StreamLoader(lines, 4), InputSplit(os.path.dirname(records))):
        for each in (made, pickle.loads(pickle.dumps(made)), copy.deepcopy(made)):
            assert isinstance(each, IterableDataset) and len(list(each)) in (40, 10)
    assert type(Shard(lines)).__name__ == "Shard" and isinstance(Shard(lines), Shard)


def test_rank_is_that_of_torch_distributed(monkeypatch, lines):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 4)
    shard = Shard(lines)
    assert [int(n) for n in shard] == list(range(1, 40, 4))
    copied = pickle.dumps(shard)
    monkeypatch.undo()  # as in a spawned worker
    assert [int(n) for n in pickle.loads(copied)] == list(range(1, 40, 4))


def test_iterable_dataset_as_a_source_logs_a_warning(caplog):
    class Own(IterableDataset):
        def __iter__(self):
            return iter(range(8))

    with caplog.at_level(logging.WARNING, "ringreel"):
        assert list(Shard(Own(), rank=1, world_size=2)) == [1, 3, 5, 7]
    assert "if it already divides its items among ranks or workers, they are divided twice" in caplog.text
    caplog.clear()
    assert list(StreamLoader(Shard(range(4)), 2)) == [[0, 1], [2, 3]] and not caplog.records


def test_loader_made_before_the_import_of_torch_is_no_dataset(script):
    program = """
        import ringreel
        loader = ringreel.StreamLoader(range(4), 2)
        import torch
        print(list(loader), isinstance(ringreel.Shard(range(4)), torch.utils.data.IterableDataset))
        try:
            list(torch.utils.data.DataLoader(loader, batch_size=None))
        except TypeError as error:
            print(error)
    """
    child = script(program)
    assert child.end() == 0 and child.said.startswith("[[0, 1], [2, 3]] True\n")
    assert "As the dataset of torch's DataLoader, make it after the import of torch" in child.said
