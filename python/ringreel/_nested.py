"""Nested samples: parts whose names contain ``/`` as dicts in dicts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ringreel._errors import ConfigError, SampleError

_SEPARATOR = "/"


def check_nesting(names: Iterable[str]) -> None:
    """Checks that each name is either that of a part, or the first names of other parts.

    Args:
        names (Iterable[str]): Names of parts.

    Raises:
        ConfigError: There are parts ``a`` and ``a/b``, so ``a`` would have to be both a value and a dict.
    """
    ordered = list(names)
    known = set(ordered)
    for name in ordered:
        for end in (place for place, letter in enumerate(name) if letter == _SEPARATOR):
            if name[:end] in known:
                raise ConfigError(
                    f"SAMPLE names both {name[:end]!r} and {name!r}, which cannot be nested: {name[:end]!r} would be a "
                    "part and a dict. Rename one of them, or leave it out of parts="
                )


def nested(parts: Mapping[str, Any]) -> dict[str, Any]:
    """Returns parts by name as dicts in dicts: part ``a/b`` is ``["a"]["b"]``.

    Raises:
        ConfigError: There are parts ``a`` and ``a/b``.
    """
    check_nesting(parts)
    tree: dict[str, Any] = {}
    for name, value in parts.items():
        *folders, last = name.split(_SEPARATOR)
        place = tree
        for folder in folders:
            place = place.setdefault(folder, {})
        place[last] = value
    return tree


def flat(sample: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns dicts in dicts as parts by name: ``["a"]["b"]`` is part ``a/b``.

    Raises:
        SampleError: Two values have the same name, or the name in an inner dict is not text.
    """
    if not any(isinstance(value, Mapping) for value in sample.values()):
        return sample
    parts: dict[str, Any] = {}
    _add(parts, "", sample)
    return parts


def _add(parts: dict[str, Any], folder: str, sample: Mapping[str, Any]) -> None:
    for name, value in sample.items():
        if not isinstance(name, str):
            raise SampleError(f"the name of a part: expected text, found {name!r}")
        if isinstance(value, Mapping):
            _add(parts, f"{folder}{name}{_SEPARATOR}", value)
        elif folder + name in parts:
            raise SampleError(f"part {folder + name!r} is given twice, as a name with {_SEPARATOR!r} and in a dict")
        else:
            parts[folder + name] = value
