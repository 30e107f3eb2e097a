"""Samples by index, in the newest generation."""

import operator
import os
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, overload

from ringreel._batch import Batch
from ringreel._errors import ReclaimedError
from ringreel._log import Waiting, logger
from ringreel._ringreel import Config, Generation, Reader
from ringreel._sample import Sample

_Read = TypeVar("_Read")

# A generation that is reclaimed between the look for it and the read of it is looked for afresh so many times.
_TRIES = 10


class Dataset:
    """The samples of one generation of a ring, as a sequence: `len(ds)`, `ds[i]`, `ds[-1]`, `ds[2:10]` (a list).

    Made by `Ring.dataset`. It opens the ring when it is first used, waits then for the ring's first generation, and
    stays with the newest generation of that moment (or with the one that was asked for, while that is there) until
    `refresh` is called, or until that generation is reclaimed: then it goes on with the newest one by itself.

    It may be used by several threads, pickled (configuration and number of the generation), and used on in a forked
    child; each process opens the ring for itself.
    """

    def __init__(
        self, config: Config, timeout: float | None = None, generation: int | None = None, own: bool = False
    ) -> None:
        self._config = config
        self._timeout = timeout
        self._wanted = generation
        self._own = own  # whether each sample gets memory of its own, to be written into
        self._pid = 0
        self._reader: Reader | None = None
        self._current: Generation | None = None

    def __getstate__(self) -> tuple[Any, ...]:
        generation = self._current.number if self._current is not None else self._wanted
        return self._config, self._timeout, generation, self._own

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        Dataset.__init__(self, *state)

    def __repr__(self) -> str:
        where = f"generation {self._current.number}" if self._current is not None else "not open yet"
        return f"<ringreel.Dataset {self._config.ring} ({where})>"

    @property
    def generation(self) -> int:
        """The number of the generation that is read."""
        return self._open()[1].number

    def __len__(self) -> int:
        """How many samples the generation holds, without those that are held out (see `Ring.validation`)."""
        return len(self._open()[1])

    @overload
    def __getitem__(self, index: int) -> Sample: ...

    @overload
    def __getitem__(self, index: slice) -> list[Sample]: ...

    def __getitem__(self, index: Any) -> Any:
        """The sample at `index` (an integer, NumPy's too; from the end when negative), or a list for a slice.

        Raises IndexError when there is no such sample; `DamagedSampleError` when it cannot be read; `ReclaimedError`
        when its generation is gone and there is no newer one; `RingTimeoutError` when nothing came in time.
        """
        if isinstance(index, slice):
            return [self._at(i) for i in range(*index.indices(len(self)))]
        return self._at(operator.index(index))

    def __iter__(self) -> Iterator[Sample]:
        """The samples in order. It ends early when it had to move on to a generation that is shorter."""
        for i in range(len(self)):
            try:
                yield self._at(i)
            except IndexError:
                return

    def batch(self, indices: Any) -> Batch:
        """The samples at `indices`, stacked part by part: much faster than one by one, where they are small.

        Parameters
        ----------
        indices : a slice, a range, or a sequence of integers (an array too), from the end when negative; the order
            is kept.

        Raises what `ds[i]` does; SampleError where samples of several shapes or element types cannot be stacked (bytes
        of several lengths can).
        """
        chosen = indices if isinstance(indices, (slice, range)) else list(indices)
        return self._follow(lambda reader, generation: Batch(*reader.batch(generation, _chosen(chosen, generation))))

    @property
    def missing(self) -> list[int]:
        """Generations that KEEP covers and that were missing when this process was to read them: the directory or
        the manifest is gone, which no role of the ring removes so early.

        The dataset goes on with the newest generation. It logs an error for each that is missing.
        """
        return [] if self._reader is None or self._pid != os.getpid() else self._reader.missing

    def refresh(self) -> bool:
        """Goes on with the newest generation. Whether that is another one."""
        reader, before = self._open()
        newest = reader.newest()
        self._current = newest
        return newest.number != before.number

    def _advance(self, at_least: int) -> None:
        """To the newest generation, if it holds that many samples."""
        reader, before = self._open()
        newest = reader.newest()
        if newest.number != before.number and len(newest) >= at_least:
            self._current = newest

    def _at(self, index: int, follow: bool = True) -> Sample:
        def read(reader: Reader, generation: Generation) -> Sample:
            return Sample(*reader.sample(generation, _place(index, generation)))

        return self._follow(read, follow)

    def _follow(self, read: Callable[[Reader, Generation], _Read], follow: bool = True) -> _Read:
        """What `read` makes of the generation that is read; of the next one where that is reclaimed meanwhile."""
        for _ in range(_TRIES):
            reader, generation = self._open()
            try:
                return read(reader, generation)
            except ReclaimedError:
                if not follow or not self._move_on(generation):
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
            logger.info("generation %d %s: going on with generation %d", gone.number, why, newest.number)
        return newest.number != gone.number

    def _open(self) -> tuple[Reader, Generation]:
        """The reader and the generation of this process."""
        if self._pid != os.getpid() or self._reader is None or self._current is None:
            wanted = self._current.number if self._current is not None else self._wanted
            reader = Reader.open(self._config, self._timeout, Waiting(), self._own)
            current = reader.generation(wanted) if wanted is not None else None
            self._current = current if current is not None else reader.newest()
            self._reader = reader
            self._pid = os.getpid()
        return self._reader, self._current


def _place(index: int, generation: Generation) -> int:
    place = index + len(generation) if index < 0 else index
    if not 0 <= place < len(generation):
        raise IndexError(f"there is no sample {index}: generation {generation.number} holds {len(generation)}")
    return place


def _chosen(indices: Any, generation: Generation) -> tuple[int, int] | list[int]:
    """As the reader takes them: first and end of those in a row, or a list."""
    if isinstance(indices, slice):
        indices = range(*indices.indices(len(generation)))
    if isinstance(indices, range) and indices.step == 1 and len(indices) > 0:
        return _place(indices.start, generation), _place(indices.stop - 1, generation) + 1
    return [_place(operator.index(index), generation) for index in indices]
