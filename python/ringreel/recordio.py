"""RecordIO files as MXNet reads and writes them: its module ``mxnet.recordio``, without MXNet.

A program that reads or writes ``.rec`` files runs with only its import changed. Names, arguments,
results and files are those of MXNet 1.9.1. Differences:

- Reading is strict. Data that no RecordIO writer produces (a torn record, parts in a wrong order, a
  magic number that is not escaped) raises a ``RecordError`` that names the file and the byte. MXNet
  merges or drops some of it silently.
- A reader can be used by several threads, and in forked children, each of which continues
  independently from the reader's position. It can seek after the end of the file.
- A writer belongs to the process that opened it, and so does its buffered data. Pickling an open
  writer is refused, because opening the copy would empty the file.
- Pickling a reader leaves it open. As in MXNet, the copy starts at the first record, and opens the
  files by their paths.
- Readers and writers are context managers, and readers are iterable. ``uri`` is text. Only local files
  can be opened.
- A system error is an OSError, not an MXNetError; misuse is a RingreelError, not an AssertionError.

Example:
    >>> from ringreel import recordio
    >>> with recordio.MXIndexedRecordIO("train.idx", "train.rec", "w") as out:
    ...     for number in range(3):
    ...         header = recordio.IRHeader(0, float(number), number, 0)
    ...         out.write_idx(number, recordio.pack(header, b"data"))
    >>> with recordio.MXIndexedRecordIO("train.idx", "train.rec", "r") as train:
    ...     header, data = recordio.unpack(train.read_idx(1))
    ...     print(header.label, data)
    ...     for record in train:                    # continues to the end of the file
    ...         print(recordio.unpack(record)[0].id)
    1.0 b'data'
    2
"""

from __future__ import annotations

import io
import numbers
import os
import struct
import threading
import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ringreel import _images, _ringreel
from ringreel._closing import Closing
from ringreel._errors import RingreelError
from ringreel._files import Path
from ringreel._wording import counted

__all__ = [
    "IRHeader",
    "MXIndexedRecordIO",
    "MXRecordIO",
    "RecordError",
    "pack",
    "pack_img",
    "unpack",
    "unpack_img",
]


class RecordError(RingreelError, ValueError):
    """A RecordIO file, or a record, that is invalid.

    The message names the file and the byte, and says what to do.

    Attributes:
        path (str | None): Path of the file; None if the record was not read from a file.
        offset (int | None): Offset of the error in bytes; None if there is no single one.
        kind (str | None): Name of the error in the framing or in the index: "BadMagic", "Truncated", ...

    Example:
        >>> import pathlib
        >>> from ringreel import recordio
        >>> size = pathlib.Path("bad.rec").write_bytes(b"not a RecordIO file")
        >>> try:
        ...     recordio.MXRecordIO("bad.rec", "r").read()
        ... except recordio.RecordError as error:
        ...     print(error.kind, error.path, error.offset)
        BadMagic bad.rec 0
    """

    path: str | None = None
    offset: int | None = None
    kind: str | None = None


