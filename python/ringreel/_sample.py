"""A sample as a reader gets it: parts by name, meta, and where it was read."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ringreel import _dtypes
from ringreel._errors import RingreelError
from ringreel._nested import nested
from ringreel._ringreel import Part
from ringreel._wording import counted

if TYPE_CHECKING:
    import torch


_OLD_NUMPY = np.lib.NumpyVersion(np.__version__) < "2.1.0"


class Sample(Mapping[str, Any]):
    """A mapping from the name of a part to its value.

    A value is a read-only NumPy array with the element type and shape that were written, or ``bytes``
    for a part that was written as bytes.

    If the ring's filesystem allows it, arrays are read-only maps of their file: nothing is copied. They
    keep the map alive, and the file's disk space with it. A write through a pointer, or through the
    tensor of ``torch.from_numpy`` (which warns), ends the process with SIGSEGV, as for any file that is
    mapped read-only. ``torch``, ``dlpack`` and ``array.copy()`` give writable memory.

    A bfloat16 part is an array of ``ml_dtypes.bfloat16`` if ml_dtypes is installed. Otherwise it is a
    uint16 array of the bits, and ``dtypes`` says ``"bf16"``; ``torch`` returns ``torch.bfloat16`` in both
    cases. A part whose element type or codec only a later version of ringreel supports raises
    ``RingreelError``; the other parts can be read.

    Attributes:
        meta (dict): The meta that was written, merged over ``generator``, ``host``, ``pid``, ``number``
            (running number at its generator) and ``time`` (seconds since 1970, by its generator's
            clock).
        sample_id (str): The sample's permanent id.
        generation (int): The generation that it was read from.
        position (int): Its position in the generation, from 0. It depends neither on the order in which
            samples are read nor on the number of ranks and workers.
        epoch (int | None): Number of the epoch, in the stream's run, in which a stream read it, from 0; for
            ``torch.RingDataset`` the number that ``set_epoch`` set. None for other samples read by index.
        is_padding (bool): True for a padding sample, which ``Ring.stream(equal="pad")`` adds so that all
            ranks take the same number of steps. Every element of its parts is ``pad_value``; its shapes,
            its id and its meta are those of a real sample.

    Example:
        >>> sample = ringreel.Ring("config.yaml").dataset()[2]
        >>> sample["data"]
        array([[2., 2., 2.],
               [2., 2., 2.]], dtype=float32)
        >>> list(sample), sample.generation, sample.position, sample.is_padding
        (['data', 'label'], 1, 2, False)
        >>> sample.meta["number"], sample.epoch
        (2, None)
    """

    __slots__ = ("_arrays", "_parts", "epoch", "generation", "is_padding", "meta", "position", "sample_id")

    meta: dict[str, Any]
    sample_id: str
    generation: int
    position: int
    epoch: int | None
    is_padding: bool

    def __init__(
        self,
        parts: dict[str, Part],
        meta: dict[str, Any],
        sample_id: str,
        generation: int,
        position: int,
        is_padding: bool = False,
        epoch: int | None = None,
    ) -> None:
        self._parts = parts
        self._arrays: dict[str, Any] = {}
        self.meta = meta
        self.sample_id = sample_id
        self.generation = generation
        self.position = position
        self.is_padding = is_padding
        self.epoch = epoch

    def __getitem__(self, name: str) -> Any:
        value = self._arrays.get(name)
        if value is None:
            part = self._part(name)
            value = bytes(part) if part.dtype == _dtypes.BYTES else _array(part, part)
            self._arrays[name] = value
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    def __contains__(self, name: object) -> bool:
        return name in self._parts

    # Samples compare by identity, because comparing arrays does not give a single bool.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        parts = ", ".join(f"{name}: {part.dtype}{list(part.shape)}" for name, part in self._parts.items())
        is_padding = ", is_padding" if self.is_padding else ""
        where = f"generation {self.generation}, position {self.position}"
        return f"<ringreel.Sample {self.sample_id} ({where}){is_padding}: {parts}>"

    def __reduce__(self) -> tuple[Any, ...]:
        origin = self.sample_id, self.generation, self.position
        return Sample, (self._parts, self.meta, *origin, self.is_padding, self.epoch)

    @property
    def dtypes(self) -> dict[str, str]:
        """The ring's names of the parts' element types: "f32", "bf16", "bytes", "numpy:<M8[ns]", ...

        Example:
            >>> ringreel.Ring("config.yaml").dataset()[0].dtypes
            {'data': 'f32', 'label': 'i64'}
        """
        return {name: part.dtype for name, part in self._parts.items()}

    def nested(self) -> dict[str, Any]:
        """Returns the parts as dicts in dicts: part ``a/b`` is ``["a"]["b"]``.

        ``Generator.write`` takes such a dict, and stores ``["a"]["b"]`` as part ``a/b``.

        Returns:
            dict: The values of the parts, as ``sample[name]`` returns them.

        Raises:
            ConfigError: There are parts ``a`` and ``a/b``.

        Example:
            >>> ring = ringreel.Ring({"DBNAME": "scans", "SWAP_CAP": 1, "SAMPLE": ["image/t1", "image/t2", "label"]})
            >>> scan = {"image": {"t1": np.zeros((2, 2)), "t2": np.ones((2, 2))}, "label": 7}
            >>> summary = ringreel.run_generator([scan], ring, promote=True)
            >>> sample = ring.dataset()[0]
            >>> list(sample), float(sample["image/t2"].sum())
            (['image/t1', 'image/t2', 'label'], 4.0)
            >>> sample.nested()["image"]["t2"].shape
            (2, 2)
        """
        return nested(self)

    def dlpack(self, name: str) -> Tensor:
        """Returns part ``name`` as an object that array packages import, as ``torch.from_dlpack`` does.

        Args:
            name (str): Name of the part.

        Returns:
            Tensor: The part, for packages that import arrays.

        Raises:
            KeyError: The sample has no such part.

        Example:
            >>> sample = ringreel.Ring("config.yaml").dataset()[2]
            >>> float(np.from_dlpack(sample.dlpack("data")).sum())
            12.0
        """
        return Tensor(name, self._part(name))

    def torch(self, *names: str) -> dict[str, torch.Tensor]:
        """Returns the parts as torch tensors on the CPU, by name.

        The tensors can be changed in place. Other readers and later passes do not see the changes. A tensor
        is a copy if the array is a map of its file. (``ringreel.torch`` gives each sample its own map
        instead.) Parts of bytes stay ``bytes``.

        Args:
            *names (str): Names of the parts. Without names, all parts are returned.

        Returns:
            dict[str, torch.Tensor]: The tensors by name.

        Raises:
            ImportError: torch is not installed.
            KeyError: The sample has no part of that name.
            TypeError: torch does not have a part's element type. Name the other parts to leave that one
                out.

        Example:
            >>> sample = ringreel.Ring("config.yaml").dataset()[2]
            >>> sample.torch("data")["data"].shape
            torch.Size([2, 3])
        """
        import torch

        return {name: _tensor(torch, name, self._part(name)) for name in names or self._parts}

    def _part(self, name: str) -> Part:
        try:
            part = self._parts[name]
        except KeyError:
            raise KeyError(f"no part {name!r}; the parts are {', '.join(self._parts)}") from None
        if part.unreadable is not None:
            raise RingreelError(f"sample {self.sample_id}: {part.unreadable}")
        return part


def writable_values(sample: Sample, parts: Iterable[str]) -> dict[str, Any]:
    """Returns parts of a sample by name: private, writable arrays, and bytes."""
    values = {}
    for name in parts:
        part = sample._part(name)
        values[name] = bytes(part) if part.dtype == _dtypes.BYTES else _array(part, part.writable())
    return values


class Tensor:
    """One part of a sample, for packages that import arrays by DLPack or by NumPy's ``__array__``.

    Made by ``Sample.dlpack``. Each import is a writable copy.

    Attributes:
        name (str): Name of the part.
        dtype (str): The ring's name of the element type: "f32", "bf16", ...
        shape (tuple[int, ...]): Lengths of the axes.

    Example:
        >>> tensor = ringreel.Ring("config.yaml").dataset()[2].dlpack("data")
        >>> tensor.name, tensor.dtype, tensor.shape
        ('data', 'f32', (2, 3))
        >>> array = np.asarray(tensor)
        >>> array += 1
        >>> float(array[0, 0])
        3.0
    """

    __slots__ = ("_part", "dtype", "name", "shape")

    def __init__(self, name: str, part: Part) -> None:
        self.name = name
        self.dtype = part.dtype
        self.shape = part.shape
        self._part = part

    def __repr__(self) -> str:
        return f"<ringreel.Tensor {self.name!r}: {self.dtype}{list(self.shape)}>"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """Returns a copy as a NumPy array.

        Args:
            dtype (Any): Element type of the copy. None (the default) keeps the part's.
            copy (bool | None): NumPy's request; True and None copy.

        Raises:
            ValueError: ``copy`` is False. ``sample[name]`` is an array without a copy.
        """
        if copy is False:
            raise ValueError("only copies are exported; use sample[name] for a read-only array without a copy")
        return np.array(_array(self._part, self._part), dtype=dtype, copy=True)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Returns a copy as a DLPack capsule on the CPU.

        Its memory is aligned to 64 bytes, as JAX and TensorFlow require.

        Args:
            stream (Any): Ignored, because the copy is on the CPU.
            max_version (tuple[int, int] | None): The newest version of DLPack that the consumer supports.
            dl_device (tuple[int, int] | None): The device. Only the CPU, ``(1, 0)``, is supported.
            copy (bool | None): DLPack's request; True and None copy.

        Raises:
            BufferError: Another device, ``copy=False``, or an element type that neither DLPack nor the
                installed packages can express.
        """
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"part {self.name!r} is on the CPU and cannot be exported to device {dl_device}")
        if copy is False:
            raise BufferError(f"part {self.name!r} can only be exported as a copy")
        if self.dtype == _dtypes.BFLOAT16:  # NumPy would export it as an integer, or refuse it
            return self._dlpack_by_torch("it is not one of NumPy's own types")
        # Only a versioned capsule can say that its memory is writable. NumPy makes them since version 2.1.
        version: dict[str, Any] = {} if max_version is None or _OLD_NUMPY else {"max_version": max_version}
        try:
            return self._aligned().__dlpack__(**version)
        except (BufferError, TypeError, RuntimeError) as error:
            return self._dlpack_by_torch(str(error))

    def _aligned(self) -> np.ndarray[Any, Any]:
        """Returns a copy that is aligned to 64 bytes. JAX would copy other memory once more."""
        array = _array(self._part, self._part)
        memory = np.empty(array.nbytes + 64, np.uint8)
        copy: np.ndarray[Any, Any] = np.ndarray(array.shape, array.dtype, memory, offset=-memory.ctypes.data % 64)
        copy[...] = array
        return copy

    def _dlpack_by_torch(self, refused: str) -> Any:
        """Exports by torch what NumPy cannot express: bfloat16, and bool in older versions."""
        try:
            import torch

            return _tensor(torch, self.name, self._part).clone().__dlpack__()
        except (ImportError, TypeError, AttributeError) as error:
            raise BufferError(
                f"part {self.name!r} is {self.dtype}, which NumPy {np.__version__} does not export by DLPack "
                f"({refused}), nor does torch ({error}); use the array sample[{self.name!r}] instead"
            ) from error

    def __dlpack_device__(self) -> tuple[int, int]:
        """Returns DLPack's number of the device: the CPU."""
        return 1, 0


def _array(part: Part, memory: Any, dtype: Any = None) -> np.ndarray[Any, Any]:
    dtype = dtype or _dtypes.dtype_of(part.dtype)
    if dtype.itemsize * math.prod(part.shape) != len(part):
        found = counted(len(part), "byte does", "bytes do")
        raise RingreelError(f"{found} not fit an array of {dtype} and shape {part.shape}: the file is damaged")
    array: np.ndarray[Any, Any] = np.ndarray(part.shape, dtype, buffer=memory)
    return array


def _tensor(torch: Any, name: str, part: Part) -> Any:
    if part.dtype == _dtypes.BYTES:
        return bytes(part)
    if part.dtype == _dtypes.BFLOAT16:
        return torch.from_numpy(_array(part, part.writable(), np.dtype(np.int16))).view(torch.bfloat16)
    array = _array(part, part.writable())
    try:
        return torch.from_numpy(array)
    except TypeError as error:
        raise TypeError(
            f"part {name!r} is {array.dtype}, which torch {torch.__version__} does not have: {error}"
        ) from None
