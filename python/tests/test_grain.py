"""ringreel.grain: one generation as a data source, alone and under Grain itself."""

import concurrent.futures
import itertools
import json
import multiprocessing
import os
import pickle
import shutil
import subprocess
import sys

import numpy as np
import pytest
from conftest import add, memory_of, numbered, numbers, segment_files

import ringreel
from ringreel.grain import RingSource

COUNT = 23


def all_of(source):
    """Returns the numbers of a source's items."""
    return numbers(source[i] for i in range(len(source)))


def move_on(ring, times=1):
    """Writes further generations with other samples."""
    for n in range(times):
        add(ring, numbered(len(ring.dataset()), start=1000 * (n + 1)))


# The source without Grain.


def test_module_imports_neither_grain_nor_jax_nor_torch():
    code = "import sys, ringreel.grain; sys.exit(bool({'grain', 'jax', 'torch'} & set(sys.modules)))"
    path = os.pathsep.join(sys.path)
    assert subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}).returncode == 0


def test_item_is_a_dict_of_private_writable_arrays(filled):
    sample = {"data": np.arange(50_000.0), "label": np.array(7, np.int8), "none": np.zeros((0, 2)), "raw": b"abc\0"}
    source = RingSource(filled([sample] * 3, SEGMENT_SAMPLES=3), timeout=10)
    assert len(source) == 3 and source.generation == 1
    item, held = source[1], source[1]
    assert type(item) is dict and list(item) == list(sample) and item["raw"] == b"abc\0"
    for name in ("data", "label", "none"):
        value, want = item[name], sample[name]
        assert type(value) is np.ndarray and value.flags.writeable and value.flags.aligned
        assert value.dtype == want.dtype and value.shape == want.shape and (value == want).all()
        if value.size:
            assert memory_of(value.ctypes.data) == "rw-p"
        value[...] = 9
    for other in (held, source[0], source[1]):
        assert all((other[name] == sample[name]).all() for name in ("data", "label"))


def test_positions_are_those_of_the_generation(filled):
    source = RingSource(filled(numbered(5)))
    assert all_of(source) == [0, 1, 2, 3, 4]
    assert numbers([source[-1], source[np.int64(2)]]) == [4, 2]
    assert numbers(source._getitems([3, 0, 3])) == [3, 0, 3] and source._getitems([]) == []
    for index in (5, -6):
        with pytest.raises(IndexError, match="generation 1 has 5"):
            source[index]
    with pytest.raises(TypeError):
        source[1:2]


def test_parts_are_the_requested_ones(filled):
    ring = filled([{"a": 1, "b": 2, "c": 3}])
    assert list(RingSource(ring)[0]) == ["a", "b", "c"]
    assert list(RingSource(ring, parts=["c", "a", "c"])[0]) == ["c", "a"]
    assert list(RingSource(ring, parts="b")[0]) == ["b"]
    with pytest.raises(ValueError, match="no part 'd'; the parts of .*ring are a, b, c"):
        RingSource(ring, parts=["a", "d"])
    with pytest.raises(ValueError, match="parts: expected at least one name"):
        RingSource(ring, parts=[])


def test_source_accepts_every_form_of_configuration(filled, config, tmp_path):
    ring = filled(numbered(4))
    path = tmp_path / "config.yaml"
    path.write_text(json.dumps(config()))
    assert {repr(RingSource(given)) for given in (ring, config(), path, str(path))} == {repr(RingSource(ring))}


def test_source_waits_for_the_first_generation_until_its_timeout(config):
    with pytest.raises(ringreel.RingTimeoutError, match="a ring at"):
        RingSource(config(), timeout=0.1)


def test_a_source_stays_with_its_generation(filled):
    ring = filled(numbered(4), KEEP=5)
    source = RingSource(ring)
    move_on(ring, 2)
    assert all_of(source) == [0, 1, 2, 3] and source.generation == 1
    fresh = RingSource(ring)
    assert all_of(fresh) == [2000, 2001, 2002, 2003] and fresh.generation == 3
    older = RingSource(ring, generation=2)
    assert all_of(older) == [1000, 1001, 1002, 1003] and older.generation == 2


@pytest.mark.parametrize("generation", [-1, 0, 2, 99])
def test_missing_generation_is_refused(filled, generation):
    with pytest.raises(ValueError, match=f"has no generation {generation}: the newest is 1, the first is 1"):
        RingSource(filled(numbered(4)), generation=generation)


def test_pickled_source_keeps_its_generation(filled):
    ring = filled(numbered(4), KEEP=5)
    source = RingSource(ring, parts=["data"])
    unused, used = pickle.dumps(source), None
    all_of(source)
    used = pickle.dumps(source)
    move_on(ring)
    for text in (unused, used):
        again = pickle.loads(text)
        assert all_of(again) == [0, 1, 2, 3] and len(again) == 4
        assert repr(again) == repr(source)


