"""What a ``StreamLoader`` reads: files, rings, and anything that can be iterated over repeatedly."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Iterator, Mapping
from typing import Any

from ringreel import recordio
from ringreel._arguments import integer
from ringreel._dataset import Dataset
from ringreel._errors import DamagedSampleError, ReclaimedError
from ringreel._files import Files, is_pattern, names_of, refuse_paths
from ringreel._log import logger
from ringreel._ring import Ring
from ringreel._stats import stats_of
from ringreel._wording import counted


@dataclasses.dataclass
class Place:
    """The position of a loader.

    Attributes:
        epoch (int): The current epoch.
        batches (int): How many of its batches were yielded.
        first (int): The first epoch of the iteration, if one has ``begun``.
        generation (int | None): The generation of a ring that the epoch reads.
        begun (bool): Whether an iteration is under way.
        given (bool): Whether the iteration that is under way yielded a batch of this epoch.
        resumed (bool): Whether the position was loaded, and no batch was yielded since.
        left_out (int): How many items ``parse`` left out, up to the last batch that was yielded.
        shares (int | None): The number of shares among which the items were dealt.
    """

    epoch: int = 0
    batches: int = 0
    first: int = 0
    generation: int | None = None
    begun: bool = False
    given: bool = False
    resumed: bool = False
    left_out: int = 0
    shares: int | None = None

    @classmethod
    def loaded(cls, state: Mapping[str, Any]) -> Place:
        """Returns the position that was saved as ``state``.

        Raises:
            ValueError: A number in it is negative.
            TypeError: A number in it is not an integer.
        """
        first = state["first_epoch"]
        return cls(
            epoch=integer("epoch", state["epoch"], 0),
            batches=integer("batches", state["batches"], 0),
            first=0 if first is None else integer("first_epoch", first, 0),
            generation=state["generation"],
            begun=first is not None,
            resumed=True,
            left_out=integer("left_out", state.get("left_out", 0), 0),
            shares=state.get("shares"),
        )

    def state(self) -> dict[str, Any]:
        """Returns the position in values of JSON's types."""
        return {
            "epoch": self.epoch,
            "batches": self.batches,
            "first_epoch": self.first if self.begun else None,
            "generation": self.generation,
            "left_out": self.left_out,
            "shares": self.shares,
        }

    def next_iteration(self) -> Place:
        """Returns the position at which an iteration that starts now begins."""
        if self.resumed:
            return dataclasses.replace(self, begun=True, first=self.first if self.begun else self.epoch)
        epoch = self.epoch + 1 if self.given else self.epoch
        return Place(epoch=epoch, first=epoch, begun=True)

    def restart(self) -> None:
        """Moves to the start of the epoch."""
        self.batches = 0
        self.left_out = 0

    def next_epoch(self) -> None:
        self.epoch += 1
        self.restart()
        self.generation = None
        self.given = False
        self.resumed = False


class Source:
    """What a loader reads. Subclasses implement ``open``."""

    unit = "item"
    first = 0  # Number of the first item.
    makes = False  # Whether `open` returns an iterator that no other code holds.
    moves = False  # Whether each process chooses the generation of a ring that it reads.
    shares_itself = False  # Whether `open` returns the items of this process only.

    def __init__(self, given: Any) -> None:
        self.given = given

    @property
    def name(self) -> str:
        return str(self.given)

    def at(self, number: int) -> str:
        return f"{self.unit} {number} of {self.name}"

    def where(self, number: int | None, item: Any) -> str:
        """Returns a text that names an item. The number of an item that is not of the source is None."""
        return f"the padding item of {self.name}" if number is None else self.at(number)

    def open(self, place: Place) -> Iterator[Any]:
        """Starts a pass over all items."""
        raise NotImplementedError

    def by_index(self, place: Place) -> Any:
        """Starts a pass over items that can be read by their numbers: returns a sequence, or None."""
        return None

    def value(self, number: int | None, item: Any) -> Any:
        """Returns the argument of ``parse`` for an item."""
        return item

    def missing(self) -> set[int]:
        """Returns the generations of a ring that ``KEEP`` covers and that were missing."""
        return set()

    def length(self) -> int:
        raise TypeError(f"the length of {self.name} is unknown until it was read")

    def count(self, share: int, shares: int) -> int:
        """Returns the number of items of one share of a source that shares its items itself."""
        raise TypeError(f"the length of {self.name} is unknown until it was read")

    def waited_seconds(self) -> float:
        """Returns the seconds for which a ring had no sample, up to now."""
        return 0.0


