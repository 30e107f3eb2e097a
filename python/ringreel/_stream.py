"""Samples one after the other, for one rank."""

from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

from ringreel import _ringreel
from ringreel._errors import DamagedSampleError
from ringreel._log import Waiting, logger
from ringreel._sample import Sample


class Stream(Iterator[Sample]):
    """An iterator over one generation after the other: this rank's share of each.

    Made by `Ring.stream`. It opens the ring with the first sample that is asked for. A sample that cannot be read is
    skipped, counted in `damaged`, and warned of once through `logging`. It is used by one process; in a forked child,
    make a new one.

    Raises `RingTimeoutError` when nothing came in time, and OSError for what the filesystem says.
    """

    def __init__(
        self,
        config: _ringreel.Config,
        rank: int,
        world_size: int,
        epochs: int | None,
        repeat: bool,
        timeout: float | None,
    ) -> None:
        self._config = config
        self._options = (rank, world_size, epochs, repeat, timeout)
        self._stream: _ringreel.Stream | None = None
        self._closed = False
        self._damaged: set[str | None] = set()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Sample:
        if self._closed:
            raise StopIteration
        waiting = Waiting()
        if self._stream is None:
            self._stream = _ringreel.Stream.open(self._config, *self._options, waiting)
        while True:
            item: Any = self._stream.next(waiting)
            if item is None:
                raise StopIteration
            if not isinstance(item, DamagedSampleError):
                return Sample(*item)
            if item.sample_id not in self._damaged:
                self._damaged.add(item.sample_id)
                logger.warning("skipped: %s", item)

    @property
    def damaged(self) -> int:
        """How many samples were skipped since they could not be read; each counts once."""
        return len(self._damaged)

    @property
    def epochs(self) -> int:
        """Passes over generations that were finished."""
        return 0 if self._stream is None else self._stream.epochs

    def close(self) -> None:
        """Ends the stream, and takes its reader off the ring's list. What was read stays."""
        self._closed = True
        self._stream = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        if self._stream is not None or self._closed:
            raise TypeError("a stream that has begun cannot be pickled: make it in the process that reads it")
        return Stream, (self._config, *self._options)
