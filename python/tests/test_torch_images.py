"""`ringreel.torch.ImageRecordStream`: images in torch's DataLoader."""

import pytest
from conftest import zip_equal
from image_files import write

from ringreel import image

torch = pytest.importorskip("torch", reason="torch is not installed: ImageRecordStream is NOT tested")

from torch.utils.data import DataLoader  # noqa: E402

from ringreel.torch import ImageRecordStream  # noqa: E402

# Python 3.12 and later warn of every fork where there are threads; that it goes well is what is tested.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "x.rec"
    write(path, 22)
    return path


def stream(path, **options):
    return ImageRecordStream(path, (3, 24, 24), 3, preprocess_threads=1, **options)


def labels(loader):
    return [label.tolist() for _, label in loader]


def test_batches_are_those_of_the_iterator(path):
    ours = list(stream(path, rand_crop=True, shuffle=True))
    batches = image.ImageRecordIter(path, (3, 24, 24), 3, rand_crop=True, shuffle=True)
    for (images, label), batch in zip_equal(ours, batches):
        assert torch.equal(images, torch.from_numpy(batch.data[0])) and images.dtype == torch.float32
        assert label.tolist() == batch.label[0].tolist()


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("stay", [False, True])
def test_ranks_and_workers_share_each_epoch_in_equal_steps(path, workers, stay):
    if stay and workers == 0:
        pytest.skip("workers that stay are workers")
    parts = 2 * max(workers, 1)
    loaders = [
        DataLoader(
            stream(path, rank=rank, world_size=2, shuffle=True), None, num_workers=workers, persistent_workers=stay
        )
        for rank in range(2)
    ]
    orders, seen = [], []
    for _ in range(2):
        epochs = [labels(loader) for loader in loaders]
        assert len(epochs[0]) == len(epochs[1])
        orders.append(epochs)
        seen += [label for epoch in epochs for batch in epoch for label in batch]
    assert orders[0] != orders[1]
    assert set(seen) == set(range(22 // parts * parts))


def test_set_epoch_repeats_an_epoch(path):
    dataset = stream(path, rand_crop=True, shuffle=True)
    loader = DataLoader(dataset, None, num_workers=1)
    first, second = list(loader), list(loader)
    dataset.set_epoch(0)
    again = list(loader)
    assert [label.tolist() for _, label in first] == [label.tolist() for _, label in again]
    assert all(torch.equal(a, b) for (a, _), (b, _) in zip_equal(first, again))
    assert [label.tolist() for _, label in first] != [label.tolist() for _, label in second]


def test_ranks_are_found_in_the_environment(path, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert labels(stream(path))[0] == [11, 12, 13]


def test_wrong_parameters_are_errors(path):
    for options, error in [
        ({"num_parts": 2}, TypeError),
        ({"rank": 2, "world_size": 2}, ValueError),
        ({"x": 1}, TypeError),
    ]:
        with pytest.raises(error):
            stream(path, **options)
