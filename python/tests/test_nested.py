"""Nested samples: dicts in dicts are stored as parts with `/` in their names, and read back as dicts in dicts."""

import numpy as np
import pytest
from conftest import add

import ringreel
from ringreel import ConfigError, SampleError

NAMES = ["image/t1", "image/t2", "image/more/flair", "label"]


def scan(number):
    image = {"t1": np.full((2, 3), number, np.float32), "t2": np.full((2, 3), -number, np.int16)}
    return {"image": {**image, "more": {"flair": bytes([number, 0])}}, "label": np.int64(number)}


def same(found, given):
    """Returns whether both are dicts with the same keys and equal values, or equal values."""
    if isinstance(given, dict):
        return isinstance(found, dict) and list(found) == list(given) and all(same(found[n], given[n]) for n in given)
    if isinstance(given, bytes):
        return found == given
    return found.dtype == given.dtype and np.array_equal(found, given)


@pytest.fixture
def ring(config):
    return ringreel.Ring(config(SAMPLE=NAMES, SWAP_CAP=3))


def test_nested_samples_are_read_as_they_were_written(ring):
    add(ring, [scan(n) for n in range(3)])
    for number, sample in enumerate(ring.dataset()):
        assert list(sample) == NAMES
        assert same(sample.nested(), scan(number))
    assert [same(sample.nested(), scan(n)) for n, sample in enumerate(ring.stream(epochs=1))] == [True] * 3


def test_read_samples_can_be_written_again(config, ring, tmp_path):
    add(ring, [scan(n) for n in range(3)])
    other = ringreel.Ring(config(RING=str(tmp_path / "other"), SAMPLE=NAMES, SWAP_CAP=6))
    add(other, [each for sample in ring.dataset() for each in (sample, sample.nested())])
    assert [same(sample.nested(), scan(n // 2)) for n, sample in enumerate(other.dataset())] == [True] * 6


def test_nested_batches_are_read_as_they_were_written(ring):
    numbers = np.arange(3)
    image = {"t1": np.zeros((3, 2, 3)), "t2": np.ones((3, 2)), "more": {"flair": [b"a", b"b", b"c"]}}
    with ring.generator() as generator:
        generator.write_batch({"image": image, "label": numbers})
        generator.finish(promote=True)
    batch = ring.dataset().batch([2, 0]).nested()
    assert batch["image"]["t1"].shape == (2, 2, 3) and batch["image"]["more"]["flair"] == [b"c", b"a"]
    assert batch["label"].tolist() == [2, 0]


def test_nested_samples_with_meta_and_mixed_names(ring):
    flat = {"image/t1": 1, "image": {"t2": 2, "more/flair": b"x"}, "label": 3}
    assert ringreel.run_generator([(flat, {"age": 30})], ring, promote=True).delivered == 1
    sample = ring.dataset()[0]
    assert sample.meta["age"] == 30 and int(sample.nested()["image"]["t1"]) == 1
    assert sample.nested()["image"]["more"] == {"flair": b"x"}


def test_part_that_is_also_a_folder_cannot_be_nested(config):
    ring = ringreel.Ring(config(SAMPLE=["image", "label", "image/t1/raw"], SWAP_CAP=1))
    add(ring, [{"image": 1, "label": 2, "image/t1/raw": 3}])
    sample = ring.dataset()[0]
    assert int(sample["image/t1/raw"]) == 3
    with pytest.raises(ConfigError, match="SAMPLE names both 'image' and 'image/t1/raw'"):
        sample.nested()


def test_names_without_a_folder_are_not_nested(config):
    ring = ringreel.Ring(config(SAMPLE=["a", "ab/c", "a.d"], SWAP_CAP=1))
    add(ring, [{"a": 1, "ab/c": 2, "a.d": 3}])
    assert {name: type(part) for name, part in ring.dataset()[0].nested().items()} == {
        "a": np.ndarray,
        "ab": dict,
        "a.d": np.ndarray,
    }


def test_wrong_nested_samples_name_the_part(ring):
    with ring.generator() as generator:
        for change, message in (
            ({"image/t1": 1}, "'image/t1' is given twice"),
            ({"image": {"t1": 1}}, "image/t2"),
            ({"image": {**scan(1)["image"], "pd": 1}}, "image/pd"),
            ({"image": {**scan(1)["image"], 3: 1}}, "expected text, found 3"),
            ({"image": {**scan(1)["image"], "t1": None}}, "part 'image/t1' is None"),
            ({"image": {}}, "image/t1"),
            ({"label": {"a": 1}}, '"label/a" is not in SAMPLE'),
        ):
            with pytest.raises(SampleError, match=message):
                generator.write({**scan(1), **change})
        with pytest.raises(SampleError, match="part 'label'"):  # in a tuple, parts are not nested
            generator.write((1, 2, b"x", {"a": 1}))
        assert generator.written == 0
