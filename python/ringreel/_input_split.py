"""Byte-range shares of RecordIO files, like dmlc-core's ``InputSplit``."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from ringreel import _ringreel
from ringreel._arguments import integer
from ringreel._errors import RingreelError
from ringreel._files import is_path
from ringreel._log import logger
from ringreel._shard import DatasetLike, Sharing
from ringreel._state import check_state
from ringreel._wording import counted

_FORMAT = "ringreel.InputSplit/1"


class InputSplit(DatasetLike):
    """The records of this process in many ``.rec`` files, of which it reads only its share of the bytes.

    The files are concatenated, and cut into as many shares as there are ranks times workers of torch's
    ``DataLoader``. Each record is in exactly one share, that in which it begins. So the shares have about
    the same number of bytes, or with ``by="records"`` of records, and nothing is read twice. For the same
    number of steps on all ranks use a ``StreamLoader`` or ``Shard`` of the files with ``equal``.

    It can be iterated over repeatedly, each time from the start of the share. A ``DataLoader`` accepts it
    as its dataset, as it does an ``IterableDataset``; import torch before it is made. It can be the source
    of a ``StreamLoader``, which shuffles its records in a buffer. It can be pickled.

    All processes must see the same files with the same lengths: complete them first.

    Args:
        paths (Any): A path, or an iterable of paths: files, or folders, of which all ``*.rec`` files are
            used. The files are sorted by their paths.
        rank (int | None): This process's rank. Give ``rank`` and ``world_size`` together, or neither (the
            default): then they are found as for ``Shard``.
        world_size (int | None): Number of ranks, without loader workers.
        by (str): What is divided equally: ``"bytes"`` (the default) or ``"records"``. By records the shares
            differ by at most one record, but without an index each process first reads the headers of all
            records.
        on_damage (str): ``"fail"`` (the default) ends the iteration with a ``RecordError``. ``"skip"`` logs a
            warning, counts the damage in ``damage``, and continues.
        use_index (bool): Whether ``by="records"`` uses ``x.idx`` beside ``x.rec``. Default True.
        prefetch (int): Number of chunks of about 1 MiB that a thread reads ahead. It needs no interpreter
            lock. Default 2; 0 starts no thread.

    Raises:
        ValueError: An argument is out of range or unknown.
        TypeError: An argument has the wrong type.

    An iteration raises ``recordio.RecordError`` for damage, ``SampleError`` for a folder without ``.rec``
    files or a file that is named twice, and ``OSError`` for errors of the filesystem.

    Example:
        >>> from ringreel import recordio
        >>> with recordio.MXRecordIO("train.rec", "w") as out:
        ...     offsets = [out.write(record) for record in (b"one", b"two", b"three")]
        >>> for rank in range(2):
        ...     print(list(ringreel.InputSplit("train.rec", rank=rank, world_size=2)))
        [b'one', b'two']
        [b'three']
    """

    _shares_itself = True

    def __init__(
        self,
        paths: Any,
        rank: int | None = None,
        world_size: int | None = None,
        by: str = "bytes",
        on_damage: str = "fail",
        use_index: bool = True,
        prefetch: int = 2,
    ) -> None:
        given = [paths] if is_path(paths) else list(paths)
        for path in given:
            if not is_path(path):
                raise TypeError(f"paths: expected paths, found {path!r}")
        self._paths = [os.fsdecode(path) for path in given]
        if not self._paths:
            raise ValueError("paths: expected at least one path, found none")
        for name, value, accepted in (("by", by, ("bytes", "records")), ("on_damage", on_damage, ("fail", "skip"))):
            if value not in accepted:
                raise ValueError(f"{name}: expected {' or '.join(map(repr, accepted))}, found {value!r}")
        self._by_records = by == "records"
        self._skip_damage = on_damage == "skip"
        self._use_index = bool(use_index)
        self._prefetch = integer("prefetch", prefetch, 0)
        self._sharing = Sharing("an InputSplit", rank, world_size, None, None)
        self._at: tuple[int, int] | None = None
        self._shares: int | None = None
        self._loaded = False
        self._damage = (0, 0)

    def __repr__(self) -> str:
        return f"<ringreel.InputSplit of {self._paths[0]}{', ...' if len(self._paths) > 1 else ''}>"

    @property
    def files(self) -> list[str]:
        """The files of all shares, in the order in which they are read.

        Example:
            >>> from ringreel import recordio
            >>> for name in ("b.rec", "a.rec"):
            ...     recordio.MXRecordIO(name, "w").close()
            >>> ringreel.InputSplit(["b.rec", "a.rec"]).files
            ['a.rec', 'b.rec']
        """
        return _ringreel.InputSplit.open(self._paths, 0, 1, by_records=False, skip_damage=False, use_index=False).paths

    @property
    def records(self) -> int | None:
        """Number of records of this share with ``by="records"``, and otherwise None. Damage lowers it.

        Example:
            >>> from ringreel import recordio
            >>> with recordio.MXRecordIO("train.rec", "w") as out:
            ...     offsets = [out.write(record) for record in (b"one", b"two", b"three")]
            >>> ringreel.InputSplit("train.rec", rank=0, world_size=2, by="records").records
            1
        """
        return self._opened(self._sharing.find(), None, 0).count

    @property
    def damage(self) -> tuple[int, int]:
        """Numbers of damaged regions and of their bytes that the last iteration has skipped so far.

        Example:
            >>> import pathlib
            >>> size = pathlib.Path("bad.rec").write_bytes(bytes(8))
            >>> split = ringreel.InputSplit("bad.rec", on_damage="skip")
            >>> list(split), split.damage
            ([], (1, 8))
        """
        return self._damage

    def __iter__(self) -> Iterator[bytes]:
        """Yields the records of this process, from the start of its share.

        After ``load_state_dict``, the first iteration continues from the saved position. With several
        iterators, ``state_dict`` describes the one that was read last.
        """
        found = self._sharing.find()
        at = self._at if self._loaded else None
        if at is not None and self._shares != found[1]:
            raise RingreelError(
                f"the state was saved with {counted(self._shares or 0, 'share')} (ranks times loader workers), "
                f"but their number is now {found[1]}: continue with the same number"
            )
        self._loaded = False
        self._at, self._shares, self._damage = at, found[1], (0, 0)
        split = self._opened(found, at, self._prefetch)
        names = split.paths
        while (chunk := split.next_chunk()) is not None:
            for file, begin, end, payload, why in chunk:
                self._at = file, end
                if payload is not None:
                    yield payload
                    continue
                self._damage = self._damage[0] + 1, self._damage[1] + end - begin
                logger.warning("%s: skipping bytes %d to %d: %s", names[file], begin, end, why)

    def state_dict(self) -> dict[str, Any]:
        """Returns the position after the last record that was yielded. It is that of this share only.

        Returns:
            dict: Values of JSON's types only.

        Example:
            >>> from ringreel import recordio
            >>> with recordio.MXRecordIO("train.rec", "w") as out:
            ...     offsets = [out.write(record) for record in (b"one", b"two", b"three")]
            >>> split = ringreel.InputSplit("train.rec")
            >>> next(iter(split))
            b'one'
            >>> split.state_dict()["at"]
            [0, 12]
        """
        at = None if self._at is None else list(self._at)
        return {"format": _FORMAT, "at": at, "shares": self._shares, "by_records": self._by_records}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Makes the next iteration continue from the position that ``state_dict`` returned.

        Args:
            state (Mapping): The state of the same share of the same files.

        Raises:
            ValueError: ``state`` is not the state of an ``InputSplit`` with the same ``by``.

        Example:
            >>> from ringreel import recordio
            >>> with recordio.MXRecordIO("train.rec", "w") as out:
            ...     offsets = [out.write(record) for record in (b"one", b"two", b"three")]
            >>> split = ringreel.InputSplit("train.rec")
            >>> first = next(iter(split))
            >>> resumed = ringreel.InputSplit("train.rec")
            >>> resumed.load_state_dict(split.state_dict())
            >>> list(resumed)
            [b'two', b'three']
        """
        check_state(state, _FORMAT, {"by_records": self._by_records})
        at = state["at"]
        self._at = None if at is None else (integer("at", at[0], 0), integer("at", at[1], 0))
        self._shares = state["shares"]
        self._loaded = True

    def _opened(self, found: tuple[int, int], at: tuple[int, int] | None, depth: int) -> _ringreel.InputSplit:
        return _ringreel.InputSplit.open(
            self._paths,
            *found,
            by_records=self._by_records,
            skip_damage=self._skip_damage,
            use_index=self._use_index,
            at=at,
            depth=depth,
        )
