"""Memory for batches is reused once its batch was released."""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: ringreel.torch and DataLoader are NOT tested")


from ringreel import _torch_buffers  # noqa: E402


@pytest.fixture
def no_buffers():
    _torch_buffers._free.clear()
    yield
    _torch_buffers._free.clear()


def test_released_memory_is_reused(no_buffers):
    shape = torch.Size((3, 1 << 20))
    first = _torch_buffers.empty(shape, torch.float32)
    assert first.shape == shape and first.dtype == torch.float32 and first.is_contiguous()
    place = first.data_ptr()
    assert place % 64 == 0
    first.fill_(1)
    held = [first[1:, 5:], first.numpy()[0], first.view(torch.int32), first.detach()]
    del first
    while held:
        other = _torch_buffers.empty(shape, torch.float32)
        assert other.data_ptr() != place and (other.fill_(2) == 2).all()
        one = held.pop(0)
        assert (one[0][0] if getattr(one, "ndim", 1) > 1 else one[0]) in (1, 0x3F800000)
        del one, other
    found = [_torch_buffers.empty(shape, dtype).data_ptr() for dtype in (torch.float32, torch.int32)]
    assert place in found


def test_free_buffers_are_limited(no_buffers):
    batches = [_torch_buffers.empty(torch.Size((n, 1 << 20)), torch.uint8) for n in range(1, 9)]
    assert len({batch.data_ptr() for batch in batches}) == 8
    batches.clear()
    assert len(_torch_buffers._free) == 4
    assert _torch_buffers.empty(torch.Size((3,)), torch.uint8).shape == (3,)
    assert _torch_buffers.empty(torch.Size((0, 5)), torch.uint8).shape == (0, 5)
