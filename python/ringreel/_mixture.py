"""Mixtures: several streams of samples as one."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import GeneratorType
from typing import TYPE_CHECKING, Any

from ringreel._arguments import integer
from ringreel._closing import Closing
from ringreel._errors import RingreelError, add_note
from ringreel._ring import Ring
from ringreel._state import check_state
from ringreel._stats import Calls, StreamStats, stats_of
from ringreel._uniform import uniform_of
from ringreel._wording import counted

if TYPE_CHECKING:
    from typing_extensions import Self

_FORMAT = "ringreel.Mixture/1"


@dataclasses.dataclass(frozen=True)
class MixtureStats(StreamStats):
    """How a ``Mixture`` and its caller spent their time, and what its sources read.

    The attributes of ``StreamStats`` are those of the mixture as a whole. ``waited_seconds`` is the sum over
    the sources, ``read_seconds`` the rest of the time in ``next``, and ``step_seconds`` the time of the
    mixture's caller. The counts are sums over the sources that have ``stats``.

    Attributes:
        sources (tuple[StreamStats | None, ...]): Those of each source, None for a source without ``stats``.
            The ``step_seconds`` of a source contain the time in which the mixture read other sources.

    Example:
        >>> mixture = ringreel.Mixture([ringreel.Ring("config.yaml").stream(epochs=1), ["a", "b"]])
        >>> items = list(mixture)
        >>> stats = mixture.stats()
        >>> stats.distinct, stats.sources[0].distinct, stats.sources[1]
        (4, 4, None)
    """

    sources: tuple[StreamStats | None, ...] = ()


class Mixture(Closing, Iterator[Any]):
    """An iterator that draws each item from one of several sources, chosen at random by their weights.

    Items are passed through unchanged. The choice of a draw is computed from ``seed``, the number of the
    draw and the sources that have ended, and from nothing else. So a mixture neither uses nor changes
    other random numbers, and one that continues from a state chooses as the first one would have. Ranks
    with the same seed draw from the same source at the same step, as long as the same sources have
    ended; add the rank to the seed for different choices.

    Only the mixture may read its sources. It reads one item at a time, never ahead, and opens a source
    with the first draw from it. A mixture belongs to one thread and one process. It is a context manager:
    leaving the ``with`` block closes the sources.

    Args:
        sources (Sequence[Iterable]): Streams of rings, ``StreamLoader`` objects, lists, generators, ...
        weights (Sequence[float] | None): A number per source, 0 or more; only their ratios matter. A
            source with weight 0 is never read, and not waited for. None (the default) weights all
            equally.
        seed (int): Seed of the choices. Default 0.
        stop (str): What happens when a source ends. ``"all"`` (the default): the other sources continue
            with the ratios of their weights, and the mixture ends when all have ended. ``"first"``: the
            mixture ends.

    Raises:
        ValueError: ``sources`` is empty, ``weights`` are invalid, or ``stop`` is unknown.
        TypeError: A source is not iterable.

    ``next`` raises whatever a source raises, unchanged, with a note that names the source and the item,
    both counted from 0. The draw does not count then: the next one is from the same source. A generator
    (``StreamLoader`` uses one) cannot continue after an error, so later draws from it raise
    ``RingreelError``.

    Example:
        >>> brains = ringreel.Ring("config.yaml").stream(epochs=1)
        >>> mixture = ringreel.Mixture([brains, ["lesion"] * 4], weights=[3, 1], seed=1)
        >>> items = list(mixture)
        >>> len(items), mixture.given
        (8, (4, 4))
    """

    def __init__(
        self,
        sources: Sequence[Iterable[Any]],
        weights: Sequence[float] | None = None,
        seed: int = 0,
        stop: str = "all",
    ) -> None:
        self._sources: list[Any] = list(sources)
        self._weights = _checked(weights, len(self._sources))
        self._seed = integer("seed", seed)
        if stop not in ("all", "first"):
            raise ValueError(f"stop: expected 'all' or 'first', found {stop!r}")
        self._stop = stop
        for number, source in enumerate(self._sources):
            kind = type(source)
            if issubclass(kind, (str, bytes)) or not (hasattr(kind, "__iter__") or hasattr(kind, "__getitem__")):
                hint = ": pass its stream()" if issubclass(kind, Ring) else ""
                raise TypeError(f"source {number} of a mixture: expected an iterable, found {kind.__name__}{hint}")
            if kind.__name__ in ("RingStream", "MixtureStream") and kind.__module__.startswith("ringreel."):
                raise TypeError(
                    f"source {number} of a mixture is a {kind.__name__}, which has no position of its own to save: "
                    "pass the stream() of a ringreel.Ring, or make a ringreel.torch.MixtureStream of RingStreams"
                )
        self._read: set[int] = set()  # Sources from which an iterator was made.
        self._closed = False
        self._calls = Calls()
        self._begin([0] * len(self._sources), [False] * len(self._sources), None)

    def _begin(self, given: list[int], ended: list[bool], last: int | None) -> None:
        """Moves to the position after ``given[i]`` items of source ``i``."""
        self._given = given
        self._ended = ended
        self._last = last
        self._skip = [0] * len(given)
        self._iterators: list[Iterator[Any] | None] = [None] * len(given)
        self._failed: dict[int, Exception] = {}

    def __repr__(self) -> str:
        sources, items = counted(len(self._sources), "source"), counted(sum(self._given), "item")
        return f"<ringreel.Mixture of {sources} ({items} given)>"

    @property
    def last(self) -> int | None:
        """Number, from 0, of the source of the last item. None before the first item.

        Example:
            >>> mixture = ringreel.Mixture([["a"], ["b"]], weights=[0, 1])
            >>> next(mixture), mixture.last
            ('b', 1)
        """
        return self._last

    @property
    def given(self) -> tuple[int, ...]:
        """Number of items from each source."""
        return tuple(self._given)

    def __len__(self) -> int:
        """Returns the number of items that are left to ``next``, counted from the lengths of the sources.

        Raises:
            TypeError: The number is unknown, because that of a source is.

        Example:
            >>> mixture = ringreel.Mixture([[1, 2, 3], [10, 20]])
            >>> item = next(mixture)
            >>> len(mixture)
            4
        """
        if self._closed or (self._stop == "first" and any(self._ended)):
            return 0
        left = [self._left(number) if weight > 0 else 0 for number, weight in enumerate(self._weights)]
        return mixture_length(self._weights, self._seed, self._stop, left, sum(self._given))

    def __bool__(self) -> bool:
        """Returns True, because whether items are left is unknown before they are read."""
        return True

    def _left(self, number: int) -> int:
        """Returns the number of items that are left of a source."""
        if self._ended[number]:
            return 0
        source = self._sources[number]
        try:
            # The length of an iterator is what is left of it, that of other sources all that they have.
            return len(source) if hasattr(type(source), "__next__") else max(len(source) - self._given[number], 0)
        except (TypeError, NotImplementedError) as error:
            raise TypeError(f"a mixture has no length, because source {number} has none: {error}") from error

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        self._calls.enter()
        try:
            item = self._draw()
        except StopIteration:
            self._calls.stop()
            raise
        except BaseException:
            self._calls.leave()
            raise
        self._calls.leave()
        return item

    def _draw(self) -> Any:
        while (chosen := self._choice()) is not None:
            try:
                item = next(self._opened(chosen))
            except StopIteration:
                self._ended[chosen] = True
                self._iterators[chosen] = None
                continue
            except Exception as error:
                if isinstance(self._iterators[chosen], GeneratorType):
                    self._failed[chosen] = error
                add_note(error, f"ringreel: source {chosen} of a mixture, item {self._given[chosen]}")
                raise
            self._given[chosen] += 1
            self._last = chosen
            return item
        raise StopIteration

    def _choice(self) -> int | None:
        """Returns the number of the source of this draw, or None at the end."""
        if self._closed or (self._stop == "first" and any(self._ended)):
            return None
        left = [n for n, weight in enumerate(self._weights) if weight > 0 and not self._ended[n]]
        if not left:
            return None
        # A draw from a source that has ended is repeated among the others with a new number, because the old one is no
        # longer uniform.
        return _drawn(self._weights, left, uniform_of(f"{self._seed} {sum(self._given)} {sum(self._ended)}"))

    def _opened(self, number: int) -> Iterator[Any]:
        if number in self._failed:
            raise RingreelError(
                f"source {number} of a mixture is read by a generator, which cannot continue after its error"
            ) from self._failed[number]
        iterator = self._iterators[number]
        if iterator is None:
            iterator = iter(self._sources[number])
            self._read.add(number)
            for before in range(self._skip[number]):
                try:
                    next(iterator)
                except StopIteration:
                    raise RingreelError(
                        f"source {number} of a mixture ended after {counted(before, 'item')}, but "
                        f"{self._skip[number]} had been read when the state was saved: the source has changed"
                    ) from None
            self._iterators[number] = iterator
        return iterator

    def state_dict(self) -> dict[str, Any]:
        """Returns the position of the mixture.

        Returns:
            dict: The position, with the state of each source that has ``state_dict`` and
            ``load_state_dict`` (None for the others). It holds values of JSON's types if the states of the
            sources do.

        Raises:
            RingreelError: The mixture was closed: a closed source may not know its position.

        Example:
            >>> mixture = ringreel.Mixture([[1, 2, 3], [10, 20, 30]])
            >>> items = [next(mixture), next(mixture)]
            >>> sum(mixture.state_dict()["given"])
            2
        """
        if self._closed:
            raise RingreelError("this mixture is closed: save its state before closing it")
        return {
            "format": _FORMAT,
            **self._made(),
            "given": list(self._given),
            "ended": list(self._ended),
            "last": self._last,
            "sources": [source.state_dict() if _has_state(source) else None for source in self._sources],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from the position that ``state_dict`` returned: the same items follow.

        A source that has ``load_state_dict`` gets its own state. Any other is read again from its start, and
        the items that were already drawn are skipped. The next iteration raises ``RingreelError`` if a source
        has fewer items than were drawn from it.

        Args:
            state (Mapping): The state of a mixture with the same arguments.

        Raises:
            ValueError: The state is that of a mixture with other ``weights``, ``seed`` or ``stop``, or with
                another number or kind of sources; or a source without a state is an iterator that this
                mixture has read from: make a new one. The mixture is unchanged; if a source's own
                ``load_state_dict`` fails, the sources before it keep their new positions.

        Example:
            >>> mixture = ringreel.Mixture([[1, 2, 3], [10, 20, 30]])
            >>> first = next(mixture)
            >>> state = mixture.state_dict()
            >>> resumed = ringreel.Mixture([[1, 2, 3], [10, 20, 30]])
            >>> resumed.load_state_dict(state)
            >>> list(resumed) == list(mixture)
            True
        """
        check_state(state, _FORMAT, self._made())
        saved = list(state["sources"])
        for number, source in enumerate(self._sources):
            if (saved[number] is not None) != _has_state(source):
                has, had = ("has", "none") if saved[number] is None else ("has no", "one")
                raise ValueError(f"source {number} of a mixture {has} state_dict, but the saved state has {had}")
            # The state of a stream that was not read from is empty, and cannot move the stream back.
            if not saved[number] and number in self._read and hasattr(type(source), "__next__"):
                raise ValueError(
                    f"source {number} of a mixture is an iterator ({type(source).__name__}) that was already read "
                    "from and cannot go back: make a new iterator and a new mixture"
                )
        for source, its_state in zip(self._sources, saved):
            if its_state is not None:
                source.load_state_dict(its_state)
        self._begin([int(n) for n in state["given"]], [bool(e) for e in state["ended"]], state["last"])
        self._skip = [0 if saved[n] is not None else given for n, given in enumerate(self._given)]

    def _made(self) -> dict[str, Any]:
        """Returns the arguments that determine the order."""
        return {"weights": list(self._weights), "seed": self._seed, "stop": self._stop}

    def stats(self) -> MixtureStats:
        """Returns how the mixture and its caller spent their time, and what was read. Never blocks.

        Another thread may call it while ``next`` waits. See ``Stream.stats``.

        Returns:
            MixtureStats: Times in seconds, and counts: of the mixture, and of each source.

        Example:
            >>> ring = ringreel.Ring("config.yaml")
            >>> mixture = ringreel.Mixture([ring.stream(epochs=1), ring.stream(epochs=2)])
            >>> samples = list(mixture)
            >>> stats = mixture.stats()
            >>> stats.reads_per_sample, [source.reads_per_sample for source in stats.sources]
            (1.5, [1.0, 2.0])
        """
        sources = tuple(stats_of(source) for source in self._sources)
        total = StreamStats.sum(stats for stats in sources if stats is not None)
        own = self._calls.stats(total.waited_seconds)
        seconds = {name: getattr(own, name) for name in ("waited_seconds", "read_seconds", "step_seconds", "starved")}
        return MixtureStats(**{**dataclasses.asdict(total), **seconds}, sources=sources)

    def suspend(self) -> None:
        """Ends the mixture; suspends each source that has ``suspend``, and closes the others.

        See ``Stream.suspend``. Call it after ``state_dict``.

        Example:
            >>> mixture = ringreel.Mixture([ringreel.Ring("config.yaml").stream(run="nightly")])
            >>> sample, state = next(mixture), mixture.state_dict()
            >>> mixture.suspend()
            >>> list(mixture)
            []
        """
        for source in self._sources:
            suspend = getattr(source, "suspend", None)
            if suspend is not None:
                suspend()
        self.close()

    def close(self) -> None:
        """Closes each source, and its iterator, if it has ``close``. Ends the mixture.

        Example:
            >>> mixture = ringreel.Mixture([ringreel.Ring("config.yaml").stream()])
            >>> sample = next(mixture)
            >>> mixture.close()
            >>> list(mixture)
            []
        """
        for source, iterator in zip(self._sources, self._iterators):
            for each in (source,) if iterator is source else (iterator, source):
                close = getattr(each, "close", None)
                if close is not None:
                    close()
        self._closed = True
        self._calls.stop()