class _Iterable(Source):
    """An iterable that can be read repeatedly."""

    @property
    def name(self) -> str:
        return f"the source ({type(self.given).__name__})"

    @property
    def shares_itself(self) -> bool:  # type: ignore[override]
        return bool(getattr(type(self.given), "_shares_itself", False))

    def open(self, place: Place) -> Iterator[Any]:
        return iter(self.given)

    def length(self) -> int:
        if not hasattr(type(self.given), "__len__"):
            return super().length()
        try:
            return len(self.given)
        except NotImplementedError:  # as datasets of torch say that they have no length
            return super().length()

    def count(self, share: int, shares: int) -> int:
        count = getattr(self.given, "_count", None)
        return super().count(share, shares) if count is None else int(count(share, shares))


class _Sequence(_Iterable):
    """A sequence, read by its length: it may neither be iterable nor raise IndexError at its end."""

    def open(self, place: Place) -> Iterator[Any]:
        return (self.given[i] for i in range(len(self.given)))

    def by_index(self, place: Place) -> Any:
        return self.given


class _Callable(Source):
    """A callable that returns a new iterator each time."""

    makes = True
    last: Any = None
    _before = 0.0  # Seconds that the iterators before the last one waited.

    @property
    def name(self) -> str:
        return f"the source {getattr(self.given, '__qualname__', type(self.given).__name__)}()"

    def open(self, place: Place) -> Iterator[Any]:
        made = self.given()
        if not hasattr(type(made), "__iter__") and not hasattr(type(made), "__getitem__"):
            raise TypeError(f"{self.name} returned {type(made).__name__}: it must return an iterator")
        iterator: Iterator[Any] = iter(made)
        if iterator is self.last:
            raise TypeError(f"{self.name} returned the same iterator again: it must make a new one for each epoch")
        self._before = self.waited_seconds()
        self.last = iterator
        return iterator

    def waited_seconds(self) -> float:
        stats = stats_of(self.last)
        return self._before + (0.0 if stats is None else stats.waited_seconds)

    def __getstate__(self) -> dict[str, Any]:
        return {"given": self.given}


class _Lines(Source):
    """The lines of a text file."""

    unit = "line"
    first = 1

    def open(self, place: Place) -> Iterator[Any]:
        with open(self.given, "rb") as file:
            yield from file

    def value(self, number: int | None, item: bytes) -> str:
        line = item.removesuffix(b"\n").removesuffix(b"\r")
        return line.decode("utf-8-sig" if number == self.first else "utf-8")


class _Records(Source):
    """The records of a RecordIO file."""

    unit = "record"

    def open(self, place: Place) -> Iterator[Any]:
        with recordio.MXRecordIO(self.given, "r") as records:
            yield from records


class _Files(Source):
    """The items of several files. An item is the number of its file, its own number there, and its contents."""

    def __init__(self, given: Files) -> None:
        super().__init__(given)
        self._each = [_file(path) for path in given.paths]

    @property
    def name(self) -> str:
        return names_of(self.given.paths)

    def where(self, number: int | None, item: Any) -> str:
        return super().where(number, item) if number is None else self._each[item[0]].at(item[1])

    def open(self, place: Place) -> Iterator[Any]:
        for which, file in enumerate(self._each):
            for number, item in enumerate(file.open(place), file.first):
                yield which, number, item

    def value(self, number: int | None, item: Any) -> Any:
        which, number, contents = item
        return self._each[which].value(number, contents)


