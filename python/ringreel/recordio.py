"""RecordIO files as MXNet has them: its module `mxnet.recordio` again, without MXNet.

A program that reads or writes `.rec` files runs with only its import changed::

    from ringreel import recordio

    with recordio.MXIndexedRecordIO("train.idx", "train.rec", "w") as out:
        for number, (image, label) in enumerate(pictures):
            out.write_idx(number, recordio.pack_img(recordio.IRHeader(0, label, number, 0), image))

    train = recordio.MXIndexedRecordIO("train.idx", "train.rec", "r")
    header, image = recordio.unpack_img(train.read_idx(train.keys[0]))
    for record in train:                        # goes on behind it, to the end of the file
        header, data = recordio.unpack(record)

Names, arguments, results and files are those of MXNet 1.9.1. What differs:

- Reading is strict. What no RecordIO writer writes (a torn record, parts in a wrong order, a magic that is not escaped)
  is a `RecordError` that names the file and the byte; MXNet merges or drops some of that silently.
- A reader may be used by several threads, and in forked children, each of which goes on by itself from where the reader
  stood. After the end of the file it can seek.
- A writer belongs to the process that opened it, and what it has not written yet to that process alone. Pickling an
  open writer is refused: its copy would empty the file.
- Pickling a reader leaves it open. As there, the copy begins with the first record, and finds the files by their paths.
- Readers and writers are context managers, and readers are iterable. `uri` is text. Only local files are opened.
- What the system refuses is an OSError, not an MXNetError; misuse is a RingreelError, not an AssertionError.
"""

import io
import numbers
import os
import struct
import threading
import weakref
from collections.abc import Iterator
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np

from ringreel import _images, _ringreel
from ringreel._errors import RingreelError

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

_Path = str | bytes | os.PathLike[str] | os.PathLike[bytes]


class RecordError(RingreelError, ValueError):
    """A file, or a record, is not as it should be. The message names the file and the byte, and says what to do.

    Attributes
    ----------
    path : str, the file; None where the record did not come from one.
    offset : int, the byte in it; None where there is no single one.
    kind : str, the name of what is wrong with the framing or with the index: "BadMagic", "Truncated", ... ; else None.
    """

    path: str | None = None
    offset: int | None = None
    kind: str | None = None


