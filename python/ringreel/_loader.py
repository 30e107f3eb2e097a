"""Batches from a source that does not fit in memory, through a buffer of bounded size."""

import collections
import dataclasses
import itertools
import operator
import os
import random
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Any

from ringreel import recordio
from ringreel._dataset import Dataset
from ringreel._errors import DamagedSampleError, ReclaimedError, RingreelError
from ringreel._log import logger
from ringreel._ring import Ring

# Items in the buffer of a loader that shuffles, unless told otherwise.
_BUFFER = 1000
_FORMAT = "ringreel.StreamLoader/1"


class StreamLoader(Iterable[Any]):
    """Batches from a source that is read from its start in each epoch, and need not fit in memory.

    Between the source and the batches is a buffer of `buffer_size` items. With `shuffle`, whenever it is full one of
    its items is given, chosen at random, and the next one read into its place; when the source ends, what is left is
    given, at random too. So each item is given exactly once an epoch, at most `buffer_size` - 1 places before its own.
    The buffer knows nothing of batches: either may be the larger one::

        loader = ringreel.StreamLoader("train.rec", 32, 10_000, shuffle=True, epochs=10, parse=recordio.unpack_img)
        for batch in loader:
            ...

    One iteration gives the batches of `epochs` epochs. Iterating again goes on with the epoch after those, and where an
    iteration was left in the middle of an epoch, or ended with an error there, with the one after that: an epoch of
    which a batch was given is not begun again. Its number, with `seed`, decides its order.

    Of use to one thread and one process. It can be pickled where its source, `parse` and `collate` can; the copy goes
    on by itself. Random numbers are its own: it neither uses nor changes the state of `random`, NumPy or torch.

    Parameters
    ----------
    source : one of

        - a path that ends with ``.rec``: the records of a RecordIO file, as bytes;
        - another path: the lines of a text file in UTF-8, as str without their ends;
        - a `Ring`: in each epoch the samples of the generation that is newest then, in order; those that are left when
          it is reclaimed meanwhile, from the one that is newest then. It waits for a first one;
        - an iterable that can be read again: a list, a `Dataset`, ...; or a sequence with a length, such as one of
          torch's datasets;
        - a callable without arguments that returns a new iterator each time, which is closed after its epoch where
          it has `close`.

        An iterator can be read only once, so it is refused: pass a callable that makes it.
    batch_size : items in a batch. The last one of an epoch may have fewer.
    buffer_size : items that the buffer holds at most. None: 1000 with `shuffle`, else 1. Without `shuffle` they are
        only read ahead; their order stays.
    shuffle : whether items are given in a random order, another one in each epoch.
    seed : integer. The same seed, source, `buffer_size` and `batch_size` give the same batches.
    drop_last : whether the last batch of an epoch is left out where it has fewer than `batch_size` items. Nothing else
        is ever left out.
    epochs : passes over the source that one iteration makes, 0 or more; None: it never ends.
    parse : called with each item, its result is the item of the batch. It is called when an item leaves the buffer,
        which so holds lines, records, ... as they were read.
    collate : called with each batch, a list, its result is given in its place.

    Raises
    ------
    When made: TypeError for a source that is none, ValueError for a number that makes no sense.

    While iterating: whatever the source, `parse` and `collate` raise, unchanged, with a note that names the item
    (counted from 0), the line (counted from 1) or the batch (from 0), and the epoch; OSError for what the filesystem
    says; `recordio.RecordError` for what is no record; RingreelError when `epochs` is None and an epoch gave no batch.
    """

    def __init__(
        self,
        source: Any,
        batch_size: int,
        buffer_size: int | None = None,
        shuffle: bool = False,
        seed: int = 0,
        drop_last: bool = False,
        epochs: int | None = 1,
        parse: Callable[[Any], Any] | None = None,
        collate: Callable[[list[Any]], Any] | None = None,
    ) -> None:
        if buffer_size is None:
            buffer_size = _BUFFER if shuffle else 1
        self._source = _source(source)
        self._batch_size = _at_least(1, "batch_size", batch_size)
        self._buffer_size = _at_least(1, "buffer_size", buffer_size)
        self._shuffle = bool(shuffle)
        self._seed = operator.index(seed)
        self._drop_last = bool(drop_last)
        self._epochs = None if epochs is None else _at_least(0, "epochs", epochs)
        self._parse = parse
        self._collate = collate
        self._place = _Place()

    def __repr__(self) -> str:
        place = self._place
        return f"<ringreel.StreamLoader of {self._source.name} (epoch {place.epoch}, batch {place.batches})>"

    @property
    def epoch(self) -> int:
        """The number of the epoch that is read, or will be read next, from 0."""
        return self._place.epoch

    def __len__(self) -> int:
        """How many batches a whole iteration gives, all its epochs together.

        For a `Ring` as many as if its generations were all as long as the newest one, which is waited for.

        Raises TypeError when that is not known: the source has no length, or `epochs` is None.
        """
        if self._epochs is None:
            raise TypeError("a loader with epochs=None has no length: it never ends")
        whole, rest = divmod(self._source.length(), self._batch_size)
        return self._epochs * (whole if self._drop_last or not rest else whole + 1)

    def __bool__(self) -> bool:
        """True: whether anything will come is not known before it is read."""
        return True

    def __iter__(self) -> Iterator[Any]:
        """The batches of the next `epochs` epochs; after `load_state_dict`, what was left of the iteration it is of.

        An epoch is taken when its first batch is asked for. Of several iterators `state_dict` tells of the one that
        began last.
        """
        place = self._place = self._next_place()
        while self._epochs is None or place.epoch < place.first + self._epochs:
            yield from self._epoch(place)
            if self._epochs is None and place.batches == 0:
                raise RingreelError(
                    f"{self._source.name} gave no batch in epoch {place.epoch}: with epochs=None this would never end"
                )
            place.next_epoch()
        place.begun = False

    def reset(self) -> None:
        """Begins again: the next iteration gives epoch 0 in the same order as the first one."""
        self._place = _Place()

    def state_dict(self) -> dict[str, Any]:
        """Where the loader stands: behind the last batch that was given. Plain numbers, which JSON can hold."""
        return {
            "format": _FORMAT,
            **self._made(),
            "epoch": self._place.epoch,
            "batches": self._place.batches,
            "first_epoch": self._place.first if self._place.begun else None,
            "generation": self._place.generation,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes to where `state_dict` was called: the next iteration gives exactly the batches that came after it, to
        the end of the iteration that was under way then.

        The source is read again from its start for that, and what was given already is skipped without `parse`. A
        `Ring`'s generation that is gone meanwhile is warned of through `logging`; the epoch then begins again, with the
        newest generation.

        Raises ValueError for a state of a loader that was made in another way (`seed`, `shuffle`, `buffer_size` or
        `batch_size`); the loader is as it was before. The next iteration raises RingreelError when the source has
        become shorter than what was given of it.
        """
        check_state(state, _FORMAT, self._made())
        first = state["first_epoch"]
        self._place = _Place(
            epoch=_at_least(0, "epoch", state["epoch"]),
            batches=_at_least(0, "batches", state["batches"]),
            first=0 if first is None else _at_least(0, "first_epoch", first),
            generation=state["generation"],
            begun=first is not None,
            resumed=True,
        )

    def _made(self) -> dict[str, Any]:
        """What the order depends on."""
        made: dict[str, Any] = {"batch_size": self._batch_size, "shuffle": self._shuffle}
        return {**made, "seed": self._seed, "buffer_size": self._buffer_size} if self._shuffle else made

    def _next_place(self) -> "_Place":
        """Where an iteration begins that is asked for now."""
        now = self._place
        if now.resumed:
            return dataclasses.replace(now, begun=True, first=now.first if now.begun else now.epoch)
        epoch = now.epoch + 1 if now.given else now.epoch
        return _Place(epoch=epoch, first=epoch, begun=True)

    def _epoch(self, place: "_Place") -> Iterator[Any]:
        """What is left of an epoch at `place`, which moves with each batch."""
        batches = self._batches(self._source.open(place), place.epoch)
        for number in range(place.batches):
            if next(batches, None) is None:
                raise RingreelError(
                    f"{self._source.name} ended after {number} batches of epoch {place.epoch}, of which "
                    f"{place.batches} had been given before: it is not what it was when the state was saved"
                )
        for batch in batches:
            given = self._finished(batch, place)
            place.batches += 1
            place.given = True
            place.resumed = False
            yield given

    def _batches(self, items: Iterator[Any], epoch: int) -> Iterator[list[tuple[int, Any]]]:
        """Batches of pairs: the number of an item, and what the source gave."""
        buffered = self._buffered(_numbered(items, self._source, epoch), epoch)
        while batch := list(itertools.islice(buffered, self._batch_size)):
            if len(batch) == self._batch_size or not self._drop_last:
                yield batch

    def _buffered(self, items: Iterator[Any], epoch: int) -> Iterator[Any]:
        """The items by way of the buffer, which they leave to the last one."""
        held: list[Any] = []
        queue: collections.deque[Any] = collections.deque()
        # Of a text, so that the numbers are those of no other epoch or seed; random() alone stays the same in all
        # versions of Python.
        draw = random.Random(f"{self._seed} {epoch}").random

        def take() -> Any:
            chosen = int(draw() * len(held))
            held[chosen], held[-1] = held[-1], held[chosen]
            return held.pop()

        put, give = (held.append, take) if self._shuffle else (queue.append, queue.popleft)
        count = 0
        for item in items:
            put(item)
            count += 1
            if count == self._buffer_size:
                count -= 1
                yield give()
        for _ in range(count):
            yield give()

    def _finished(self, batch: list[tuple[int, Any]], place: "_Place") -> Any:
        """A batch as it is given."""
        items = [self._parsed(number, item, place.epoch) for number, item in batch]
        if self._collate is None:
            return items
        try:
            return self._collate(items)
        except Exception as error:
            error.add_note(f"ringreel: collate of batch {place.batches} of epoch {place.epoch}, {self._source.name}")
            raise

    def _parsed(self, number: int, item: Any, epoch: int) -> Any:
        try:
            item = self._source.value(number, item)
            return item if self._parse is None else self._parse(item)
        except Exception as error:
            error.add_note(f"ringreel: {self._source.at(number)}, in epoch {epoch}")
            raise


def check_state(state: Any, kind: str, made: Mapping[str, Any]) -> None:
    """ValueError unless `state` has the format `kind` and is of an object that was made with these arguments."""
    if not isinstance(state, Mapping) or state.get("format") != kind:
        found = repr(state.get("format")) if isinstance(state, Mapping) else type(state).__name__
        raise ValueError(f"expected a state of the format {kind!r}, found {found}")
    for name, value in made.items():
        if state[name] != value:
            raise ValueError(
                f"the state is of one with {name}={state[name]!r}, this one has {name}={value!r}: make it the same way"
            )


@dataclasses.dataclass
class _Place:
    """Where a loader stands.

    epoch, batches : the epoch, and how many of its batches were given.
    first : where an iteration has `begun`, its first epoch.
    generation : of a ring, what the epoch reads.
    given : whether the iteration that is under way gave one of those batches.
    resumed : whether it is a place that was loaded, and no batch was given since.
    """

    epoch: int = 0
    batches: int = 0
    first: int = 0
    generation: int | None = None
    begun: bool = False
    given: bool = False
    resumed: bool = False

    def next_epoch(self) -> None:
        self.epoch += 1
        self.batches = 0
        self.generation = None
        self.given = False
        self.resumed = False


def _numbered(items: Iterator[Any], source: "_Source", epoch: int) -> Iterator[tuple[int, Any]]:
    """Each item with its number. What was made for this pass is closed in the end."""
    try:
        for number in itertools.count(source.first):
            try:
                item = next(items)
            except StopIteration:
                return
            except Exception as error:
                error.add_note(f"ringreel: while {source.at(number)} was read, in epoch {epoch}")
                raise
            yield number, item
    finally:
        close = getattr(items, "close", None)
        if close is not None and (source.makes or isinstance(items, Generator)):
            close()


class _Source:
    """What a loader reads."""

    unit = "item"
    first = 0  # The number of the first item.
    makes = False  # Whether nobody else has what `open` returns.

    def __init__(self, given: Any) -> None:
        self.given = given

    @property
    def name(self) -> str:
        return str(self.given)

    def at(self, number: int) -> str:
        return f"{self.unit} {number} of {self.name}"

    def open(self, place: _Place) -> Iterator[Any]:
        """A pass from the start."""
        raise NotImplementedError

    def value(self, number: int, item: Any) -> Any:
        """What `parse` is given."""
        return item

    def length(self) -> int:
        raise TypeError(f"the length of {self.name} is not known before it is read")


class _Iterable(_Source):
    """An iterable that can be read again."""

    @property
    def name(self) -> str:
        return f"the source ({type(self.given).__name__})"

    def open(self, place: _Place) -> Iterator[Any]:
        return iter(self.given)

    def length(self) -> int:
        return len(self.given) if hasattr(type(self.given), "__len__") else super().length()


class _Sequence(_Iterable):
    """A sequence that may not know how to iterate, and raise no IndexError at its end."""

    def open(self, place: _Place) -> Iterator[Any]:
        return (self.given[i] for i in range(len(self.given)))


class _Callable(_Source):
    """What makes a new iterator each time."""

    makes = True
    last: Any = None

    @property
    def name(self) -> str:
        return f"the source {getattr(self.given, '__qualname__', type(self.given).__name__)}()"

    def open(self, place: _Place) -> Iterator[Any]:
        made = self.given()
        if not hasattr(type(made), "__iter__") and not hasattr(type(made), "__getitem__"):
            raise TypeError(f"{self.name} returned {type(made).__name__}: it must return an iterator")
        iterator: Iterator[Any] = iter(made)
        if iterator is self.last:
            raise TypeError(f"{self.name} returned the same iterator again: it must make a new one for each epoch")
        self.last = iterator
        return iterator

    def __getstate__(self) -> dict[str, Any]:
        return {"given": self.given}


class _Lines(_Source):
    """The lines of a text file."""

    unit = "line"
    first = 1

    def open(self, place: _Place) -> Iterator[Any]:
        with open(self.given, "rb") as file:
            yield from file

    def value(self, number: int, item: bytes) -> str:
        line = item.removesuffix(b"\n").removesuffix(b"\r")
        return line.decode("utf-8-sig" if number == self.first else "utf-8")


class _Records(_Source):
    """The records of a RecordIO file."""

    unit = "record"

    def open(self, place: _Place) -> Iterator[Any]:
        with recordio.MXRecordIO(self.given, "r") as records:
            yield from records


class _Generation(_Source):
    """A ring's newest generation."""

    unit = "sample"

    @property
    def name(self) -> str:
        return str(self.given.path)

    def open(self, place: _Place) -> Iterator[Any]:
        dataset = self.given.dataset(generation=place.generation)
        if place.generation is not None:
            if not _is_there(dataset, place.generation):
                dataset.refresh()
                logger.warning(
                    "generation %d of %s is gone, %d batches of which had been given in epoch %d: "
                    "the epoch begins again, with generation %d",
                    *(place.generation, self.given.path, place.batches, place.epoch, dataset.generation),
                )
                place.batches = 0
        place.generation = dataset.generation
        return iter(dataset)

    def length(self) -> int:
        return len(self.given.dataset())


class _Dataset(_Generation):
    """The generation that a dataset stands at."""

    @property
    def name(self) -> str:
        return str(self.given._config.ring)

    def open(self, place: _Place) -> Iterator[Any]:
        if place.generation is not None and not _is_there(self.given, place.generation):
            logger.warning(
                "the dataset of %s reads generation %d, and %d batches of generation %d had been given in epoch %d: "
                "the epoch begins again",
                *(self.name, self.given.generation, place.batches, place.generation, place.epoch),
            )
            place.batches = 0
        place.generation = self.given.generation
        return iter(self.given)

    def length(self) -> int:
        return len(self.given)


def _is_there(dataset: Dataset, generation: int) -> bool:
    """Whether `dataset` reads that generation. What is known of one outlives its samples, so one is tried."""
    try:
        return dataset.generation == generation and (len(dataset) == 0 or dataset._at(0, follow=False) is not None)
    except ReclaimedError:
        return False
    except DamagedSampleError:
        return True


def _source(given: Any) -> _Source:
    kind = type(given)
    if isinstance(given, (str, bytes, os.PathLike)):
        path = os.fsdecode(given)
        return _Records(path) if path.endswith(".rec") else _Lines(path)
    if isinstance(given, Ring):
        return _Generation(given)
    if isinstance(given, Dataset):
        return _Dataset(given)
    if hasattr(kind, "__next__") or isinstance(given, recordio.MXRecordIO):
        raise TypeError(
            f"the source is read once an epoch, and {kind.__name__} can be read only once: "
            "pass a callable that makes a new one, or the path of a file"
        )
    if hasattr(kind, "__iter__"):
        return _Iterable(given)
    if hasattr(kind, "__getitem__"):
        return _Sequence(given) if hasattr(kind, "__len__") else _Iterable(given)
    if callable(given):
        return _Callable(given)
    raise TypeError(f"a source is a path, a Ring, an iterable, or a callable that returns one; found {kind.__name__}")


def _at_least(least: int, name: str, value: Any) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name}: expected an integer, found {type(value).__name__}") from None
    if number < least:
        raise ValueError(f"{name}: expected {least} or more, found {number}")
    return number
