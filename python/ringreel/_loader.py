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
    says; `recordio.RecordError` for what is no record; RingreelError when `drop_last` leaves out all items of an epoch,
    and when `epochs` is None and an epoch gave no batch.
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
        """The number of the epoch that is read, or will be read next, from 0."""
        return self._place.epoch

    @property
    def missing(self) -> list[int]:
        """Of a ring, the generations that KEEP covers and that were missing. See `ringreel.Dataset.missing`."""
        return sorted(self._source.missing())

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
        self._place = Place()

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
        self._place = Place(
            epoch=integer("epoch", state["epoch"], 0),
            batches=integer("batches", state["batches"], 0),
            first=0 if first is None else integer("first_epoch", first, 0),
            generation=state["generation"],
            begun=first is not None,
            resumed=True,
        )

    def _made(self) -> dict[str, Any]:
        """What the order depends on."""
        made: dict[str, Any] = {"batch_size": self._batch_size, "shuffle": self._shuffle}
        return {**made, "seed": self._seed, "buffer_size": self._buffer_size} if self._shuffle else made

    def _next_place(self) -> "Place":
        """Where an iteration begins that is asked for now."""
        now = self._place
        if now.resumed:
            return dataclasses.replace(now, begun=True, first=now.first if now.begun else now.epoch)
        epoch = now.epoch + 1 if now.given else now.epoch
        return Place(epoch=epoch, first=epoch, begun=True)

    def _epoch(self, place: "Place") -> Iterator[Any]:
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
        given = False
        while batch := list(itertools.islice(buffered, self._batch_size)):
            if len(batch) == self._batch_size or not self._drop_last:
                given = True
                yield batch
            elif not given:
                raise RingreelError(
                    f"{self._source.name} gave no batch in epoch {epoch}: it holds {len(batch)} items, batch_size is "
                    f"{self._batch_size}, and drop_last leaves them out. Lower batch_size, set drop_last=False, or "
                    "give a larger source (of a ring: raise SWAP_CAP)"
                )

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

    def _finished(self, batch: list[tuple[int, Any]], place: "Place") -> Any:
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


def _numbered(items: Iterator[Any], source: Source, epoch: int) -> Iterator[tuple[int, Any]]:
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
