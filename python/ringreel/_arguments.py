"""Checks of arguments. Each error names the argument, the value, and what is accepted."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

#: Value of the elements of a padding sample, if the caller gives none.
PAD_VALUE = -100.0

_EQUAL = (None, "drop", "wrap", "pad")


def integer(name: str, value: Any, least: int | None = None) -> int:
    """Returns ``value`` as an int.

    Raises:
        TypeError: ``value`` is not an integer.
        ValueError: ``value`` is below ``least``.
    """
    return _integer(name, value, least, "")


def optional_integer(name: str, value: Any, least: int | None = None) -> int | None:
    """Returns ``value`` as an int, or None for None. Raises what ``integer`` raises."""
    return None if value is None else _integer(name, value, least, ", or None")


def _integer(name: str, value: Any, least: int | None, alternative: str) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name}: expected an integer{alternative}, found {value!r}") from None
    if least is not None and number < least:
        raise ValueError(f"{name}: expected {least} or more{alternative}, found {number}")
    return number


def given_rank(rank: Any, world_size: Any) -> tuple[int, int] | None:
    """Returns the arguments ``rank`` and ``world_size``, or None if neither is given.

    Raises:
        ValueError: Only one of the two is given.
        TypeError: One of them is not an integer.
    """
    if rank is None and world_size is None:
        return None
    if rank is None or world_size is None:
        raise ValueError("rank and world_size: expected both or neither")
    return integer("rank", rank), integer("world_size", world_size)


def checked_equal(equal: Any) -> str | None:
    """Returns the argument ``equal``.

    Raises:
        ValueError: ``equal`` is none of the known values.
    """
    if equal not in _EQUAL:
        raise ValueError(f"equal: expected one of {', '.join(map(repr, _EQUAL))}, found {equal!r}")
    chosen: str | None = equal
    return chosen


def position_of(index: int, length: int, what: str, *values: Any) -> int:
    """Returns the position, from 0, of ``index``, which counts from the end if it is negative.

    Args:
        index (int): The index.
        length (int): Number of samples.
        what (str): What has that number of samples, with a verb, for the message.
        *values (Any): The values of placeholders such as ``%d`` in ``what``, formatted in the message alone.

    Raises:
        IndexError: There is no such sample.
    """
    position = index + length if index < 0 else index
    if not 0 <= position < length:
        raise IndexError(f"no sample {index}: {what % values} {length}")
    return position


def real(name: str, value: Any) -> float:
    """Returns ``value`` as a float.

    Raises:
        TypeError: ``value`` is not a number. Text with digits is not accepted.
    """
    try:
        if isinstance(value, (str, bytes, bytearray)):
            raise TypeError
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name}: expected a number, found {value!r}") from None


def pad_values(value: Any, parts: Sequence[str] | None) -> tuple[float, dict[str, float]]:
    """Returns the argument ``pad_value`` as a value for all parts, and the values of single parts by name.

    Raises:
        TypeError: ``value`` is neither a number nor a mapping from names to numbers.
        ValueError: ``value`` names a part that is not in ``parts``, the names of all parts if they are known.
    """
    if not isinstance(value, Mapping):
        try:
            return real("pad_value", value), {}
        except TypeError:
            accepted = "a number, or a dict of numbers by part"
            raise TypeError(f"pad_value: expected {accepted}, found {value!r}") from None
    for name in value:
        if parts is not None and name not in parts:
            raise ValueError(f"pad_value: no part {name!r}; SAMPLE names {', '.join(parts)}")
    return PAD_VALUE, {name: real(f"pad_value of part {name!r}", number) for name, number in value.items()}


def seconds(name: str, value: Any) -> float | None:
    """Returns a time limit in seconds as a float. None means no limit.

    Raises:
        TypeError: ``value`` is not a number.
        ValueError: ``value`` is negative.
    """
    if value is None:
        return None
    try:
        limit = real(name, value)
    except TypeError:
        raise TypeError(f"{name}: expected a number, or None, found {value!r}") from None
    if not limit >= 0:
        raise ValueError(f"{name}: expected seconds, 0 or more, or None, found {value!r}")
    return limit


def stop_function(stop: Any) -> Callable[[], bool]:
    """Returns a function that says whether ``stop``, an event, a callable or None, requests a stop.

    Raises:
        TypeError: ``stop`` is none of these.
    """
    if stop is None:
        return lambda: False
    asks = getattr(stop, "is_set", stop)
    if not callable(asks):
        accepted = "a threading.Event, a callable without arguments, or None"
        raise TypeError(f"stop: expected {accepted}, found {stop!r}")
    return lambda: bool(asks())


def chosen_parts(parts: Iterable[str] | None, names: list[str], path: str) -> tuple[str, ...]:
    """Returns the names of the parts to read, without duplicates.

    Raises:
        ValueError: There are none, or the ring does not have one of them.
    """
    chosen = tuple(dict.fromkeys(names if parts is None else [parts] if isinstance(parts, str) else parts))
    unknown = [name for name in chosen if name not in names]
    if unknown or not chosen:
        what = f"no part {unknown[0]!r}" if unknown else "expected at least one name"
        raise ValueError(f"parts: {what}; the parts of {path} are {', '.join(names)}")
    return chosen
