"""Torch's tensors as parts of a sample that is written."""

import pytest
from conftest import add, zip_equal

import ringreel

torch = pytest.importorskip("torch", reason="torch is not installed: torch tensors are NOT tested")


# torch warns once about read-only arrays, which these tests use on purpose.
pytestmark = pytest.mark.filterwarnings("ignore:The given NumPy array is not writ:UserWarning")


def test_tensors_of_every_kind_can_be_written(filled):
    base = torch.arange(24).reshape(4, 6)
    tensors = [
        base.t(),
        base[::2, 1:3],
        torch.ones(2, requires_grad=True),
        torch.tensor([1 + 2j]).conj(),
        torch.tensor([True, False]),
        torch.tensor(3.5),
        torch.zeros(0, 3),
        torch.randn(3).half(),
    ]
    for sample, tensor in zip_equal(filled([{"data": t} for t in tensors]).dataset(), tensors):
        want = tensor.detach().resolve_conj()
        assert torch.equal(sample.torch()["data"], want) and sample["data"].dtype == want.numpy().dtype


def test_sparse_tensor_is_refused_and_its_part_named(config):
    with ringreel.Ring(config()).generator() as generator:
        with pytest.raises(ringreel.SampleError, match="part 'data': this torch tensor .*sparse"):
            generator.write({"data": torch.eye(3).to_sparse()})


def test_a_parameter_of_a_module_can_be_written(config):
    ring = ringreel.Ring(config())
    add(ring, [{"data": torch.nn.Parameter(torch.ones(3))}])
    assert torch.equal(ring.dataset()[0].torch()["data"], torch.ones(3))
