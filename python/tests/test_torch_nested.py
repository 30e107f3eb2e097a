"""`nested=True`: dicts in dicts of tensors, also in the batches."""

import numpy as np
import pytest
from conftest import add

import ringreel

torch = pytest.importorskip("torch", reason="torch is not installed: nested samples of its datasets are NOT tested")

from torch.utils.data import DataLoader, default_collate  # noqa: E402

from ringreel.torch import RingDataset, RingStream, ValidationDataset, collate  # noqa: E402

# Python 3.12 and later warn about a fork in a process with threads, which these tests do on purpose.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),  # more workers than cores
]


def scan(number, size=3):
    return {"image": {"t1": torch.full((size,), number), "deep": {"t2": np.full(2, number)}}, "label": number}


@pytest.fixture
def ring(config):
    def make(size=3):
        names = ["image/t1", "image/deep/t2", "label"]
        ring = ringreel.Ring(config(SAMPLE=names, SWAP_CAP=5, VALIDATION=1))
        add(ring, [scan(number, size) for number in range(5)])
        return ring

    return make


@pytest.mark.parametrize("function", [collate, default_collate])
@pytest.mark.parametrize(("workers", "size"), [(0, 3), (2, 3), (1, 100_000)])
def test_batches_are_nested_dicts_of_tensors(ring, function, workers, size):
    ring = ring(size)
    for dataset in (RingDataset(ring, nested=True), RingStream(ring, epochs=1, nested=True, equal="pad", info=True)):
        for batch in DataLoader(dataset, 2, num_workers=workers, collate_fn=function):
            label = batch["label"]
            assert list(batch)[:2] == ["image", "label"] and list(batch["image"]) == ["t1", "deep"]
            assert torch.equal(batch["image"]["t1"], label[:, None].expand(-1, size))
            assert torch.equal(batch["image"]["deep"]["t2"], label[:, None].expand(-1, 2))
            if isinstance(dataset, RingStream):
                assert len(batch["sample_id"]) == 2 and not batch["is_padding"].any()


def test_samples_are_nested_before_the_transform(ring):
    def double(sample, info):
        sample["image"]["t1"] *= 2
        return sample["image"]["t1"][0].item(), info.position

    ring = ring()
    assert list(RingStream(ring, epochs=1, nested=True, transform=double)) == [(2, 1), (4, 2), (6, 3), (8, 4)]
    assert ValidationDataset(ring, nested=True, transform=double)[0] == (0, 0)
    assert list(RingDataset(ring, nested=True, parts=["image/deep/t2"])[0]["image"]) == ["deep"]


def test_names_that_cannot_be_nested_are_errors(config):
    ring = ringreel.Ring(config(SAMPLE=["a", "a/b", "position/x"]))
    add(ring, [{"a": 1, "a/b": 2, "position/x": 3}])
    for make in (RingStream, RingDataset):
        with pytest.raises(ringreel.ConfigError, match="SAMPLE names both 'a' and 'a/b'"):
            make(ring, nested=True)
        make(ring, nested=True, parts=["a/b"])
        with pytest.raises(ValueError, match="as_tuple and nested"):
            make(ring, nested=True, as_tuple=True, parts=["a/b"])
        with pytest.raises(ValueError, match="info: samples have a part 'position'"):
            make(ring, nested=True, info=True, parts=["position/x"])


def test_part_with_the_name_of_an_added_item_is_refused(config):
    ring = ringreel.Ring(config(SAMPLE=["is_padding", "y"]))
    with pytest.raises(ValueError, match='have a part "is_padding"'):
        RingStream(ring, equal="pad")
