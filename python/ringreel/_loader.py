"""Batches from a source that does not fit in memory, through a buffer of bounded size."""

import collections
import dataclasses
import itertools
import random
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Any

from ringreel._arguments import integer
from ringreel._errors import RingreelError
from ringreel._sources import Place, Source, source_of

# Default number of items in the buffer of a loader that shuffles.
_BUFFER = 1000
_FORMAT = "ringreel.StreamLoader/1"


class StreamLoader(Iterable[Any]):
    """Batches from a source that is read from its start in each epoch, and need not fit in memory.

    Between the source and the batches is a buffer of ``buffer_size`` items. With ``shuffle``, whenever the
    buffer is full, one of its items is chosen at random and yielded, and the next one is read into its
    place. At the end of the source, the remaining items are yielded at random. So each item is yielded
    exactly once per epoch, at most ``buffer_size - 1`` places before its own. The buffer is independent
    of the batches: either can be the larger one.

    One iteration yields the batches of ``epochs`` epochs. The next iteration continues with the following
    epoch. If an iteration was left, or ended with an error, in the middle of an epoch, the next one
    continues with the epoch after that: an epoch of which a batch was yielded is not repeated. The number
    of the epoch and ``seed`` determine its order.

    A loader belongs to one thread and one process. It can be pickled if its source, ``parse`` and
    ``collate`` can; the copy is independent. It has its own random numbers: it neither uses nor changes
    the state of ``random``, NumPy or torch.

    Args:
        source (Any): One of:

            - a path that ends with ``.rec``: the records of a RecordIO file, as bytes;
            - another path: the lines of a text file in UTF-8, as str without line ends;
            - a ``Ring``: in each epoch the samples of the newest generation, in order. If that is
              reclaimed meanwhile, the rest comes from the newest generation of that moment. Waits for a
              first generation;
            - an iterable that can be read repeatedly (a list, a ``Dataset``, ...), or a sequence with a
              length, such as one of torch's datasets;
            - a callable without arguments that returns a new iterator each time. The iterator is closed
              after its epoch if it has ``close``.

            An iterator is refused, because it can be read only once: pass a callable that makes it.
        batch_size (int): Items in a batch, at least 1. The last batch of an epoch may have fewer.
        buffer_size (int | None): Items that the buffer holds at most. None (the default) is 1000 with
            ``shuffle``, and otherwise 1. Without ``shuffle``, items are only read ahead, in order.
        shuffle (bool): Whether items are yielded in a random order, a different one in each epoch.
            Default False.
        seed (int): The same seed, source, ``buffer_size`` and ``batch_size`` give the same batches.
            Default 0.
        drop_last (bool): Whether the last batch of an epoch is left out if it has fewer than
            ``batch_size`` items. Default False.
        epochs (int | None): Passes over the source per iteration, 0 or more. Default 1; None never ends.
        parse (Callable | None): Called with each item when it leaves the buffer; its result is the item
            of the batch. So the buffer holds items as they were read. Default None.
        collate (Callable | None): Called with each batch, a list; its result is yielded instead. Default
            None.

    Raises:
        TypeError: ``source`` is not a source, or an argument has the wrong type.
        ValueError: A number is out of range.

    An iteration raises whatever the source, ``parse`` and ``collate`` raise, unchanged, with a note that
    names the epoch and the item (from 0), the line (from 1) or the batch (from 0). It raises ``OSError``
    for errors of the filesystem, ``recordio.RecordError`` for invalid records, and ``RingreelError`` if
    ``drop_last`` leaves out all items of an epoch, or if ``epochs`` is None and an epoch has no batch.

    Example:
        >>> loader = ringreel.StreamLoader(range(5), batch_size=2)
        >>> list(loader)
        [[0, 1], [2, 3], [4]]

        A ring, shuffled in a buffer of 4 samples:

        >>> loader = ringreel.StreamLoader(
        ...     ringreel.Ring("config.yaml"), 2, 4, shuffle=True, parse=lambda sample: int(sample["label"])
        ... )
        >>> sorted(label for batch in loader for label in batch)
        [0, 1, 2, 3]
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
        self._source = source_of(source)
        self._batch_size = integer("batch_size", batch_size, 1)
        self._buffer_size = integer("buffer_size", buffer_size, 1)
        self._shuffle = bool(shuffle)
        self._seed = integer("seed", seed)
        self._drop_last = bool(drop_last)
        self._epochs = None if epochs is None else integer("epochs", epochs, 0)
        self._parse = parse
        self._collate = collate
        self._place = Place()

    def __repr__(self) -> str:
        place = self._place
        return f"<ringreel.StreamLoader of {self._source.name} (epoch {place.epoch}, batch {place.batches})>"

    @property
    def epoch(self) -> int:
        """Number, from 0, of the epoch that is read, or will be read next.

        Example:
            >>> loader = ringreel.StreamLoader(range(5), 2)
            >>> batches = list(loader)
            >>> loader.epoch
            1
        """
        return self._place.epoch

    @property
    def missing(self) -> list[int]:
        """Generations of a ring that ``KEEP`` covers and that were missing.

        See ``ringreel.Dataset.missing``.

        Example:
            >>> ringreel.StreamLoader(ringreel.Ring("config.yaml"), 2).missing
            []
        """
        return sorted(self._source.missing())

    def __len__(self) -> int:
        """Returns the number of batches of a whole iteration, over all its epochs.

        For a ``Ring``, all generations are assumed to be as long as the newest one; waits for a first one.

        Raises:
            TypeError: The number is unknown: the source has no length, or ``epochs`` is None.
        """
        if self._epochs is None:
            raise TypeError("a loader with epochs=None has no length: it never ends")
        whole, rest = divmod(self._source.length(), self._batch_size)
        return self._epochs * (whole if self._drop_last or not rest else whole + 1)

    def __bool__(self) -> bool:
        """Returns True, because whether there are batches is unknown before they are read."""
        return True

    def __iter__(self) -> Iterator[Any]:
        """Yields the batches of the next ``epochs`` epochs.

        After ``load_state_dict``, yields the rest of the saved iteration. An epoch is claimed when its
        first batch is requested. With several iterators, ``state_dict`` describes the one that started
        last.
        """
        place = self._place = self._next_place()
        while self._epochs is None or place.epoch < place.first + self._epochs:
            yield from self._epoch(place)
            if self._epochs is None and place.batches == 0:
                raise RingreelError(
                    f"{self._source.name} has no batch in epoch {place.epoch}: with epochs=None this would never end"
                )
            place.next_epoch()
        place.begun = False

    def reset(self) -> None:
        """Starts again: the next iteration yields epoch 0, in the same order as the first one.

        Example:
            >>> loader = ringreel.StreamLoader(range(5), 2, 5, shuffle=True, seed=1)
            >>> first = list(loader)
            >>> loader.reset()
            >>> list(loader) == first
            True
        """
        self._place = Place()

    def state_dict(self) -> dict[str, Any]:
        """Returns the position of the loader, after the last batch that was yielded.

        Returns:
            dict: Values of JSON's types only.

        Example:
            >>> loader = ringreel.StreamLoader(range(5), 2)
            >>> next(iter(loader))
            [0, 1]
            >>> state = loader.state_dict()
            >>> state["epoch"], state["batches"]
            (0, 1)
        """
        return {
            "format": _FORMAT,
            **self._made(),
            "epoch": self._place.epoch,
            "batches": self._place.batches,
            "first_epoch": self._place.first if self._place.begun else None,
            "generation": self._place.generation,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from the position that ``state_dict`` returned.

        The next iteration yields exactly the batches that followed, to the end of the iteration that was
        under way. The source is read again from its start; items that were already yielded are skipped
        without ``parse``. If the generation of a ``Ring`` was reclaimed meanwhile, a warning is logged, and
        the epoch restarts with the newest generation.

        The next iteration raises ``RingreelError`` if the source has fewer items than were already yielded.

        Args:
            state (Mapping): The state of a loader with the same arguments.

        Raises:
            ValueError: The state is that of a loader with another ``seed``, ``shuffle``, ``buffer_size`` or
                ``batch_size``. The loader is unchanged.

        Example:
            >>> loader = ringreel.StreamLoader(range(5), 2)
            >>> batch = next(iter(loader))
            >>> resumed = ringreel.StreamLoader(range(5), 2)
            >>> resumed.load_state_dict(loader.state_dict())
            >>> list(resumed)
            [[2, 3], [4]]
        """
        check_state(state, _FORMAT, self._made())
        first = state["first_epoch"]
        self._place = Place(
            epoch=integer("epoch", state["epoch"], 0),
            batches=integer("batches", state["batches"], 0),
            first=0 if first is None else integer("first_epoch", first, 0),
            generation=state["generation"],
            begun=first is not None,
            resumed=True,
        )

    def _made(self) -> dict[str, Any]:
        """Returns the arguments that determine the order."""
        made: dict[str, Any] = {"batch_size": self._batch_size, "shuffle": self._shuffle}
        return {**made, "seed": self._seed, "buffer_size": self._buffer_size} if self._shuffle else made

    def _next_place(self) -> "Place":
        """Returns the position at which an iteration that starts now begins."""
        now = self._place
        if now.resumed:
            return dataclasses.replace(now, begun=True, first=now.first if now.begun else now.epoch)
        epoch = now.epoch + 1 if now.given else now.epoch
        return Place(epoch=epoch, first=epoch, begun=True)

    def _epoch(self, place: "Place") -> Iterator[Any]:
        """Yields the rest of an epoch from ``place``, which advances with each batch."""
        batches = self._batches(self._source.open(place), place.epoch)
        for number in range(place.batches):
            if next(batches, None) is None:
                raise RingreelError(
                    f"{self._source.name} ended after {number} batches of epoch {place.epoch}, but {place.batches} had "
                    "been read when the state was saved: the source has changed"
                )
        for batch in batches:
            given = self._finished(batch, place)
            place.batches += 1
            place.given = True
            place.resumed = False
            yield given

    def _batches(self, items: Iterator[Any], epoch: int) -> Iterator[list[tuple[int, Any]]]:
        """Yields batches of pairs: the number of an item, and the item."""
        buffered = self._buffered(_numbered(items, self._source, epoch), epoch)
        given = False
        while batch := list(itertools.islice(buffered, self._batch_size)):
            if len(batch) == self._batch_size or not self._drop_last:
                given = True
                yield batch
            elif not given:
                raise RingreelError(
                    f"{self._source.name} has no batch in epoch {epoch}: it has {len(batch)} items, batch_size is "
                    f"{self._batch_size}, and drop_last leaves them out. Lower batch_size, set drop_last=False, or "
                    "use a larger source (for a ring, raise SWAP_CAP)"
                )

    def _buffered(self, items: Iterator[Any], epoch: int) -> Iterator[Any]:
        """Passes the items through the buffer, which is emptied at the end."""
        held: list[Any] = []
        queue: collections.deque[Any] = collections.deque()
        # Seeded with text, so that different seeds and epochs never share numbers. Only random() gives the same numbers
        # in all versions of Python.
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

    def _finished(self, batch: list[tuple[int, Any]], place: "Place") -> Any:
        """Returns a batch after ``parse`` and ``collate``."""
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
    """Checks that ``state`` has the format ``kind`` and was saved with the same arguments.

    Args:
        state (Any): The state.
        kind (str): The expected format.
        made (Mapping): The arguments, by name, that have to match.

    Raises:
        ValueError: It does not match.
    """
    if not isinstance(state, Mapping) or state.get("format") != kind:
        found = repr(state.get("format")) if isinstance(state, Mapping) else type(state).__name__
        raise ValueError(f"state: expected the format {kind!r}, found {found}")
    for name, value in made.items():
        if state[name] != value:
            raise ValueError(
                f"the state was saved with {name}={state[name]!r}, but {name} is {value!r}: use the same arguments"
            )


def _numbered(items: Iterator[Any], source: Source, epoch: int) -> Iterator[tuple[int, Any]]:
    """Yields each item with its number. Closes an iterator that was made for this pass."""
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
