"""Several streams of samples as one."""

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import GeneratorType, TracebackType
from typing import Any, Self

from ringreel._arguments import integer
from ringreel._errors import RingreelError
from ringreel._loader import check_state
from ringreel._ring import Ring

_FORMAT = "ringreel.Mixture/1"


class Mixture(Iterator[Any]):
    """An iterator that draws each item from one of several sources, chosen at random by their weights::

        brains, lesions = ringreel.Ring("brains.yaml"), ringreel.Ring("lesions.yaml")
        mixture = ringreel.Mixture([brains.stream(), lesions.stream()], weights=[3, 1])
        for sample in mixture:                  # three of four are brains
            mixture.last                        # 0 or 1: which source this sample is from

    Items pass through unchanged. The choice of each draw is worked out from `seed`, the number of the draw and what has
    ended, and from nothing else: random numbers of others are neither used nor changed, and a mixture that goes on from
    a state chooses as the first one would have. Ranks with the same seed draw from the same source at the same step (as
    long as the same sources have ended); add the rank to the seed for choices of their own.

    Sources are read by this mixture alone, one item at a time and never ahead, each from the first draw on that falls
    on it. Of use to one thread and one process. A context manager: leaving it closes the sources.

    Parameters
    ----------
    sources : iterables: the rings' streams, `StreamLoader`s, lists, generators, ...
    weights : a number for each source, 0 or more, of which only the ratios matter. None: all the same. A source with
        weight 0 is never read, and is not waited for.
    seed : integer.
    stop : what happens when a source ends. "all": it is left out, the others go on with the ratios of their weights
        among them, and the mixture ends when all have ended. "first": the mixture ends.

    Raises
    ------
    When made: ValueError for no sources, for weights that do not fit, or another `stop`; TypeError for a source that is
    not iterable.

    While iterating: whatever a source raises, unchanged, with a note that names the source and the item, counted from
    0. The draw does not count then: the next one is from the same source. A generator (a `StreamLoader` is read by one)
    cannot go on after an error: RingreelError says so from then on.
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
                hint = ": give its stream()" if issubclass(kind, Ring) else ""
                raise TypeError(f"source {number} of a mixture is no iterable of items but {kind.__name__}{hint}")
            if (kind.__module__, kind.__name__) == ("ringreel._torch_stream", "RingStream"):
                raise TypeError(
                    f"source {number} of a mixture is a RingStream, whose iterators alone know where they are: "
                    "give the stream() of a ringreel.Ring"
                )
        self._read: set[int] = set()  # Sources of which an iterator was made.
        self._closed = False
        self._begin([0] * len(self._sources), [False] * len(self._sources), None)

    def _begin(self, given: list[int], ended: list[bool], last: int | None) -> None:
        """Goes to where each source gave so many items."""
        self._given = given
        self._ended = ended
        self._last = last
        self._skip = [0] * len(given)
        self._iterators: list[Iterator[Any] | None] = [None] * len(given)
        self._failed: dict[int, Exception] = {}

    def __repr__(self) -> str:
        return f"<ringreel.Mixture of {len(self._sources)} sources ({sum(self._given)} items given)>"

    @property
    def last(self) -> int | None:
        """The number of the source, from 0, that the last item came from. None before the first item."""
        return self._last

    @property
    def given(self) -> tuple[int, ...]:
        """How many items came from each source."""
        return tuple(self._given)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
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
                error.add_note(f"ringreel: source {chosen} of a mixture, item {self._given[chosen]}")
                raise
            self._given[chosen] += 1
            self._last = chosen
            return item
        raise StopIteration

    def _choice(self) -> int | None:
        """The source that this draw is from; None at the end."""
        if self._closed or (self._stop == "first" and any(self._ended)):
            return None
        left = [n for n, weight in enumerate(self._weights) if weight > 0 and not self._ended[n]]
        if not left:
            return None
        # A draw that met an end is made again among the others, with another number: this one is not uniform any more.
        point = _uniform(self._seed, sum(self._given), sum(self._ended)) * math.fsum(self._weights[n] for n in left)
        for n in left:
            point -= self._weights[n]
            if point < 0:
                return n
        return left[-1]

    def _opened(self, number: int) -> Iterator[Any]:
        if number in self._failed:
            raise RingreelError(
                f"source {number} of a mixture is read by a generator, which an error has ended: it cannot go on"
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
                        f"source {number} of a mixture ended after {before} items, of which {self._skip[number]} had "
                        "been given before: it is not what it was when the state was saved"
                    ) from None
            self._iterators[number] = iterator
        return iterator

    def state_dict(self) -> dict[str, Any]:
        """Where the mixture stands, with the state of each source that has a `state_dict` of its own (else None). It
        holds plain values where those do.

        Raises RingreelError after `close`: a source that is closed may not know where it stood.
        """
        if self._closed:
            raise RingreelError("this mixture was closed: take its state before")
        return {
            "format": _FORMAT,
            **self._made(),
            "given": list(self._given),
            "ended": list(self._ended),
            "last": self._last,
            "sources": [source.state_dict() if _has_state(source) else None for source in self._sources],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes to where `state_dict` was called: what follows is exactly what followed then.

        A source with `load_state_dict` is given its own state. Any other is read again from its start, and what it had
        given is skipped.

        Raises ValueError for a state of a mixture that was made in another way (`weights`, `seed`, `stop`, or sources
        of another number or kind), or where a source would have to be read again and is an iterator that this mixture
        has read from: make a new one then. The mixture is as it was before; a source whose own `load_state_dict`
        fails leaves those before it restored. A source that has become shorter than what was given of it is a
        RingreelError in the next iteration.
        """
        check_state(state, _FORMAT, self._made())
        saved = list(state["sources"])
        for number, source in enumerate(self._sources):
            if (saved[number] is not None) != _has_state(source):
                has, had = ("has", "none") if saved[number] is None else ("has no", "one")
                raise ValueError(f"source {number} of a mixture {has} state_dict, and {had} stands in the state")
            # The state of a stream that nothing was read of is empty, and takes it nowhere.
            if not saved[number] and number in self._read and hasattr(type(source), "__next__"):
                raise ValueError(
                    f"source {number} of a mixture is an iterator ({type(source).__name__}) that was read from "
                    "already, and cannot go back: make a new one, and a mixture of it"
                )
        for source, its_state in zip(self._sources, saved, strict=True):
            if its_state is not None:
                source.load_state_dict(its_state)
        self._begin([int(n) for n in state["given"]], [bool(e) for e in state["ended"]], state["last"])
        self._skip = [0 if saved[n] is not None else given for n, given in enumerate(self._given)]

    def _made(self) -> dict[str, Any]:
        """What the order depends on."""
        return {"weights": list(self._weights), "seed": self._seed, "stop": self._stop}

    def close(self) -> None:
        """Closes each source, or what is read of it, that can be closed. The mixture has ended then."""
        for source, iterator in zip(self._sources, self._iterators, strict=True):
            for each in (source,) if iterator is source else (iterator, source):
                close = getattr(each, "close", None)
                if close is not None:
                    close()
        self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()


def _checked(weights: Sequence[float] | None, count: int) -> list[float]:
    if count == 0:
        raise ValueError("a mixture needs at least one source")
    found = [1.0] * count if weights is None else [float(weight) for weight in weights]
    if len(found) != count:
        raise ValueError(f"weights: expected {count}, one for each source, found {len(found)}")
    if not (math.isfinite(sum(found)) and min(found) >= 0 and any(found)):
        raise ValueError(f"weights: expected finite numbers of 0 or more, not all 0, found {found}")
    return found


def _uniform(seed: int, draw: int, ended: int) -> float:
    """A number of [0, 1) that is always the same for these, and looks like chance from one to the next."""
    digest = hashlib.blake2b(f"{seed} {draw} {ended}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> 11) * 2.0**-53


def _has_state(source: Any) -> bool:
    return hasattr(source, "state_dict") and hasattr(source, "load_state_dict")
