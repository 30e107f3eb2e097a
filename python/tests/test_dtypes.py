"""Every element type and shape round-trips bit for bit."""

import builtins
import sys

import numpy as np
import pytest
from conftest import add, zip_equal

import ringreel

RNG = np.random.default_rng(7)


def bits(dtype, shape):
    """Returns an array of random bits, or of random bools."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return RNG.integers(0, 2, shape).astype(bool)
    array = np.zeros(shape, dtype)
    array.reshape(-1).view(np.uint8)[...] = RNG.integers(0, 256, array.nbytes, np.uint8)
    return array


def same(left, right):
    """Returns whether both have the same type, shape and bits."""
    return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()


def back(filled, value, **keys):
    """Writes a part with this value, and returns it as read."""
    ring = filled([{"data": value}], **keys)
    return ring.dataset()[0]["data"]


NUMBERS = "? u1 u2 u4 u8 i1 i2 i4 i8 f2 f4 f8 c8 c16".split()


@pytest.mark.parametrize("dtype", NUMBERS)
def test_numbers_round_trip_bit_for_bit(filled, dtype):
    array = bits(dtype, (3, 5))
    assert same(back(filled, array), array)


@pytest.mark.parametrize("dtype", ["g", "G", "M8[ns]", "M8[D]", "m8[s]", "m8", "S5", "U3", "V7", "q", "Q", "l", "L"])
def test_every_other_fixed_size_type_round_trips_bit_for_bit(filled, dtype):
    array = np.zeros(6, dtype)
    if array.dtype.kind in "US":
        array[:] = ["", "a", "bc", "déf" if array.dtype.kind == "U" else "def", "x", "yz"]
    elif array.dtype.char in "gG":
        array = np.arange(6).astype(dtype) / 7
    else:
        array = bits(dtype, (6,))
    assert same(back(filled, array), array)


STRUCTURED = [
    [("x", "f4"), ("y", "i8")],
    [("a", "u1"), ("in", [("b", "M8[s]"), ("c", "U2", (2, 3))]), ("s", "S3")],
    np.dtype([("small", "u1"), ("large", "f8")], align=True),
    np.dtype({"names": ["p", "q"], "formats": ["i2", "f4"], "offsets": [2, 8], "itemsize": 16}),
    [(("a title", "name"), "i4"), ("Größe", "f2")],
]


@pytest.mark.parametrize("dtype", STRUCTURED, ids=range(len(STRUCTURED)))
def test_structured_types_round_trip_bit_for_bit(filled, dtype):
    array = np.zeros((2, 3), dtype)
    raw = array.view(np.uint8)
    raw[...] = RNG.integers(0, 100, raw.shape)
    assert same(back(filled, array), array)


@pytest.mark.parametrize("shape", [(), (0,), (1,), (0, 3), (3, 0, 2), (1, 1, 1, 1), (2, 3, 4), (200, 300), (2,) * 20])
@pytest.mark.parametrize("dtype", ["f4", "M8[ns]"])
def test_every_shape_round_trips(filled, shape, dtype):
    array = bits(dtype, shape)
    assert same(back(filled, array), array)


@pytest.mark.parametrize("dtype", ["f8", "u2", "c8", "M8[s]", "U4", [("x", ">f4"), ("y", "<i8"), ("z", ">U2")]])
def test_big_endian_elements_are_read_native_and_equal(filled, dtype):
    little = np.dtype(dtype).newbyteorder("<")
    array = np.zeros((3, 4), little)
    plain = array if array.dtype.names is None else array["x"]
    plain[...] = np.arange(12).reshape(3, 4).astype(plain.dtype)
    big = array.astype(np.dtype(dtype).newbyteorder(">") if little.names is None else dtype)
    found = back(filled, big)
    assert found.dtype == little and found.dtype.isnative
    assert (found == array).all()


def test_a_big_endian_nan_keeps_its_payload(filled):
    array = np.array([0x7FA00001, 0x7FC12345], ">u4").view(">f4")
    assert back(filled, array).view(np.uint32).tolist() == [0x7FA00001, 0x7FC12345]


def test_arrays_of_any_memory_order_round_trip(filled):
    base = np.arange(120).reshape(4, 5, 6)
    orders = [np.asfortranarray(base), base.T, base[::2, ::-1, 1:4], base[:, 2], np.broadcast_to(base[0], (3, 5, 6))]
    orders += [np.arange(10)[::3], np.arange(10)[::-1], np.zeros(3, "u1,f8")["f1"], np.broadcast_to(np.int8(4), (7,))]
    ring = filled([{"data": array} for array in orders])
    for sample, array in zip_equal(ring.dataset(), orders):
        assert sample["data"].flags.c_contiguous and sample["data"].shape == array.shape
        assert (sample["data"] == array).all()


def test_samples_of_one_ring_can_differ_in_type_and_shape(filled):
    arrays = [np.arange(3), np.zeros((2, 2), "f4"), np.array("text"), np.array(1.5)]
    ring = filled([{"data": array} for array in arrays], SEGMENT_SAMPLES=4)
    for sample, array in zip_equal(ring.dataset(), arrays):
        assert same(sample["data"], array)


@pytest.mark.parametrize("value", [5, 2.5, True, 1j, [1, 2, 3], [[1.5], [2.5]], "text", np.float32(3), range(4)])
def test_scalars_and_lists_are_converted_by_numpy(filled, value):
    assert same(back(filled, value), np.asarray(value))


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
@pytest.mark.parametrize("length", [0, 1, 1000, 300_000])
def test_bytes_round_trip_as_bytes(filled, kind, length):
    value = RNG.bytes(length)
    found = back(filled, kind(value))
    assert type(found) is bytes and found == value


def test_memoryview_of_any_type_is_its_bytes(filled):
    array = np.arange(12, dtype="f8").reshape(3, 4)
    views = [memoryview(array), memoryview(array.T), memoryview(array.astype(">f4")), memoryview(np.zeros((0, 2)))]
    ring = filled([{"data": view} for view in views])
    assert [sample["data"] for sample in ring.dataset()] == [view.tobytes() for view in views]


@pytest.mark.parametrize("level", [None, 3])
def test_bytes_that_resemble_the_framing_round_trip(filled, level):
    magic = np.full(50_000, 0xCED7230A, "<u4")
    assert same(back(filled, magic, COMPRESS=level or "none"), magic)


def test_compressed_parts_round_trip(filled):
    array = np.arange(100_000) // 100
    ring = filled([{"data": array}], COMPRESS={"data": 5})
    assert same(ring.dataset()[0]["data"], array)
    assert ring.status()["bytes"] < array.nbytes / 10


def test_bfloat16_is_read_as_ml_dtypes_bfloat16(filled):
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed: bfloat16 arrays are NOT tested")
    arrays = [np.array([[1.5, -2.0], [np.inf, 3e38]]), np.array(0.1), np.zeros((0, 2)), np.arange(50_000.0)]
    arrays = [array.astype(ml_dtypes.bfloat16) for array in arrays]
    for sample, array in zip_equal(filled([{"data": array} for array in arrays]).dataset(), arrays):
        assert same(sample["data"], array) and sample.dtypes == {"data": "bf16"}


def test_bfloat16_is_read_as_bits_without_ml_dtypes(filled, monkeypatch):
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed: bfloat16 arrays are NOT tested")
    ring = filled([{"data": np.array([1.0, -2.0], ml_dtypes.bfloat16)}])
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name == "ml_dtypes":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    ringreel._dtypes.dtype_of.cache_clear()
    monkeypatch.setattr(builtins, "__import__", without)
    sample = ring.dataset()[0]
    assert sample["data"].dtype == np.uint16 and sample["data"].tolist() == [0x3F80, 0xC000]
    assert sample.dtypes == {"data": "bf16"}
    ringreel._dtypes.dtype_of.cache_clear()


class Number:
    """Not an array, not a number."""


REFUSED = {
    "objects": np.array([None, "x"], object),
    "a structured type with objects": np.zeros(2, [("a", "i4"), ("b", "O")]),
    "a nested one": np.zeros(2, [("a", [("b", "O", (2,))])]),
    "any object": Number(),
    "nothing": None,
    "a masked array": np.ma.array([1, 2], mask=[0, 1]),
    "overlapping fields": np.zeros(2, np.dtype({"names": ["a", "b"], "formats": ["i4", "i4"], "offsets": [0, 2]})),
}


@pytest.mark.parametrize("what", REFUSED)
def test_unsupported_part_is_refused_and_named(config, what):
    ring = ringreel.Ring(config(SAMPLE=["data", "label"]))
    with ring.generator() as generator:
        with pytest.raises(ringreel.SampleError, match="part 'label'"):
            generator.write({"data": 1, "label": REFUSED[what]})
        assert generator.summary.finished == 0
        assert len(generator.write((1, 2))) == 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_ragged_list_is_refused(config):
    with ringreel.Ring(config()).generator() as generator, pytest.raises(ringreel.SampleError, match="part 'data'"):
        generator.write({"data": [[1, 2], [3]]})


def test_types_of_other_packages_are_refused_with_advice(config):
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed: float8 arrays are NOT tested")
    with ringreel.Ring(config()).generator() as generator:
        with pytest.raises(
            ringreel.SampleError, match=r"part 'data': .*float8_e5m2.* store its bits, by .view\('u1'\)"
        ):
            generator.write({"data": np.zeros(3, ml_dtypes.float8_e5m2)})
        with pytest.raises(ringreel.SampleError, match="bfloat16 inside a structured type"):
            generator.write({"data": np.zeros(3, [("a", ml_dtypes.bfloat16)])})


@pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.0.0", reason="NumPy 1 has no text of variable length")
def test_text_of_variable_length_is_refused(config):
    with ringreel.Ring(config()).generator() as generator, pytest.raises(ringreel.SampleError, match="fixed-length"):
        generator.write({"data": np.array(["a", "bcd"], np.dtypes.StringDType())})


HOSTILE = ["numpy:O", "numpy:[('a','O')]", "numpy:__import__('os').system('x')", "numpy:[('a',", "numpy:" + "[" * 5000]


@pytest.mark.parametrize(
    "name", [*HOSTILE, "numpy:|O8", "numpy:(9,)i4", "numpy:[('a', '<f4'), ('a', '<f4')]", "unknown:0x42", "f33"]
)
def test_description_in_a_file_is_a_literal_or_an_error(name):
    with pytest.raises(ringreel.RingreelError):
        ringreel._dtypes.dtype_of(name)


@pytest.mark.parametrize(("dtype", "shape", "length"), [("f32", [3], 11), ("f32", [3], 13), ("numpy:S5", [2], 2)])
def test_bytes_that_do_not_fit_the_shape_are_an_error(dtype, shape, length):
    part = ringreel._ringreel.Part(dtype, shape, bytes(length))
    sample = ringreel.Sample({"data": part}, {}, "id", 1, 0)
    with pytest.raises(ringreel.RingreelError, match=f"{length} bytes do not fit an array"):
        sample["data"]


def test_samples_that_were_read_can_be_written(filled, config, tmp_path):
    array = np.zeros(2, [("a", ">i4"), ("b", "M8[s]")])
    first = filled([{"data": array, "raw": b"abc"}]).dataset()[0]
    second = ringreel.Ring(config(SAMPLE=["data", "raw"], RING=str(tmp_path / "second")))
    add(second, [first])
    found = second.dataset()[0]
    assert same(found["data"], first["data"]) and found["raw"] == b"abc"


def test_this_machine_is_little_endian():
    assert sys.byteorder == "little"  # the tests above rely on it