class MXRecordIO(Closing):
    """A RecordIO file, read or written record after record.

    It is a context manager: leaving the ``with`` block closes it. Iteration reads to the end of the file.

    Args:
        uri (str | bytes | os.PathLike): Path of the file, or a ``file://`` address.
        flag (str): ``"r"`` for reading, ``"w"`` for writing. ``"w"`` empties an existing file.

    Attributes:
        uri (str): Path of the file.
        flag (str): The flag.
        writable (bool): Whether it was opened for writing.
        is_open (bool): Whether it is open.
        pid (int | None): Id of the process that opened it; None while it is closed.

    Raises:
        OSError: The file cannot be opened.
        ValueError: ``flag`` is neither ``"r"`` nor ``"w"``.

    Example:
        >>> from ringreel import recordio
        >>> with recordio.MXRecordIO("data.rec", "w") as out:
        ...     offsets = [out.write(record) for record in (b"one", b"two")]
        >>> with recordio.MXRecordIO("data.rec", "r") as records:
        ...     list(records)
        [b'one', b'two']
    """

    def __init__(self, uri: Path, flag: str) -> None:
        self.uri = os.fsdecode(uri)
        self.flag = flag
        self.pid: int | None = None
        self.is_open = False
        self.writable = False
        self._leave_closed()
        self.open()

    def _leave_closed(self) -> None:
        self._reader: _ringreel.RecordReader | None = None
        self._writer: _ringreel.RecordWriter | None = None
        self._end: weakref.finalize[..., Any] | None = None

    def open(self) -> None:
        """Opens the file; closes it first if it is open.

        A reader is then at the first record, and the file of a writer is empty.

        Raises:
            OSError: The file cannot be opened.
            ValueError: The flag is neither ``"r"`` nor ``"w"``.

        Example:
            >>> from ringreel import recordio
            >>> out = recordio.MXRecordIO("data.rec", "w")
            >>> out.close()
            >>> out.open()
            >>> out.is_open
            True
            >>> out.close()
        """
        if self.flag not in ("r", "w"):
            raise ValueError(f"Invalid flag {self.flag}: expected 'r' or 'w'")
        if self.is_open:
            self._own()
            self.close()
        path = _local(self.uri)
        self.writable = self.flag == "w"
        if self.writable:
            self._writer = _ringreel.RecordWriter.create(path)
        else:
            self._reader = _ringreel.RecordReader.open(path)
        try:
            beside = self._open_beside()
        except BaseException:
            self._leave_closed()
            raise
        self.pid = os.getpid()
        self.is_open = True
        # Runs at the latest when this object is collected or the interpreter exits.
        self._end = weakref.finalize(self, _close, self.pid, self._writer, beside)

    def _open_beside(self) -> io.TextIOBase | None:
        """Opens the files that belong to this one. They are closed with it."""
        return None

    def close(self) -> None:
        """Closes the file.

        A writer writes its buffered data first. In a forked child, the data is left to the parent.

        Raises:
            OSError: The data could not be written.

        Example:
            >>> from ringreel import recordio
            >>> out = recordio.MXRecordIO("data.rec", "w")
            >>> offset = out.write(b"one")
            >>> out.close()
            >>> out.is_open
            False
        """
        if not self.is_open:
            return
        end = self._end
        self.is_open = False
        self.pid = None
        self._leave_closed()
        if end is not None:
            end()

    def reset(self) -> None:
        """Returns to the first record. The file of a writer is emptied.

        Example:
            >>> from ringreel import recordio
            >>> with recordio.MXRecordIO("data.rec", "w") as out:
            ...     offset = out.write(b"one")
            >>> with recordio.MXRecordIO("data.rec", "r") as records:
            ...     first = records.read()
            ...     records.reset()
            ...     records.read() == first
            True
        """
        if self.is_open:
            self._own()
        self.close()
        self.open()

    def read(self) -> bytes | None:
        """Reads the next record.

        Returns:
            bytes | None: The record; None at the end of the file.

        Raises:
            RecordError: The record is invalid. The next call raises the same error.

        Example:
            >>> from ringreel import recordio
            >>> with recordio.MXRecordIO("data.rec", "w") as out:
            ...     offset = out.write(b"one")
            >>> with recordio.MXRecordIO("data.rec", "r") as records:
            ...     records.read(), records.read()
            (b'one', None)
        """
        return self._reading().read()

    def write(self, buf: Any) -> int:
        """Writes one record.

        The whole record is in the file, for others to read, only after ``close``. No other thread may change
        ``buf`` until the call returns.

        Args:
            buf (Buffer): The bytes of the record, fewer than 2**29: bytes, or another object that holds plain
                bytes.

        Returns:
            int: Offset in bytes at which the record starts.

        Raises:
            OSError: The record could not be written. Nothing can be written afterwards.

        Example:
            >>> from ringreel import recordio
            >>> with recordio.MXRecordIO("data.rec", "w") as out:
            ...     out.write(b"one"), out.write(b"two")
            (0, 12)
        """
        return self._writing().write(buf)

    def tell(self) -> int:
        """Returns the offset in bytes at which the next record will be written or read.

        Example:
            >>> from ringreel import recordio
            >>> with recordio.MXRecordIO("data.rec", "w") as out:
            ...     offset = out.write(b"one")
            ...     out.tell()
            12
        """
        return self._writing().position if self.writable else self._reading().position

    def _reading(self) -> _ringreel.RecordReader:
        if self._reader is None:
            raise self._unfit("reading", "'r'")
        return self._reader

    def _writing(self) -> _ringreel.RecordWriter:
        if self._writer is None:
            raise self._unfit("writing", "'w'")
        return self._writer

    def _unfit(self, use: str, flag: str) -> RingreelError:
        if not self.is_open:
            return RingreelError(f"{self.uri}: not open: call open() first")
        return RingreelError(f"{self.uri}: not open for {use}: its flag is {self.flag!r}, not {flag}")

    def _own(self) -> None:
        """Checks that this process opened the writer, so that it does not empty another process's file."""
        if self.writable and self.pid != os.getpid():
            raise RingreelError(
                f"{self.uri}: this writer was opened in process {self.pid}, not in this one ({os.getpid()}): "
                "only that process may write to it"
            )

    def __iter__(self) -> Iterator[bytes]:
        """Yields the records from the current position to the end of the file."""
        return iter(self._reading().read, None)

    def __repr__(self) -> str:
        how = f"flag {self.flag!r}" if self.is_open else "closed"
        return f"<ringreel.recordio.{type(self).__name__} {self.uri} ({how})>"

    def __getstate__(self) -> dict[str, Any]:
        if self.is_open and self.writable:
            raise RingreelError(f"{self.uri}: open for writing: close it before pickling or copying it")
        state = {name: value for name, value in self.__dict__.items() if name not in ("_reader", "_writer", "_end")}
        state["pid"] = None
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._leave_closed()
        self.is_open = False
        if state["is_open"]:
            if self.flag == "w":
                raise RingreelError(f"{self.uri}: was pickled while open for writing; opening it would empty it")
            self.open()


