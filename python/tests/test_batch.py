"""Batches: many samples in one call."""

import gc
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ringreel


def ring_in(place: Path, **more: Any) -> ringreel.Ring:
    config = {"RING": str(place / "b.ring"), "SWAP_CAP": 50, "SEGMENT_SAMPLES": 20, "SAMPLE": ["data", "label"]}
    return ringreel.Ring({**config, **more})


@pytest.fixture
def filled(tmp_path: Path) -> ringreel.Ring:
    ring = ring_in(tmp_path)
    data = np.arange(50 * 6, dtype=np.float32).reshape(50, 2, 3)
    with ring.generator() as generator:
        ids = list(generator.write_batch({"label": np.arange(50, dtype=">i2"), "data": data}))
        assert len(ids) == 40  # two segments are full
        assert list(generator.flush()) != []
        generator.finish(promote=True)
    return ring


def test_batch_equals_its_samples_read_one_by_one(filled: ringreel.Ring) -> None:
    samples = filled.dataset()
    ranges = [slice(None), slice(5, 5), range(50), range(3, 30), range(40, 3, -7)]
    for chosen in [*ranges, [0, -1, 7, 7], np.array([5, 2])]:
        batch = samples.batch(chosen)
        indices = range(50)[chosen] if isinstance(chosen, slice) else list(chosen)
        one_by_one = [samples[int(i)] for i in indices]
        assert list(batch.sample_ids) == [sample.sample_id for sample in one_by_one]
        assert list(batch) == (["data", "label"] if one_by_one else [])
        for name in batch:
            np.testing.assert_array_equal(batch[name], np.stack([sample[name] for sample in one_by_one]))
            assert batch[name].dtype == one_by_one[0][name].dtype
    everything = samples.batch(slice(None))
    assert sorted(everything["label"].tolist()) == list(range(50))
    assert everything.generation == samples.generation


def test_batches_have_private_memory(filled: ringreel.Ring) -> None:
    samples = filled.dataset()
    batch, again = samples.batch(range(10)), samples.batch(range(10))
    batch["data"][:] = -1
    assert again["data"].min() >= 0
    assert samples[0]["data"].min() >= 0
    assert samples.batch(range(10))["data"].min() >= 0


def large(tmp_path: Path, kib: int) -> ringreel.Dataset:
    """Batches of 4 numbered samples."""
    ring = ring_in(tmp_path, SAMPLE=["data"], SWAP_CAP=4, SEGMENT_SAMPLES=4)
    with ring.generator() as generator:
        generator.write_batch((np.arange(4, dtype=np.uint8)[:, None] * np.ones((1, kib << 10), np.uint8),))
        generator.finish(promote=True)
    return ring.dataset()


def address(batch: ringreel.Batch) -> int:
    return batch["data"].__array_interface__["data"][0]


def test_memory_of_a_released_batch_is_reused(tmp_path: Path) -> None:
    samples = large(tmp_path, 1000)
    batch = samples.batch(range(4))
    first, row = address(batch), batch["data"][2]
    batch["data"][:] = 7
    del batch
    other = samples.batch([3, 2, 1, 0])
    assert address(other) != first and row.tolist() == [7] * len(row), "a row of it is still held"
    del row
    gc.collect()
    again = samples.batch([0, 0, 2])
    assert address(again) == first and [set(row.tolist()) for row in again["data"]] == [{0}, {0}, {2}]
    assert [row[0] for row in other["data"]] == [3, 2, 1, 0]