class MXRecordIO:
    """Reads or writes a RecordIO file, record after record.

    A context manager: leaving it closes. Iterating reads on to the end of the file.

    Parameters
    ----------
    uri : path of the file. ``file://`` before it is allowed.
    flag : "r" for reading; "w" for writing, which empties a file that is there.

    Attributes
    ----------
    uri : str
    flag : str
    writable, is_open : bool
    pid : int, the process that opened it; None while it is closed.

    Raises
    ------
    OSError : the file cannot be opened.
    ValueError : another flag.
    """

    def __init__(self, uri: _Path, flag: str) -> None:
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
        """Opens the file; closes it before, where it is open. A reader stands at the first record then, and a writer
        has an empty file."""
        if self.flag not in ("r", "w"):
            raise ValueError(f"Invalid flag {self.flag}: it is 'r' or 'w'")
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
        # Runs at the latest when this object goes, or the interpreter ends.
        self._end = weakref.finalize(self, _close, self.pid, self._writer, beside)

    def _open_beside(self) -> io.TextIOBase | None:
        """Opens what belongs to the file, and is closed with it."""
        return None

    def close(self) -> None:
        """Closes the file. What a writer still held is written now; in a forked child it is left to the parent.

        Raises OSError where the system could not write all of it.
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
        """Back to the first record. A writer's file is emptied."""
        if self.is_open:
            self._own()
        self.close()
        self.open()

    def read(self) -> bytes | None:
        """The next record; None at the end of the file.

        Raises `RecordError` for what is no record; the next call says the same again.
        """
        return self._reading().read()

    def write(self, buf: Any) -> int:
        """Writes one record: bytes, or anything else that holds plain bytes, less than 2^29 of them. No other thread
        may change them until it returns.

        Returns the byte offset at which the record begins. Only after `close` all of it is in the file, for others to
        read.

        Raises OSError when the system could not write; nothing can be written after that.
        """
        return self._writing().write(buf)

    def tell(self) -> int:
        """The byte offset at which the next record will be written, or read."""
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
        """A writer of another process is not to be emptied here."""
        if self.writable and self.pid != os.getpid():
            raise RingreelError(
                f"{self.uri}: this writer was opened in process {self.pid}, not in this one ({os.getpid()}): "
                "only that one may write to it"
            )

    def __iter__(self) -> Iterator[bytes]:
        """The records from here on."""
        return iter(self._reading().read, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        how = f"flag {self.flag!r}" if self.is_open else "closed"
        return f"<ringreel.recordio.{type(self).__name__} {self.uri} ({how})>"

    def __getstate__(self) -> dict[str, Any]:
        if self.is_open and self.writable:
            raise RingreelError(f"{self.uri}: open for writing: close it before it is pickled or copied")
        state = {name: value for name, value in self.__dict__.items() if name not in ("_reader", "_writer", "_end")}
        state["pid"] = None
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._leave_closed()
        self.is_open = False
        if state["is_open"]:
            if self.flag == "w":
                raise RingreelError(f"{self.uri}: was pickled while it was open for writing; to open it would empty it")
            self.open()


class MXIndexedRecordIO(MXRecordIO):
    """Reads or writes a RecordIO file with an index beside it: a line ``key <TAB> byte offset`` for each record.

    Parameters
    ----------
    idx_path : path of the index.
    uri, flag : as for `MXRecordIO`.
    key_type : what makes a key of its text: int, str, ...

    Attributes
    ----------
    idx : dict, the byte offset for each key; the last one, where a key stands twice.
    keys : list of keys, as they stand in the index.
    idx_path : str
    key_type : type
    fidx : the open file of the index.

    Raises `RecordError` for an index that cannot be used, beside what `MXRecordIO` raises.
    """

    def __init__(self, idx_path: _Path, uri: _Path, flag: str, key_type: Any = int) -> None:
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
        """Makes `read` go on at the record with the key `idx`. A reader that was closed is opened again.

        Raises KeyError when there is no such key.
        """
        offset = self._offset(idx)
        self._reading().seek(offset)

    def read_idx(self, idx: Any) -> bytes:
        """The record with the key `idx`, after which `read` goes on behind it. A closed reader is opened again.

        Of use to many threads at once: each gets its own record.

        Raises KeyError when there is no such key; `RecordError` for what is no record.
        """
        offset = self._offset(idx)
        return self._reading().read_at(offset)

    def write_idx(self, idx: Any, buf: Any) -> None:
        """Writes a record, as `write` does, and its key into the index."""
        key = self.key_type(idx)
        text = str(key)
        if not text or any(mark in text for mark in "\t\r\n"):
            raise RecordError(f"{self.idx_path}: {text!r} cannot be a key: it is empty or holds a tab or a line end")
        before = 0 if type(self).write is MXRecordIO.write else self.tell()  # a subclass's own may return nothing
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
            raise KeyError(f"{self.idx_path}: there is no key {key!r}") from None

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        state["fidx"] = None
        if self.is_open:  # both are read again
            state["idx"], state["keys"] = {}, []
        return state


class _IndexFile(io.TextIOBase):
    """The index of a writer, open as `fd`. In a forked child it gives up what it holds: the parent writes that."""

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
            raise RingreelError(f"{self.name}: this index is written by process {self._pid}, not by this one")
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
    """The path of a file, from what MXNet takes for a file's address."""
    scheme, separator, path = uri.partition("://")
    if not separator:
        return uri
    if scheme == "file":
        return path
    raise RingreelError(f"{uri}: only local files are opened: copy it here, or mount what it lies on")


class HEADER(NamedTuple):
    """What MXNet puts before the bytes of a labelled image: it calls this IRHeader.

    Attributes
    ----------
    flag : int, the number of labels that follow the header; 0: the label is in it. `pack` sets it.
    label : a number; or one or more numbers, kept as float32.
    id, id2 : int, 0 to 2^64 - 1.
    """

    flag: int
    label: Any
    id: int
    id2: int


IRHeader = HEADER

_IR_FORMAT = "<IfQQ"
_IR_SIZE = struct.calcsize(_IR_FORMAT)


def pack(header: HEADER | tuple[int, Any, int, int], s: bytes) -> bytes:
    """The header, its labels where they are an array, and `s`: a record for `write`."""
    header = HEADER(*header)
    if isinstance(header.label, numbers.Number):
        return struct.pack(_IR_FORMAT, *header._replace(flag=0)) + s
    label = np.asarray(header.label, dtype="<f4")
    return struct.pack(_IR_FORMAT, *header._replace(flag=label.size, label=0)) + label.tobytes() + s


def unpack(s: bytes) -> tuple[HEADER, bytes]:
    """The header, and what follows it, of a record that `pack` made. Labels behind the header are a read-only float32
    array.

    Raises `RecordError` when it is too short for its header and labels.
    """
    if len(s) < _IR_SIZE:
        raise RecordError(f"a record of {len(s)} bytes begins with no IRHeader, which takes {_IR_SIZE}")
    header = HEADER(*struct.unpack_from(_IR_FORMAT, s))
    s = s[_IR_SIZE:]
    if header.flag > 0:
        if len(s) < 4 * header.flag:
            raise RecordError(f"a record whose IRHeader tells of {header.flag} labels holds {len(s)} bytes behind it")
        header = header._replace(label=np.frombuffer(s, "<f4", header.flag))
        s = s[4 * header.flag :]
    return header, s


def unpack_img(s: bytes, iscolor: int = -1) -> tuple[HEADER, Any]:
    """The header, and the image, of a record that `pack_img` made.

    Parameters
    ----------
    s : the record.
    iscolor : 1: three channels, blue first, 8 bits; 0: grey, one channel without an axis, 8 bits; -1: as it was stored,
        its alpha and its 16 bits kept. With OpenCV also its other flags.

    Returns
    -------
    header, and array of uint8 or uint16: rows, columns and, but for grey, channels. None where the bytes are no image.

    Raises
    ------
    RecordError : no header.
    ImportError : neither OpenCV nor Pillow is installed. OpenCV is taken where both are.
    RingreelError : without OpenCV, what only that can decode.
    """
    header, data = unpack(s)
    return header, _images.decode(data, iscolor)


def pack_img(header: HEADER | tuple[int, Any, int, int], img: Any, quality: int = 95, img_fmt: str = ".jpg") -> bytes:
    """The header and the image, encoded: a record for `write`.

    Parameters
    ----------
    header : as for `pack`.
    img : array of uint8: rows, columns and, but for grey, 3 or 4 channels, blue first.
    quality : of a JPEG, 1 to 100; of a PNG, how hard to compress, 1 to 9.
    img_fmt : ".jpg", ".png", or with OpenCV any other that it knows.

    Raises
    ------
    ImportError : neither OpenCV nor Pillow is installed. OpenCV is taken where both are.
    RingreelError : the image cannot be encoded.
    """
    return pack(header, _images.encode(img, quality, img_fmt))
