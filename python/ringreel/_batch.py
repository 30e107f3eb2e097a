"""Batches: many samples at once, part by part."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ringreel import _dtypes
from ringreel._convert import Converted, _as_bytes, convert
from ringreel._errors import SampleError
from ringreel._nested import flat, nested
from ringreel._ringreel import Part
from ringreel._sample import _array
from ringreel._wording import counted


class Batch(Mapping[str, Any]):
    """A mapping from the name of a part to its values in all samples, made by ``Dataset.batch``.

    A value is an array of shape ``(n, ...)`` whose first axis counts the samples. A part that was written
    as bytes is a list of ``bytes``. The arrays are writable. Their memory belongs to this batch alone, and
    is reused for other batches after this one is released (at most 64 MiB are kept). A batch has no meta;
    ``ds[i].meta`` has it.

    Attributes:
        generation (int): The generation that was read.
        sample_ids (Sequence[str]): Ids of the samples, in the order of the batch.

    Example:
        >>> batch = ringreel.Ring("config.yaml").dataset().batch(range(0, 2))
        >>> batch["data"].shape, batch["label"], len(batch.sample_ids), batch.generation
        ((2, 2, 3), array([0, 1]), 2, 1)
    """

    __slots__ = ("_values", "generation", "sample_ids")

    def __init__(self, generation: int, sample_ids: Sequence[str], parts: list[tuple[str, Part, list[int]]]) -> None:
        self.generation = generation
        self.sample_ids = sample_ids
        self._values = {name: _value(part, len(sample_ids), ends) for name, part, ends in parts}

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def nested(self) -> dict[str, Any]:
        """Returns the parts as dicts in dicts: part ``a/b`` is ``["a"]["b"]``. See ``Sample.nested``.

        Raises:
            ConfigError: There are parts ``a`` and ``a/b``.

        Example:
            >>> batch = ringreel.Ring("config.yaml").dataset().batch([1, 2])
            >>> batch.nested()["label"]
            array([1, 2])
        """
        return nested(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self.generation, list(self.sample_ids), self._values)

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        samples = counted(len(self.sample_ids), "sample")
        return f"<ringreel.Batch of {samples}, generation {self.generation}: {', '.join(self)}>"


def _again(generation: int, sample_ids: list[str], values: dict[str, Any]) -> Batch:
    batch = Batch(generation, sample_ids, [])
    batch._values = values
    return batch


def _value(part: Part, count: int, ends: list[int]) -> Any:
    if part.dtype != _dtypes.BYTES:
        return _array(part, part.writable())
    data, one = memoryview(part), len(part) // max(count, 1)
    ends = ends or [one * (n + 1) for n in range(count)]
    return [bytes(data[begin:end]) for begin, end in zip([0, *ends], ends)]


def parts_of_batch(samples: Any, names: Sequence[str]) -> tuple[list[Converted], int]:
    """Returns the parts of many samples, each with the shape of one sample, and the number of samples.

    Args:
        samples (Any): The argument of ``Generator.write_batch``.
        names (Sequence[str]): The ring's ``SAMPLE``.

    Raises:
        SampleError: The samples do not match. The message names the part.
    """
    if isinstance(samples, Mapping):
        given = list(flat(samples).items())
    elif isinstance(samples, (tuple, list)) and len(samples) == len(names):
        given = list(zip(names, samples))
    else:
        raise SampleError(f"batch: expected a dict or a tuple of the parts {', '.join(names)} of all samples")
    parts, counts = [], {}
    for name, value in given:
        (name, dtype, itemsize, shape, data), counts[name] = _stacked(name, value)
        parts.append((name, dtype, itemsize, shape, data))
    if len(set(counts.values())) > 1:
        raise SampleError(f"the parts of a batch have different numbers of samples: {counts}")
    return parts, next(iter(counts.values()), 0)


def _stacked(name: str, value: Any) -> tuple[Converted, int]:
    """Returns one part of all samples, with the shape of one sample, and the number of samples."""
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], (bytes, bytearray, memoryview)):
        try:
            views = [_as_bytes(one) for one in value]
        except TypeError as error:
            raise SampleError(f"part {name!r}: a list that starts with bytes may hold only bytes: {error}") from None
        if len({view.nbytes for view in views}) > 1:
            raise SampleError(f"part {name!r}: a batch holds bytes of one length; write others one by one")
        _, dtype, itemsize, (length,), data = convert(name, b"".join(views))
        return (name, dtype, itemsize, (length // len(value),), data), len(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        raise SampleError(f"part {name!r} of a batch: expected an array, or a list with one bytes object per sample")
    if value is not None and not hasattr(value, "shape"):
        value = np.asarray(value)
    name, dtype, itemsize, shape, data = convert(name, value)
    if not shape:
        raise SampleError(f"part {name!r} of a batch: expected an array whose first axis counts the samples")
    return (name, dtype, itemsize, shape[1:], data), shape[0]
