"""A sample: a mapping of read-only arrays."""

import ctypes
import gc
import os
import pickle
import signal
import sys
import types
from collections.abc import Mapping

import numpy as np
import pytest
from conftest import memory_of

import ringreel

LARGE = 200_000  # size in bytes above which a sample is mapped
MAGIC = np.full(LARGE // 4, 0xCED7230A, "<u4")  # escaped in the file, so it is copied


def everything():
    """Returns a sample with a part of each kind of storage."""
    return {
        "large": np.arange(LARGE, dtype=np.uint8),
        "inline": np.arange(5, dtype=np.int16),
        "scalar": np.array(2.5),
        "empty": np.zeros((0, 3), np.float32),
        "escaped": MAGIC,
        "packed": np.zeros(LARGE, np.uint8),
        "raw": b"bytes" * 10,
    }


READS = ["auto", "mmap", "pread"]


@pytest.fixture(params=READS)
def dataset(request, filled):
    """Two samples in one file, for each value of READ."""
    ring = filled([everything()] * 2, SEGMENT_SAMPLES=2, COMPRESS={"packed": 3}, READ=request.param)
    return ring.dataset()


def test_a_sample_is_a_mapping_in_the_order_of_its_parts(dataset):
    sample = dataset[0]
    assert isinstance(sample, Mapping) and len(sample) == 7
    assert list(sample) == list(everything()) == list(sample.keys())
    assert "large" in sample and "other" not in sample and sample.get("other") is None
    assert all(type(value) is np.ndarray for name, value in sample.items() if name != "raw")
    assert sample["raw"] == b"bytes" * 10
    assert sample.dtypes["inline"] == "i16" and sample.dtypes["raw"] == "bytes"
    with pytest.raises(KeyError, match="no part 'other'; the parts are large, inline"):
        sample["other"]


def test_file_of_a_part_is_not_opened_through_a_link(filled, tmp_path):
    ring = filled([everything()], READ="mmap")
    part = ring.dataset()[0]._part("large")
    directory = os.path.join(ring.path, "read.1")

    def begin():
        descriptor = part.open()
        try:
            return os.pread(descriptor, 4, part.place[1])
        finally:
            os.close(descriptor)

    assert begin() == bytes(range(4))
    os.rename(directory, tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", directory)
    with pytest.raises(OSError, match="link"):
        begin()
    with pytest.raises(ValueError, match="no file"):
        ringreel._ringreel.Part("u8", [1], b"x").open()


def test_a_sample_says_where_it_comes_from(dataset):
    first, second = dataset
    assert (first.generation, first.position, second.position) == (1, 0, 1)
    assert first.sample_id.endswith(".0") and second.sample_id.endswith(".1")
    assert first.meta["number"] == 0 and second.meta["number"] == 1 and first.meta["pid"] > 0
    assert first.sample_id in repr(first) and "large: u8[200000]" in repr(first)
    assert first == first and first != dataset[0] and len({first, second}) == 2


def test_arrays_are_read_only_for_good(dataset):
    for name, array in dataset[0].items():
        if name == "raw":
            continue
        assert not array.flags.writeable and array.flags.aligned and array.flags.c_contiguous
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.flags.writeable = True
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
        with pytest.raises((TypeError, ValueError, BufferError)):
            ctypes.c_char.from_buffer(array)


def test_arrays_outlive_their_sample(dataset):
    array = dataset[0]["large"]
    again = dataset[0]["inline"]
    gc.collect()
    assert array.tobytes() == everything()["large"].tobytes() and again.tolist() == [0, 1, 2, 3, 4]


def test_large_part_is_a_map_if_maps_are_requested(filled):
    ring = filled([everything()] * 2, READ="mmap", SEGMENT_SAMPLES=2)
    dataset = ring.dataset()
    first, second = dataset[0]["large"], dataset[1]["large"]
    assert memory_of(first.ctypes.data) == memory_of(second.ctypes.data) == "r--s"
    with open("/proc/self/maps") as maps:
        assert len([line for line in maps if ring.path in line]) == 1, "one map for the segment"
    assert first.base is not None and dataset[0]["large"].ctypes.data == first.ctypes.data


def test_a_write_into_an_array_ends_the_process_not_the_file(filled, script):
    ring = filled([everything()], READ="mmap")
    process = script(
        """
        import ctypes, resource, sys, ringreel
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        array = ringreel.Ring({"RING": sys.argv[1], "READ": "mmap"}).dataset()[0]["large"]
        ctypes.memset(array.ctypes.data, 0xEE, 1)
        """,
        ring.path,
    )
    assert process.end() == -signal.SIGSEGV, process.said
    assert ring.dataset()[0]["large"].tobytes() == everything()["large"].tobytes()


def written(part):
    """Returns writable memory in which every byte was overwritten."""
    memory = np.frombuffer(part.writable(), np.uint8)
    if memory.size:
        assert memory_of(memory.ctypes.data) == "rw-p"
        memory[:] = 0xEE
    return memory


def test_write_into_writable_memory_changes_no_other_sample(dataset):
    for each in (dataset, ringreel._dataset.Dataset(dataset._config, own=True)):
        for _ in range(2):
            sample, held = each[0], each[0]
            lent = [written(part) for part in sample._parts.values()]
            for other in (held, each[0], each[1]):
                for name, value in everything().items():
                    assert bytes(other._parts[name]) == (value if name == "raw" else value.tobytes()), name
            del sample
            assert all((memory == 0xEE).all() for memory in lent)


def test_a_sample_can_be_pickled(dataset):
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        sample = dataset[1]
        again = pickle.loads(pickle.dumps(sample, protocol))
        assert again.meta == sample.meta and again.sample_id == sample.sample_id and again.dtypes == sample.dtypes
        assert (again.generation, again.position) == (1, 1)
        for name, value in sample.items():
            if name == "raw":
                assert again[name] == value
                continue
            assert again[name].dtype == value.dtype and again[name].tobytes() == value.tobytes()
            assert not again[name].flags.writeable
            with pytest.raises(ValueError, match="WRITEABLE"):
                again[name].flags.writeable = True
            if value.size:
                ctypes.memset(again[name].ctypes.data, 1, 1)  # private memory, so the write has no effect elsewhere


def test_numpy_imports_a_part_as_a_writable_copy(dataset):
    sample = dataset[0]
    part = sample.dlpack("large")
    assert (part.name, part.dtype, part.shape) == ("large", "u8", (LARGE,)) and "large" in repr(part)
    copy = np.asarray(part)
    copy[:] = 7
    assert np.asarray(part, dtype=np.float32).dtype == np.float32
    assert sample["large"].tobytes() == everything()["large"].tobytes()
    with pytest.raises(ValueError, match="copy"):
        part.__array__(copy=False)
    with pytest.raises(KeyError, match="other"):
        sample.dlpack("other")


def test_dlpack_exports_copies_on_every_numpy(dataset):
    sample = dataset[0]
    for name in ("large", "inline", "scalar", "empty", "escaped"):
        part = sample.dlpack(name)
        assert part.__dlpack_device__() == (1, 0)
        found = np.from_dlpack(part)
        assert found.dtype == sample[name].dtype and found.tobytes() == sample[name].tobytes()
        if found.size:
            assert not np.shares_memory(found, sample[name])
            assert found.flags.writeable or np.lib.NumpyVersion(np.__version__) < "2.1.0"
            ctypes.memset(found.ctypes.data, 9, found.nbytes)
            assert sample[name].tobytes() == everything()[name].tobytes()
    part.__dlpack__(stream=None, max_version=(1, 0), dl_device=(1, 0), copy=True)
    with pytest.raises(BufferError, match="CPU"):
        part.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError, match="copy"):
        part.__dlpack__(copy=False)


def test_type_that_dlpack_lacks_is_a_buffer_error(filled):
    sample = filled([{"data": np.zeros(3, "M8[s]")}]).dataset()[0]
    with pytest.raises(BufferError, match="part 'data' is numpy:<M8"):
        sample.dlpack("data").__dlpack__()


def test_bfloat16_is_exported_as_bfloat16_only(filled, monkeypatch):
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed: bfloat16 arrays are NOT tested")
    part = filled([{"data": np.ones(3, ml_dtypes.bfloat16)}]).dataset()[0].dlpack("data")
    monkeypatch.setitem(sys.modules, "torch", None)  # as if it was not installed
    with pytest.raises(BufferError, match="part 'data' is bf16"):
        part.__dlpack__()


def test_torch_during_its_import_has_no_tensors(filled, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))
    np.testing.assert_array_equal(filled([{"data": np.arange(3)}]).dataset()[0]["data"], np.arange(3))


def test_users_meta_overrides_the_rings(filled):
    meta = filled([({"data": 1}, {"pid": "mine"})]).dataset()[0].meta
    assert meta["pid"] == "mine" and {"generator", "host", "number", "time"} <= set(meta)


def test_part_of_a_later_version_fails_alone():
    Part = ringreel._ringreel.Part
    why = "part 'x' has dtype code 0x7e, unknown to this version: only this part cannot be read"
    sample = ringreel.Sample(
        {"x": Part("unknown:0x7e", (2,), b"", why), "y": Part("u8", (2,), b"\x01\x02")}, {}, "id.0", 1, 0
    )
    for each in (sample, pickle.loads(pickle.dumps(sample)), pickle.loads(pickle.dumps(sample, 5))):
        assert each["y"].tolist() == [1, 2]
        assert each.dtypes == {"x": "unknown:0x7e", "y": "u8"}
        for read in (lambda s: s["x"], lambda s: s.dlpack("x"), lambda s: s.torch("x")):
            with pytest.raises((ringreel.RingreelError, ImportError), match="unknown to this version|torch"):
                read(each)
