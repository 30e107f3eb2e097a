"""Memory for batches, used again when nobody holds the batch in it any more.

New memory costs several times what the copy into it does: the kernel has to find and to clear each of its pages.
"""

import math
import weakref
from collections import deque

import torch

# Smaller ones are as cheap from torch.
_LARGE = 1 << 20
#: Buffers that nobody uses. So many are kept: those of one batch, of as many parts.
_free: "deque[torch.Tensor]" = deque(maxlen=4)


def empty(shape: torch.Size, dtype: torch.dtype) -> torch.Tensor:
    """A tensor as `torch.empty` makes it, in memory that it alone uses, until it and all its views are gone."""
    length = math.prod(shape) * torch.empty(0, dtype=dtype).element_size()
    if length < _LARGE:
        return torch.empty(shape, dtype=dtype)
    memory = _taken(length)
    lent = memory.numpy()  # an object of its own, which the tensor's storage holds, and nobody else
    weakref.finalize(lent, _free.append, memory).atexit = False
    return torch.from_numpy(lent).view(dtype).view(shape)


def _taken(length: int) -> torch.Tensor:
    # Each step is whole by itself: others may take and give back between two of them.
    for _ in range(len(_free)):
        try:
            memory = _free.popleft()
        except IndexError:
            break
        if memory.numel() == length:
            return memory
        _free.append(memory)
    return torch.empty(length, dtype=torch.uint8)
