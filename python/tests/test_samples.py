"""A sample: a mapping of read-only arrays."""

import ctypes
import gc
import glob
import os
import pickle
import signal
import sys
import types
from collections.abc import Mapping

import numpy as np
import pytest
from conftest import add, memory_of

import ringreel

LARGE = 200_000  # bytes beyond which a sample is mapped, not read
MAGIC = np.full(LARGE // 4, 0xCED7230A, "<u4")  # escaped in the file, so that it is copied


def everything():
    """A sample with a part of each kind that is stored in a way of its own."""
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
    """Two samples in one file, for each way of reading."""
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


def test_the_file_of_a_part_is_opened_by_no_link(filled, tmp_path):
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


def test_large_part_lies_in_a_map_where_maps_are_asked_for(filled):
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
    """Memory that is lent for writing, in which every byte was written."""
    memory = np.frombuffer(part.writable(), np.uint8)
    if memory.size:
        assert memory_of(memory.ctypes.data) == "rw-p"
        memory[:] = 0xEE
    return memory


def test_a_write_into_memory_lent_for_it_changes_no_other_sample(dataset):
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
                ctypes.memset(again[name].ctypes.data, 1, 1)  # memory of its own: nothing happens


def test_numpy_imports_a_part_as_a_copy_that_may_be_changed(dataset):
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


def test_what_dlpack_cannot_express_is_a_buffer_error(filled):
    sample = filled([{"data": np.zeros(3, "M8[s]")}]).dataset()[0]
    with pytest.raises(BufferError, match="part 'data' is numpy:<M8"):
        sample.dlpack("data").__dlpack__()


def test_bfloat16_is_exported_as_bfloat16_or_not_at_all(filled, monkeypatch):
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed: bfloat16 arrays are NOT tested")
    part = filled([{"data": np.ones(3, ml_dtypes.bfloat16)}]).dataset()[0].dlpack("data")
    monkeypatch.setitem(sys.modules, "torch", None)  # as if it were not installed
    with pytest.raises(BufferError, match="part 'data' is bf16"):
        part.__dlpack__()


def test_a_torch_that_another_thread_is_importing_just_now_has_no_tensors(filled, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))
    np.testing.assert_array_equal(filled([{"data": np.arange(3)}]).dataset()[0]["data"], np.arange(3))


META = {
    "none": None,
    "yes": True,
    "no": False,
    "ints": [0, -1, 23, 24, 255, 256, 2**32, 2**63, 2**64 - 1, -(2**64)],
    "float": 0.1,
    "infinite": float("inf"),
    "text": "Größe \N{GREEK SMALL LETTER ALPHA}",
    "bytes": b"\x00\xff",
    "nested": {"list": [[], {}, [None, {"deep": [1.5]}]], "": 0},
}


def test_meta_comes_back(filled):
    meta = filled([({"data": 1}, META)]).dataset()[0].meta
    assert {key: meta[key] for key in META} == META
    assert all(type(meta[key]) is type(META[key]) for key in META)


def test_numpy_values_tuples_and_bytearrays_in_meta_become_plain_ones(filled):
    given = {
        "i": np.int8(-3),
        "f": np.float32(0.5),
        "b": np.bool_(True),
        "s": np.str_("x"),
        "array": np.arange(6).reshape(2, 3),
        "tuple": (1, (2,)),
        "bytearray": bytearray(b"ab"),
        "big": np.array([1.5], ">f8"),
    }
    meta = filled([({"data": 1}, given)]).dataset()[0].meta
    found = {key: meta[key] for key in given}
    assert found == {
        "i": -3, "f": 0.5, "b": True, "s": "x", "array": [[0, 1, 2], [3, 4, 5]], "tuple": [1, [2]],
        "bytearray": b"ab", "big": [1.5],
    }  # fmt: skip
    assert type(found["i"]) is int and type(found["b"]) is bool and type(found["s"]) is str


def test_the_users_meta_stands_over_the_rings(filled):
    meta = filled([({"data": 1}, {"pid": "mine"})]).dataset()[0].meta
    assert meta["pid"] == "mine" and {"generator", "host", "number", "time"} <= set(meta)


def endless():
    """A list that holds itself."""
    loop = []
    loop.append(loop)
    return loop