def resident() -> int:
    """Returns the private memory of this process, in bytes."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("RssAnon"))


def test_free_memory_of_64_mib_is_kept(tmp_path: Path) -> None:
    samples = large(tmp_path, 10_000)  # so large that the allocator does not keep it either
    batches = [samples.batch(range(4)) for _ in range(6)]
    held = resident()
    del batches
    gc.collect()
    assert held - resident() > 160 << 20


def test_bytes_parts_are_lists(tmp_path: Path) -> None:
    ring = ring_in(tmp_path, SAMPLE=["text"], SWAP_CAP=7)
    with ring.generator() as generator:
        generator.write_batch({"text": [b"one", bytearray(b"two"), memoryview(b"six")]})
        generator.write_batch(([b"", b""],))
        generator.write((b"longer",))
        generator.write((b"",))
        generator.finish(promote=True)
    samples = ring.dataset()
    assert samples.batch(range(3))["text"] == [b"one", b"two", b"six"]
    assert samples.batch(slice(None))["text"] == [b"one", b"two", b"six", b"", b"", b"longer", b""]


@pytest.mark.parametrize(
    ("samples", "says"),
    [
        ({"data": np.zeros((3, 2)), "label": np.zeros(4)}, "different numbers"),
        ({"data": np.zeros((3, 2))}, "label"),
        ({"data": np.zeros((3, 2)), "label": np.float32(1)}, "an array whose first axis counts the samples"),
        ({"data": np.zeros((3, 2)), "label": b"abc"}, "a list with one bytes object per sample"),
        ({"data": np.zeros((2, 2)), "label": [b"abc", b"d"]}, "bytes of one length"),
        (np.zeros((3, 2)), "dict or a tuple"),
    ],
)
def test_mismatched_batch_is_refused(tmp_path: Path, samples: Any, says: str) -> None:
    with ring_in(tmp_path).generator() as generator:
        with pytest.raises(ringreel.SampleError, match=says):
            generator.write_batch(samples)
        assert generator.summary.finished == 0


def test_indices_beyond_the_end_and_mixed_shapes_are_errors(filled: ringreel.Ring, tmp_path: Path) -> None:
    samples = filled.dataset()
    for beyond in [[0, 50], [-51], range(40, 51)]:
        with pytest.raises(IndexError, match="generation 1 has 50"):
            samples.batch(beyond)
    other = ring_in(tmp_path, RING=str(tmp_path / "o.ring"), SAMPLE=["data"], SWAP_CAP=2)
    with other.generator() as generator:
        generator.write((np.zeros(2),))
        generator.write((np.zeros(3),))
        generator.finish(promote=True)
    with pytest.raises(ringreel.SampleError, match="one by one"):
        other.dataset().batch([0, 1])


def test_views_are_written_as_their_bytes(tmp_path: Path) -> None:
    ring = ring_in(tmp_path, SAMPLE=["text"], SWAP_CAP=2)
    views = [memoryview(np.arange(n, dtype=np.uint8).reshape(2, -1)) for n in (6, 10)]
    with ring.generator() as generator:
        with pytest.raises(ringreel.SampleError, match="bytes of one length"):
            generator.write_batch({"text": views})
        with pytest.raises(ringreel.SampleError, match="only bytes"):
            generator.write_batch({"text": [b"12345678", "12345678"]})
        generator.write_batch({"text": [views[0], bytes(6)]})
        assert generator.written == 2
        generator.finish(promote=True)
    assert ring.dataset().batch(range(2))["text"] == [bytes(range(6)), bytes(6)]


def test_batch_can_be_pickled(filled: ringreel.Ring) -> None:
    batch = filled.dataset().batch(iter([3, 1, 2]))
    again = pickle.loads(pickle.dumps(batch))
    assert (again.generation, list(again.sample_ids)) == (batch.generation, list(batch.sample_ids))
    np.testing.assert_array_equal(again["data"], batch["data"])


def test_ids_are_a_sequence(filled: ringreel.Ring) -> None:
    ids = filled.dataset().batch(range(4)).sample_ids
    listed = list(ids)
    assert (len(ids), ids[0], ids[-1]) == (4, listed[0], listed[3])
    assert (ids[1:3], ids[::-2]) == (listed[1:3], listed[::-2])
    for beyond in (4, -5):
        with pytest.raises(IndexError):
            ids[beyond]
