"""Batches from a source that does not fit in memory, through a buffer of bounded size."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ringreel._arguments import integer
from ringreel._buffer import through_buffer
from ringreel._errors import RingreelError, add_note
from ringreel._length import length_of
from ringreel._prefetch import Prefetch
from ringreel._shard import PADDING, DatasetLike, Filter, Pair, Sharing, tell_unknown
from ringreel._sources import Place, source_of
from ringreel._state import check_state
from ringreel._stats import Calls, StreamStats
from ringreel._wording import counted

# Default number of items in the buffer of a loader that shuffles.
_BUFFER = 1000
_FORMAT = "ringreel.StreamLoader/1"


class StreamLoader(DatasetLike):
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

    Ranks and the workers of torch's ``DataLoader`` share the items: each item is in exactly one share, as
    ``Shard`` describes. In a ``DataLoader`` pass the loader as the dataset, with ``batch_size=None``, because
    it makes the batches; import torch before the loader is made. A worker that is not persistent starts
    with the epoch of the loader in the training process: call ``set_epoch`` before each epoch. A ``Ring``
    should rather be shared by ``Ring.stream``, because the ranks of a loader may read different generations.

    A loader belongs to one thread and one process. It can be pickled if its source, ``parse`` and
    ``collate`` can; the copy is independent. It has its own random numbers: it neither uses nor changes
    the state of ``random``, NumPy or torch.

    Args:
        source (Any): One of:

            - a path that ends with ``.rec``: the records of a RecordIO file, as bytes;
            - another path: the lines of a text file in UTF-8, as str without line ends;
            - a folder, a pattern of ``glob`` that is not the name of a file, or ``Files``, which takes lists
              of paths too: the items of all these files;
            - an ``InputSplit`` or a ``Shard``, which share their items themselves;
            - a ``Ring``: in each epoch the samples of the newest generation, in order. If that is
              reclaimed meanwhile, the rest comes from the newest generation of that moment. Waits for a
              first generation;
            - an iterable that can be read repeatedly (a list, a ``Dataset``, ...), or a sequence with a
              length, such as one of torch's datasets;
            - a callable without arguments that returns a new iterator each time. The iterator is closed
              after its epoch if it has ``close``.

            An iterator is refused, because it can be read only once: pass a callable that makes it. A list
            of paths of existing files is refused, because it is ambiguous: pass ``Files(paths)`` for the
            contents of the files, or ``lambda: paths`` for the paths.
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
            of the batch. So the buffer holds items as they were read. An item for which it returns None is
            left out, and the next one takes its place in the batch. Default None.
        collate (Callable | None): Called with each batch, a list; its result is yielded instead. Default
            None.
        rank (int | None): This process's rank. Give ``rank`` and ``world_size`` together, or neither (the
            default): then they are those of ``torch.distributed``, if that is initialized, and otherwise
            those of the environment, as for ``Ring.stream``.
        world_size (int | None): Number of ranks, without loader workers.
        equal (str | None): How all shares get the same number of items, and so of batches. The source need
            not have a length: its items are dealt in blocks of one item for each share, and only the last
            block can be incomplete. ``"drop"`` leaves out its items, ``"wrap"`` completes it with the first
            items of the source, and ``"pad"`` with ``padding``. None (the default) lets shares differ by
            one item. Has no effect if there is one share.
        padding (Any): The item that ``"pad"`` adds. ``parse`` is not called with it. Default
            ``ringreel.PADDING``.
        filter (Callable | str | None): Called with each item by every share, before the items are dealt;
            items for which it returns a false value are left out. Use it with ``equal``, because shares
            from which ``parse`` leaves items out would have different numbers of batches. ``"parse"``:
            every share calls ``parse`` with all items, before they are dealt. Default None.
        skip_blank (bool): Whether lines without text are left out. Default False.
        comment (str | None): Lines whose text begins with it are left out. Default None.
        prefetch (int): Number of batches that a thread reads and parses ahead. ``parse`` and ``collate``
            then run in that thread. Default 0, which starts no thread.

    Raises:
        TypeError: ``source`` is not a source, or an argument has the wrong type.
        ValueError: A number is out of range, ``source`` is a list of paths, or ``source`` shares its items
            itself and an argument for sharing is given.

    An iteration raises whatever the source, ``parse`` and ``collate`` raise, unchanged, with a note that
    names the epoch and the item (from 0), the line (from 1) or the batch (from 0). It raises ``OSError``
    for errors of the filesystem, ``recordio.RecordError`` for invalid records, and ``RingreelError`` if
    ``drop_last`` leaves out all items of an epoch, if ``epochs`` is None and an epoch has no batch, or if
    ``parse`` leaves out an item that ``equal`` has dealt.

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

        One of two ranks, which have the same number of batches:

        >>> loader = ringreel.StreamLoader(range(5), 2, rank=0, world_size=2, equal="drop")
        >>> list(loader)
        [[0, 2]]
    """

    _shares_itself = True

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
        rank: int | None = None,
        world_size: int | None = None,
        equal: str | None = None,
        padding: Any = PADDING,
        filter: Callable[[Any], Any] | str | None = None,
        skip_blank: bool = False,
        comment: str | None = None,
        prefetch: int = 0,
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
        self._sharing = Sharing(f"the StreamLoader of {self._source.name}", rank, world_size, equal, padding)
        if self._source.shares_itself and (rank is not None or equal is not None):
            raise ValueError(f"{self._source.name} shares its items itself: pass rank, world_size and equal to it")
        if isinstance(filter, str) and (filter != "parse" or parse is None):
            raise ValueError(f"filter: expected a callable, None, or 'parse' with a parse function, found {filter!r}")
        self._parses_first = filter == "parse"
        self._filter = Filter(None if isinstance(filter, str) else filter, skip_blank, comment)
        self._prefetch = integer("prefetch", prefetch, 0)
        self._place = Place()
        self._calls = Calls()
        tell_unknown(self._source)

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

    def stats(self) -> StreamStats:
        """Returns how this loader and its caller spent their time, over all iterations. Never blocks.

        Another thread may call it while ``next`` waits. The time between two iterations does not count. With
        torch's ``DataLoader``, each worker has a copy of the loader, which measures the worker.

        Returns:
            StreamStats: ``waited_seconds`` are those without a generation of the ``Ring``, or those of the
            streams that the source made; with ``prefetch``, those of the thread, but no more than in ``next``.
            ``read_seconds`` are the rest of the time in ``next``, with ``parse`` and ``collate``, and
            ``step_seconds`` those in the caller. The counts are 0, the ratios of counts None.

        Example:
            >>> loader = ringreel.StreamLoader(ringreel.Ring("config.yaml"), 2)
            >>> batches = list(loader)
            >>> stats = loader.stats()
            >>> stats.read_seconds > 0, stats.starved < 1
            (True, True)
        """
        return self._calls.stats(self._source.waited_seconds())

    def __len__(self) -> int:
        """Returns the number of batches of a whole iteration, over all its epochs.

        For a ``Ring``, all generations are assumed to be as long as the newest one; waits for a first one.
        With several ranks, it is the number of this one's batches; for a ``DataLoader``, those of all its
        workers. Items that ``parse`` leaves out are counted.

        Raises:
            TypeError: The number is unknown: the source has no length, items are filtered, or ``epochs`` is
                None.
        """
        return length_of(self)

    def _rank_and_world_size(self) -> tuple[int, int]:
        source = self._source.given
        return source._rank_and_world_size() if self._source.shares_itself else super()._rank_and_world_size()

    def _count(self, share: int, shares: int) -> int:
        """Returns the number of batches of one share."""
        if self._epochs is None:
            raise TypeError("a loader with epochs=None has no length: it never ends")
        if self._parses_first or self._filter.keeps_less:
            raise TypeError("the length of a loader that filters items is unknown until they were read")
        if self._source.shares_itself:
            count = self._source.count(share, shares)
        else:
            count = self._sharing.count(self._source.length(), (share, shares))
        whole, rest = divmod(count, self._batch_size)
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
        self._calls.enter()
        try:
            for batch in self._rest():
                self._calls.leave()
                yield batch
                self._calls.enter()
        finally:
            self._calls.stop()

    def _rest(self) -> Iterator[Any]:
        """Yields the batches of an iteration that starts now."""
        place = self._place = self._place.next_iteration()
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

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration begin with this epoch.

        Needed before each epoch that workers of a ``DataLoader`` read, unless they are persistent: each new
        worker begins with a copy of this loader.

        Args:
            epoch (int): Number of the epoch, from 0.

        Raises:
            ValueError: ``epoch`` is negative.
            TypeError: ``epoch`` is not an integer.

        Example:
            >>> loader = ringreel.StreamLoader(range(5), 2, 5, shuffle=True, seed=1)
            >>> first, second = list(loader), list(loader)
            >>> loader.set_epoch(1)
            >>> list(loader) == second
            True
        """
        self._place = Place(epoch=integer("epoch", epoch, 0))

    def state_dict(self) -> dict[str, Any]:
        """Returns the position of the loader, after the last batch that was yielded.

        With ``equal``, the position of one rank is that of all.

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
        return {"format": _FORMAT, **self._made(), **self._place.state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from the position that ``state_dict`` returned.

        The next iteration yields exactly the batches that followed, to the end of the iteration that was
        under way. The source is read again from its start; items that were already yielded are skipped
        without ``parse``, but ``filter`` is called with them. If the generation of a ``Ring`` was reclaimed
        meanwhile, a warning is logged, and the epoch restarts with the newest generation.

        The next iteration raises ``RingreelError`` if the source has fewer items than were already yielded,
        or if the number of shares (ranks times loader workers) has changed in the middle of an epoch.

        Args:
            state (Mapping): The state of a loader with the same arguments.

        Raises:
            ValueError: The state is that of a loader with another ``seed``, ``shuffle``, ``buffer_size``,
                ``batch_size`` or ``equal``. The loader is unchanged.

        Example:
            >>> loader = ringreel.StreamLoader(range(5), 2)
            >>> batch = next(iter(loader))
            >>> resumed = ringreel.StreamLoader(range(5), 2)
            >>> resumed.load_state_dict(loader.state_dict())
            >>> list(resumed)
            [[2, 3], [4]]
        """
        check_state(state, _FORMAT, self._made())
        self._place = Place.loaded(state)

    def _made(self) -> dict[str, Any]:
        """Returns the arguments that determine the order."""
        made: dict[str, Any] = {"batch_size": self._batch_size, "shuffle": self._shuffle}
        made["equal"] = self._sharing.equal
        return {**made, "seed": self._seed, "buffer_size": self._buffer_size} if self._shuffle else made

    def _epoch(self, place: Place) -> Iterator[Any]:
        """Yields the rest of an epoch from ``place``, which advances with each batch."""
        found = self._sharing.find()
        if place.batches and place.shares not in (None, found[1]):
            raise RingreelError(
                f"the state was saved with {counted(place.shares or 0, 'share')} (ranks times loader workers), "
                f"but their number is now {found[1]}: continue with the same number, or from the start of an epoch"
            )
        place.shares = found[1]
        items = self._sharing.items(self._source, place, found, self._kept(place.epoch))
        batches: Any = self._batches(items, dataclasses.replace(place), found)
        with contextlib.closing(Prefetch(batches, self._prefetch) if self._prefetch else batches) as batches:
            for batch, left_out in batches:
                place.batches += 1
                place.left_out = left_out
                place.given = True
                place.resumed = False
                yield batch

    def _kept(self, epoch: int) -> Callable[[Iterator[Pair]], Iterator[Pair]]:
        """Returns the function that leaves items out before they are dealt."""
        filtered = self._filter.of(self._source, epoch)
        if not self._parses_first:
            return filtered

        def parsed(items: Iterator[Pair]) -> Iterator[Pair]:
            for number, item in filtered(items):
                value = self._parsed(number, item, epoch)
                if value is not None:
                    yield number, value

        return parsed

    def _batches(self, items: Iterator[Pair], place: Place, found: tuple[int, int]) -> Iterator[tuple[Any, int]]:
        """Yields the batches after ``place``, each with the number of items that ``parse`` left out before."""
        order = f"{self._seed} {place.epoch}" + (f" {found[0]} {found[1]}" if found[1] > 1 else "")
        buffered = through_buffer(items, self._buffer_size, order if self._shuffle else None)
        self._skip(buffered, place)
        left_out = place.left_out
        number = place.batches
        ended = False
        while not ended:
            batch: list[Any] = []
            while not ended and (wanted := self._batch_size - len(batch)):
                pairs = list(itertools.islice(buffered, wanted))
                ended = len(pairs) < wanted
                kept = self._finished(pairs, place.epoch, found[1])
                left_out += len(pairs) - len(kept)
                batch += kept
            if batch and (len(batch) == self._batch_size or not self._drop_last):
                yield self._collated(batch, number, place.epoch), left_out
                number += 1
            elif batch and not number:
                raise RingreelError(
                    f"{self._source.name} has no batch in epoch {place.epoch}: it has {counted(len(batch), 'item')}, "
                    f"batch_size is {self._batch_size}, and drop_last leaves them out. Lower batch_size, set "
                    "drop_last=False, or use a larger source (for a ring, raise SWAP_CAP)"
                )

    def _skip(self, buffered: Iterator[Pair], place: Place) -> None:
        """Skips the items before ``place``. Only the last batch can have had fewer items than the others."""
        wanted = place.batches * self._batch_size + place.left_out
        skipped = sum(1 for _ in itertools.islice(buffered, wanted))
        batches, rest = divmod(max(skipped - place.left_out, 0), self._batch_size)
        if rest and not self._drop_last:
            batches += 1
        if batches < place.batches:
            raise RingreelError(
                f"{self._source.name} ended after {counted(batches, 'batch', 'batches')} of epoch {place.epoch}, but "
                f"{place.batches} had been read when the state was saved: the source has changed"
            )

    def _finished(self, pairs: list[Pair], epoch: int, shares: int) -> list[Any]:
        """Returns the items after ``parse``, without those that it leaves out."""
        if self._parses_first:
            return [item for _, item in pairs]
        values = [item if number is None else self._parsed(number, item, epoch) for number, item in pairs]
        if self._parse is None or not any(map(operator.is_, values, itertools.repeat(None))):
            return values
        kept = []
        for (number, item), value in zip(pairs, values):
            if value is not None or number is None:
                kept.append(value)
            elif shares > 1 and self._sharing.equal is not None:
                raise RingreelError(
                    f"parse returned None for {self._source.where(number, item)}, but with "
                    f"equal={self._sharing.equal!r} all shares have to leave out the same items. Pass filter=, a "
                    "function that says which items are kept, or filter='parse', with which every share parses all "
                    "items"
                )
        return kept

    def _parsed(self, number: int | None, item: Any, epoch: int) -> Any:
        try:
            value = self._source.value(number, item)
            return value if self._parse is None else self._parse(value)
        except Exception as error:
            add_note(error, f"ringreel: {self._source.where(number, item)}, in epoch {epoch}")
            raise

    def _collated(self, batch: list[Any], number: int, epoch: int) -> Any:
        if self._collate is None:
            return batch
        try:
            return self._collate(batch)
        except Exception as error:
            add_note(error, f"ringreel: collate of batch {number} of epoch {epoch}, {self._source.name}")
            raise
