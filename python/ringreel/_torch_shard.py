"""The classes that share items themselves, as ``IterableDataset`` of torch."""

from typing import Any

from ringreel import _input_split, _loader, _shard
from ringreel._torch_bases import IterableStyle


class Shard(_shard.Shard, IterableStyle):
    """A ``ringreel.Shard``."""


class StreamLoader(_loader.StreamLoader, IterableStyle):
    """A ``ringreel.StreamLoader``."""


class InputSplit(_input_split.InputSplit, IterableStyle):
    """A ``ringreel.InputSplit``."""


#: The class of the objects that a call of a class makes.
CLASSES: dict[Any, Any] = {
    _shard.Shard: Shard,
    _loader.StreamLoader: StreamLoader,
    _input_split.InputSplit: InputSplit,
}
