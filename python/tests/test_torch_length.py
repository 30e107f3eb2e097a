"""Lengths of torch's datasets and of a DataLoader over them: as many items and batches as are delivered.

torch warns, which is an error in these tests, of a dataset that yields more items than its length.
"""

import pytest
from conftest import add, numbered
from image_files import write

import ringreel

torch = pytest.importorskip("torch", reason="torch is not installed: lengths of its datasets are NOT tested")

from torch.utils.data import DataLoader, IterableDataset  # noqa: E402

from ringreel.torch import ImageRecordStream, RingStream  # noqa: E402

# Python 3.12 and later warn about a fork in a process with threads, which these tests do on purpose.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),  # more workers than cores
]

EQUAL = [None, "drop", "wrap", "pad"]


def delivered(dataset, workers, drop_last=False):
    """Checks the lengths of loaders over the dataset, and returns the number of items."""
    options = {"num_workers": workers, "collate_fn": list}
    items = len(DataLoader(dataset, batch_size=None, num_workers=workers))
    loader = DataLoader(dataset, batch_size=4, drop_last=drop_last, **options)
    expected = len(loader)
    batches = list(loader)
    assert len(batches) == expected
    if not drop_last:
        assert sum(map(len, batches)) == items
    return items


@pytest.mark.parametrize("equal", EQUAL)
@pytest.mark.parametrize(("world", "workers"), [(1, 0), (2, 0), (3, 0), (4, 0), (1, 2), (2, 2), (3, 1), (4, 2)])
def test_stream_delivers_as_many_samples_as_its_length(filled, equal, world, workers):
    ring = filled(numbered(11))
    counts = []
    for rank in range(world) if workers == 0 else [0, world - 1][:world]:
        stream = RingStream(ring, equal=equal, rank=rank, world_size=world, epochs=1, run=f"r{rank}")
        counts.append(delivered(stream, workers))
        if workers == 0:
            assert len(stream) == counts[-1]
    assert equal is None or len(set(counts)) == 1


@pytest.mark.parametrize("workers", [0, 2])
def test_drop_last_leaves_out_a_batch_of_each_worker(filled, workers):
    ring = filled(numbered(11))
    delivered(RingStream(ring, equal="wrap", epochs=2), workers, drop_last=True)


def test_length_in_a_worker_is_that_of_its_share(filled):
    class Told(IterableDataset):
        def __init__(self, stream):
            self.stream = stream

        def __iter__(self):
            yield len(self.stream), sum(1 for _ in self.stream)

    loader = DataLoader(Told(RingStream(filled(numbered(11)), equal=None, epochs=1)), None, num_workers=2)
    assert sorted(tuple(told) for told in loader) == [(5, 5), (6, 6)]


def test_wrapped_dataset_has_the_length_of_all_workers(filled):
    class Wrapped(IterableDataset):
        def __init__(self, stream):
            self.stream = stream

        def __len__(self):
            return len(self.stream)

        def __iter__(self):
            return iter(self.stream)

    loader = DataLoader(Wrapped(RingStream(filled(numbered(11)), epochs=1)), None, num_workers=2)
    assert len(loader) == 10 == len(list(loader))


def test_length_is_that_of_the_newest_generation(filled):
    ring = filled(numbered(3), SWAP_CAP=8)
    stream = RingStream(ring, epochs=2)
    assert len(stream) == 6
    add(ring, numbered(8))
    assert len(stream) == 16 == len(list(stream))


def test_unknown_lengths_say_why(filled):
    loader = DataLoader(RingStream(filled(numbered(3))))
    with pytest.raises(TypeError, match=r"epochs=None .* pass epochs="):
        len(loader)
    assert bool(loader.dataset)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("equal", EQUAL)
def test_shares_deliver_as_many_items_as_their_length(equal, workers):
    for world in (1, 3):
        delivered(ringreel.Shard(range(20), world - 1, world, equal), workers)
    batches = ringreel.StreamLoader(range(20), 3, rank=0, world_size=2, equal=equal)
    loader = DataLoader(batches, None, num_workers=workers)
    assert len(loader) == len(list(loader))
    batches = ringreel.StreamLoader(ringreel.Shard(range(20), 0, 2, equal), 3)
    loader = DataLoader(batches, None, num_workers=workers)
    assert len(loader) == len(list(loader))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(("count", "round_batch"), [(23, False), (32, True)])
def test_images_are_as_many_batches_as_their_length(tmp_path, workers, count, round_batch):
    write(tmp_path / "x.rec", count)
    options = {"preprocess_threads": 1, "round_batch": round_batch}
    for world in (1, 2):
        dataset = ImageRecordStream(tmp_path / "x.rec", (3, 24, 24), 4, rank=0, world_size=world, **options)
        loader = DataLoader(dataset, None, num_workers=workers)
        length = len(loader)
        assert [len(list(loader)) for _ in range(3)] == [length] * 3


def test_images_in_epochs_of_different_lengths_have_no_length(tmp_path):
    write(tmp_path / "x.rec", 23)
    dataset = ImageRecordStream(tmp_path / "x.rec", (3, 24, 24), 4, preprocess_threads=1)
    with pytest.raises(TypeError, match="pass round_batch=False"):
        len(dataset)
    assert len(list(dataset)) == 6 and bool(dataset)
