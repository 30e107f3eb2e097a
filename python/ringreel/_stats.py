"""How streams and their callers spend their time."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable
from typing import Any


@dataclasses.dataclass(frozen=True)
class StreamStats:
    """How a stream and its caller spent their time, and what the stream read.

    Times are measured with the monotonic clock. They begin with the first call of ``next`` and end when
    the stream ends.

    Attributes:
        waited_seconds (float): Seconds in ``next`` without a sample in the ring: until the ring was
            created, a generation was published, or a server answered again.
        read_seconds (float): Seconds in ``next`` for the rest: opening, checking, decompressing and
            copying samples, or waiting for the threads that do this ahead.
        step_seconds (float): Seconds in the caller, between two calls of ``next``.
        starved (float | None): ``waited_seconds`` divided by the sum of the three, from 0 to 1.
        share_read (float | None): ``distinct`` divided by ``offered``. With several ranks or loader workers,
            a stream reads its share.
        reads_per_sample (float | None): Mean number of times that each distinct sample was read.
        age_seconds (float | None): Mean age of a sample when it was read: this machine's clock minus the
            clock of the machine that generated it. It is as accurate as the two clocks agree.
        distinct (int): Distinct samples read.
        offered (int): Samples for training in the generations that were read.

    Example:
        >>> stream = ringreel.Ring("config.yaml").stream(epochs=2)
        >>> samples = list(stream)
        >>> stats = stream.stats()
        >>> stats.distinct, stats.share_read, stats.reads_per_sample
        (4, 1.0, 2.0)
    """

    waited_seconds: float = 0.0
    read_seconds: float = 0.0
    step_seconds: float = 0.0
    starved: float | None = None
    share_read: float | None = None
    reads_per_sample: float | None = None
    age_seconds: float | None = None
    distinct: int = 0
    offered: int = 0

    @staticmethod
    def sum(stats: Iterable[StreamStats]) -> StreamStats:
        """Adds up the times and counts of several streams, such as those of all ranks.

        Args:
            stats (Iterable[StreamStats]): The streams' statistics.

        Returns:
            StreamStats: The sums of the seconds and counts. The other values follow from them; ``age_seconds``
            is the mean over all reads.

        Example:
            >>> ring = ringreel.Ring("config.yaml")
            >>> streams = [ring.stream(rank, 2, epochs=1, run="sums") for rank in range(2)]
            >>> samples = [list(stream) for stream in streams]
            >>> ringreel.StreamStats.sum(stream.stats() for stream in streams).distinct
            4
        """
        each = list(stats)
        distinct, offered = sum(one.distinct for one in each), sum(one.offered for one in each)
        reads = [one.distinct * (one.reads_per_sample or 0.0) for one in each]
        aged = [(many, one.age_seconds) for many, one in zip(reads, each) if one.age_seconds is not None]
        total = times(
            sum(one.waited_seconds for one in each),
            sum(one.read_seconds for one in each),
            sum(one.step_seconds for one in each),
        )
        return dataclasses.replace(
            total,
            share_read=ratio(distinct, offered),
            reads_per_sample=ratio(sum(reads), distinct),
            age_seconds=ratio(sum(many * age for many, age in aged), sum(many for many, _ in aged)),
            distinct=distinct,
            offered=offered,
        )


def ratio(part: float, of: float) -> float | None:
    """Returns ``part / of``, or None if ``of`` is 0."""
    return part / of if of else None


def times(waited: float, read: float, step: float) -> StreamStats:
    """Returns statistics with these seconds, and without counts."""
    return StreamStats(waited, read, step, ratio(waited, waited + read + step))


def stats_of(source: Any) -> StreamStats | None:
    """Returns the statistics of a stream, and None for an object of a class that is not ringreel's."""
    if not type(source).__module__.startswith("ringreel.") or not hasattr(source, "stats"):
        return None
    found = source.stats()
    return found if isinstance(found, StreamStats) else None


class Calls:
    """Divides the time of an iterator between its ``next`` and the caller, as ``Stream`` does.

    Another thread may call ``seconds``. A copy, also in another process, begins with zeros.
    """

    def __init__(self) -> None:
        # One tuple, so that another thread sees values of the same moment: seconds in `next`, seconds in the caller,
        # whether `next` runs, and since when. No time is counted before the first call and after the end.
        self._state: tuple[float, float, bool, float | None] = (0.0, 0.0, False, None)

    def __reduce__(self) -> tuple[type[Calls], tuple[()]]:
        return Calls, ()

    def enter(self) -> None:
        """Begins a call of ``next``."""
        self._switch(True, False)

    def leave(self) -> None:
        """Returns to the caller."""
        self._switch(False, False)

    def stop(self) -> None:
        """Ends the iterator: no more time is counted until the next call."""
        self._switch(False, True)

    def seconds(self) -> tuple[float, float]:
        """Returns the seconds in ``next`` and in the caller up to now."""
        return self._until(time.monotonic())

    def _until(self, now: float) -> tuple[float, float]:
        inside, outside, is_inside, since = self._state
        elapsed = 0.0 if since is None else max(now - since, 0.0)
        return (inside + elapsed, outside) if is_inside else (inside, outside + elapsed)

    def _switch(self, is_inside: bool, ends: bool) -> None:
        now = time.monotonic()
        self._state = (*self._until(now), is_inside, None if ends else now)

    def stats(self, waited: float) -> StreamStats:
        """Returns the times, of which ``next`` spent ``waited`` seconds without a sample in the ring."""
        inside, outside = self.seconds()
        waited = min(waited, inside)
        return times(waited, inside - waited, outside)
