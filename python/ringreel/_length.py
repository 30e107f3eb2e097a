"""Lengths: how many items an iteration of a dataset yields, and how torch's ``DataLoader`` asks for it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

#: What a caller can do where the length is unknown.
ADVICE = "give the number of steps to the trainer yourself (total_steps=, max_steps=)"


def length_of_epochs(epochs: int | None, replay: str | None) -> int:
    """Returns the number of epochs of a stream.

    Raises:
        TypeError: The length of the stream is unknown.
    """
    if replay is not None:
        raise TypeError(f"a replay has no length, because it skips samples that were reclaimed: {ADVICE}")
    if epochs is None:
        raise TypeError(f"a stream with epochs=None has no length, because it never ends: pass epochs=, or {ADVICE}")
    return epochs


def share_of(total: int, share: int, shares: int, equal: str | None) -> int:
    """Returns the number of items of share ``share`` of ``shares``, of ``total`` items.

    Args:
        total (int): Number of items of all shares.
        share (int): Number of the share, from 0.
        shares (int): Number of shares.
        equal (str | None): How all shares get the same number of items. See ``ringreel.Shard``.
    """
    whole, rest = divmod(total, shares)
    if equal == "drop" or not rest:
        return whole
    return whole + 1 if equal is not None or share < rest else whole


def length_of(dataset: Any) -> int:
    """Returns the length of an iterable dataset that ranks and loader workers share.

    In a worker this is the length of the worker's share. In any other process it is that of the rank. If a
    ``DataLoader`` asks, the rank has the loader's workers, and the loader divides the result by its batch
    size, as if one process made all batches. But each worker makes batches of its own share, and each
    has a last batch that may be smaller. So the result is then the number of batches times the batch size.

    Args:
        dataset (Any): The dataset. Its ``_rank_and_world_size()`` returns the rank of this process and the number of
            ranks, and its ``_count(share, shares)`` the number of items of a share.
    """
    rank, world_size = dataset._rank_and_world_size()
    count: Callable[[int, int], int] = dataset._count
    info = worker_info()
    if info is not None:
        return count(rank * info.num_workers + info.id, world_size * info.num_workers)
    loader = _asking_loader()
    workers = 1 if loader is None else max(loader.num_workers, 1)
    counts = [count(rank * workers + worker, world_size * workers) for worker in range(workers)]
    size = None if loader is None or loader.dataset is not dataset else loader.batch_size
    if size is None:
        return sum(counts)
    batches = sum(items // size if loader.drop_last else -(-items // size) for items in counts)
    return int(size * batches)


def worker_info() -> Any:
    """Returns torch's description of the loader worker that this process is, or None."""
    data = sys.modules.get("torch.utils.data")
    return None if data is None else data.get_worker_info()


def _asking_loader() -> Any:
    """Returns the ``DataLoader`` whose ``__len__`` called that of a dataset, or None.

    A dataset is not told the number of workers before they start, and ``DataLoader.__len__`` passes
    nothing on. So the loader is looked up in the callers.
    """
    data = sys.modules.get("torch.utils.data")
    # The frames of this function and of length_of come first, then one or more of `__len__`.
    frame = sys._getframe(2) if data is not None else None
    while frame is not None and frame.f_code.co_name == "__len__":
        caller = frame.f_locals.get("self")
        if isinstance(caller, data.DataLoader):  # type: ignore[union-attr]
            return caller
        frame = frame.f_back
    return None
