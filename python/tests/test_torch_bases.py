"""The base classes of the datasets are torch's, so that loaders and trainers recognise them."""

import pytest

torch = pytest.importorskip("torch")

import ringreel.torch  # noqa: E402
import ringreel.wirehead  # noqa: E402


@pytest.mark.parametrize(
    "kind", [ringreel.torch.RingDataset, ringreel.torch.ValidationDataset, ringreel.wirehead.MongoheadDataset]
)
def test_datasets_by_index_are_those_of_torch(kind):
    assert issubclass(kind, torch.utils.data.Dataset) and not issubclass(kind, torch.utils.data.IterableDataset)


@pytest.mark.parametrize(
    "kind", [ringreel.torch.RingStream, ringreel.torch.MixtureStream, ringreel.torch.ImageRecordStream]
)
def test_streams_are_iterable_datasets_of_torch(kind):
    assert issubclass(kind, torch.utils.data.IterableDataset)


@pytest.mark.parametrize(
    "made", [ringreel.Shard([1]), ringreel.StreamLoader([1], 1), ringreel.InputSplit("x.rec")], ids=repr
)
def test_shards_loaders_and_splits_are_datasets_of_torch(made):
    assert isinstance(made, torch.utils.data.IterableDataset)