class MXIndexedRecordIO(MXRecordIO):
    """A RecordIO file with an index beside it, which has a line ``key <TAB> byte offset`` per record.

    Args:
        idx_path (str | bytes | os.PathLike): Path of the index.
        uri (str | bytes | os.PathLike): Path of the file, or a ``file://`` address.
        flag (str): ``"r"`` for reading, ``"w"`` for writing. ``"w"`` empties existing files.
        key_type (Callable[[str], Any]): Makes a key from its text, such as ``int`` (the default) or
            ``str``.

    Attributes:
        idx (dict): Byte offset by key; of a key that occurs repeatedly, the last one.
        keys (list): The keys in the order of the index.
        idx_path (str): Path of the index.
        key_type (Callable): Makes a key from its text.
        fidx (io.TextIOBase): The open file of the index.

    Raises:
        RecordError: The index cannot be used.
        OSError: A file cannot be opened.
        ValueError: ``flag`` is neither ``"r"`` nor ``"w"``.

    Example:
        >>> from ringreel import recordio
        >>> with recordio.MXIndexedRecordIO("data.idx", "data.rec", "w") as out:
        ...     out.write_idx(7, b"seven")
        ...     out.write_idx(8, b"eight")
        >>> with recordio.MXIndexedRecordIO("data.idx", "data.rec", "r") as records:
        ...     records.keys, records.read_idx(8)
        ([7, 8], b'eight')
    """

    def __init__(self, idx_path: Path, uri: Path, flag: str, key_type: Any = int) -> None:
        self.idx_path = os.fsdecode(idx_path)
        self.idx: dict[Any, int] = {}
        self.keys: list[Any] = []
        self.key_type = key_type
        self.fidx: Any = None
        super().__init__(uri, flag)

    def _open_beside(self) -> io.TextIOBase:
        self.keys, self.idx = [], {}
        path = _local(self.idx_path)
        if self.writable:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
            self.fidx = made = _IndexFile(path, os.open(path, flags, 0o666))
            return made
        file = open(path, encoding="utf-8")
        try:
            self.keys, self.idx = _ringreel.record_index(bytes(file.buffer.read()), path, self.key_type)
        except BaseException:
            file.close()
            raise
        self.fidx = file
        return file

    def seek(self, idx: Any) -> None:
        """Moves to the record with the key ``idx``, which ``read`` then returns. Opens a closed reader.

        Args:
            idx (Any): The key.

        Raises:
            KeyError: The index has no such key.

        Example:
            >>> from ringreel import recordio
            >>> with recordio.MXIndexedRecordIO("data.idx", "data.rec", "w") as out:
            ...     out.write_idx(7, b"seven")
            ...     out.write_idx(8, b"eight")
            >>> with recordio.MXIndexedRecordIO("data.idx", "data.rec", "r") as records:
            ...     records.seek(8)
            ...     records.read()
            b'eight'
        """
        offset = self._offset(idx)
        self._reading().seek(offset)

    def read_idx(self, idx: Any) -> bytes:
        """Returns the record with the key ``idx``; ``read`` then continues after it. Opens a closed reader.

        Many threads can call it at once.

        Args:
            idx (Any): The key.

        Returns:
            bytes: The record.

        Raises:
            KeyError: The index has no such key.
            RecordError: The record is invalid.

        Example:
            >>> from ringreel import recordio
            >>> with recordio.MXIndexedRecordIO("data.idx", "data.rec", "w", str) as out:
            ...     out.write_idx("cat", b"meow")
            >>> with recordio.MXIndexedRecordIO("data.idx", "data.rec", "r", str) as records:
            ...     records.read_idx("cat")
            b'meow'
        """
        offset = self._offset(idx)
        return self._reading().read_at(offset)

    def write_idx(self, idx: Any, buf: Any) -> None:
        """Writes a record, as ``write`` does, and its key into the index.

        Args:
            idx (Any): The key. Its text must not be empty or contain a tab or a line end.
            buf (Buffer): The bytes of the record.

        Raises:
            RecordError: ``idx`` cannot be a key.
            OSError: The record could not be written.

        Example:
            >>> from ringreel import recordio
            >>> with recordio.MXIndexedRecordIO("data.idx", "data.rec", "w") as out:
            ...     out.write_idx(7, b"seven")
            ...     out.idx
            {7: 0}
        """
        key = self.key_type(idx)
        text = str(key)
        if not text or any(mark in text for mark in "\t\r\n"):
            raise RecordError(f"{self.idx_path}: {text!r} cannot be a key: it is empty or has a tab or a line end")
        before = 0 if type(self).write is MXRecordIO.write else self.tell()  # a subclass's write may return None
        position: int | None = self.write(buf)
        position = before if position is None else position
        self.fidx.write(f"{text}\t{position}\n")
        self.idx[key] = position
        self.keys.append(key)

    def _offset(self, key: Any) -> int:
        if not self.is_open and self.flag == "r":
            self.open()
        self._reading()
        try:
            return self.idx[key]
        except KeyError:
            raise KeyError(f"{self.idx_path}: no key {key!r}") from None

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        state["fidx"] = None
        if self.is_open:  # the copy reads both again
            state["idx"], state["keys"] = {}, []
        return state


