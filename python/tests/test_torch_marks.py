"""Marks of tensors: a tensor is sent by its file only while it still has the file's contents."""

import gc

import numpy as np
import pytest
from conftest import numbered

torch = pytest.importorskip("torch", reason="torch is not installed: ringreel.torch and DataLoader are NOT tested")

from ringreel import _torch_marks  # noqa: E402
from ringreel.torch import RingDataset  # noqa: E402

LARGE = 1 << 16


def read(filled, size=LARGE):
    return RingDataset(filled(numbered(1, size=size)))[0]["data"]


def test_tensor_that_was_read_is_marked_until_it_is_gone(filled):
    tensor = read(filled)
    mark = _torch_marks.mark_of(tensor)
    assert (mark.name, mark.shape) == ("data", tensor.shape) and _torch_marks.unchanged(tensor, mark)
    number = id(tensor)
    del tensor
    gc.collect()
    assert number not in _torch_marks._marked


def test_small_tensors_and_other_values_have_no_mark(filled):
    assert _torch_marks.mark_of(read(filled, size=4)) is None
    assert _torch_marks.mark_of(torch.zeros(LARGE)) is None and _torch_marks.mark_of("text") is None


@pytest.mark.parametrize("index", [0, LARGE // 2, -1])
def test_tensor_that_was_written_to_has_changed(filled, index):
    tensor = read(filled)
    tensor[index] = 5
    assert not _torch_marks.unchanged(tensor, _torch_marks.mark_of(tensor))


def test_unreadable_page_table_counts_as_a_change(filled, monkeypatch):
    tensor = read(filled)
    monkeypatch.setattr(_torch_marks, "_pages", lambda first, count: None)
    assert not _torch_marks.unchanged(tensor, _torch_marks.mark_of(tensor))


def test_bytes_of_a_tensor_are_not_copied():
    tensor = torch.zeros(3, 2, dtype=torch.int16)
    data = _torch_marks.bytes_of(tensor)
    data[-1] = 1
    assert data.dtype == np.uint8 and len(data) == 12 and tensor[2, 1] == 256
