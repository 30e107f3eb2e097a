"""Shares of a source: which items a rank and a loader worker read."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Optional

from ringreel import _length
from ringreel._arguments import checked_equal, given_rank, integer
from ringreel._environment import distributed_rank, found_rank
from ringreel._errors import add_note
from ringreel._length import length_of, share_of
from ringreel._log import logger
from ringreel._sources import Place, Source, source_of

if TYPE_CHECKING:
    from typing_extensions import Self

#: An item with its number in the source. The number of a padding item is None.
Pair = tuple[Optional[int], Any]


class Padding:
    """The type of ``ringreel.PADDING``, the item that ``equal="pad"`` adds.

    There is one object of this type, also after pickling, so ``item is ringreel.PADDING`` finds it.

    Example:
        >>> list(ringreel.Shard([1, 2, 3], rank=1, world_size=2, equal="pad"))
        [2, <ringreel.PADDING>]
    """

    def __repr__(self) -> str:
        return "<ringreel.PADDING>"

    def __reduce__(self) -> str:
        return "PADDING"


PADDING = Padding()


class Sharing:
    """Finds the share of this process, and deals items.

    Args:
        what (str): The name of the object that is shared, for messages.
        rank (int | None): This process's rank, or None with ``world_size``.
        world_size (int | None): Number of ranks.
        equal (str | None): See ``Shard``.
        padding (Any): The padding item.

    Raises:
        ValueError: A number is out of range, only one of the two is given, or ``equal`` is unknown.
        TypeError: A number is not an integer.
    """

    def __init__(self, what: str, rank: int | None, world_size: int | None, equal: str | None, padding: Any) -> None:
        self._what = what
        self.fixed = given_rank(rank, world_size)
        if self.fixed is not None:
            world_size = integer("world_size", world_size, 1)
            if integer("rank", rank, 0) >= world_size:
                raise ValueError(f"rank: expected less than world_size={world_size}, found {rank}")
        self.equal = checked_equal(equal)
        self.padding = padding
        self._pid = os.getpid()
        self._warned = False

    def __getstate__(self) -> dict[str, Any]:
        # torch.distributed is not initialized in a spawned loader worker.
        return {**self.__dict__, "fixed": self.fixed or distributed_rank()}

    def rank_and_world_size(self) -> tuple[int, int]:
        """Returns the rank of this process and the number of ranks."""
        rank, world_size = found_rank(self.fixed)
        if not 0 <= rank < world_size:
            raise ValueError(f"rank {rank} of world size {world_size}, as the environment says, is not a rank")
        return rank, world_size

    def find(self) -> tuple[int, int]:
        """Returns the share of this process and the number of shares: ranks times loader workers."""
        rank, world_size = self.rank_and_world_size()
        info = _length.worker_info()
        if info is None:
            if self._pid != os.getpid() and world_size == 1 and self.fixed is None and not self._warned:
                self._warned = True
                logger.warning(
                    "%s was made in process %d and is read in process %d, which is neither a rank nor a worker of "
                    "torch's DataLoader: it yields all items there, too. Pass rank and world_size if the processes "
                    "are to share the items",
                    *(self._what, self._pid, os.getpid()),
                )
            return rank, world_size
        return rank * info.num_workers + info.id, world_size * info.num_workers

    def items(
        self, source: Source, place: Place, found: tuple[int, int], keep: Callable[[Iterator[Pair]], Iterator[Pair]]
    ) -> Iterator[Pair]:
        """Opens ``source``, and returns the items of share ``found[0]`` of ``found[1]``.

        Args:
            source (Source): The source.
            place (Place): The epoch.
            found (tuple[int, int]): What ``find`` returned.
            keep (Callable): Returns the items that are dealt, of all items.
        """
        if found[1] > 1:
            self._tell_order(source, found[1])
        if source.shares_itself:
            return keep(numbered(source.open(place), source, place.epoch))
        chosen = source.by_index(place) if found[1] > 1 and keep is keep_all else None
        if chosen is not None:
            dealt = self._deal(((n, None) for n in range(len(chosen))), found)
            return _read(dealt, chosen, source, place.epoch)
        return self._deal(keep(numbered(source.open(place), source, place.epoch)), found)

    def _tell_order(self, source: Source, shares: int) -> None:
        """Logs a warning about a source whose items differ between processes."""
        if self._warned:
            return
        if isinstance(source.given, (set, frozenset)):
            self._warned = True
            logger.warning(
                "%s is read in %d shares, but the order of a %s differs between processes, so items may be read twice "
                "or not at all. Pass a sorted list",
                *(self._what, shares, type(source.given).__name__),
            )
        if source.moves:
            self._warned = True
            logger.warning(
                "%s is read in %d shares, which may read different generations. Use Ring.stream or "
                "ringreel.torch.RingStream, which agree on one",
                *(self._what, shares),
            )

    def count(self, total: int, found: tuple[int, int]) -> int:
        """Returns the number of items of share ``found[0]`` of ``found[1]``, of ``total`` items."""
        return share_of(total, *found, self.equal)

    def _deal(self, items: Iterator[Pair], found: tuple[int, int]) -> Iterator[Pair]:
        share, shares = found
        if shares == 1:
            return items
        return deal(items, share, shares, self.equal, (None, self.padding))


def deal(items: Iterable[Any], share: int, shares: int, equal: str | None, padding: Any) -> Iterator[Any]:
    """Yields the items of one share. The items are dealt in blocks of one item for each share.

    Args:
        items (Iterable): Items, of which there need not be a known number.
        share (int): Number of the share, from 0.
        shares (int): Number of shares.
        equal (str | None): What happens in a last block that is not complete. See ``Shard``.
        padding (Any): The item that ``"pad"`` adds.
    """
    if equal is None:
        yield from itertools.islice(items, share, None, shares)
        return
    first: list[Any] = []  # as many as the last block can need
    mine = None
    at = 0
    for item in items:
        if equal == "wrap" and len(first) < shares - 1:
            first.append(item)
        if at == share:
            if equal == "drop":
                mine = item
            else:
                yield item
        at += 1
        if at == shares:
            at = 0
            if equal == "drop":
                yield mine
    if share >= at > 0:
        if equal == "wrap":
            yield first[(share - at) % len(first)]
        elif equal == "pad":
            yield padding


def keep_all(items: Iterator[Pair]) -> Iterator[Pair]:
    """Returns ``items``."""
    return items


class Filter:
    """Leaves items out: blank lines, comments, and those that a function refuses.

    Args:
        keep (Callable | None): Returns whether an item is kept.
        skip_blank (bool): Whether lines without text are left out.
        comment (str | None): Lines whose text begins with it are left out.

    Raises:
        TypeError: ``comment`` is neither text nor None.
        ValueError: ``comment`` is empty, so every line would begin with it.
    """

    def __init__(self, keep: Callable[[Any], Any] | None, skip_blank: bool, comment: str | None) -> None:
        if comment is not None and not isinstance(comment, str):
            raise TypeError(f"comment: expected text, or None, found {comment!r}")
        if comment == "":
            raise ValueError("comment: expected text that is not empty, or None")
        self._keep = keep
        self._skip_blank = bool(skip_blank)
        self._comment = comment
        self.keeps_less = self._skip_blank or comment is not None or keep is not None

    def of(self, source: Source, epoch: int) -> Callable[[Iterator[Pair]], Iterator[Pair]]:
        """Returns a function that leaves out items of ``source``."""
        if not self.keeps_less:
            return keep_all

        def filtered(items: Iterator[Pair]) -> Iterator[Pair]:
            for number, item in items:
                try:
                    wanted = self._keeps(source.value(number, item))
                except Exception as error:
                    add_note(error, f"ringreel: {source.where(number, item)}, in epoch {epoch}")
                    raise
                if wanted:
                    yield number, item

        return filtered

    def _keeps(self, value: Any) -> bool:
        if isinstance(value, str):
            text = value.strip()
            if (self._skip_blank and not text) or (self._comment is not None and text.startswith(self._comment)):
                return False
        return self._keep is None or bool(self._keep(value))


def numbered(items: Iterator[Any], source: Source, epoch: int) -> Iterator[Pair]:
    """Yields each item with its number. Closes an iterator that was made for this pass."""
    try:
        for number in itertools.count(source.first):
            try:
                item = next(items)
            except StopIteration:
                return
            except Exception as error:
                add_note(error, f"ringreel: while {source.at(number)} was read, in epoch {epoch}")
                raise
            yield number, item
    finally:
        close = getattr(items, "close", None)
        if close is not None and (source.makes or isinstance(items, Generator)):
            close()


def _read(dealt: Iterator[Pair], chosen: Any, source: Source, epoch: int) -> Iterator[Pair]:
    """Yields the items at the numbers that were dealt, read by index."""
    for number, padding in dealt:
        if number is None:
            yield None, padding
            continue
        try:
            item = chosen[number]
        except Exception as error:
            if isinstance(error, IndexError) and source.unit == "sample":
                return  # the ring's next generation is shorter
            add_note(error, f"ringreel: while {source.at(number)} was read, in epoch {epoch}")
            raise
        yield number, item


class DatasetLike:
    """Base of the classes whose objects torch's ``DataLoader`` accepts as an ``IterableDataset``.

    ``DataLoader`` checks the type: if torch is imported, a new object is of a subclass of both classes.
    """

    _sharing: Sharing

    def __new__(cls, *args: Any, **keys: Any) -> Self:
        chosen: Any = cls
        if "torch" in sys.modules and "torch.utils.data" in sys.modules:
            from ringreel import _torch_shard  # here, because it imports torch, and the modules that import this one

            chosen = _torch_shard.CLASSES.get(cls, cls)
        made: Self = object.__new__(chosen)
        return made

    def _rank_and_world_size(self) -> tuple[int, int]:
        """Returns the rank of this process and the number of ranks."""
        return self._sharing.rank_and_world_size()

    def __getitem__(self, index: Any) -> Any:
        # DataLoader reads an object by index that it does not take for an IterableDataset.
        raise TypeError(
            f"{type(self).__name__} is read by iteration, not by index. As the dataset of torch's DataLoader, make "
            "it after the import of torch"
        )


class Shard(DatasetLike):
    """The items of a source that belong to this process: its rank, and its worker of torch's ``DataLoader``.

    Each item of the source is in exactly one share. A ``DataLoader`` accepts a ``Shard`` as its dataset, as
    it does an ``IterableDataset``; import torch before the shard is made. Each iteration reads the source
    from its start.

    Items are dealt in turn: item ``n`` belongs to share ``n % shares``, where the shares are the ranks times
    the loader workers. So all processes must see the same items in the same order. Every process reads the
    whole source, except one with a length and an index, such as one of torch's datasets. For large ``.rec``
    files use ``InputSplit``, of which each process reads its bytes only.

    A process that is neither a rank nor a worker of a ``DataLoader``, such as one of ``multiprocessing``,
    cannot be recognised as one of several. It yields all items, and logs a warning.

    Args:
        source (Any): As for ``StreamLoader``.
        rank (int | None): This process's rank. Give ``rank`` and ``world_size`` together, or neither (the
            default): then they are those of ``torch.distributed``, if that is initialized, and otherwise
            those of the environment, as for ``Ring.stream``.
        world_size (int | None): Number of ranks, without loader workers.
        equal (str | None): How all shares get the same number of items. The source need not have a length:
            its items are dealt in blocks of one item for each share, and only the last block can be
            incomplete. ``"drop"`` leaves out its items, ``"wrap"`` completes it with the first items of the
            source, and ``"pad"`` with ``padding``. None (the default) lets shares differ by one item.
        padding (Any): The item that ``"pad"`` adds. Default ``ringreel.PADDING``.
        filter (Callable | None): Called with each item by every share, before the items are dealt; items
            for which it returns a false value are left out. Default None.
        skip_blank (bool): Whether lines without text are left out. Default False.
        comment (str | None): Lines whose text begins with it are left out. Default None.

    Raises:
        TypeError: ``source`` is not a source, or shares its items itself.
        ValueError: A number is out of range, or ``equal`` is unknown.

    Example:
        >>> list(ringreel.Shard(range(5), rank=1, world_size=2))
        [1, 3]
        >>> list(ringreel.Shard(range(5), rank=1, world_size=2, equal="wrap"))
        [1, 3, 0]
    """

    _shares_itself = True

    def __init__(
        self,
        source: Any,
        rank: int | None = None,
        world_size: int | None = None,
        equal: str | None = None,
        padding: Any = PADDING,
        filter: Callable[[Any], Any] | None = None,
        skip_blank: bool = False,
        comment: str | None = None,
    ) -> None:
        self._source = source_of(source)
        if self._source.shares_itself:
            raise TypeError(
                f"source: found {type(source).__name__}: it shares its items itself; use it without a Shard"
            )
        self._sharing = Sharing(f"the Shard of {self._source.name}", rank, world_size, equal, padding)
        self._filter = Filter(filter, skip_blank, comment)
        tell_unknown(self._source)

    def __repr__(self) -> str:
        return f"<ringreel.Shard of {self._source.name}>"

    def __len__(self) -> int:
        """Returns the number of items of this process; for a ``DataLoader``, of all its workers.

        Raises:
            TypeError: The number is unknown: the source has no length, or items are filtered.

        Example:
            >>> len(ringreel.Shard(range(5), rank=1, world_size=2))
            2
        """
        return length_of(self)

    def _count(self, share: int, shares: int) -> int:
        """Returns the number of items of one share."""
        if self._filter.keeps_less:
            raise TypeError("a Shard that filters items has no length until they were read")
        return self._sharing.count(self._source.length(), (share, shares))

    def __bool__(self) -> bool:
        """Returns True, because whether there are items is unknown before they are read."""
        return True

    def __iter__(self) -> Iterator[Any]:
        """Yields the items of this process, from the start of the source."""
        source = self._source
        for number, item in self._sharing.items(source, Place(), self._sharing.find(), self._filter.of(source, 0)):
            if number is None:
                yield item
                continue
            try:
                value = source.value(number, item)
            except Exception as error:
                add_note(error, f"ringreel: {source.where(number, item)}")
                raise
            yield value


def tell_unknown(source: Source) -> None:
    """Logs a warning about a source that may share its items itself, which would lose items."""
    data = sys.modules.get("torch.utils.data")
    if data is not None and not source.shares_itself and isinstance(source.given, data.IterableDataset):
        logger.warning(
            "%s is an IterableDataset: if it already divides its items among ranks or workers, they are divided "
            "twice, and items are lost. Pass a dataset that yields all items in every process",
            source.name,
        )
