"""The classes that share items themselves, as ``IterableDataset`` of torch."""

from typing import TYPE_CHECKING, Any

import torch

from ringreel import _input_split, _loader, _shard

if TYPE_CHECKING:  # so that mypy sees the same class with torch and without it

    class _Iterable:
        pass
else:
    _Iterable = torch.utils.data.IterableDataset


class Shard(_shard.Shard, _Iterable):
    """A ``ringreel.Shard``."""


class StreamLoader(_loader.StreamLoader, _Iterable):
    """A ``ringreel.StreamLoader``."""


class InputSplit(_input_split.InputSplit, _Iterable):
    """A ``ringreel.InputSplit``."""


#: The class of the objects that a call of a class makes.
CLASSES: dict[Any, Any] = {
    _shard.Shard: Shard,
    _loader.StreamLoader: StreamLoader,
    _input_split.InputSplit: InputSplit,
}