class _IndexFile(io.TextIOBase):
    """The index file of a writer, open as ``fd``.

    In a forked child it discards buffered text, which the parent writes.
    """

    def __init__(self, path: str, fd: int) -> None:
        self.name = path
        self._fd = fd
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._held = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        if self._pid != os.getpid():
            raise RingreelError(f"{self.name}: process {self._pid} writes this index, not this process")
        with self._lock:
            self._held += text.encode()
            if len(self._held) >= 1 << 16:
                self._write_held()
        return len(text)

    def flush(self) -> None:
        if self._pid == os.getpid():
            with self._lock:
                self._write_held()

    def _write_held(self) -> None:
        try:
            while self._held:
                del self._held[: os.write(self._fd, self._held)]
        except OSError as error:
            error.filename = self.name
            raise

    def close(self) -> None:
        if not self.closed:
            try:
                super().close()  # flushes
            finally:
                os.close(self._fd)


def _close(pid: int, writer: _ringreel.RecordWriter | None, beside: io.TextIOBase | None) -> None:
    try:
        if writer is not None and pid == os.getpid():
            writer.close()
    finally:
        if beside is not None:
            beside.close()


def _local(uri: str) -> str:
    """Returns the path of a file, given as a path or as a ``file://`` address."""
    scheme, separator, path = uri.partition("://")
    if not separator:
        return uri
    if scheme == "file":
        return path
    raise RingreelError(f"{uri}: only local files can be opened: copy the file, or mount its filesystem")


class HEADER(NamedTuple):
    """The header that MXNet puts before the bytes of a labelled image. Also named ``IRHeader``.

    Attributes:
        flag (int): Number of labels that follow the header; 0 if the label is in the header. ``pack``
            sets it.
        label (float | Sequence[float]): One number, or an array of numbers, which are stored as float32.
        id (int): From 0 to 2**64 - 1.
        id2 (int): From 0 to 2**64 - 1.

    Example:
        >>> from ringreel import recordio
        >>> recordio.IRHeader(flag=0, label=1.0, id=7, id2=0).id
        7
    """

    flag: int
    label: Any
    id: int
    id2: int


IRHeader = HEADER

_IR_FORMAT = "<IfQQ"
_IR_SIZE = struct.calcsize(_IR_FORMAT)


