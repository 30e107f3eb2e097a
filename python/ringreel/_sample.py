"""A sample as a reader gets it: parts by name, meta, and where it came from."""

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ringreel import _dtypes
from ringreel._errors import RingreelError
from ringreel._ringreel import Part

if TYPE_CHECKING:
    import torch


_OLD_NUMPY = np.lib.NumpyVersion(np.__version__) < "2.1.0"


class Sample(Mapping[str, Any]):
    """A mapping from the name of a part to its value: a NumPy array, or `bytes` for a part that was written as bytes.

    Arrays are read-only, with the element type and the shape that were written. Where the ring's filesystem allows it
    they lie in a map of their file, for reading, so nothing is copied; they keep it alive, and the file's room on the
    disk. A write there, through a pointer or the tensor of `torch.from_numpy` (which warns), ends the process by
    SIGSEGV, as it does for any file that is mapped for reading. `torch` and `part` give memory that may be written
    into; so does ``array.copy()``, which keeps no file.

    A bfloat16 part is an array of `ml_dtypes.bfloat16` where ml_dtypes is installed. Else it is a uint16 array of the
    bits, and `dtypes` says ``"bf16"``; `torch` gives torch.bfloat16 in both cases.

    A part whose element type or codec only a later version of ringreel knows raises RingreelError; the others are read.

    Attributes
    ----------
    meta : dict, the meta that was written, over what the ring knows: `generator`, `host`, `pid`, `number` (running
        number at its generator) and `time` (seconds since 1970, by its generator's clock).
    sample_id : str, its name for ever.
    generation : int, the generation it was read from.
    position : int, its position there, from 0.
    is_padding : bool. True for a padding sample, which `Ring.stream(equal="pad")` adds so that all ranks take the same
        number of steps: every element of its parts is `pad_value`.
        Its id and its meta are those of the sample whose shapes it has.
    """

    __slots__ = ("_arrays", "_parts", "generation", "is_padding", "meta", "position", "sample_id")

    meta: dict[str, Any]
    sample_id: str
    generation: int
    position: int
    is_padding: bool

    def __init__(
        self,
        parts: dict[str, Part],
        meta: dict[str, Any],
        sample_id: str,
        generation: int,
        position: int,
        is_padding: bool = False,
    ) -> None:
        self._parts = parts
        self._arrays: dict[str, Any] = {}
        self.meta = meta
        self.sample_id = sample_id
        self.generation = generation
        self.position = position
        self.is_padding = is_padding

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

    # Two samples are equal when they are one: arrays have no equality that is true or false.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        parts = ", ".join(f"{name}: {part.dtype}{list(part.shape)}" for name, part in self._parts.items())
        is_padding = ", is_padding" if self.is_padding else ""
        where = f"generation {self.generation}, position {self.position}"
        return f"<ringreel.Sample {self.sample_id} ({where}){is_padding}: {parts}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return Sample, (self._parts, self.meta, self.sample_id, self.generation, self.position, self.is_padding)

    @property
    def dtypes(self) -> dict[str, str]:
        """The ring's name for each part's element type: "f32", "bf16", "bytes", "numpy:<M8[ns]", ..."""
        return {name: part.dtype for name, part in self._parts.items()}

    def dlpack(self, name: str) -> "Tensor":
        """Part `name` as an object that array packages import: `torch.from_dlpack(sample.dlpack("data"))`, say.

        Raises KeyError when there is no such part.
        """
        return Tensor(name, self._part(name))

    def torch(self, *names: str) -> dict[str, "torch.Tensor"]:
        """The parts as torch tensors on the CPU, by name; all of them, or those named. Parts of bytes stay `bytes`.

        The tensors may be changed in place. Neither other readers nor the next pass see a change. The tensors are
        copies where the arrays lie in a map. (`ringreel.torch` gives each sample a map of its own instead.)

        Raises ImportError without torch, KeyError for a name that is no part, and TypeError for an element type that
        torch does not have (name the parts you want, to leave that one out).
        """
        import torch

        return {name: _tensor(torch, name, self._part(name)) for name in names or self._parts}

    def _part(self, name: str) -> Part:
        try:
            part = self._parts[name]
        except KeyError:
            raise KeyError(f"there is no part {name!r}; the parts are {', '.join(self._parts)}") from None
        if part.unreadable is not None:
            raise RingreelError(f"sample {self.sample_id}: {part.unreadable}")
        return part


class Tensor:
    """One part of a sample, for packages that import arrays: by DLPack, or by NumPy's `__array__`.

    Whatever is imported is a copy with memory of its own, which may be changed.

    Attributes
    ----------
    name : str
    dtype : str, the ring's name for the element type: "f32", "bf16", ...
    shape : tuple of int
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
        """A copy as a NumPy array. Raises ValueError for `copy=False`: `sample[name]` is an array without a copy."""
        if copy is False:
            raise ValueError("this exports copies; take sample[name] for a read-only array without a copy")
        return np.array(_array(self._part, self._part), dtype=dtype, copy=True)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A copy as a DLPack capsule, on the CPU; it begins at a multiple of 64 bytes, as JAX and TensorFlow want it.

        Raises BufferError for another device, for `copy=False`, and for an element type that DLPack, or the packages
        that are installed, cannot express.
        """
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"part {self.name!r} lies on the CPU; it cannot be exported to device {dl_device}")
        if copy is False:
            raise BufferError(f"part {self.name!r} is exported as a copy only")
        if self.dtype == _dtypes.BFLOAT16:  # NumPy would call it an integer, or refuse it
            return self._dlpack_by_torch("it is no type of NumPy's own")
        # Only a capsule of the new kind says that it may be written to, as this may; NumPy makes them from 2.1 on.
        version: dict[str, Any] = {} if max_version is None or _OLD_NUMPY else {"max_version": max_version}
        try:
            return self._aligned().__dlpack__(**version)
        except (BufferError, TypeError, RuntimeError) as error:
            return self._dlpack_by_torch(str(error))

    def _aligned(self) -> np.ndarray[Any, Any]:
        """A copy that begins at a multiple of 64 bytes: JAX copies once more what does not."""
        array = _array(self._part, self._part)
        memory = np.empty(array.nbytes + 64, np.uint8)
        copy = np.ndarray(array.shape, array.dtype, memory, offset=-memory.ctypes.data % 64)
        copy[...] = array
        return copy

    def _dlpack_by_torch(self, refused: str) -> Any:
        """What NumPy does not express (bfloat16, in older versions bool), torch may."""
        try:
            import torch

            return _tensor(torch, self.name, self._part).clone().__dlpack__()
        except (ImportError, TypeError, AttributeError) as error:
            raise BufferError(
                f"part {self.name!r} is {self.dtype}, which NumPy {np.__version__} does not export by DLPack "
                f"({refused}), nor does torch ({error}); import sample[{self.name!r}] in another way"
            ) from error

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0  # the CPU


def _array(part: Part, memory: Any, dtype: Any = None) -> np.ndarray[Any, Any]:
    dtype = dtype or _dtypes.dtype_of(part.dtype)
    if dtype.itemsize * math.prod(part.shape) != len(part):
        raise RingreelError(
            f"{len(part)} bytes are no array of {dtype} and shape {part.shape}: the file is not as it should be"
        )
    return np.ndarray(part.shape, dtype, buffer=memory)


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
