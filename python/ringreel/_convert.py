"""A user's sample as parts of the ring: name, element type, shape, and little-endian row-major bytes."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ringreel import _dtypes
from ringreel._errors import SampleError
from ringreel._nested import flat
from ringreel._wording import counted

#: Name, element type, bytes of one element, shape, and the bytes.
Converted = tuple[str, str, int, tuple[int, ...], Any]


def split_pair(sample: Any, meta: Any) -> tuple[Any, dict[str, Any]]:
    """Returns the parts and the meta of an argument of ``write``.

    ``sample`` is a pair ``(sample, meta)`` if it is a tuple of two whose second element is a dict and
    whose first is a tuple, a list or a dict. Two parts never match this, since a dict is not a part.

    Raises:
        SampleError: Meta was given twice, or is not a dict.
    """
    if isinstance(sample, tuple) and len(sample) == 2 and isinstance(sample[1], dict):
        if isinstance(sample[0], (tuple, list, dict)):
            if meta is not None:
                raise SampleError("meta was given twice: in a pair (sample, meta) and as an argument")
            sample, meta = sample
    if meta is None:
        meta = {}
    if not isinstance(meta, dict):
        raise SampleError(f"meta: expected a dict or None, found {_kind(meta)}")
    return sample, meta


def parts_of(sample: Any, names: Sequence[str]) -> list[Converted]:
    """Returns the parts of ``sample`` for a ring whose ``SAMPLE`` is ``names``.

    Raises:
        SampleError: The sample does not match. The message names the part.
    """
    if isinstance(sample, Mapping):
        return [convert(name, value) for name, value in flat(sample).items()]
    if isinstance(sample, (tuple, list)) and len(sample) == len(names):
        return [convert(name, value) for name, value in zip(names, sample)]
    listed = ", ".join(names)
    if isinstance(sample, (tuple, list)):
        parts = counted(len(names), "part")
        raise SampleError(f"sample: expected {parts}, SAMPLE is [{listed}]; found {len(sample)}")
    hint = f"({listed},)" if len(names) == 1 else f"({listed})"
    raise SampleError(f"sample: expected a tuple {hint}, a dict, or a pair (sample, meta), found {_kind(sample)}")


def convert(name: str, value: Any) -> Converted:
    """Converts one part: bytes, a torch tensor, or what ``np.asarray`` accepts. Copies only if necessary.

    Raises:
        SampleError: The part cannot be stored.
    """
    if not isinstance(name, str):
        raise SampleError(f"the name of a part: expected text, found {name!r}")
    if isinstance(value, (bytes, bytearray, memoryview)):
        data = _as_bytes(value)
        return name, _dtypes.BYTES, 1, (data.nbytes,), data
    torch = sys.modules.get("torch")
    tensor = getattr(torch, "Tensor", None)  # missing while another thread imports torch
    if tensor is not None and isinstance(value, tensor):
        array, dtype = _from_torch(torch, name, value)
    else:
        array = _as_array(name, value)
        try:
            dtype = _dtypes.name_of(array.dtype)
        except _dtypes.UnsupportedDType as error:
            raise SampleError(f"part {name!r}: {error}") from None
    return name, dtype, array.dtype.itemsize, array.shape, _bytes_of(array)


def _as_array(name: str, value: Any) -> np.ndarray[Any, Any]:
    # A caller with a masked array has imported numpy.ma, so it is not imported here, which would take 10 ms. Another
    # thread may be importing it.
    if value is None:
        raise SampleError(
            f"part {name!r} is None: expected an array, anything numpy.asarray accepts, a torch tensor, or bytes"
        )
    masked = getattr(sys.modules.get("numpy.ma"), "MaskedArray", None)
    if masked is not None and isinstance(value, masked):
        raise SampleError(
            f"part {name!r} is a masked array, and its mask would be lost: store data and mask as two parts"
        )
    try:
        return np.asarray(value)
    except Exception as error:
        raise SampleError(f"part {name!r}: {_kind(value)} cannot be converted to an array: {error}") from error


def _as_bytes(value: bytes | bytearray | memoryview) -> memoryview:
    data = memoryview(value)
    try:
        return data.cast("B")
    except (TypeError, ValueError):  # not contiguous, or a format that cannot be cast
        return memoryview(data.tobytes())


def _from_torch(torch: Any, name: str, tensor: Any) -> tuple[np.ndarray[Any, Any], str]:
    try:
        tensor = tensor.detach().cpu()
        if tensor.dtype == torch.bfloat16:
            return tensor.contiguous().view(torch.int16).numpy(), _dtypes.BFLOAT16
        array = tensor.resolve_conj().resolve_neg().numpy()
    except (TypeError, RuntimeError) as error:
        kind = f"{tensor.dtype}, {tensor.layout}"
        raise SampleError(f"part {name!r}: this torch tensor ({kind}) has no NumPy form: {error}") from error
    return array, _dtypes.name_of(array.dtype)


def _bytes_of(array: np.ndarray[Any, Any]) -> Any:
    """Returns the elements' bytes, little-endian and row-major: a view if the array already is."""
    if array.size == 0 or array.dtype.itemsize == 0:
        return b""
    if not _dtypes.is_bfloat16(array.dtype):
        little = array.dtype.newbyteorder("<")
        if little != array.dtype:
            array = _swapped(array, little)
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(np.uint8)


def _swapped(array: np.ndarray[Any, Any], little: np.dtype[Any]) -> np.ndarray[Any, Any]:
    if little.names is None:
        swapped: np.ndarray[Any, Any] = array.byteswap().view(little)
        return swapped
    fresh = np.zeros(array.shape, little)  # zeros, so that the bytes between fields are not old memory
    fresh[...] = array
    return fresh


def _kind(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