def test_reclaimed_generation_error_says_what_to_do(filled):
    ring = filled(numbered(4), KEEP=0)
    source = RingSource(ring)
    text = pickle.dumps(source)
    move_on(ring)
    for each in (source, pickle.loads(text), RingSource(ring, generation=1)):
        assert len(each) == 4
        with pytest.raises(ringreel.ReclaimedError, match=r"generation 1 of .*ring was reclaimed.* raise KEEP"):
            each[0]


def test_generation_without_a_manifest_is_not_replaced_by_the_newest(filled):
    ring = filled(numbered(4), KEEP=5)
    text = pickle.dumps(RingSource(ring))
    move_on(ring)
    os.remove(os.path.join(ring.path, "manifests", "1"))
    again = pickle.loads(text)
    for _ in range(2):
        with pytest.raises(ringreel.ReclaimedError, match="generation 1 of .* is missing, although KEEP covers it"):
            again[0]
    with pytest.raises(ringreel.ReclaimedError, match="generation 1 of .* is missing, although KEEP covers it"):
        RingSource(ring, generation=1)


def test_other_ring_at_the_same_path_is_refused(filled):
    ring = filled(numbered(4))
    source = RingSource(ring)
    text = pickle.dumps(source)
    shutil.rmtree(ring.path)
    add(ring, numbered(4, start=50))
    again = pickle.loads(text)
    for _ in range(2):
        with pytest.raises(ringreel.RingMismatchError, match="but this source reads"):
            again[0]
    assert repr(RingSource(ring)) != repr(source)


def test_repr_identifies_the_samples(filled, config, tmp_path):
    ring = filled([{"data": n, "label": n} for n in range(4)], KEEP=5)
    source = RingSource(ring)
    text = repr(source)
    all_of(source)
    assert text == repr(source) == repr(RingSource(ring, timeout=3)) == repr(RingSource(ring, ["data", "label"]))
    assert text != repr(RingSource(ring, ["data"])) and text != repr(RingSource(ring, ["label", "data"]))
    assert "generation=1" in text and "0x" not in text and str(tmp_path) not in text
    elsewhere = tmp_path / "elsewhere"
    os.rename(ring.path, elsewhere)
    assert repr(RingSource({"RING": str(elsewhere)})) == text
    os.rename(elsewhere, ring.path)
    add(ring, [{"data": n, "label": n} for n in range(4)])
    assert repr(RingSource(ring, generation=1)) == text != repr(RingSource(ring))


def test_threads_that_open_a_source_together_read_one_generation(filled):
    ring = filled(numbered(8), KEEP=5)
    text = pickle.dumps(RingSource(ring))
    move_on(ring)
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        for _ in range(5):
            source = pickle.loads(text)
            assert numbers(pool.map(source.__getitem__, list(range(8)) * 8)) == list(range(8)) * 8


def read(source, queue):
    """Runs in a child process."""
    queue.put((all_of(source), repr(source), os.getpid()))


# Python 3.12 and later warn about a fork in a process with threads, which these tests do on purpose.
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_child_process_reads_the_same_generation(filled, method):
    ring = filled(numbered(6), KEEP=5)
    source = RingSource(ring)
    all_of(source)
    move_on(ring)
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    child = context.Process(target=read, args=(source, queue))
    child.start()
    found = queue.get(timeout=60)
    child.join(60)
    assert found[:2] == (list(range(6)), repr(source)) and found[2] != os.getpid() and child.exitcode == 0


def test_names_of_the_module_are_found_without_grain():
    assert {"RingIterDataset", "RingSource"} <= set(dir(ringreel.grain))
    with pytest.raises(AttributeError, match="module 'ringreel.grain' has no attribute 'RingStream'"):
        ringreel.grain.RingStream  # noqa: B018


# Under Grain.


@pytest.fixture
def ring(filled):
    return filled(numbered(COUNT), KEEP=5)


def loader(grain, source, workers=0, shard=None, operations=(), seed=3):
    """Returns Grain's DataLoader over a source, shuffled."""
    shard = shard or grain.sharding.NoSharding()
    sampler = grain.samplers.IndexSampler(len(source), shard_options=shard, shuffle=True, num_epochs=1, seed=seed)
    return grain.DataLoader(data_source=source, sampler=sampler, operations=list(operations), worker_count=workers)


def pipeline(grain, source, workers=0):
    """Returns a shuffled MapDataset in batches, read ahead by threads or processes."""
    options = grain.ReadOptions(num_threads=4, prefetch_buffer_size=16)
    dataset = grain.MapDataset.source(source).shuffle(seed=3).batch(4).to_iter_dataset(options)
    if workers:
        dataset = dataset.mp_prefetch(grain.multiprocessing.MultiprocessingOptions(num_workers=workers))
    return dataset


def rows(batches):
    """Returns the numbers of the samples, batch by batch."""
    return [batch["data"][:, 0].tolist() for batch in batches]


