"""NumPy's element types and the ring's names for them, in both directions.

The ring stores little-endian elements. Plain types have short names ("f32"). Every other fixed-size
NumPy type is ``numpy:`` and its description: ``dtype.str``, or, for structured types, the literal of
``dtype.descr``. A description is parsed as a literal and never evaluated.
"""

import ast
import functools
from typing import Any

import numpy as np

from ringreel._errors import RingreelError

BYTES = "bytes"
BFLOAT16 = "bf16"

_NUMPY = "numpy:"
_PLAIN = {
    "|b1": "bool",
    "|u1": "u8",
    "<u2": "u16",
    "<u4": "u32",
    "<u8": "u64",
    "|i1": "i8",
    "<i2": "i16",
    "<i4": "i32",
    "<i8": "i64",
    "<f2": "f16",
    "<f4": "f32",
    "<f8": "f64",
    "<c8": "c64",
    "<c16": "c128",
}
_STR_OF = {name: text for text, name in _PLAIN.items()}


class UnsupportedDType(Exception):
    """An element type that cannot be stored. The message says why and what to do."""


@functools.lru_cache(maxsize=1024)
def name_of(dtype: np.dtype[Any]) -> str:
    """Returns the ring's name for the elements of ``dtype``, which are stored little-endian.

    Raises:
        UnsupportedDType: Objects, text of variable length, types that another package added to NumPy
            (except bfloat16), and structured types whose fields overlap or are out of order.
    """
    _refuse(dtype)
    if is_bfloat16(dtype):
        return BFLOAT16
    little = dtype.newbyteorder("<")
    if little.names is None:
        return _PLAIN.get(little.str) or _NUMPY + little.str
    try:
        text = repr(little.descr)
        same = _dtype_from(text) == little
    except (ValueError, TypeError, SyntaxError):
        same = False
    if not same:
        raise UnsupportedDType(
            f"the structured type {dtype} has fields that overlap or are out of order; "
            "repack it with numpy.lib.recfunctions.repack_fields"
        )
    return _NUMPY + text


def _refuse(dtype: np.dtype[Any]) -> None:
    if dtype.hasobject or dtype.kind in "OT":
        raise UnsupportedDType(
            f"elements of type {dtype} are Python objects, which are not stored; "
            "convert them to numbers, to fixed-length text (dtype 'U16', 'S16'), or to bytes"
        )
    if dtype.subdtype is not None:
        _refuse(dtype.subdtype[0])
    for field in dtype.fields.values() if dtype.fields else ():
        if is_bfloat16(field[0]):
            raise UnsupportedDType("bfloat16 inside a structured type is not stored; make it a separate part")
        _refuse(field[0])
    if dtype.isbuiltin == 2 and not is_bfloat16(dtype):
        raise UnsupportedDType(
            f"the type {dtype} is not one of NumPy's own and is not stored; "
            f"store its bits, by .view('u{dtype.itemsize}'), and view them as {dtype} after reading"
        )


def is_bfloat16(dtype: np.dtype[Any]) -> bool:
    """Returns whether ``dtype`` is bfloat16, which packages such as ml_dtypes add to NumPy."""
    return dtype.isbuiltin == 2 and dtype.name == "bfloat16"


@functools.lru_cache(maxsize=1024)
def dtype_of(name: str) -> np.dtype[Any]:
    """Returns the NumPy type for a ring's name.

    The type of "bytes" is uint8. The type of "bf16" is ``ml_dtypes.bfloat16`` if ml_dtypes is installed,
    and otherwise uint16, the bits.

    Raises:
        RingreelError: This version of ringreel, or of NumPy, does not support the name.
    """
    if name == BYTES:
        return np.dtype(np.uint8)
    if name == BFLOAT16:
        return _bfloat16()
    if name in _STR_OF:
        return np.dtype(_STR_OF[name])
    try:
        if name.startswith(_NUMPY):
            return _dtype_from(name.removeprefix(_NUMPY))
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError) as error:
        raise RingreelError(f"NumPy {np.__version__} does not have the element type {name!r}: {error}") from error
    raise RingreelError(f"unknown element type {name!r}: read it with a newer version of ringreel")


def _bfloat16() -> np.dtype[Any]:
    try:
        import ml_dtypes
    except ImportError:
        return np.dtype("<u2")
    dtype: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return dtype


def _dtype_from(text: str) -> np.dtype[Any]:
    """Parses a description. It is read from a file, so it is parsed as a literal only."""
    structured = text.startswith("[")
    dtype = np.dtype(np.lib.format.descr_to_dtype(ast.literal_eval(text)) if structured else text)
    if dtype.hasobject or dtype.subdtype is not None:
        raise ValueError("it contains Python objects, or is an array type")
    return dtype
