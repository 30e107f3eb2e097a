"""Tensors that are parts of a ring's segments: where each was read, and whether it still has the file's contents."""

from __future__ import annotations

import mmap
import os
import weakref
from typing import Any, NamedTuple

import numpy as np
import torch

from ringreel._ringreel import Part
from ringreel._sample import Sample

# Smaller tensors are sent by torch, in shared memory: mapping them from the segment costs more than
# a copy.
_SMALL = 64 << 10


class Marked(NamedTuple):
    """The origin and the contents of a tensor when it was read."""

    alive: weakref.ref[torch.Tensor]
    name: str
    sample_id: str
    owner: Any
    part: Part
    address: int
    shape: torch.Size
    edges: bytes


# By identity, because tensors compare by their elements. A tensor's entry is removed with the tensor.
_marked: dict[int, Marked] = {}


def mark(tensor: torch.Tensor, sample: Sample, name: str) -> None:
    """Records that ``tensor`` is part ``name`` of ``sample``, for as long as the tensor lives."""
    part = sample._part(name)
    if len(part) < _SMALL or part.place is None:
        return
    number = id(tensor)
    alive = weakref.ref(tensor, lambda _: _marked.pop(number, None))
    owner = sample.meta.get("generator")
    origin = (name, sample.sample_id, owner)
    address, edges = tensor.data_ptr(), _edges(bytes_of(tensor))
    _marked[number] = Marked(alive, *origin, part, address, tensor.shape, edges)


def mark_of(value: Any) -> Marked | None:
    """Returns the mark of a tensor; None for a tensor without one, and for any other value."""
    return _marked.get(id(value))


def unchanged(tensor: torch.Tensor, mark: Marked) -> bool:
    """Returns whether the tensor still is a map of the file with the contents that were read."""
    found = tensor.data_ptr(), tensor.shape, tensor.is_contiguous(), tensor.requires_grad
    if found != (mark.address, mark.shape, True, False):
        return False
    data = bytes_of(tensor)
    if _edges(data) != mark.edges:
        return False
    inner = data[-mark.address % mmap.PAGESIZE :]
    inner = inner[: len(inner) // mmap.PAGESIZE * mmap.PAGESIZE]
    if not len(inner):
        return False
    inner[:: mmap.PAGESIZE].max()  # a page is not mapped before it was touched
    pages = _pages(inner.ctypes.data // mmap.PAGESIZE, len(inner) // mmap.PAGESIZE)
    # The three highest bits of an entry say: in memory, in swap space, page of a file. A page of a private map that was
    # written to is no longer a page of a file.
    return pages is not None and bool((pages >> np.uint64(61) == 0b101).all())


def bytes_of(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """Returns the bytes of a contiguous tensor, without a copy."""
    data: np.ndarray[Any, Any] = tensor.detach().reshape(-1).view(torch.uint8).numpy()
    return data


def _edges(data: np.ndarray[Any, Any]) -> bytes:
    """Returns the bytes before the first whole page and after the last one.

    These pages are shared with other parts.
    """
    before = -data.ctypes.data % mmap.PAGESIZE
    after = (len(data) - before) % mmap.PAGESIZE
    return data[:before].tobytes() + data[len(data) - after :].tobytes()


def _pages(first: int, count: int) -> np.ndarray[Any, Any] | None:
    """Returns the kernel's entries for pages of this process's memory, or None if it refuses."""
    try:
        file = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        entries = os.pread(file, 8 * count, 8 * first)
    except OSError:
        return None
    finally:
        os.close(file)
    return np.frombuffer(entries, np.uint64) if len(entries) == 8 * count else None
