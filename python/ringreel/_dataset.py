"""Samples by index, in the newest generation."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, overload

from ringreel._arguments import position_of
from ringreel._batch import Batch
from ringreel._errors import ReclaimedError
from ringreel._hold_out import HoldOut
from ringreel._log import Waiting, logger
from ringreel._ringreel import Config, Generation, Reader
from ringreel._sample import Sample

_Read = TypeVar("_Read")

# Number of attempts to read a sample whose generation is reclaimed between lookup and read.
_TRIES = 10


class Dataset:
    """The samples of one generation of a ring, as a sequence, made by ``Ring.dataset``.

    ``ds[i]`` and ``ds[-1]`` are samples, ``ds[2:10]`` is a list of samples.

    The dataset opens the ring when it is first used, and then waits for the ring's first generation. It
    reads the newest generation of that moment (or the requested one, if it exists) until ``refresh`` is
    called. If its generation is reclaimed before that, it continues with the newest one.

    It can be used by several threads, pickled (configuration and number of the generation), and used in
    a forked child. Each process opens the ring separately.

    Example:
        >>> dataset = ringreel.Ring("config.yaml").dataset()
        >>> len(dataset), int(dataset[-1]["label"])
        (4, 3)
        >>> [int(sample["label"]) for sample in dataset[1:3]]
        [1, 2]
    """

    def __init__(
        self,
        config: Config,
        timeout: float | None = None,
        generation: int | None = None,
        own: bool = False,
        hold_out: HoldOut | None = None,
        held_out: bool = False,
        follows: bool = True,
    ) -> None:
        self._config = config
        self._timeout = timeout
        self._wanted = generation
        self._own = own  # whether each sample gets private, writable memory
        self._hold_out = hold_out
        self._held_out = held_out  # whether the samples are those that the rule holds out, or the others
        self._follows = follows  # whether reading continues with the newest generation
        self._pid = 0
        self._reader: Reader | None = None
        self._current: Generation | None = None

    def __getstate__(self) -> tuple[Any, ...]:
        generation = self._current.number if self._current is not None else self._wanted
        rule = self._hold_out, self._held_out
        return (self._config, self._timeout, generation, self._own, *rule, self._follows)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        Dataset.__init__(self, *state)

    def __repr__(self) -> str:
        where = f"generation {self._current.number}" if self._current is not None else "not open yet"
        return f"<ringreel.Dataset {self._config.ring} ({where})>"

    @property
    def generation(self) -> int:
        """Number of the generation that is read."""
        return self._open()[1].number

    def __len__(self) -> int:
        """Returns the number of samples in the generation, without those of ``Ring.validation``."""
        return len(self._open()[1])

    @overload
    def __getitem__(self, index: int) -> Sample: ...

    @overload
    def __getitem__(self, index: slice) -> list[Sample]: ...

    def __getitem__(self, index: Any) -> Any:
        """Returns the sample at an index, or a list of samples for a slice.

        Args:
            index (int | slice): Position of the sample; negative positions count from the end. NumPy's
                integers are accepted.

        Raises:
            IndexError: The generation has no such sample.
            DamagedSampleError: The sample cannot be read.
            ReclaimedError: The generation was reclaimed, and no newer one exists.
            RingTimeoutError: No generation appeared within ``timeout`` seconds.
        """
        if isinstance(index, slice):
            return [self._at(i) for i in range(*index.indices(len(self)))]
        return self._at(operator.index(index))

    def __iter__(self) -> Iterator[Sample]:
        """Yields the samples in order.

        Ends early if the dataset had to continue with a generation that is shorter.
        """
        for i in range(len(self)):
            try:
                yield self._at(i)
            except IndexError:
                return

    def batch(self, indices: Any) -> Batch:
        """Returns the samples at ``indices``, stacked part by part.

        For small samples this is much faster than one index at a time.

        Args:
            indices (slice | range | Sequence[int]): Positions of the samples, in the order of the batch;
                negative positions count from the end. An integer array is accepted.

        Returns:
            Batch: The stacked parts by name.

        Raises:
            SampleError: The samples have different shapes or element types. (Parts of bytes may have
                different lengths.)
            IndexError: The generation has no such sample.
            DamagedSampleError: A sample cannot be read.
            ReclaimedError: The generation was reclaimed, and no newer one exists.
            RingTimeoutError: No generation appeared within ``timeout`` seconds.

        Example:
            >>> batch = ringreel.Ring("config.yaml").dataset().batch([3, 0, 1])
            >>> batch["label"], batch["data"].shape
            (array([3, 0, 1]), (3, 2, 3))
        """
        chosen = indices if isinstance(indices, (slice, range)) else list(indices)
        return self._follow(lambda reader, generation: Batch(*reader.batch(generation, _chosen(chosen, generation))))

    @property
    def missing(self) -> list[int]:
        """Generations that ``KEEP`` covers and whose directory or manifest was missing.

        No role of the ring removes a generation that early. The dataset continues with the newest
        generation, and logs an error for each missing one. Each process counts separately.

        Example:
            >>> ringreel.Ring("config.yaml").dataset().missing
            []
        """
        return [] if self._reader is None or self._pid != os.getpid() else self._reader.missing

    def refresh(self) -> bool:
        """Switches to the newest generation.

        Returns:
            bool: Whether the generation changed.

        Raises:
            RingTimeoutError: No generation appeared within ``timeout`` seconds.

        Example:
            >>> dataset = ringreel.Ring("config.yaml").dataset()
            >>> dataset.generation
            1
            >>> samples = [(np.zeros((2, 3), np.float32), 9)] * 4
            >>> summary = ringreel.run_generator(samples, "config.yaml", promote=True)
            >>> dataset.refresh(), dataset.generation
            (True, 2)
        """
        reader, before = self._open()
        newest = reader.newest()
        if newest.number == before.number:
            return False
        self._current = self._served(reader, newest)
        return True

    def _advance(self, at_least: int) -> None:
        """Switches to the newest generation if it has at least ``at_least`` samples."""
        reader, before = self._open()
        newest = reader.newest()
        if newest.number != before.number and len(served := self._served(reader, newest)) >= at_least:
            self._current = served

    def _at(self, index: int, follow: bool = True) -> Sample:
        def read(reader: Reader, generation: Generation) -> Sample:
            return Sample(*reader.sample(generation, _position(index, generation)))

        return self._follow(read, follow)

    def _follow(self, read: Callable[[Reader, Generation], _Read], follow: bool = True) -> _Read:
        """Returns ``read`` of the current generation, or of the newest one if that was reclaimed."""
        for _ in range(_TRIES):
            reader, generation = self._open()
            try:
                return read(reader, generation)
            except ReclaimedError:
                if not (follow and self._follows and self._move_on(generation)):
                    raise
        raise ReclaimedError(
            f"generations of {self._config.ring} are reclaimed faster than a sample is read: "
            "raise KEEP or SWAP_CAP in the configuration"
        )

    def _move_on(self, gone: Generation) -> bool:
        self.refresh()
        _, newest = self._open()
        if newest.number != gone.number:
            why = "is missing" if gone.number in self.missing else "was reclaimed"
            logger.info("generation %d %s: continuing with generation %d", gone.number, why, newest.number)
        return newest.number != gone.number

    def _open(self) -> tuple[Reader, Generation]:
        """Returns the reader and the generation of this process."""
        if self._pid != os.getpid() or self._reader is None or self._current is None:
            wanted = self._current.number if self._current is not None else self._wanted
            reader = Reader.open(self._config, self._timeout, Waiting(), self._own)
            current = reader.generation(wanted) if wanted is not None else None
            if current is None and wanted is not None and not self._follows:
                raise ReclaimedError(f"{self._config.ring} has no generation {wanted}")
            self._current = self._served(reader, current if current is not None else reader.newest())
            self._reader = reader
            self._pid = os.getpid()
        return self._reader, self._current

    def _served(self, reader: Reader, generation: Generation) -> Generation:
        """Returns the generation with the samples of this dataset only."""
        rule = self._hold_out
        while rule is not None:
            try:
                return rule._part(reader, generation, self._held_out)
            except ReclaimedError:
                newest = reader.newest()
                if not self._follows or newest.number == generation.number:
                    raise
                generation = newest
        return generation


def _position(index: int, generation: Generation) -> int:
    return position_of(index, len(generation), "generation %d has", generation.number)


def _chosen(indices: Any, generation: Generation) -> tuple[int, int] | list[int]:
    """Returns ``indices`` in the reader's form: start and end of a contiguous range, or a list."""
    if isinstance(indices, slice):
        indices = range(*indices.indices(len(generation)))
    if isinstance(indices, range) and indices.step == 1 and len(indices) > 0:
        return _position(indices.start, generation), _position(indices.stop - 1, generation) + 1
    chosen = list(map(operator.index, indices))
    if chosen and min(chosen) >= 0 and max(chosen) < len(generation):
        return chosen  # A call for each index would take longer than reading a small sample.
    return [_position(index, generation) for index in chosen]
