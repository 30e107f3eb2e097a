"""What torch's datasets return for a sample: a dict or a tuple of tensors, transformed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ringreel._arguments import integer
from ringreel._nested import check_nesting, nested
from ringreel._sample import Sample
from ringreel._torch_marks import mark
from ringreel._transforms import Transform, random_of

#: Names of the items that ``info=True`` adds to a sample.
_INFO = ("sample_id", "generation", "position")


class Conversion:
    """Turns a ``Sample`` into what a dataset returns."""

    def __init__(
        self,
        known: Sequence[str] | None,
        parts: Sequence[str] | None,
        as_tuple: bool,
        transform: Callable[..., Any] | None,
        seed: int,
        info: bool,
        is_nested: bool,
        padding: bool = False,
    ) -> None:
        """Checks and stores the arguments of the dataset.

        Args:
            known (Sequence[str] | None): Names of all parts, if the configuration has them.
            parts (Sequence[str] | None): Names of the parts to return; None for all.
            as_tuple (bool): Whether the result is a tuple instead of a dict.
            transform (Callable | None): The user's function.
            seed (int): Seed of the user's function.
            info (bool): Whether to add the id, the generation and the position.
            is_nested (bool): Whether parts with ``/`` in their names become dicts in dicts.
            padding (bool): Whether to add "is_padding".

        Raises:
            ConfigError: The parts cannot be nested.
            ValueError: ``parts`` is empty or not in ``known``, or both ``as_tuple`` and ``is_nested``, or an item
                that ``info`` adds has the name of a part.
            TypeError: An argument has the wrong type.
        """
        self._parts = _checked(parts, known)
        if as_tuple and is_nested:
            raise ValueError("as_tuple and nested: expected at most one, because a tuple has no names")
        self._as_tuple = as_tuple
        self._transform = None if transform is None else Transform("transform", transform)
        self._seed = integer("seed", seed) % (1 << 64)
        self._info = info
        self._padding = padding
        self._nested = is_nested
        names = self._parts or known or ()
        if is_nested:
            check_nesting(names)
            self._refuse({name.partition("/")[0] for name in names})
        self._refuse(names)

    def _refuse(self, parts: Any) -> None:
        """Raises ValueError if an added item has the name of a part."""
        for name in _INFO if self._info else ():
            if name in parts:
                raise ValueError(f"info: samples have a part {name!r}; leave it out with parts=, or pass info=False")
        if self._padding and "is_padding" in parts:
            raise ValueError('parts: samples have a part "is_padding"; leave it out, or use another equal')

    def __call__(self, sample: Sample) -> Any:
        tensors: dict[str, Any] = sample.torch(*self._parts)
        if not sample.is_padding:
            for name, tensor in tensors.items():
                if isinstance(tensor, torch.Tensor):
                    mark(tensor, sample, name)
        if self._nested:
            tensors = nested(tensors)
        if self._info or self._padding:
            self._refuse(tensors)
        if self._info:
            tensors.update((name, getattr(sample, name)) for name in _INFO)
        if self._padding:
            tensors["is_padding"] = torch.tensor(sample.is_padding)
        value = tuple(tensors.values()) if self._as_tuple else tensors
        if self._transform is None:
            return value
        return self._transform(value, sample, random_of(self._seed, sample) if self._transform.has_rng else None)


def _checked(parts: Sequence[str] | None, known: Sequence[str] | None) -> tuple[str, ...]:
    if parts is None:
        return ()
    if isinstance(parts, str) or not parts:
        raise ValueError(f"parts: expected a list of names, or None for all parts, found {parts!r}")
    for name in parts:
        if known is not None and name not in known:
            raise ValueError(f"parts: no part {name!r}; SAMPLE names {', '.join(known)}")
    return tuple(parts)
