"""The samples that a ring holds out for validation, by index."""

from __future__ import annotations

import bisect
import itertools
import operator
import os
from collections.abc import Iterator
from typing import Any, overload

from ringreel._arguments import position_of
from ringreel._errors import DamagedSampleError
from ringreel._log import Waiting, logger
from ringreel._ringreel import Config, Generation, Reader
from ringreel._sample import Sample
from ringreel._wording import counted


class Validation:
    """The samples that a ring holds out, as a sequence, made by ``Ring.validation``.

    ``v[i]`` and ``v[-1]`` are samples, ``v[2:10]`` is a list of samples.

    They are the first ``n`` samples of a ring that was created with ``VALIDATION: n``, oldest first. They
    never change and are never served for training. The sequence opens the ring when it is first used,
    and then waits until all ``n`` samples are readable.

    A damaged sample keeps its index. Iteration leaves it out, logs a warning once, and counts it in
    ``damaged``; ``v[i]`` raises. The ring never replaces it: restore the segment's file from a copy.

    It can be used by several threads, pickled (the configuration), and used in a forked child. Each
    process opens the ring separately.

    Example:
        >>> ring = ringreel.Ring({"DBNAME": "split", "SWAP_CAP": 4, "SAMPLE": ["x"], "VALIDATION": 2})
        >>> summary = ringreel.run_generator([(n,) for n in range(8)], ring)
        >>> validation = ring.validation()
        >>> len(validation), int(validation[1]["x"]), validation.damaged
        (2, 1, 0)
    """

    def __init__(self, config: Config, timeout: float | None = None) -> None:
        self._config = config
        self._timeout = timeout
        self._pid = 0
        self._reader: Reader | None = None
        self._parts: list[Generation] = []
        # The index at which each generation's samples end.
        self._ends: list[int] = []
        self._damaged: set[str | None] = set()

    def __getstate__(self) -> tuple[Any, ...]:
        return self._config, self._timeout

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        Validation.__init__(self, *state)

    def __repr__(self) -> str:
        what = counted(self._ends[-1], "sample") if self._ends else "not open yet"
        return f"<ringreel.Validation {self._config.ring} ({what})>"

    def __len__(self) -> int:
        """Returns the number of samples that the ring holds out, damaged ones included.

        Raises:
            RingMismatchError: The ring was created without ``VALIDATION``.
            RingTimeoutError: The samples were not readable within ``timeout`` seconds.
        """
        self._open()
        return self._ends[-1]

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
            IndexError: The ring holds out no such sample.
            DamagedSampleError: The sample cannot be read.
            ReclaimedError: The directory of the sample's generation was removed by hand.
            RingMismatchError: The ring was created without ``VALIDATION``.
            RingTimeoutError: The samples were not readable within ``timeout`` seconds.
        """
        if isinstance(index, slice):
            return [self._at(i) for i in range(*index.indices(len(self)))]
        return self._at(operator.index(index))

    def __iter__(self) -> Iterator[Sample]:
        """Yields the samples in order, without the damaged ones."""
        for i in range(len(self)):
            try:
                sample = self._at(i)
            except DamagedSampleError as error:
                self._warn(i, error)
                continue
            yield sample

    @property
    def damaged(self) -> int:
        """Number of samples that iterations in this process found damaged and left out."""
        return len(self._damaged)

    def _warn(self, index: int, error: DamagedSampleError) -> None:
        if error.sample_id not in self._damaged:
            self._damaged.add(error.sample_id)
            logger.warning("validation sample %d skipped: %s", index, error)

    def _at(self, index: int) -> Sample:
        reader = self._open()
        position = position_of(index, self._ends[-1], "the ring holds out")
        part = bisect.bisect_right(self._ends, position)
        before = self._ends[part - 1] if part > 0 else 0
        return Sample(*reader.sample(self._parts[part], position - before))

    def _open(self) -> Reader:
        """Returns the reader of this process."""
        if self._pid != os.getpid() or self._reader is None:
            reader, parts = Reader.open_held_out(self._config, self._timeout, Waiting())
            self._ends = list(itertools.accumulate(len(part) for part in parts))
            self._parts = parts
            self._reader = reader
            self._pid = os.getpid()
        return self._reader