def test_source_implements_grains_protocol(grain, ring):
    source = RingSource(ring)
    assert isinstance(source, grain.sources.RandomAccessDataSource)
    dataset = grain.MapDataset.source(source)
    assert len(dataset) == COUNT and numbers([dataset[0], dataset[COUNT + 2]]) == [0, 2]
    assert numbers(dataset[2:5]) == [2, 3, 4]


def test_grain_requests_several_items_by_getitems(grain, ring, monkeypatch):
    asked = []
    whole = RingSource._getitems
    monkeypatch.setattr(RingSource, "_getitems", lambda self, these: asked.append(list(these)) or whole(self, these))
    dataset = grain.MapDataset.source(RingSource(ring))
    if not hasattr(dataset, "_getitems"):
        pytest.skip("this Grain asks for one item at a time")
    assert numbers(dataset._getitems([5, 1, COUNT])) == [5, 1, 0] and asked == [[5, 1, 0]]


def test_data_loader_sequence_is_independent_of_the_worker_count(grain, ring):
    source = RingSource(ring)
    first = numbers(loader(grain, source))
    assert sorted(first) == list(range(COUNT)) != first
    assert numbers(loader(grain, source, seed=4)) != first
    assert numbers(loader(grain, RingSource(ring), workers=1)) == first
    move_on(ring)
    batch = [grain.transforms.Batch(1)]
    assert numbers(loader(grain, source, workers=2, operations=batch)) == first


def test_map_dataset_batches_are_independent_of_the_worker_count(grain, ring):
    source = RingSource(ring)
    first = rows(pipeline(grain, source))
    assert [len(row) for row in first] == [4] * 5 + [3] and sorted(itertools.chain(*first)) == list(range(COUNT))
    assert rows(grain.MapDataset.source(source).shuffle(seed=3).batch(4)) == first
    move_on(ring)
    assert rows(pipeline(grain, source, workers=2)) == first


@pytest.mark.parametrize("workers", [0, 2])
def test_data_loader_resumes_from_a_checkpoint(grain, ring, workers):
    source = RingSource(ring)
    whole = numbers(loader(grain, source))
    iterator = iter(loader(grain, source, workers))
    begun = numbers([next(iterator) for _ in range(7)])
    state, generation = iterator.get_state(), source.generation
    assert repr(source) in json.loads(state)["data_source"]
    move_on(ring)
    restored = iter(loader(grain, RingSource(ring, generation=generation), workers))
    restored.set_state(state)
    assert begun + numbers(restored) == whole


def test_a_data_loader_refuses_the_state_of_another_generation(grain, ring):
    iterator = iter(loader(grain, RingSource(ring)))
    next(iterator)
    move_on(ring)
    other = iter(loader(grain, RingSource(ring)))
    with pytest.raises(ValueError, match=r"(?s)DataSource in checkpoint does not match.*generation=1.*generation=2"):
        other.set_state(iterator.get_state())


def test_map_dataset_resumes_from_a_checkpoint(grain, ring):
    source = RingSource(ring)
    whole = rows(pipeline(grain, source))
    iterator = iter(pipeline(grain, source))
    begun = rows([next(iterator) for _ in range(2)])
    state = iterator.get_state()
    move_on(ring)
    restored = iter(pipeline(grain, RingSource(ring, generation=1)))
    restored.set_state(state)
    assert begun + rows(restored) == whole


def test_shards_are_disjoint_and_complete(grain, ring):
    source = RingSource(ring)
    shards = [
        numbers(loader(grain, source, shard=grain.sharding.ShardOptions(shard_index=n, shard_count=3)))
        for n in range(3)
    ]
    # IndexSampler gives every shard the same number of samples, and leaves the surplus out.
    assert [len(shard) for shard in shards] == [COUNT // 3] * 3 and len(set(itertools.chain(*shards))) == COUNT // 3 * 3
    slices = [numbers(grain.MapDataset.source(source).shuffle(seed=3)[n::3]) for n in range(3)]
    assert sorted(itertools.chain(*slices)) == list(range(COUNT))


def test_transformations_can_change_items_in_place(grain, ring):
    def double(item):
        item["data"] *= 2
        return item

    dataset = grain.MapDataset.source(RingSource(ring)).map(double)
    for _ in range(2):
        assert numbers(dataset) == list(range(0, 2 * COUNT, 2))


@pytest.mark.parametrize("workers", [0, 2])
def test_reclaimed_generation_stops_grain(grain, filled, workers):
    ring = filled(numbered(COUNT), KEEP=0)
    source = RingSource(ring)
    move_on(ring)
    with pytest.raises(ringreel.ReclaimedError, match=r"generation 1 of .* was reclaimed.* raise KEEP"):
        numbers(loader(grain, source, workers))


def test_damaged_sample_stops_grain_and_is_named(grain, filled):
    ring = filled(numbered(COUNT), SEGMENT_SAMPLES=1)
    path = segment_files(ring)[5]
    os.remove(path)
    with pytest.raises(ringreel.DamagedSampleError) as caught:
        numbers(loader(grain, RingSource(ring)))
    assert (caught.value.path, caught.value.position) == (path, 5)
