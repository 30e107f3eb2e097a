"""Batches for torch's loaders, passed from workers by file instead of by value.

A tensor that a worker read and checked is in the page cache. So for each tensor that still equals the
file's contents, the worker sends the open file and the offset, and the receiving process maps it. A
batch of one sample is that map; a larger one is read into memory once. The open file stays valid if
its generation is reclaimed meanwhile. The two processes share no memory, so none can leak.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.reduction import DupFd  # type: ignore[attr-defined,unused-ignore]
from typing import Any, NamedTuple, NoReturn

import numpy as np
import torch
from torch._utils import ExceptionWrapper
from torch.utils.data import default_collate, default_convert, get_worker_info

from ringreel._errors import add_note
from ringreel._log import logger
from ringreel._ringreel import Part
from ringreel._sample import _tensor
from ringreel._torch_buffers import empty
from ringreel._torch_marks import bytes_of, mark_of, unchanged
from ringreel._worker_watch import end_with_parent

# Tensors of at most this size are pickled. All workers of a loader send through one pipe, which
# holds 64 KiB: a worker whose batches do not fit blocks in a write, and cannot exit.
_INLINE = 4 << 10
# In batches of several samples, the worker joins smaller tensors: many maps cost more than one copy.
_MANY = 256 << 10
# A batch from more files is sent by value: open files are limited, and several batches are on their way at once.
_FILES = 64
# Threads that read one batch.
_THREADS = min(4, os.cpu_count() or 1)


class _File:
    """An open segment, here and in the process that receives the batch."""

    def __init__(self, part: Part) -> None:
        self._descriptor = -1
        self._sent: Any = None
        self._descriptor = part.open()
        # The system returns the lowest free number, so it tells how many files are open.
        if self._descriptor > resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2:
            raise OSError(errno.EMFILE, "half of the files that this process may open are in use")

    def __del__(self) -> None:
        self._close()

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def begins(self, offset: int, data: bytes) -> bool:
        """Returns whether the file has these bytes at ``offset``."""
        return os.pread(self._descriptor, len(data), offset) == data

    def send(self) -> None:
        """Keeps the file open until another process takes it.

        Raises:
            OSError: The file cannot be sent.
            RuntimeError: The file cannot be sent.
        """
        self._sent = DupFd(self._descriptor)
        self._close()

    def take_back(self) -> None:
        """Closes a file that was prepared for sending."""
        if self._sent is not None:
            os.close(self._sent.detach())

    def __reduce__(self) -> tuple[Any, ...]:
        return _HandedOver, (self._sent,)


class _Files:
    """The segments of a batch that a worker sends."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: dict[str, _File] = {}

    def of(self, part: Part, path: str, offset: int, begin: bytes) -> _File | None:
        """Opens the segment of ``part`` at ``path``.

        Returns:
            _File | None: The segment; None if it cannot be opened, or does not have the bytes ``begin`` at
            ``offset``.
        """
        try:
            if path not in self._open:
                if len(self._open) >= self._most:
                    return None
                self._open[path] = _File(part)
            file = self._open[path]
            return file if file.begins(offset, begin) else None
        except OSError:  # reclaimed, or too many open files
            return None

    def send(self) -> bool:
        """Returns whether the receiving process can take the files."""
        try:
            for file in self._open.values():
                file.send()
        except (OSError, RuntimeError) as error:
            logger.debug("sending a batch by value: %s", error)
            for file in self._open.values():
                with contextlib.suppress(OSError, EOFError):
                    file.take_back()
            return False
        return True


class _HandedOver:
    """A ``_File`` in the process that receives it."""

    def __init__(self, sent: Any) -> None:
        self._sent = sent
        self._descriptor = -1

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def descriptor(self) -> int:
        """Returns the open file's descriptor.

        Raises:
            OSError: The worker that sent it has exited.
        """
        if self._descriptor < 0:
            self._descriptor = self._sent.detach()
        return self._descriptor


class _Place(NamedTuple):
    """The position of a tensor in a segment."""

    file: Any  # _File in a worker, _HandedOver in the process that receives it
    offset: int
    name: str
    dtype: str
    shape: tuple[int, ...]
    length: int


class _Reference(NamedTuple):
    """A tensor of a batch, as the positions of its samples."""

    places: tuple[_Place, ...]
    batched: bool


class _Inline(NamedTuple):
    """A small tensor, by its elements."""

    array: np.ndarray[Any, Any]


