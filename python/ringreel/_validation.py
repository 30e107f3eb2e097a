"""The samples that a ring holds out, by index."""

import bisect
import itertools
import operator
import os
from collections.abc import Iterator
from typing import Any, overload

from ringreel._errors import DamagedSampleError
from ringreel._log import Waiting, logger
from ringreel._ringreel import Config, Generation, Reader
from ringreel._sample import Sample


class Validation:
    """The samples that a ring holds out, as a sequence: `len(v)`, `v[i]`, `v[-1]`, `v[2:10]` (a list).

    Made by `Ring.validation`. They are the first n samples of a ring that was made with `VALIDATION: n`, oldest first:
    always the same, in the same order, and never served for training. It opens the ring when it is first used, and
    waits then until all n are there.

    A damaged sample keeps its index. A pass (`for sample in v`) leaves it out, logs a warning once, and counts it in
    `damaged`; `v[i]` raises. The ring never replaces it: restore the segment's file from a copy.

    It may be used by several threads, pickled (the configuration), and used on in a forked child; each process opens
    the ring for itself.
    """

    def __init__(self, config: Config, timeout: float | None = None) -> None:
        self._config = config
        self._timeout = timeout
        self._pid = 0
        self._reader: Reader | None = None
        self._parts: list[Generation] = []
        # Where each of them ends.
        self._ends: list[int] = []
        self._damaged: set[str | None] = set()

    def __getstate__(self) -> tuple[Any, ...]:
        return self._config, self._timeout

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        Validation.__init__(self, *state)

    def __repr__(self) -> str:
        what = f"{self._ends[-1]} samples" if self._ends else "not open yet"
        return f"<ringreel.Validation {self._config.ring} ({what})>"

    def __len__(self) -> int:
        """Returns the number of samples that the ring holds out, damaged ones included.

        Raises `RingMismatchError` if the ring was made without VALIDATION; `RingTimeoutError` if they did not come in
        time.
        """
        self._open()
        return self._ends[-1]

    @overload
    def __getitem__(self, index: int) -> Sample: ...

    @overload
    def __getitem__(self, index: slice) -> list[Sample]: ...

    def __getitem__(self, index: Any) -> Any:
        """The sample at `index` (an integer, NumPy's too; from the end when negative), or a list for a slice.

        Raises IndexError when there is no such sample; `DamagedSampleError` when it cannot be read; `ReclaimedError`
        when its generation was removed by hand; and what `len` raises.
        """
        if isinstance(index, slice):
            return [self._at(i) for i in range(*index.indices(len(self)))]
        return self._at(operator.index(index))

    def __iter__(self) -> Iterator[Sample]:
        """Yields the samples in order, without those that are damaged."""
        for i in range(len(self)):
            try:
                sample = self._at(i)
            except DamagedSampleError as error:
                self._warn(i, error)
                continue
            yield sample

    @property
    def damaged(self) -> int:
        """The number of samples that passes in this process found damaged and left out."""
        return len(self._damaged)

    def _warn(self, index: int, error: DamagedSampleError) -> None:
        if error.sample_id not in self._damaged:
            self._damaged.add(error.sample_id)
            logger.warning("validation sample %d is left out: %s", index, error)

    def _at(self, index: int) -> Sample:
        reader = self._open()
        total = self._ends[-1]
        position = index + total if index < 0 else index
        if not 0 <= position < total:
            raise IndexError(f"there is no sample {index}: {total} are held out")
        part = bisect.bisect_right(self._ends, position)
        before = self._ends[part - 1] if part > 0 else 0
        return Sample(*reader.sample(self._parts[part], position - before))

    def _open(self) -> Reader:
        """The reader of this process."""
        if self._pid != os.getpid() or self._reader is None:
            reader, parts = Reader.open_held_out(self._config, self._timeout, Waiting())
            self._ends = list(itertools.accumulate(len(part) for part in parts))
            self._parts = parts
            self._reader = reader
            self._pid = os.getpid()
        return self._reader
