"""`ringreel.torch.MixtureStream`: mixtures in torch's DataLoader, every item of every source once."""

import json
import pickle

import pytest
from conftest import add, numbered

import ringreel

torch = pytest.importorskip("torch", reason="torch is not installed: ringreel.torch.MixtureStream is NOT tested")

from torch.utils.data import DataLoader  # noqa: E402

from ringreel.torch import MixtureStream, RingStream, collate  # noqa: E402

# Python 3.12 and later warn about a fork in a process with threads, which these tests do on purpose.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),  # more workers than cores
]


@pytest.fixture
def rings(config, tmp_path):
    """Two rings: one of the numbers 0 to 10, and one of 100 to 106."""
    found = []
    for name, count, start in (("a", 11, 0), ("b", 7, 100)):
        ring = ringreel.Ring(config(RING=str(tmp_path / name), SWAP_CAP=count))
        add(ring, numbered(count, start=start))
        found.append(ring)
    return found


def mixed(rings, rank=0, world_size=1, equal=None, stop="all", weights=(2, 1), shuffle=False, seed=3):
    options = {"rank": rank, "world_size": world_size, "equal": equal, "epochs": 1, "shuffle": shuffle}
    return MixtureStream([RingStream(ring, **options) for ring in rings], weights, seed, stop)


def loader_of(dataset, workers):
    return DataLoader(dataset, None, num_workers=workers, collate_fn=lambda sample: sample)


def numbers_of(dataset, workers):
    def number(sample):
        return int(sample["data"][0])

    return list(DataLoader(dataset, None, num_workers=workers, collate_fn=number))


@pytest.mark.parametrize(("world", "workers"), [(1, 0), (3, 0), (1, 2), (2, 2)])
def test_every_item_of_every_source_is_read_once(rings, world, workers):
    found = []
    for rank in range(world):
        dataset = mixed(rings, rank, world)
        numbers = numbers_of(dataset, workers)
        assert len(loader_of(dataset, workers)) == len(numbers)
        found += numbers
    assert sorted(found) == [*range(11), *range(100, 107)]


@pytest.mark.parametrize("stop", ["all", "first"])
@pytest.mark.parametrize("equal", ["drop", "wrap", "pad"])
@pytest.mark.parametrize("workers", [0, 2])
def test_all_workers_draw_from_the_same_sources_in_equal_steps(rings, stop, equal, workers):
    drawn = []
    for rank in range(2):
        dataset = mixed(rings, rank, 2, equal, stop)
        for worker in range(max(workers, 1)):
            # What a worker of a DataLoader does, without the process.
            info = (
                None
                if workers == 0
                else torch.utils.data._utils.worker.WorkerInfo(
                    id=worker, num_workers=workers, seed=worker, dataset=dataset
                )
            )
            torch.utils.data._utils.worker._worker_info = info
            try:
                mixture = iter(dataset)
                length = len(dataset)
                drawn.append([mixture.last for _ in mixture])
                assert len(drawn[-1]) == length
            finally:
                torch.utils.data._utils.worker._worker_info = None
    assert all(each == drawn[0] for each in drawn) and drawn[0]


def test_batches_hold_samples_of_both_rings(rings):
    loader = DataLoader(mixed(rings, equal="drop"), 6, num_workers=2, collate_fn=collate)
    batches = [batch["data"][:, 0].tolist() for batch in loader]
    assert len(loader) == len(batches) and sum(map(len, batches)) == 16
    assert any(min(batch) < 100 <= max(batch) for batch in batches)


@pytest.mark.parametrize("steps", [0, 1, 5, 17, 18])
def test_resumed_mixture_continues_with_the_next_item(rings, steps):
    options = {"shuffle": True, "equal": "wrap"}
    whole = [int(sample["data"][0]) for sample in mixed(rings, **options)]
    first = iter(mixed(rings, **options))
    for _ in range(steps):
        next(first)
    state = json.loads(json.dumps(first.state_dict()))
    resumed = iter(mixed(rings, **options))
    resumed.load_state_dict(state)
    assert [int(sample["data"][0]) for sample in resumed] == whole[steps:]


def test_source_of_weight_0_is_not_opened(rings, config, tmp_path):
    missing = ringreel.Ring(config(RING=str(tmp_path / "missing")))
    dataset = MixtureStream([RingStream(rings[0], epochs=1), RingStream(missing, epochs=1)], [1, 0])
    mixture = iter(dataset)
    assert mixture.state_dict()["given"] == [0, 0]
    assert len(dataset) == 11 == len(list(mixture))


def test_shares_of_other_sources_are_mixed(rings):
    sources = [ringreel.Shard(range(10)), ringreel.StreamLoader(range(100, 110), 2, collate=sum)]
    found = list(loader_of(MixtureStream(sources), 2))
    assert len(found) == 10 + 6 == len(loader_of(MixtureStream(sources), 2))
    assert {n for n in found if n < 100} == set(range(10))


def test_sources_that_are_not_shared_are_refused(rings):
    for source in ([1, 2], rings[0].stream(), ringreel.Mixture([[1]])):
        with pytest.raises(TypeError, match=r"source 1 of a MixtureStream: .* A ringreel.Shard shares"):
            MixtureStream([ringreel.Shard([1]), source])
    with pytest.raises(TypeError, match=r"ringreel\.torch\.MixtureStream"):
        ringreel.Mixture([RingStream(rings[0])])
    with pytest.raises(ValueError, match="stop"):
        MixtureStream([ringreel.Shard([1])], stop="last")
    with pytest.raises(ValueError, match="weights"):
        MixtureStream([ringreel.Shard([1])], [1, 2])
    with pytest.raises(ValueError, match="at least one"):
        MixtureStream([])


def test_unknown_length_names_the_source(rings):
    loader = DataLoader(MixtureStream([RingStream(rings[0], epochs=1), RingStream(rings[1])]))
    with pytest.raises(TypeError, match="source 1 has none: .*epochs=None"):
        len(loader)
    assert bool(loader.dataset)


def test_mixture_can_be_pickled(rings):
    dataset = pickle.loads(pickle.dumps(mixed(rings)))
    assert sorted(numbers_of(dataset, 0)) == [*range(11), *range(100, 107)]


def test_loader_of_datasets_that_share_their_items_loses_none(rings):
    for source in (RingStream(rings[0], epochs=1, equal=None), mixed(rings)):
        whole = sorted(int(sample["data"].flatten()[0]) for sample in source)
        loader = ringreel.StreamLoader(source, 1, epochs=1)
        batches = DataLoader(loader, None, num_workers=2)
        assert sorted(int(batch[0]["data"].flatten()[0]) for batch in batches) == whole
        with pytest.raises(TypeError, match="it shares its items itself"):
            ringreel.Shard(source)


def test_closed_mixture_closes_its_streams(rings):
    mixture = iter(mixed(rings))
    next(mixture)
    assert len(rings[0].status()["readers"]) + len(rings[1].status()["readers"]) > 0
    mixture.close()
    assert rings[0].status()["readers"] == rings[1].status()["readers"] == []


def test_mixture_of_a_mixture_stream_is_refused(rings):
    with pytest.raises(TypeError, match="is a MixtureStream, which has no position"):
        ringreel.Mixture([mixed(rings)])