def pack(header: HEADER | tuple[int, Any, int, int], s: bytes) -> bytes:
    """Returns a record: the header, its labels if they are an array, and ``s``.

    Args:
        header (HEADER | tuple): The header.
        s (bytes): The data.

    Returns:
        bytes: A record for ``MXRecordIO.write``.

    Example:
        >>> from ringreel import recordio
        >>> record = recordio.pack(recordio.IRHeader(0, [1.0, 2.0], 7, 0), b"data")
        >>> header, data = recordio.unpack(record)
        >>> header.label.tolist(), data
        ([1.0, 2.0], b'data')
    """
    header = HEADER(*header)
    if isinstance(header.label, numbers.Number):
        return struct.pack(_IR_FORMAT, *header._replace(flag=0)) + s
    label = np.asarray(header.label, dtype="<f4")
    return struct.pack(_IR_FORMAT, *header._replace(flag=label.size, label=0)) + label.tobytes() + s


def unpack(s: bytes) -> tuple[HEADER, bytes]:
    """Splits a record that ``pack`` made.

    Args:
        s (bytes): The record.

    Returns:
        tuple[HEADER, bytes]: The header and the data. Labels that follow the header are a read-only
        float32 array.

    Raises:
        RecordError: The record is too short for its header and labels.

    Example:
        >>> from ringreel import recordio
        >>> recordio.unpack(recordio.pack((0, 1.0, 7, 0), b"data"))
        (HEADER(flag=0, label=1.0, id=7, id2=0), b'data')
    """
    if len(s) < _IR_SIZE:
        raise RecordError(f"a record of {counted(len(s), 'byte')} is too short for an IRHeader of {_IR_SIZE} bytes")
    header = HEADER(*struct.unpack_from(_IR_FORMAT, s))
    s = s[_IR_SIZE:]
    if header.flag > 0:
        if len(s) < 4 * header.flag:
            labels, found = counted(header.flag, "label"), counted(len(s), "byte follows", "bytes follow")
            raise RecordError(f"a record's IRHeader has {labels}, but only {found} it")
        header = header._replace(label=np.frombuffer(s, "<f4", header.flag))
        s = s[4 * header.flag :]
    return header, s


def unpack_img(s: bytes, iscolor: int = -1) -> tuple[HEADER, Any]:
    """Splits a record that ``pack_img`` made, and decodes the image.

    OpenCV is used if both OpenCV and Pillow are installed.

    Args:
        s (bytes): The record.
        iscolor (int): 1: three channels, blue first, 8 bits. 0: grey, one channel without an axis, 8
            bits. -1 (the default): as stored, with alpha and 16 bits. With OpenCV also its other flags.

    Returns:
        tuple[HEADER, numpy.ndarray | None]: The header, and an array of uint8 or uint16 with the axes
        rows, columns and, except for grey, channels. None if the bytes are not an image.

    Raises:
        RecordError: The record has no header.
        ImportError: Neither OpenCV nor Pillow is installed.
        RingreelError: The image needs OpenCV, which is not installed.

    Example:
        >>> from ringreel import recordio
        >>> image = np.zeros((4, 6, 3), np.uint8)
        >>> record = recordio.pack_img(recordio.IRHeader(0, 1.0, 7, 0), image, img_fmt=".png")
        >>> header, grey = recordio.unpack_img(record, iscolor=0)
        >>> header.id, grey.shape
        (7, (4, 6))
    """
    header, data = unpack(s)
    return header, _images.decode(data, iscolor)


def pack_img(header: HEADER | tuple[int, Any, int, int], img: Any, quality: int = 95, img_fmt: str = ".jpg") -> bytes:
    """Returns a record: the header and an encoded image.

    OpenCV is used if both OpenCV and Pillow are installed.

    Args:
        header (HEADER | tuple): The header.
        img (numpy.ndarray): Array of uint8 with the axes rows, columns and, except for grey, 3 or 4
            channels, blue first.
        quality (int): Quality of a JPEG, 1 to 100, or compression of a PNG, 1 to 9. Default 95.
        img_fmt (str): ``".jpg"`` (the default), ``".png"``, or with OpenCV any other format that it
            supports.

    Returns:
        bytes: A record for ``MXRecordIO.write``.

    Raises:
        ImportError: Neither OpenCV nor Pillow is installed.
        RingreelError: The image cannot be encoded.

    Example:
        >>> from ringreel import recordio
        >>> image = np.full((4, 6, 3), 255, np.uint8)
        >>> record = recordio.pack_img(recordio.IRHeader(0, 1.0, 7, 0), image, 9, ".png")
        >>> header, same = recordio.unpack_img(record)
        >>> bool((same == image).all())
        True
    """
    return pack(header, _images.encode(img, quality, img_fmt))