def collate(batch: Any) -> Any:
    """Makes a batch from a list of samples, as ``torch.utils.data.default_collate`` does.

    Pass it as ``collate_fn`` of a ``DataLoader``. In a worker, tensors that were read from a ring's files
    and not changed are neither copied nor sent: the receiving process gets the open files and maps them.
    For a batch of one sample (and for ``batch_size=None``, where this is called with one sample and adds
    no batch dimension) nothing is copied, otherwise each sample once. These are sent as
    ``default_collate`` would send them:

    - parts that a transform made or changed;
    - parts that are stored compressed, and rings that are not mapped;
    - parts of less than 64 KiB (256 KiB in a batch of several samples);
    - batches from more than 64 files.

    Tensors can be changed in place in either case.

    The result in a worker is for the loader only. To change batches, use the dataset's ``transform``, or
    change them in the training loop. A sample whose generation is reclaimed on its way still arrives. An
    error on its way is raised by the loader's ``next``. A worker ends about a second after the process
    that it works for, even if that was killed.

    Args:
        batch (Any): A list of samples, or one sample.

    Returns:
        Any: The batch.

    Raises:
        RuntimeError: Tensors of the samples have different shapes or element types. A note names the
            samples.

    Example:
        >>> import torch
        >>> from ringreel.torch import RingDataset, collate
        >>> dataset = RingDataset("config.yaml")
        >>> loader = torch.utils.data.DataLoader(dataset, batch_size=2, collate_fn=collate)
        >>> next(iter(loader))["label"]
        tensor([0, 1])
    """
    combine = _collated if type(batch) is list else _converted
    if get_worker_info() is None:
        return combine(batch, None)
    end_with_parent()
    files = _Files(_FILES)
    tree = combine(batch, files)
    return _Batch(tree if files.send() else combine(batch, _Files(0)))


def _collated(batch: Sequence[Any], files: _Files | None) -> Any:
    first = batch[0]
    if type(first) is dict:
        return {name: _collated([each[name] for each in batch], files) for name in first}
    if type(first) in (list, tuple) and all(len(each) == len(first) for each in batch):
        return [_collated(column, files) for column in zip(*batch)]
    if not _alike(batch):
        try:
            collated = default_collate(batch)
        except RuntimeError as error:
            _name_unlike(error, batch)
            raise
        return collated if files is None else _small(collated)
    if files is not None:
        return _sent(batch, files)
    return _joined(batch) if len(batch) > 1 and all(map(mark_of, batch)) else default_collate(batch)


def _converted(value: Any, files: _Files | None) -> Any:
    if files is None:
        return default_convert(value)
    if type(value) is dict:
        return {name: _converted(part, files) for name, part in value.items()}
    if type(value) in (list, tuple):
        return [_converted(part, files) for part in value]
    places = _places([value], files)
    if places is not None:
        return _Reference(places, False)
    return _small(default_convert(value))


def _alike(batch: Sequence[Any]) -> bool:
    """Returns whether all are ordinary tensors that can be stacked."""
    first = batch[0]
    return all(
        type(each) is torch.Tensor
        and (each.dtype, each.shape, each.layout) == (first.dtype, first.shape, torch.strided)
        and each.device.type == "cpu"
        for each in batch
    )


def _name_unlike(error: RuntimeError, batch: Sequence[Any]) -> None:
    """Adds a note to ``error`` with the first two tensors that do not match, and their origins."""
    tensors = [each for each in batch if isinstance(each, torch.Tensor)]
    unlike = (each for each in tensors if (each.dtype, each.shape) != (tensors[0].dtype, tensors[0].shape))
    other = next(unlike, None)
    if other is not None:
        add_note(error, f"ringreel: {_origin(tensors[0])}; {_origin(other)}")


def _origin(tensor: torch.Tensor) -> str:
    what = f"{tensor.dtype} of shape {tuple(tensor.shape)}"
    marked = mark_of(tensor)
    if marked is None:
        return f"a tensor is {what}"
    return f"part {marked.name!r} of sample {marked.sample_id} (written by {marked.owner}) is {what}"


def _sent(batch: Sequence[torch.Tensor], files: _Files) -> Any:
    length = batch[0].numel() * batch[0].element_size()
    if len(batch) == 1 or length >= _MANY:
        places = _places(batch, files)
        if places is not None:
            return _Reference(places, True)
    if length * len(batch) <= _INLINE:
        return _small(torch.stack(list(batch)))
    return default_collate(batch)


def _small(value: Any) -> Any:
    """Returns the elements of a small tensor, and any other ``value`` unchanged."""
    if type(value) is not torch.Tensor or value.numel() * value.element_size() > _INLINE:
        return value
    try:
        return _Inline(value.numpy())
    except (TypeError, RuntimeError):  # NumPy does not have the type, or the tensor has no memory
        return value


