"""Tensors of samples: writable and private."""

import numpy as np
import pytest
from conftest import zip_equal

torch = pytest.importorskip("torch", reason="torch is not installed: torch tensors are NOT tested")

# torch warns once about read-only arrays, which these tests use on purpose.
pytestmark = pytest.mark.filterwarnings("ignore:The given NumPy array is not writ:UserWarning")

LARGE = 200_000


def everything():
    return {
        "large": np.arange(LARGE, dtype=np.uint8),
        "inline": np.arange(5, dtype=np.float32),
        "scalar": np.array(2.5),
        "empty": np.zeros((0, 3), np.float32),
        "escaped": np.full(LARGE // 4, 0x4ED7230A, "<i4"),
        "packed": np.zeros(LARGE, np.int64),
        "raw": b"abc",
    }


@pytest.fixture(params=["auto", "mmap", "pread"])
def dataset(request, filled):
    ring = filled([everything()] * 2, SEGMENT_SAMPLES=2, COMPRESS={"packed": 3}, READ=request.param)
    return ring.dataset()


def unchanged(sample):
    return all(
        sample[name] == value if name == "raw" else sample[name].tobytes() == value.tobytes()
        for name, value in everything().items()
    )


def ways(sample, name):
    """Every way from a part to a tensor."""
    yield sample.torch()[name]
    yield sample.torch(name)[name]
    yield torch.from_dlpack(sample.dlpack(name))
    yield torch.from_numpy(np.asarray(sample.dlpack(name)))


def test_tensors_equal_the_written_parts_and_are_writable(dataset):
    for name, value in everything().items():
        if name == "raw":
            continue
        for n in range(4):
            tensor = list(ways(dataset[0], name))[n]
            assert tensor.dtype == torch.from_numpy(value.copy()).dtype and tuple(tensor.shape) == value.shape
            assert tensor.numpy().tobytes() == value.tobytes()
            tensor += 1
            tensor.fill_(3)
            assert (tensor == 3).all()
            assert unchanged(dataset[0]) and unchanged(dataset[1]), (name, n)


def test_a_change_is_not_seen_in_the_next_pass_of_a_stream(filled):
    ring = filled([everything()] * 3, SEGMENT_SAMPLES=3, READ="mmap")
    for n, sample in enumerate(ring.stream(epochs=3)):
        assert unchanged(sample), n
        for tensor in sample.torch("large", "inline", "packed").values():
            tensor.zero_()


def test_tensors_are_made_without_a_warning(filled, script):
    ring = filled([everything()])
    process = script(
        """
        import sys, warnings, ringreel
        warnings.simplefilter("error")
        import torch
        print(sorted(ringreel.Ring({"RING": sys.argv[1]}).dataset()[0].torch()))
        """,
        ring.path,
    )
    assert process.end() == 0, process.said


def test_two_samples_share_no_memory(dataset):
    first, second = dataset[0].torch(), dataset[0].torch()
    first["large"].zero_()
    assert second["large"].sum() == everything()["large"].sum(dtype=np.int64)


def test_dlpack_owns_its_memory(dataset):
    sample = dataset[0]
    tensor = torch.from_dlpack(sample.dlpack("large"))
    tensor.zero_()
    assert unchanged(sample)
    del sample
    assert tensor.sum() == 0


def test_tensors_outlive_their_sample(dataset):
    tensor = dataset[0].torch()["large"]
    [dataset[1] for _ in range(5)]
    assert tensor.numpy().tobytes() == everything()["large"].tobytes()


def test_bytes_stay_bytes(dataset):
    assert dataset[0].torch()["raw"] == b"abc"


def test_bfloat16_round_trips(filled):
    tensors = [
        torch.randn(3, 4).to(torch.bfloat16),
        torch.tensor(1.5, dtype=torch.bfloat16),
        torch.zeros(0, 2).bfloat16(),
    ]
    tensors += [torch.randn(500, 300).to(torch.bfloat16).t()]
    dataset = filled([{"data": tensor} for tensor in tensors]).dataset()
    for sample, tensor in zip_equal(dataset, tensors):
        assert sample.dtypes == {"data": "bf16"}
        for found in (sample.torch()["data"], torch.from_dlpack(sample.dlpack("data"))):
            assert found.dtype == torch.bfloat16 and found.shape == tensor.shape and torch.equal(found, tensor)
            found += 1
    assert torch.equal(dataset[0].torch()["data"], tensors[0])


def test_a_type_that_torch_lacks_is_a_type_error_that_names_the_part(filled):
    sample = filled([{"data": np.zeros(2, "M8[s]"), "x": 1}]).dataset()[0]
    with pytest.raises(TypeError, match="part 'data' is datetime64"):
        sample.torch()
    assert sample.torch("x")["x"] == 1
    with pytest.raises(KeyError):
        sample.torch("y")


def test_a_data_loader_collates_samples(filled):
    ring = filled([{"data": np.full((2, 3), n, np.float32), "name": str(n).encode()} for n in range(8)])
    for workers in (0, 2):
        loader = torch.utils.data.DataLoader(ring.dataset(), batch_size=4, num_workers=workers)
        batches = list(loader)
        assert [tuple(batch["data"].shape) for batch in batches] == [(4, 2, 3)] * 2
        assert [x for batch in batches for x in batch["data"][:, 0, 0].tolist()] == list(range(8))
        assert batches[1]["name"] == [b"4", b"5", b"6", b"7"]


class Share(torch.utils.data.IterableDataset):
    """An iterable dataset of each worker's share of a ring."""

    def __init__(self, ring):
        self.ring = ring

    def __iter__(self):
        worker = torch.utils.data.get_worker_info()
        for sample in self.ring.stream(rank=worker.id, world_size=worker.num_workers, epochs=1):
            yield sample.torch()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_share_a_stream(filled, method):
    ring = filled([{"data": np.full(3, n)} for n in range(7)])
    loader = torch.utils.data.DataLoader(Share(ring), batch_size=None, num_workers=2, multiprocessing_context=method)
    assert sorted(int(sample["data"][0]) for sample in loader) == list(range(7))
