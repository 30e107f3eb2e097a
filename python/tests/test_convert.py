"""Samples and meta that can be written, and those that are refused."""

import numpy as np
import pytest
from conftest import add

import ringreel

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


def test_meta_round_trips(filled):
    meta = filled([({"data": 1}, META)]).dataset()[0].meta
    assert {key: meta[key] for key in META} == META
    assert all(type(meta[key]) is type(META[key]) for key in META)


def test_numpy_values_tuples_and_bytearrays_in_meta_become_plain(filled):
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


def endless():
    """Returns a list that contains itself."""
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
    "a list": ([1], "meta: expected a dict or None, found list"),
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


def test_meta_can_be_a_separate_argument(config):
    ring = ringreel.Ring(config())
    with ring.generator() as generator:
        generator.write((1,), {"k": 1})
        with pytest.raises(ringreel.SampleError, match="twice"):
            generator.write(((1,), {"k": 1}), {"k": 2})
        generator.finish(promote=True)
    assert ring.dataset()[0].meta["k"] == 1


MISFITS = {
    "too few parts": ((1,), r"sample: expected 2 parts, SAMPLE is \[a, b\]; found 1"),
    "too many": ((1, 2, 3), "found 3"),
    "a part that is missing": ({"a": 1}, 'part "b" is missing'),
    "one that is not in SAMPLE": ({"a": 1, "b": 2, "c": 3}, 'part "c" is not in SAMPLE'),
    "no tuple": (np.zeros((2, 2)), "found numpy.ndarray"),
    "a pair with a wrong tuple": (((1,), {}), "found 1"),
    "a dict in the place of a part": ((1, {"x": 1}), "part 'b'"),
    "a name that is no text": ({1: 2, "a": 1}, "the name of a part: expected text, found 1"),
}


@pytest.mark.parametrize("what", MISFITS)
def test_mismatched_sample_is_refused_and_changes_nothing(config, what):
    sample, message = MISFITS[what]
    ring = ringreel.Ring(config(SAMPLE=["a", "b"]))
    with ring.generator() as generator:
        generator.write((1, 2))
        passing = ("seconds", "free_", "generators")  # these change with time and with other files on the disk
        before = {key: value for key, value in ring.status().items() if not any(word in key for word in passing)}
        with pytest.raises(ringreel.SampleError, match=message):
            generator.write(sample)
        after = ring.status()
        assert {key: after[key] for key in before} == before
        assert generator.summary.finished == 1 and len(generator.write((3, 4))) == 1