class _Generation(Source):
    """A ring's newest generation."""

    unit = "sample"
    moves = True

    def __init__(self, given: Any) -> None:
        super().__init__(given)
        self._read: Dataset | None = None
        self._missed: set[int] = set()
        # Seconds until generations were opened, and since when one is being opened.
        self._waits: tuple[float, float | None] = (0.0, None)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_waits": (0.0, None)}  # A copy begins with zeros.

    def waited_seconds(self) -> float:
        seconds, since = self._waits
        return seconds if since is None else seconds + time.monotonic() - since

    @contextlib.contextmanager
    def _waiting(self) -> Iterator[None]:
        """Counts the time of the block, which opens a ring and may wait for its first generation."""
        self._waits = (self._waits[0], time.monotonic())
        try:
            yield
        finally:
            self._waits = (self.waited_seconds(), None)

    @property
    def name(self) -> str:
        return str(self.given.path)

    def missing(self) -> set[int]:
        return self._missed.union([] if self._read is None else self._read.missing)

    def open(self, place: Place) -> Iterator[Any]:
        return iter(self.by_index(place))

    def by_index(self, place: Place) -> Dataset:
        self._missed = self.missing()
        dataset: Dataset = self.given.dataset(generation=place.generation)
        self._read = dataset
        with self._waiting():
            dataset.generation  # noqa: B018 (opens the ring)
        if place.generation is not None:
            if not _is_there(dataset, place.generation):
                dataset.refresh()
                logger.warning(
                    "generation %d of %s was reclaimed after %s of epoch %d: restarting the epoch with generation %d",
                    *(place.generation, self.given.path, counted(place.batches, "batch", "batches")),
                    *(place.epoch, dataset.generation),
                )
                place.restart()
        place.generation = dataset.generation
        return dataset

    def length(self) -> int:
        return len(self.given.dataset())


class _Dataset(_Generation):
    """The generation that a ``Dataset`` reads."""

    moves = False

    @property
    def name(self) -> str:
        return str(self.given._config.ring)

    def missing(self) -> set[int]:
        return set(self.given.missing)

    def by_index(self, place: Place) -> Dataset:
        with self._waiting():
            self.given.generation  # noqa: B018 (opens the ring)
        if place.generation is not None and not _is_there(self.given, place.generation):
            logger.warning(
                "the dataset of %s reads generation %d, but the saved %s from generation %d: restarting epoch %d",
                *(self.name, self.given.generation, counted(place.batches, "batch was", "batches were")),
                *(place.generation, place.epoch),
            )
            place.restart()
        place.generation = self.given.generation
        dataset: Dataset = self.given
        return dataset

    def length(self) -> int:
        return len(self.given)


def _is_there(dataset: Dataset, generation: int) -> bool:
    """Returns whether ``dataset`` reads that generation.

    A manifest outlives its samples, so the first sample is read to find out.
    """
    try:
        return dataset.generation == generation and (len(dataset) == 0 or dataset._at(0, follow=False) is not None)
    except ReclaimedError:
        return False
    except DamagedSampleError:
        return True


def _file(path: str) -> Source:
    return _Records(path) if path.endswith(".rec") else _Lines(path)


def source_of(given: Any) -> Source:
    """Returns the source for the argument of a ``StreamLoader``.

    Raises:
        TypeError: ``given`` is not a source.
        ValueError: ``given`` is a list of paths, or names a folder that holds both ``.rec`` and other files.
        FileNotFoundError: A pattern matches no file, or a folder has none.
    """
    kind = type(given)
    if isinstance(given, (str, bytes, os.PathLike)):
        path = os.fsdecode(given)
        return _Files(Files(path)) if is_pattern(path) or os.path.isdir(path) else _file(path)
    if isinstance(given, Files):
        return _Files(given)
    if isinstance(given, Ring):
        return _Generation(given)
    if isinstance(given, Dataset):
        return _Dataset(given)
    if hasattr(kind, "__next__") or isinstance(given, recordio.MXRecordIO):
        raise TypeError(
            f"the source is read once per epoch, but {kind.__name__} can be read only once: "
            "pass a callable that makes a new one, or the path of a file"
        )
    refuse_paths(given)
    if hasattr(kind, "__iter__"):
        return _Iterable(given)
    if hasattr(kind, "__getitem__"):
        return _Sequence(given) if hasattr(kind, "__len__") else _Iterable(given)
    if callable(given):
        return _Callable(given)
    raise TypeError(
        f"source: expected a path, a Ring, an iterable, or a callable that returns one; found {kind.__name__}"
    )
