"""A buffer of bounded size between a source and the batches of a ``StreamLoader``."""

from __future__ import annotations

import collections
import random
from collections.abc import Iterable, Iterator
from typing import Any


def through_buffer(items: Iterable[Any], size: int, order: str | None) -> Iterator[Any]:
    """Yields the items after they passed through a buffer, which is emptied at the end.

    Args:
        items (Iterable): The items.
        size (int): Number of items that the buffer holds at most.
        order (str | None): Text that determines the random order; None keeps the order.
    """
    held: list[Any] = []
    queue: collections.deque[Any] = collections.deque()
    # Seeded with text, so that different seeds, epochs and shares never have the same numbers. Only random() gives the
    # same numbers in all versions of Python.
    draw = random.Random(order).random

    def take() -> Any:
        chosen = int(draw() * len(held))
        held[chosen], held[-1] = held[-1], held[chosen]
        return held.pop()

    put, give = (queue.append, queue.popleft) if order is None else (held.append, take)
    count = 0
    for item in items:
        put(item)
        count += 1
        if count == size:
            count -= 1
            yield give()
    for _ in range(count):
        yield give()