def mixture_length(weights: Sequence[float], seed: int, stop: str, left: Sequence[int], given: int = 0) -> int:
    """Returns the number of items that a mixture yields before it ends.

    Args:
        weights (Sequence[float]): The weights of the sources.
        seed (int): Seed of the choices.
        stop (str): ``"all"``, or ``"first"`` if no source has ended yet.
        left (Sequence[int]): How many items each source has; 0 for one of weight 0.
        given (int): Number of items that were drawn before.
    """
    if stop == "all":
        return sum(left)
    # The draw that finds its source at the end ends the mixture. The choices before it have to be made to find it.
    among = [n for n, weight in enumerate(weights) if weight > 0]
    remaining = list(left)
    drawn = 0
    while True:
        source = _drawn(weights, among, uniform_of(f"{seed} {given + drawn} 0"))
        if remaining[source] == 0:
            return drawn
        remaining[source] -= 1
        drawn += 1


def _drawn(weights: Sequence[float], among: Sequence[int], uniform: float) -> int:
    """Returns the source of a draw among ``among``, from a random number in [0, 1)."""
    point = uniform * math.fsum(weights[n] for n in among)
    for n in among:
        point -= weights[n]
        if point < 0:
            return n
    return among[-1]


def _checked(weights: Sequence[float] | None, count: int) -> list[float]:
    if count == 0:
        raise ValueError("a mixture needs at least one source")
    found = [1.0] * count if weights is None else [float(weight) for weight in weights]
    if len(found) != count:
        raise ValueError(f"weights: expected {count}, one for each source, found {len(found)}")
    if not (math.isfinite(sum(found)) and min(found) >= 0 and any(found)):
        raise ValueError(f"weights: expected finite numbers of 0 or more, not all 0, found {found}")
    return found


def _has_state(source: Any) -> bool:
    return hasattr(source, "state_dict") and hasattr(source, "load_state_dict")