BAD_META = {
    "an object": ({"a": object()}, r"meta\['?\"a\"'?\]: object cannot be stored"),
    "a set": ({"a": {1}}, "set cannot be stored"),
    "a complex number": ({"a": 1j}, "complex cannot be stored"),
    "a date": ({"a": np.datetime64("2020-01-01")}, "date cannot be stored"),
    "a long double": ({"a": np.longdouble(1)}, "cannot be stored"),
    "a key that is no text": ({1: 2}, "the key 1 is int; keys are text"),
    "a large integer": ({"a": [0, 2**64]}, r"\[1\]: an integer is from -2\*\*64 to 2\*\*64 - 1"),
    "a small integer": ({"a": -(2**64) - 1}, "an integer is from"),
    "half a character": ({"a": "\ud800"}, "UTF-8"),
    "a list in itself": ({"a": endless()}, "more than 16 levels"),
    "an array of objects": ({"a": np.array([object()])}, "object cannot be stored"),
    "a list": ([1], "meta is a dict, or None; list was given"),
}


@pytest.mark.parametrize("what", BAD_META)
def test_meta_that_cannot_be_stored_is_refused(config, what):
    meta, message = BAD_META[what]
    with ringreel.Ring(config()).generator() as generator:
        with pytest.raises(ringreel.SampleError, match=message):
            generator.write({"data": 1}, meta)
        assert generator.summary.finished == 0


def test_a_sample_is_a_tuple_a_list_a_dict_or_a_pair_with_meta(config):
    ring = ringreel.Ring(config(SAMPLE=["a", "b"], SWAP_CAP=10))
    with ring.generator() as generator:
        assert generator.names == ["a", "b"]
    samples = [
        (1, 2),
        [1, 2],
        {"b": 2, "a": 1},
        ((1, 2), {"k": 1}),
        ([1, 2], {"k": 1}),
        ({"a": 1, "b": 2}, {"k": 1}),
    ]
    add(ring, samples)
    dataset = ring.dataset()
    assert [(int(s["a"]), int(s["b"]), s.meta.get("k")) for s in dataset] == [(1, 2, None)] * 3 + [(1, 2, 1)] * 3


def test_meta_may_be_given_apart(config):
    ring = ringreel.Ring(config())
    with ring.generator() as generator:
        generator.write((1,), {"k": 1})
        with pytest.raises(ringreel.SampleError, match="twice"):
            generator.write(((1,), {"k": 1}), {"k": 2})
        generator.finish(promote=True)
    assert ring.dataset()[0].meta["k"] == 1


MISFITS = {
    "too few parts": ((1,), r"a sample has 2 parts, SAMPLE is \[a, b\]; 1 were given"),
    "too many": ((1, 2, 3), "3 were given"),
    "a part that is missing": ({"a": 1}, 'part "b" is missing'),
    "one that is not in SAMPLE": ({"a": 1, "b": 2, "c": 3}, 'part "c" is not in SAMPLE'),
    "no tuple": (np.zeros((2, 2)), "numpy.ndarray was given"),
    "a pair with a wrong tuple": (((1,), {}), "1 were given"),
    "a dict in the place of a part": ((1, {"x": 1}), "part 'b'"),
    "a name that is no text": ({1: 2, "a": 1}, "the name of a part is text"),
}


@pytest.mark.parametrize("what", MISFITS)
def test_a_sample_that_does_not_fit_is_refused_and_the_ring_stays_as_it_was(config, what):
    sample, message = MISFITS[what]
    ring = ringreel.Ring(config(SAMPLE=["a", "b"]))
    with ring.generator() as generator:
        generator.write((1, 2))
        passing = ("seconds", "free_", "generators")  # what time, and others on this disk, change
        before = {key: value for key, value in ring.status().items() if not any(word in key for word in passing)}
        with pytest.raises(ringreel.SampleError, match=message):
            generator.write(sample)
        after = ring.status()
        assert {key: after[key] for key in before} == before
        assert generator.summary.finished == 1 and len(generator.write((3, 4))) == 1


def test_a_part_of_a_later_version_is_an_error_of_that_part_alone():
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


def test_the_summary_counts_quarantined_samples(config):
    keys = config(SWAP_CAP=2)
    with ringreel.Ring(keys).generator() as generator:
        generator.write((0,))
        for path in glob.glob(os.path.join(keys["RING"], "write.1", "*.rec")):
            os.truncate(path, 10)
        for n in range(3):
            generator.write((n,))
        summary = generator.finish(promote=True)
    assert (summary.finished, summary.delivered, summary.quarantined, summary.waiting) == (4, 3, 1, 0)


def test_samples_removed_by_hand_do_not_wait(config):
    keys = config(SWAP_CAP=2)
    with ringreel.Ring(keys).generator() as generator:
        generator.write((0,))
        for path in glob.glob(os.path.join(keys["RING"], "**", "*.rec"), recursive=True):
            os.remove(path)
        with pytest.raises(ringreel.RingreelError, match="somebody removed it by hand"):
            for n in range(10):
                generator.write((n,))
        summary = generator.finish(promote=True)
    assert (summary.finished, summary.waiting) == (summary.delivered + 1, 0)
