"""A ring as a data source for Grain, the data loader of JAX programs.

``RingIterDataset`` is a ``grain.IterDataset``: it reads one generation after the other, as
``ringreel.Ring.stream`` does. Its iterators save and restore exact positions. ``RingSource`` is one
generation as a random-access source, for Grain's own shuffling, sharding and samplers. Grain is imported
when ``RingIterDataset`` is first used; ``RingSource`` does not need it.

Grain promises that the same seed gives the same samples in the same order, also after a restart. A
ring keeps changing. So a ``RingSource`` is the newest generation of the moment when it is constructed,
and stays that one in all threads, and in all processes that it is sent to. It is no reader for which
the ring keeps a generation, or for which generators wait (``REUSE``). If the generation is reclaimed in
the middle of an epoch, reading raises ``ReclaimedError``; it never continues with other samples. A
generation is kept for ``KEEP`` further promotions: a larger ``KEEP`` in the configuration gives an epoch
more time.

A checkpoint of Grain holds the positions of a ``RingSource``, not samples. To resume from it, construct a
source of the same generation: store ``RingSource.generation`` beside the checkpoint, and pass it as
``generation``. ``grain.DataLoader`` refuses the state of another source; ``grain.MapDataset`` does not
check. Without ``grain.ReadOptions``, Grain reads up to 500 items of a source ahead in each process, which
is a lot for large samples.

Example:
    >>> import grain
    >>> from ringreel.grain import RingIterDataset
    >>> for batch in RingIterDataset("config.yaml", parts=["data"], epochs=1).batch(2, drop_remainder=True):
    ...     print(batch["data"].shape)
    (2, 2, 3)
    (2, 2, 3)

    One generation, shuffled by Grain:

    >>> from ringreel.grain import RingSource
    >>> source = RingSource("config.yaml", parts=["data", "label"])
    >>> samples = grain.MapDataset.source(source).shuffle(seed=1)
    >>> options = grain.ReadOptions(num_threads=1, prefetch_buffer_size=2)
    >>> for batch in samples.to_iter_dataset(options).batch(2, drop_remainder=True):
    ...     print(batch["data"].shape)
    (2, 2, 3)
    (2, 2, 3)
"""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex

from ringreel._arguments import chosen_parts
from ringreel._dataset import Dataset
from ringreel._errors import ReclaimedError, RingMismatchError
from ringreel._ring import Config, Ring
from ringreel._sample import writable_values

if TYPE_CHECKING:
    from ringreel._grain_stream import RingIterDataset as RingIterDataset

__all__ = ["RingIterDataset", "RingSource"]


