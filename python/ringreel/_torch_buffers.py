"""Memory for batches, reused once the batch in it was released.

New memory costs several times as much as the copy into it, because the kernel has to allocate and
clear each page.
"""

import math
import weakref
from collections import deque

import torch

# For smaller buffers, torch's allocator is as fast.
_LARGE = 1 << 20
#: Free buffers. At most 4 are kept, enough for a batch of 4 parts.
_free: "deque[torch.Tensor]" = deque(maxlen=4)


def empty(shape: torch.Size, dtype: torch.dtype) -> torch.Tensor:
    """Returns an uninitialized tensor. Its memory is reused after it and all its views are released."""
    length = math.prod(shape) * torch.empty(0, dtype=dtype).element_size()
    if length < _LARGE:
        return torch.empty(shape, dtype=dtype)
    memory = _taken(length)
    lent = memory.numpy()  # a separate object that only the tensor's storage references
    weakref.finalize(lent, _free.append, memory).atexit = False
    return torch.from_numpy(lent).view(dtype).view(shape)


def _taken(length: int) -> torch.Tensor:
    # Each step is atomic: other threads may take and return buffers between two of them.
    for _ in range(len(_free)):
        try:
            memory = _free.popleft()
        except IndexError:
            break
        if memory.numel() == length:
            return memory
        _free.append(memory)
    return torch.empty(length, dtype=torch.uint8)