def _places(values: Sequence[Any], files: _Files) -> tuple[_Place, ...] | None:
    """Returns the positions of the tensors in segments, or None if one of them is not in a segment."""
    places = []
    for value in values:
        mark = mark_of(value)
        if mark is None or mark.part.place is None or not unchanged(value, mark):
            return None
        path, offset = mark.part.place
        file = files.of(mark.part, path, offset, bytes_of(value)[:64].tobytes())
        if file is None:
            return None
        places.append(_Place(file, offset, mark.name, mark.part.dtype, mark.part.shape, len(mark.part)))
    return tuple(places)


_FOR_THE_LOADER = (
    "in a worker, the result of ringreel.torch.collate is for the loader only: change samples in the dataset's "
    "transform, or batches in the training loop, or use torch.utils.data.default_collate"
)


class _Batch:
    """The object that a worker puts into the loader's queue. Unpickling it returns the batch."""

    __slots__ = ("_tree",)

    def __init__(self, tree: Any) -> None:
        self._tree = tree

    def __reduce__(self) -> tuple[Callable[[Any], Any], tuple[Any]]:
        return _taken, (self._tree,)

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{name}: {_FOR_THE_LOADER}")

    def _refuse(self, *_: object) -> NoReturn:
        raise TypeError(_FOR_THE_LOADER)

    __getitem__ = __setitem__ = __iter__ = __len__ = __contains__ = _refuse


def _taken(tree: Any) -> Any:
    """Returns the batch of ``tree``, in the process that receives it.

    An error becomes the object that a worker sends for an error: the loader raises it in order, and
    continues. The loader would treat an exception raised here as the end of the worker.
    """
    try:
        return _resolved(tree)
    except Exception:
        _take_all(tree)
        return ExceptionWrapper(where="the process that takes batches from DataLoader workers")


def _resolved(tree: Any) -> Any:
    if isinstance(tree, _Reference):
        return _batched(tree.places) if tree.batched else _mapped(tree.places[0])
    if isinstance(tree, _Inline):
        return torch.from_numpy(tree.array)
    if type(tree) is dict:
        return {name: _resolved(part) for name, part in tree.items()}
    if type(tree) is list:
        return [_resolved(part) for part in tree]
    return tree


def _take_all(tree: Any) -> None:
    """Takes files that are no longer needed, because the worker keeps them open until then."""
    if isinstance(tree, _Reference):
        for place in tree.places:
            with contextlib.suppress(Exception):
                place.file.descriptor()
    elif type(tree) in (dict, list):
        for part in tree.values() if type(tree) is dict else tree:
            _take_all(part)


def _mapped(place: _Place) -> torch.Tensor:
    part = Part.mapped(place.dtype, place.shape, place.file.descriptor(), place.offset, place.length)
    tensor: torch.Tensor = _tensor(torch, place.name, part)
    return tensor


def _batched(places: Sequence[_Place]) -> torch.Tensor:
    """Returns one tensor, with a new first axis, of the parts at ``places``."""
    first = _mapped(places[0])
    if len(places) == 1:
        return first.unsqueeze(0)
    if any((place.dtype, place.shape) != (places[0].dtype, places[0].shape) for place in places):
        return _joined([_mapped(place) for place in places])
    joined = empty(torch.Size((len(places), *first.shape)), first.dtype)
    # Reading into memory that is already mapped costs less than a new map.
    memory = bytes_of(joined).data
    slots = [memory[n * place.length :][: place.length] for n, place in enumerate(places)]
    descriptors = [place.file.descriptor() for place in places]
    # One thread does not reach the memory's bandwidth.
    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(_read, descriptors, places, slots))
    return joined


def _read(descriptor: int, place: _Place, memory: memoryview) -> None:
    """Fills ``memory`` from ``place``.

    Raises:
        OSError: The file ends too early.
    """
    done = 0
    while done < len(memory):
        read = os.preadv(descriptor, [memory[done:]], place.offset + done)
        if read == 0:
            raise OSError(f"a segment with part {place.name!r} ends too early")
        done += read


def _joined(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Returns one tensor, with a new first axis, of copies of ``tensors``."""
    first = tensors[0]
    if any((each.dtype, each.shape) != (first.dtype, first.shape) for each in tensors):
        return torch.stack(list(tensors))  # raises an error that names the difference
    joined = empty(torch.Size((len(tensors), *first.shape)), first.dtype)
    for n, each in enumerate(tensors):
        joined[n].copy_(each)
    return joined