def __getattr__(name: str) -> Any:
    if name != "RingIterDataset":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ringreel import _grain_stream  # here, because it imports Grain, and this module

    return _grain_stream.RingIterDataset


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class RingSource:
    """The samples of one generation of a ring, by position, as Grain requests them.

    An item is a dict from the name of a part to a NumPy array, or to ``bytes`` for a part that was
    written as bytes. (Decode bytes before batching: NumPy stores them as fixed-length text and drops
    trailing zeros.) The arrays are writable and private to the item. A bfloat16 part is as in
    ``ringreel.Sample``.

    A source can be read by several threads, pickled (it stays with the same generation of the same
    ring), and used in a forked child. Its ``repr``, which Grain stores in checkpoints and compares, names
    what determines the samples: the ring's id, the generation and the parts. It does not name the ring's
    path.

    Args:
        config (str | os.PathLike | Mapping | Ring): Path of a configuration file, a dict, or a ``Ring``.
        parts (Iterable[str] | None): Names of the parts to return, in this order. The other parts are
            never converted. None (the default) returns all.
        timeout (float | None): Seconds to wait for the ring's first generation, here and in every
            process. None (the default) waits without limit.
        generation (int | None): Number of the generation. None (the default) is the newest one.

    Raises:
        ConfigError: The configuration cannot be used.
        RingMismatchError: The ring does not match the configuration.
        RingTimeoutError: No generation appeared within ``timeout`` seconds.
        ReclaimedError: Generation ``generation`` and its manifest were reclaimed. (If only its samples
            were, reading an item raises it.)
        ValueError: ``parts`` is empty or names a part that the ring does not have, or generation
            ``generation`` does not exist yet.

    Example:
        >>> from ringreel.grain import RingSource
        >>> source = RingSource("config.yaml", parts=["label"])
        >>> len(source), source[2]
        (4, {'label': array(2)})
        >>> source
        RingSource(ring='...', generation=1, parts=['label'])
    """

    def __init__(
        self,
        config: Config | Ring,
        parts: Iterable[str] | None = None,
        timeout: float | None = None,
        *,
        generation: int | None = None,
    ) -> None:
        ring = Ring._of(config)
        self._path = ring.path
        wanted = None if generation is None else max(operator.index(generation), 0)
        self._dataset = Dataset(ring._config, timeout, wanted, own=True)
        self._generation = self._dataset.generation  # opens the ring
        if generation is not None and generation != self._generation:
            if 0 < generation < self._generation:
                raise self._reclaimed(generation)
            raise ValueError(
                f"{self._path} has no generation {generation}: the newest is {self._generation}, the first is 1"
            )
        self._length = len(self._dataset)
        reader, _ = self._dataset._open()
        self._ring_id, names = reader.ring_id, reader.parts
        self._parts = chosen_parts(parts, names, self._path)
        self._pid = os.getpid()  # another process checks the generation again

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pid": None}

    @property
    def generation(self) -> int:
        """Number of the generation that is read.

        Example:
            >>> from ringreel.grain import RingSource
            >>> RingSource("config.yaml").generation
            1
        """
        return self._generation

    def __repr__(self) -> str:
        parts = ", ".join(map(repr, self._parts))
        return f"RingSource(ring={self._ring_id!r}, generation={self._generation}, parts=[{parts}])"

    def __len__(self) -> int:
        """Returns the number of samples of the generation."""
        return self._length

    def __getitem__(self, index: SupportsIndex) -> dict[str, Any]:
        """Returns the parts of a sample by name.

        Args:
            index (SupportsIndex): Position of the sample; negative positions count from the end.

        Raises:
            IndexError: The generation has no such sample.
            DamagedSampleError: The sample cannot be read.
            ReclaimedError: The generation was reclaimed.
            RingMismatchError: In another process, the path leads to another ring.
        """
        try:
            self._check()
            sample = self._dataset._at(operator.index(index), follow=False)
        except ReclaimedError as error:
            raise self._reclaimed(self._generation) from error
        return writable_values(sample, self._parts)

    def _getitems(self, indices: Sequence[SupportsIndex]) -> list[dict[str, Any]]:
        """Returns the items at ``indices``, in this order. Grain calls this method for several items."""
        return [self[index] for index in indices]

    def _check(self) -> None:
        """Checks that this process reads the same generation of the same ring.

        Raises:
            ReclaimedError: The generation has no manifest.
            RingMismatchError: The path leads to another ring.
        """
        if self._pid == os.getpid():
            return
        if self._dataset.generation != self._generation:
            raise ReclaimedError(f"generation {self._generation} has no manifest")
        found = self._dataset._open()[0].ring_id
        if found != self._ring_id:
            raise RingMismatchError(
                f"the ring at {self._path} is {found}, but this source reads {self._ring_id}: "
                "make a new source, or mount the same ring at that path"
            )
        self._pid = os.getpid()

    def _reclaimed(self, generation: int) -> ReclaimedError:
        if generation in self._dataset.missing:
            return ReclaimedError(
                f"generation {generation} of {self._path} is missing, although KEEP covers it, and this source reads "
                "no other samples: `ringreel verify` shows what is lost; make a new source for the newest generation"
            )
        return ReclaimedError(
            f"generation {generation} of {self._path} was reclaimed, and this source reads no other samples: make a "
            "new source for the newest generation (in each epoch, for example), or raise KEEP in the configuration"
        )
